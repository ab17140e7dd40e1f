// SPDX-License-Identifier: GPL-2.0-only
/*
 * PMC: the identity of the chip, the units that have an interrupt, and one MSI for all of them.
 *
 * Source: NVIDIA open-gpu-doc, pascal/gp100-msi-intr.txt: INTR is read-only, EN_SET and EN_CLEAR
 * take the place of EN; the bits of the units. Inferred from nouveau: BOOT_0 (its revision),
 * the MSI is re-armed by any write to 0x088704 (nvkm/subdev/pci/gp100.c).
 */
#include "pascal.h"

#define BOOT_0 0x130000a1U

enum {
	INTR = 0x100, INTR_EN = 0x140, INTR_EN_SET = 0x160, INTR_EN_CLEAR = 0x180,
	ENABLE = 0x200, PBDMA_ENABLE = 0x204,
};

enum { PFIFO = BIT(8), REPLAYABLE_FAULT = BIT(9), PTIMER = BIT(20) };

static u32 pending(struct gpu *g)
{
	return (fifo_pending(g) ? PFIFO : 0) | (fault_pending(g) ? REPLAYABLE_FAULT : 0) |
	       (timer_pending(g) ? PTIMER : 0);
}

void interrupt(struct gpu *g)
{
	if (!g->msi_armed || !(pending(g) & g->intr_enabled[0]))
		return;
	g->msi_armed = false;
	vfio_user_interrupt(&g->dev, 0);
}

bool pmc_read(struct gpu *g, u32 at, u32 *val)
{
	switch (at) {
	case 0x000:
		*val = BOOT_0;
		return true;
	case 0x004:			/* BOOT_1: endianness; little */
		*val = 0;
		return true;
	case INTR:
		*val = pending(g);
		return true;
	case INTR + 4:
		*val = 0;
		return true;
	case INTR_EN:
	case INTR_EN + 4:
		*val = g->intr_enabled[(at - INTR_EN) / 4];
		return true;
	case INTR_EN_SET:
	case INTR_EN_SET + 4:
		*val = g->intr_enabled[(at - INTR_EN_SET) / 4];
		return true;
	case INTR_EN_CLEAR:
	case INTR_EN_CLEAR + 4:
		*val = g->intr_enabled[(at - INTR_EN_CLEAR) / 4];
		return true;
	case ENABLE:
	case PBDMA_ENABLE:
		*val = g->regs[at / 4];
		return true;
	}
	return false;
}

bool pmc_write(struct gpu *g, u32 at, u32 val)
{
	switch (at) {
	case INTR_EN_SET:
	case INTR_EN_SET + 4:
		g->intr_enabled[(at - INTR_EN_SET) / 4] |= val;
		break;
	case INTR_EN_CLEAR:
	case INTR_EN_CLEAR + 4:
		g->intr_enabled[(at - INTR_EN_CLEAR) / 4] &= ~val;
		break;
	case ENABLE:
	case PBDMA_ENABLE:
		g->regs[at / 4] = val;
		break;
	default:
		return false;
	}
	interrupt(g);
	return true;
}
