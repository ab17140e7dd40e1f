// SPDX-License-Identifier: GPL-2.0-only
/*
 * The back door, BAR 5. A program in the guest maps it, makes the accesses of a shader and sets
 * knobs. A real GP100 has nothing there.
 *
 * Each client of 64 KiB is a page of registers (little endian) and a buffer. It acts as one of a
 * GPC, in the address space of a channel, through page tables and TLB. Its faults are replayable.
 */
#include "pascal.h"

/* The GPC of a client, and its number there: the TEX unit of the first TPC. */
#define GPC(g, c) ((u32)((c) - (g)->client))
#define TEX 1
#define GRAPHICS 0		/* the MMU unit */

static enum access access_of(u32 op)
{
	switch (op) {
	case DOOR_LOAD:
		return READ;
	case DOOR_STORE:
		return WRITE;
	case DOOR_ADD:
		return ATOMIC;
	}
	return PREFETCH;
}

static void fail(struct gpu *g, struct client *c, u64 va, enum reason reason)
{
	c->status = DOOR_FAILED;
	fault_fatal(g, GRAPHICS, chan_inst(g, c->chid), va, access_of(c->op), reason, false, TEX);
}

static void go_on(struct gpu *g, struct client *c)
{
	u64 pdb = chan_pdb(g, c->chid);
	struct mmu_fault f;
	u32 add, val;
	bool good;

	c->since = 0;
	if (c->op == DOOR_ADD) {
		memcpy(&add, c->data, 4);
		good = mmu_add(g, pdb, true, c->va, add, &val, &f);
		if (good)
			memcpy(c->data, &val, 4);
	} else {
		good = mmu_copy(g, pdb, true, c->va + c->done, c->data + c->done, c->len - c->done,
				access_of(c->op), &f);
	}
	c->done += f.done;
	if (good) {
		c->status = DOOR_DONE;
	} else if (fault_replayable(g, c->chid, f.va, access_of(c->op), f.reason, GPC(g, c), TEX)) {
		c->since = ++g->faults_seen;
	} else {
		fail(g, c, f.va, f.reason);
	}
}

static void start(struct gpu *g, struct client *c)
{
	u32 steps;
	u64 n;

	c->len = min(c->len, sizeof(c->data));
	c->done = 0;
	c->status = DOOR_FAILED;
	if (g->gone || c->chid >= CHANNELS || (c->op != DOOR_VRAM && !chan_bound(g, c->chid)))
		return;
	switch (c->op) {
	case DOOR_WALK:
		walk(g, chan_pdb(g, c->chid), c->va, &c->x);
		c->status = DOOR_DONE;
		return;
	case DOOR_NEXT:
		steps = TURN;
		if (chan_pdb(g, c->chid) & REPLAYABLE &&
		    mmu_next(g, chan_pdb(g, c->chid), &c->va, &c->x, &steps))
			c->status = DOOR_DONE;
		return;
	case DOOR_VRAM:
		n = c->len;
		if (c->va > g->opt.vram || n > g->opt.vram - c->va)
			return;
		memcpy(c->data, g->vram + c->va, n);
		c->status = DOOR_DONE;
		return;
	case DOOR_LOAD:
	case DOOR_STORE:
	case DOOR_ADD:
	case DOOR_PREFETCH:
		c->status = DOOR_BUSY;
		go_on(g, c);
	}
}

/* ---- faults ---- */

void door_replay(struct gpu *g)
{
	for (u32 i = 0; i < DOOR_CLIENTS; i++)
		if (g->client[i].since)
			go_on(g, &g->client[i]);
}

/* Between an invalidation and what the driver does next. */
void door_invalidated(struct gpu *g, u64 pdb)
{
	for (u32 i = 0; i < DOOR_CLIENTS; i++) {
		struct client *c = &g->client[i];

		if (c->behind && c->chid < CHANNELS && chan_uses(g, c->chid, pdb)) {
			c->behind = false;
			start(g, c);
		}
	}
}

static struct client *oldest(struct gpu *g)
{
	struct client *old = NULL;

	for (u32 i = 0; i < DOOR_CLIENTS; i++) {
		struct client *c = &g->client[i];

		if (c->since && (!old || c->since < old->since))
			old = c;
	}
	return old;
}

bool door_current(struct gpu *g, u32 *chid)
{
	struct client *c = oldest(g);

	if (c)
		*chid = c->chid;
	return c;
}

bool door_cancel(struct gpu *g, u32 gpc, u32 client)
{
	struct client *c = gpc == ~0U ? oldest(g) : gpc < DOOR_CLIENTS ? &g->client[gpc] : NULL;

	if (!c || !c->since || (gpc != ~0U && client != TEX))
		return false;
	c->since = 0;
	fail(g, c, c->va + c->done, FAULT_PTE);
	return true;
}

