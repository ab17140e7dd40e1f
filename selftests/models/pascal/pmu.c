// SPDX-License-Identifier: GPL-2.0-only
/*
 * The part of the falcon PMU that waking up needs: the driver loads the program "devinit" of the
 * VBIOS and its tables, and starts it. Until the driver has done this after a sleep, there is no
 * VRAM.
 *
 * Source: envytools (hwdocs/falcon/io.rst, memory.rst): the ports to code and data memory. Inferred
 * from nouveau: the place of each part, and how the program says that it is done
 * (nvkm/subdev/devinit/gm200.c).
 */
#include "pascal.h"

#define PMU 0x10a000
#define AINCW BIT(24)

enum {
	MAILBOX0 = PMU + 0x040, CPUCTL = PMU + 0x100, BOOTVEC = PMU + 0x104,
	IMEMC = PMU + 0x180, IMEMD = PMU + 0x184, DMEMC = PMU + 0x1c0, DMEMD = PMU + 0x1c4,
};

#define START BIT(1)
#define FINISHED BIT(13)

/* The word that this port leads to. Then the port advances, if the driver enabled this. */
static u8 *port(struct gpu *g, u32 control, u8 *mem, u32 size)
{
	u32 *reg = &g->regs[control / 4], at = *reg & 0xfffc;

	if (*reg & AINCW)
		*reg = (*reg & ~0xffffU) | ((at + 4) & 0xffff);
	return at < size ? mem + at : NULL;
}

static void start(struct gpu *g)
{
	if (!bios_devinit(g, g->regs[BOOTVEC / 4])) {
		violation(g, "the PMU is started without the devinit of the VBIOS");
		return;
	}
	g->regs[MAILBOX0 / 4] |= FINISHED;
	g->regs[DEVINIT_HAS_RUN / 4] = 2;
}

bool pmu_read(struct gpu *g, u32 at, u32 *val)
{
	u8 *p;

	if (at != DMEMD)
		return plain_read(g, at, val);
	p = port(g, DMEMC, g->dmem, sizeof(g->dmem));
	if (p)
		memcpy(val, p, 4);
	return p;
}

bool pmu_write(struct gpu *g, u32 at, u32 val)
{
	u8 *p;

	switch (at) {
	case CPUCTL:
		if (val != START)
			return false;
		start(g);
		return true;
	case IMEMD:
		p = port(g, IMEMC, g->imem, sizeof(g->imem));
		break;
	case DMEMD:
		p = port(g, DMEMC, g->dmem, sizeof(g->dmem));
		break;
	default:
		return plain_write(g, at, val);
	}
	if (p)
		memcpy(p, &val, 4);
	return p;
}
