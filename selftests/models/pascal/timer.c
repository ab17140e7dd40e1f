// SPDX-License-Identifier: GPL-2.0-only
/*
 * PTIMER: nanoseconds, and an alarm.
 *
 * Source: envytools (rnndb/bus/ptimer.xml); NVIDIA open-gpu-doc manuals (dev_timer.ref of Volta)
 * have the same registers.
 */
#include "pascal.h"

#include <time.h>

enum { INTR = 0x9100, INTR_EN = 0x9140, TIME_LOW = 0x9400, TIME_HIGH = 0x9410, ALARM = 0x9420 };

static u64 clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

u64 timer_ns(struct gpu *g)
{
	return (clock_ns() + g->time_base) & ~31ULL;	/* it counts in steps of 32 ns */
}

bool timer_pending(struct gpu *g)
{
	return g->regs[INTR / 4] & g->regs[INTR_EN / 4] & 1;
}

bool timer_tick(struct gpu *g)
{
	if (!(g->regs[INTR_EN / 4] & 1) || g->regs[INTR / 4] & 1)
		return false;
	if ((int)((u32)timer_ns(g) - g->regs[ALARM / 4]) < 0)
		return true;
	g->regs[INTR / 4] |= 1;
	interrupt(g);
	return false;
}

bool timer_read(struct gpu *g, u32 at, u32 *val)
{
	switch (at) {
	case TIME_LOW:
		*val = timer_ns(g);
		return true;
	case TIME_HIGH:
		*val = timer_ns(g) >> 32;
		return true;
	case INTR:
	case INTR_EN:
	case ALARM:
		*val = g->regs[at / 4];
		return true;
	}
	return false;
}

bool timer_write(struct gpu *g, u32 at, u32 val)
{
	switch (at) {
	case TIME_LOW:
		g->time_base = ((u64)g->regs[TIME_HIGH / 4] << 32 | val) - clock_ns();
		break;
	case TIME_HIGH:
		g->regs[at / 4] = val;
		break;
	case INTR:
		g->regs[at / 4] &= ~val;
		break;
	case INTR_EN:
	case ALARM:
		g->regs[at / 4] = val;
		break;
	default:
		return false;
	}
	g->dev.ticking |= timer_tick(g);
	return true;
}
