// SPDX-License-Identifier: GPL-2.0-only
/*
 * VRAM, the window to it in BAR 0 (PRAMIN), and system memory.
 *
 * Source: envytools (0x001700, 0x700000), nouveau's nvkm/subdev/instmem/nv50.c.
 */
#include "pascal.h"

#define WINDOW 0x001700		/* VRAM address >> 16 */
#define PRAMIN 0x700000

static bool in_vram(struct gpu *g, u64 addr, u64 len)
{
	if (!g->regs[DEVINIT_HAS_RUN / 4])
		violation(g, "access to VRAM before devinit");
	return addr <= g->opt.vram && len <= g->opt.vram - addr;
}

static u8 *dma(struct gpu *g, u64 iova, u64 *len, bool write)
{
	const struct dma_region *r = dma_region(&g->dev.dma, iova, write);

	if (!(g->dev.config[4] & 4))
		violation(g, "DMA while the driver has not made the device bus master");
	if (!r) {
		g->stats.iommu_faults++;
		note(g, "IOMMU fault: %s %#lx", write ? "write to" : "read of", iova);
		return NULL;
	}
	*len = min(*len, r->size - (iova - r->iova));
	return r->ptr + (iova - r->iova);
}

u8 *memory(struct gpu *g, enum aperture where, u64 addr, u64 *len, bool write)
{
	if (where == COHERENT || where == NONCOHERENT)
		return dma(g, addr, len, write);
	if (where == VRAM && in_vram(g, addr, 1)) {
		*len = min(*len, g->opt.vram - addr);
		return g->vram + addr;
	}
	violation(g, "%s of %s memory at %#lx, which is not there", write ? "write" : "read",
		  where == VRAM ? "video" : "peer", addr);
	return NULL;
}

/* For data of the GPU itself, which the driver must put into VRAM. */
static u8 *word(struct gpu *g, u64 addr, u64 len)
{
	if (in_vram(g, addr, len))
		return g->vram + addr;
	violation(g, "VRAM address %#lx, which is not there", addr);
	return NULL;
}

u32 vram_read(struct gpu *g, u64 addr)
{
	u8 *p = word(g, addr, 4);
	u32 val = 0;

	if (p)
		memcpy(&val, p, 4);
	return val;
}

u64 vram_read64(struct gpu *g, u64 addr)
{
	return vram_read(g, addr) | (u64)vram_read(g, addr + 4) << 32;
}

void vram_write(struct gpu *g, u64 addr, u32 val)
{
	u8 *p = word(g, addr, 4);

	if (p)
		memcpy(p, &val, 4);
	g->mapped_old = true;
}

static u64 behind(struct gpu *g, u32 at)
{
	return ((u64)(g->regs[WINDOW / 4] & 0xffffff) << 16) + (at - PRAMIN);
}

bool pramin_read(struct gpu *g, u32 at, u32 *val)
{
	*val = at == WINDOW ? g->regs[WINDOW / 4] : vram_read(g, behind(g, at));
	return true;
}

bool pramin_write(struct gpu *g, u32 at, u32 val)
{
	if (at == WINDOW)
		g->regs[WINDOW / 4] = val;
	else
		vram_write(g, behind(g, at), val);
	return true;
}
