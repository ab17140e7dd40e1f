// SPDX-License-Identifier: GPL-2.0-only
/* DMA of the device, and its queues in guest memory. ../vfio-user/dma.c has the mappings. */
#include "connectx.h"

#include <errno.h>
#include <stdlib.h>

static const struct dma_region *reach(struct hca *h, u64 iova, bool write)
{
	return dma_region(&h->dev.dma, iova, write);
}

/* How many bytes from there on are in a BAR of another model. */
static u64 far_room(struct hca *h, u64 iova)
{
	return peer_access(&h->peer, iova, NULL, 0, false);
}

bool dma_reaches(struct hca *h, u64 iova, u64 len, bool write)
{
	while (len) {
		const struct dma_region *r = reach(h, iova, write);
		u64 n = r ? r->size - (iova - r->iova) : far_room(h, iova);

		if (!n)
			return false;
		n = min(len, n);
		iova += n;
		len -= n;
	}
	return true;
}

static void fault(struct hca *h, u64 iova, bool write)
{
	h->stats.iommu_faults++;
	note(h, "IOMMU fault: %s %#lx", write ? "write to" : "read of", iova);
}

static void master(struct hca *h)
{
	if (!(h->dev.config[4] & 4))
		violation(h, "DMA while the driver has not made the device bus master");
}

u8 *dma_ptr(struct hca *h, u64 iova, u64 *len, bool write)
{
	const struct dma_region *r = reach(h, iova, write);

	master(h);
	if (r && r->peer && !write)
		posted_push(h);
	if (!r) {
		fault(h, iova, write);
		return NULL;
	}
	*len = min(*len, r->size - (iova - r->iova));
	return r->ptr + (iova - r->iova);
}

void dma_count(struct hca *h, bool peer, u64 len, bool write)
{
	if (peer)
		*(write ? &h->stats.peer_bytes_written : &h->stats.peer_bytes_read) += len;
	else
		*(write ? &h->stats.bytes_written : &h->stats.bytes_read) += len;
}

bool dma_peer(struct hca *h, u64 iova)
{
	const struct dma_region *r = reach(h, iova, false);

	return r && r->peer;
}

bool dma_far(struct hca *h, u64 iova, u64 *len)
{
	u64 n = reach(h, iova, false) ? 0 : far_room(h, iova);

	if (n)
		*len = min(*len, min(n, PEER_MAX));
	return n;
}

bool far_read(struct hca *h, u64 iova, void *to, u64 len)
{
	master(h);
	posted_push(h);
	if (peer_access(&h->peer, iova, to, len, false) >= len)
		return true;
	fault(h, iova, false);
	return false;
}

/* ---- writes to peers that are under way ---- */

void posted_push(struct hca *h)
{
	for (u32 i = 0; i < h->nposted; i++) {
		struct posted *p = &h->posted[i];

		if (p->far && peer_access(&h->peer, p->iova, p->data, p->len, true) < p->len)
			fault(h, p->iova, true);
		for (u64 at = 0, n; !p->far && at < p->len; at += n) {
			const struct dma_region *r = reach(h, p->iova + at, true);

			n = 1;
			if (!r)
				continue;
			n = min(p->len - at, r->size - (p->iova + at - r->iova));
			memcpy(r->ptr + (p->iova + at - r->iova), p->data + at, n);
		}
		free(p->data);
	}
	h->nposted = 0;
}

void post_write(struct hca *h, u64 iova, const void *from, u64 len, bool far)
{
	struct posted *p;

	if (h->nposted == MAX_POSTED)
		posted_push(h);
	p = &h->posted[h->nposted++];
	*p = (struct posted){ iova, len, malloc(len), far };
	if (!p->data)
		abort();
	memcpy(p->data, from, len);
	h->posted_until = now() + POSTED_MS;
	h->dev.ticking = true;
}

void posted_unmap(struct hca *h, u64 iova, u64 size)
{
	u32 hit = 0;

	for (u32 i = 0; i < h->nposted; i++)
		hit += h->posted[i].iova <= iova + (size - 1) &&
		       h->posted[i].iova + (h->posted[i].len - 1) >= iova;
	if (hit)
		violation(h, "unmapped [%#lx, %#lx] while %u writes are under way to there", iova,
			  iova + (size - 1), hit);
	posted_push(h);
}

