/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The back door, BAR 4, for the model and for programs in the guest: a page of registers (little
 * endian, 32 bits each) and a page of data. A real Battlemage has nothing there.
 */
#ifndef BATTLEMAGE_DOOR_H
#define BATTLEMAGE_DOOR_H

#define DOOR_SIZE 8192

enum {
	DOOR_ASID = 0x00,	/* of the context that ran a batch in a process's memory last */
	DOOR_OP = 0x04,		/* enum door_op; writing it starts it */
	DOOR_VA = 0x08,		/* 64 bits; DOOR_NEXT writes the address that it finds */
	DOOR_STATUS = 0x14,	/* enum door_status */
	DOOR_FLAGS = 0x18,	/* answer of DOOR_WALK and DOOR_NEXT */
	DOOR_ADDR = 0x20,	/* the same, 64 bits */
	/* Knobs. */
	DOOR_HOLD = 0x100,	/* 1: copies of the driver wait */
	DOOR_RELEASE = 0x104,	/* this many of them continue */
	DOOR_SLOW = 0x108,	/* an invalidation takes this many ms */
	DOOR_LATE = 0x10c,	/* a fault is reported this many ms late */
	DOOR_CHECK = 0x110,	/* written: the driver is idle, so no TLB may have a stale entry */
	DOOR_GONE = 0x114,	/* written: the device is off the bus, until it is reset */
	DOOR_COUNTERS = 0x800,	/* 64 bits each, in the order of DOOR_STATS and DOOR_FAILURES */
	DOOR_DATA = 0x1000,
};

enum door_op {
	DOOR_WALK = 1,		/* the translation of VA by the page tables, without a TLB */
	DOOR_NEXT,		/* the same of the first mapped page from VA on */
	DOOR_VRAM,		/* reads a page of VRAM at VA */
};

enum door_status { DOOR_IDLE, DOOR_BUSY, DOOR_DONE, DOOR_FAILED };

enum {
	DOOR_VALID = 1 << 0, DOOR_WRITABLE = 1 << 1, DOOR_ATOMIC = 1 << 2, DOOR_LOCAL = 1 << 3,
	DOOR_SHIFT = 8,		/* from this bit on: log2 of the page size */
};

#define DOOR_STATS(X) \
	X(register_reads) X(register_writes) X(vram_reads) X(vram_writes) X(vram_queued) \
	X(interrupts) X(requests) X(events) X(commands) X(copies) X(copied_bytes) X(fills) \
	X(faults) X(faults_refused) X(dead_contexts) X(invalidations) X(stale_uses) \
	X(dma_maps) X(dma_regions) X(peer_bytes_read) X(peer_bytes_written)
/* These must be 0 in the end. */
#define DOOR_FAILURES(X) \
	X(unknown_registers) X(unknown_commands) X(unknown_requests) X(ggtt_faults) \
	X(iommu_faults) X(violations)

#endif
