// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fuzzes WQEs: an HCA that is set up, with queue pairs of each kind, mkeys of each kind, and page
 * faults to be answered.
 */
#include "fuzz.h"

#include <stdlib.h>

#define NQP 16
#define QPN(i) (0x40 + (i))
#define CQN 0x80
#define SRQN 1
#define LOG_SQ 5		/* blocks of 64 bytes */
#define LOG_RQ 4		/* WQEs of 64 bytes */

#define EQ_BUF QUEUES
#define CQ_BUF (QUEUES + 0x1000)
#define DBR_CQ (QUEUES + 0x2000)
#define DBR_SRQ (DBR_CQ + 64)
#define DBR_QP(i) (DBR_SRQ + 64 * (1 + (i)))
#define SRQ_BUF (QUEUES + 0x3000)
#define QP_BUF(i) (QUEUES + 0x4000 + 0x1000 * (i))

/* The numbers of mkeys are given out from 0x10. */
enum { KEY_PA = 0x1000, KEY_MTT = 0x1100, KEY_KSM = 0x1200, KEY_KLM = 0x1300, KEY_FREE = 0x1400 };

/* The argument of a recorded WQE is the type of its QP. So each type below 16 is its own index. */
static const struct {
	u8 st, peer;
	bool srq;
} qps[NQP] = {
	{ MLX5_QP_ST_RC, 8, 0 }, { MLX5_QP_ST_UC, 9, 0 }, { MLX5_QP_ST_UD, 10, 0 },
	{ MLX5_QP_ST_XRC, 11, 0 }, { MLX5_QP_ST_MLX, 4, 0 }, { MLX5_QP_ST_RC, 6, 1 },
	{ MLX5_QP_ST_RC, 5, 1 }, { MLX5_QP_ST_QP0, 7, 0 }, { MLX5_QP_ST_RC, 0, 0 },
	{ MLX5_QP_ST_UC, 1, 0 }, { MLX5_QP_ST_UD, 2, 0 }, { MLX5_QP_ST_XRC, 3, 0 },
	{ MLX5_QP_ST_REG_UMR, 12, 0 }, { MLX5_QP_ST_RC, 13, 0 }, { MLX5_QP_ST_UD, 15, 1 },
	{ MLX5_QP_ST_UD, 14, 1 },
};

static u16 sq_at[NQP], rq_at[NQP], srq_at;	/* producers */

const u64 values[] = {
	0, 1, 2, 4, 8, 16, 24, 32, 63, 64, 0x80, 0xa0, 0xff, 0xffff, 0x100, 0x200, 0x1000,
	0x2000, 0x4000, 0x1ff8, KEY_PA, KEY_MTT, KEY_KSM, KEY_KLM, KEY_FREE, KEY_MTT + 1, DATA,
	DATA | 1, DATA | 2, DATA | 3, DATA + 0x1001, PEER, PEER | 3, READ_ONLY, READ_ONLY | 1,
	RAM_END - 8, QPN(0), QPN(8), QPN(2), QPN(10), SRQN, DBR_QP(0), QP_BUF(0), CMDQ, 1 << 13,
	1 << 29, 0x1f2083, 0x80000000, 0x80000004, 0x80000020, 0x3fffffff, 0x7fffffff, 0xffffffff,
	1ULL << 63, ~0ULL, ~0ULL - 7,
};
const unsigned int nvalues = ARRAY_SIZE(values);

/* ---- an HCA ---- */

