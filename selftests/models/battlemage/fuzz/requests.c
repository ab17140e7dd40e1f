// SPDX-License-Identifier: GPL-2.0-only
/* Fuzzes the requests to the GuC. */
#include "fuzz.h"

static const u16 actions[] = { 0x1000, 0x1001, 0x4502, 0x4503, 0x6003, 0x7000, 0x7002, 0x3003 };

/* argument: the action; value: the action if the argument is above 127; data: the rest */
static void run_request(struct gpu *g, const struct rec *r)
{
	u32 words[255], n = min(r->len / 4, 254);

	words[0] = 2U << 28 | (r->arg > 127 ? r->value : actions[r->arg % ARRAY_SIZE(actions)]);
	memcpy(words + 1, r->data, 4 * n);
	request(g, words, n + 1);
}

static u16 fill_request(struct rec *r, u8 *data)
{
	u32 words[11] = { rnd(3), rnd(3), 1 + rnd(3), rnd(4), 0, 0, 0, 0, 0, IMAGE(rnd(2)), 0 };

	r->arg = rnd(8);
	if (r->arg == 4)
		words[1] <<= 16;	/* the answer to a fault */
	memcpy(data, words, sizeof(words));
	return sizeof(words);
}

const struct kind kinds[] = { { run_request, fill_request }, { run_request, fill_request },
			      COMMON_KINDS };
const unsigned int nkinds = ARRAY_SIZE(kinds);

const u64 values[] = { 0, 1, 2, 3, 5 << 8, 4095, 4096, 1 << 16, 63, VA & 0xffffffff, VA >> 32,
		       IMAGE(0), IMAGE(1), USED, 0xffffffff };
const unsigned int nvalues = ARRAY_SIZE(values);
