/* SPDX-License-Identifier: GPL-2.0-only */
/* A model of a GP100, as far as nouveau's shared virtual memory needs one. See README.md. */
#ifndef PASCAL_H
#define PASCAL_H

#include "../vfio-user/vfio_user.h"
#include "backdoor.h"

#define BIT(n) (1U << (n))
#define BIT_ULL(n) (1ULL << (n))

enum { REGION_BAR0 = 0, REGION_BAR1 = 1, REGION_BAR2 = 3, REGION_DOOR = 5 };

#define BAR0_SIZE (16U << 20)
#define BAR2_SIZE (32U << 20)	/* NVIDIA's BAR2 is BAR 3 of the configuration space */
#define CHANNELS 64
#define ENGINES 3		/* GR, CE0, CE1 */
#define PBDMAS 3
#define FAULTS 256		/* entries of the replayable fault buffer */
#define BIOS_SIZE 8192

struct gpu;

/* ---- counters ---- */

struct stats {
#define X(name) unsigned long name;
	DOOR_STATS(X) DOOR_FAILURES(X)
#undef X
};

const struct stats *stats(struct gpu *g);

/* ---- instmem.c: VRAM, and system memory as the GPU names it ---- */

enum aperture { VRAM, PEER, COHERENT, NONCOHERENT };	/* as in a PTE */

/* At most *len bytes. NULL: no memory is there, and the error has been counted. */
u8 *memory(struct gpu *g, enum aperture where, u64 addr, u64 *len, bool write);
u32 vram_read(struct gpu *g, u64 addr);
u64 vram_read64(struct gpu *g, u64 addr);
void vram_write(struct gpu *g, u64 addr, u32 val);

/* ---- registers: each unit says whether it knows this one ---- */

typedef bool read_fn(struct gpu *g, u32 at, u32 *val);
typedef bool write_fn(struct gpu *g, u32 at, u32 val);

read_fn pmc_read, timer_read, bios_read, pramin_read, mmu_read, bar_read, fault_read, fifo_read,
	fecs_read, pci_read, pmu_read, plain_read;
write_fn pmc_write, timer_write, pramin_write, mmu_write, bar_write, fault_write, fifo_write,
	fecs_write, pci_write, pmu_write, plain_write;

u32 bar0_read(struct gpu *g, u32 at);
void bar0_write(struct gpu *g, u32 at, u32 val);
void plain_reset(struct gpu *g);

#define DEVINIT_HAS_RUN 0x02240c

/* ---- pmc.c ---- */

/* Some unit's interrupt may have changed. */
void interrupt(struct gpu *g);

/* ---- timer.c ---- */

u64 timer_ns(struct gpu *g);
bool timer_pending(struct gpu *g);
bool timer_tick(struct gpu *g);

/* ---- bios.c ---- */

void bios_init(struct gpu *g);
/* May the PMU start here? */
bool bios_devinit(struct gpu *g, u32 from);

/* ---- mmu.c ---- */

#define REPLAYABLE 0x30		/* bits of the directory base of a process: faults are replayable */

enum access { READ, WRITE, ATOMIC, PREFETCH };	/* as in a fault */
enum reason {
	FAULT_PDE = 0, FAULT_PTE = 2, FAULT_VA_LIMIT = 3, FAULT_READ_ONLY = 6, FAULT_APERTURE = 10,
	FAULT_REGION = 13, FAULT_ATOMIC = 15,
};

struct xlat {
	bool valid, sparse, read_only, no_atomic;
	u8 shift;		/* of the page, or of the range that is not mapped */
	enum aperture where;
	enum reason reason;	/* if it is neither valid nor sparse */
	u64 addr;
};

struct mmu_fault {
	u64 va, done;		/* where, and how many bytes were moved before */
	enum reason reason;
};

/* Translates by the page tables alone, without the TLB. pdb: as in an instance block. */
void walk(struct gpu *g, u64 pdb, u64 va, struct xlat *x);
/* Finds the first mapped page from *va on. False: there is none within *steps steps. */
bool mmu_next(struct gpu *g, u64 pdb, u64 *va, struct xlat *x, u32 *steps);
/* Copies from or to an address; gpc: through the TLBs of the GPCs, else through the hub's. */
bool mmu_copy(struct gpu *g, u64 pdb, bool gpc, u64 va, void *buf, u64 len, enum access how,
	      struct mmu_fault *f);
/* A 32-bit addition; *val: the old value. */
bool mmu_add(struct gpu *g, u64 pdb, bool gpc, u64 va, u32 add, u32 *val, struct mmu_fault *f);
void mmu_reset(struct gpu *g);
bool mmu_tick(struct gpu *g);
void mmu_unmapped(struct gpu *g, u64 iova, u64 size);
/* The driver moves a page from here (READ), or to here. */
void mmu_copied(struct gpu *g, enum aperture where, u64 addr, u64 len, enum access how);
/* The driver is idle: no TLB may hold an entry that the page tables do not have. */
void mmu_check(struct gpu *g);

/* ---- bar.c ---- */

u64 bar_pdb(struct gpu *g, u32 bar);	/* 1 or 2; 0: it is off */
void bar_access(struct gpu *g, u32 bar, u64 off, void *buf, u32 len, bool write);
void bar_flush(struct gpu *g, bool by_read);
void bar_word(struct gpu *g, u64 pdb, u64 va);	/* before the GPU writes this word */

