// SPDX-License-Identifier: GPL-2.0-only
/*
 * The data path: copies from one end to the other, page by page, and can stop at an absent page.
 */
#include "connectx.h"

struct spot {
	u8 *ptr;
	u64 iova;
	bool bus, peer, far;	/* reached by DMA; not in RAM; ptr is only a copy */
};

/* The place of byte number at of the end, and how many bytes follow it there. */
static enum result locate(struct hca *h, struct xfer *x, struct end *e, u64 at, u64 *n,
			  unsigned int access, struct spot *s)
{
	struct sge *sge = e->sge;
	struct xlat to;
	enum result r;
	u64 off = at;

	*s = (struct spot){ 0 };
	if (e->buf) {
		s->ptr = e->buf + at % e->buf_size;
		*n = min(*n, e->buf_size - at % e->buf_size);
		return OK;
	}
	while (sge < e->sge + e->n && off >= sge->len)
		off -= sge++->len;
	if (sge == e->sge + e->n) {
		x->why = "longer than its scatter list";
		goto denied;
	}
	*n = min(*n, sge->len - off);
	if (sge->inline_data) {
		s->ptr = (u8 *)sge->inline_data + off;
		return OK;
	}
	r = translate(h, sge->key, sge->va + off, *n, access | (e->remote ? ACC_REMOTE : 0), e->pd,
		      &to);
	if (r == PAGE_FAULT) {
		if (fault_raise(h, x, e == &x->dst, sge, off, access, &to))
			return PAGE_FAULT;
		x->why = "page fault that cannot be reported";
		goto denied;
	}
	x->why = to.why;
	if (r == DENIED) {
		debug(h, "key %#x, address %#lx: %s", sge->key, sge->va + off, to.why);
		goto denied;
	}
	*n = to.len;
	if (ats_enabled(h) && mkey_ats(to.leaf))
		ats_access(h, to.iova);
	s->far = dma_far(h, to.iova, n);
	if (!s->far)
		s->ptr = dma_ptr(h, to.iova, n, access & ACC_WRITE);
	else if (!(access & ACC_READ) || far_read(h, to.iova, h->far[e == &x->dst], *n))
		s->ptr = h->far[e == &x->dst];
	if (!s->ptr) {
		x->why = "IOMMU fault";
		goto denied;
	}
	s->iova = to.iova;
	s->bus = true;
	s->peer = s->far || dma_peer(h, to.iova);
	return OK;
denied:
	x->failed_dst = e == &x->dst;
	return DENIED;
}

/* Memory must change only once, so both ends must be present before. */
static enum result atomic_run(struct hca *h, struct xfer *x)
{
	u64 n = 8, m = 8, old, new;
	struct spot remote, local;
	enum result r;

	if (x->src.sge[0].va & 7) {
		x->why = "atomic operation on an unaligned address";
		x->failed_dst = false;
		return DENIED;
	}
	r = locate(h, x, &x->src, 0, &n, ACC_READ | ACC_WRITE | ACC_ATOMIC, &remote);
	if (r == OK)
		r = locate(h, x, &x->dst, 0, &m, ACC_WRITE, &local);
	if (r != OK)
		return r;
	if (n < 8 || m < 8) {
		x->why = "atomic operation across a page";
		x->failed_dst = n == 8;
		return DENIED;
	}
	posted_push(h);
	/* A KLM can lead to any address. */
	if ((uintptr_t)remote.ptr & 7) {
		x->why = "atomic operation on unaligned memory";
		x->failed_dst = false;
		return DENIED;
	}
	old = __atomic_load_n((u64 *)remote.ptr, __ATOMIC_SEQ_CST);
	do {
		new = x->atomic == MLX5_OPCODE_ATOMIC_FA ? old + x->swap_add :
		      old == x->compare ? x->swap_add : old;
	} while (!__atomic_compare_exchange_n((u64 *)remote.ptr, &old, new, false, __ATOMIC_SEQ_CST,
					      __ATOMIC_SEQ_CST));
	/* Another model gets a copy, so there this is only as atomic as a read and a write. */
	if (remote.far)
		post_write(h, remote.iova, remote.ptr, 8, true);
	if (local.far)
		post_write(h, local.iova, &old, 8, true);
	else
		memcpy(local.ptr, &old, 8);
	dma_count(h, remote.peer, 8, true);
	dma_count(h, local.peer, 8, true);
	x->done = 8;
	return OK;
}

enum result xfer_run(struct hca *h, struct xfer *x)
{
	u64 enough = h->steps + MAX_STEPS;

	if (x->atomic)
		return atomic_run(h, x);
	while (x->done < x->len) {
		u64 n = x->len - x->done;
		struct spot from, to;
		enum result r;

		if (h->steps > enough) {
			x->why = "too many pieces";
			x->failed_dst = false;
			return DENIED;
		}
		r = locate(h, x, &x->src, x->done, &n, ACC_READ, &from);
		if (r == OK)
			r = locate(h, x, &x->dst, x->done, &n, ACC_WRITE, &to);
		if (r != OK)
			return r;
		if (to.peer)
			post_write(h, to.iova, from.ptr, n, to.far);
		else
			memmove(to.ptr, from.ptr, n);
		if (from.bus)
			dma_count(h, from.peer, n, false);
		if (to.bus)
			dma_count(h, to.peer, n, true);
		x->done += n;
		h->steps += n >> 12;
		x->laps = 0;
	}
	return OK;
}
