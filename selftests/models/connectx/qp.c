// SPDX-License-Identifier: GPL-2.0-only
/*
 * Queue pairs and shared receive queues: their commands, send WQEs, completions, and traffic
 * between QPs of this device.
 */
#include "connectx.h"

#include <stdlib.h>

#define QPC(qp, field) MLX5_GET(qpc, (qp)->qpc, field)

enum { RST, INIT, RTR, RTS, SQER, SQD, ERR };

#define RETRY_TICKS 4		/* of 5 ms, for each of the retries that the driver asks for */
#define FOR_EVER 7		/* rnr_retry */

/* ---- completions ---- */

static void complete_send(struct hca *h, struct qp *qp, u16 index, u8 opcode, u8 syndrome,
			  u32 bytes)
{
	struct mlx5_cqe64 cqe = { 0 };
	struct mlx5_err_cqe *err = (struct mlx5_err_cqe *)&cqe;

	cqe.sop_drop_qpn = cpu_to_be32((u32)opcode << 24 | qp->qpn);
	cqe.wqe_counter = cpu_to_be16(index);
	if (syndrome) {
		err->syndrome = syndrome;
		err->vendor_err_synd = 0x88;
	} else {
		cqe.byte_cnt = cpu_to_be32(bytes);
	}
	cq_push(h, QPC(qp, cqn_snd), &cqe, syndrome ? MLX5_CQE_REQ_ERR : MLX5_CQE_REQ, syndrome);
}

static void complete_recv(struct hca *h, struct qp *qp, struct srq *srq, u16 index, u8 opcode,
			  u8 syndrome, u32 bytes, __be32 imm, u32 from, bool solicited)
{
	u32 cqn = qp->st == MLX5_QP_ST_XRC && srq ? MLX5_GET(srqc, srq->srqc, cqn) :
						    QPC(qp, cqn_rcv);
	struct mlx5_cqe64 cqe = { 0 };
	struct mlx5_err_cqe *err = (struct mlx5_err_cqe *)&cqe;

	cqe.sop_drop_qpn = cpu_to_be32(qp->qpn);
	cqe.wqe_counter = cpu_to_be16(index);
	if (syndrome) {
		err->syndrome = syndrome;
		err->vendor_err_synd = 0x88;
		opcode = MLX5_CQE_RESP_ERR;
	} else {
		cqe.byte_cnt = cpu_to_be32(bytes);
		cqe.immediate = imm;
		cqe.flags_rqpn = cpu_to_be32(from);
		cqe.slid = cpu_to_be16(1);
	}
	if (srq)
		cqe.srqn = cpu_to_be32(srq->srqn);
	cq_push(h, cqn, &cqe, opcode, solicited || syndrome);
}

/* ---- receive queues ---- */

static u16 posted(struct hca *h, u64 dbr)
{
	__be32 n = 0;

	dma_read(h, dbr, &n, 4);
	return be32_to_cpu(n);
}

static bool rq_has(struct hca *h, struct qp *qp, struct srq *srq)
{
	if (srq)
		return posted(h, srq->dbr) != srq->taken;
	return qp->has_rq && posted(h, qp->dbr + 4 * MLX5_RCV_DBR) != qp->rq_ci;
}

/* The next receive WQE of the SRQ, if there is one, or of the QP. */
static bool rq_take(struct hca *h, struct qp *qp, struct srq *srq, struct end *e, u16 *index,
		    u64 *room)
{
	struct mlx5_wqe_data_seg seg[512 / 16];
	struct mlx5_wqe_srq_next_seg next;
	struct qbuf *buf;
	u32 size, at, i = 0;

	*room = 0;
	if (!rq_has(h, qp, srq))
		return false;
	if (srq) {
		size = 1U << (srq->log_stride + 4);
		*index = srq->head & ((1U << srq->log_size) - 1);
		buf = &srq->buf;
		i = 1;		/* behind the link */
	} else {
		size = 1U << (qp->log_rq_stride + 4);
		*index = qp->rq_ci;
		buf = &qp->buf;
	}
	at = (*index & ((1U << (srq ? srq->log_size : qp->log_rq)) - 1)) * size;
	size = min(size, sizeof(seg));
	if (!qbuf_read(h, buf, at, seg, size))
		return false;
	if (srq) {
		memcpy(&next, seg, sizeof(next));
		srq->head = be16_to_cpu(next.next_wqe_index);
		srq->taken++;
	} else {
		qp->rq_ci++;
	}
	e->n = 0;
	e->remote = false;
	e->pd = srq ? srq->pd : QPC(qp, pd);
	e->pf_subtype = MLX5_PFAULT_SUBTYPE_WQE;
	e->pf_type = srq ? MLX5_WQE_PF_TYPE_RMP : MLX5_WQE_PF_TYPE_RESP;
	e->wq = srq ? srq->srqn : qp->qpn;
	e->wqe_index = *index;
	for (; i < size / sizeof(seg[0]); i++) {
		u64 len = be32_to_cpu(seg[i].byte_count);

		if (seg[i].lkey == MLX5_TERMINATE_SCATTER_LIST_LKEY)
			break;
		if (!len)
			continue;
		e->sge[e->n++] = (struct sge){ .key = be32_to_cpu(seg[i].lkey),
					       .va = be64_to_cpu(seg[i].addr),
					       .len = len };
		*room += len;
	}
	return true;
}

