// SPDX-License-Identifier: GPL-2.0-only
/*
 * The command streamer: it reads the ring of a context, and batches.
 *
 * Source: instructions/xe_mi_commands.h, xe_alu_commands.h, xe_gfxpipe_commands.h, xe_ring_ops.c,
 * xe_lrc.c, xe_migrate.c. MI_ATOMIC, which only user programs have: Intel's PRM of Xe-HPG, volume
 * 2a.
 * A command that faults is done again as a whole, so it changes nothing before its last access.
 */
#include "battlemage.h"

enum {
	ARB_CHECK_END = 0x10,	/* commands below have one dword */
	USER_INTERRUPT = 0x02,
	BATCH_END = 0x0a,
	MATH = 0x1a,
	SEMAPHORE_WAIT = 0x1c,
	FORCE_WAKEUP = 0x1d,
	STORE_DATA = 0x20,
	LOAD_REG_IMM = 0x22,
	STORE_REG_MEM = 0x24,
	FLUSH = 0x26,
	LOAD_REG_MEM = 0x29,
	LOAD_REG_REG = 0x2a,
	COPY_MEM_MEM = 0x2e,
	ATOMIC_OP = 0x2f,
	BATCH_START = 0x31,
};

/* Bits of the first dword. */
#define USE_GGTT BIT(22)
#define SECOND_LEVEL BIT(22)
#define DST_GGTT BIT(21)
#define IN_PPGTT BIT(8)
#define POLL_REGISTER BIT(16)
#define RELATIVE BIT(19)	/* registers relative to the engine */
#define TLB_INVALIDATE BIT(18)
#define STORE_INDEX BIT(21)	/* the address is an offset into the image */
#define QWORD BIT(18)		/* of an atomic */

#define GPR 0x600		/* 16 registers of 64 bits, relative to the engine */
#define CTX_TIMESTAMP 0x3a8

u32 engine_base(enum class class, u32 instance)
{
	switch (class) {
	case RENDER:
		return 0x2000;
	case COMPUTE:
		return 0x1a000;
	case COPY:
		return instance == 8 ? 0x3ee000 : 0x22000;
	default:
		return 0;
	}
}

/* Bits of GT_INTR_DW 0: regs/xe_irq_regs.h */
static void user_interrupt(struct gpu *g, struct context *c)
{
	u32 bit = c->class == RENDER  ? 0 :
		  c->class == COMPUTE ? 4 + (c->instance & 3) :
		  c->instance == 8    ? 23 :
					15 - (c->instance & 7);

	irq_raise(g, bit, c->class, c->instance, 1);
}

static u64 address(const u32 *dw)
{
	return dw[0] | (u64)dw[1] << 32;
}

static bool access_memory(struct gpu *g, struct context *c, bool ggtt, u64 at, void *buf, u32 len,
			  bool write)
{
	if (!ggtt)
		return mmu_copy(g, c, at, buf, len, write, &c->fault);
	/* There are no page faults in the GGTT: an address without memory has been counted. */
	ggtt_copy(g, at, buf, len, write);
	return true;
}

/* A dword at the address that these two dwords have. */
static bool access_dword(struct gpu *g, struct context *c, bool ggtt, const u32 *at, u32 *val,
			 bool write)
{
	return access_memory(g, c, ggtt, address(at) & ~3ULL, val, 4, write);
}

static bool fetch(struct gpu *g, struct context *c, u32 *dw, u32 n)
{
	if (c->depth)
		return access_memory(g, c, !c->batch[c->depth].ppgtt, c->batch[c->depth].at, dw,
				     4 * n, false);
	for (u32 i = 0; i < n; i++)
		dw[i] = ggtt_read(g, c->start + (c->head + 4 * i) % c->size);
	return true;
}

static void advance(struct context *c, u32 n)
{
	if (c->depth)
		c->batch[c->depth].at += 4 * n;
	else
		c->head = (c->head + 4 * n) % c->size;
	c->done = 0;
	c->let = false;
}

/* ---- registers of an engine ---- */

static u32 *engine_register(struct gpu *g, struct context *c, u32 off, bool relative)
{
	off &= 0x7ffffc;
	if (relative && off - GPR < sizeof(c->gpr))
		return (u32 *)c->gpr + (off - GPR) / 4;
	if (relative)
		off += engine_base(c->class, c->instance);
	return plain(g, off);
}

static u64 *operand(struct context *c, u32 name, u64 *a, u64 *b, u64 *sum, u64 *other)
{
	return name < ARRAY_SIZE(c->gpr) ? &c->gpr[name] :
	       name == 0x20		 ? a :
	       name == 0x21		 ? b :
	       name == 0x31		 ? sum :
					   other;
}

