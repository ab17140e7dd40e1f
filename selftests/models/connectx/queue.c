// SPDX-License-Identifier: GPL-2.0-only
/* Event queues and completion queues, by which the device reports to the driver. */
#include "connectx.h"

#include <stdlib.h>

static void eq_fire(struct hca *h, struct eq *eq)
{
	if (!eq->armed || ((eq->prod - eq->ci) & 0xffffff) == 0)
		return;
	eq->armed = false;
	vfio_user_interrupt(&h->dev, eq->intr);
}

static bool eq_push(struct hca *h, struct eq *eq, u8 type, u8 subtype, const void *data, size_t len)
{
	u32 n = 1U << eq->log_size;
	struct mlx5_eqe *p, e = { .type = type, .sub_type = subtype };

	if (((eq->prod - eq->ci) & 0xffffff) >= n) {
		violation(h, "EQ %u is full, event %#x is lost", eq->eqn, type);
		return false;
	}
	p = (struct mlx5_eqe *)qbuf_ptr(h, &eq->buf, (u64)(eq->prod & (n - 1)) * sizeof(e),
					sizeof(e), true);
	if (!p)
		return false;
	memcpy(&e.data, data, min(len, sizeof(e.data)));
	e.owner = p->owner;
	memcpy(p, &e, sizeof(e));
	/* The owner last: it hands the entry over. */
	__atomic_store_n(&p->owner, (eq->prod >> eq->log_size) & 1, __ATOMIC_RELEASE);
	eq->prod++;
	h->stats.events++;
	eq_fire(h, eq);
	return true;
}

bool event(struct hca *h, u8 type, u8 subtype, const void *data, size_t len)
{
	struct eq *eq;

	table_for_each(&h->eq, i, eq)
		/* Completions go to the EQ that the CQ names. */
		if (eq->mask[0] >> type & 1 && type)
			return eq_push(h, eq, type, subtype, data, len);
	return false;
}

/* The low 24 bits are the consumer index. */
void eq_doorbell(struct hca *h, u32 val, bool arm)
{
	struct eq *eq = table_get(&h->eq, val >> 24);

	if (!eq) {
		violation(h, "doorbell of EQ %u, which does not exist", val >> 24);
		return;
	}
	eq->ci = val & 0xffffff;
	if (arm) {
		eq->armed = true;
		eq_fire(h, eq);
	}
}

u8 create_eq(struct hca *h, struct cmd_io *io)
{
	void *eqc = MLX5_ADDR_OF(create_eq_in, io->in, eq_context_entry);
	size_t pas = MLX5_BYTE_OFF(create_eq_in, pas);
	struct eq *eq = calloc(1, sizeof(*eq));
	int n;

	if (!eq)
		return MLX5_CMD_STAT_NO_RES_ERR;
	eq->log_size = MLX5_GET(eqc, eqc, log_eq_size);
	eq->intr = MLX5_GET(eqc, eqc, intr);
	for (int i = 0; i < 4; i++)
		eq->mask[i] = be64_to_cpu(
			((__be64 *)MLX5_ADDR_OF(create_eq_in, io->in, event_bitmask))[i]);
	if (eq->log_size > 22 || MLX5_GET(eqc, eqc, intr) >= NVEC ||
	    qbuf_init(&eq->buf, (u8 *)io->in + pas, io->inlen - pas,
		      MLX5_GET(eqc, eqc, log_page_size) + 12, MLX5_GET(eqc, eqc, page_offset),
		      sizeof(struct mlx5_eqe) << eq->log_size)) {
		free(eq);
		return MLX5_CMD_STAT_BAD_PARAM_ERR;
	}
	n = table_add(&h->eq, eq);
	if (n < 0) {
		qbuf_free(&eq->buf);
		free(eq);
		return MLX5_CMD_STAT_LIM_ERR;
	}
	eq->eqn = n;
	MLX5_SET(create_eq_out, io->out, eq_number, n);
	return MLX5_CMD_STAT_OK;
}

u8 destroy_eq(struct hca *h, struct cmd_io *io)
{
	u32 eqn = MLX5_GET(destroy_eq_in, io->in, eq_number);
	struct eq *eq = table_get(&h->eq, eqn);
	struct cq *cq;

	if (!eq)
		return MLX5_CMD_STAT_BAD_RES_ERR;
	table_for_each(&h->cq, i, cq)
		if (cq->eqn == eqn)
			return MLX5_CMD_STAT_RES_BUSY;
	table_del(&h->eq, eqn);
	qbuf_free(&eq->buf);
	free(eq);
	return MLX5_CMD_STAT_OK;
}

/* ---- completion queues ---- */

static u32 cq_ci(struct hca *h, struct cq *cq)
{
	__be32 ci;

	return dma_read(h, cq->dbr, &ci, 4) ? be32_to_cpu(ci) & 0xffffff : cq->prod;
}

static void cq_fire(struct hca *h, struct cq *cq)
{
	struct mlx5_eqe_comp comp = { .cqn = cpu_to_be32(cq->cqn) };
	struct eq *eq = table_get(&h->eq, cq->eqn);

	cq->armed = false;
	if (eq)
		eq_push(h, eq, MLX5_EVENT_TYPE_COMP, 0, &comp, sizeof(comp));
}