static void rq_flush(struct hca *h, struct qp *qp)
{
	u16 n;

	if (!qp->has_rq || qp->srq)
		return;
	n = posted(h, qp->dbr + 4 * MLX5_RCV_DBR) - qp->rq_ci;
	if (n > 1U << qp->log_rq) {
		violation(h, "QP %#x: %u receive WQEs posted, there is room for %u", qp->qpn, n,
			  1U << qp->log_rq);
		qp->rq_ci += n;
		return;
	}
	while (n--)
		complete_recv(h, qp, NULL, qp->rq_ci++, 0, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, 0, 0, 0,
			      false);
}

void qp_error(struct hca *h, struct qp *qp)
{
	if (qp->state == ERR || qp->state == RST)
		return;
	qp->state = ERR;
	/* Receive WQEs that are posted later have no doorbell. */
	h->dev.ticking = true;
	if (qp->busy) {
		fault_cancel(h, &qp->x);
		qp->busy = false;
		complete_send(h, qp, qp->wqe_index, qp->opcode, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, 0);
	}
	rq_flush(h, qp);
	sq_run(h, qp);
}

/* Its remote access was refused. */
static void responder_error(struct hca *h, struct qp *qp, bool access)
{
	struct mlx5_eqe_qp_srq e = { .qp_srq_n = cpu_to_be32(qp->qpn) };

	event(h, access ? MLX5_EVENT_TYPE_WQ_ACCESS_ERROR : MLX5_EVENT_TYPE_WQ_INVAL_REQ_ERROR, 0,
	      &e, sizeof(e));
	qp_error(h, qp);
}

/* ---- send queues ---- */

#define RADDR 1		/* the WQE has a remote address */
#define RECV 2		/* consumes a receive WQE */
#define TO_US 4		/* data moves from the responder to the requester */
#define IMM 8
#define ATOMIC 16

static const struct send_op {
	u8 opcode, flags, right;	/* right: ACC_ bit that the responder's QP must allow */
	u8 recv_cqe;
} send_ops[] = {
	{ MLX5_OPCODE_SEND, RECV, 0, MLX5_CQE_RESP_SEND },
	{ MLX5_OPCODE_SEND_IMM, RECV | IMM, 0, MLX5_CQE_RESP_SEND_IMM },
	{ MLX5_OPCODE_SEND_INVAL, RECV | IMM, 0, MLX5_CQE_RESP_SEND_INV },
	{ MLX5_OPCODE_RDMA_WRITE, RADDR, ACC_WRITE, 0 },
	{ MLX5_OPCODE_RDMA_WRITE_IMM, RADDR | RECV | IMM, ACC_WRITE, MLX5_CQE_RESP_WR_IMM },
	{ MLX5_OPCODE_RDMA_READ, RADDR | TO_US, ACC_READ, 0 },
	{ MLX5_OPCODE_ATOMIC_CS, RADDR | TO_US | ATOMIC, ACC_ATOMIC, 0 },
	{ MLX5_OPCODE_ATOMIC_FA, RADDR | TO_US | ATOMIC, ACC_ATOMIC, 0 },
};

static const struct send_op *send_op(u8 opcode)
{
	for (size_t i = 0; i < ARRAY_SIZE(send_ops); i++)
		if (send_ops[i].opcode == opcode)
			return &send_ops[i];
	return NULL;
}

static const struct mlx5_wqe_ctrl_seg *ctrl(const struct qp *qp)
{
	return (const struct mlx5_wqe_ctrl_seg *)qp->wqe;
}