bool posted_tick(struct hca *h)
{
	if (h->nposted && h->posted_until <= now())
		posted_push(h);
	return h->nposted;
}

/* ---- ATS ---- */

bool ats_enabled(struct hca *h)
{
	return h->dev.config[ATS_CTRL + 1] & 0x80;
}

bool ats_translates(struct hca *h, u64 iova)
{
	return reach(h, iova, false);
}

void ats_access(struct hca *h, u64 iova)
{
	const struct dma_region *r = reach(h, iova, false);
	u64 page = iova >> 12;
	const u8 *ptr = r ? r->ptr + ((page << 12) - r->iova) : NULL;
	struct atc *e = &h->atc[page % ATC_PAGES];

	if (!e->ptr || e->page != page) {
		h->stats.translations++;
		*e = (struct atc){ page, ptr };
	} else if (e->ptr != ptr) {
		violation(h, "the translation of %#lx that the device keeps is stale", iova);
		e->ptr = NULL;
	}
}

void ats_invalidate(struct hca *h, u64 iova, u64 size)
{
	for (u32 i = 0; i < ATC_PAGES; i++)
		if ((h->atc[i].page << 12) - iova < size)
			h->atc[i].ptr = NULL;
}

bool dma_read(struct hca *h, u64 iova, void *to, u64 len)
{
	while (len) {
		u64 n = len;
		u8 *p = dma_ptr(h, iova, &n, false);

		if (!p)
			return false;
		memcpy(to, p, n);
		to = (u8 *)to + n;
		iova += n;
		len -= n;
	}
	return true;
}

bool dma_write(struct hca *h, u64 iova, const void *from, u64 len)
{
	while (len) {
		u64 n = len;
		u8 *p = dma_ptr(h, iova, &n, true);

		if (!p)
			return false;
		memcpy(p, from, n);
		from = (const u8 *)from + n;
		iova += n;
		len -= n;
	}
	return true;
}

int qbuf_init(struct qbuf *b, const void *pas, size_t pas_bytes, unsigned int page_shift,
	      u32 page_offset, u64 size)
{
	u64 need, i;

	if (page_shift < 12 || page_shift > 40 || size > 1U << 30)
		return -EINVAL;
	/* The offset is in 64ths of a page. */
	b->offset = (u64)page_offset << (page_shift - 6);
	need = (b->offset + size + BIT_ULL(page_shift) - 1) >> page_shift;
	if (need * 8 > pas_bytes)
		return -EINVAL;
	b->pas = calloc(need ? need : 1, 8);
	if (!b->pas)
		return -ENOMEM;
	for (i = 0; i < need; i++)
		b->pas[i] = be64_to_cpu(((const __be64 *)pas)[i]) & ~0xfffULL;
	b->npas = need;
	b->page_shift = page_shift;
	b->size = size;
	return 0;
}

void qbuf_free(struct qbuf *b)
{
	free(b->pas);
	*b = (struct qbuf){ 0 };
}

static u64 qbuf_addr(const struct qbuf *b, u64 off)
{
	off += b->offset;
	return b->pas[off >> b->page_shift] + (off & (BIT_ULL(b->page_shift) - 1));
}

u8 *qbuf_ptr(struct hca *h, const struct qbuf *b, u64 off, u64 len, bool write)
{
	u64 n = len;
	u8 *p;

	if (off > b->size || len > b->size - off)
		return NULL;
	p = dma_ptr(h, qbuf_addr(b, off), &n, write);
	return n == len ? p : NULL;
}

bool qbuf_read(struct hca *h, const struct qbuf *b, u64 off, void *to, u64 len)
{
	while (len) {
		u64 n = min(len, 4096 - ((off + b->offset) & 4095));

		if (off >= b->size)
			return false;
		n = min(n, b->size - off);
		if (!dma_read(h, qbuf_addr(b, off), to, n))
			return false;
		to = (u8 *)to + n;
		off += n;
		len -= n;
	}
	return true;
}
