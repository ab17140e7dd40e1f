// SPDX-License-Identifier: GPL-2.0-only
/*
 * Contexts: what the firmware schedules, and their page faults. Each context runs at once.
 * Source: xe_guc_submit.c, xe_guc_pagefault.c, xe_guc_fwif.h, xe_lrc_layout.h.
 */
#include "battlemage.h"

enum {
	SCHED_CONTEXT = 0x1000,
	SCHED_CONTEXT_MODE_SET = 0x1001,
	SCHED_CONTEXT_MODE_DONE = 0x1002,
	CONTEXT_RESET_NOTIFICATION = 0x1008,
	REGISTER_CONTEXT = 0x4502,
	DEREGISTER_CONTEXT = 0x4503,
	DEREGISTER_CONTEXT_DONE = 0x4600,
	NOTIFY_MEMORY_CAT_ERROR = 0x6000,
	REPORT_PAGE_FAULT = 0x6002,
	PAGE_FAULT_RESPONSE = 0x6003,
};

/* In the image, dwords from the page behind the first one on. */
enum {
	RING_HEAD = 0x05, RING_TAIL = 0x07, RING_START = 0x09, RING_CTL = 0x0b,
	TIMESTAMP = 0x23, TIMESTAMP_HIGH = 0x25, ASID = 0x2f, ROOT_HIGH = 0x31, ROOT_LOW = 0x33,
};

static u32 image_get(struct gpu *g, struct context *c, u32 dw)
{
	return ggtt_read(g, c->image + 4096 + 4 * dw);
}

static void image_set(struct gpu *g, struct context *c, u32 dw, u32 val)
{
	ggtt_write(g, c->image + 4096 + 4 * dw, val);
}

void context_load(struct gpu *g, struct context *c)
{
	if (c->state == IDLE) {
		c->head = image_get(g, c, RING_HEAD) & 0x1ffffc;
		c->start = image_get(g, c, RING_START);
		c->size = (image_get(g, c, RING_CTL) & 0x1ff000) + 4096;
		c->root = (u64)image_get(g, c, ROOT_HIGH) << 32 | image_get(g, c, ROOT_LOW);
		c->asid = image_get(g, c, ASID) % ASIDS;
		c->depth = 0;
		c->done = 0;
		c->head %= c->size;
	}
	c->tail = (image_get(g, c, RING_TAIL) & 0x1ffff8) % c->size;
}

void context_save(struct gpu *g, struct context *c)
{
	u64 time = image_get(g, c, TIMESTAMP) | (u64)image_get(g, c, TIMESTAMP_HIGH) << 32;

	time += 1000;		/* the driver only wants to see progress */
	image_set(g, c, TIMESTAMP, time);
	image_set(g, c, TIMESTAMP_HIGH, time >> 32);
	/* The image has no place for a batch: after a reset it begins again. */
	image_set(g, c, RING_HEAD, c->depth ? c->began : c->head);
}

struct context *context_of(struct gpu *g, u32 asid)
{
	for (u32 i = 0; i < g->contexts; i++)
		if (g->context[i].registered && g->context[i].root && g->context[i].asid == asid)
			return &g->context[i];
	return NULL;
}

/* ---- faults ---- */

static void report(struct gpu *g, struct context *c)
{
	const struct fault *f = &c->fault;
	/* The answer has the number of the context, too, as private data. */
	u32 desc[4] = {
		f->level | c->instance << 19 | c->class << 25 | (c->id & 0xf) << 28,
		c->id >> 4 | c->asid << 12,
		f->access | f->reason << 2 | (u32)(f->va & 0xfffff000),
		f->va >> 32,
	};

	c->report = 0;
	debug(g, "context %u asid %u: fault at %#lx, access %u, reason %u", c->id, c->asid, f->va,
	      f->access, f->reason);
	guc_event(g, REPORT_PAGE_FAULT, desc, 4);
}

void context_fault(struct gpu *g, struct context *c)
{
	g->stats.faults++;
	c->state = FAULTED;
	mmu_faults(g, c->asid);
	if (g->late_ms) {
		c->report = now() + g->late_ms;
		g->dev.ticking = true;
	} else {
		report(g, c);
	}
}

void context_dead(struct gpu *g, struct context *c)
{
	c->state = DEAD;
	g->stats.dead_contexts++;
	note(g, "context %u asid %u is dead, at %#lx, last fault: %#lx, access %u, reason %u",
	     c->id, c->asid, c->depth ? c->batch[c->depth].at : c->head, c->fault.va,
	     c->fault.access, c->fault.reason);
	guc_event(g, NOTIFY_MEMORY_CAT_ERROR, &c->id, 1);
	guc_event(g, CONTEXT_RESET_NOTIFICATION, &c->id, 1);
}