static void wqe_done(struct hca *h, struct qp *qp, u8 syndrome, u32 bytes)
{
	qp->busy = false;
	if (syndrome) {
		complete_send(h, qp, qp->wqe_index, qp->opcode, syndrome, 0);
		qp_error(h, qp);
	} else if (ctrl(qp)->fm_ce_se & MLX5_WQE_CTRL_CQ_UPDATE) {
		complete_send(h, qp, qp->wqe_index, qp->opcode, 0, bytes);
	}
}

/* The data has moved, or has not. */
static void wqe_end(struct hca *h, struct qp *qp, enum result r)
{
	const struct send_op *op = send_op(qp->opcode);
	struct qp *peer = table_get(&h->qp, qp->peer_qpn);
	struct srq *srq = table_get(&h->srq, qp->recv_srqn);
	bool at_peer = qp->x.failed_dst != !!(op->flags & TO_US), took = qp->took_recv;

	qp->took_recv = false;
	if (r == OK) {
		if (qp->opcode == MLX5_OPCODE_SEND_INVAL)
			mkey_unbind(h, be32_to_cpu(ctrl(qp)->imm));
		if (took && peer)
			complete_recv(h, peer, srq, qp->recv_index, op->recv_cqe, 0, qp->x.len,
				      op->flags & IMM ? ctrl(qp)->imm : 0, qp->qpn,
				      ctrl(qp)->fm_ce_se & MLX5_WQE_CTRL_SOLICITED);
		wqe_done(h, qp, 0, qp->x.len);
		return;
	}
	note(h, "QP %#x, WQE %#x, opcode %#x: %s end: %s", qp->qpn, qp->wqe_index, qp->opcode,
	     at_peer ? "remote" : "local", qp->x.why);
	if (!at_peer) {
		/* The responder has not seen all of the message: its receive WQE is still there. */
		if (took && peer && !srq)
			peer->rq_ci--;
		wqe_done(h, qp, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, 0);
		return;
	}
	if (took && peer)
		complete_recv(h, peer, srq, qp->recv_index, 0, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, 0,
			      0, 0, false);
	if (peer)
		responder_error(h, peer, !took);
	if (qp->st == MLX5_QP_ST_UD) {
		wqe_done(h, qp, 0, 0);
		return;
	}
	wqe_done(h, qp,
		 op->flags & RADDR ? MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR :
				     MLX5_CQE_SYNDROME_REMOTE_OP_ERR,
		 0);
}

static void wqe_resumed(struct hca *h, struct xfer *x, enum result r)
{
	struct qp *qp = x->owner;

	wqe_end(h, qp, r);
	sq_run(h, qp);
}

static bool allows(const struct qp *peer, u8 right)
{
	return !right || (right == ACC_READ && QPC(peer, rre)) ||
	       (right == ACC_WRITE && QPC(peer, rwe)) || (right == ACC_ATOMIC && QPC(peer, rae));
}

/* Fills in the local end from the data segments. */
static bool gather(struct qp *qp, size_t at, size_t len, struct end *e)
{
	while (at + 16 <= len) {
		u32 count = be32_to_cpu(*(__be32 *)(qp->wqe + at));
		struct mlx5_wqe_data_seg seg;

		if (e->n == MAX_SGE)
			return false;
		if (count & MLX5_INLINE_SEG) {
			count &= MLX5_WQE_INLINE_SEG_BYTE_COUNT_MASK;
			if (at + 4 + count > len)
				return false;
			e->sge[e->n++] =
				(struct sge){ .inline_data = qp->wqe + at + 4, .len = count };
			at += (4 + count + 15) & ~15;
			continue;
		}
		memcpy(&seg, qp->wqe + at, sizeof(seg));
		/* A length of 0 means 2 GiB. */
		e->sge[e->n++] = (struct sge){ .key = be32_to_cpu(seg.lkey),
					       .va = be64_to_cpu(seg.addr),
					       .len = count ? count : 1U << 31 };
		at += sizeof(seg);
	}
	return true;
}

/*
 * A request to another QP. False: the peer is not ready, try again. A datagram that cannot be
 * delivered is lost.
 */
