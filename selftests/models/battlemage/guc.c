// SPDX-License-Identifier: GPL-2.0-only
/*
 * The GuC, a processor whose firmware schedules contexts. No firmware runs here: this file takes
 * the driver's requests and sends the events of the firmware.
 *
 * Source: xe_guc.c, xe_uc_fw.c (loading), xe_guc_ct.c (messages), xe_guc_tlb_inval.c, abi/guc_*.h.
 */
#include "battlemage.h"

enum {
	GUC_STATUS = 0x00c000,
	GUC_WOPCM_SIZE = 0x00c050,
	SOFT_SCRATCH = 0x00c180,
	DMA_CTRL = 0x00c314,
	GUC_WOPCM_OFFSET = 0x00c340,
	GUC_HOST_INTERRUPT = 0x1901f0,
	VF_SW_FLAG = 0x190240,	/* four */
};

#define IN_RESET BIT(0)
#define RUNNING (2U << 30 | 0xf0 << 8 | 0x76 << 1)	/* authenticated, ready, jump passed */
#define START_DMA BIT(0)
#define UOS_MOVE BIT(4)
#define GUC_BIT 25		/* in GT_INTR_DW 0 */
#define GUC2HOST BIT(15)

/* The first word of a message: origin 31, type 30:28, action 15:0 or data 27:0. */
#define FROM_GUC BIT(31)
enum { REQUEST = 0, EVENT = 1, RESPONSE = 7 };

enum {
	SELF_CFG = 0x0508,
	PC_SLPC_REQUEST = 0x3003,
	GET_HWCONFIG = 0x4100,
	CONTROL_CTB = 0x4509,
	CLIENT_SOFT_RESET = 0x5507,
	TLB_INVALIDATION = 0x7000,
	TLB_INVALIDATION_DONE = 0x7001,
	TLB_INVALIDATION_ALL = 0x7002,
};

/* ---- to the driver ---- */

static void send(struct gpu *g, u32 fence, const u32 *msg, u32 n)
{
	u32 size = g->g2h.size / 4, head, tail;

	if (!g->guc_on || !size)
		return;
	head = ggtt_read(g, g->g2h.desc) % size;
	tail = ggtt_read(g, g->g2h.desc + 4) % size;
	if ((head + size - tail - 1) % size < n + 1) {
		violation(g, "GuC: the driver has left no room for events");
		return;
	}
	for (u32 i = 0; i <= n; i++, tail = (tail + 1) % size)
		ggtt_write(g, g->g2h.at + 4 * tail, i ? msg[i - 1] : fence << 16 | n);
	ggtt_write(g, g->g2h.desc + 4, tail);
	g->stats.events++;
	irq_raise(g, GUC_BIT, OTHER, 0, GUC2HOST);
}

void guc_event(struct gpu *g, u32 action, const u32 *data, u32 n)
{
	u32 msg[8] = { FROM_GUC | EVENT << 28 | action };

	memcpy(msg + 1, data, 4 * n);
	send(g, 0, msg, n + 1);
}

/* ---- invalidations ---- */

/* In order: the driver takes the number of one for the end of all before it. */
static void oldest_done(struct gpu *g)
{
	typeof(g->invalidation[0]) v = g->invalidation[0];

	g->ninvalidation--;
	memmove(&g->invalidation[0], &g->invalidation[1], g->ninvalidation * sizeof(v));
	mmu_invalidate(g, v.asid, v.va, v.len);
	guc_event(g, TLB_INVALIDATION_DONE, &v.seqno, 1);
}

/* data: number; type; and for a range: address space, address, log2 of pages */
static void invalidate(struct gpu *g, bool range, const u32 *data, u32 n)
{
	typeof(g->invalidation[0]) v = { .due = now() + g->slow_ms, .asid = -1, .seqno = data[0] };

	g->stats.invalidations++;
	if (range && (data[1] & 0xff) == 1 && n >= 6) {
		v.asid = data[2] % ASIDS;
		v.va = data[3] | (u64)data[4] << 32;
		v.len = 4096ULL << min(data[5], 51);
	} else if ((data[1] & 0xff) == 3) {
		v.asid = ASIDS;		/* the GuC's own TLB, not in the model */
	}
	if (g->ninvalidation == ARRAY_SIZE(g->invalidation))
		oldest_done(g);
	g->invalidation[g->ninvalidation++] = v;
	g->dev.ticking |= g->slow_ms;
	while (!g->slow_ms && g->ninvalidation)
		oldest_done(g);
}

bool guc_tick(struct gpu *g)
{
	while (g->ninvalidation && now() >= g->invalidation[0].due)
		oldest_done(g);
	return g->ninvalidation;
}

/* ---- from the driver ---- */

#define FREQUENCIES (144 | 24 << 8)	/* maximum, minimum, in units of 50/3 MHz */

/* Power management: the answer is in the memory of the request. */
static void slpc(struct gpu *g, const u32 *data)
{
	u32 event = data[0] >> 8 & 0xff;

	if (event != 0 && event != 5)		/* reset, query of the task state */
		return;
	if (!event) {
		ggtt_write(g, data[1] + 4, 3);	/* global state: running */
		ggtt_write(g, data[1] + 128, 1);
	}
	ggtt_write(g, data[1] + 132, FREQUENCIES);
}