void cq_push(struct hca *h, u32 cqn, struct mlx5_cqe64 *cqe, u8 opcode, bool solicited)
{
	struct cq *cq = table_get(&h->cq, cqn);
	struct mlx5_cqe64 *p;
	u32 slot;

	if (!cq) {
		violation(h, "completion for CQ %#x, which does not exist", cqn);
		return;
	}
	if (!cq->overrun_ignore && ((cq->prod - cq_ci(h, cq)) & 0xffffff) >= 1U << cq->log_size) {
		struct mlx5_eqe_cq_err err = { .cqn = cpu_to_be32(cqn), .syndrome = 1 };

		violation(h, "CQ %#x is full", cqn);
		event(h, MLX5_EVENT_TYPE_CQ_ERROR, 0, &err, sizeof(err));
		return;
	}
	slot = cq->prod & ((1U << cq->log_size) - 1);
	/* In a CQE of 128 bytes, struct mlx5_cqe64 is the second half. */
	p = (struct mlx5_cqe64 *)qbuf_ptr(h, &cq->buf, ((u64)(slot + 1) << cq->cqe_shift) - 64, 64,
					  true);
	if (!p)
		return;
	memcpy(p, cqe, offsetof(struct mlx5_cqe64, op_own));
	__atomic_store_n(&p->op_own, opcode << 4 | ((cq->prod >> cq->log_size) & 1),
			 __ATOMIC_RELEASE);
	cq->prod = (cq->prod + 1) & 0xffffff;
	if (solicited)
		cq->last_solicited = cq->prod;
	h->stats.completions++;
	if (cq->armed && (!cq->armed_solicited || solicited))
		cq_fire(h, cq);
}

/* Report the next completion behind the consumer index, at once if it is already there. */
void cq_doorbell(struct hca *h, u32 hi, u32 cqn)
{
	struct cq *cq = table_get(&h->cq, cqn & 0xffffff);
	u32 ci = hi & 0xffffff, last;

	if (!cq) {
		violation(h, "doorbell of CQ %#x, which does not exist", cqn);
		return;
	}
	cq->armed = true;
	cq->armed_solicited = hi & 1 << 24;
	last = cq->armed_solicited ? cq->last_solicited : cq->prod;
	/* Behind ci, in 24 bits that wrap around? */
	if (!((last - ci - 1) & 0x800000))
		cq_fire(h, cq);
}

u8 create_cq(struct hca *h, struct cmd_io *io)
{
	void *cqc = MLX5_ADDR_OF(create_cq_in, io->in, cq_context);
	size_t pas = MLX5_BYTE_OFF(create_cq_in, pas);
	struct cq *cq = calloc(1, sizeof(*cq));
	int n;

	if (!cq)
		return MLX5_CMD_STAT_NO_RES_ERR;
	memcpy(cq->cqc, cqc, sizeof(cq->cqc));
	cq->log_size = MLX5_GET(cqc, cqc, log_cq_size);
	cq->cqe_shift = MLX5_GET(cqc, cqc, cqe_sz) ? 7 : 6;
	cq->eqn = MLX5_GET(cqc, cqc, c_eqn_or_apu_element);
	cq->dbr = MLX5_GET64(cqc, cqc, dbr_addr);
	cq->overrun_ignore = MLX5_GET(cqc, cqc, oi);
	if (cq->log_size > 22 || !table_get(&h->eq, cq->eqn) ||
	    qbuf_init(&cq->buf, (u8 *)io->in + pas, io->inlen - pas,
		      MLX5_GET(cqc, cqc, log_page_size) + 12, MLX5_GET(cqc, cqc, page_offset),
		      1ULL << (cq->log_size + cq->cqe_shift))) {
		free(cq);
		return MLX5_CMD_STAT_BAD_PARAM_ERR;
	}
	n = table_add(&h->cq, cq);
	if (n < 0) {
		qbuf_free(&cq->buf);
		free(cq);
		return MLX5_CMD_STAT_LIM_ERR;
	}
	cq->cqn = n;
	set_id(io, n);
	return MLX5_CMD_STAT_OK;
}

u8 destroy_cq(struct hca *h, struct cmd_io *io)
{
	struct cq *cq = table_get(&h->cq, get_id(io));
	struct qp *qp;

	if (!cq)
		return MLX5_CMD_STAT_BAD_RES_ERR;
	table_for_each(&h->qp, i, qp)
		if (MLX5_GET(qpc, qp->qpc, cqn_snd) == cq->cqn ||
		    MLX5_GET(qpc, qp->qpc, cqn_rcv) == cq->cqn)
			return MLX5_CMD_STAT_RES_BUSY;
	table_del(&h->cq, cq->cqn);
	qbuf_free(&cq->buf);
	free(cq);
	return MLX5_CMD_STAT_OK;
}

u8 query_cq(struct hca *h, struct cmd_io *io)
{
	struct cq *cq = table_get(&h->cq, get_id(io));
	void *cqc = MLX5_ADDR_OF(query_cq_out, io->out, cq_context);

	if (!cq)
		return MLX5_CMD_STAT_BAD_RES_ERR;
	memcpy(cqc, cq->cqc, sizeof(cq->cqc));
	MLX5_SET(cqc, cqc, producer_counter, cq->prod);
	return MLX5_CMD_STAT_OK;
}

/* The driver modifies only the moderation, which has no effect here. */
u8 modify_cq(struct hca *h, struct cmd_io *io)
{
	if (!table_get(&h->cq, get_id(io)))
		return MLX5_CMD_STAT_BAD_RES_ERR;
	return MLX5_GET(modify_cq_in, io->in, op_mod) ? MLX5_CMD_STAT_BAD_OP_ERR : MLX5_CMD_STAT_OK;
}
