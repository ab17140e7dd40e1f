// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page faults: the device reports them to the driver by an event, and parks the operation until
 * PAGE_FAULT_RESUME. In the transport scheme the event names the WQE, or the remote access, that
 * faults; in the memory scheme the mkey and address.
 */
#include "connectx.h"

#define MEMORY_LAST 0x80	/* the driver's MLX5_MEMORY_PAGE_FAULT_FLAGS_LAST: it must resume */

enum { ODP_CAP = 2 };

static bool memory_scheme(struct hca *h)
{
	return MLX5_GET(odp_cap, h->cap_cur[ODP_CAP], mem_page_fault);
}

static struct fault *fault_new(struct hca *h)
{
	for (u32 i = 0; i < MAX_FAULTS; i++) {
		struct fault *f = &h->fault[(h->fault_next + i) % MAX_FAULTS];

		if (f->used)
			continue;
		h->fault_next = (f - h->fault + 1) % MAX_FAULTS;
		*f = (struct fault){ .used = true };
		/*
		 * The low 12 bits are the slot. The others tell a late answer to a cancelled fault
		 * from an answer to the next fault of the slot.
		 */
		f->token = (++h->fault_gen << 12 | (u64)(f - h->fault)) &
			   (memory_scheme(h) ? 0xffffffffffff : 0xffffff);
		return f;
	}
	return NULL;
}

/* Some pages before and behind those that are wanted. */
static u32 around(struct hca *h)
{
	return once_in(h, 4) ? dice(h, 64) : 0;
}

static bool tell_memory(struct hca *h, struct fault *f, const struct xlat *at, u64 first, u64 n,
			bool last)
{
	struct mlx5_eqe_page_fault p = { 0 };

	p.memory.flags = last ? MEMORY_LAST : 0;
	p.memory.token47_32 = cpu_to_be16(f->token >> 32);
	p.memory.token31_0 = cpu_to_be32((u32)f->token);
	p.memory.demand_fault_pages = cpu_to_be32((u32)n << 12);
	p.memory.pre_demand_fault_pages = cpu_to_be16(around(h));
	p.memory.post_demand_fault_pages = cpu_to_be16(around(h));
	p.memory.mkey = cpu_to_be32(h->name ? h->name : at->key);
	/* The address of a page, because the driver handles n whole pages from here. */
	p.memory.va = cpu_to_be64((at->va & ~4095ULL) + (first << 12));
	return event(h, MLX5_EVENT_TYPE_PAGE_FAULT, MLX5_PFAULT_SUBTYPE_MEMORY, &p, sizeof(p));
}

/* The event must name the first of these pages. The device decides how many more it names. */
static bool tell_pages(struct hca *h, struct fault *f, const struct xlat *at)
{
	u64 n = min((at->len + (at->va & 4095) + 4095) >> 12, 0xfffffULL), first = 0;

	if (once_in(h, 4))
		n = 1 + dice(h, n);
	if (once_in(h, 4)) {
		f->parts = true;
		if (n > 1)
			first = 1 + dice(h, n - 1);
		if (!tell_memory(h, f, at, 0, first ? first : 1, false))
			return false;
	}
	return tell_memory(h, f, at, first, n - first, true);
}

static bool tell_transport(struct hca *h, struct fault *f, const struct end *e,
			   const struct xfer *x, const struct sge *s, u64 left)
{
	struct mlx5_eqe_page_fault p = { 0 };
	u16 packet = min(left, 4096ULL);

	if (e->pf_subtype == MLX5_PFAULT_SUBTYPE_RDMA) {
		p.rdma.bytes_committed = cpu_to_be32((u32)x->done);
		p.rdma.r_key = cpu_to_be32(s->key);
		p.rdma.packet_length = cpu_to_be16(packet);
		/* Of some operations the device does not know the length. */
		p.rdma.rdma_op_len = cpu_to_be32(once_in(h, 4) ? 0 : (u32)x->len);
		p.rdma.rdma_va = cpu_to_be64(s->va);
		p.rdma.pftype_token = cpu_to_be32((u32)e->pf_type << 24 | (u32)f->token);
	} else {
		p.wqe.bytes_committed = cpu_to_be32((u32)(once_in(h, 4) ? dice(h, x->done + 1) :
									  x->done));
		p.wqe.wqe_index = cpu_to_be16(e->wqe_index);
		p.wqe.packet_length = cpu_to_be16(packet);
		p.wqe.token = cpu_to_be32((u32)f->token);
		p.wqe.pftype_wq = cpu_to_be32((u32)e->pf_type << 24 | e->wq);
	}
	return event(h, MLX5_EVENT_TYPE_PAGE_FAULT, e->pf_subtype, &p, sizeof(p));
}