static bool request(struct hca *h, struct qp *qp, const struct send_op *op, size_t len)
{
	static const u8 no_grh[40];
	bool datagram = qp->st == MLX5_QP_ST_UD;
	struct xfer *x = &qp->x;
	struct end local = { .pd = QPC(qp, pd),
			     .pf_subtype = MLX5_PFAULT_SUBTYPE_WQE,
			     .wq = qp->qpn,
			     .wqe_index = qp->wqe_index };
	struct end remote = { .n = 0 };
	size_t at = sizeof(struct mlx5_wqe_ctrl_seg);
	u32 peer_qpn = QPC(qp, remote_qpn), qkey = 0;
	struct mlx5_wqe_raddr_seg raddr = { 0 };
	struct srq *srq = NULL;
	struct qp *peer;
	enum result r;
	u64 room;

	*x = (struct xfer){ .finish = wqe_resumed, .owner = qp };
	qp->took_recv = false;
	if (datagram) {
		struct mlx5_av av;

		memcpy(&av, qp->wqe + at, sizeof(av));
		peer_qpn = be32_to_cpu(av.dqp_dct) & 0xffffff;
		qkey = be32_to_cpu(av.key.qkey.qkey);
		at += be32_to_cpu(av.dqp_dct) & MLX5_EXTENDED_UD_AV ? sizeof(av) :
								      sizeof(struct mlx5_base_av);
		/*
		 * The receive WQE has room for a global header in front of the data, also if the
		 * datagram has none.
		 */
		local.sge[local.n++] = (struct sge){ .inline_data = no_grh, .len = sizeof(no_grh) };
	}
	if (qp->st == MLX5_QP_ST_XRC) {
		struct mlx5_wqe_xrc_seg seg;

		memcpy(&seg, qp->wqe + at, sizeof(seg));
		srq = table_get(&h->srq, be32_to_cpu(seg.xrc_srqn));
		at += sizeof(seg);
	}
	if (op->flags & RADDR) {
		memcpy(&raddr, qp->wqe + at, sizeof(raddr));
		at += sizeof(raddr);
	}
	if (op->flags & ATOMIC) {
		struct mlx5_wqe_atomic_seg seg;

		memcpy(&seg, qp->wqe + at, sizeof(seg));
		at += sizeof(seg);
		x->atomic = op->opcode;
		x->swap_add = be64_to_cpu(seg.swap_add);
		x->compare = be64_to_cpu(seg.compare);
	}
	local.pf_type = op->flags & TO_US ? MLX5_WQE_PF_TYPE_REQ_READ_OR_ATOMIC :
					    MLX5_WQE_PF_TYPE_REQ_SEND_OR_WRITE;
	if (at > len || !gather(qp, at, len, &local) || (datagram && op->flags & RADDR)) {
		wqe_done(h, qp, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, 0);
		return true;
	}
	for (unsigned int i = 0; i < local.n; i++)
		x->len += local.sge[i].len;
	if (x->len > 1U << 31) {
		wqe_done(h, qp, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, 0);
		return true;
	}
	peer = table_get(&h->qp, peer_qpn);
	if (!peer || peer->st != qp->st || (peer->state != RTR && peer->state != RTS) ||
	    (datagram ? QPC(peer, q_key) != qkey : QPC(peer, remote_qpn) != qp->qpn)) {
		if (datagram)
			wqe_done(h, qp, 0, 0);
		return datagram;
	}
	if (qp->st != MLX5_QP_ST_XRC)
		srq = peer->srq;
	else if (srq && MLX5_GET(srqc, srq->srqc, xrcd) != QPC(peer, xrcd))
		srq = NULL;
	qp->peer_qpn = peer->qpn;
	qp->recv_srqn = srq ? srq->srqn : 0;
	if (!allows(peer, op->right)) {
		note(h, "QP %#x does not allow opcode %#x to its peer", peer->qpn, op->opcode);
		wqe_done(h, qp, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, 0);
		responder_error(h, peer, true);
		return true;
	}
	if (op->flags & RECV) {
		if (!rq_take(h, peer, srq, &remote, &qp->recv_index, &room)) {
			if (datagram)
				wqe_done(h, qp, 0, 0);
			return datagram;
		}
		qp->took_recv = true;
		if (!(op->flags & RADDR) && room < x->len) {
			qp->took_recv = false;
			complete_recv(h, peer, srq, qp->recv_index, 0,
				      MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, 0, 0, 0, false);
			responder_error(h, peer, false);
			wqe_done(h, qp, datagram ? 0 : MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR, 0);
			return true;
		}
	}
	if (op->flags & RADDR) {
		/* An XRC target QP belongs to no process, so its PD is that of the SRQ. */
		remote = (struct end){ .n = 1,
				       .remote = true,
				       .pf_subtype = MLX5_PFAULT_SUBTYPE_RDMA,
				       .pd = qp->st == MLX5_QP_ST_XRC && srq ? srq->pd :
									       QPC(peer, pd) };
		/* The driver's MLX5_PFAULT_RDMA, MLX5_PFAULT_WRITE. */
		remote.pf_type = op->flags & TO_US ? 4 : 6;
		remote.sge[0] = (struct sge){ .key = be32_to_cpu(raddr.rkey),
					      .va = be64_to_cpu(raddr.raddr),
					      .len = op->flags & ATOMIC ? 8 : x->len };
	}
	x->resend = op->flags & TO_US && !(op->flags & ATOMIC);
	x->src = op->flags & TO_US ? remote : local;
	x->dst = op->flags & TO_US ? local : remote;
	r = xfer_run(h, x);
	if (r != PAGE_FAULT)
		wqe_end(h, qp, r);
	return true;
}

