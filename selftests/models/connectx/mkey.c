// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory keys: how an address of a memory region becomes one that the device can put on the bus;
 * and UMR, which changes them.
 */
#include "connectx.h"

#include <stdlib.h>
#include <sys/mman.h>

#define MAX_XLT (1ULL << 30)		/* of one mkey */
#define MAX_XLT_ALL (64ULL << 30)	/* address space, not memory */
#define MAX_DEPTH 4			/* as cap max_indirection */
/* Below all keys of the table of mkeys; 0x100 ends scatter lists. */
#define NULL_MKEY 0x200

#define MKC(mk, field) MLX5_GET(mkc, (mk)->mkc, field)

static u32 mode(const struct mkey *mk)
{
	return MKC(mk, access_mode_4_2) << 2 | MKC(mk, access_mode_1_0);
}

bool mkey_ats(const struct mkey *mk)
{
	return mk && MKC(mk, ma_translation_mode);
}

/* Its MTTs say whether a page is there. */
static bool can_fault(const struct mkey *mk)
{
	return mk->pg_access || MKC(mk, umr_en);
}

static u64 mtt(const struct mkey *mk, u64 i)
{
	return be64_to_cpu(((__be64 *)mk->xlt)[i]);
}

static struct mkey *find(struct hca *h, u32 key)
{
	struct mkey *mk = table_get(&h->mkey, key >> 8);

	return mk && MKC(mk, mkey_7_0) == (key & 0xff) ? mk : NULL;
}

static enum result denied(struct xlat *x, const char *why)
{
	x->why = why;
	return DENIED;
}

static enum result page_fault(struct xlat *x, u32 key, u64 va)
{
	x->key = key;
	x->va = va;
	return PAGE_FAULT;
}

static enum result translate_mtt(struct mkey *mk, u32 key, u64 va, u64 start, unsigned int access,
				 struct xlat *x)
{
	u32 shift = MKC(mk, log_page_size);
	u64 in_page = va & (BIT_ULL(shift) - 1);
	u64 i = (va - (start & ~(BIT_ULL(shift) - 1))) >> shift, entry;

	if (i >= mk->xlt_size / 8)
		return denied(x, "behind the MTTs");
	entry = mtt(mk, i);
	if (can_fault(mk)) {
		if (access & ACC_READ && !(entry & MLX5_EN_RD))
			return page_fault(x, key, va);
		if (access & ACC_WRITE && !(entry & MLX5_EN_WR))
			return page_fault(x, key, va);
	}
	x->iova = (entry & ~0xfffULL) + in_page;
	x->len = min(x->len, BIT_ULL(shift) - in_page);
	return OK;
}