static void math(struct context *c, const u32 *dw, u32 n)
{
	u64 a = 0, b = 0, sum = 0, other;

	for (u32 i = 0; i < n; i++) {
		u64 *to, *from;

		other = 0;
		to = operand(c, dw[i] >> 10 & 0x3ff, &a, &b, &sum, &other);
		from = operand(c, dw[i] & 0x3ff, &a, &b, &sum, &other);
		switch (dw[i] >> 20) {
		case 0x080:		/* load, store */
		case 0x180:
			*to = *from;
			break;
		case 0x480:
			*to = ~*from;
			break;
		case 0x081:
			*to = 0;
			break;
		case 0x100:
			sum = a + b;
			break;
		case 0x101:
			sum = a - b;
			break;
		case 0x102:
			sum = a & b;
			break;
		case 0x103:
			sum = a | b;
			break;
		case 0x104:
			sum = a ^ b;
			break;
		}
	}
}

/* ---- commands ---- */

static bool compare(u32 op, u32 memory, u32 data)
{
	switch (op) {
	case 0:
		return memory > data;
	case 1:
		return memory >= data;
	case 2:
		return memory < data;
	case 3:
		return memory <= data;
	case 4:
		return memory == data;
	default:
		return memory != data;
	}
}

static enum step wait(struct gpu *g, struct context *c, const u32 *dw)
{
	u32 val = 0, *reg;

	if (dw[0] & POLL_REGISTER) {
		reg = engine_register(g, c, dw[2], false);
		val = reg ? *reg : 0;
	} else if (!access_dword(g, c, dw[0] & USE_GGTT, dw + 2, &val, false)) {
		return FAULT;
	}
	return compare(dw[0] >> 12 & 7, val, dw[1]) ? NEXT : WAIT;
}

static enum step start_batch(struct context *c, const u32 *dw, u32 n)
{
	if (!c->depth || dw[0] & SECOND_LEVEL) {
		if (c->depth == ARRAY_SIZE(c->batch) - 1)
			return STOP;
		if (!c->depth)
			c->began = c->head;
		advance(c, n);
		c->depth++;
	}
	c->batch[c->depth].at = address(dw + 1) & ~3ULL;
	c->batch[c->depth].ppgtt = dw[0] & IN_PPGTT;
	c->done = 0;
	return JUMP;
}

static enum step atomic(struct gpu *g, struct context *c, const u32 *dw)
{
	u64 room, val = 0, size = dw[0] & QWORD ? 8 : 4;
	u64 at = address(dw + 1) & ~(size - 1);
	u8 *p;

	if (dw[0] & USE_GGTT)
		return STOP;
	p = mmu_memory(g, c, at, ATOMIC, &room, &c->fault);
	if (!p)
		return FAULT;
	memcpy(&val, p, size);
	switch (dw[0] >> 8 & 0x1f) {
	case 5:
		val++;
		break;
	case 7:
		val += size == 8 ? address(dw + 3) : dw[3];
		break;
	}
	memcpy(p, &val, size);
	return NEXT;
}

/* Stores data, from dw on, after a flush. */
static bool flush_store(struct gpu *g, struct context *c, bool index, bool ggtt, u64 at,
			const u32 *data, u32 len)
{
	if (index)
		return access_memory(g, c, true, c->image + (at & 0xff8), (void *)data, len, true);
	return access_memory(g, c, ggtt, at & ~7ULL, (void *)data, len, true);
}

static enum step mi(struct gpu *g, struct context *c, const u32 *dw, u32 n)
{
	u32 op = dw[0] >> 23 & 0x3f, val = 0, *reg;
	bool good = true;