static bool ignored(u32 action)
{
	/* Policies, statistics, features, logs, power: they have no effect on the model. */
	static const u16 actions[] = {
		0x0030, 0x0040,			/* log flush and buffer */
		0x0506, 0x0509, 0x100b,		/* scheduling policies */
		0x1005, 0x1006, 0x1007,		/* priority, quantum, preemption timeout */
		0x3004,				/* SETUP_PC_GUCRC */
		0x5507, 0x550a, 0x550c, 0x550d, 0x550e,	/* soft reset, utilisation, statistics */
	};

	for (size_t i = 0; i < ARRAY_SIZE(actions); i++)
		if (actions[i] == action)
			return true;
	return false;
}

static void request(struct gpu *g, u32 fence, const u32 *msg, u32 n)
{
	u32 action = msg[0] & 0xffff, answer = FROM_GUC | (u32)RESPONSE << 28;

	g->stats.requests++;
	if (action == TLB_INVALIDATION || action == TLB_INVALIDATION_ALL)
		invalidate(g, action == TLB_INVALIDATION, msg + 1, n - 1);
	else if (action == PC_SLPC_REQUEST)
		slpc(g, msg + 1);
	else if (!context_request(g, action, msg + 1, n - 1) && !ignored(action)) {
		g->stats.unknown_requests++;
		note(g, "GuC: unknown request %#x", action);
	}
	/* Others want no answer. */
	if ((msg[0] >> 28 & 7) == REQUEST)
		send(g, fence, &answer, 1);
}

static void receive(struct gpu *g)
{
	u32 size = g->h2g.size / 4;

	/* What a request starts may lead here again. */
	if (!g->guc_on || g->guc_inside || !size)
		return;
	g->guc_inside = true;
	for (u32 turn = 0; turn < TURN && g->guc_on; turn++) {
		u32 head = ggtt_read(g, g->h2g.desc) % size, first, msg[256] = {}, n;

		if (head == ggtt_read(g, g->h2g.desc + 4) % size)
			break;
		first = ggtt_read(g, g->h2g.at + 4 * head);
		n = first & 0xff;
		for (u32 i = 0; i < n; i++)
			msg[i] = ggtt_read(g, g->h2g.at + 4 * ((head + 1 + i) % size));
		ggtt_write(g, g->h2g.desc, (head + 1 + n) % size);
		/* A message without words only fills the buffer up to its end. */
		if (n)
			request(g, first >> 16, msg, n);
	}
	g->guc_inside = false;
}

/* Before there are buffers, messages are in four registers. */
static void early_message(struct gpu *g)
{
	static const u32 hwconfig[] = { 1, 1, 1, 70, 1, 4 };	/* slices, subslices */
	u32 *msg = plain(g, VF_SW_FLAG), answer = 0;
	u32 *const config[] = { &g->h2g.at, &g->h2g.desc, &g->h2g.size,
				&g->g2h.at, &g->g2h.desc, &g->g2h.size };

	if (msg[0] & FROM_GUC)
		return;		/* the last answer: there is no new message */
	switch (msg[0] & 0xffff) {
	case SELF_CFG:
		if ((msg[1] >> 16) - 0x902 < ARRAY_SIZE(config)) {
			*config[(msg[1] >> 16) - 0x902] = msg[2];
			answer = 1;
		}
		break;
	case CONTROL_CTB:
		g->guc_on = msg[1] & 1;
		break;
	case GET_HWCONFIG:
		answer = sizeof(hwconfig);
		if (msg[3])
			ggtt_copy(g, msg[1], (void *)hwconfig, min(answer, msg[3]), true);
		break;
	case CLIENT_SOFT_RESET:
		break;
	default:
		g->stats.unknown_requests++;
		note(g, "GuC: unknown early message %#x %#x", msg[0], msg[1]);
	}
	memset(msg, 0, 16);
	msg[0] = FROM_GUC | (u32)RESPONSE << 28 | answer;
}

bool guc_write(struct gpu *g, u32 at, u32 val)
{
	switch (at) {
	case GUC_WOPCM_SIZE:
	case GUC_WOPCM_OFFSET:
		*plain(g, at) = val | 1;	/* locked; valid */
		return true;
	case DMA_CTRL:
		val = masked(*plain(g, at), val);
		*plain(g, at) = val & ~START_DMA;
		if ((val & START_DMA) && (val & UOS_MOVE)) {
			g->guc_loaded = true;
			*plain(g, GUC_STATUS) = RUNNING;
			*plain(g, SOFT_SCRATCH) = 0;
		}
		return true;
	case GUC_HOST_INTERRUPT:
		if (g->guc_loaded) {
			early_message(g);
			receive(g);
		}
		return true;
	}
	return false;
}

void guc_reset(struct gpu *g)
{
	g->guc_loaded = g->guc_on = false;
	g->ninvalidation = 0;
	context_reset(g);
	*plain(g, GUC_STATUS) = IN_RESET;
}