enum posted { POSTED_NO, POSTED_FLUSH, POSTED_READ };	/* what flushes writes to BAR 1 */

struct posted_write {
	u64 off;
	u32 len;
	u8 data[8];
};

/* ---- fault.c ---- */

/* A fault of a client that can replay. False: it cannot be replayed at present. */
bool fault_replayable(struct gpu *g, u32 chid, u64 va, enum access how, enum reason reason, u32 gpc,
		      u32 client);
void fault_fatal(struct gpu *g, u32 unit, u64 inst, u64 va, enum access how, enum reason reason,
		 bool hub, u32 client);
bool fault_pending(struct gpu *g);
bool fault_tick(struct gpu *g);
void fault_reset(struct gpu *g);

/* ---- fifo.c ---- */

struct chan {
	bool enabled, listed, dead;
	u8 runlist;
	u64 due;		/* not before this time: the engine is delayed */
	u32 sem[4];
	u32 ce[0x800 / 4];	/* methods of the copy engine */
	/* the rest of the current segment of the push buffer */
	u64 at, end;
	u32 op, method, left, subc;
	u16 class[8];		/* of the object on each subchannel */
};

u64 chan_inst(struct gpu *g, u32 chid);
u64 chan_pdb(struct gpu *g, u32 chid);
u64 pdb_key(u64 pdb);	/* what an invalidation names */
bool chan_bound(struct gpu *g, u32 chid);
bool chan_uses(struct gpu *g, u32 chid, u64 key);	/* the page directory with this key */
void fifo_raise(struct gpu *g, u32 bits);
bool fifo_pending(struct gpu *g);
read_fn top_read;
void fifo_doorbell(struct gpu *g, u32 chid);
void fifo_run(struct gpu *g);
bool fifo_tick(struct gpu *g);
void fifo_reset(struct gpu *g);

/*
 * A guest can request more work than can be done in its lifetime. A channel takes TURN steps
 * (entries and words of its push buffers, KiB that it copies) at a time. A copy may have MAX_COPY
 * bytes.
 */
#ifndef TURN
#define TURN (1U << 20)
#define MAX_COPY (4ULL << 30)
#endif

/* ---- ce.c ---- */

enum step { DONE, WAIT, DEAD };
#define CE_CLASS 0xc0b5
enum step ce_method(struct gpu *g, u32 chid, u32 method, u32 val);

/* ---- backdoor.c ---- */

struct client {
	u32 chid, op, len, status;
	u64 va, done;		/* done: bytes */
	u64 since;		/* number of the fault that it waits for: oldest is lowest */
	bool behind;		/* starts after the next invalidation */
	struct xlat x;		/* what OP_WALK found */
	u8 data[DOOR_SIZE - DOOR_DATA];
};

void door_read(struct gpu *g, u64 off, void *to, u32 len);
void door_write(struct gpu *g, u64 off, const void *from, u32 len);
void door_reset(struct gpu *g);
void door_replay(struct gpu *g);
void door_invalidated(struct gpu *g, u64 pdb);
bool door_cancel(struct gpu *g, u32 gpc, u32 client);
void door_unbind(struct gpu *g, u32 chid);
bool door_current(struct gpu *g, u32 *chid);	/* the channel of the oldest fault */

/* ---- pci.c ---- */

struct options {
	u64 vram, bar1;
	bool one_runlist;
	enum posted posted;
};

int gpu_init(struct gpu *g, const struct options *o);
void gpu_free(struct gpu *g);

#ifndef TLB_SIZE
#define TLB_SIZE (1U << 16)
#endif
#define PDBS 256
#define MAPPED_SIZE (1U << 21)	/* bits */

struct tlb {
	u64 pdb, page;
	u32 gen;
	bool used, gpc;
	u64 stale;		/* time of its first use against the page table; 0: none */
	struct xlat x;
};

struct gpu {
	struct options opt;
	struct stats stats;

	struct vfio_user dev;
	u64 bar1;		/* address of BAR 1, as written to the register */
	u8 bios[BIOS_SIZE];
	u32 *regs;		/* BAR0_SIZE bytes: values of the plain registers */
	u8 *seen;		/* unknown registers that were logged */
	u8 *vram;
	u8 imem[1024], dmem[4096];	/* code and data of the PMU */

	u32 intr_enabled[2];
	bool msi_armed;
	u64 time_base;

	struct tlb *tlb;
	struct { u64 pdb; u32 gen[2]; } pdb[PDBS];
	u32 npdb, stale;	/* stale: number of entries whose stale is not 0 */
	bool gpc_seen;		/* any entry is of a GPC */
	u8 *mapped;		/* bits, see maybe_mapped() */
	bool mapped_old;	/* page tables may have changed since */
	struct { bool busy; u64 until; u32 what; u64 pdb; } invalidation;

	struct posted_write posted[4096];
	u32 nposted;

	u32 fault_put;
	struct { u64 addr, due; } late[FAULTS];	/* entries whose valid bit is still to come */
	u32 nlate;

	struct chan chan[CHANNELS];
	u32 fifo_intr, runlists_done, faulted_units;
	u32 turn;		/* steps that the running channel has left */

	struct client client[DOOR_CLIENTS];
	u64 faults_seen;
	/* knobs of the back door */
	u32 hold, release, delay_ms, slow_ms, late_ms, again, fail_in;
	bool backwards, gone, behind;
};

#endif
