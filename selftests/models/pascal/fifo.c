// SPDX-License-Identifier: GPL-2.0-only
/*
 * Host: channels, runlists, push buffers, semaphores; the table of engines.
 *
 * Source: NVIDIA open-gpu-doc, classes/host/clc06f.h (entries of the GPFIFO, headers and methods of
 * push buffers). Inferred from nouveau: the registers and runlists (nvkm/engine/fifo/gk104.c,
 * gp100.c, nvkm/subdev/top/gk104.c), the instance block (gm107.c, gk110.c), GP_GET and GP_PUT in
 * USERD. Inferred without a source: that copy engines have runlists of their own, from 1 on, and
 * where in the instance block the objects of a channel are remembered while it is not bound.
 *
 * Each doorbell runs its channel until it is idle, has to wait, or its turn is over. Waiting
 * channels are tried again every few milliseconds.
 */
#include "pascal.h"

enum {
	NPBDMA = 0x2004, NCHAN = 0x2008, INTR = 0x2100, INTR_EN = 0x2140, USERD_POLL = 0x2254,
	RUNLIST_BASE = 0x2270, RUNLIST = 0x2274, RUNLIST_STATUS = 0x2284,
	PBDMA_MAP = 0x2390, BIND_ERROR = 0x252c, CHSW_ERROR = 0x256c,
	RUNLIST_CLEAR = 0x262c, RUNLIST_DISABLE = 0x2630, PREEMPT = 0x2634, ENGINE_STATUS = 0x2640,
	RUNLIST_INTR = 0x2a00, RUNLIST_INTR_EN = 0x2a04,
	CHANNEL = 0x800000, CHANNEL_END = CHANNEL + CHANNELS * 8, TOP = 0x22700, TOP_END = 0x22800,
};

enum { INTR_FAULT = BIT(28), INTR_RUNLIST = BIT(30), INTR_NONSTALL = BIT(31) };
enum { UNIT_HOST0 = 6, CLIENT_HOST = 6 };
enum {
	INST_USERD = 0x08, INST_GPFIFO = 0x48, INST_OBJECTS = 0x180, INST_PDB = 0x200,
	GP_GET = 0x88, GP_PUT = 0x8c,
};

/* ---- channels ---- */

u64 chan_inst(struct gpu *g, u32 chid)
{
	return (u64)(g->regs[(CHANNEL + chid * 8) / 4] & 0x0fffffff) << 12;
}

bool chan_bound(struct gpu *g, u32 chid)
{
	return g->regs[(CHANNEL + chid * 8) / 4] & BIT(31);
}

u64 chan_pdb(struct gpu *g, u32 chid)
{
	return vram_read64(g, chan_inst(g, chid) + INST_PDB);
}

bool chan_uses(struct gpu *g, u32 chid, u64 key)
{
	return chan_bound(g, chid) && pdb_key(chan_pdb(g, chid)) == key;
}

void fifo_raise(struct gpu *g, u32 bits)
{
	g->fifo_intr |= bits;
	interrupt(g);
}

static u32 intr(struct gpu *g)
{
	return g->fifo_intr | (g->faulted_units ? INTR_FAULT : 0) |
	       (g->runlists_done ? INTR_RUNLIST : 0);
}

bool fifo_pending(struct gpu *g)
{
	return intr(g) & g->regs[INTR_EN / 4];
}

static enum step host_fault(struct gpu *g, u32 chid, const struct mmu_fault *f, enum access how)
{
	struct chan *c = &g->chan[chid];

	c->dead = true;
	fault_fatal(g, UNIT_HOST0 + c->runlist, chan_inst(g, chid), f->va, how, f->reason, true,
		    CLIENT_HOST);
	return DEAD;
}

static enum step unknown_method(struct gpu *g, u32 chid, u32 subc, u32 method, u32 val)
{
	g->stats.unknown_methods++;
	note(g, "channel %u: unknown method %u.%#x = %#x", chid, subc, method, val);
	return DONE;
}

/* ---- methods of host ---- */

enum { ACQUIRE = 1, RELEASE = 2, ACQ_GEQ = 4, ACQ_AND = 8, RELEASE_4BYTE = BIT(24) };

