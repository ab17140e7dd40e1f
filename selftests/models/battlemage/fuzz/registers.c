// SPDX-License-Identifier: GPL-2.0-only
/* Fuzzes the registers of all units. */
#include "fuzz.h"

static const u32 registers[] = {
	0x00941c, 0x00a188, 0x00a278, 0x00b404, 0x00b418, 0x00c000, 0x00c050, 0x00c180, 0x00c314,
	0x00c340, 0x101010, 0x101018, 0x138124, 0x138128, 0x190008, 0x190010, 0x190018, 0x19001c,
	0x190060, 0x190064, 0x190070, 0x190074, 0x1901f0, 0x190240, 0x190244, 0x190248, 0x19024c,
	0x3ffffc,
};

/* argument: 128: any register, else one of the table; value: which one is the first */
static void run_register(struct gpu *g, const struct rec *r)
{
	u32 at = r->arg & 128 ? r->value << 6 : registers[r->value % ARRAY_SIZE(registers)], val;

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
	0, 1, 2, 0x508, 0x4100, 0x4509, 0x5507, 0x902 << 16 | 1, 0x904 << 16 | 1, H2G, DESC, USED,
	0x10001, 0x110011, 1 << 25, BIT(31), 0xffffffff,
};
const unsigned int nvalues = ARRAY_SIZE(values);
