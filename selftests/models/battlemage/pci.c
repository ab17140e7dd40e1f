// SPDX-License-Identifier: GPL-2.0-only
/*
 * Configuration space, BARs, and what QEMU asks for.
 *
 * Source: include/drm/intel/pciids.h (8086:e20b is an Arc B580), regs/xe_bars.h, xe_mmio.c and
 * xe_ggtt.c (BAR 0 is 16 MiB: registers, and from 8 MiB on the GGTT), xe_vram.c (BAR 2).
 */
#include "battlemage.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define BAR2		0x18		/* in configuration space */
#define NO_SOFT_RESET 8		/* in D3 nothing is lost while there is power: xe relies on it */

static void config_init(struct gpu *g)
{
	struct vfio_user *v = &g->dev;

	pci_identity(v, 0x8086e20b, 0x80861100, 0x038000);	/* not VGA */
	pci_put(v, 0x10, 4, 0x4);		/* BAR 0: 64 bit */
	pci_put(v, 0x18, 4, 0xc);		/* BAR 2: 64 bit, prefetchable */
	pci_put(v, 0x20, 4, 0x4);		/* BAR 4: back door */
	pci_gpu_capabilities(v);
	v->config[PCI_PMCSR] = NO_SOFT_RESET;
}

void gpu_restart(struct gpu *g)
{
	plain_reset(g);
	irq_reset(g);
	mmu_reset(g);
	guc_reset(g);
	g->hold = g->release = g->slow_ms = g->late_ms = 0;
	g->nposted = 0;
	memset(g->filled, 0, g->opt.vram >> 15);
	g->gone = false;
}

/* ---- what vfio_user.c asks for ---- */

static void region_read(struct vfio_user *v, u32 region, u64 off, void *to, u32 len)
{
	struct gpu *g = container_of(v, struct gpu, dev);

	if (g->gone && region != REGION_DOOR) {
		memset(to, 0xff, len);
		return;
	}
	switch (region) {
	case REGION_BAR0:
		if (off < REGISTERS)
			pci_registers_read(v, register_read, off, to, len);
		else
			memcpy(to, g->bar0 + off, len);
		break;
	case REGION_VRAM:
		g->stats.vram_reads++;
		vram_access(g, off, to, len, false);
		break;
	case REGION_DOOR:
		pci_registers_read(v, door_get, off, to, len);
		break;
	default:
		memset(to, 0, len);
	}
}

static void region_write(struct vfio_user *v, u32 region, u64 off, const void *from, u32 len)
{
	struct gpu *g = container_of(v, struct gpu, dev);
	u8 bytes[4096];

	if (g->gone && region != VFIO_CONFIG)
		return;
	memcpy(bytes, from, len);
	switch (region) {
	case REGION_BAR0:
		if (off < REGISTERS)
			pci_registers_write(v, register_read, register_write, off, bytes, len);
		else
			memcpy(g->bar0 + off, bytes, len);
		break;
	case REGION_VRAM:
		g->stats.vram_writes++;
		vram_access(g, off, bytes, len, true);
		break;
	case REGION_DOOR:
		pci_registers_write(v, door_get, door_set, off, bytes, len);
		break;
	case VFIO_CONFIG:
		/* QEMU has the BARs and the MSI. */
		if (off <= PCI_PMCSR && off + len > PCI_PMCSR)
			v->config[PCI_PMCSR] = (bytes[PCI_PMCSR - off] & PCI_D3) | NO_SOFT_RESET;
		if (off <= PCI_COMMAND && off + len > PCI_COMMAND)
			v->config[PCI_COMMAND] = bytes[PCI_COMMAND - off];
		/* It passes on what is written to the BARs. */
		for (u32 i = 0; i < len; i++)
			if (off + i - BAR2 < sizeof(g->bar2))
				((u8 *)&g->bar2)[off + i - BAR2] = bytes[i];
		break;
	}
}