static enum result walk(struct hca *h, u32 key, u64 va, unsigned int access, u32 pd, struct xlat *x,
			int depth)
{
	struct mkey *mk = find(h, key);
	u64 start, off, size, i;
	struct mlx5_klm *klm;
	struct mlx5_ksm *ksm;
	u32 shift;

	h->steps++;
	/* All pages of the null mkey are absent. */
	if (key == NULL_MKEY && depth)
		return page_fault(x, key, va);
	if (!mk)
		return denied(x, "no such mkey");
	if (MKC(mk, free))
		return denied(x, "the mkey is free");
	if (pd != PD_ANY && MKC(mk, pd) != pd)
		return denied(x, "mkey of another PD");
	if (access & ACC_REMOTE) {
		if ((access & ACC_READ && !(access & ACC_ATOMIC) && !MKC(mk, rr)) ||
		    (access & ACC_WRITE && !(access & ACC_ATOMIC) && !MKC(mk, rw)) ||
		    (access & ACC_ATOMIC && !MKC(mk, a)))
			return denied(x, "the mkey does not allow it to remote peers");
	} else {
		if (access & ACC_READ && !MKC(mk, lr))
			return denied(x, "the mkey does not allow local reads");
		if (access & ACC_WRITE && !MKC(mk, lw))
			return denied(x, "the mkey does not allow local writes");
	}
	start = MLX5_GET64(mkc, mk->mkc, start_addr);
	off = va - start;
	if (!MKC(mk, length64)) {
		u64 len = MLX5_GET64(mkc, mk->mkc, len);

		if (va < start || off >= len || x->len > len - off)
			return denied(x, "not inside the mkey");
	}
	shift = MKC(mk, log_page_size);
	switch (mode(mk)) {
	case MLX5_MKC_ACCESS_MODE_PA:
		x->iova = va;
		return OK;
	case MLX5_MKC_ACCESS_MODE_MTT:
		x->leaf = mk;
		x->key = key;
		return shift < 12 ? denied(x, "pages too small") :
				    translate_mtt(mk, key, va, start, access, x);
	case MLX5_MKC_ACCESS_MODE_KSM:
		if (depth == MAX_DEPTH || shift < 12)
			return denied(x, "indirect mkeys too deep");
		size = BIT_ULL(shift);
		i = off >> shift;
		if (i >= mk->xlt_size / sizeof(*ksm))
			return denied(x, "behind the KSMs");
		ksm = (struct mlx5_ksm *)mk->xlt + i;
		off &= size - 1;
		x->len = min(x->len, size - off);
		return walk(h, be32_to_cpu(ksm->key), be64_to_cpu(ksm->va) + off, access, pd, x,
			    depth + 1);
	case MLX5_MKC_ACCESS_MODE_KLMS:
		if (depth == MAX_DEPTH)
			return denied(x, "indirect mkeys too deep");
		for (i = 0; i < mk->xlt_size / sizeof(*klm); i++) {
			klm = (struct mlx5_klm *)mk->xlt + i;
			size = be32_to_cpu(klm->bcount);
			if (off >= size) {
				off -= size;
				h->steps++;
				continue;
			}
			x->len = min(x->len, size - off);
			/* The keys in a list, for example in a memory window, are local. */
			return walk(h, be32_to_cpu(klm->key), be64_to_cpu(klm->va) + off,
				    access & ~ACC_REMOTE, pd, x, depth + 1);
		}
		return denied(x, "behind the KLMs");
	}
	return denied(x, "an access mode that the model does not have");
}

enum result translate(struct hca *h, u32 key, u64 va, u64 len, unsigned int access, u32 pd,
		      struct xlat *x)
{
	*x = (struct xlat){ .len = len };
	return walk(h, key, va, access, pd, x, 0);
}

/*
 * An mkey is destroyed or freed. It may be in a cache of the device as long as a KSM of another
 * mkey leads to it. KLMs are not checked, because programs write them, and may do as they like.
 */
static void check_ksms(struct hca *h, u32 index)
{
	struct mkey *mk;

	table_for_each(&h->mkey, m, mk) {
		const struct mlx5_ksm *ksm = (const struct mlx5_ksm *)mk->xlt;
		u64 n = mk->xlt_size / sizeof(*ksm);

		if (mode(mk) != MLX5_MKC_ACCESS_MODE_KSM || MKC(mk, free))
			continue;
		for (u64 i = 0; i < n; i++) {
			if (be32_to_cpu(ksm[i].key) >> 8 != index)
				continue;
			violation(h, "mkey %#x goes, and KSM %lu of mkey %#x leads to it", index, i,
				  mk->index);
			break;
		}
	}
}

/* A driver may use an mkey again for less memory. No access leads to the MTTs behind its end. */
static u64 mtts_in_use(const struct mkey *mk)
{
	u32 shift = MKC(mk, log_page_size);
	u64 page = BIT_ULL(shift), start = MLX5_GET64(mkc, mk->mkc, start_addr) & (page - 1);

	if (MKC(mk, length64))
		return mk->top;
	return min(mk->top, (start + MLX5_GET64(mkc, mk->mkc, len) + page - 1) >> shift);
}

u64 mtts_into(struct hca *h, u64 iova, u64 size)
{
	struct mkey *mk;
	u64 n = 0, top;

	table_for_each(&h->mkey, m, mk) {
		if (mode(mk) != MLX5_MKC_ACCESS_MODE_MTT || MKC(mk, free) || !can_fault(mk))
			continue;
		top = mtts_in_use(mk);
		for (u64 i = 0; i < top; i++) {
			u64 entry = mtt(mk, i);

			n += entry & (MLX5_EN_RD | MLX5_EN_WR) && (entry & ~0xfffULL) - iova < size;
		}
	}
	return n;
}