void door_unbind(struct gpu *g, u32 chid)
{
	for (u32 i = 0; i < DOOR_CLIENTS; i++) {
		struct client *c = &g->client[i];

		if (c->status == DOOR_BUSY && c->chid == chid) {
			c->since = 0;
			c->behind = false;
			c->status = DOOR_FAILED;
		}
	}
}

void door_reset(struct gpu *g)
{
	memset(g->client, 0, sizeof(g->client));
	g->hold = g->release = g->delay_ms = g->slow_ms = g->late_ms = g->again = g->fail_in = 0;
	g->backwards = g->gone = g->behind = false;
}

/* ---- registers ---- */

static u32 *knob(struct gpu *g, u32 at)
{
	switch (at) {
	case DOOR_HOLD:
		return &g->hold;
	case DOOR_RELEASE:
		return &g->release;
	case DOOR_DELAY:
		return &g->delay_ms;
	case DOOR_SLOW:
		return &g->slow_ms;
	case DOOR_LATE:
		return &g->late_ms;
	case DOOR_AGAIN:
		return &g->again;
	case DOOR_FAIL:
		return &g->fail_in;
	}
	return NULL;
}

static u32 get(struct gpu *g, struct client *c, u32 at)
{
	u32 val = 0, *p = c == g->client ? knob(g, at) : NULL;

	if (p)
		return *p;
	switch (at) {
	case DOOR_CHID:
		return c->chid;
	case DOOR_OP:
		return c->op;
	case DOOR_VA:
		return c->va;
	case DOOR_VA + 4:
		return c->va >> 32;
	case DOOR_LEN:
		return c->len;
	case DOOR_STATUS:
		return c->status;
	case DOOR_FLAGS:
		return c->x.valid | c->x.sparse << 1 | c->x.read_only << 2 | c->x.no_atomic << 3 |
		       c->x.where << 4 | c->x.shift << 8;
	case DOOR_ADDR:
		return c->x.addr;
	case DOOR_ADDR + 4:
		return c->x.addr >> 32;
	}
	if (at >= DOOR_COUNTERS && at + 4 <= DOOR_COUNTERS + sizeof(struct stats))
		memcpy(&val, (const u8 *)stats(g) + (at - DOOR_COUNTERS), 4);
	return val;
}

static void set_knob(struct gpu *g, u32 at, u32 val)
{
	u32 *p = knob(g, at);

	if (p)
		*p = val;
	switch (at) {
	case DOOR_BACKWARDS:
		g->backwards = val;
		break;
	case DOOR_BEHIND:
		g->behind = val;
		break;
	case DOOR_POSTED:
		if (val <= POSTED_READ)
			g->opt.posted = val;
		break;
	case DOOR_CHECK:
		mmu_check(g);
		break;
	case DOOR_GONE:
		g->gone = true;
		note(g, "off the bus");
		break;
	case DOOR_HOLD:
	case DOOR_RELEASE:
	case DOOR_DELAY:
		fifo_run(g);
		break;
	}
}

static void set(struct gpu *g, struct client *c, u32 at, u32 val)
{
	if (c == g->client && at >= DOOR_HOLD && at < DOOR_COUNTERS)
		set_knob(g, at, val);
	if (c->status == DOOR_BUSY)
		return;
	switch (at) {
	case DOOR_CHID:
		c->chid = val;
		break;
	case DOOR_VA:
		c->va = (c->va & ~0xffffffffULL) | val;
		break;
	case DOOR_VA + 4:
		c->va = (u64)val << 32 | (u32)c->va;
		break;
	case DOOR_LEN:
		c->len = val;
		break;
	case DOOR_OP:
		c->op = val;
		c->behind = g->behind;
		g->behind = false;
		if (c->behind)
			c->status = DOOR_BUSY;
		else
			start(g, c);
		break;
	}
}

void door_read(struct gpu *g, u64 off, void *to, u32 len)
{
	struct client *c = &g->client[off / DOOR_SIZE];
	u32 at = off % DOOR_SIZE;

	memset(to, 0, len);
	if (at >= DOOR_DATA) {
		memcpy(to, c->data + (at - DOOR_DATA), min(len, DOOR_SIZE - at));
		return;
	}
	for (u32 i = 0; i + 4 <= len; i += 4) {
		u32 val = get(g, c, at + i);

		memcpy((u8 *)to + i, &val, 4);
	}
}

void door_write(struct gpu *g, u64 off, const void *from, u32 len)
{
	struct client *c = &g->client[off / DOOR_SIZE];
	u32 at = off % DOOR_SIZE, val;

	if (at >= DOOR_DATA) {
		if (c->status != DOOR_BUSY)
			memcpy(c->data + (at - DOOR_DATA), from, min(len, DOOR_SIZE - at));
		return;
	}
	for (u32 i = 0; i + 4 <= len; i += 4) {
		memcpy(&val, (const u8 *)from + i, 4);
		set(g, c, at + i, val);
	}
}