static void disabled(struct gpu *g, struct context *c)
{
	c->disable = false;
	if (c->state != DEAD)
		context_save(g, c);
	guc_event(g, SCHED_CONTEXT_MODE_DONE, (u32[]){ c->id, 0 }, 2);
}

static void answered(struct gpu *g, struct context *c, bool refused)
{
	if (c->state != FAULTED || c->report) {
		violation(g, "an answer to a fault of context %u, which has none", c->id);
		return;
	}
	debug(g, "context %u: fault at %#lx: %s", c->id, c->fault.va, refused ? "refused" : "done");
	c->state = READY;
	g->stats.faults_refused += refused;
	if (c->disable)
		disabled(g, c);
	if (refused)
		context_dead(g, c);
	else
		cs_run(g, c);
}

bool context_tick(struct gpu *g)
{
	bool more = false;

	for (u32 i = 0; i < g->contexts; i++) {
		struct context *c = &g->context[i];

		if (!c->registered)
			continue;
		if (c->report && now() >= c->report)
			report(g, c);
		if (c->enabled && (c->state == WAITING || c->state == READY))
			cs_run(g, c);
		more |= c->report ||
			(c->enabled && (c->state == WAITING || c->state == READY));
	}
	return more;
}

/* ---- requests of the driver ---- */

/* data: flags, number, class, mask of engines, five words of a work queue, image */
static void register_context(struct gpu *g, const u32 *data, u32 n)
{
	static const u8 class[] = { RENDER, VIDEO, ENHANCE, COPY, COMPUTE, OTHER };
	struct context *c;

	if (n < 11 || data[1] >= CONTEXTS || data[2] >= ARRAY_SIZE(class) ||
	    g->context[data[1]].registered) {
		violation(g, "GuC: context %u cannot be registered", data[1]);
		return;
	}
	c = &g->context[data[1]];
	*c = (struct context){ .registered = true, .id = data[1], .class = class[data[2]] };
	c->instance = data[3] ? __builtin_ctz(data[3]) : 0;
	if (c->class == COPY && c->instance == 1)
		c->instance = 8;	/* the second copy engine that there is */
	c->image = data[9] & 0xfffff000;
	g->contexts = max(g->contexts, c->id + 1);
}

static void set_mode(struct gpu *g, struct context *c, bool on)
{
	/* The driver may disable a context again before it deregisters the context. */
	if (c->enabled && on)
		violation(g, "GuC: context %u is enabled already", c->id);
	c->enabled = on;
	if (on) {
		guc_event(g, SCHED_CONTEXT_MODE_DONE, (u32[]){ c->id, 1 }, 2);
		cs_run(g, c);
	} else if (c->state == FAULTED) {
		c->disable = true;	/* an engine cannot stop before its fault is answered */
	} else {
		disabled(g, c);
	}
}

bool context_request(struct gpu *g, u32 action, const u32 *data, u32 n)
{
	u32 id = action == PAGE_FAULT_RESPONSE ? data[1] >> 16 : data[0];
	struct context *c = id < CONTEXTS && g->context[id].registered ? &g->context[id] : NULL;

	switch (action) {
	case REGISTER_CONTEXT:
		register_context(g, data, n);
		return true;
	case DEREGISTER_CONTEXT:
	case SCHED_CONTEXT_MODE_SET:
	case SCHED_CONTEXT:
	case PAGE_FAULT_RESPONSE:
		break;
	default:
		return false;
	}
	if (!c) {
		violation(g, "GuC: request %#x: context %u is not registered", action, id);
		return true;
	}
	switch (action) {
	case DEREGISTER_CONTEXT:
		if (c->enabled || c->disable)
			violation(g, "GuC: context %u is not disabled", c->id);
		c->registered = false;
		guc_event(g, DEREGISTER_CONTEXT_DONE, &id, 1);
		break;
	case SCHED_CONTEXT_MODE_SET:
		set_mode(g, c, data[1]);
		break;
	case SCHED_CONTEXT:
		cs_run(g, c);
		break;
	case PAGE_FAULT_RESPONSE:
		answered(g, c, data[0] & BIT(1));
		break;
	}
	return true;
}

void context_reset(struct gpu *g)
{
	memset(g->context, 0, g->contexts * sizeof(g->context[0]));
	g->contexts = 0;
}