/* ---- commands ---- */

static u64 whole_pages(u64 size)
{
	return (size + 4095) & ~4095ULL;
}

/*
 * The translations take no memory before they are used. They end at an inaccessible page, so that
 * an access behind them crashes.
 */
static bool xlt_alloc(struct hca *h, struct mkey *mk)
{
	u64 room = whole_pages(mk->xlt_size);
	u8 *p = mmap(NULL, room + 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
		     0);

	if (p == MAP_FAILED)
		return false;
	if (mprotect(p, room, PROT_READ | PROT_WRITE)) {
		munmap(p, room + 4096);
		return false;
	}
	mk->xlt = p + (room - mk->xlt_size);
	h->xlt_total += mk->xlt_size;
	return true;
}

void mkey_free(struct hca *h, struct mkey *mk)
{
	u64 room = whole_pages(mk->xlt_size);

	h->stats.mkeys_enabled -= !MKC(mk, free);
	if (mk->xlt) {
		munmap(mk->xlt - (room - mk->xlt_size), room + 4096);
		h->xlt_total -= mk->xlt_size;
	}
	free(mk);
}

void mkey_unbind(struct hca *h, u32 key)
{
	struct mkey *mk = find(h, key);

	if (!mk || MKC(mk, free) || !MKC(mk, en_rinval)) {
		note(h, "mkey %#x: nothing that a peer may invalidate", key);
		return;
	}
	MLX5_SET(mkc, mk->mkc, free, 1);
	h->stats.mkeys_enabled--;
}

/* Checks the MTTs that the driver wrote to entries [at, at + n) of the translations. */
static void check_mtts(struct hca *h, struct mkey *mk, u64 at, u64 n)
{
	u32 bad = 0;
	u64 i;

	if (mode(mk) != MLX5_MKC_ACCESS_MODE_MTT || !can_fault(mk))
		return;
	for (i = at; i < at + n; i++) {
		u64 entry = mtt(mk, i);

		if (!(entry & (MLX5_EN_RD | MLX5_EN_WR)))
			continue;
		mk->top = max(mk->top, i + 1);
		/* Larger pages may reach beyond the registered memory. */
		if (ats_enabled(h) && mkey_ats(mk) && !ats_translates(h, entry & ~0xfffULL))
			violation(h, "mkey %#x with ATS: no IOMMU translates MTT %lu, %#lx",
				  mk->index, i, entry);
		else if (MKC(mk, log_page_size) == 12 &&
		    !dma_reaches(h, entry & ~0xfffULL, 4096, entry & MLX5_EN_WR) && !bad++)
			violation(h, "mkey %#x: MTT %lu is %#lx, where the device cannot go",
				  mk->index, i, entry);
	}
}

u8 create_mkey(struct hca *h, struct cmd_io *io)
{
	size_t at = MLX5_BYTE_OFF(create_mkey_in, klm_pas_mtt);
	struct mkey *mk = calloc(1, sizeof(*mk));
	u64 octwords, given;
	int n;

	if (!mk)
		return MLX5_CMD_STAT_NO_RES_ERR;
	memcpy(mk->mkc, MLX5_ADDR_OF(create_mkey_in, io->in, memory_key_mkey_entry),
	       sizeof(mk->mkc));
	mk->pg_access = MLX5_GET(create_mkey_in, io->in, pg_access);
	octwords = MKC(mk, translations_octword_size);
	given = MLX5_GET(create_mkey_in, io->in, translations_octword_actual_size) * 16ULL;
	/* UMR writes units of 64 bytes. */
	mk->xlt_size = mode(mk) == MLX5_MKC_ACCESS_MODE_PA ? 0 : (octwords * 16 + 63) & ~63ULL;
	if (mk->xlt_size > MAX_XLT || mk->xlt_size > MAX_XLT_ALL - h->xlt_total ||
	    given > mk->xlt_size || given > io->inlen - at || (mkey_ats(mk) && !h->ats)) {
		free(mk);
		return MLX5_CMD_STAT_BAD_PARAM_ERR;
	}
	if (mk->xlt_size) {
		if (!xlt_alloc(h, mk)) {
			free(mk);
			return MLX5_CMD_STAT_NO_RES_ERR;
		}
		memcpy(mk->xlt, (u8 *)io->in + at, given);
	}
	h->stats.mkeys_enabled += !MKC(mk, free);
	n = table_add(&h->mkey, mk);
	if (n < 0) {
		mkey_free(h, mk);
		return MLX5_CMD_STAT_LIM_ERR;
	}
	mk->index = n;
	check_mtts(h, mk, 0, given / 8);
	set_id(io, n);
	return MLX5_CMD_STAT_OK;
}

