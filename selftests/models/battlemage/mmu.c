// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page tables of processes, and the TLB.
 *
 * Source: xe_pt.c, xe_vm.c and regs/xe_gtt_defs.h: five levels, tables in VRAM; what the bits of an
 * entry mean. The TLB keeps an entry until an invalidation names it.
 */
#include "battlemage.h"

#define PRESENT BIT_ULL(0)
#define COMPACT BIT_ULL(6)	/* in a table of level 1: the next one has 32 entries of 64 KiB */
#define PAGE BIT_ULL(7)		/* in a table of level 1 or 2: not a table */
#define HINT_64K BIT_ULL(8)	/* in a table of level 0: one of 16 entries of adjacent memory */
#define NULL_PAGE BIT_ULL(9)	/* reads as zero, writes are dropped */
#define PAT (3 << 3)
#define TABLE (ADDRESS | PRESENT | PTE_WRITE | PAT)	/* bits of an entry for a table */
#define ADDRESS 0xffffffffff000ULL
#define VA_MASK (BIT_ULL(57) - 1)

u64 xlat_addr(const struct xlat *x)
{
	return x->pte & ADDRESS & ~(BIT_ULL(x->shift) - 1);
}

bool mmu_walk(struct gpu *g, u64 root, u64 va, struct xlat *x)
{
	u64 table = root & ADDRESS;
	bool compact = false;

	for (int level = 4; level >= 0; level--) {
		x->level = level;
		x->shift = compact ? 16 : 12 + 9 * level;
		x->pte = 0;
		if (table > g->opt.vram - 4096)
			return false;
		vram_own(g, table);
		memcpy(&x->pte, g->vram + table + (va >> x->shift & (compact ? 31 : 511)) * 8, 8);
		if (level <= 2 && x->pte & NULL_PAGE)
			return true;
		if (!(x->pte & PRESENT))
			return false;
		if (!level && !compact && x->pte & HINT_64K && (x->pte ^ va) & 0xf000)
			violation(g, "64 KiB that are not aligned: %#lx: %#lx", va, x->pte);
		if (!level || (level <= 2 && x->pte & PAGE))
			return true;
		/* What the model does not know must not mean anything to the hardware. */
		if (x->pte & ~(TABLE | (level == 1 ? COMPACT : 0)))
			violation(g, "unknown bits in the entry of a table: %#lx", x->pte);
		table = x->pte & ADDRESS;
		compact = level == 1 && x->pte & COMPACT;
	}
	return false;
}

bool mmu_next(struct gpu *g, u64 root, u64 *va, struct xlat *x)
{
	for (u32 steps = 0; steps < 1000000 && *va <= VA_MASK; steps++) {
		if (mmu_walk(g, root, *va, x)) {
			*va &= ~(BIT_ULL(x->shift) - 1);
			return true;
		}
		*va = (*va | (BIT_ULL(x->shift) - 1)) + 1;
	}
	return false;
}

/* ---- the TLB ---- */

static struct tlb *slot(struct gpu *g, u32 asid, u64 page)
{
	return &g->tlb[((page ^ (u64)asid << 40) * 0x9e3779b97f4a7c15ULL >> 40) % TLB_SIZE];
}

static void drop(struct gpu *g, struct tlb *t)
{
	g->stale -= !!t->stale;
	t->stale = 0;
	t->used = false;
}

void mmu_invalidate(struct gpu *g, s64 asid, u64 va, u64 len)
{
	u64 first = va >> 12, pages = len >> 12;

	if (asid >= 0 && pages <= 512) {
		/* Pages that are a part of a large one have an entry each. */
		for (u64 page = first; page < first + pages; page++) {
			struct tlb *t = slot(g, asid, page);

			if (t->used && t->asid == asid && t->page == page)
				drop(g, t);
		}
		return;
	}
	for (u32 i = 0; i < TLB_SIZE; i++) {
		struct tlb *t = &g->tlb[i];

		if (t->used && (asid < 0 || (t->asid == asid && t->page - first < pages)))
			drop(g, t);
	}
}

