/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A model of a ConnectX-5 virtual function, as far as mlx5_core and mlx5_ib need one. See
 * README.md.
 */
#ifndef CONNECTX_H
#define CONNECTX_H

#include <linux/types.h>
#include <linux/mlx5/mlx5_ifc.h>
#include <linux/mlx5/device.h>
#include <linux/mlx5/driver.h>
#include <linux/mlx5/qp.h>
#include <linux/mlx5/cq.h>
#include "../vfio-user/vfio_user.h"

#define NVEC 8			/* MSI-X vectors */
#define BAR0_SIZE (4U << 20)	/* initialisation segment, then one UAR per 4 KiB */
#define BAR_MSIX_SIZE 4096U
#define CHANNELS 8		/* of the back door */
#define CHANNEL_SIZE 65536U
#define BAR_DOOR_SIZE (CHANNELS * CHANNEL_SIZE)

struct hca;

/* ---- tables of objects: numbers that commands hand out ---- */

struct table {
	const char *name;
	u32 first, n, used;
	/* The search for a free slot begins here, so that a number is not used again at once. */
	u32 next;
	void **slot;
};

int table_add(struct table *t, void *obj);	/* number, or -1 */
void *table_get(const struct table *t, u32 id);
void *table_del(struct table *t, u32 id);
#define table_for_each(t, i, obj) \
	for (u32 i = 0; (t)->slot && i < (t)->n; i++) \
		if (((obj) = (t)->slot[i]))

/* ---- counters: the last four must be 0 in the end ---- */

/* mkeys_enabled and dma_regions can also decrease. Read them all by stats(). */
#define STATS(X) \
	X(commands) X(events) X(interrupts) X(completions) X(umr_wqes) X(page_faults) \
	X(memory_faults) X(resumes) X(resumes_with_error) X(stale_resumes) X(mkeys_enabled) \
	X(bytes_read) X(bytes_written) X(peer_bytes_read) X(peer_bytes_written) X(translations) \
	X(dma_maps) X(dma_regions) X(injected) X(iommu_faults) X(bad_commands) X(bad_umrs) \
	X(violations)

struct stats {
#define X(name) u64 name;
	STATS(X)
#undef X
};

/* ---- record.c: seeds for the fuzzers ---- */

void record(struct hca *h, const char *fuzzer, u8 kind, u8 arg, u16 value, const void *data,
	    size_t len);

/* ---- dma.c: the memory that the device can reach ---- */

bool dma_reaches(struct hca *h, u64 iova, u64 len, bool write);
/* If one of these fails, it is an IOMMU fault. dma_ptr() may reduce *len. */
u8 *dma_ptr(struct hca *h, u64 iova, u64 *len, bool write);
bool dma_read(struct hca *h, u64 iova, void *to, u64 len);
bool dma_write(struct hca *h, u64 iova, const void *from, u64 len);
/* Adds payload to the statistics. */
void dma_count(struct hca *h, bool peer, u64 len, bool write);
bool dma_peer(struct hca *h, u64 iova);
/*
 * Is the address in a BAR of another model, to which no pointer leads? If so, *len is reduced to
 * what one far_read() can read or one post_write() can write.
 */
bool dma_far(struct hca *h, u64 iova, u64 *len);
bool far_read(struct hca *h, u64 iova, void *to, u64 len);

/*
 * Writes to peers arrive late. They are pushed by a read of a peer or an atomic operation by this
 * device, and by the end of a command or UMR that removed a translation, but by nothing that others
 * do. Otherwise they arrive when POSTED_MS have passed without another write, or when there are
 * more than MAX_POSTED.
 */
#define POSTED_MS 50
#define MAX_POSTED 256
struct posted {
	u64 iova, len;
	u8 *data;
	bool far;
};

void post_write(struct hca *h, u64 iova, const void *from, u64 len, bool far);
void posted_push(struct hca *h);
void posted_unmap(struct hca *h, u64 iova, u64 size);	/* before the memory is unmapped */
bool posted_tick(struct hca *h);

