/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The back door, BAR 5, for the model and for programs in the guest. It has DOOR_CLIENTS clients of
 * DOOR_SIZE bytes: a page of registers (little endian, 32 bits each) and a buffer.
 */
#ifndef PASCAL_DOOR_H
#define PASCAL_DOOR_H

#define DOOR_CLIENTS 8
#define DOOR_SIZE 65536

enum {
	/* For each client: the channel whose address space it uses, the operation, its operands. */
	DOOR_CHID = 0x00,
	DOOR_OP = 0x04,		/* enum door_op; writing it starts it */
	DOOR_VA = 0x08,		/* 64 bits; DOOR_NEXT writes the address that it finds */
	DOOR_LEN = 0x10,
	DOOR_STATUS = 0x14,	/* enum door_status */
	DOOR_FLAGS = 0x18,	/* answer of DOOR_WALK and DOOR_NEXT */
	DOOR_ADDR = 0x20,	/* the same, 64 bits */
	/* Knobs, in the page of the first client. */
	DOOR_HOLD = 0x100,	/* 1: copies wait; HOLD_VIRTUAL: those of TTM alone */
	DOOR_RELEASE = 0x104,	/* this many of them continue */
	DOOR_DELAY = 0x108,	/* each push begins this many ms late */
	DOOR_SLOW = 0x10c,	/* an invalidation takes this many ms */
	DOOR_LATE = 0x110,	/* the valid bit of a fault comes this many ms later */
	DOOR_AGAIN = 0x114,	/* each fault is reported this many more times */
	DOOR_FAIL = 0x118,	/* N: the Nth copy from now fails */
	DOOR_POSTED = 0x11c,	/* what flushes writes to BAR 1: enum posted */
	DOOR_CHECK = 0x120,	/* written: the driver is idle, so no TLB may have a stale entry */
	DOOR_GONE = 0x124,	/* written: the device is off the bus, until it is reset */
	DOOR_BACKWARDS = 0x128,	/* waiting channels continue in reverse order */
	DOOR_BEHIND = 0x12c,	/* 1: the next operation starts just after the next TLB flush */
	DOOR_COUNTERS = 0x800,	/* 64 bits each, in the order of DOOR_STATS and DOOR_FAILURES */
	DOOR_DATA = 0x1000,
};

#define HOLD_VIRTUAL 2	/* copies without a physical address */

enum door_op {
	DOOR_LOAD = 1,
	DOOR_STORE,
	DOOR_ADD,		/* to 32 bits; the buffer then has the old value */
	DOOR_PREFETCH,
	DOOR_WALK,		/* the translation of VA by the page tables, without a TLB */
	DOOR_VRAM,		/* reads VRAM at VA, without a page table */
	DOOR_NEXT,		/* as DOOR_WALK, of the first mapped page from VA on */
};

enum door_status { DOOR_IDLE, DOOR_BUSY, DOOR_DONE, DOOR_FAILED };

enum {
	DOOR_VALID = 1 << 0, DOOR_SPARSE = 1 << 1, DOOR_READ_ONLY = 1 << 2, DOOR_NO_ATOMIC = 1 << 3,
	DOOR_SYSTEM = 1 << 5,	/* else it is VRAM */
	DOOR_SHIFT = 8,		/* from this bit on: log2 of the page size */
};

#define DOOR_STATS(X) \
	X(register_reads) X(register_writes) X(bar1_reads) X(bar1_writes) X(bar1_queued) \
	X(bar2_accesses) X(interrupts) X(pushes) X(copies) X(copied_bytes) X(invalidations) \
	X(replays) X(cancels) X(faults) X(faults_lost) X(fatal_faults) X(sparse) X(tlb_evicted) \
	X(stale_uses) X(dma_maps) X(dma_regions) X(moved_out)
/* These must be 0 in the end. */
#define DOOR_FAILURES(X) \
	X(unknown_registers) X(unknown_methods) X(bar_faults) X(iommu_faults) X(violations)

#endif
