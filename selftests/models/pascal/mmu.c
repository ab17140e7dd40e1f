// SPDX-License-Identifier: GPL-2.0-only
/*
 * The MMU: page tables of five levels, TLBs that keep each entry until it is invalidated, and the
 * registers for this.
 *
 * Source: NVIDIA open-gpu-doc, pascal/gp100-mmu-format.pdf (page tables, sparse, read-only, atomic
 * disable, "small PTEs are not valid"); open-gpu-kernel-modules, nvidia-uvm/hwref/pascal/gp100/
 * dev_fb.h (fields of the invalidation) and dev_fault.h (reasons). Inferred from nouveau: where the
 * registers are (0x100c80, 0x100cb8, 0x100cbc, 0x100cec), bit 2 (hub only), bits 4 and 5 of the
 * directory base that make faults replayable.
 *
 * The driver copies by physical addresses only when it moves a page to VRAM or from it. A process
 * must not be able to write the source meanwhile, because the write would be lost. The destination
 * is free until then: no page table and no TLB of a process may lead there.
 *
 * A TLB entry that the page table denies is not an error while the driver changes it: between its
 * write and its invalidation the GPU may use the old one. It is an error if the GPU used it and no
 * invalidation comes within STALE_MS, or if the driver says that it has finished (mmu_check()).
 */
#include "pascal.h"

#include <stdlib.h>

#define STALE_MS 2000
#define PROBES 32

enum {
	CTRL = 0x100c80, PDB_LO = 0x100cb8, INVALIDATE = 0x100cbc, PDB_HI = 0x100cec,
};

enum {
	ALL_VA = BIT(0), ALL_PDB = BIT(1), HUB_ONLY = BIT(2),
	REPLAY = 7 << 3, REPLAY_START = 1 << 3, REPLAY_START_ACK = 2 << 3,
	CANCEL_TARGETED = 3 << 3, CANCEL_GLOBAL = 4 << 3,
	TRIGGER = BIT(31),
};

/* ---- page tables ---- */

enum {
	V = BIT(0), APERTURE = 3 << 1, VOL = BIT(3), PRIV = BIT(5), RO = BIT(6), NO_ATOMIC = BIT(7)
};

static u64 entry(struct gpu *g, enum aperture where, u64 addr)
{
	u64 len = 8, val = 0;
	u8 *p = memory(g, where, addr, &len, false);

	if (p && len == 8)
		memcpy(&val, p, 8);
	return val;
}

/* The aperture of a PDE or of a directory base, where 1 is video memory. */
static enum aperture level_aperture(u64 pde)
{
	u32 a = pde >> 1 & 3;

	return a == 1 ? VRAM : a;
}

static u64 next_level(u64 pde)
{
	return (pde & 0x003fffffffffff00ULL) << 4;
}

static void leaf(struct xlat *x, u64 pte, u64 va, u8 shift)
{
	x->valid = true;
	x->shift = shift;
	x->where = pte >> 1 & 3;
	x->read_only = pte & RO;
	x->no_atomic = pte & NO_ATOMIC;
	x->addr = (pte >> 8 & (x->where < COHERENT ? 0x1ffffffULL : 0x7ffffffffULL)) << 12;
	x->addr += va & (BIT_ULL(shift) - 1);
}

static void miss(struct xlat *x, enum reason reason, bool sparse, u8 shift)
{
	x->shift = shift;
	x->sparse = sparse;
	x->reason = reason;
}

