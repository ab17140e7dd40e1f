// SPDX-License-Identifier: GPL-2.0-only
/*
 * Configuration space, BARs, and what QEMU asks for.
 *
 * Source: the ids and the class are those of a Tesla P100 PCIe 16GB (10de:15f8), as pci.ids has
 * them. Inferred from nouveau: configuration space is seen at 0x088000, any write to 0x088704
 * re-arms the MSI (nvkm/subdev/pci/gp100.c).
 */
#include "pascal.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MIRROR = 0x88000, REARM = 0x88704 };

#define BAR1 0x14

static void config_init(struct gpu *g)
{
	struct vfio_user *v = &g->dev;

	pci_identity(v, 0x10de15f8, 0x10de118f, 0x030200);	/* 3D controller */
	pci_put(v, 0x08, 1, 0xa1);
	pci_put(v, 0x10, 4, 0x0);		/* BAR 0: 32 bit */
	pci_put(v, 0x14, 4, 0xc);		/* BAR 1: 64 bit, prefetchable */
	pci_put(v, 0x1c, 4, 0xc);		/* BAR 3: NVIDIA's BAR2 */
	pci_put(v, 0x24, 4, 0x0);		/* BAR 5: back door */
	pci_gpu_capabilities(v);
}

bool pci_read(struct gpu *g, u32 at, u32 *val)
{
	if (at == REARM) {
		*val = 0;
		return true;
	}
	if (at - MIRROR >= 0x100)
		return false;
	memcpy(val, g->dev.config + (at - MIRROR), 4);
	return true;
}

bool pci_write(struct gpu *g, u32 at, u32 val)
{
	if (at == REARM) {
		g->msi_armed = true;
		interrupt(g);
		return true;
	}
	/* The ROM shadow bit means nothing here. */
	return at == MIRROR + 0x50;
}

/* The state after power on, except for configuration space. */
static void restart(struct gpu *g)
{
	madvise(g->regs, BAR0_SIZE, MADV_DONTNEED);	/* zeroes */
	memset(g->intr_enabled, 0, sizeof(g->intr_enabled));
	memset(g->imem, 0, sizeof(g->imem));
	memset(g->dmem, 0, sizeof(g->dmem));
	g->msi_armed = true;
	g->nposted = 0;
	plain_reset(g);
	mmu_reset(g);
	fault_reset(g);
	fifo_reset(g);
	door_reset(g);
}

/* After D3 all state is lost, and VRAM has to be set up before it can be used. */
static void power(struct gpu *g, u8 state)
{
	if ((g->dev.config[PCI_PMCSR] & PCI_D3) == PCI_D3 && !(state & PCI_D3)) {
		debug(g, "wakes up");
		restart(g);
		madvise(g->vram, g->opt.vram, MADV_REMOVE);
		g->regs[DEVINIT_HAS_RUN / 4] = 0;
	}
	g->dev.config[PCI_PMCSR] = state & PCI_D3;
}

/* ---- what vfio_user.c asks for ---- */

static u32 register_read(struct vfio_user *v, u32 at)
{
	return bar0_read(container_of(v, struct gpu, dev), at);
}

static void register_write(struct vfio_user *v, u32 at, u32 val)
{
	bar0_write(container_of(v, struct gpu, dev), at, val);
}