/* False: it waits for its peer. */
static bool wqe_run(struct hca *h, struct qp *qp)
{
	size_t len = (be32_to_cpu(ctrl(qp)->qpn_ds) & MLX5_WQE_CTRL_DS_MASK) * MLX5_WQE_DS_UNITS;
	const struct send_op *op = send_op(qp->opcode);
	bool injected;
	u8 syndrome;

	if (qp->opcode == MLX5_OPCODE_NOP) {
		wqe_done(h, qp, 0, 0);
		return true;
	}
	if (qp->opcode == MLX5_OPCODE_UMR) {
		if (hold(h, &qp->until, MLX5_OPCODE_UMR))
			return false;
		injected = inject(h, MLX5_OPCODE_UMR);
		syndrome = injected ? MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR :
				      umr(h, be32_to_cpu(ctrl(qp)->umr_mkey), qp->wqe + 16,
					  len - 16, QPC(qp, pd));
		h->stats.bad_umrs += syndrome && !injected;
		wqe_done(h, qp, syndrome, 0);
		return true;
	}
	switch (qp->st) {
	case MLX5_QP_ST_RC:
	case MLX5_QP_ST_UC:
	case MLX5_QP_ST_UD:
	case MLX5_QP_ST_XRC:
		if (op)
			return request(h, qp, op, len);
		break;
	case MLX5_QP_ST_MLX:
	case MLX5_QP_ST_QP0:
	case MLX5_QP_ST_QP1:
		/* Management datagrams are dropped, because nobody would answer. */
		wqe_done(h, qp, 0, 0);
		return true;
	}
	note(h, "QP %#x of type %u: opcode %#x is not there", qp->qpn, qp->st, qp->opcode);
	wqe_done(h, qp, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, 0);
	return true;
}

/* A WQE wraps around at the end of the queue. */
static bool wqe_fetch(struct hca *h, struct qp *qp, u16 index)
{
	u32 size = 64U << qp->log_sq, at = (index * 64U) & (size - 1), len;

	if (!qbuf_read(h, &qp->buf, qp->sq_off + at, qp->wqe, 64))
		return false;
	len = (be32_to_cpu(ctrl(qp)->qpn_ds) & MLX5_WQE_CTRL_DS_MASK) * 16;
	if (len < 16 || len > size)
		return false;
	for (u32 done = 64; done < len; done += 64)
		if (!qbuf_read(h, &qp->buf, qp->sq_off + ((at + done) & (size - 1)), qp->wqe + done,
			       min(64, sizeof(qp->wqe) - done)))
			return false;
	record(h, "wqe", 0, qp->st, 0, qp->wqe, len);
	qp->wqe_index = index;
	qp->opcode = be32_to_cpu(ctrl(qp)->opmod_idx_opcode) & MLX5_WQE_CTRL_OPCODE_MASK;
	return true;
}

