/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared by the fuzzers: a GPU that is set up as by a driver, and actions of a guest. Bit 0 of the
 * first byte of an input puts all engines on one runlist.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include "../pascal.h"
#include "../../fuzz/gpu.h"

#define VRAM_SIZE (64ULL << 20)

/* The layout of VRAM: instance blocks, page tables of three address spaces, mapped memory. */
#define INST 0x10000
#define TABLES(space) (0x20000 + (space) * 0x10000)
#define USERD 0x90000
#define RUNLIST 0x91000
#define RING 0x92000
#define FAULT_BUFFER 0xa0000
#define DATA 0x100000

#define VA 0x7f12400000ULL	/* of the process */
#define PB (VA + 0x200000)	/* push buffer, in RAM; its ring; semaphores */
#define NCHAN 2			/* channels 1 and 2 are of this address space */

void wr(struct gpu *g, u32 at, u32 val);
void vram64(struct gpu *g, u64 at, u64 val);

void run_vram(struct gpu *g, const struct rec *r);
void run_door(struct gpu *g, const struct rec *r);
void run_knob(struct gpu *g, const struct rec *r);
u16 fill_vram(struct rec *r, u8 *data);
u16 fill_door(struct rec *r, u8 *data);
u16 fill_knob(struct rec *r, u8 *data);

#define COMMON_KINDS \
	{ run_write, NULL }, { run_read, NULL }, { run_vram, fill_vram }, { run_door, fill_door }, \
	{ run_knob, fill_knob }, { run_tick, NULL }

#endif