static enum step semaphore(struct gpu *g, u32 chid, u32 op)
{
	struct chan *c = &g->chan[chid];
	u64 pdb = chan_pdb(g, chid), time = timer_ns(g);
	u64 at = (u64)(c->sem[0] & 0xff) << 32 | (c->sem[1] & ~3U);
	u32 w[4] = { c->sem[2], 0, time, time >> 32 }, is;
	struct mmu_fault f;

	if ((op & 31) == RELEASE) {
		bar_word(g, pdb, at);
		if (!mmu_copy(g, pdb, false, at, w, op & RELEASE_4BYTE ? 4 : 16, WRITE, &f))
			return host_fault(g, chid, &f, WRITE);
		return DONE;
	}
	if (!mmu_copy(g, pdb, false, at, &is, 4, READ, &f))
		return host_fault(g, chid, &f, READ);
	switch (op & 31) {
	case ACQUIRE:
		return is == w[0] ? DONE : WAIT;
	case ACQ_GEQ:
		return (int)(is - w[0]) >= 0 ? DONE : WAIT;
	case ACQ_AND:
		return is & w[0] ? DONE : WAIT;
	}
	return unknown_method(g, chid, 0, 0x1c, op);
}

static enum step method(struct gpu *g, u32 chid, u32 subc, u32 method, u32 val)
{
	struct chan *c = &g->chan[chid];

	if (method >= 0x100) {
		if (c->class[subc] == CE_CLASS)
			return ce_method(g, chid, method, val);
		return unknown_method(g, chid, subc, method, val);
	}
	switch (method) {
	case 0x00:		/* SET_OBJECT */
		c->class[subc] = val;
		vram_write(g, chan_inst(g, chid) + INST_OBJECTS + subc * 4, val);
		if (c->class[subc] != CE_CLASS)
			return unknown_method(g, chid, subc, method, val);
		return DONE;
	case 0x10:		/* SEMAPHOREA to C */
	case 0x14:
	case 0x18:
		c->sem[(method - 0x10) / 4] = val;
		return DONE;
	case 0x1c:		/* SEMAPHORED */
		return semaphore(g, chid, val);
	case 0x20:		/* NON_STALL_INTERRUPT */
		fifo_raise(g, INTR_NONSTALL);
		return DONE;
	case 0x08:		/* NOP */
	case 0x24:		/* FB_FLUSH */
	case 0x50:		/* SET_REFERENCE */
	case 0x78:		/* WFI */
		return DONE;
	}
	return unknown_method(g, chid, subc, method, val);
}

/* ---- push buffers ---- */

enum { OP_INC = 1, OP_NON_INC = 3, OP_IMMEDIATE = 4, OP_ONE_INC = 5 };

/* The rest of the segment. */
static enum step segment(struct gpu *g, u32 chid)
{
	struct chan *c = &g->chan[chid];
	u64 pdb = chan_pdb(g, chid);
	struct mmu_fault f;

	for (; c->at < c->end; c->at += 4) {
		enum step s;
		u32 w;

		if (!g->turn)
			return WAIT;
		g->turn--;
		if (!mmu_copy(g, pdb, false, c->at, &w, 4, READ, &f))
			return host_fault(g, chid, &f, READ);
		if (c->left) {
			s = method(g, chid, c->subc, c->method, w);
			if (s != DONE)
				return s;
			if (c->op == OP_INC || c->op == OP_ONE_INC)
				c->method += 4;
			if (c->op == OP_ONE_INC)
				c->op = OP_NON_INC;
			c->left--;
			continue;
		}
		c->op = w >> 29;
		c->method = (w & 0xfff) << 2;
		c->subc = w >> 13 & 7;
		if (c->op == OP_INC || c->op == OP_NON_INC || c->op == OP_ONE_INC) {
			c->left = w >> 16 & 0x1fff;
		} else if (c->op == OP_IMMEDIATE) {
			s = method(g, chid, c->subc, c->method, w >> 16 & 0x1fff);
			if (s != DONE)
				return s;
		} else if (w) {			/* 0 is a NOP */
			unknown_method(g, chid, c->subc, c->method, w);
		}
	}
	return DONE;
}

