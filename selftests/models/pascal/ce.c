// SPDX-License-Identifier: GPL-2.0-only
/*
 * Copy engines, class PASCAL_DMA_COPY_A. Their faults are fatal, as on a real Pascal.
 *
 * Source: NVIDIA open-gpu-doc, classes/dma-copy/clc0b5.h (methods and their fields);
 * open-gpu-kernel-modules, dev_fault.h (units 0x15, 0x16, their clients) and nvidia-uvm, which
 * expects replayable faults from GPCs alone.
 */
#include "pascal.h"

enum {
	SEMAPHORE_A = 0x240, SEMAPHORE_B = 0x244, PAYLOAD = 0x248, SRC_PHYS = 0x260,
	DST_PHYS = 0x264, LAUNCH = 0x300, OFFSET_IN = 0x400, OFFSET_OUT = 0x408, PITCH_IN = 0x410,
	PITCH_OUT = 0x414, LINE_LENGTH = 0x418, LINE_COUNT = 0x41c, CONST_A = 0x700, REMAP = 0x708,
};

enum { UNIT_CE0 = 0x15, CLIENT_CE0 = 1 };
enum { CONST = 4, NO_WRITE = 6 };	/* values of a component that is not one of the source */

#define CHUNK (256U << 10)

struct end {
	u64 addr;
	bool physical;
	enum aperture where;
	enum access how;
};

static bool move(struct gpu *g, u32 chid, const struct end *e, u64 off, void *buf, u64 len,
		 struct mmu_fault *f)
{
	if (!e->physical)
		return mmu_copy(g, chan_pdb(g, chid), false, e->addr + off, buf, len, e->how, f);
	for (u64 i = 0, n; i < len; i += n) {
		u8 *at = (u8 *)buf + i, *p;

		n = len - i;
		f->va = e->addr + off + i;
		f->reason = FAULT_REGION;
		p = memory(g, e->where, f->va, &n, e->how == WRITE);
		if (!p)
			return false;
		if (e->how == WRITE)
			memcpy(p, at, n);
		else
			memcpy(at, p, n);
	}
	return true;
}

static enum step ce_fault(struct gpu *g, u32 chid, const struct mmu_fault *f, enum access how)
{
	struct chan *c = &g->chan[chid];
	u32 ce = c->runlist ? c->runlist - 1 : 0;

	c->dead = true;
	fault_fatal(g, UNIT_CE0 + ce, chan_inst(g, chid), f->va, how, f->reason, true,
		    CLIENT_CE0 + ce);
	return DEAD;
}

/* Copies one line unchanged. */
static bool plain(struct gpu *g, u32 chid, const struct end *in, const struct end *out, u64 from,
		  u64 to, u64 len, struct mmu_fault *f, enum access *how)
{
	static u8 buf[CHUNK];

	for (u64 i = 0, n; i < len; i += n) {
		n = min(len - i, CHUNK);
		*how = READ;
		if (!move(g, chid, in, from + i, buf, n, f))
			return false;
		*how = WRITE;
		if (!move(g, chid, out, to + i, buf, n, f))
			return false;
		g->stats.copied_bytes += n;
	}
	return true;
}

/* Copies one line of elements that are made of components of the source, or of constants. */
static bool remap(struct gpu *g, u32 chid, const struct end *in, const struct end *out, u64 from,
		  u64 to, u64 len, struct mmu_fault *f, enum access *how)
{
	static u8 src[CHUNK], dst[CHUNK];
	const u32 *r = g->chan[chid].ce;
	u32 map = r[REMAP / 4], size = (map >> 16 & 3) + 1;
	u32 nsrc = (map >> 20 & 3) + 1, ndst = (map >> 24 & 3) + 1, step = CHUNK / 16;
	struct end old = { out->addr, out->physical, out->where, READ };
	bool reads = false, keeps = false;

	for (u32 k = 0; k < ndst; k++) {
		reads |= (map >> (k * 4) & 7) < CONST;
		keeps |= (map >> (k * 4) & 7) >= NO_WRITE;
	}
	for (u64 i = 0, n; i < len; i += n) {
		n = min(len - i, step);
		*how = READ;
		if (reads && !move(g, chid, in, from + i * size * nsrc, src, n * size * nsrc, f))
			return false;
		if (keeps && !move(g, chid, &old, to + i * size * ndst, dst, n * size * ndst, f))
			return false;
		for (u64 e = 0; e < n; e++)
			for (u32 k = 0; k < ndst; k++) {
				u32 what = map >> (k * 4) & 7;
				u8 *p = dst + (e * ndst + k) * size;

				if (what < CONST)
					memcpy(p, src + (e * nsrc + what % nsrc) * size, size);
				else if (what < NO_WRITE)
					memcpy(p, &r[CONST_A / 4 + what - CONST], size);
			}
		*how = WRITE;
		if (!move(g, chid, out, to + i * size * ndst, dst, n * size * ndst, f))
			return false;
		g->stats.copied_bytes += n * size * ndst;
	}
	return true;
}

