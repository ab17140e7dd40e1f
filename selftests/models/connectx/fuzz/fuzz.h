/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared by the fuzzers. In the first byte of an input, bit 0 selects the scheme of page faults,
 * and bit 1 turns ATS on.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include "../connectx.h"
#include "../../fuzz/input.h"

/* Guest RAM, repeated up to RAM_END, so that addresses of recorded guests lead to memory, too. */
#define RAM_SIZE (1U << 20)
#define RAM_END (2ULL << 30)
#define READ_ONLY 0x100000000ULL	/* the same, for reading only */
#define PEER 0x140000000ULL	/* BAR of a peer */
#define PEER_SIZE 0x10000U

/* The layout of RAM. */
#define CMDQ 0x1000
#define BOXES 0x4000		/* of a command: input, output */
#define BOXES_OUT 0x8000
#define QUEUES 0x10000		/* a page each, see begin() of wqe.c */
#define DATA 0x40000

/* Each fuzzer defines these: */
void begin(struct hca *h);	/* before the first record */
void end(void);			/* after the last one, when the HCA is freed */

/* fuzz.c */
extern u8 *ram;
extern int ram_fd, peer_fd;
void map_memory(struct hca *h);
void bar_write(struct hca *h, u64 at, u32 first, u32 second, unsigned int words);
void command(struct hca *h, u32 slot, const void *in, u32 inlen, u32 outlen, bool ring);

void run_command(struct hca *h, const struct rec *r);
void run_poke(struct hca *h, const struct rec *r);
u16 fill_command(struct rec *r, u8 *data);
u16 fill_poke(struct rec *r, u8 *data);
u16 fill_write(struct rec *r, u8 *data);

#define COMMON_KINDS \
	{ run_command, fill_command }, { run_poke, fill_poke }, { run_write, fill_write }, \
	{ run_read, NULL }, { run_tick, NULL }

#endif