u8 destroy_mkey(struct hca *h, struct cmd_io *io)
{
	struct mkey *mk = table_del(&h->mkey, get_id(io));

	if (!mk)
		return MLX5_CMD_STAT_BAD_RES_ERR;
	posted_push(h);
	if (!MKC(mk, free))
		check_ksms(h, mk->index);
	mkey_free(h, mk);
	return MLX5_CMD_STAT_OK;
}

u8 query_mkey(struct hca *h, struct cmd_io *io)
{
	u32 at = MLX5_BYTE_OFF(query_mkey_out, bsf0_klm0_pas_mtt0_1);
	struct mkey *mk = table_get(&h->mkey, get_id(io));

	if (!mk)
		return MLX5_CMD_STAT_BAD_RES_ERR;
	memcpy(MLX5_ADDR_OF(query_mkey_out, io->out, memory_key_mkey_entry), mk->mkc,
	       sizeof(mk->mkc));
	if (io->outlen > at && mk->xlt)
		memcpy((u8 *)io->out + at, mk->xlt, min(io->outlen - at, mk->xlt_size));
	return MLX5_CMD_STAT_OK;
}

u8 query_special_contexts(struct hca *h, struct cmd_io *io)
{
	MLX5_SET(query_special_contexts_out, io->out, null_mkey, NULL_MKEY);
	return MLX5_CMD_STAT_OK;
}

/* ---- UMR ---- */

#define FIELD(mask, field) \
	if (want & (mask)) \
		MLX5_SET(mkc, mkc, field, MLX5_GET(mkc, seg, field));

/* Fields of the mkey segment that the mask names. */
static void merge(void *mkc, const void *seg, u64 want)
{
	FIELD(MLX5_MKEY_MASK_PAGE_SIZE, log_page_size)
	FIELD(MLX5_MKEY_MASK_PD, pd)
	FIELD(MLX5_MKEY_MASK_EN_RINVAL, en_rinval)
	FIELD(MLX5_MKEY_MASK_BSF_EN, bsf_en)
	FIELD(MLX5_MKEY_MASK_KEY, mkey_7_0)
	FIELD(MLX5_MKEY_MASK_QPN, qpn)
	FIELD(MLX5_MKEY_MASK_LR, lr)
	FIELD(MLX5_MKEY_MASK_LW, lw)
	FIELD(MLX5_MKEY_MASK_RR, rr)
	FIELD(MLX5_MKEY_MASK_RW, rw)
	FIELD(MLX5_MKEY_MASK_A, a)
	FIELD(MLX5_MKEY_MASK_SMALL_FENCE, small_fence_on_rdma_read_response)
	FIELD(MLX5_MKEY_MASK_RELAXED_ORDERING_WRITE, relaxed_ordering_write)
	FIELD(MLX5_MKEY_MASK_RELAXED_ORDERING_READ, relaxed_ordering_read)
	FIELD(MLX5_MKEY_MASK_FREE, free)
	FIELD(MLX5_MKEY_MASK_LEN, length64)
	if (want & MLX5_MKEY_MASK_LEN)
		MLX5_SET64(mkc, mkc, len, MLX5_GET64(mkc, seg, len));
	if (want & MLX5_MKEY_MASK_START_ADDR)
		MLX5_SET64(mkc, mkc, start_addr, MLX5_GET64(mkc, seg, start_addr));
}