static void region_read(struct vfio_user *v, u32 region, u64 off, void *to, u32 len)
{
	struct gpu *g = container_of(v, struct gpu, dev);

	if (g->gone && region != REGION_DOOR) {
		memset(to, 0xff, len);
		return;
	}
	switch (region) {
	case REGION_BAR0:
		pci_registers_read(v, register_read, off, to, len);
		break;
	case REGION_BAR1:
		g->stats.bar1_reads++;
		bar_access(g, 1, off, to, len, false);
		break;
	case REGION_BAR2:
		g->stats.bar2_accesses++;
		bar_access(g, 2, off, to, len, false);
		break;
	case REGION_DOOR:
		door_read(g, off, to, len);
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
		pci_registers_write(v, register_read, register_write, off, bytes, len);
		break;
	case REGION_BAR1:
		g->stats.bar1_writes++;
		bar_access(g, 1, off, bytes, len, true);
		break;
	case REGION_BAR2:
		g->stats.bar2_accesses++;
		bar_access(g, 2, off, bytes, len, true);
		break;
	case REGION_DOOR:
		door_write(g, off, bytes, len);
		break;
	case VFIO_CONFIG:
		/* QEMU has the BARs and the MSI, and passes on what is written to them. */
		for (u32 i = 0; i < len; i++)
			if (off + i - BAR1 < sizeof(g->bar1))
				((u8 *)&g->bar1)[off + i - BAR1] = bytes[i];
		if (off <= PCI_PMCSR && off + len > PCI_PMCSR)
			power(g, bytes[PCI_PMCSR - off]);
		/* Of the rest only the command register matters. */
		if (off > 4 || off + len <= 4)
			break;
		if (g->gone && bytes[4 - off] & ~g->dev.config[4] & PCI_MASTER)
			restart(g);
		g->dev.config[4] = bytes[4 - off];
		break;
	}
}

/* In parts of 8 bytes, as QEMU does it. Each part is posted separately. */
static u64 peer(struct vfio_user *v, u64 addr, void *buf, u32 len, bool write)
{
	struct gpu *g = container_of(v, struct gpu, dev);
	u64 off = addr - (g->bar1 & ~(g->opt.bar1 - 1)), room;

	if (!(g->dev.config[4] & PCI_MEMORY) || off >= g->opt.bar1)
		return 0;
	room = g->opt.bar1 - off;
	for (u32 i = 0, n; len <= room && i < len; i += n) {
		n = min(len - i, 8 - ((off + i) & 7));
		if (write)
			region_write(v, REGION_BAR1, off + i, (u8 *)buf + i, n);
		else
			region_read(v, REGION_BAR1, off + i, (u8 *)buf + i, n);
	}
	return room;
}

static void reset(struct vfio_user *v)
{
	struct gpu *g = container_of(v, struct gpu, dev);

	debug(g, "reset");
	restart(g);
	g->dev.config[4] = 0;
	g->dev.config[PCI_PMCSR] = 0;
	g->bar1 = 0;
}

static bool tick(struct vfio_user *v)
{
	struct gpu *g = container_of(v, struct gpu, dev);
	bool timer = timer_tick(g), mmu = mmu_tick(g), fault = fault_tick(g), fifo = fifo_tick(g);

	return timer || mmu || fault || fifo;
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
	g->dev = (struct vfio_user){
		.name = "pascal",
		.ops = &ops,
		.size = { [REGION_BAR0] = BAR0_SIZE,
			  [REGION_BAR1] = o->bar1,
			  [REGION_BAR2] = BAR2_SIZE,
			  [REGION_DOOR] = DOOR_CLIENTS * DOOR_SIZE },
		.irq_index = VFIO_MSI,
		.nvec = 1,
	};
	vfio_user_init(&g->dev);
	g->vram = pci_memory(o->vram, NULL);
	g->regs = mmap(NULL, BAR0_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	g->seen = calloc(1, BAR0_SIZE / 4);
	g->tlb = calloc(TLB_SIZE, sizeof(*g->tlb));
	g->mapped = calloc(1, MAPPED_SIZE / 8);
	if (!g->vram || g->regs == MAP_FAILED || !g->seen || !g->tlb || !g->mapped)
		return -1;
	config_init(g);
	bios_init(g);
	restart(g);
	return 0;
}

void gpu_free(struct gpu *g)
{
	vfio_user_free(&g->dev);
	munmap(g->vram, g->opt.vram);
	munmap(g->regs, BAR0_SIZE);
	free(g->seen);
	free(g->tlb);
	free(g->mapped);
}
