// SPDX-License-Identifier: GPL-2.0-only
/*
 * Interrupts: one MSI. A bit in one of two words says which unit has raised one; its identity says
 * what it was. Source: xe_irq.c (dg1_irq_handler), regs/xe_irq_regs.h.
 */
#include "battlemage.h"

enum {
	TILE = 0x190008,	/* DG1_MSTR_TILE_INTR: bit 31 enables */
	MASTER = 0x190010,	/* GFX_MSTR_IRQ */
	WORD = 0x190018,	/* GT_INTR_DW, two */
	IDENTITY = 0x190060,	/* INTR_IDENTITY_REG, two */
	SELECTOR = 0x190070,	/* IIR_REG_SELECTOR, two */
	PCU_IIR = 0x0444e8,	/* of units that never raise one: writing a bit clears it */
	GU_MISC_IIR = 0x0444f8,
};

#define ENABLE BIT(31)

static u32 word(struct gpu *g, u32 w)
{
	u32 bits = 0;

	for (u32 i = 0; i < 32; i++)
		bits |= g->pending[w][i].what ? BIT(i) : 0;
	return bits;
}

static void send(struct gpu *g)
{
	if (!g->irq_enabled || g->irq_sent || !(word(g, 0) | word(g, 1)))
		return;
	g->irq_sent = true;
	vfio_user_interrupt(&g->dev, 0);
}

void irq_raise(struct gpu *g, u32 bit, enum class class, u32 instance, u16 what)
{
	g->pending[0][bit].what |= what;
	g->pending[0][bit].class = class;
	g->pending[0][bit].instance = instance;
	send(g);
}

void irq_reset(struct gpu *g)
{
	memset(g->pending, 0, sizeof(g->pending));
	g->irq_enabled = g->irq_sent = false;
}

bool irq_read(struct gpu *g, u32 at, u32 *val)
{
	switch (at) {
	case TILE:
		*val = (word(g, 0) | word(g, 1) ? 1 : 0) | (g->irq_enabled ? ENABLE : 0);
		return true;
	case MASTER:
		*val = (word(g, 0) ? 1 : 0) | (word(g, 1) ? 2 : 0);
		return true;
	case WORD:
	case WORD + 4:
		*val = word(g, at != WORD);
		return true;
	case IDENTITY:
	case IDENTITY + 4:
		*val = *plain(g, at);
		return true;
	case PCU_IIR:
	case GU_MISC_IIR:
		*val = 0;
		return true;
	}
	return false;
}

bool irq_write(struct gpu *g, u32 at, u32 val)
{
	u32 w = at & 4 ? 1 : 0, i;

	switch (at) {
	case TILE:
		g->irq_enabled = val & ENABLE;
		if (g->irq_enabled)
			g->irq_sent = false;
		send(g);
		return true;
	case MASTER:
	case WORD:
	case WORD + 4:
		return true;		/* the identities clear them */
	case PCU_IIR:
	case GU_MISC_IIR:
		return true;
	case IDENTITY:
	case IDENTITY + 4:
		*plain(g, at) = 0;
		return true;
	case SELECTOR:
	case SELECTOR + 4:
		if (!val)
			return true;
		i = __builtin_ctz(val);
		*plain(g, IDENTITY + 4 * w) = 0;
		if (g->pending[w][i].what)
			*plain(g, IDENTITY + 4 * w) = BIT(31) | g->pending[w][i].instance << 20 |
						      g->pending[w][i].class << 16 |
						      g->pending[w][i].what;
		g->pending[w][i].what = 0;
		return true;
	}
	return false;
}