bool fault_raise(struct hca *h, struct xfer *x, bool dst, const struct sge *s, u64 off,
		 unsigned int access, const struct xlat *at)
{
	struct end *e = dst ? &x->dst : &x->src;
	struct fault *f;

	if (x->laps > MAX_LAPS) {
		violation(h, "mkey %#x, address %#lx: resumed again and again, not there", at->key,
			  at->va);
		return false;
	}
	f = fault_new(h);
	if (!f)
		return false;
	f->key = s->key;
	f->pd = e->pd;
	f->va = s->va + off;
	f->access = access | (e->remote ? ACC_REMOTE : 0);
	debug(h, "page fault %#lx: mkey %#x, address %#lx, done %lu of %lu", f->token, at->key,
	      at->va, x->done, x->len);
	if (!(memory_scheme(h) ? tell_pages(h, f, at) : tell_transport(h, f, e, x, s, at->len))) {
		f->used = false;
		return false;
	}
	h->stats.page_faults++;
	h->stats.memory_faults += memory_scheme(h);
	f->x = x;
	f->dst = dst;
	x->fault = f;
	return true;
}

void fault_cancel(struct hca *h, struct xfer *x)
{
	if (x->fault) {
		x->fault->used = false;
		h->waiting -= !!x->fault->until;
	}
	x->fault = NULL;
}

static bool is_there(struct hca *h, const struct fault *f)
{
	struct xlat to;

	return translate(h, f->key, f->va, 1, f->access, f->pd, &to) == OK;
}

void fault_look(struct hca *h)
{
	for (u32 i = 0; i < MAX_FAULTS; i++)
		if (h->fault[i].used && !h->fault[i].came)
			h->fault[i].came = is_there(h, &h->fault[i]);
}

static void go_on(struct hca *h, struct fault *f)
{
	struct xfer *x = f->x;
	enum result r;

	fault_cancel(h, x);
	/* The response of a READ was dropped, and the peer reads its memory once more. */
	if (f->dst && x->resend && x->done && once_in(h, 4))
		x->done = dice(h, x->done);
	r = xfer_run(h, x);
	if (r != PAGE_FAULT)
		x->finish(h, x, r);
}

bool fault_tick(struct hca *h)
{
	if (h->syndrome)
		return false;
	for (u32 i = 0; h->waiting && i < MAX_FAULTS; i++) {
		struct fault *f = &h->fault[i];

		if (f->used && f->until && f->until <= now())
			go_on(h, f);
	}
	return h->waiting;
}

u8 page_fault_resume(struct hca *h, struct cmd_io *io)
{
	void *info = MLX5_ADDR_OF(page_fault_resume_in, io->in, page_fault_info);
	struct fault *f;
	struct xfer *x;
	u64 token;
	bool error;

	if (memory_scheme(h)) {
		token = (u64)MLX5_GET(mem_page_fault_info, info, fault_token_47_32) << 32 |
			MLX5_GET(mem_page_fault_info, info, fault_token_31_0);
		error = MLX5_GET(mem_page_fault_info, info, error);
	} else {
		token = MLX5_GET(trans_page_fault_info, info, fault_token);
		error = MLX5_GET(trans_page_fault_info, info, error);
	}
	f = &h->fault[token % MAX_FAULTS];
	if (!f->used || f->token != token || f->until) {
		/* The operation was cancelled with its QP, or another part had an error. */
		h->stats.stale_resumes++;
		if (!error && f->done == token)
			violation(h, "page fault %#lx: resumed twice", token);
		return MLX5_CMD_STAT_OK;
	}
	x = f->x;
	debug(h, "page fault %#lx: resumed%s", token, error ? " with error" : "");
	h->stats.resumes++;
	if (error) {
		h->stats.resumes_with_error++;
		fault_cancel(h, x);
		x->failed_dst = f->dst;
		x->why = "page fault resumed with error";
		x->finish(h, x, DENIED);
		return MLX5_CMD_STAT_OK;
	}
	f->done = token;
	if (f->came || is_there(h, f))
		x->laps = 0;
	else
		x->laps += !f->parts && !h->name;
	/* The requester was told that the receiver is not ready, and tries again later. */
	if (once_in(h, 8)) {
		f->until = now() + 1 + dice(h, 10);
		h->waiting++;
		h->dev.ticking = true;
	} else {
		go_on(h, f);
	}
	return MLX5_CMD_STAT_OK;
}
