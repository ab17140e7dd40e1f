// SPDX-License-Identifier: GPL-2.0-only
/*
 * BAR 1 and BAR 2: windows to the memory that their page tables map. Writes to BAR 1 are posted.
 * The driver has to flush them before the GPU reads the data.
 *
 * Source: envytools (0x001704, 0x001714, 0x070000). Inferred from nouveau: 0x001710
 * (nvkm/subdev/bar/gm107.c), the flush (bar/g84.c), and that an error in BAR 1 is an MMU fault of
 * unit 4, in BAR 2 of unit 5 (dev_fault.h says so, too).
 */
#include "pascal.h"

enum { BAR1 = 0x1704, STATUS = 0x1710, BAR2 = 0x1714, FLUSH = 0x70000 };
enum { USERD_POLL = 0x2254, USERD_SIZE = 0x200, GP_PUT = 0x8c };
enum { UNIT_BAR1 = 4, UNIT_BAR2 = 5, CLIENT_HOST_CPU = 7 };

static u64 instance(struct gpu *g, u32 bar)
{
	return (u64)(g->regs[(bar == 1 ? BAR1 : BAR2) / 4] & 0x0fffffff) << 12;
}

u64 bar_pdb(struct gpu *g, u32 bar)
{
	if (!(g->regs[(bar == 1 ? BAR1 : BAR2) / 4] & BIT(31)))
		return 0;
	return vram_read64(g, instance(g, bar) + 0x200);
}

/* Where channels have their USERD, host sees each write of a GP_PUT at once. */
static bool polled(struct gpu *g, u64 off)
{
	u64 from = (u64)(g->regs[USERD_POLL / 4] & 0x0fffffff) << 12;

	return g->regs[USERD_POLL / 4] & BIT(28) && off >= from &&
	       off - from < CHANNELS * USERD_SIZE;
}

static void access_now(struct gpu *g, u32 bar, u64 off, void *buf, u32 len, bool write)
{
	u64 pdb = bar_pdb(g, bar);
	struct mmu_fault f;

	if (!write)
		memset(buf, 0xff, len);
	if (!pdb) {
		g->stats.bar_faults++;
		note(g, "BAR %u is off: %s %#lx", bar, write ? "write to" : "read of", off);
		return;
	}
	/* The driver writes page tables here. */
	if (bar == 2 && write)
		g->mapped_old = true;
	if (mmu_copy(g, pdb, false, off, buf, len, write ? WRITE : READ, &f))
		return;
	g->stats.bar_faults++;
	note(g, "BAR %u fault: %s %#lx, reason %u", bar, write ? "write to" : "read of", f.va,
	     f.reason);
	fault_fatal(g, bar == 1 ? UNIT_BAR1 : UNIT_BAR2, instance(g, bar), f.va,
		    write ? WRITE : READ, f.reason, true, CLIENT_HOST_CPU);
}

void bar_flush(struct gpu *g, bool by_read)
{
	u32 n = g->nposted;

	if (g->opt.posted == POSTED_READ && !by_read)
		return;
	g->nposted = 0;
	for (u32 i = 0; i < n; i++)
		access_now(g, 1, g->posted[i].off, g->posted[i].data, g->posted[i].len, true);
}

/* Writes of one word keep their order: that of the GPU comes after those of BAR 1. */
void bar_word(struct gpu *g, u64 pdb, u64 va)
{
	struct xlat to, x;

	for (u32 i = 0; i < g->nposted; i++) {
		if (g->posted[i].off % 4096 / 4 != va % 4096 / 4)
			continue;
		walk(g, pdb, va, &to);
		walk(g, bar_pdb(g, 1), g->posted[i].off, &x);
		if (to.where == VRAM && x.where == VRAM && to.addr / 4 == x.addr / 4) {
			bar_flush(g, true);
			return;
		}
	}
}

static bool post(struct gpu *g, u64 off, const void *from, u32 len)
{
	if (g->opt.posted == POSTED_NO || len > sizeof(g->posted[0].data) || polled(g, off))
		return false;
	if (g->nposted == ARRAY_SIZE(g->posted))
		bar_flush(g, true);
	g->posted[g->nposted].off = off;
	g->posted[g->nposted].len = len;
	memcpy(g->posted[g->nposted++].data, from, len);
	g->stats.bar1_queued++;
	return true;
}

void bar_access(struct gpu *g, u32 bar, u64 off, void *buf, u32 len, bool write)
{
	if (bar == 1 && !write)
		bar_flush(g, true);
	if (bar == 1 && write && post(g, off, buf, len))
		return;
	access_now(g, bar, off, buf, len, write);
	if (bar == 1 && write && polled(g, off) && off % USERD_SIZE == GP_PUT)
		fifo_doorbell(g, (off - ((u64)(g->regs[USERD_POLL / 4] & 0x0fffffff) << 12)) /
					 USERD_SIZE);
}

bool bar_read(struct gpu *g, u32 at, u32 *val)
{
	switch (at) {
	case BAR1:
	case BAR2:
		*val = g->regs[at / 4];
		return true;
	case STATUS:		/* neither is busy */
	case FLUSH:
		*val = 0;
		return true;
	}
	return false;
}

bool bar_write(struct gpu *g, u32 at, u32 val)
{
	switch (at) {
	case BAR1:
	case BAR2:
		g->regs[at / 4] = val;
		debug(g, "BAR %u: %#x", at == BAR1 ? 1 : 2, val);
		return true;
	case FLUSH:
		bar_flush(g, false);
		return true;
	}
	return false;
}
