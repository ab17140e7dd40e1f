/* SPDX-License-Identifier: GPL-2.0-only */
/* A model of a Battlemage, as far as xe's shared virtual memory needs one. See README.md. */
#ifndef BATTLEMAGE_H
#define BATTLEMAGE_H

#include "../vfio-user/vfio_user.h"
#include "backdoor.h"

#define BIT(n) (1U << (n))
#define BIT_ULL(n) (1ULL << (n))

enum { REGION_BAR0 = 0, REGION_VRAM = 2, REGION_DOOR = 4 };

#define BAR0_SIZE (16U << 20)
#define REGISTERS (4U << 20)	/* bytes of BAR 0 */
#define GGTT (8U << 20)		/* where it is in BAR 0, and its size */
#define CONTEXTS 4096

struct gpu;

struct stats {
#define X(name) unsigned long name;
	DOOR_STATS(X) DOOR_FAILURES(X)
#undef X
};

const struct stats *stats(struct gpu *g);

/* ---- memory.c: VRAM, system memory, GGTT ---- */

/*
 * Memory at a physical address. NULL: none is there, and the error has been counted. It may be in
 * the BAR of another model: then it is a copy, and memory_written() sends what was written to it.
 */
u8 *memory(struct gpu *g, bool local, u64 addr, u64 *room, bool write);
void memory_written(struct gpu *g, const u8 *at, u64 len);
/* Copies from or to GGTT addresses. False: one of them has no memory. */
bool ggtt_copy(struct gpu *g, u64 at, void *buf, u64 len, bool write);
u32 ggtt_read(struct gpu *g, u64 at);
void ggtt_write(struct gpu *g, u64 at, u32 val);
/* An access to BAR 2. */
void vram_access(struct gpu *g, u64 off, void *buf, u32 len, bool write);
/* The copy engine has written here. */
void vram_own(struct gpu *g, u64 off);
void vram_filled(struct gpu *g, const u8 *to, u64 len);

struct posted_write {
	u64 off;
	u32 len;
	u8 data[8];
};

/* ---- registers: each unit says whether it knows this one ---- */

typedef bool read_fn(struct gpu *g, u32 at, u32 *val);
typedef bool write_fn(struct gpu *g, u32 at, u32 val);

read_fn irq_read, plain_read;
write_fn irq_write, guc_write, gt_write, plain_write;

u32 register_read(struct vfio_user *v, u32 at);
void register_write(struct vfio_user *v, u32 at, u32 val);
/* The value of a plain register, for the units. NULL: off is outside of the registers. */
u32 *plain(struct gpu *g, u32 at);
/* Bits 31:16 of val say which of the bits 15:0 are written. */
u32 masked(u32 old, u32 val);
void plain_reset(struct gpu *g);

/* ---- irq.c ---- */

enum class { RENDER, VIDEO, ENHANCE, COPY, OTHER, COMPUTE };	/* of an engine */

void irq_raise(struct gpu *g, u32 bit, enum class class, u32 instance, u16 what);
void irq_reset(struct gpu *g);

/* ---- mmu.c ---- */

enum access { READ, WRITE, ATOMIC };		/* as in a fault */
enum reason { NOT_PRESENT, NO_WRITE, NO_ATOMIC };	/* the same */

struct fault {
	u64 va;
	enum access access;
	enum reason reason;
	u32 level;
};

struct xlat {
	u64 pte;
	u8 level, shift;	/* shift: log2 of the page size */
};

struct context;

/* The memory at an address of the context. NULL: *f says why there is none. */
u8 *mmu_memory(struct gpu *g, struct context *c, u64 va, enum access how, u64 *room,
	       struct fault *f);
bool mmu_copy(struct gpu *g, struct context *c, u64 va, void *buf, u64 len, bool write,
	      struct fault *f);
/* By the page tables alone. False: x->level says where the walk has ended. */
bool mmu_walk(struct gpu *g, u64 root, u64 va, struct xlat *x);
/* Finds the first mapped page from *va on. */
bool mmu_next(struct gpu *g, u64 root, u64 *va, struct xlat *x);
u64 xlat_addr(const struct xlat *x);
/* asid < 0: all of them */
void mmu_invalidate(struct gpu *g, s64 asid, u64 va, u64 len);
/* The driver moves memory from here (READ), or to here. */
void mmu_copied(struct gpu *g, const u8 *at, u64 len, enum access how);
void mmu_unmapped(struct gpu *g, u64 iova, u64 size);
/* This address space has page faults. */
void mmu_faults(struct gpu *g, u32 asid);
/* The driver is idle: no TLB may hold an entry that the page tables do not have. */
void mmu_check(struct gpu *g);
bool mmu_tick(struct gpu *g);
void mmu_reset(struct gpu *g);

