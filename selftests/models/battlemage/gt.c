// SPDX-License-Identifier: GPL-2.0-only
/*
 * Power, resets, caches and the power controller (pcode). All of it is done at once.
 * Source: xe_force_wake.c, xe_gt.c, xe_device.c (driver FLR, L2 flush), xe_pcode.c.
 */
#include "battlemage.h"

enum {
	RENDER_ACK = 0x000d84,
	GT_ACK = 0x000dfc,
	GDRST = 0x00941c,
	FORCEWAKE_GT = 0x00a188,
	FORCEWAKE_RENDER = 0x00a278,
	XE2_GLOBAL_INVAL = 0x00b404,
	XE2_TDF_CTRL = 0x00b418,
	GU_CNTL = 0x101010,
	GU_DEBUG = 0x101018,
	PCODE_MAILBOX = 0x138124,
	PCODE_DATA0 = 0x138128,
	PCODE_DATA1 = 0x13812c,
};

#define GRDOM_FULL BIT(0)
#define GRDOM_GUC BIT(3)
#define LMEM_INIT BIT(7)
#define DRIVERFLR BIT(31)
#define PCODE_STATUS 0x7e

bool gt_write(struct gpu *g, u32 at, u32 val)
{
	switch (at) {
	case FORCEWAKE_GT:
	case FORCEWAKE_RENDER:
		*plain(g, at) = masked(*plain(g, at), val);
		*plain(g, at == FORCEWAKE_GT ? GT_ACK : RENDER_ACK) = *plain(g, at);
		return true;
	case GDRST:
		if (val & (GRDOM_FULL | GRDOM_GUC)) {
			debug(g, "reset: %#x", val);
			guc_reset(g);
			if (val & GRDOM_FULL)
				mmu_reset(g);
		}
		return true;
	case XE2_GLOBAL_INVAL:
	case XE2_TDF_CTRL:
		return true;
	case GU_CNTL:
		if (val & DRIVERFLR) {
			debug(g, "function level reset by the driver");
			gpu_restart(g);
			*plain(g, GU_DEBUG) = DRIVERFLR;	/* done */
		}
		*plain(g, at) = (val & ~DRIVERFLR) | LMEM_INIT;
		return true;
	case GU_DEBUG:
		*plain(g, at) &= ~val;
		return true;
	case PCODE_MAILBOX:
		/* Bits 7:0: the command, then the error. Bit 31 would be: busy. */
		*plain(g, PCODE_DATA0) = (val & 0xff) == PCODE_STATUS ? 1 : 0;
		*plain(g, PCODE_DATA1) = 0;
		*plain(g, at) = val & 0x7fffff00;
		return true;
	}
	return false;
}