void walk(struct gpu *g, u64 pdb, u64 va, struct xlat *x)
{
	static const u8 shift[] = { 47, 38, 29 };
	enum aperture where = (pdb & 3) == 1 ? PEER : pdb & 3;
	u64 at = pdb & ~0xfffULL, e, small, big = 0;

	*x = (struct xlat){ .where = VRAM };
	if (va >> 49)
		return miss(x, FAULT_VA_LIMIT, false, 49);
	for (int i = 0; i < 3; i++) {
		e = entry(g, where, at + (va >> shift[i] & (i ? 511 : 3)) * 8);
		if (!(e & APERTURE))
			return miss(x, FAULT_PDE, !(e & V) && e & VOL, shift[i]);
		where = level_aperture(e);
		at = next_level(e);
	}
	at += (va >> 21 & 255) * 16;
	e = entry(g, where, at);
	if (e & V)
		return leaf(x, e, va, 21);
	small = entry(g, where, at + 8);
	if (!(e & APERTURE) && !(small & APERTURE))
		return miss(x, FAULT_PDE, e & VOL, 21);
	if (e & APERTURE) {
		/* Tables of big pages are aligned to 256 bytes: four bits more. */
		big = entry(g, level_aperture(e),
			    ((e & 0x003ffffffffffff0ULL) << 4) + (va >> 16 & 31) * 8);
		if (big & V)
			return leaf(x, big, va, 16);
		if (big & (VOL | PRIV) || !(small & APERTURE))
			return miss(x, FAULT_PTE, big & VOL, 16);
	}
	small = entry(g, level_aperture(small), next_level(small) + (va >> 12 & 511) * 8);
	if (small & V)
		return leaf(x, small, va, 12);
	miss(x, FAULT_PTE, small & VOL, 12);
}

bool mmu_next(struct gpu *g, u64 pdb, u64 *va, struct xlat *x, u32 *steps)
{
	for (*va &= ~0xfffULL; !(*va >> 49) && *steps; --*steps) {
		walk(g, pdb, *va, x);
		if (x->valid)
			return true;
		*va = ((*va >> x->shift) + 1) << x->shift;
	}
	return false;
}

/* ---- TLBs: one of the hub, one of all GPCs ---- */

u64 pdb_key(u64 pdb)
{
	return (pdb & ~0xfffULL) | (pdb & 3);
}

/* An entry is valid if it has the generation of its directory; NULL: too many directories. */
static u32 *generation(struct gpu *g, u64 pdb, bool gpc)
{
	for (u32 i = 0; i < g->npdb; i++)
		if (g->pdb[i].pdb == pdb)
			return &g->pdb[i].gen[gpc];
	if (g->npdb == PDBS)
		return NULL;
	g->pdb[g->npdb].pdb = pdb;
	g->pdb[g->npdb].gen[0] = g->pdb[g->npdb].gen[1] = 1;
	return &g->pdb[g->npdb++].gen[gpc];
}

static bool live(struct gpu *g, const struct tlb *t)
{
	const u32 *gen = t->used ? generation(g, t->pdb, t->gpc) : NULL;

	return gen && *gen == t->gen;
}

static void forget(struct gpu *g, struct tlb *t)
{
	if (t->stale)
		g->stale--;
	*t = (struct tlb){ 0 };
}

static u32 hash(u64 pdb, u64 page)
{
	return (page * 0x9e3779b97f4a7c15ULL ^ pdb * 0xff51afd7ed558ccdULL) >> 40;
}

/* The entry of this page, or else one that is free. */
static struct tlb *tlb_slot(struct gpu *g, u64 pdb, bool gpc, u64 page)
{
	struct tlb *to = NULL;

	for (u32 i = 0, h = hash(pdb, page); i < PROBES; i++) {
		struct tlb *t = &g->tlb[(h + i) % TLB_SIZE];

		if (!live(g, t)) {
			if (t->used)
				forget(g, t);
			if (!to)
				to = t;
		} else if (t->page == page && t->pdb == pdb && t->gpc == gpc) {
			return t;
		}
	}
	if (!to) {
		to = &g->tlb[hash(pdb, page) % TLB_SIZE];
		forget(g, to);
		g->stats.tlb_evicted++;
	}
	return to;
}

static bool differ(const struct xlat *a, const struct xlat *b)
{
	return a->valid != b->valid || a->sparse != b->sparse || a->where != b->where ||
	       a->addr != b->addr || a->read_only != b->read_only || a->no_atomic != b->no_atomic;
}

static void stale(struct gpu *g, const struct tlb *t, const char *how)
{
	struct xlat x;

	walk(g, t->pdb, t->page << 12, &x);
	violation(g,
		  "%s: directory %#lx, address %#lx: TLB has %s%u:%#lx, page table %s%u:%#lx", how,
		  t->pdb, t->page << 12, t->x.read_only ? "read-only " : "", t->x.where, t->x.addr,
		  !x.valid ? "nothing, not " : x.read_only ? "read-only " : "", x.where, x.addr);
}