#define PTE_WRITE BIT_ULL(1)
#define PTE_ATOMIC BIT_ULL(10)
#define PTE_LOCAL BIT_ULL(11)
#ifndef TLB_SIZE
#define TLB_SIZE (1U << 16)
#endif
#define ASIDS (1U << 20)
#define MAPPED (1U << 20)	/* bits */

struct tlb {
	u64 page, root, stale;	/* stale: time of its first use against the page tables; 0: none */
	u32 asid;
	bool used;
	struct xlat x;
	const u8 *memory;
};

/* ---- guc.c: the firmware: messages in both directions ---- */

void guc_event(struct gpu *g, u32 action, const u32 *data, u32 n);
bool guc_tick(struct gpu *g);
void guc_reset(struct gpu *g);

struct ring {			/* of messages, in the GGTT */
	u32 at, desc, size;
};

/* ---- context.c: what the firmware schedules ---- */

enum state { IDLE, READY, FAULTED, WAITING, DEAD };

struct context {
	bool registered, enabled;
	bool disable;		/* when its fault is answered */
	enum state state;
	u32 id;
	enum class class;
	u32 instance;
	u32 image;		/* in the GGTT */
	u32 head, tail, start, size;	/* of its ring */
	u64 root;		/* of its page tables */
	u32 asid;
	u32 depth;		/* 0: it is in the ring */
	u32 began;		/* head, where the ring starts the batch */
	struct { u64 at; bool ppgtt; } batch[4];
	u64 done;		/* bytes of the current copy */
	bool let;		/* the current copy is not held */
	u64 gpr[16];
	struct fault fault;
	u64 report;		/* when the fault is to be reported; 0: it is */
};

/* A request of the driver about contexts. False: it is not known. */
bool context_request(struct gpu *g, u32 action, const u32 *data, u32 n);
struct context *context_of(struct gpu *g, u32 asid);
void context_fault(struct gpu *g, struct context *c);
void context_dead(struct gpu *g, struct context *c);
bool context_tick(struct gpu *g);
void context_reset(struct gpu *g);

/* ---- cs.c: the command streamer ---- */

enum step { NEXT, JUMP, FAULT, WAIT, STOP };

/* Runs the context until it is idle, faults, waits, or has had its turn. */
void cs_run(struct gpu *g, struct context *c);
u32 engine_base(enum class class, u32 instance);
void context_save(struct gpu *g, struct context *c);
void context_load(struct gpu *g, struct context *c);

/* A guest can request more work than can be done in its lifetime. */
#ifndef TURN
#define TURN 200000		/* commands */
#define MAX_COPY (64ULL << 20)	/* bytes of a copy or fill */
#endif
#define MAX_COMMAND 1100	/* dwords; the largest are page table updates of 0x1fe qwords */

/* ---- copy.c: the copy engine ---- */

enum step copy_command(struct gpu *g, struct context *c, const u32 *dw, u32 n);

/* ---- backdoor.c ---- */

u32 door_get(struct vfio_user *v, u32 at);
void door_set(struct vfio_user *v, u32 at, u32 val);

/* ---- pci.c ---- */

struct options {
	u64 vram, bar;
	bool posted;		/* a peer's writes to VRAM are queued until VRAM is read */
	const char *peer;	/* the socket of a model with a BAR that this device accesses */
};

int gpu_init(struct gpu *g, const struct options *o);
void gpu_free(struct gpu *g);
/* All state but configuration space and VRAM. */
void gpu_restart(struct gpu *g);

struct gpu {
	struct options opt;
	struct stats stats;
	struct vfio_user dev;

	u8 *bar0;		/* registers and GGTT */
	u32 *regs;
	u64 *ggtt;
	u8 *seen;		/* unknown registers that were logged */
	u8 *vram;
	u64 bar2;		/* the register in configuration space */
	int bar0_file, vram_file;

	/* interrupts, by word of GT_INTR_DW and bit */
	struct { u16 what; u8 class, instance; } pending[2][32];
	bool irq_enabled, irq_sent;

	struct tlb *tlb;
	u8 *faulting, *mapped;	/* bits: address spaces with faults; see maybe_mapped() */
	u32 stale;

	bool guc_loaded, guc_on, guc_inside;
	struct ring h2g, g2h;
	struct { u64 due; s64 asid; u64 va, len; u32 seqno; } invalidation[64];
	u32 ninvalidation;

	struct context context[CONTEXTS];
	u32 contexts;		/* above the highest number in use */

	struct posted_write posted[4096];
	u32 nposted;
	u8 *filled;		/* bits: pages of VRAM that the copy engine has written */

	struct peer peer;
	struct { u64 addr; u8 data[PEER_MAX]; } far[2];	/* read from the peer, written to it */

	/* the back door */
	u32 asid, status;
	u64 va, addr;
	u32 flags;
	u8 data[DOOR_SIZE - DOOR_DATA];
	u32 hold, release, slow_ms, late_ms;
	bool gone;
};

#endif