/*
 * ATS: translations of the IOMMU that the device has requested, and keeps until they are
 * invalidated. QEMU does not pass on invalidations of a device TLB, so DMA_UNMAP takes their place.
 */
#define ATS_CTRL 0x106		/* in configuration space */
#define ATC_PAGES 1024
struct atc {
	u64 page;
	const u8 *ptr;		/* NULL: there is none */
};

bool ats_enabled(struct hca *h);
bool ats_translates(struct hca *h, u64 iova);
void ats_access(struct hca *h, u64 iova);
void ats_invalidate(struct hca *h, u64 iova, u64 size);

/* A queue in guest memory, described by a page list. */
struct qbuf {
	u64 *pas;
	u32 npas, offset;
	u8 page_shift;
	u64 size;
};

int qbuf_init(struct qbuf *b, const void *pas, size_t pas_bytes, unsigned page_shift,
	      u32 page_offset, u64 size);
void qbuf_free(struct qbuf *b);
/* Must not cross a page. */
u8 *qbuf_ptr(struct hca *h, const struct qbuf *b, u64 off, u64 len, bool write);
/* May cross pages. */
bool qbuf_read(struct hca *h, const struct qbuf *b, u64 off, void *to, u64 len);

/* ---- queue.c: event queues, completion queues ---- */

struct eq {
	struct qbuf buf;
	u32 eqn, prod, ci;
	u8 log_size, intr;
	bool armed;
	u64 mask[4];
};

struct cq {
	struct qbuf buf;
	u32 cqn, prod, eqn;
	u8 log_size, cqe_shift;
	u64 dbr;
	bool armed, armed_solicited, overrun_ignore;
	u32 last_solicited;
	u8 cqc[MLX5_ST_SZ_BYTES(cqc)];
};

/* false: no EQ takes this type. */
bool event(struct hca *h, u8 type, u8 subtype, const void *data, size_t len);
void eq_doorbell(struct hca *h, u32 val, bool arm);
void cq_doorbell(struct hca *h, u32 hi, u32 cqn);
/* Fills in the owner bit, writes the CQE, raises the event. */
void cq_push(struct hca *h, u32 cqn, struct mlx5_cqe64 *cqe, u8 opcode, bool solicited);

/* ---- cmd.c ---- */

struct cmd_io;
typedef u8 cmd_fn(struct hca *h, struct cmd_io *io);	/* MLX5_CMD_STAT_* */

struct cmd {
	u16 op;
	const char *name;
	u32 in, out;		/* size of the layouts */
	cmd_fn *fn;
	size_t table;		/* for allocate, deallocate */
};
extern const struct cmd commands[];
extern const size_t ncommands;

struct cmd_io {
	const struct cmd *cmd;
	void *in, *out;		/* never shorter than what the command's layout needs */
	size_t inlen, outlen;
	u32 syndrome;
};

/*
 * A command that creates an object returns its number in 24 bits of the third word. Other commands
 * have the number of their object at the same place.
 */
void set_id(struct cmd_io *io, u32 id);
u32 get_id(const struct cmd_io *io);

void cmd_doorbell(struct hca *h, u32 vector);
bool cmd_tick(struct hca *h);	/* runs delayed commands; true: some still wait */

cmd_fn create_eq, destroy_eq, create_cq, destroy_cq, query_cq, modify_cq;
cmd_fn create_mkey, destroy_mkey, query_mkey, query_special_contexts;
cmd_fn create_qp, destroy_qp, modify_qp, query_qp, create_srq, destroy_srq, query_srq, arm_srq;
cmd_fn page_fault_resume;
cmd_fn query_hca_cap, set_hca_cap;

/* ---- caps.c ---- */

void caps_init(struct hca *h);

/* ---- mkey.c ---- */

struct mkey {
	u8 mkc[MLX5_ST_SZ_BYTES(mkc)];
	u32 index;
	bool pg_access;
	u8 *xlt;		/* MTTs, KSMs or KLMs, as the driver wrote them */
	u64 xlt_size;
	u64 top;		/* no MTT behind this one was ever present */
};