static enum step run(struct gpu *g, u32 chid)
{
	struct chan *c = &g->chan[chid];
	u64 inst = chan_inst(g, chid), userd, gpfifo, e;
	u32 get, put, limit;
	struct mmu_fault f;
	enum step s;

	if (!chan_bound(g, chid) || !c->enabled || !c->listed || c->dead || g->gone ||
	    g->regs[RUNLIST_DISABLE / 4] & BIT(c->runlist))
		return DONE;
	userd = vram_read64(g, inst + INST_USERD) & ~0x1ffULL;
	gpfifo = vram_read64(g, inst + INST_GPFIFO);
	limit = BIT(gpfifo >> 48 & 31) - 1;
	gpfifo &= 0xffffffffffffULL;
	g->turn = TURN;
	for (;;) {
		get = vram_read(g, userd + GP_GET);
		put = vram_read(g, userd + GP_PUT);
		if (c->at >= c->end && get == put)
			return DONE;
		if (g->delay_ms && c->at >= c->end) {
			if (!c->due)
				c->due = now() + g->delay_ms;
			if (now() < c->due)
				return WAIT;
		}
		s = segment(g, chid);
		if (s != DONE)
			return s;
		c->due = 0;
		if (get == put)
			continue;
		if (!g->turn)
			return WAIT;
		g->turn--;
		if (!mmu_copy(g, chan_pdb(g, chid), false, gpfifo + (get & limit) * 8, &e, 8, READ,
			      &f))
			return host_fault(g, chid, &f, READ);
		g->stats.pushes++;
		debug(g, "channel %u: %u of %u: %#lx", chid, get, put, e);
		c->at = e & 0xfffffffffcULL;
		c->end = c->at + (e >> 42 & 0x1fffff) * 4;
		c->left = 0;
		vram_write(g, userd + GP_GET, (get + 1) & limit);
	}
}

void fifo_doorbell(struct gpu *g, u32 chid)
{
	g->dev.ticking |= run(g, chid) == WAIT;
}

void fifo_run(struct gpu *g)
{
	g->dev.ticking |= fifo_tick(g);
}

bool fifo_tick(struct gpu *g)
{
	bool more = false;

	for (u32 i = 0; i < CHANNELS; i++)
		more |= run(g, g->backwards ? CHANNELS - 1 - i : i) == WAIT;
	return more;
}

static void runlist(struct gpu *g, u32 val)
{
	u64 base = (u64)(g->regs[RUNLIST_BASE / 4] & 0x0fffffff) << 12;
	u32 id = val >> 20 & 15, n = min(val & 0xffff, 2 * CHANNELS);

	if (id >= (g->opt.one_runlist ? 1 : ENGINES)) {
		violation(g, "there is no runlist %u", id);
		return;
	}
	for (u32 i = 0; i < CHANNELS; i++)
		if (g->chan[i].runlist == id)
			g->chan[i].listed = false;
	for (u32 i = 0; i < n; i++) {
		u32 e = vram_read(g, base + i * 8), chid = e & 0xfff;

		if (e & BIT(13))		/* a group, whose channels follow */
			continue;
		if (chid >= CHANNELS) {
			violation(g, "channel %u on runlist %u", chid, id);
			continue;
		}
		g->chan[chid].listed = true;
		g->chan[chid].runlist = id;
	}
	debug(g, "runlist %u: %u entries", id, n);
	g->runlists_done |= BIT(id);
	interrupt(g);
	fifo_run(g);
}

static void bind(struct gpu *g, u32 chid, u32 val)
{
	struct chan *c = &g->chan[chid];

	debug(g, "channel %u: instance %#x", chid, val);
	*c = (struct chan){ .listed = c->listed, .runlist = c->runlist };
	door_unbind(g, chid);
	g->regs[(CHANNEL + chid * 8) / 4] = val;
	g->mapped_old = true;
	for (u32 i = 0; i < 8 && chan_bound(g, chid); i++)
		c->class[i] = vram_read(g, chan_inst(g, chid) + INST_OBJECTS + i * 4);
}