/* The copy has finished: write the semaphore, and raise an interrupt. */
static enum step finished(struct gpu *g, u32 chid, u32 launch)
{
	const u32 *r = g->chan[chid].ce;
	u64 at = (u64)(r[SEMAPHORE_A / 4] & 0x1ffff) << 32 | r[SEMAPHORE_B / 4];
	u64 time = timer_ns(g);
	u32 w[4] = { r[PAYLOAD / 4], 0, time, time >> 32 }, type = launch >> 3 & 3;
	struct mmu_fault f;

	if (launch & BIT(19) || (launch >> 5 & 3)) {
		g->stats.unknown_methods++;
		note(g, "copy: reductions and interrupts are not modelled: %#x", launch);
	}
	if (type && !mmu_copy(g, chan_pdb(g, chid), false, at, w, type == 2 ? 16 : 4, WRITE, &f))
		return ce_fault(g, chid, &f, WRITE);
	return DONE;
}

static void moved(struct gpu *g, const struct end *e, u64 lines, u64 pitch, u64 len)
{
	if (pitch == len) {
		len *= lines;
		lines = 1;
	}
	for (u64 y = 0; y < lines; y++)
		mmu_copied(g, e->where, e->addr + y * pitch, len, e->how);
}

/* The size of this many elements in the destination, in bytes. */
static u64 remapped(const u32 *r, u64 n)
{
	u32 map = r[REMAP / 4];

	return n * ((map >> 16 & 3) + 1) * ((map >> 24 & 3) + 1);
}

static enum step launch(struct gpu *g, u32 chid, u32 l)
{
	static const enum aperture target[] = { VRAM, COHERENT, NONCOHERENT, PEER };
	const u32 *r = g->chan[chid].ce;
	struct end in = {
		(u64)(r[OFFSET_IN / 4] & 0x1ffff) << 32 | r[OFFSET_IN / 4 + 1], l & BIT(12),
		target[r[SRC_PHYS / 4] & 3], READ
	};
	struct end out = {
		(u64)(r[OFFSET_OUT / 4] & 0x1ffff) << 32 | r[OFFSET_OUT / 4 + 1], l & BIT(13),
		target[r[DST_PHYS / 4] & 3], WRITE
	};
	u64 len = r[LINE_LENGTH / 4], lines = l & BIT(9) ? r[LINE_COUNT / 4] : 1, size;
	struct mmu_fault f;
	enum access how;

	if (g->hold && (g->hold != HOLD_VIRTUAL || !(in.physical || out.physical))) {
		if (!g->release)
			return WAIT;
		g->release--;
	}
	g->stats.copies++;
	debug(g, "copy: channel %u %#x from %#lx to %#lx, %lu x %lu", chid, l, in.addr, out.addr,
	      len, lines);
	if (!(l & 3))
		return finished(g, chid, l);
	if (~l & (BIT(7) | BIT(8))) {
		g->stats.unknown_methods++;
		note(g, "copy: only pitch layouts are modelled: %#x", l);
		return finished(g, chid, l);
	}
	if (g->fail_in && !--g->fail_in) {
		f.va = in.addr;
		f.reason = FAULT_PTE;
		return ce_fault(g, chid, &f, READ);
	}
	/* An element of a remapped line has 16 bytes at most. Many short lines take time, too. */
	size = max(len * (l & BIT(10) ? 16 : 1), 256);
	if (lines > MAX_COPY / size) {
		violation(g, "copy of %lu lines of %lu", lines, len);
		return finished(g, chid, l);
	}
	g->turn -= min(g->turn, lines * size >> 10);
	if (in.physical && in.where == VRAM && out.physical && out.where != VRAM)
		g->stats.moved_out += lines * len;
	if (in.physical && !(l & BIT(10)))
		moved(g, &in, lines, r[PITCH_IN / 4], len);
	if (out.physical)
		moved(g, &out, lines, r[PITCH_OUT / 4], l & BIT(10) ? remapped(r, len) : len);
	for (u64 y = 0; y < lines; y++)
		if (!(l & BIT(10) ? remap : plain)(g, chid, &in, &out, y * r[PITCH_IN / 4],
						   y * r[PITCH_OUT / 4], len, &f, &how))
			return ce_fault(g, chid, &f, how);
	return finished(g, chid, l);
}

enum step ce_method(struct gpu *g, u32 chid, u32 method, u32 val)
{
	if (method == LAUNCH)
		return launch(g, chid, val);
	switch (method) {
	case 0x100:		/* NOP */
	case SEMAPHORE_A:
	case SEMAPHORE_B:
	case PAYLOAD:
	case SRC_PHYS:
	case DST_PHYS:
	case OFFSET_IN ... LINE_COUNT:
	case CONST_A ... REMAP:
	case 0x70c ... 0x73c:	/* of block linear layouts: see launch() */
		g->chan[chid].ce[method / 4] = val;
		return DONE;
	}
	g->stats.unknown_methods++;
	note(g, "channel %u: unknown method %#x = %#x of the copy engine", chid, method, val);
	return DONE;
}