/* See maybe_mapped(). */
static u32 mapped_bit(enum aperture where, u64 page)
{
	return hash(where == VRAM, page) % MAPPED_SIZE;
}

static void mark(struct gpu *g, const struct xlat *x)
{
	for (u64 p = x->addr >> 12; p < (x->addr + BIT_ULL(x->shift)) >> 12; p++) {
		u32 bit = mapped_bit(x->where, p);

		g->mapped[bit / 8] |= BIT(bit % 8);
	}
}

static void translate(struct gpu *g, u64 pdb, bool gpc, u64 va, struct xlat *x)
{
	u64 key = pdb_key(pdb), page = va >> 12;
	const u32 *gen = generation(g, key, gpc);
	struct tlb *t = gen ? tlb_slot(g, key, gpc, page) : NULL;

	walk(g, pdb, page << 12, x);
	if (t && t->used) {
		if (differ(x, &t->x)) {
			g->stats.stale_uses++;
			if (!t->stale) {
				t->stale = now();
				g->stale++;
				g->dev.ticking = true;
				debug(g, "stale: directory %#lx, address %#lx", key, va);
			}
		}
		*x = t->x;
	} else if (t && (x->valid || x->sparse)) {
		*t = (struct tlb){
			.pdb = key, .page = page, .gen = *gen, .used = true, .gpc = gpc, .x = *x
		};
		t->x.shift = 12;
		if (gpc) {
			g->gpc_seen = true;
			mark(g, &t->x);
		}
	}
	x->addr += va & 0xfff;
}

/* Does a channel or a BAR use this directory? If not, its memory may have another use by now. */
static bool in_use(struct gpu *g, u64 pdb)
{
	for (u32 i = 0; i < CHANNELS; i++)
		if (chan_uses(g, i, pdb))
			return true;
	return pdb_key(bar_pdb(g, 1)) == pdb || pdb_key(bar_pdb(g, 2)) == pdb;
}

void mmu_check(struct gpu *g)
{
	for (u32 i = 0; i < TLB_SIZE; i++) {
		struct tlb *t = &g->tlb[i];
		struct xlat x;

		if (!live(g, t) || !in_use(g, t->pdb))
			continue;
		walk(g, t->pdb, t->page << 12, &x);
		if (differ(&x, &t->x)) {
			stale(g, t, "never invalidated");
			forget(g, t);
		}
	}
}

bool mmu_tick(struct gpu *g)
{
	for (u32 i = 0; g->stale && i < TLB_SIZE; i++) {
		struct tlb *t = &g->tlb[i];

		if (!t->stale)
			continue;
		if (!live(g, t)) {
			forget(g, t);
		} else if (now() - t->stale > STALE_MS) {
			stale(g, t, "used, and not invalidated");
			forget(g, t);
		}
	}
	return g->stale || g->invalidation.busy;
}

void mmu_unmapped(struct gpu *g, u64 iova, u64 size)
{
	for (u32 i = 0; i < TLB_SIZE; i++) {
		const struct tlb *t = &g->tlb[i];

		if (t->used && t->x.valid && t->x.where >= COHERENT && t->x.addr + 4096 > iova &&
		    t->x.addr - iova < size && live(g, t) && in_use(g, t->pdb))
			violation(g, "unmapped %#lx while the TLB leads there from %#lx of %#lx",
				  t->x.addr, t->page << 12, t->pdb);
	}
}

/* The page tables of processes make faults replayable. Each table is looked at once. */
static u64 process_pdb(struct gpu *g, u32 chid)
{
	u64 pdb = chan_bound(g, chid) ? chan_pdb(g, chid) : 0;

	for (u32 i = 0; pdb && i < chid; i++)
		if (chan_bound(g, i) && chan_pdb(g, i) == pdb)
			return 0;
	return pdb & REPLAYABLE ? pdb : 0;
}

struct moved {
	enum aperture where;
	u64 addr, len;
	enum access how;
};