static void enable(struct gpu *g, u32 chid, u32 val)
{
	if (val & BIT(10))
		g->chan[chid].enabled = true;
	if (val & BIT(11))
		g->chan[chid].enabled = false;
	g->regs[(CHANNEL + chid * 8 + 4) / 4] = val & ~(BIT(10) | BIT(11));
	fifo_doorbell(g, chid);
}

/* ---- the table of engines: GR, CE0, CE1. Three words each: type, numbers, data ---- */

static u32 top(struct gpu *g, u32 i)
{
	/* reset and interrupt bits, MMU unit: gp100-msi-intr.txt, dev_fault.h */
	static const struct {
		u32 type, inst, addr, fault, intr, reset;
	} engine[ENGINES] = {
		{ 0x00, 0, 0x400000, 0x00, 12, 12 },
		{ 0x13, 0, 0x104000, 0x15, 5, 6 },
		{ 0x13, 1, 0x104000, 0x16, 6, 7 },
	};
	u32 n = i / 3, list = g->opt.one_runlist ? 0 : n;

	if (n >= ENGINES)
		return 0;
	switch (i % 3) {
	case 0:
		return BIT(31) | engine[n].type << 2 | 3;
	case 1:
		return BIT(31) | n << 26 | list << 21 | engine[n].intr << 15 |
		       engine[n].reset << 9 | 0x3c | 2;
	}
	return engine[n].inst << 26 | engine[n].addr | engine[n].fault << 3 | BIT(2) | 1;
}

/* ---- registers ---- */

bool top_read(struct gpu *g, u32 at, u32 *val)
{
	*val = top(g, (at - TOP) / 4);
	return true;
}

bool fifo_read(struct gpu *g, u32 at, u32 *val)
{
	*val = g->regs[at / 4];
	switch (at) {
	case NPBDMA:
		*val = PBDMAS;
		return true;
	case NCHAN:
		*val = CHANNELS;
		return true;
	case INTR:
		*val = intr(g);
		return true;
	case RUNLIST_INTR:
		*val = g->runlists_done;
		return true;
	case PREEMPT:			/* done at once */
		*val &= ~BIT(20);
		return true;
	case BIND_ERROR:
	case CHSW_ERROR:
		*val = 0;
		return true;
	case INTR_EN:
	case USERD_POLL:
	case RUNLIST_BASE:
	case RUNLIST_DISABLE:
	case RUNLIST_INTR_EN:
		return true;
	}
	if (at >= RUNLIST_STATUS && at < RUNLIST_STATUS + 8 * ENGINES &&
	    (at - RUNLIST_STATUS) % 8 == 0) {
		*val = 0;		/* done at once */
		return true;
	}
	if (at >= PBDMA_MAP && at < PBDMA_MAP + 4 * PBDMAS) {
		u32 i = (at - PBDMA_MAP) / 4;

		*val = g->opt.one_runlist ? !i : BIT(i);
		return true;
	}
	if (at >= ENGINE_STATUS && at < ENGINE_STATUS + 4 * 16) {
		*val = 0;		/* idle, or not there */
		return true;
	}
	return at >= CHANNEL && at < CHANNEL_END;
}

bool fifo_write(struct gpu *g, u32 at, u32 val)
{
	switch (at) {
	case INTR:
		g->fifo_intr &= ~val;
		return true;
	case RUNLIST_INTR:
		g->runlists_done &= ~val;
		return true;
	case INTR_EN:
		g->regs[at / 4] = val;
		interrupt(g);
		return true;
	case RUNLIST:
		g->regs[at / 4] = val;
		runlist(g, val);
		return true;
	case RUNLIST_DISABLE:
		g->regs[at / 4] = val;
		fifo_run(g);
		return true;
	case USERD_POLL:
	case RUNLIST_BASE:
	case RUNLIST_CLEAR:
	case RUNLIST_INTR_EN:
	case CHSW_ERROR:
	case PREEMPT:
		g->regs[at / 4] = val;
		return true;
	}
	if (at >= CHANNEL && at < CHANNEL_END) {
		(at & 4 ? enable : bind)(g, (at - CHANNEL) / 8, val);
		return true;
	}
	return false;
}

void fifo_reset(struct gpu *g)
{
	memset(g->chan, 0, sizeof(g->chan));
	g->fifo_intr = g->runlists_done = 0;
}
