// SPDX-License-Identifier: GPL-2.0-only
/* Fuzzes the registers of all units. */
#include "fuzz.h"

static const u32 registers[] = {
	0x000000, 0x000100, 0x000140, 0x000160, 0x000180, 0x000200, 0x001700, 0x001704, 0x001710,
	0x001714, 0x002100, 0x002140, 0x00252c, 0x002254, 0x002270, 0x002274, 0x00259c, 0x002630,
	0x002634, 0x002640, 0x002800, 0x00280c, 0x002a00, 0x002a30, 0x002a70, 0x002a74, 0x002a7c,
	0x002a80, 0x009100, 0x009140, 0x009400, 0x009410, 0x009420, 0x022700, 0x02240c, 0x070000,
	0x088050, 0x088704, 0x100c80, 0x100cb8, 0x100cbc, 0x100cec, 0x10a040, 0x10a100, 0x10a104,
	0x10a180, 0x10a184, 0x10a1c0, 0x10a1c4, 0x300000, 0x409500, 0x409504, 0x409804, 0x409b00,
	0x700000, 0x7ffffc, 0x800008, 0x80000c, 0x800010, 0x8001fc, 0xfffffc,
};

/* argument: 128: any register, else one of the table; value: which one is the first */
static void run_register(struct gpu *g, const struct rec *r)
{
	u32 at = r->arg & 128 ? r->value << 8 : registers[r->value % ARRAY_SIZE(registers)], val;

	for (u32 i = 0; i + 4 <= r->len; i += 4, at += 4) {
		memcpy(&val, r->data + i, 4);
		wr(g, at, val);
		vfio_user_read(&g->dev, REGION_BAR0, at, &val, 4);
	}
}

static u16 fill_register(struct rec *r, u8 *data)
{
	r->arg = rnd(8) ? 0 : 128;
	return 4 * (1 + rnd(16));
}

const struct kind kinds[] = { { run_register, fill_register }, { run_register, fill_register },
			      COMMON_KINDS };
const unsigned int nkinds = ARRAY_SIZE(kinds);

const u64 values[] = {
	0, 1, 2, 3, 4, 0x10, 0x38, 0x39, 0xff, 0x100, 0x400, 0x800, 0xc00, INST >> 12,
	1U << 31 | INST >> 12, 1U << 31 | (INST + 0x1000) >> 12, TABLES(0) >> 8, TABLES(1) >> 8,
	RUNLIST >> 12, 1 << 20 | 2, 1 << 20 | 0xffff, 1 << 24, 1 << 25, 1U << 31 | 1, 1U << 31 | 9,
	1U << 31 | 0xb | 1 << 9, 1U << 31 | 0x19 | 1 << 9, 1U << 31 | 0x23, VRAM_SIZE >> 16,
	VRAM_SIZE >> 12, 0xffffff, 0x0fffffff, 0xffffffff, ~0ULL,
};
const unsigned int nvalues = ARRAY_SIZE(values);
