// SPDX-License-Identifier: GPL-2.0-only
/*
 * BAR 0: which unit has a register, and all the registers that only hold a value. An access to a
 * register that is in none of these tables is an error of the model, and a failure of the test.
 *
 * Source of the names: envytools (rnndb) and NVIDIA open-gpu-doc; "nv:" before a name says that
 * only nouveau was read.
 */
#include "pascal.h"

static const struct room {
	u32 first, last;
	read_fn *read;
	write_fn *write;
} rooms[] = {
	{ 0x000000, 0x000fff, pmc_read, pmc_write },
	{ 0x001700, 0x001700, pramin_read, pramin_write },
	{ 0x001704, 0x001714, bar_read, bar_write },
	{ 0x002000, 0x002fff, fifo_read, fifo_write },
	{ 0x002000, 0x002fff, fault_read, fault_write },
	{ 0x009000, 0x009fff, timer_read, timer_write },
	{ 0x022700, 0x0227ff, top_read, NULL },
	{ 0x070000, 0x070000, bar_read, bar_write },
	{ 0x088000, 0x088fff, pci_read, pci_write },
	{ 0x100c80, 0x100cff, mmu_read, mmu_write },
	{ 0x10a000, 0x10afff, pmu_read, pmu_write },
	{ 0x300000, 0x3fffff, bios_read, NULL },
	{ 0x409000, 0x409fff, fecs_read, fecs_write },
	{ 0x700000, 0x7fffff, pramin_read, pramin_write },
	{ 0x800000, 0x800fff, fifo_read, fifo_write },
};

#define VRAM_SIZE 0x90020c