static u32 in[256];
#define IN(layout, name)                                          \
	do {                                                      \
		memset(in, 0, sizeof(in));                        \
		MLX5_SET(layout, in, opcode, MLX5_CMD_OP_##name); \
	} while (0)

/* Runs a command without its mailboxes, which command.c fuzzes. */
static u8 run(struct hca *h, cmd_fn *fn, size_t len)
{
	u32 out[256] = { 0 };
	struct cmd_io io = { .in = in, .out = out, .inlen = len, .outlen = sizeof(out) };

	return fn(h, &io);
}

/* Creates an object, with these pages or translations behind the layout. This must not fail. */
static void create(struct hca *h, cmd_fn *fn, size_t at, const u64 *pages, u32 n)
{
	for (u32 i = 0; i < n; i++)
		((__be64 *)in)[at / 8 + i] = cpu_to_be64(pages[i]);
	if (run(h, fn, at + 8 * n))
		abort();
}

static void add_mkey(struct hca *h, u8 mode, const u64 *xlt, u32 n, bool is_free)
{
	void *mkc = MLX5_ADDR_OF(create_mkey_in, in, memory_key_mkey_entry);

	IN(create_mkey_in, CREATE_MKEY);
	MLX5_SET(create_mkey_in, in, pg_access, 1);
	MLX5_SET(create_mkey_in, in, translations_octword_actual_size, n / 2);
	MLX5_SET(mkc, mkc, translations_octword_size, n / 2);
	MLX5_SET(mkc, mkc, access_mode_1_0, mode);
	MLX5_SET(mkc, mkc, log_page_size, 12);
	MLX5_SET64(mkc, mkc, len, 0x10000);	/* longer than its translations */
	MLX5_SET(mkc, mkc, length64, mode == MLX5_MKC_ACCESS_MODE_PA);
	MLX5_SET(mkc, mkc, umr_en, 1);
	MLX5_SET(mkc, mkc, free, is_free);
	MLX5_SET(mkc, mkc, pd, 1);
	MLX5_SET(mkc, mkc, lr, 1);
	MLX5_SET(mkc, mkc, lw, 1);
	MLX5_SET(mkc, mkc, rr, 1);
	MLX5_SET(mkc, mkc, rw, 1);
	MLX5_SET(mkc, mkc, a, 1);
	create(h, create_mkey, MLX5_BYTE_OFF(create_mkey_in, klm_pas_mtt), xlt, n);
}

/*
 * Takes a QP from reset to the state in which it can send, with empty queues. rights of its peer:
 * bit 0 to read, bit 1 to write, bit 2 for atomic operations
 */
static void bring_up(struct hca *h, unsigned int i, unsigned int rights)
{
	void *qpc = MLX5_ADDR_OF(rst2init_qp_in, in, qpc);
	__be32 *dbr = (__be32 *)(ram + DBR_QP(i));

	sq_at[i] = rq_at[i] = 0;
	dbr[MLX5_RCV_DBR] = dbr[MLX5_SND_DBR] = 0;
	IN(rst2init_qp_in, RST2INIT_QP);
	MLX5_SET(rst2init_qp_in, in, qpn, QPN(i));
	MLX5_SET(qpc, qpc, pd, 1);
	MLX5_SET(qpc, qpc, rre, rights & 1);
	MLX5_SET(qpc, qpc, rwe, rights >> 1 & 1);
	MLX5_SET(qpc, qpc, rae, rights >> 2 & 1);
	run(h, modify_qp, MLX5_ST_SZ_BYTES(rst2init_qp_in));
	MLX5_SET(rst2init_qp_in, in, opcode, MLX5_CMD_OP_INIT2RTR_QP);
	MLX5_SET(qpc, qpc, remote_qpn, QPN(qps[i].peer));
	run(h, modify_qp, MLX5_ST_SZ_BYTES(rst2init_qp_in));
	MLX5_SET(rst2init_qp_in, in, opcode, MLX5_CMD_OP_RTR2RTS_QP);
	MLX5_SET(qpc, qpc, rnr_retry, 1);
	run(h, modify_qp, MLX5_ST_SZ_BYTES(rst2init_qp_in));
}

static void add_qp(struct hca *h, unsigned int i)
{
	void *qpc = MLX5_ADDR_OF(create_qp_in, in, qpc);

	IN(create_qp_in, CREATE_QP);
	MLX5_SET(qpc, qpc, st, qps[i].st);
	MLX5_SET(qpc, qpc, pd, 1);
	MLX5_SET(qpc, qpc, log_sq_size, LOG_SQ);
	MLX5_SET(qpc, qpc, log_rq_size, LOG_RQ);
	MLX5_SET(qpc, qpc, log_rq_stride, 2);
	MLX5_SET(qpc, qpc, rq_type,
		 qps[i].srq		     ? MLX5_SRQ_RQ :
		 qps[i].st == MLX5_QP_ST_XRC ? MLX5_ZERO_LEN_RQ :
					       MLX5_NON_ZERO_RQ);
	MLX5_SET(qpc, qpc, srqn_rmpn_xrqn, SRQN);
	MLX5_SET(qpc, qpc, cqn_snd, CQN);
	MLX5_SET(qpc, qpc, cqn_rcv, CQN);
	MLX5_SET64(qpc, qpc, dbr_addr, DBR_QP(i));
	create(h, create_qp, MLX5_BYTE_OFF(create_qp_in, pas), (u64[]){ QP_BUF(i) }, 1);
	bring_up(h, i, 7);
}

/* If not, the send queue is at the beginning of the buffer. */
static bool has_rq(unsigned int i)
{
	return !qps[i].srq && qps[i].st != MLX5_QP_ST_XRC;
}

static void post_recv(unsigned int i, const void *wqe, size_t len)
{
	bool srq = !has_rq(i);
	u16 *at = srq ? &srq_at : &rq_at[i], index = *at & ((1 << LOG_RQ) - 1);
	u8 *to = ram + (srq ? SRQ_BUF : QP_BUF(i)) + index * 64;

	memcpy(to, wqe, min(len, 64));
	if (srq)
		((struct mlx5_wqe_srq_next_seg *)to)->next_wqe_index = cpu_to_be16(index + 1);
	++*at;
	*(__be32 *)(ram + (srq ? DBR_SRQ : DBR_QP(i))) = cpu_to_be32(*at);
}

void begin(struct hca *h)
{
	struct mlx5_wqe_data_seg recv[4] = { { 0 },
					     { cpu_to_be32(0x1800), cpu_to_be32(KEY_MTT), 0 },
					     { 0, MLX5_TERMINATE_SCATTER_LIST_LKEY, 0 } };

	map_memory(h);
	vfio_user_write(&h->dev, 7, 4, (u8[]){ 6 }, 1);
	bar_write(h, offsetof(struct mlx5_init_seg, cmdq_addr_h), 0, 0, 1);
	bar_write(h, offsetof(struct mlx5_init_seg, cmdq_addr_l_sz), CMDQ, 0, 1);
	if (h->memory_scheme)
		MLX5_SET(odp_cap, h->cap_cur[2], mem_page_fault, 1);

	IN(create_eq_in, CREATE_EQ);
	MLX5_SET(create_eq_in, in, eq_context_entry.log_eq_size, 4);
	memset(MLX5_ADDR_OF(create_eq_in, in, event_bitmask), 0xff, 8);
	create(h, create_eq, MLX5_BYTE_OFF(create_eq_in, pas), (u64[]){ EQ_BUF }, 1);
	IN(create_cq_in, CREATE_CQ);
	MLX5_SET(create_cq_in, in, cq_context.log_cq_size, 4);
	MLX5_SET(create_cq_in, in, cq_context.c_eqn_or_apu_element, 1);
	MLX5_SET64(create_cq_in, in, cq_context.dbr_addr, DBR_CQ);
	create(h, create_cq, MLX5_BYTE_OFF(create_cq_in, pas), (u64[]){ CQ_BUF }, 1);

	/*
	 * Pages: present, present, absent, read-only, of a peer, in memory that is mapped for
	 * reading only, outside of all memory, absent
	 */
	add_mkey(h, MLX5_MKC_ACCESS_MODE_PA, NULL, 0, false);
	add_mkey(h, MLX5_MKC_ACCESS_MODE_MTT,
		 (u64[]){ DATA | 3, (DATA + 0x1000) | 3, 0, DATA | 1, PEER | 3, READ_ONLY | 3,
			  1ULL << 62 | 3, 0 },
		 8, false);
	add_mkey(h, MLX5_MKC_ACCESS_MODE_KSM,
		 (u64[]){ KEY_MTT, 0, 0x200, 0, KEY_KLM, 0, KEY_PA, DATA, KEY_KSM, 0x4000, KEY_MTT,
			  0x2000 },
		 12, false);
	add_mkey(h, MLX5_MKC_ACCESS_MODE_KLMS,
		 (u64[]){ 8ULL << 32 | KEY_MTT, 0, 0x1000ULL << 32 | KEY_PA, DATA + 4,
			  3ULL << 32 | KEY_KSM, 0x1001, 1ULL << 32 | KEY_MTT, 0x2000 },
		 8, false);
	add_mkey(h, MLX5_MKC_ACCESS_MODE_MTT, (u64[]){ 0, 0 }, 2, true);

	IN(create_srq_in, CREATE_SRQ);
	MLX5_SET(create_srq_in, in, srq_context_entry.log_srq_size, LOG_RQ);
	MLX5_SET(create_srq_in, in, srq_context_entry.log_rq_stride, 2);
	MLX5_SET(create_srq_in, in, srq_context_entry.pd, 1);
	MLX5_SET(create_srq_in, in, srq_context_entry.cqn, CQN);
	MLX5_SET64(create_srq_in, in, srq_context_entry.dbr_addr, DBR_SRQ);
	create(h, create_srq, MLX5_BYTE_OFF(create_srq_in, pas), (u64[]){ SRQ_BUF }, 1);
	srq_at = 0;
	for (unsigned int i = 0; i < NQP; i++) {
		add_qp(h, i);
		post_recv(i, recv, sizeof(recv));
	}
}

void end(void)
{
}

/* The driver consumes its events and completions, and arms both queues. */
static void consume(struct hca *h)
{
	const struct eq *eq = table_get(&h->eq, 1);
	const struct cq *cq = table_get(&h->cq, CQN);

	if (eq)
		bar_write(h, 0x10040, 1 << 24 | (eq->prod & 0xffffff), 0, 1);
	if (cq) {
		*(__be32 *)(ram + DBR_CQ) = cpu_to_be32(cq->prod);
		bar_write(h, 0x10020, cq->prod, CQN, 2);
	}
}

/* ---- records ---- */

/*
 * argument: the QP; 32: the driver consumes nothing; 64: the WQE keeps the length that it has; 128:
 * no doorbell
 */
static void run_wqe(struct hca *h, const struct rec *r)
{
	unsigned int i = r->arg % NQP, len = min(r->len, 1024);
	struct mlx5_wqe_ctrl_seg ctrl;
	u8 wqe[1024] = { 0 };

	if (!(r->arg & 32))
		consume(h);
	memcpy(wqe, r->data, len);
	memcpy(&ctrl, wqe, sizeof(ctrl));
	if (!(r->arg & 64))
		ctrl.qpn_ds = cpu_to_be32(QPN(i) << 8 | max((len + 15) / 16, 1));
	memcpy(wqe, &ctrl, sizeof(ctrl));
	for (unsigned int at = 0; at == 0 || at < len; at += 64, sq_at[i]++)
		memcpy(ram + QP_BUF(i) + (has_rq(i) ? 64 << LOG_RQ : 0) +
			       sq_at[i] % (1 << LOG_SQ) * 64,
		       wqe + at, 64);
	((__be32 *)(ram + DBR_QP(i)))[MLX5_SND_DBR] = cpu_to_be32(sq_at[i]);
	if (!(r->arg & 128))
		bar_write(h, 0x10800, 0, QPN(i) << 8, 2);
}

static void data_seg(u8 *at)
{
	static const u32 keys[] = { KEY_PA, KEY_MTT, KEY_MTT, KEY_KSM, KEY_KLM };
	static const u32 lengths[] = {
		0, 1, 8, 8, 64, 0x1000, 0x2800, 0x10000, MLX5_INLINE_SEG | 12
	};
	u32 key = keys[rnd(ARRAY_SIZE(keys))];
	struct mlx5_wqe_data_seg seg = { cpu_to_be32(lengths[rnd(ARRAY_SIZE(lengths))]),
					 cpu_to_be32(key),
					 cpu_to_be64((key == KEY_PA ? DATA : 0) + rnd(8) * 0xff8) };

	memcpy(at, &seg, sizeof(seg));
}

static u16 fill_wqe(struct rec *r, u8 *data)
{
	static const u8 ops[] = {
		MLX5_OPCODE_NOP,	MLX5_OPCODE_SEND,	    MLX5_OPCODE_SEND_IMM,
		MLX5_OPCODE_RDMA_WRITE, MLX5_OPCODE_RDMA_WRITE_IMM, MLX5_OPCODE_RDMA_READ,
		MLX5_OPCODE_ATOMIC_CS,	MLX5_OPCODE_ATOMIC_FA,	    MLX5_OPCODE_UMR,
		MLX5_OPCODE_SEND_INVAL
	};
	u8 op = ops[rnd(ARRAY_SIZE(ops))], st = qps[(r->arg &= 15)].st;
	struct mlx5_wqe_ctrl_seg ctrl = { .opmod_idx_opcode = cpu_to_be32(op),
					  .fm_ce_se = MLX5_WQE_CTRL_CQ_UPDATE | rnd(3),
					  .umr_mkey = cpu_to_be32(KEY_PA + rnd(5) * 0x100) };
	u16 at = sizeof(ctrl);

	memcpy(data, &ctrl, sizeof(ctrl));
	if (op == MLX5_OPCODE_UMR) {
		u32 n = 4 * rnd(3), is_inline = rnd(2);
		struct mlx5_wqe_umr_ctrl_seg umr = {
			.flags = MLX5_UMR_INLINE * is_inline |
				 MLX5_UMR_TRANSLATION_OFFSET_EN * rnd(2),
			.xlt_octowords = cpu_to_be16(n),
			.xlt_offset = cpu_to_be16(4 * rnd(3)),
			.mkey_mask = cpu_to_be64(rnd(2) ? values[rnd(nvalues)] : 0)
		};

		memcpy(data + at, &umr, sizeof(umr));
		at += sizeof(umr) + sizeof(struct mlx5_mkey_seg);
		for (u32 i = 0; is_inline && i < 2 * n; i++, at += 8)
			memcpy(data + at,
			       &(__be64){ cpu_to_be64(i & 1 ? DATA | 3 : values[rnd(nvalues)]) },
			       8);
	} else {
		if (st == MLX5_QP_ST_UD) {
			struct mlx5_av av = { .dqp_dct = cpu_to_be32(QPN(qps[r->arg].peer) |
								     MLX5_EXTENDED_UD_AV) };

			memcpy(data + at, &av, sizeof(av));
			at += sizeof(av);
		}
		if (st == MLX5_QP_ST_XRC) {
			struct mlx5_wqe_xrc_seg seg = { .xrc_srqn = cpu_to_be32(SRQN) };

			memcpy(data + at, &seg, sizeof(seg));
			at += sizeof(seg);
		}
		if (op != MLX5_OPCODE_SEND && op != MLX5_OPCODE_SEND_IMM &&
		    op != MLX5_OPCODE_SEND_INVAL && op != MLX5_OPCODE_NOP) {
			struct mlx5_wqe_raddr_seg raddr = { .raddr = cpu_to_be64(rnd(8) * 0xff8),
							    .rkey = cpu_to_be32(KEY_MTT +
										rnd(3) * 0x100) };

			memcpy(data + at, &raddr, sizeof(raddr));
			at += sizeof(raddr);
		}
		if (op == MLX5_OPCODE_ATOMIC_CS || op == MLX5_OPCODE_ATOMIC_FA) {
			data[at + 7] = 1;
			at += sizeof(struct mlx5_wqe_atomic_seg);
		}
	}
	for (u32 n = rnd(3); n--; at += 16)
		data_seg(data + at);
	return at;
}

/* argument: the QP; if it has no receive queue, the WQE goes to the SRQ */
static void run_recv(struct hca *h, const struct rec *r)
{
	post_recv(r->arg % NQP, r->data, r->len);
}

static u16 fill_recv(struct rec *r, u8 *data)
{
	for (int i = 0; i < 4; i++)
		data_seg(data + 16 * i);
	return 64;
}

/* Resumes a page fault; argument: 1: with an error; value: the number of the fault */
static void run_resume(struct hca *h, const struct rec *r)
{
	void *info = MLX5_ADDR_OF(page_fault_resume_in, in, page_fault_info);
	unsigned int n = r->value % 8;
	u64 token = r->value;

	consume(h);
	for (u32 i = 0; i < MAX_FAULTS && i < h->fault_next; i++)
		if (h->fault[i].used && !n--)
			token = h->fault[i].token;
	IN(page_fault_resume_in, PAGE_FAULT_RESUME);
	if (h->memory_scheme) {
		MLX5_SET(mem_page_fault_info, info, fault_token_47_32, token >> 32);
		MLX5_SET(mem_page_fault_info, info, fault_token_31_0, (u32)token);
		MLX5_SET(mem_page_fault_info, info, error, r->arg & 1);
	} else {
		MLX5_SET(trans_page_fault_info, info, fault_token, (u32)token);
		MLX5_SET(trans_page_fault_info, info, error, r->arg & 1);
	}
	run(h, page_fault_resume, MLX5_ST_SZ_BYTES(page_fault_resume_in));
}

/* argument: the QP; 16: to the error state, else through reset to bring_up(); value: the rights */
static void run_modify(struct hca *h, const struct rec *r)
{
	unsigned int i = r->arg % NQP;

	IN(qp_2rst_in, 2RST_QP);
	if (r->arg & 16)
		MLX5_SET(qp_2rst_in, in, opcode, MLX5_CMD_OP_2ERR_QP);
	MLX5_SET(qp_2rst_in, in, qpn, QPN(i));
	run(h, modify_qp, sizeof(in));
	if (!(r->arg & 16))
		bring_up(h, i, r->value);
}

/* argument: the operation and the channel; data: key, address, length */
static void run_door(struct hca *h, const struct rec *r)
{
	u64 at = (r->arg >> 4) % CHANNELS * CHANNEL_SIZE;

	consume(h);
	vfio_user_write(&h->dev, 4, at, r->data, 4);
	vfio_user_write(&h->dev, 4, at + 8, r->data + 4, 12);
	vfio_user_write(&h->dev, 4, at + 4, (u8[4]){ r->arg & 3 }, 4);
}

static u16 fill_door(struct rec *r, u8 *data)
{
	u32 key = KEY_MTT + rnd(3) * 0x100, len = rnd(0x3000);
	u64 va = rnd(8) * 0xff8;

	memcpy(data, &key, 4);
	memcpy(data + 4, &va, 8);
	memcpy(data + 12, &len, 4);
	return 16;
}

/* Unmaps the BAR of the peer, or a MiB of RAM; argument: 1: map it again; other bits: rights */
static void run_unmap(struct hca *h, const struct rec *r)
{
	u64 at = r->value & 1 ? PEER : (u64)(r->value % (RAM_END / RAM_SIZE)) * RAM_SIZE;

	vfio_user_unmap(&h->dev, at, at == PEER ? PEER_SIZE : RAM_SIZE);
	if (r->arg & 1)
		dma_map(&h->dev.dma, at, at == PEER ? PEER_SIZE : RAM_SIZE, 0, r->arg >> 1,
			at == PEER ? peer_fd : ram_fd);
}

/* Recorded WQEs are of the first kind. */
const struct kind kinds[] = {
	{ run_wqe, fill_wqe }, { run_recv, fill_recv }, { run_resume, NULL },
	{ run_modify, NULL },  { run_door, fill_door }, { run_unmap, NULL },
	COMMON_KINDS,
};
const unsigned int nkinds = ARRAY_SIZE(kinds);