void sq_run(struct hca *h, struct qp *qp)
{
	u64 enough = h->steps + TURN;

	while (!h->syndrome && qp->has_sq && !qp->busy && (qp->state == RTS || qp->state == ERR)) {
		u16 n = posted(h, qp->dbr + 4 * MLX5_SND_DBR) - qp->sq_ci;
		u32 blocks;

		if (!n)
			return;
		if (h->steps++ > enough) {
			qp->more = h->dev.ticking = true;
			return;
		}
		if (n > 1U << qp->log_sq || !wqe_fetch(h, qp, qp->sq_ci)) {
			violation(h, "QP %#x: send queue of %u blocks: %u posted, or a bad WQE",
				  qp->qpn, 1U << qp->log_sq, n);
			qp->sq_ci += n;
			qp_error(h, qp);
			return;
		}
		blocks = ((be32_to_cpu(ctrl(qp)->qpn_ds) & MLX5_WQE_CTRL_DS_MASK) + 3) / 4;
		qp->sq_ci += blocks;
		if (qp->state == ERR) {
			complete_send(h, qp, qp->wqe_index, qp->opcode,
				      MLX5_CQE_SYNDROME_WR_FLUSH_ERR, 0);
			continue;
		}
		qp->busy = true;
		qp->retries = 0;
		qp->until = 0;
		if (!wqe_run(h, qp)) {
			u32 rnr = QPC(qp, rnr_retry);

			qp->retries = rnr == FOR_EVER || qp->until ? -1 :
								     (int)(rnr + 1) * RETRY_TICKS;
			h->dev.ticking = true;
		}
	}
}

void sq_doorbell(struct hca *h, u32 qpn)
{
	struct qp *qp = table_get(&h->qp, qpn);

	if (!qp)
		violation(h, "doorbell of QP %#x, which does not exist", qpn);
	else
		sq_run(h, qp);
}

bool qp_tick(struct hca *h)
{
	bool again = false;
	struct qp *qp;

	if (h->syndrome)
		return false;
	table_for_each(&h->qp, i, qp) {
		if (qp->state == ERR) {
			rq_flush(h, qp);
			again = true;
		}
		if (qp->more) {
			qp->more = false;
			sq_run(h, qp);
			again |= qp->more;
		}
		if (!qp->busy || !qp->retries || qp->x.fault)
			continue;
		again = true;
		if (qp->retries > 0 && !--qp->retries) {
			struct qp *peer = table_get(&h->qp, QPC(qp, remote_qpn));

			wqe_done(h, qp,
				 peer && (peer->state == RTR || peer->state == RTS) ?
					 MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR :
					 MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR,
				 0);
		} else if (wqe_run(h, qp)) {
			qp->retries = 0;
			sq_run(h, qp);
		}
	}
	return again;
}

/* ---- commands ---- */

u8 create_qp(struct hca *h, struct cmd_io *io)
{
	void *qpc = MLX5_ADDR_OF(create_qp_in, io->in, qpc);
	size_t pas = MLX5_BYTE_OFF(create_qp_in, pas);
	struct qp *qp = calloc(1, sizeof(*qp));
	u32 rq_type;
	int n;

	if (!qp)
		return MLX5_CMD_STAT_NO_RES_ERR;
	memcpy(qp->qpc, qpc, sizeof(qp->qpc));
	qp->st = QPC(qp, st);
	qp->dbr = MLX5_GET64(qpc, qpc, dbr_addr);
	qp->log_sq = QPC(qp, log_sq_size);
	qp->log_rq = QPC(qp, log_rq_size);
	qp->log_rq_stride = QPC(qp, log_rq_stride);
	rq_type = QPC(qp, rq_type);
	qp->has_sq = !QPC(qp, no_sq);
	qp->has_rq = rq_type == MLX5_NON_ZERO_RQ;
	/* Both queues are in one buffer, the receive queue first. */
	qp->sq_off = qp->has_rq ? 16ULL << (qp->log_rq + qp->log_rq_stride) : 0;
	if (rq_type == MLX5_SRQ_RQ)
		qp->srq = table_get(&h->srq, QPC(qp, srqn_rmpn_xrqn));
	if ((rq_type == MLX5_SRQ_RQ && !qp->srq) || !table_get(&h->cq, QPC(qp, cqn_snd)) ||
	    (qp->has_rq && !table_get(&h->cq, QPC(qp, cqn_rcv))) ||
	    qbuf_init(&qp->buf, (u8 *)io->in + pas, io->inlen - pas, QPC(qp, log_page_size) + 12,
		      QPC(qp, page_offset), qp->sq_off + (qp->has_sq ? 64ULL << qp->log_sq : 0))) {
		free(qp);
		return MLX5_CMD_STAT_BAD_PARAM_ERR;
	}
	n = table_add(&h->qp, qp);
	if (n < 0) {
		qbuf_free(&qp->buf);
		free(qp);
		return MLX5_CMD_STAT_LIM_ERR;
	}
	qp->qpn = n;
	set_id(io, n);
	return MLX5_CMD_STAT_OK;
}

