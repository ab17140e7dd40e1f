// SPDX-License-Identifier: GPL-2.0-only
/* Tables of registers that only hold a value. */
#include "vfio_user.h"

const struct plain *plain_find(const struct plain *table, size_t n, u32 off)
{
	for (const struct plain *p = table; p < table + n; p++) {
		u32 at = off - p->at;

		if (off >= p->at && at % p->stride == 0 && at / p->stride < p->n)
			return p;
	}
	return NULL;
}

void plain_init(u32 *regs, const struct plain *table, size_t n)
{
	for (const struct plain *p = table; p < table + n; p++)
		for (u32 i = 0; i < p->n; i++)
			regs[(p->at + i * p->stride) / 4] = p->val;
}

void plain_unknown(struct vfio_user *v, u8 *seen, u32 at, const char *how, u32 val)
{
	u8 bit = *how == 'r' ? 1 : 2;

	v->unknown_registers++;
	if (!(*seen & bit))
		log_note(v, "unknown register %06x: %s %08x", at, how, val);
	*seen |= bit;
}
