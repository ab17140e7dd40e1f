/*
 * Page faults: the device tells the driver by an event and parks what it was doing until
 * PAGE_FAULT_RESUME. In the transport scheme the event names the WQE, or the remote access, that
 * faults; in the memory scheme the mkey and address.
 */
#include "connectx.h"

#define MAX_REFAULTS 10000
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
		 * 12 bits of slot; the rest tells a late answer to what was cancelled from one to
		 * its successor.
		 */
		f->token = (++h->fault_gen << 12 | (u64)(f - h->fault)) &
			   (memory_scheme(h) ? 0xffffffffffff : 0xffffff);
		return f;
	}
	return NULL;
}

bool fault_raise(struct hca *h, struct xfer *x, bool dst, const struct sge *s,
		 const struct xlat *at, u64 left)
{
	struct end *e = dst ? &x->dst : &x->src;
	struct fault *f = ++x->refaults > MAX_REFAULTS ? NULL : fault_new(h);
	struct mlx5_eqe_page_fault p = { 0 };
	u8 subtype = e->pf_subtype;

	if (!f) {
		if (x->refaults > MAX_REFAULTS)
			violation(h, "mkey %#x, address %#lx: resumed again and again, not there",
				  at->key, at->va);
		return false;
	}
	if (memory_scheme(h)) {
		u64 pages = (left + (at->va & 4095) + 4095) >> 12;

		subtype = MLX5_PFAULT_SUBTYPE_MEMORY;
		p.memory.flags = MEMORY_LAST;
		p.memory.token47_32 = cpu_to_be16(f->token >> 32);
		p.memory.token31_0 = cpu_to_be32((u32)f->token);
		p.memory.demand_fault_pages = cpu_to_be32((u32)min(pages, 0xfffffULL) << 12);
		p.memory.mkey = cpu_to_be32(at->key);
		p.memory.va = cpu_to_be64(at->va);
	} else if (subtype == MLX5_PFAULT_SUBTYPE_RDMA) {
		p.rdma.bytes_committed = cpu_to_be32((u32)x->done);
		p.rdma.r_key = cpu_to_be32(s->key);
		p.rdma.packet_length = cpu_to_be16((u16)min(left, 4096ULL));
		p.rdma.rdma_op_len = cpu_to_be32((u32)x->len);
		p.rdma.rdma_va = cpu_to_be64(s->va);
		p.rdma.pftype_token = cpu_to_be32((u32)e->pf_type << 24 | (u32)f->token);
	} else {
		p.wqe.bytes_committed = cpu_to_be32((u32)x->done);
		p.wqe.wqe_index = cpu_to_be16(e->wqe_index);
		p.wqe.packet_length = cpu_to_be16((u16)min(left, 4096ULL));
		p.wqe.token = cpu_to_be32((u32)f->token);
		p.wqe.pftype_wq = cpu_to_be32((u32)e->pf_type << 24 | e->wq);
	}
	debug(h, "page fault %#lx: mkey %#x, address %#lx, done %lu of %lu", f->token, at->key,
	      at->va, x->done, x->len);
	if (!event(h, MLX5_EVENT_TYPE_PAGE_FAULT, subtype, &p, sizeof(p))) {
		f->used = false;
		return false;
	}
	h->stats.page_faults++;
	h->stats.memory_faults += subtype == MLX5_PFAULT_SUBTYPE_MEMORY;
	f->x = x;
	f->dst = dst;
	x->fault = f;
	return true;
}

void fault_cancel(struct hca *h, struct xfer *x)
{
	if (x->fault)
		x->fault->used = false;
	x->fault = NULL;
}

u8 page_fault_resume(struct hca *h, struct cmd_io *io)
{
	void *info = MLX5_ADDR_OF(page_fault_resume_in, io->in, page_fault_info);
	enum result r;
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
	if (!f->used || f->token != token) {
		/* What faulted has been cancelled, with its QP. */
		h->stats.stale_resumes++;
		return MLX5_CMD_STAT_OK;
	}
	x = f->x;
	debug(h, "page fault %#lx: resumed%s", token, error ? " with error" : "");
	fault_cancel(h, x);
	h->stats.resumes++;
	if (error) {
		h->stats.resumes_with_error++;
		x->failed_dst = f->dst;
		x->why = "page fault resumed with error";
		r = DENIED;
	} else {
		r = xfer_run(h, x);
	}
	if (r != PAGE_FAULT)
		x->finish(h, x, r);
	return MLX5_CMD_STAT_OK;
}
