// SPDX-License-Identifier: GPL-2.0-only
/* The back door, see backdoor.h. */
#include "battlemage.h"

static struct gpu *of(struct vfio_user *v)
{
	return container_of(v, struct gpu, dev);
}

static u32 *word(struct gpu *g, u32 at)
{
	switch (at) {
	case DOOR_ASID:
		return &g->asid;
	case DOOR_VA:
		return (u32 *)&g->va;
	case DOOR_VA + 4:
		return (u32 *)&g->va + 1;
	case DOOR_HOLD:
		return &g->hold;
	case DOOR_RELEASE:
		return &g->release;
	case DOOR_SLOW:
		return &g->slow_ms;
	case DOOR_LATE:
		return &g->late_ms;
	}
	return NULL;
}

static void start(struct gpu *g, u32 op)
{
	struct context *c = context_of(g, g->asid);
	struct xlat x;

	g->status = DOOR_FAILED;
	g->flags = 0;
	if (op == DOOR_VRAM) {
		if (g->va > g->opt.vram - sizeof(g->data))
			return;
		memcpy(g->data, g->vram + g->va, sizeof(g->data));
		g->status = DOOR_DONE;
		return;
	}
	if (!c)
		return;
	if (op == DOOR_NEXT) {
		if (!mmu_next(g, c->root, &g->va, &x))
			return;
		g->status = DOOR_DONE;
	} else {
		g->status = DOOR_DONE;
		if (!mmu_walk(g, c->root, g->va, &x))
			return;
	}
	g->addr = xlat_addr(&x);
	g->flags = DOOR_VALID | (x.pte & PTE_WRITE ? DOOR_WRITABLE : 0) |
		   (x.pte & PTE_ATOMIC ? DOOR_ATOMIC : 0) | (x.pte & PTE_LOCAL ? DOOR_LOCAL : 0) |
		   x.shift << DOOR_SHIFT;
}

u32 door_get(struct vfio_user *v, u32 at)
{
	struct gpu *g = of(v);
	u32 val = 0, *p = word(g, at);

	if (p)
		return *p;
	if (at >= DOOR_DATA)
		memcpy(&val, g->data + (at - DOOR_DATA), 4);
	else if (at >= DOOR_COUNTERS && at < DOOR_COUNTERS + sizeof(struct stats))
		memcpy(&val, (const u8 *)stats(g) + (at - DOOR_COUNTERS), 4);
	else if (at == DOOR_STATUS)
		val = g->status;
	else if (at == DOOR_FLAGS)
		val = g->flags;
	else if (at == DOOR_ADDR || at == DOOR_ADDR + 4)
		val = g->addr >> (at == DOOR_ADDR ? 0 : 32);
	return val;
}

void door_set(struct vfio_user *v, u32 at, u32 val)
{
	struct gpu *g = of(v);
	u32 *p = word(g, at);

	if (p)
		*p = val;
	switch (at) {
	case DOOR_OP:
		start(g, val);
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
		g->dev.ticking = true;
		break;
	}
}