static bool leads(const struct xlat *x, const struct moved *m)
{
	return x->valid && (m->how == WRITE || !x->read_only) &&
	       (x->where == VRAM) == (m->where == VRAM) &&
	       x->addr + BIT_ULL(x->shift) > m->addr && x->addr < m->addr + m->len;
}

static void moved(struct gpu *g, const struct moved *m, const char *what, u64 va)
{
	violation(g, "%#lx is %s, while %s of %#lx leads there", m->addr,
		  m->how == READ ? "copied, and can be written" : "free, and gets a copy", what,
		  va);
}

/* Marks pages that page tables of processes map, or finds the entry that maps the moved page. */
static void look(struct gpu *g, const struct moved *m)
{
	u32 steps = TURN;

	for (u32 i = 0; i < CHANNELS; i++) {
		u64 pdb = process_pdb(g, i), va = 0;
		struct xlat x;

		for (; pdb && mmu_next(g, pdb, &va, &x, &steps); va += BIT_ULL(x.shift)) {
			if (!m)
				mark(g, &x);
			else if (leads(&x, m))
				return moved(g, m, "a page table entry", va);
		}
	}
	g->mapped_old &= !steps;
}

/*
 * A bit map of the pages that may be mapped for a process, in a page table or in a TLB. It is
 * rebuilt when page tables may have changed. A bit can stand for several pages.
 */
static bool maybe_mapped(struct gpu *g, const struct moved *m)
{
	if (g->mapped_old) {
		memset(g->mapped, 0, MAPPED_SIZE / 8);
		for (u32 i = 0; g->gpc_seen && i < TLB_SIZE; i++)
			if (g->tlb[i].used && g->tlb[i].gpc)
				mark(g, &g->tlb[i].x);
		look(g, NULL);
	}
	for (u64 p = m->addr >> 12; p << 12 < m->addr + m->len; p++) {
		u32 bit = mapped_bit(m->where, p);

		if (g->mapped[bit / 8] & BIT(bit % 8))
			return true;
	}
	return false;
}

void mmu_copied(struct gpu *g, enum aperture where, u64 addr, u64 len, enum access how)
{
	struct moved m = { where, addr, len, how };

	if (!maybe_mapped(g, &m))
		return;
	for (u32 i = 0; g->gpc_seen && i < TLB_SIZE; i++) {
		const struct tlb *t = &g->tlb[i];

		if (t->used && t->gpc && leads(&t->x, &m) && live(g, t) && in_use(g, t->pdb))
			moved(g, &m, "the TLB", t->page << 12);
	}
	look(g, &m);
}

/* ---- accesses ---- */

static bool refused(struct gpu *g, const struct xlat *x, enum access how, enum reason *reason)
{
	if (x->sparse)
		return false;
	if (!x->valid)
		*reason = x->reason;
	else if (x->read_only && (how == WRITE || how == ATOMIC))
		*reason = FAULT_READ_ONLY;
	else if (x->no_atomic && how == ATOMIC)
		*reason = FAULT_ATOMIC;
	else if (x->where == PEER)
		*reason = FAULT_APERTURE;
	else
		return false;
	return true;
}

/* *len bytes at most; *p is NULL if the page is sparse, or nothing has to be moved. */
static bool reach(struct gpu *g, u64 pdb, bool gpc, u64 va, u64 *len, enum access how,
		  struct mmu_fault *f, u8 **p)
{
	struct xlat x;

	*p = NULL;
	f->va = va;
	*len = min(*len, 4096 - (va & 4095));
	translate(g, pdb, gpc, va, &x);
	if (refused(g, &x, how, &f->reason))
		return false;
	if (x.sparse)
		g->stats.sparse++;
	if (x.sparse || how == PREFETCH)
		return true;
	*p = memory(g, x.where, x.addr, len, how != READ);
	f->reason = FAULT_REGION;
	return *p;
}

bool mmu_copy(struct gpu *g, u64 pdb, bool gpc, u64 va, void *buf, u64 len, enum access how,
	      struct mmu_fault *f)
{
	for (f->done = 0; f->done < len;) {
		u8 *at = (u8 *)buf + f->done, *p;
		u64 n = len - f->done;

		if (!reach(g, pdb, gpc, va + f->done, &n, how, f, &p))
			return false;
		if (how == READ && p)
			memcpy(at, p, n);
		else if (how == READ)
			memset(at, 0, n);	/* A sparse page reads as zeroes, */
		else if (p)
			memcpy(p, at, n);	/* and drops what is written to it. */
		f->done += n;
	}
	return true;
}