static bool differs(struct gpu *g, const struct tlb *t)
{
	struct xlat x;

	return !mmu_walk(g, t->root, t->page << 12, &x) || x.pte != t->x.pte ||
	       x.shift != t->x.shift;
}

static bool faulting(struct gpu *g, u32 asid)
{
	return g->faulting[asid / 8] & BIT(asid % 8);
}

void mmu_faults(struct gpu *g, u32 asid)
{
	g->faulting[asid / 8] |= BIT(asid % 8);
}

/* May a page be in the TLB for a process? The bit is set when an entry is made. */
static u8 *maybe_mapped(struct gpu *g, const u8 *page, u8 *bit)
{
	u64 hash = ((uintptr_t)page >> 12) * 0x9e3779b97f4a7c15ULL >> 44;

	*bit = BIT(hash % 8);
	return &g->mapped[hash % MAPPED / 8];
}

static struct tlb *lookup(struct gpu *g, struct context *c, u64 va)
{
	struct tlb *t = slot(g, c->asid, va >> 12);

	if (!t->used || t->asid != c->asid || t->page != va >> 12)
		return NULL;
	if (!t->stale && differs(g, t)) {
		t->stale = now();
		g->stale++;
		g->stats.stale_uses++;
		g->dev.ticking = true;
		debug(g, "TLB: stale: asid %u %#lx: %#lx", t->asid, va, t->x.pte);
	}
	return t;
}

static bool allowed(const struct xlat *x, enum access how, struct fault *f)
{
	if (how != READ && !(x->pte & PTE_WRITE))
		f->reason = NO_WRITE;
	else if (how == ATOMIC && !(x->pte & PTE_ATOMIC))
		f->reason = NO_ATOMIC;
	else
		return true;
	return false;
}

u8 *mmu_memory(struct gpu *g, struct context *c, u64 va, enum access how, u64 *room,
	       struct fault *f)
{
	static u8 null_page[4096];
	struct xlat x = {};
	struct tlb *t;
	u64 off, size;
	u8 bit, *p;

	va &= VA_MASK;
	*f = (struct fault){ .va = va, .access = how };
	t = lookup(g, c, va);
	/* An entry that does not allow the access is read again: hardware may do so, too. */
	if (t && allowed(&t->x, how, f)) {
		x = t->x;
	} else if (!mmu_walk(g, c->root, va, &x)) {
		f->reason = NOT_PRESENT;
		f->level = x.level;
		return NULL;
	} else if (!allowed(&x, how, f)) {
		f->level = x.level;
		return NULL;
	}
	size = BIT_ULL(x.shift);
	off = va & (size - 1);
	if (x.pte & NULL_PAGE) {
		memset(null_page, 0, sizeof(null_page));
		*room = 4096 - (va & 4095);
		return null_page;
	}
	p = memory(g, x.pte & PTE_LOCAL, xlat_addr(&x) + off, room, how != READ);
	if (!p) {
		f->reason = NOT_PRESENT;
		return NULL;
	}
	if (how == ATOMIC && p >= g->far[1].data && p < g->far[1].data + PEER_MAX)
		violation(g, "an atomic operation in the BAR of a peer: %#lx", xlat_addr(&x) + off);
	/* By pages: an entry is for a page, also that of a larger one. */
	*room = min(*room, min(size - off, 4096 - (va & 4095)));
	t = slot(g, c->asid, va >> 12);
	if (t->used && (t->asid != c->asid || t->page != va >> 12 || t->x.pte != x.pte))
		drop(g, t);
	if (!t->used)
		*t = (struct tlb){ va >> 12, c->root, 0, c->asid, true, x, p - (va & 4095) };
	/* The driver's own copies do not count. */
	if (c->asid)
		*maybe_mapped(g, t->memory, &bit) |= bit;
	return p;
}