void qp_destroy(struct hca *h, struct qp *qp)
{
	fault_cancel(h, &qp->x);
	qbuf_free(&qp->buf);
	free(qp);
}

u8 destroy_qp(struct hca *h, struct cmd_io *io)
{
	struct qp *qp = table_del(&h->qp, get_id(io));

	if (!qp)
		return MLX5_CMD_STAT_BAD_RES_ERR;
	qp_destroy(h, qp);
	return MLX5_CMD_STAT_OK;
}

u8 query_qp(struct hca *h, struct cmd_io *io)
{
	struct qp *qp = table_get(&h->qp, get_id(io));
	void *qpc = MLX5_ADDR_OF(query_qp_out, io->out, qpc);

	if (!qp)
		return MLX5_CMD_STAT_BAD_RES_ERR;
	memcpy(qpc, qp->qpc, sizeof(qp->qpc));
	MLX5_SET(qpc, qpc, state, qp->state);
	return MLX5_CMD_STAT_OK;
}

#define ANY 0x7f
static const struct transition {
	u16 op;
	u8 from, to;		/* from: bit mask of states */
} transitions[] = {
	{ MLX5_CMD_OP_RST2INIT_QP, 1 << RST, INIT },
	{ MLX5_CMD_OP_INIT2INIT_QP, 1 << INIT, INIT },
	{ MLX5_CMD_OP_INIT2RTR_QP, 1 << INIT, RTR },
	{ MLX5_CMD_OP_RTR2RTS_QP, 1 << RTR, RTS },
	{ MLX5_CMD_OP_RTS2RTS_QP, 1 << RTS, RTS },
	{ MLX5_CMD_OP_2ERR_QP, ANY, ERR },
	{ MLX5_CMD_OP_2RST_QP, ANY, RST },
};

#define TAKE(field) MLX5_SET(qpc, qp->qpc, field, MLX5_GET(qpc, in, field))

/* Takes the fields that a transition always sets, and those that its mask selects. */
static void take(struct qp *qp, u16 op, const void *in, u32 mask)
{
	if (op == MLX5_CMD_OP_RST2INIT_QP) {
		/* The driver creates its UMR QP without a PD. */
		TAKE(pd);
		mask |= MLX5_QP_OPTPAR_RRE | MLX5_QP_OPTPAR_RWE | MLX5_QP_OPTPAR_RAE |
			MLX5_QP_OPTPAR_PKEY_INDEX | MLX5_QP_OPTPAR_PRI_PORT | MLX5_QP_OPTPAR_Q_KEY;
	}
	if (op == MLX5_CMD_OP_INIT2RTR_QP) {
		TAKE(mtu);
		TAKE(log_msg_max);
		TAKE(remote_qpn);
		TAKE(next_rcv_psn);
		TAKE(log_rra_max);
		TAKE(min_rnr_nak);
		TAKE(primary_address_path.grh);
		TAKE(primary_address_path.mlid);
		TAKE(primary_address_path.rlid);
		TAKE(primary_address_path.src_addr_index);
		TAKE(primary_address_path.stat_rate);
		TAKE(primary_address_path.hop_limit);
		TAKE(primary_address_path.tclass);
		TAKE(primary_address_path.flow_label);
		TAKE(primary_address_path.sl);
		memcpy(MLX5_ADDR_OF(qpc, qp->qpc, primary_address_path.rgid_rip),
		       MLX5_ADDR_OF(qpc, in, primary_address_path.rgid_rip), 16);
	}
	if (op == MLX5_CMD_OP_RTR2RTS_QP) {
		TAKE(next_send_psn);
		TAKE(log_sra_max);
		TAKE(retry_count);
		TAKE(rnr_retry);
		TAKE(primary_address_path.ack_timeout);
	}
	if (mask & MLX5_QP_OPTPAR_RRE)
		TAKE(rre);
	if (mask & MLX5_QP_OPTPAR_RWE)
		TAKE(rwe);
	if (mask & MLX5_QP_OPTPAR_RAE)
		TAKE(rae);
	if (mask & MLX5_QP_OPTPAR_PKEY_INDEX)
		TAKE(primary_address_path.pkey_index);
	if (mask & MLX5_QP_OPTPAR_PRI_PORT)
		TAKE(primary_address_path.vhca_port_num);
	if (mask & MLX5_QP_OPTPAR_Q_KEY)
		TAKE(q_key);
	if (mask & MLX5_QP_OPTPAR_RNR_TIMEOUT)
		TAKE(min_rnr_nak);
}

