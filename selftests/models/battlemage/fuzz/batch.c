// SPDX-License-Identifier: GPL-2.0-only
/* Fuzzes the commands of rings and batches, and page tables. */
#include "fuzz.h"

/* value: the offset in the page of the batch; argument: the context, and whether the ring is it */
static void run_batch(struct gpu *g, const struct rec *r)
{
	u32 n = r->arg & 1, at = r->arg & 2 ? RING(n) : DATA + n * 0x20000 + 0x8000;
	u32 start[] = { 0x31 << 23 | 1 << 8 | 1, BATCH & 0xffffffff, BATCH >> 32, 0 };
	u32 tail = r->arg & 2 ? r->len & 0xff8 : sizeof(start);

	memcpy(g->vram + at, r->data, r->len);
	if (!(r->arg & 2))
		memcpy(g->vram + RING(n), start, sizeof(start));
	vram32(g, IMAGE(n) + 0x1000 + 4 * 5, 0);
	vram32(g, IMAGE(n) + 0x1000 + 4 * 7, tail);
	request(g, (u32[]){ 0x20001000, n }, 2);
}

static u16 fill_batch(struct rec *r, u8 *data)
{
	u64 src = VA + rnd(10) * 0x1000 + rnd(4) * 4, dst = VA + rnd(10) * 0x1000;
	u32 commands[][10] = {
		{ 0x20 << 23 | 2, dst, dst >> 32, 1 },
		{ 2U << 29 | 0x5a << 22 | 8, rnd(0x2000), 0, 0, 0, src, src >> 32, dst, dst >> 32 },
		{ 2U << 29 | 0x5b << 22 | 5, rnd(0x2000), 0, 0, dst, dst >> 32, 0 },
		{ 0x2f << 23 | 5 << 8 | 1, dst, dst >> 32 },
		{ 0x1c << 23 | 4 << 12 | 2, 0, src, src >> 32 },
		{ 0x22 << 23 | BIT(19) | 1, 0x600, 5 },
		{ 0x24 << 23 | BIT(19) | 2, 0x600, dst, dst >> 32 },
		{ 0x2e << 23 | 3, dst, dst >> 32, src, src >> 32 },
		{ 0x26 << 23 | BIT(14) | BIT(18) | 3, dst, dst >> 32, 1, 0 },
		{ 0x31 << 23 | BIT(22) | BIT(8) | 1, BATCH & 0xffffffff, BATCH >> 32 },
	};
	static const u8 length[] = { 4, 10, 7, 3, 4, 3, 4, 5, 5, 3 };
	u16 len = 0;

	r->arg = rnd(4);
	for (u32 i = 0, n = 1 + rnd(6); i < n; i++) {
		u32 c = rnd(ARRAY_SIZE(length));

		memcpy(data + len, commands[c], 4 * length[c]);
		len += 4 * length[c];
	}
	memcpy(data + len, (u32[]){ 0xa << 23 }, 4);
	return len + 4;
}

/* argument: where in VRAM the page is, 128: nowhere; value: which page of the process */
static void run_pte(struct gpu *g, const struct rec *r)
{
	u64 pte = r->arg & 128 ? 0 : (DATA + (r->arg & 31) * 0x1000) | 0xc03;

	memcpy(g->vram + TABLES(1) + 0x4000 + r->value % 8 * 8, &pte, 8);
}

static u16 fill_pte(struct rec *r, u8 *data)
{
	r->value = rnd(8);
	r->arg = rnd(4) ? rnd(32) : 128;
	return 0;
}

const struct kind kinds[] = { { run_batch, fill_batch }, { run_batch, fill_batch },
			      { run_pte, fill_pte }, COMMON_KINDS };
const unsigned int nkinds = ARRAY_SIZE(kinds);

const u64 values[] = { 0, 1, 3, 0xc03, DATA | 0xc03, DATA | 3, 0x200, 0x83, BIT(21), BIT(22),
		       VA & 0xffffffff, VA >> 32, BATCH, USED, 0xffffff, 0xffffffff, ~0ULL };
const unsigned int nvalues = ARRAY_SIZE(values);