enum result { OK, PAGE_FAULT, DENIED };

enum { ACC_READ = 1, ACC_WRITE = 2, ACC_ATOMIC = 4, ACC_REMOTE = 8 };

struct xlat {
	u64 iova, len;
	u32 key;		/* of the leaf, or of the null mkey on a page fault */
	u64 va;			/* on a page fault: the address in this mkey */
	const char *why;	/* why denied */
	const struct mkey *leaf;	/* with the MTTs; NULL: none */
};

/*
 * A guest can request more work than can be done in its lifetime, for example nested lists of
 * single bytes. Each lookup of a translation and each page that is copied is a step. An operation
 * may take MAX_STEPS. A send queue takes TURN steps at a time.
 */
#ifndef MAX_STEPS
#define MAX_STEPS (1U << 24)
#define TURN (1U << 18)
#endif

#define PD_ANY (~0U)
enum result translate(struct hca *h, u32 key, u64 va, u64 len, unsigned int access, u32 pd,
		      struct xlat *x);
/* seg: the UMR WQE behind its control segment. Returns 0 or the syndrome of the completion. */
u8 umr(struct hca *h, u32 key, const u8 *seg, size_t len, u32 pd);
bool mkey_ats(const struct mkey *mk);
/* How many MTTs in use lead to this memory. */
u64 mtts_into(struct hca *h, u64 iova, u64 size);
void mkey_free(struct hca *h, struct mkey *mk);
/* A peer's SEND with invalidate: the sender no longer needs the memory window. */
void mkey_unbind(struct hca *h, u32 key);

/* ---- data.c: moves data between two ends ---- */

#define MAX_SGE 64
struct sge {
	const u8 *inline_data;	/* instead of key and va */
	u32 key;
	u64 va;
	u64 len;
};

struct end {
	u8 *buf;		/* memory of the model: the back door. Else: */
	u32 buf_size;
	struct sge sge[MAX_SGE];
	unsigned int n;
	u32 pd;
	bool remote;
	/* how the transport scheme reports its page faults */
	u8 pf_subtype, pf_type;
	u32 wq;
	u16 wqe_index;
};

struct fault;
struct xfer {
	struct end src, dst;
	u64 len, done;
	u32 laps;		/* page faults that did not help */
	bool resend;		/* an RDMA READ: its response may be dropped and asked for again */
	u8 atomic;		/* opcode, or 0 */
	u64 compare, swap_add;
	struct fault *fault;	/* what it waits for */
	bool failed_dst;	/* which end was denied */
	const char *why;
	void (*finish)(struct hca *h, struct xfer *x, enum result r);
	void *owner;
};

/* OK and DENIED: it has ended; finish() is not called. PAGE_FAULT: finish() will be called. */
enum result xfer_run(struct hca *h, struct xfer *x);

/* ---- fault.c ---- */

struct fault {
	bool used;
	u64 token;
	struct xfer *x;
	bool dst;
	/* what was asked for, as translate() takes it */
	u32 key, pd;
	u64 va;
	unsigned int access;
	bool parts;		/* reported by two events, which may be handled in any order */
	bool came;		/* the page was present, at least for a while */
	u64 until;		/* resumed, and continues at this time */
	u64 done;		/* the token that was resumed last without an error */
};

#define MAX_FAULTS 4096
#define MAX_LAPS 16		/* resumes in a row without the page */
/* off: offset in the element s of the scatter list */
bool fault_raise(struct hca *h, struct xfer *x, bool dst, const struct sge *s, u64 off,
		 unsigned int access, const struct xlat *at);
void fault_cancel(struct hca *h, struct xfer *x);	/* a late PAGE_FAULT_RESUME has no effect */
void fault_look(struct hca *h);		/* translations have changed */
bool fault_tick(struct hca *h);

/* ---- qp.c ---- */

