// SPDX-License-Identifier: GPL-2.0-only
/* Fuzzes push buffers: methods of host and of the copy engine. */
#include "fuzz.h"

static u16 put_at[NCHAN];

/* argument: the channel; value: the length of the entry of the ring, in words */
static void run_push(struct gpu *g, const struct rec *r)
{
	u32 chid = r->arg % NCHAN, words = r->value & 0xfff, put;
	u64 at = PB + (put_at[chid] & 7) * 512;

	/* Only for the first push of an input. */
	if (!g->stats.bar1_queued && !g->stats.pushes)
		memset(put_at, 0, sizeof(put_at));
	memcpy(ram + 0x100000 + (put_at[chid] & 7) * 512, r->data, min(r->len, 512));
	vram64(g, RING + (chid + 1) * 0x400 + (put_at[chid] & 127) * 8, at | (u64)words << 42);
	put = ++put_at[chid] & 127;
	vfio_user_write(&g->dev, REGION_BAR1, (chid + 1) * 0x200 + 0x8c, &put, 4);
}

static u32 method(u32 subc, u32 at, u32 n)
{
	return 1 << 29 | n << 16 | subc << 13 | at >> 2;
}

static u64 place(void)
{
	switch (rnd(8)) {
	case 0:
		return VRAM_SIZE - rnd(0x2000);
	case 1:
		return RAM_SIZE - rnd(0x2000);
	case 2:
		return DATA + rnd(0x8000);
	}
	return rnd(2) ? VA + rnd(8) * 0x1000 : DATA + rnd(16) * 0x800;
}

static u16 fill_push(struct rec *r, u8 *data)
{
	u64 from = place(), to = place();
	const u32 copy[] = {
		method(4, 0, 1), CE_CLASS, method(4, 0x240, 3), PB >> 32, (u32)PB + 0x2000, rnd(9),
		method(4, 0x260, 2), rnd(3), rnd(3), method(4, 0x400, 8), from >> 32, from,
		to >> 32, to, 1 << rnd(13), 1 << rnd(13), 1 << (rnd(2) ? rnd(13) : 19), 1 + rnd(2),
		method(4, 0x700, 3), rnd(256), rnd(256),
		rnd(0x8000) | rnd(4) << 16 | rnd(4) << 20 | rnd(4) << 24,
		method(4, 0x300, 1),
		2 | 3 << 7 | rnd(4) << 9 | (rnd(4) ? 3 : rnd(4)) << 12 | rnd(3) << 3,
	};
	const u32 semaphore[] = {
		method(0, 0x10, 4), PB >> 32, (u32)PB + 0x2000 + rnd(8) * 16, rnd(4),
		1 << rnd(5) | 1 << 24, method(0, 0x20, 1), 0,
	};

	if (rnd(4)) {
		memcpy(data, copy, sizeof(copy));
		r->value = ARRAY_SIZE(copy);
		return sizeof(copy);
	}
	memcpy(data, semaphore, sizeof(semaphore));
	r->value = ARRAY_SIZE(semaphore);
	return sizeof(semaphore);
}

/* argument: which runlist; data: its entries */
static void run_runlist(struct gpu *g, const struct rec *r)
{
	memcpy(g->vram + RUNLIST, r->data, r->len);
	wr(g, 0x2274, (r->arg & 15) << 20 | r->len / 8);
}

static u16 fill_runlist(struct rec *r, u8 *data)
{
	r->arg = rnd(3);
	for (u32 i = 0; i < 3; i++)
		data[i * 8] = 1 + rnd(rnd(2) ? NCHAN : 255);
	return 24;
}

const struct kind kinds[] = {
	{ run_push, fill_push },
	{ run_push, fill_push },
	{ run_runlist, fill_runlist },
	COMMON_KINDS
};
const unsigned int nkinds = ARRAY_SIZE(kinds);

const u64 values[] = {
	0, 1, 2, 3, 4, 8, 9, 0x10, 0x20, 0x80, 0xff, 0x400, 0xfff, 0x1000, 0xffff, CE_CLASS,
	1 << 29 | 1 << 16 | 4 << 13 | 0x300 >> 2, 3 << 29 | 4 << 16, 4U << 29, 5U << 29 | 2 << 16,
	2 | 3 << 7 | 1 << 9, 2 | 3 << 7 | 1 << 10 | 1 << 13, VA, PB, DATA, VRAM_SIZE,
	VRAM_SIZE - 1, RAM_SIZE, 0x7fffffff, 0x80000000, 0xffffffff, 1ULL << 40, ~0ULL,
};
const unsigned int nvalues = ARRAY_SIZE(values);
