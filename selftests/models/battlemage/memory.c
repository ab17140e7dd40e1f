// SPDX-License-Identifier: GPL-2.0-only
/*
 * VRAM, system memory, and the GGTT, the page table of the driver and the firmware.
 *
 * Source: xe_ggtt.c, regs/xe_gtt_defs.h: a GGTT entry has bit 0 if it is present, bit 1 for VRAM,
 * and an address in bits 51:12.
 */
#include "battlemage.h"

#define ADDRESS 0xffffffffff000ULL

/* A copy of what is in the BAR of the peer, up to the end of the page. */
static u8 *far_memory(struct gpu *g, u64 addr, u64 *room, bool write)
{
	u64 off = addr & (PEER_MAX - 1);
	u8 *p = g->far[write].data + off;

	*room = min(peer_access(&g->peer, addr, NULL, 0, false), PEER_MAX - off);
	if (!*room)
		return NULL;
	g->far[write].addr = addr - off;
	if (write)
		return p;
	g->stats.peer_bytes_read += *room;
	return peer_access(&g->peer, addr, p, *room, false) >= *room ? p : NULL;
}

void memory_written(struct gpu *g, const u8 *at, u64 len)
{
	u64 off = at - g->far[1].data;

	if (at < g->far[1].data || off >= PEER_MAX)
		return;
	g->stats.peer_bytes_written += len;
	if (peer_access(&g->peer, g->far[1].addr + off, (void *)at, len, true) < len)
		note(g, "the peer does not take a write to %#lx", g->far[1].addr + off);
}

u8 *memory(struct gpu *g, bool local, u64 addr, u64 *room, bool write)
{
	const struct dma_region *r;
	bool master;
	u8 *p;

	if (local) {
		if (addr < g->opt.vram) {
			*room = g->opt.vram - addr;
			return g->vram + addr;
		}
		violation(g, "VRAM ends below %#lx", addr);
		return NULL;
	}
	master = g->dev.config[PCI_COMMAND] & PCI_MASTER;
	r = master ? dma_region(&g->dev.dma, addr, write) : NULL;
	if (!r) {
		p = master ? far_memory(g, addr, room, write) : NULL;
		if (p)
			return p;
		if (!g->stats.iommu_faults++)
			note(g, "IOMMU fault: %s of %#lx", write ? "write" : "read", addr);
		return NULL;
	}
	*room = r->size - (addr - r->iova);
	return r->ptr + (addr - r->iova);
}

/* The driver or the hardware uses this page of VRAM for itself: nothing of it is a peer's. */
void vram_own(struct gpu *g, u64 off)
{
	u8 none, bit = BIT(off >> 12 & 7);

	if (off >= g->opt.vram || !(g->filled[off >> 15] & bit))
		return;
	g->filled[off >> 15] &= ~bit;
	vram_access(g, 0, &none, 0, false);
}

bool ggtt_copy(struct gpu *g, u64 at, void *buf, u64 len, bool write)
{
	for (u64 done = 0, n; done < len; done += n, at += n) {
		u64 e = at >> 32 ? 0 : g->ggtt[at >> 12], room;
		u8 *p;

		n = min(len - done, 4096 - (at & 4095));
		if (!(e & 1)) {
			if (!g->stats.ggtt_faults++)
				note(g, "GGTT: %s of %#lx", write ? "write" : "read", at);
			return false;
		}
		if (e & 2)
			vram_own(g, e & ADDRESS);
		p = memory(g, e & 2, (e & ADDRESS) + (at & 4095), &room, write);
		if (!p || room < n)
			return false;
		if (write) {
			memcpy(p, (u8 *)buf + done, n);
			memory_written(g, p, n);
		} else {
			memcpy((u8 *)buf + done, p, n);
		}
	}
	return true;
}

u32 ggtt_read(struct gpu *g, u64 at)
{
	u32 val = 0;

	ggtt_copy(g, at, &val, 4, false);
	return val;
}

void ggtt_write(struct gpu *g, u64 at, u32 val)
{
	ggtt_copy(g, at, &val, 4, true);
}

/* ---- BAR 2 ---- */

void vram_filled(struct gpu *g, const u8 *to, u64 len)
{
	if (!g->opt.posted || to < g->vram || to >= g->vram + g->opt.vram)
		return;
	for (u64 page = (to - g->vram) >> 12; page <= (to - g->vram + len - 1) >> 12; page++)
		g->filled[page / 8] |= BIT(page % 8);
}

/*
 * A peer's writes are not ordered with what the CPU does. Only pages that the copy engine has
 * filled can be a peer's: the CPU writes to all others. A read of VRAM pushes the writes.
 */
void vram_access(struct gpu *g, u64 off, void *buf, u32 len, bool write)
{
	if (write && g->opt.posted && len <= 8 && g->filled[off >> 15] & BIT(off >> 12 & 7)) {
		struct posted_write *p = &g->posted[g->nposted];

		*p = (struct posted_write){ .off = off, .len = len };
		memcpy(p->data, buf, len);
		g->stats.vram_queued++;
		if (++g->nposted < ARRAY_SIZE(g->posted))
			return;
		write = false;
		len = 0;
	}
	if (write) {
		memcpy(g->vram + off, buf, len);
		return;
	}
	for (u32 i = 0; i < g->nposted; i++)
		memcpy(g->vram + g->posted[i].off, g->posted[i].data, g->posted[i].len);
	g->nposted = 0;
	memcpy(buf, g->vram + off, len);
}