/* Copies new translations from where the data segment says, through an mkey of the driver's. */
static bool gather(struct hca *h, u8 *to, const struct mlx5_wqe_data_seg *seg, u64 len, u32 pd)
{
	u64 va = be64_to_cpu(seg->addr), enough = h->steps + MAX_STEPS;
	struct xlat x;

	if (len > be32_to_cpu(seg->byte_count)) {
		note(h, "UMR: %lu bytes of translations, but a data segment of %u", len,
		     be32_to_cpu(seg->byte_count));
		return false;
	}
	for (; len; to += x.len, va += x.len, len -= x.len)
		if (translate(h, be32_to_cpu(seg->lkey), va, len, ACC_READ, pd, &x) != OK) {
			note(h, "UMR: data segment with key %#x, address %#lx: %s",
			     be32_to_cpu(seg->lkey), va, x.why);
			return false;
		} else if (!dma_read(h, x.iova, to, x.len)) {
			return false;
		} else if (h->steps > enough) {
			note(h, "UMR: translations in too many pieces");
			return false;
		}
	return true;
}

u8 umr(struct hca *h, u32 key, const u8 *seg, size_t len, u32 pd)
{
	const u8 *mkey_seg = seg + sizeof(struct mlx5_wqe_umr_ctrl_seg),
		 *rest = mkey_seg + sizeof(struct mlx5_mkey_seg);
	struct mkey *mk = table_get(&h->mkey, key >> 8);
	struct mlx5_wqe_umr_ctrl_seg ctrl;
	struct mlx5_wqe_data_seg data;
	u64 bytes, at = 0, was_free;
	u32 aligned[sizeof(struct mlx5_mkey_seg) / 4];

	_Static_assert(sizeof(struct mlx5_mkey_seg) == MLX5_ST_SZ_BYTES(mkc), "mkey segment");
	h->stats.umr_wqes++;
	if (len < rest - seg) {
		note(h, "UMR: the WQE is too short");
		return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
	}
	/* Writes that used the old translations arrive before the UMR is done. */
	posted_push(h);
	memcpy(&ctrl, seg, sizeof(ctrl));
	memcpy(aligned, mkey_seg, sizeof(aligned));
	len -= rest - seg;
	if (!mk || !MKC(mk, umr_en)) {
		note(h, "UMR of mkey %#x, which does not allow it", key);
		return MLX5_CQE_SYNDROME_MW_BIND_ERR;
	}
	if ((ctrl.flags & MLX5_UMR_CHECK_FREE && MKC(mk, free)) ||
	    (ctrl.flags & MLX5_UMR_CHECK_NOT_FREE && !MKC(mk, free))) {
		note(h, "UMR of mkey %#x, which is %sfree", key, MKC(mk, free) ? "" : "not ");
		return MLX5_CQE_SYNDROME_MW_BIND_ERR;
	}
	bytes = be16_to_cpu(ctrl.xlt_octowords) * 16ULL;
	if (ctrl.flags & MLX5_UMR_TRANSLATION_OFFSET_EN)
		at = ((u64)be32_to_cpu(ctrl.xlt_offset_47_16) << 16 |
		      be16_to_cpu(ctrl.xlt_offset)) *
		     16;
	if (bytes) {
		if (at > mk->xlt_size || bytes > mk->xlt_size - at) {
			violation(h, "UMR of mkey %#x: translations [%#lx, %#lx) of %#lx bytes",
				  key, at, at + bytes, mk->xlt_size);
			return MLX5_CQE_SYNDROME_MW_BIND_ERR;
		}
		if (ctrl.flags & MLX5_UMR_INLINE) {
			if (bytes > len)
				return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
			memcpy(mk->xlt + at, rest, bytes);
		} else {
			if (len < sizeof(data))
				return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
			memcpy(&data, rest, sizeof(data));
			if (!gather(h, mk->xlt + at, &data, bytes, pd))
				return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
		}
	}
	was_free = MKC(mk, free);
	merge(mk->mkc, aligned, be64_to_cpu(ctrl.mkey_mask));
	h->stats.mkeys_enabled += was_free - MKC(mk, free);
	if (!was_free && MKC(mk, free))
		check_ksms(h, mk->index);
	debug(h, "UMR of mkey %#x: mask %#lx, %lu bytes at %#lx", key, be64_to_cpu(ctrl.mkey_mask),
	      bytes, at);
	if (bytes)
		check_mtts(h, mk, at / 8, bytes / 8);
	fault_look(h);
	return 0;
}