	switch (op) {
	case USER_INTERRUPT:
		user_interrupt(g, c);
		return NEXT;
	case BATCH_END:
		if (!c->depth) {
			violation(g, "context %u: the end of a batch in the ring", c->id);
			return STOP;
		}
		c->depth--;
		c->done = 0;
		return JUMP;
	case BATCH_START:
		return start_batch(c, dw, n);
	case MATH:
		math(c, dw + 1, n - 1);
		return NEXT;
	case SEMAPHORE_WAIT:
		return wait(g, c, dw);
	case STORE_DATA:
		if (n > 3)
			good = access_memory(g, c, dw[0] & USE_GGTT, address(dw + 1) & ~3ULL,
					     (void *)(dw + 3), 4 * (n - 3), true);
		return good ? NEXT : FAULT;
	case LOAD_REG_IMM:
		for (u32 i = 1; i + 1 < n; i += 2) {
			reg = engine_register(g, c, dw[i], dw[0] & RELATIVE);
			if (reg)
				*reg = dw[i + 1];
		}
		return NEXT;
	case STORE_REG_MEM:
		reg = engine_register(g, c, dw[1], dw[0] & RELATIVE);
		val = (dw[1] & 0xffc) == CTX_TIMESTAMP ? now() : reg ? *reg : 0;
		good = access_dword(g, c, dw[0] & USE_GGTT, dw + 2, &val, true);
		return good ? NEXT : FAULT;
	case LOAD_REG_MEM:
		if (!access_dword(g, c, dw[0] & USE_GGTT, dw + 2, &val, false))
			return FAULT;
		reg = engine_register(g, c, dw[1], dw[0] & RELATIVE);
		if (reg)
			*reg = val;
		return NEXT;
	case COPY_MEM_MEM:
		good = access_dword(g, c, dw[0] & USE_GGTT, dw + 3, &val, false) &&
		       access_dword(g, c, dw[0] & DST_GGTT, dw + 1, &val, true);
		return good ? NEXT : FAULT;
	case FLUSH:		/* bit 2 of the address: GGTT */
		if (dw[0] & TLB_INVALIDATE)
			mmu_invalidate(g, c->asid, 0, 1ULL << 57);
		if ((dw[0] >> 14 & 3) == 1 && n > 3)
			good = flush_store(g, c, dw[0] & STORE_INDEX, dw[1] & 4, address(dw + 1),
					   dw + 3, 4 * (n - 3));
		return good ? NEXT : FAULT;
	case ATOMIC_OP:
		return atomic(g, c, dw);
	case FORCE_WAKEUP:
	case LOAD_REG_REG:	/* only batches of workarounds have it */
		return NEXT;
	}
	if (op < ARB_CHECK_END)
		return NEXT;
	g->stats.unknown_commands++;
	note(g, "context %u: unknown command %08x", c->id, dw[0]);
	return NEXT;
}

/* Of the 3D and compute pipelines only flushes have an effect here. */
static enum step pipeline(struct gpu *g, struct context *c, const u32 *dw)
{
	if (dw[0] >> 16 != 0x7a00)	/* PIPE_CONTROL */
		return NEXT;
	if (dw[1] & BIT(18))
		mmu_invalidate(g, c->asid, 0, 1ULL << 57);
	if ((dw[1] >> 14 & 3) == 1 &&
	    !flush_store(g, c, dw[1] & STORE_INDEX, dw[1] & BIT(24), address(dw + 2), dw + 4, 8))
		return FAULT;
	return NEXT;
}

static u32 length(u32 dw)
{
	u32 op = dw >> 23 & 0x3f;

	switch (dw >> 29) {
	case 0:
		if (op < ARB_CHECK_END)
			return 1;
		return 2 + (dw & (op == STORE_DATA ? 0x3ff : op == FLUSH ? 0x3f : 0xff));
	case 3:
		if (dw >> 16 == 0x6904)		/* PIPELINE_SELECT */
			return 1;
	}
	return 2 + (dw & 0xff);
}

static enum step execute(struct gpu *g, struct context *c, const u32 *dw, u32 n)
{
	g->stats.commands++;
	if (c->depth && c->batch[c->depth].ppgtt && c->asid)
		g->asid = c->asid;
	switch (dw[0] >> 29) {
	case 0:
		return mi(g, c, dw, n);
	case 2:
		return copy_command(g, c, dw, n);
	case 3:
	case 4:
		return pipeline(g, c, dw);
	}
	violation(g, "context %u: not a command: %08x", c->id, dw[0]);
	return STOP;
}

void cs_run(struct gpu *g, struct context *c)
{
	if (!c->registered || !c->enabled || c->state == FAULTED || c->state == DEAD)
		return;
	context_load(g, c);
	c->state = READY;
	for (u32 turn = 0; turn < TURN; turn++) {
		u32 dw[MAX_COMMAND], n = 0;
		enum step step = FAULT;

		if (!c->depth && c->head == c->tail) {
			context_save(g, c);
			c->state = IDLE;
			return;
		}
		memset(dw, 0, 64);	/* the longest that is not checked for its length */
		if (fetch(g, c, dw, 1)) {
			n = length(dw[0]);
			if (fetch(g, c, dw, n))
				step = execute(g, c, dw, n);
		}
		switch (step) {
		case NEXT:
			advance(c, n);
			break;
		case JUMP:
			break;
		case FAULT:
			context_fault(g, c);
			return;
		case WAIT:
			c->state = WAITING;
			g->dev.ticking = true;
			return;
		case STOP:
			context_dead(g, c);
			return;
		}
	}
	g->dev.ticking = true;
}