struct srq {
	struct qbuf buf;
	u32 srqn, head;		/* head: index of the next WQE */
	u16 taken, lwm;
	u8 log_size, log_stride;
	u64 dbr;
	u32 pd;
	u8 srqc[MLX5_ST_SZ_BYTES(srqc)];
};

struct qp {
	u8 qpc[MLX5_ST_SZ_BYTES(qpc)];
	struct qbuf buf;
	u32 qpn;
	u8 state, st;
	u64 dbr, sq_off;
	u8 log_sq, log_rq, log_rq_stride;
	bool has_sq, has_rq;
	struct srq *srq;
	u16 sq_ci, rq_ci;
	/* the send WQE in work */
	bool busy;
	bool more;		/* its turn ended before the WQE was done */
	int retries;		/* left, while it waits for the responder; -1: for ever */
	u8 wqe[1024];
	u16 wqe_index;
	u8 opcode;
	u64 until;		/* held back: see hold() */
	struct xfer x;
	/* the peer's receive WQE that it fills */
	u32 peer_qpn;
	bool took_recv;
	u32 recv_srqn;
	u16 recv_index;
};

void sq_doorbell(struct hca *h, u32 qpn);
void sq_run(struct hca *h, struct qp *qp);
void qp_error(struct hca *h, struct qp *qp);
/*
 * Handles receive queues, which have no doorbell: a peer may wait for one, or it must be flushed.
 * True: call it again soon.
 */
bool qp_tick(struct hca *h);
void qp_destroy(struct hca *h, struct qp *qp);

/* ---- pci.c, backdoor.c ---- */

void hca_init(struct hca *h, bool memory_scheme, bool ats);
void hca_free(struct hca *h);
const struct stats *stats(struct hca *h);
void objects_free(struct hca *h, bool complain);

struct channel {
	u32 rkey, op, len, status;
	u64 va;
	u8 data[CHANNEL_SIZE - 4096];
	struct xfer x;
};

void door_read(struct hca *h, u64 off, void *to, u32 len);
void door_write(struct hca *h, u64 off, const void *from, u32 len);
void door_reset(struct hca *h);
bool inject(struct hca *h, u16 op);	/* must this command, or MLX5_OPCODE_UMR, fail? */
/* Must it still wait? *until is 0 at the first call, and 0 again when it may go on. */
bool hold(struct hca *h, u64 *until, u16 op);
/* For things that hardware may do: true once in n times at random, never while h->plain is set. */
bool once_in(struct hca *h, u32 n);
u32 dice(struct hca *h, u32 n);		/* below n */

enum { CAP_TYPES = 64 };

struct hca {
	/* set by main() */
	bool memory_scheme, ats;
	const char *record;

	struct stats stats;

	struct vfio_user dev;
	struct peer peer;
	/* copies of data in the peer's BAR, one for each end of the current operation */
	u8 far[2][PEER_MAX] __attribute__((aligned(8)));

	u64 cmdq;		/* address of the command queue */
	u32 nic_state, health_counter;
	u8 *cap_cur[CAP_TYPES], *cap_max[CAP_TYPES];
	u8 node_desc[64];

	struct table pd, uar, xrcd, td, eq, cq, mkey, qp, srq;
	u64 xlt_total, steps;
	struct fault fault[MAX_FAULTS];
	u32 fault_next, waiting;	/* waiting: faults that are resumed and continue later */
	u64 fault_gen;
	struct posted posted[MAX_POSTED];
	u32 nposted;
	u64 posted_until;
	struct atc atc[ATC_PAGES];

	struct channel channel[CHANNELS];
	u16 fail_op, fail_in;
	u8 fail_status;		/* MLX5_CMD_STAT_* */
	u16 fail_more;
	u16 slow_op, slow_ms;
	bool plain;
	u32 name;
	u64 seed;
	u32 held;		/* bit mask of command slots */
	u64 held_until[32];
	u8 syndrome;		/* of the dead firmware; 0: it is alive */
#define GONE 0xff		/* no syndrome of firmware: the device is off the bus */
};

#endif
