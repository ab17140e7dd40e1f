// SPDX-License-Identifier: GPL-2.0-only
/*
 * MMU faults: those that a client of a GPC can replay go to a buffer in memory, all others to
 * registers of the unit, and its channel is dead.
 *
 * Source: open-gpu-kernel-modules, nvidia-uvm: clb069.h (entries of the buffer),
 * hwref/pascal/gp100/dev_fault.h (units, clients, reasons), uvm_pascal_fault_buffer.c (entries come
 * from GPCs alone; the engine is always graphics). Inferred from nouveau: the registers (0x002a70
 * to 0x002a80, nvkm/subdev/fault/gp100.c; 0x002800, 0x00259c, nvkm/engine/fifo/gp100.c, gf100.c),
 * that the buffer's address is one of BAR 2, and what happens when it is full: the fault is lost,
 * and comes again when its client is replayed.
 */
#include "pascal.h"

enum {
	FAULTED_UNITS = 0x259c, UNIT = 0x2800, UNIT_END = UNIT + 32 * 0x10,
	TRIGGER = 0x2a30, TRIGGER_END = TRIGGER + 4 * ENGINES,
	BUFFER_LO = 0x2a70, BUFFER_HI = 0x2a74, SIZE = 0x2a78, GET = 0x2a7c, PUT = 0x2a80,
};

enum { VALID = BIT(31), HUB = BIT(20), TRIGGERED = BIT(8) };

static bool put(struct gpu *g, u64 at, const void *data, u32 len)
{
	struct mmu_fault f;

	if (mmu_copy(g, bar_pdb(g, 2), false, at, (void *)data, len, WRITE, &f))
		return true;
	violation(g, "the fault buffer is not in BAR 2: %#lx, reason %u", f.va, f.reason);
	return false;
}

static u64 place(struct gpu *g, u32 i)
{
	return ((u64)g->regs[BUFFER_HI / 4] << 32 | (g->regs[BUFFER_LO / 4] & ~0xfffU)) + i * 32;
}

static bool enter(struct gpu *g, const u32 *e)
{
	u32 next = (g->fault_put + 1) % FAULTS;
	u64 at = place(g, g->fault_put);
	u32 early[8];

	if (next == g->regs[GET / 4]) {
		g->stats.faults_lost++;
		return false;
	}
	memcpy(early, e, sizeof(early));
	if (g->late_ms && g->nlate < FAULTS) {
		early[7] &= ~VALID;
		g->late[g->nlate].addr = at + 28;
		g->late[g->nlate++].due = now() + g->late_ms;
		g->dev.ticking = true;
	}
	if (!put(g, at, early, sizeof(early)))
		return false;
	g->fault_put = next;
	return true;
}

/* The fault was entered, or lost because the buffer is full. In both cases its client waits. */
bool fault_replayable(struct gpu *g, u32 chid, u64 va, enum access how, enum reason reason, u32 gpc,
		      u32 client)
{
	u64 inst = chan_inst(g, chid), time = timer_ns(g);
	const u32 e[8] = {
		inst, inst >> 32, va & ~0xfffULL, va >> 32, time, time >> 32, 0,
		VALID | gpc << 24 | how << 16 | client << 8 | reason,
	};

	if (!(chan_pdb(g, chid) & REPLAYABLE) || !(g->regs[BUFFER_LO / 4] & 1))
		return false;
	g->stats.faults++;
	debug(g, "fault: channel %u address %#lx access %u reason %u", chid, va, how, reason);
	for (u32 i = 0; enter(g, e) && i < g->again; i++)
		;
	interrupt(g);
	return true;
}

void fault_fatal(struct gpu *g, u32 unit, u64 inst, u64 va, enum access how, enum reason reason,
		 bool hub, u32 client)
{
	u32 *r = &g->regs[(UNIT + unit * 0x10) / 4];

	g->stats.fatal_faults++;
	note(g, "fatal fault of unit %#x: instance %#lx address %#lx access %u reason %u", unit,
	     inst, va, how, reason);
	r[0] = inst >> 12;
	r[1] = va;
	r[2] = va >> 32;
	r[3] = (hub ? HUB : 0) | how << 16 | client << 8 | reason;
	g->faulted_units |= BIT(unit);
	interrupt(g);
}

bool fault_pending(struct gpu *g)
{
	return g->regs[BUFFER_LO / 4] & 1 && g->regs[GET / 4] != g->fault_put;
}

bool fault_tick(struct gpu *g)
{
	u32 word;

	for (u32 i = 0; i < g->nlate;) {
		struct mmu_fault f;

		if (now() < g->late[i].due) {
			i++;
			continue;
		}
		if (mmu_copy(g, bar_pdb(g, 2), false, g->late[i].addr, &word, 4, READ, &f)) {
			word |= VALID;
			put(g, g->late[i].addr, &word, 4);
		}
		g->late[i] = g->late[--g->nlate];
	}
	return g->nlate;
}

bool fault_read(struct gpu *g, u32 at, u32 *val)
{
	*val = g->regs[at / 4];
	switch (at) {
	case FAULTED_UNITS:
		*val = g->faulted_units;
		return true;
	case SIZE:
		*val = FAULTS;
		return true;
	case PUT:
		*val = g->fault_put;
		return true;
	case BUFFER_LO:
	case BUFFER_HI:
	case GET:
		return true;
	}
	return (at >= UNIT && at < UNIT_END) || (at >= TRIGGER && at < TRIGGER_END);
}

bool fault_write(struct gpu *g, u32 at, u32 val)
{
	switch (at) {
	case FAULTED_UNITS:
		g->faulted_units &= ~val;
		return true;
	case BUFFER_LO:
		g->regs[at / 4] = val;
		if (!(val & 1)) {
			g->fault_put = g->nlate = 0;
			g->regs[GET / 4] = 0;
		}
		return true;
	case BUFFER_HI:
		g->regs[at / 4] = val;
		return true;
	case GET:
		if (val >= FAULTS) {
			violation(g, "GET of the fault buffer: %u of %u", val, FAULTS);
			val %= FAULTS;
		}
		g->regs[at / 4] = val;
		interrupt(g);
		return true;
	}
	if (at >= TRIGGER && at < TRIGGER_END) {
		/* The driver asks for a fault of an engine that hangs. */
		g->regs[at / 4] = val;
		if (val & TRIGGERED)
			fault_fatal(g, val & 31, 0, 0, READ, FAULT_PDE, true, 0);
		return true;
	}
	return false;
}

void fault_reset(struct gpu *g)
{
	g->fault_put = g->nlate = g->faulted_units = 0;
}