/* In parts of 8 bytes, as QEMU does it. Each part is posted separately. */
static u64 peer(struct vfio_user *v, u64 addr, void *buf, u32 len, bool write)
{
	struct gpu *g = container_of(v, struct gpu, dev);
	u64 off = addr - (g->bar2 & ~(g->opt.bar - 1)), room;

	if (!(v->config[PCI_COMMAND] & PCI_MEMORY) || off >= g->opt.bar)
		return 0;
	room = g->opt.bar - off;
	for (u32 i = 0, n; len <= room && i < len; i += n) {
		n = min(len - i, 8 - ((off + i) & 7));
		if (write)
			region_write(v, REGION_VRAM, off + i, (u8 *)buf + i, n);
		else
			region_read(v, REGION_VRAM, off + i, (u8 *)buf + i, n);
	}
	return room;
}

static void reset(struct vfio_user *v)
{
	struct gpu *g = container_of(v, struct gpu, dev);

	debug(g, "reset");
	gpu_restart(g);
	v->config[PCI_COMMAND] = 0;
	v->config[PCI_PMCSR] = NO_SOFT_RESET;
	g->bar2 = 0;
}

static bool tick(struct vfio_user *v)
{
	struct gpu *g = container_of(v, struct gpu, dev);
	bool mmu = mmu_tick(g), guc = guc_tick(g), contexts = context_tick(g);

	return mmu || guc || contexts;
}

static void unmap(struct vfio_user *v, u64 iova, u64 size)
{
	mmu_unmapped(container_of(v, struct gpu, dev), iova, size);
}

static const struct vfio_user_ops ops = {
	.read = region_read,
	.write = region_write,
	.reset = reset,
	.tick = tick,
	.unmap = unmap,
	.peer = peer,
};

const struct stats *stats(struct gpu *g)
{
	g->stats.violations = g->dev.violations;
	g->stats.unknown_registers = g->dev.unknown_registers;
	g->stats.interrupts = g->dev.interrupts;
	g->stats.dma_maps = g->dev.dma.maps;
	g->stats.dma_regions = g->dev.dma.nmap;
	return &g->stats;
}

int gpu_init(struct gpu *g, const struct options *o)
{
	memset(g, 0, sizeof(*g));
	g->opt = *o;
	g->peer.path = o->peer;
	g->dev = (struct vfio_user){
		.name = "battlemage",
		.ops = &ops,
		.size = { [REGION_BAR0] = BAR0_SIZE,
			  [REGION_VRAM] = o->bar,
			  [REGION_DOOR] = DOOR_SIZE },
		.irq_index = VFIO_MSI,
		.nvec = 1,
	};
	vfio_user_init(&g->dev);
	g->bar0 = pci_memory(BAR0_SIZE, &g->bar0_file);
	/* BAR 2 may be larger than VRAM: nothing is there. */
	g->vram = pci_memory(max(o->vram, o->bar), &g->vram_file);
	g->tlb = calloc(TLB_SIZE, sizeof(*g->tlb));
	g->faulting = calloc(1, ASIDS / 8);
	g->mapped = calloc(1, MAPPED / 8);
	g->filled = calloc(1, max(o->vram, o->bar) >> 15);
	g->seen = calloc(1, REGISTERS / 4);
	if (!g->bar0 || !g->vram || !g->tlb || !g->faulting || !g->mapped || !g->filled || !g->seen)
		return -1;
	g->regs = (u32 *)g->bar0;
	g->ggtt = (u64 *)(g->bar0 + GGTT);
	g->dev.map[REGION_BAR0] = (typeof(g->dev.map[0])){ g->bar0_file, GGTT, GGTT };
	if (!o->posted)
		g->dev.map[REGION_VRAM] = (typeof(g->dev.map[0])){ g->vram_file, 0, o->bar };
	config_init(g);
	gpu_restart(g);
	return 0;
}

void gpu_free(struct gpu *g)
{
	vfio_user_free(&g->dev);
	peer_free(&g->peer);
	munmap(g->bar0, BAR0_SIZE);
	munmap(g->vram, max(g->opt.vram, g->opt.bar));
	close(g->bar0_file);
	close(g->vram_file);
	free(g->tlb);
	free(g->faulting);
	free(g->mapped);
	free(g->filled);
	free(g->seen);
}
