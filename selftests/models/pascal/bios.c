// SPDX-License-Identifier: GPL-2.0-only
/*
 * PROM: the smallest VBIOS that nouveau accepts. It has no settings, and its code does nothing (see
 * pmu.c).
 *
 * Source: the PCI firmware specification (header, PCIR); NVIDIA open-gpu-doc, BIOS-Information-
 * Table (BIT, its tokens i, I, P, p). Inferred from nouveau: how long each part must be at least
 * (nvkm/subdev/bios, fb/ramgp100.c, devinit/gm200.c), and that the ROM is seen at 0x300000.
 */
#include "pascal.h"

#define PROM 0x300000

enum {
	PCIR = 0x40, BIT_AT = 0x100, INIT = 0x240, RAMMAP = 0x400, PMU = 0x440,
	DEVINIT = 0x500, TABLES = 0x800, SCRIPTS = 0x840,
};

/* The offsets of the parts of devinit in the memories of the PMU, and their lengths. */
enum {
	CODE = DEVINIT + 0x30, CODE_LEN = 0x200, START = 0x100,
	DATA = CODE + CODE_LEN, DATA_LEN = 0x40, ARGS = 0x20,
	TABLES_TO = 0x400, SCRIPTS_TO = 0x600, PART_LEN = 0x40,
};

static void put(struct gpu *g, u32 at, u32 len, u64 val)
{
	for (u32 i = 0; i < len; i++)
		g->bios[at + i] = val >> (8 * i);
}

void bios_init(struct gpu *g)
{
	static const struct {
		char id;
		u8 version;
		u16 len, at;
	} token[] = {
		{ 'i', 2, 0x40, 0x200 },	/* version */
		{ 'I', 1, 0x1c, INIT },		/* init scripts: for the PMU */
		{ 'P', 2, 0x40, 0x280 },	/* performance: only the memory map */
		{ 'p', 2, 0x04, 0x2c0 },	/* firmware of the PMU */
	};
	u8 sum = 0;

	put(g, 0x00, 2, 0xaa55);
	put(g, 0x02, 1, BIOS_SIZE / 512);
	put(g, 0x18, 2, PCIR);
	memcpy(g->bios + PCIR, "PCIR", 4);
	put(g, PCIR + 0x04, 2, 0x10de);
	put(g, PCIR + 0x06, 2, 0x15f8);
	put(g, PCIR + 0x0a, 2, 0x18);		/* length of this */
	put(g, PCIR + 0x0d, 3, 0x030200);
	put(g, PCIR + 0x10, 2, BIOS_SIZE / 512);
	put(g, PCIR + 0x15, 1, 0x80);		/* the last image */
	memcpy(g->bios + BIT_AT, "\xff\xb8" "BIT", 6);
	put(g, BIT_AT + 6, 2, 0x100);		/* version */
	put(g, BIT_AT + 8, 1, 12);		/* length of this, and of a token */
	put(g, BIT_AT + 9, 1, 6);
	put(g, BIT_AT + 10, 1, ARRAY_SIZE(token));
	for (u32 i = 0; i < ARRAY_SIZE(token); i++) {
		u32 at = BIT_AT + 12 + i * 6;

		put(g, at, 1, token[i].id);
		put(g, at + 1, 1, token[i].version);
		put(g, at + 2, 2, token[i].len);
		put(g, at + 4, 2, token[i].at);
	}
	put(g, 0x200, 4, 0x86000000);		/* 86.00.00.00: a GP100 */
	put(g, 0x284, 4, RAMMAP);
	put(g, RAMMAP, 2, 0x1511);		/* version, length of the header; no entries */
	put(g, 0x2c0, 4, PMU);
	put(g, PMU, 4, 0x01060401);		/* version, header, length and number of entries */
	put(g, PMU + 4, 1, 4);			/* devinit */
	put(g, PMU + 6, 4, DEVINIT);
	/* Code in two parts, the first of 0x100 bytes; then data. */
	put(g, DEVINIT + 0x08, 4, START);
	put(g, DEVINIT + 0x1c, 4, 0x100);
	put(g, DEVINIT + 0x20, 4, CODE_LEN - 0x100);
	put(g, DEVINIT + 0x24, 4, CODE_LEN);
	put(g, DEVINIT + 0x2c, 4, DATA_LEN);
	for (u32 i = 0; i < CODE_LEN; i++)
		g->bios[CODE + i] = i * 7 + 1;
	put(g, DATA + 0x08, 4, ARGS);
	put(g, DATA + ARGS + 0x08, 4, TABLES_TO);
	put(g, DATA + ARGS + 0x10, 4, SCRIPTS_TO);
	put(g, INIT + 0x14, 4, TABLES | PART_LEN << 16);
	put(g, INIT + 0x18, 4, SCRIPTS | PART_LEN << 16);
	for (u32 i = 0; i < 2 * PART_LEN; i++)
		g->bios[TABLES + i] = i * 11 + 3;
	for (u32 i = 0; i < BIOS_SIZE; i++)
		sum += g->bios[i];
	g->bios[BIOS_SIZE - 1] -= sum;
}

/* Is all of devinit in the memories of the PMU, and is this address its beginning? */
bool bios_devinit(struct gpu *g, u32 from)
{
	return from == START && !memcmp(g->imem, g->bios + CODE, CODE_LEN) &&
	       !memcmp(g->dmem, g->bios + DATA, DATA_LEN) &&
	       !memcmp(g->dmem + TABLES_TO, g->bios + TABLES, PART_LEN) &&
	       !memcmp(g->dmem + SCRIPTS_TO, g->bios + SCRIPTS, PART_LEN);
}

bool bios_read(struct gpu *g, u32 at, u32 *val)
{
	*val = ~0U;
	if (at - PROM < BIOS_SIZE)
		memcpy(val, g->bios + (at - PROM), 4);
	return true;
}
