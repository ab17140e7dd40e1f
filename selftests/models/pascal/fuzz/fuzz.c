// SPDX-License-Identifier: GPL-2.0-only
/* Shared by the fuzzers. See fuzz.h. */
#include "fuzz.h"

#include <stdlib.h>

struct vfio_user *device(struct gpu *g)
{
	return &g->dev;
}

/* ---- what a driver does ---- */

void wr(struct gpu *g, u32 at, u32 val)
{
	vfio_user_write(&g->dev, REGION_BAR0, at, &val, 4);
}

void vram64(struct gpu *g, u64 at, u64 val)
{
	memcpy(g->vram + at, &val, 8);
}

/* Makes the directories of an address space, and four tables of small pages, for 2 MiB each. */
static void space(struct gpu *g, u32 n, u64 base, u64 flags)
{
	static const u8 shift[] = { 47, 38, 29 };
	u64 t = TABLES(n);

	for (u32 i = 0; i < 3; i++)
		vram64(g, t + i * 0x1000 + (base >> shift[i] & (i ? 511 : 3)) * 8,
		       (t + (i + 1) * 0x1000) >> 4 | 2);
	for (u32 i = 0; i < 4; i++)
		vram64(g, t + 0x3000 + ((base >> 21) + i & 255) * 16 + 8,
		       (t + 0x4000 + i * 0x1000) >> 4 | 2);
	vram64(g, INST + n * 0x1000 + 0x200, t | flags | 1 << 10);
}

static void page(struct gpu *g, u32 n, u32 i, u64 pte)
{
	vram64(g, TABLES(n) + 0x4000 + i * 8, pte);
}

/* BAR 1 and BAR 2, the fault buffer, two channels of a process on the runlist of a copy engine. */
static void set_up(struct gpu *g)
{
	vfio_user_write(&g->dev, VFIO_CONFIG, 4, (u8[]){ 6 }, 1);
	space(g, 0, VA, REPLAYABLE);
	space(g, 1, 0, 0);
	space(g, 2, 0, 0);
	for (u32 i = 0; i < 8; i++) {
		page(g, 0, i, (DATA + (i << 12)) >> 4 | 1);
		page(g, 1, 16 + i, (DATA + (i << 12)) >> 4 | 1);
		page(g, 2, i, (FAULT_BUFFER + (i << 12)) >> 4 | 1);
	}
	page(g, 1, 0, USERD >> 4 | 1);
	page(g, 0, 512, 0x100000 >> 4 | 5);		/* RAM */
	page(g, 0, 513, RING >> 4 | 1);
	page(g, 0, 514, 0x101000 >> 4 | 5);
	wr(g, 0x160, ~0U);
	wr(g, 0x1704, 1U << 31 | (INST + 0x1000) >> 12);
	wr(g, 0x1714, 1U << 31 | (INST + 0x2000) >> 12);
	wr(g, 0x2a70, 1);
	wr(g, 0x2254, 1 << 28);
	wr(g, 0x2140, ~0U);
	for (u32 i = 1; i <= NCHAN; i++) {
		u64 inst = INST + (i == 1 ? 0 : 0x3000);

		vram64(g, inst + 0x08, USERD + i * 0x200);
		vram64(g, inst + 0x48, (PB + 0x1000 + i * 0x400) | 7ULL << 48);
		vram64(g, inst + 0x200, TABLES(0) | REPLAYABLE | 1 << 10);
		vram64(g, RUNLIST + (i - 1) * 8, i);
		wr(g, 0x800000 + i * 8, 1U << 31 | inst >> 12);
	}
	wr(g, 0x2270, RUNLIST >> 12);
	wr(g, 0x2274, 1 << 20 | NCHAN);
	for (u32 i = 1; i <= NCHAN; i++)
		wr(g, 0x800004 + i * 8, 1 << 10);
}

/* ---- what a guest does ---- */

/* value: the offset from INST, in units of 8 bytes */
void run_vram(struct gpu *g, const struct rec *r)
{
	memcpy(g->vram + INST + r->value * 8, r->data, r->len);
	g->mapped_old = true;
}

u16 fill_vram(struct rec *r, u8 *data)
{
	static const u32 at[] = { INST, INST + 0x200, RUNLIST, RING, USERD + 0x288,
				  TABLES(0) + 0x3000, TABLES(0) + 0x4000, TABLES(1) + 0x4000 };

	r->value = (at[rnd(ARRAY_SIZE(at))] - INST) / 8 + rnd(32);
	return 8 * (1 + rnd(4));
}

/* argument: the client, and the operation; data: address, length, channel */
void run_door(struct gpu *g, const struct rec *r)
{
	u64 at = REGION_DOOR, base = (r->arg & 7) * DOOR_SIZE;
	u32 op = r->arg >> 3;

	vfio_user_write(&g->dev, at, base + DOOR_VA, r->data, 8);
	vfio_user_write(&g->dev, at, base + DOOR_LEN, r->data + 8, 4);
	vfio_user_write(&g->dev, at, base + DOOR_CHID, r->data + 12, 4);
	vfio_user_write(&g->dev, at, base + DOOR_OP, &op, 4);
}

u16 fill_door(struct rec *r, u8 *data)
{
	u64 va = VA + rnd(64) * 0x1000 + (rnd(4) ? 0 : rnd(4096));

	r->arg = rnd(8) | (1 + rnd(7)) << 3;
	memcpy(data, &va, 8);
	memcpy(data + 8, (u32[]){ rnd(2) ? 4 : rnd(0x4000), 1 + rnd(NCHAN) }, 8);
	return 16;
}

/* argument: the knob; value: its setting */
void run_knob(struct gpu *g, const struct rec *r)
{
	u32 val = r->value;

	vfio_user_write(&g->dev, REGION_DOOR, DOOR_HOLD + (r->arg % 12) * 4, &val, 4);
}

u16 fill_knob(struct rec *r, u8 *data)
{
	r->value = rnd(4);
	return 0;
}

/* Time passes: nothing has to wait any more. */
void run_tick(struct gpu *g, const struct rec *r)
{
	for (u32 i = 0; i < g->nlate; i++)
		g->late[i].due = 0;
	for (u32 i = 0; i < CHANNELS; i++)
		g->chan[i].due = 0;
	for (u32 i = 0; g->stale && i < TLB_SIZE; i++)
		if (g->tlb[i].stale)
			g->tlb[i].stale = 1;
	g->invalidation.until = 0;
	g->dev.ticking = g->dev.ops->tick(&g->dev);
}

int LLVMFuzzerTestOneInput(const u8 *p, size_t size)
{
	static struct gpu gpu;
	struct options o = { .vram = VRAM_SIZE, .bar1 = 16 << 20, .posted = POSTED_FLUSH };
	struct gpu *g = &gpu;
	u32 stale = 0;

	if (!size)
		return 0;
	memset(ram, 0, RAM_SIZE);
	o.one_runlist = *p & 1;
	if (gpu_init(g, &o) || dma_map(&g->dev.dma, 0, RAM_SIZE, 0, 3, ram_fd))
		abort();
	g->dev.verbose = getenv("SAY");
	g->dev.mute = !g->dev.verbose;
	set_up(g);
	run_records(g, p + 1, p + size);
	/* The number of stale entries must be right. */
	for (u32 i = 0; i < TLB_SIZE; i++)
		stale += !!g->tlb[i].stale;
	if (stale != g->stale)
		abort();
	gpu_free(g);
	return 0;
}