static const struct plain table[] = {
	{ 0x001100, 1, 4, CONSTANT, 0, "PBUS.INTR" },
	{ 0x001140, 1, 4, HOLDS, 0, "PBUS.INTR_EN" },
	{ 0x00dc00, 1, 4, CONSTANT, 0, "nv: GPIO interrupts 0" },
	{ 0x00dc08, 1, 4, HOLDS, 0, "nv: GPIO interrupts 0 enable" },
	{ 0x00dc60, 1, 4, CONSTANT, 0, "nv: I2C, AUX interrupts" },
	{ 0x00dc68, 1, 4, HOLDS, 0, "nv: I2C, AUX interrupts enable" },
	{ 0x00dc80, 1, 4, CONSTANT, 0, "nv: GPIO interrupts 1" },
	{ 0x00dc88, 1, 4, HOLDS, 0, "nv: GPIO interrupts 1 enable" },
	{ 0x020460, 1, 4, CONSTANT, 0x20000000 | 40 << 8, "nv: temperature: valid, 40 degrees" },
	{ 0x021c00, 1, 4, CONSTANT, 0, "PFUSE: engines that are not there" },
	{ 0x021c04, 1, 4, CONSTANT, 1, "PFUSE: displays that are not there" },
	{ 0x021c14, 1, 4, CONSTANT, 0, "PFUSE: FBPAs that are not there" },
	{ 0x021d38, 1, 4, CONSTANT, 0, "nv: FBPs that are not there" },
	{ 0x021d70, 1, 4, CONSTANT, 0, "nv: LTCs of FBP 0 that are not there" },
	{ DEVINIT_HAS_RUN, 1, 4, HOLDS, 2, "nv: devinit has run" },
	{ 0x022438, 1, 4, CONSTANT, 1, "PTOP: number of FBPs" },
	{ 0x022450, 1, 4, CONSTANT, 1, "PTOP: LTCs of an FBP" },
	{ 0x022458, 1, 4, CONSTANT, 1, "PTOP: FBPAs of an FBP" },
	{ 0x040108, PBDMAS, 0x2000, CONSTANT, 0, "PBDMA.INTR_0" },
	{ 0x04010c, PBDMAS, 0x2000, HOLDS, 0, "PBDMA.INTR_EN_0" },
	{ 0x04012c, PBDMAS, 0x2000, HOLDS, 0, "PBDMA: timeout" },
	{ 0x04013c, PBDMAS, 0x2000, HOLDS, 0, "PBDMA: what stalls the interrupt" },
	{ 0x040148, PBDMAS, 0x2000, CONSTANT, 0, "PBDMA.INTR_1" },
	{ 0x04014c, PBDMAS, 0x2000, HOLDS, 0, "PBDMA.INTR_EN_1" },
	{ 0x070004, 1, 4, CONSTANT, 0, "invalidate system memory in the L2: done at once" },
	{ 0x070010, 1, 4, CONSTANT, 0, "flush the L2: done at once" },
	{ 0x088488, 1, 4, HOLDS, 0, "nv: HDA controller, bit 25 is set" },
	{ 0x100c10, 1, 4, HOLDS, 0, "PFFB: page for flushes" },
	{ 0x100c14, 1, 4, HOLDS, 0, "nv: PFFB, bit 18 is cleared" },
	{ 0x100cc4, 1, 4, HOLDS, 0, "nv: PFFB, size of the MMU's debug pages" },
	{ 0x100cc8, 1, 4, HOLDS, 0, "PFFB: page for writes to sparse memory" },
	{ 0x100ccc, 1, 4, HOLDS, 0, "PFFB: page for reads of sparse memory" },
	{ 0x101000, 1, 4, CONSTANT, 0, "straps" },
	{ 0x10a014, 1, 4, HOLDS, 0, "PMU: interrupts disabled" },
	{ 0x10a040, 1, 4, HOLDS, 0, "PMU: mailbox" },
	{ 0x10a048, 1, 4, HOLDS, 0, "PMU: interfaces" },
	{ 0x10a084, 1, 4, HOLDS, 0, "nv: PMU, which chip this is" },
	{ 0x10a104, 1, 4, HOLDS, 0, "PMU: where it starts" },
	{ 0x10a10c, 1, 4, HOLDS, 0, "PMU: DMA control; memory is scrubbed at once" },
	{ 0x10a180, 1, 4, HOLDS, 0, "PMU: address of the port to code" },
	{ 0x10a188, 1, 4, HOLDS, 0, "PMU: page of the port to code" },
	{ 0x10a1c0, 1, 4, HOLDS, 0, "PMU: address of the port to data" },
	{ 0x10ecc0, 1, 4, HOLDS, 0, "nv: memory controller" },
	{ 0x12006c, 1, 4, CONSTANT, 1, "number of LTCs" },
	{ 0x17e280, 1, 4, CONSTANT, 1U << 28, "nv: slices of an LTC" },
	{ 0x17e338, 1, 4, HOLDS, 0, "nv: ZBC, index" },
	{ 0x17e33c, 5, 4, HOLDS, 0, "nv: ZBC, four colours and depth" },
	{ 0x1fac80, 1, 4, HOLDS, 0, "nv: copy of 0x100c80 for another hub" },
	{ 0x1facc4, 3, 4, HOLDS, 0, "nv: copies of 0x100cc4, cc8, ccc" },
	{ 0x409108, 1, 4, CONSTANT, 0, "FECS: sizes of its memories" },
	{ 0x40912c, 1, 4, CONSTANT, 0, "FECS: its version, ports" },
	{ 0x409604, 1, 4, CONSTANT, 1, "nv: GPCs" },
	{ 0x41a108, 1, 4, CONSTANT, 0, "GPCCS: sizes of its memories" },
	{ 0x41a12c, 1, 4, CONSTANT, 0, "GPCCS: its version, ports" },
	{ 0x500c30, 1, 4, CONSTANT, 1, "nv: PPCs" },
	{ 0x502608, 1, 4, CONSTANT, 1, "nv: TPCs" },
	{ 0x6013d4, 1, 4, HOLDS, 0, "VGA: index and data of a CRTC register" },
	{ 0x9a0160, 1, 4, HOLDS, 0, "nv: FBPAs" },
	{ 0x9a0584, 1, 4, HOLDS, 0, "nv: FBPAs" },
	{ VRAM_SIZE, 1, 4, CONSTANT, 0, "nv: FBPA 0, MiB" },
};

bool plain_read(struct gpu *g, u32 at, u32 *val)
{
	*val = g->regs[at / 4];
	return plain_find(table, ARRAY_SIZE(table), at);
}

bool plain_write(struct gpu *g, u32 at, u32 val)
{
	const struct plain *p = plain_find(table, ARRAY_SIZE(table), at);

	if (p && p->kind == HOLDS)
		g->regs[at / 4] = val;
	return p;
}

void plain_reset(struct gpu *g)
{
	plain_init(g->regs, table, ARRAY_SIZE(table));
	g->regs[VRAM_SIZE / 4] = g->opt.vram >> 20;
}

u32 bar0_read(struct gpu *g, u32 at)
{
	u32 val = 0;

	g->stats.register_reads++;
	for (size_t i = 0; i < ARRAY_SIZE(rooms); i++)
		if (at >= rooms[i].first && at <= rooms[i].last && rooms[i].read(g, at, &val))
			return val;
	if (plain_read(g, at, &val))
		return val;
	val = 0;
	plain_unknown(&g->dev, &g->seen[at / 4], at, "read", val);
	return val;
}

void bar0_write(struct gpu *g, u32 at, u32 val)
{
	g->stats.register_writes++;
	for (size_t i = 0; i < ARRAY_SIZE(rooms); i++)
		if (at >= rooms[i].first && at <= rooms[i].last && rooms[i].write &&
		    rooms[i].write(g, at, val))
			return;
	if (!plain_write(g, at, val))
		plain_unknown(&g->dev, &g->seen[at / 4], at, "write of", val);
}
