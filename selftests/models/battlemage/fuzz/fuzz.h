/* SPDX-License-Identifier: GPL-2.0-only */
/* Shared by the fuzzers: a GPU that is set up as by a driver, and actions of a guest. */
#ifndef FUZZ_H
#define FUZZ_H

#include "../battlemage.h"
#include "../../fuzz/gpu.h"

#define VRAM_SIZE (1ULL << 30)

/* The layout of VRAM, which the GGTT maps from 0 on. */
#define H2G 0x10000
#define G2H 0x14000
#define DESC 0x18000
#define IMAGE(n) (0x20000 + (n) * 0x2000)
#define RING(n) (0x30000 + (n) * 0x1000)
#define TABLES(asid) (0x40000 + (asid) * 0x10000)
#define DATA 0x80000
#define USED 0x100000		/* bytes of VRAM */

#define VA 0x7f12400000ULL	/* of the process */
#define BATCH (VA + 0x8000)
#define WORDS 256		/* of H2G and G2H */

void wr(struct gpu *g, u32 at, u32 val);
void vram32(struct gpu *g, u64 at, u32 val);
/* Sends a message of n words to the GuC. */
void request(struct gpu *g, const u32 *words, u32 n);

void run_vram(struct gpu *g, const struct rec *r);
void run_knob(struct gpu *g, const struct rec *r);
u16 fill_vram(struct rec *r, u8 *data);
u16 fill_knob(struct rec *r, u8 *data);

#define COMMON_KINDS \
	{ run_write, NULL }, { run_read, NULL }, { run_vram, fill_vram }, { run_knob, fill_knob }, \
	{ run_tick, NULL }

#endif
