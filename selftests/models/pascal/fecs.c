// SPDX-License-Identifier: GPL-2.0-only
/*
 * The part of the falcon FECS of GR that the cancellation of a fault needs: context switches stop
 * and start, and the current context is that of the oldest fault.
 *
 * Source: envytools (rnndb/graph/gf100_pgraph/ctxctl.xml). Inferred from nouveau: methods 0x38 and
 * 0x39, the answer in 0x409804 (nvkm/engine/gr/gf100.c, nvkm/subdev/mmu/vmmgp100.c).
 */
#include "pascal.h"

enum {
	DATA = 0x409500, METHOD = 0x409504, CLEAR = 0x409800, ANSWER = 0x409804, CONTEXT = 0x409b00,
	STOP = 0x38, START = 0x39,
};

bool fecs_read(struct gpu *g, u32 at, u32 *val)
{
	u32 chid;

	switch (at) {
	case ANSWER:
	case CLEAR:
		*val = g->regs[at / 4];
		return true;
	case CONTEXT:
		*val = door_current(g, &chid) ? chan_inst(g, chid) >> 12 | BIT(31) : 0;
		return true;
	}
	return false;
}

bool fecs_write(struct gpu *g, u32 at, u32 val)
{
	switch (at) {
	case DATA:
	case CLEAR:
	case ANSWER:
		g->regs[at / 4] = val;
		return true;
	case METHOD:
		if (val != STOP && val != START)
			return false;
		g->regs[ANSWER / 4] = 1;
		return true;
	}
	return false;
}
