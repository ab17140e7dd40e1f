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

void vram32(struct gpu *g, u64 at, u32 val)
{
	memcpy(g->vram + at, &val, 4);
}

static void vram64(struct gpu *g, u64 at, u64 val)
{
	memcpy(g->vram + at, &val, 8);
}

void request(struct gpu *g, const u32 *words, u32 n)
{
	u32 tail;

	memcpy(&tail, g->vram + DESC + 4, 4);
	for (u32 i = 0; i <= n; i++)
		vram32(g, H2G + 4 * ((tail + i) % WORDS), i ? words[i - 1] : n);
	vram32(g, DESC + 4, (tail + 1 + n) % WORDS);
	wr(g, 0x1901f0, 1);
	/* The driver has read all events. */
	memcpy(g->vram + DESC + 64, g->vram + DESC + 68, 4);
}

static void message(struct gpu *g, u32 action, u32 a, u32 b)
{
	wr(g, 0x190244, a);
	wr(g, 0x190248, b);
	wr(g, 0x190240, action);
	wr(g, 0x1901f0, 1);
}

static void context(struct gpu *g, u32 n)
{
	static const u8 dw[] = { 0x09, 0x0b, 0x2f, 0x33 };
	const u32 val[] = { RING(n), 1, n, TABLES(n) };

	for (u32 i = 0; i < ARRAY_SIZE(dw); i++)
		vram32(g, IMAGE(n) + 0x1000 + 4 * dw[i], val[i]);
	request(g, (u32[]){ 0x20004502, 0, n, 3, 1, 0, 0, 0, 0, 0, IMAGE(n), 0 }, 12);
	request(g, (u32[]){ 0x20001001, n, 1 }, 3);
}

/* The GuC and its buffers; context 0 of the driver, context 1 of a process; pages of both. */
static void set_up(struct gpu *g)
{
	static const u32 config[] = { H2G, DESC, WORDS * 4, G2H, DESC + 64, WORDS * 4 };

	vfio_user_write(&g->dev, VFIO_CONFIG, PCI_COMMAND, (u8[]){ 6 }, 1);
	for (u32 i = 0; i < USED / 4096; i++)
		g->ggtt[i] = i << 12 | 3;
	wr(g, 0x190008, BIT(31));
	wr(g, 0x00c314, 0x110011);
	for (u32 i = 0; i < ARRAY_SIZE(config); i++)
		message(g, 0x508, (0x902 + i) << 16 | 1, config[i]);
	message(g, 0x4509, 1, 0);
	for (u32 asid = 0; asid < 2; asid++) {
		for (u32 level = 0; level < 4; level++)
			vram64(g, TABLES(asid) + level * 0x1000 +
					  (VA >> (48 - 9 * level) & 511) * 8,
			       (TABLES(asid) + (level + 1) * 0x1000) | 3);
		for (u32 i = 0; i < 10; i++)
			vram64(g, TABLES(asid) + 0x4000 + i * 8,
			       i == 7 ? 0x100003 : (DATA + asid * 0x20000 + i * 0x1000) | 0xc03);
		context(g, asid);
	}
}

/* ---- what a guest does ---- */

/* value: the offset, in units of 16 bytes */
void run_vram(struct gpu *g, const struct rec *r)
{
	memcpy(g->vram + r->value * 16, r->data, r->len);
}

u16 fill_vram(struct rec *r, u8 *data)
{
	static const u32 at[] = { H2G, DESC, IMAGE(0) + 0x1000, IMAGE(1) + 0x1000, RING(1),
				  TABLES(0) + 0x4000, TABLES(1), TABLES(1) + 0x3000,
				  TABLES(1) + 0x4000 };

	r->value = at[rnd(ARRAY_SIZE(at))] / 16 + rnd(16);
	return 8 * (1 + rnd(4));
}

/* argument: the register of the door; value: its setting */
void run_knob(struct gpu *g, const struct rec *r)
{
	static const u32 at[] = { DOOR_ASID, DOOR_OP, DOOR_VA, DOOR_VA + 4, DOOR_HOLD, DOOR_RELEASE,
				  DOOR_SLOW, DOOR_LATE, DOOR_CHECK, DOOR_GONE };
	u32 val = r->value;

	vfio_user_write(&g->dev, REGION_DOOR, at[r->arg % ARRAY_SIZE(at)], &val, 4);
}

u16 fill_knob(struct rec *r, u8 *data)
{
	r->value = rnd(4);
	return 0;
}

/* Time passes: nothing has to wait any more. */
void run_tick(struct gpu *g, const struct rec *r)
{
	for (u32 i = 0; i < g->ninvalidation; i++)
		g->invalidation[i].due = 0;
	for (u32 i = 0; i < g->contexts; i++)
		if (g->context[i].report)
			g->context[i].report = 1;
	for (u32 i = 0; g->stale && i < TLB_SIZE; i++)
		if (g->tlb[i].stale)
			g->tlb[i].stale = 1;
	g->dev.ticking = g->dev.ops->tick(&g->dev);
}

int LLVMFuzzerTestOneInput(const u8 *p, size_t size)
{
	struct options o = { .vram = VRAM_SIZE, .bar = 256 << 20 };
	static struct gpu gpu;
	struct gpu *g = &gpu;
	u32 stale = 0;

	if (!size)
		return 0;
	memset(ram, 0, RAM_SIZE);
	o.posted = *p & 1;
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