u8 modify_qp(struct hca *h, struct cmd_io *io)
{
	struct qp *qp = table_get(&h->qp, get_id(io));
	u16 op = MLX5_GET(rst2init_qp_in, io->in, opcode);
	const struct transition *t = transitions;

	while (t->op != op)
		t++;
	if (!qp)
		return MLX5_CMD_STAT_BAD_RES_ERR;
	if (!(t->from & 1 << qp->state))
		return MLX5_CMD_STAT_BAD_QP_STATE_ERR;
	if (t->to == ERR) {
		qp_error(h, qp);
		qp->state = ERR;
		return MLX5_CMD_STAT_OK;
	}
	if (t->to == RST) {
		fault_cancel(h, &qp->x);
		qp->busy = false;
		qp->sq_ci = qp->rq_ci = 0;
	} else {
		take(qp, op, MLX5_ADDR_OF(rst2init_qp_in, io->in, qpc),
		     MLX5_GET(rst2init_qp_in, io->in, opt_param_mask));
	}
	qp->state = t->to;
	sq_run(h, qp);
	return MLX5_CMD_STAT_OK;
}

u8 create_srq(struct hca *h, struct cmd_io *io)
{
	void *srqc = MLX5_ADDR_OF(create_srq_in, io->in, srq_context_entry);
	size_t pas = MLX5_BYTE_OFF(create_srq_in, pas);
	struct srq *srq = calloc(1, sizeof(*srq));
	int n;

	if (!srq)
		return MLX5_CMD_STAT_NO_RES_ERR;
	memcpy(srq->srqc, srqc, sizeof(srq->srqc));
	srq->log_size = MLX5_GET(srqc, srqc, log_srq_size);
	srq->log_stride = MLX5_GET(srqc, srqc, log_rq_stride);
	srq->dbr = MLX5_GET64(srqc, srqc, dbr_addr);
	srq->pd = MLX5_GET(srqc, srqc, pd);
	if (qbuf_init(&srq->buf, (u8 *)io->in + pas, io->inlen - pas,
		      MLX5_GET(srqc, srqc, log_page_size) + 12, MLX5_GET(srqc, srqc, page_offset),
		      16ULL << (srq->log_size + srq->log_stride))) {
		free(srq);
		return MLX5_CMD_STAT_BAD_PARAM_ERR;
	}
	n = table_add(&h->srq, srq);
	if (n < 0) {
		qbuf_free(&srq->buf);
		free(srq);
		return MLX5_CMD_STAT_LIM_ERR;
	}
	srq->srqn = n;
	set_id(io, n);
	return MLX5_CMD_STAT_OK;
}

u8 destroy_srq(struct hca *h, struct cmd_io *io)
{
	struct srq *srq = table_get(&h->srq, get_id(io));
	struct qp *qp;

	if (!srq)
		return MLX5_CMD_STAT_BAD_RES_ERR;
	table_for_each(&h->qp, i, qp)
		if (qp->srq == srq)
			return MLX5_CMD_STAT_RES_BUSY;
	table_del(&h->srq, srq->srqn);
	qbuf_free(&srq->buf);
	free(srq);
	return MLX5_CMD_STAT_OK;
}

u8 query_srq(struct hca *h, struct cmd_io *io)
{
	u32 n = MLX5_GET(query_srq_in, io->in, srqn);
	struct srq *srq = table_get(&h->srq, n);

	if (!srq)
		return MLX5_CMD_STAT_BAD_RES_ERR;
	memcpy(MLX5_ADDR_OF(query_srq_out, io->out, srq_context_entry), srq->srqc,
	       sizeof(srq->srqc));
	MLX5_SET(query_srq_out, io->out, srq_context_entry.lwm, srq->lwm);
	return MLX5_CMD_STAT_OK;
}

/* The limit is stored, but no event is sent for it. */
u8 arm_srq(struct hca *h, struct cmd_io *io)
{
	struct srq *srq = table_get(&h->srq, MLX5_GET(arm_rq_in, io->in, srq_number));

	if (!srq)
		return MLX5_CMD_STAT_BAD_RES_ERR;
	srq->lwm = MLX5_GET(arm_rq_in, io->in, lwm);
	return MLX5_CMD_STAT_OK;
}