bool mmu_copy(struct gpu *g, struct context *c, u64 va, void *buf, u64 len, bool write,
	      struct fault *f)
{
	for (u64 done = 0, n; done < len; done += n) {
		u8 *p = mmu_memory(g, c, va + done, write ? WRITE : READ, &n, f);

		if (!p)
			return false;
		n = min(n, len - done);
		if (write) {
			memcpy(p, (u8 *)buf + done, n);
			memory_written(g, p, n);
		} else {
			memcpy((u8 *)buf + done, p, n);
		}
	}
	return true;
}

/* ---- what the driver must not do ---- */

static bool within(const u8 *at, const u8 *from, u64 len)
{
	return at + 4096 > from && at < from + len;
}

static void forbid(struct gpu *g, const u8 *at, u64 len, bool writable, const char *what)
{
	for (u32 i = 0; i < TLB_SIZE; i++) {
		struct tlb *t = &g->tlb[i];

		if (t->used && within(t->memory, at, len) && faulting(g, t->asid) &&
		    (!writable || t->x.pte & PTE_WRITE))
			violation(g, "%s: asid %u %#lx is in the TLB: %#lx", what, t->asid,
				  t->page << 12, t->x.pte);
	}
}

void mmu_copied(struct gpu *g, const u8 *at, u64 len, enum access how)
{
	const u8 *page = at - ((uintptr_t)at & 4095);
	bool found = false;
	u8 bit, *p;

	for (; page < at + len; page += 4096) {
		p = maybe_mapped(g, page, &bit);
		found |= *p & bit;
		*p &= ~bit;
	}
	if (!found)
		return;
	forbid(g, at, len, how == READ,
	       how == READ ? "the driver copies from a page that a GPU can write" :
			     "the driver copies to a page that a GPU can reach");
	/* Entries that are legal stay, and pages that share a bit with them. */
	for (u32 i = 0; i < TLB_SIZE; i++)
		if (g->tlb[i].used && g->tlb[i].asid) {
			p = maybe_mapped(g, g->tlb[i].memory, &bit);
			*p |= bit;
		}
}

void mmu_unmapped(struct gpu *g, u64 iova, u64 size)
{
	/* Without an IOMMU all of RAM is mapped, and goes only when the guest is reset. */
	if (size > 1ULL << 30)
		return;
	for (u32 i = 0; i < TLB_SIZE; i++) {
		struct tlb *t = &g->tlb[i];
		u64 off = t->page << 12 & (BIT_ULL(t->x.shift) - 1);

		if (t->used && !(t->x.pte & PTE_LOCAL) && faulting(g, t->asid) &&
		    xlat_addr(&t->x) + off - iova < size)
			violation(g, "unmapped %#lx + %#lx: asid %u %#lx is in the TLB", iova, size,
				  t->asid, t->page << 12);
	}
}

void mmu_check(struct gpu *g)
{
	for (u32 i = 0; i < TLB_SIZE; i++) {
		struct tlb *t = &g->tlb[i];

		if (t->used && faulting(g, t->asid) && differs(g, t))
			violation(g, "the driver is idle: asid %u %#lx is in the TLB: %#lx",
				  t->asid, t->page << 12, t->x.pte);
	}
}

#define STALE_MS 2000

bool mmu_tick(struct gpu *g)
{
	for (u32 i = 0; g->stale && i < TLB_SIZE; i++) {
		struct tlb *t = &g->tlb[i];

		if (!t->stale || now() - t->stale < STALE_MS)
			continue;
		violation(g, "asid %u %#lx: %#lx was used, and has not been invalidated", t->asid,
			  t->page << 12, t->x.pte);
		drop(g, t);
	}
	return g->stale;
}

void mmu_reset(struct gpu *g)
{
	memset(g->tlb, 0, TLB_SIZE * sizeof(*g->tlb));
	memset(g->faulting, 0, ASIDS / 8);
	memset(g->mapped, 0, MAPPED / 8);
	g->stale = 0;
}
