// SPDX-License-Identifier: GPL-2.0-only
/* Fuzzes page tables and TLBs: entries of any level, and accesses that use them. */
#include "fuzz.h"

/* argument: the address space, and the level; value: the index */
static void run_entry(struct gpu *g, const struct rec *r)
{
	u32 space = r->arg % 3, level = r->arg / 4 % 8;
	u32 at = TABLES(space) + level * 0x1000 + r->value * 8 % 0x1000;

	memcpy(g->vram + at, r->data, min(r->len, 0x2000));
	g->mapped_old = true;
}

static u16 fill_entry(struct rec *r, u8 *data)
{
	u64 to = rnd(3) ? DATA + rnd(8) * 0x1000 : TABLES(rnd(3)) + rnd(8) * 0x1000;
	u64 flags = rnd(3) ? 1 | rnd(4) << 1 : 2 * rnd(4);

	r->arg = rnd(3) | (rnd(4) ? 3 + rnd(2) : rnd(4)) << 2;
	r->value = rnd(2) ? rnd(16) : (VA >> 21 & 255) * 2 + rnd(16);
	to = to >> 4 | flags | (rnd(4) ? 0 : 8 | rnd(8) << 5);
	memcpy(data, &to, 8);
	return 8;
}

/* argument: the address space; value: the lower bits of the register */
static void run_invalidate(struct gpu *g, const struct rec *r)
{
	wr(g, 0x100cb8, TABLES(r->arg % 3) >> 8);
	wr(g, 0x100cec, 0);
	wr(g, 0x100cbc, 1U << 31 | 1 | r->value);
}

static u16 fill_invalidate(struct rec *r, u8 *data)
{
	r->value = rnd(2) ? 0 : rnd(1 << 6);
	return 0;
}

const struct kind kinds[] = {
	{ run_entry, fill_entry }, { run_entry, fill_entry }, { run_invalidate, fill_invalidate },
	COMMON_KINDS
};
const unsigned int nkinds = ARRAY_SIZE(kinds);

const u64 values[] = {
	0, 1, 2, 3, 5, 6, 7, 8, 0x20, 0x28, 0x41, 0x81, 0xc1, DATA >> 4 | 1, DATA >> 4 | 0x41,
	TABLES(0) >> 4 | 2, (TABLES(0) + 0x3000) >> 4 | 2, (TABLES(0) + 0x4000) >> 4 | 2,
	VRAM_SIZE >> 4 | 1, 0x100000 >> 4 | 5, RAM_SIZE >> 4 | 5, VA, VA + 0x200000, PB, 1ULL << 47,
	(1ULL << 49) - 4096, 1ULL << 49, ~0ULL, ~0ULL << 12,
};
const unsigned int nvalues = ARRAY_SIZE(values);