bool mmu_add(struct gpu *g, u64 pdb, bool gpc, u64 va, u32 add, u32 *val, struct mmu_fault *f)
{
	u64 n = 4;
	u8 *p;

	*val = 0;
	va &= ~3ULL;
	f->done = 0;
	if (!reach(g, pdb, gpc, va, &n, ATOMIC, f, &p))
		return false;
	if (p)
		*val = __atomic_fetch_add((u32 *)p, add, __ATOMIC_SEQ_CST);
	return true;
}

/* ---- invalidation, replay, cancel ---- */

static void drop(struct gpu *g, u64 pdb, u32 what)
{
	for (u32 i = 0; i < g->npdb; i++) {
		if (!(what & ALL_PDB) && g->pdb[i].pdb != pdb)
			continue;
		g->pdb[i].gen[0]++;
		if (!(what & HUB_ONLY))
			g->pdb[i].gen[1]++;
	}
}

static void finish(struct gpu *g)
{
	u32 what = g->invalidation.what;

	g->invalidation.busy = false;
	drop(g, g->invalidation.pdb, what);
	if (!(what & REPLAY))
		door_invalidated(g, g->invalidation.pdb);
	switch (what & REPLAY) {
	case REPLAY_START:
	case REPLAY_START_ACK:
		g->stats.replays++;
		door_replay(g);
		break;
	case CANCEL_TARGETED:
		g->stats.cancels++;
		if (!door_cancel(g, what >> 15 & 31, what >> 9 & 63))
			note(g, "cancel of a fault that is not there: %#x", what);
		break;
	case CANCEL_GLOBAL:
		g->stats.cancels++;
		while (door_cancel(g, ~0U, ~0U))
			;
		break;
	}
}

/* A slow invalidation ends at the first check after its time. */
static void expire(struct gpu *g)
{
	if (g->invalidation.busy && now() >= g->invalidation.until)
		finish(g);
}

static void invalidate(struct gpu *g, u32 what)
{
	u64 pdb = (u64)g->regs[PDB_HI / 4] << 32 | g->regs[PDB_LO / 4];

	if (!(what & TRIGGER))
		return;
	if (!(what & ALL_VA))
		violation(g, "invalidation of a single address is not modelled: %#x", what);
	if (g->invalidation.busy) {
		violation(g, "an invalidation while another one is under way");
		finish(g);
	}
	g->stats.invalidations++;
	debug(g, "invalidate %#x of %#lx", what, pdb);
	g->invalidation.busy = true;
	g->invalidation.until = now() + g->slow_ms;
	g->invalidation.what = what;
	g->invalidation.pdb = (pdb >> 4 << 12) | (pdb & 3);
	if (!g->slow_ms)
		finish(g);
}

bool mmu_read(struct gpu *g, u32 at, u32 *val)
{
	switch (at) {
	case CTRL:
		expire(g);
		/* How many more invalidations can be queued, and whether none is pending. */
		*val = (g->regs[CTRL / 4] & ~0x00ff8000U) | 0x00ff0000 |
		       (g->invalidation.busy ? 0 : BIT(15));
		return true;
	case PDB_LO:
	case PDB_HI:
	case INVALIDATE:
		*val = g->regs[at / 4];
		return true;
	}
	return false;
}

bool mmu_write(struct gpu *g, u32 at, u32 val)
{
	switch (at) {
	case CTRL:
	case PDB_LO:
	case PDB_HI:
		g->regs[at / 4] = val;
		return true;
	case INVALIDATE:
		g->regs[at / 4] = val & ~TRIGGER;
		expire(g);
		invalidate(g, val);
		return true;
	}
	return false;
}

void mmu_reset(struct gpu *g)
{
	memset(g->tlb, 0, TLB_SIZE * sizeof(*g->tlb));
	g->npdb = g->stale = 0;
	g->gpc_seen = false;
	g->mapped_old = true;
	g->invalidation.busy = false;
}
