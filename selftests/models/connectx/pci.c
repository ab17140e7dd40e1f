// SPDX-License-Identifier: GPL-2.0-only
/* Configuration space, BARs, interrupts, and the tables of objects behind them. */
#include "connectx.h"

#include <stdlib.h>

enum { REGION_BAR0 = 0, REGION_MSIX = 2, REGION_DOOR = 4 };

#define DEVCTL 0x48		/* of the capability PCI Express */

#define UAR_FIRST 16		/* behind the initialisation segment */
#define UAR_CQ 0x20
#define UAR_EQ_ARM 0x40
#define UAR_EQ 0x48
#define UAR_SQ 0x800

static void hca_restart(struct hca *h);

static void config_init(struct hca *h)
{
	/* ConnectX-5 virtual function; InfiniBand controller */
	pci_identity(&h->dev, 0x15b31018, 0x15b30001, 0x020700);
	pci_put(&h->dev, 0x10, 4, 0xc);		/* BAR 0: 64 bit, prefetchable */
	pci_put(&h->dev, 0x18, 4, 0xc);		/* BAR 2: MSI-X */
	pci_put(&h->dev, 0x20, 4, 0xc);		/* BAR 4: back door */
	pci_put(&h->dev, 0x34, 1, 0x40);
	pci_put(&h->dev, 0x40, 2, 0x9c10);	/* PCI Express, next: 0x9c */
	pci_put(&h->dev, 0x42, 2, 0x0002);	/* version 2, endpoint */
	pci_put(&h->dev, 0x44, 4, 0x10008fc1);	/* function level reset, 256 bytes */
	pci_put(&h->dev, DEVCTL, 2, 0x0010);	/* relaxed ordering */
	pci_put(&h->dev, 0x4c, 4, 0x00000043);	/* 8 GT/s, x4 */
	pci_put(&h->dev, 0x52, 2, 0x0043);
	pci_put(&h->dev, 0x9c, 2, 0x0011);	/* MSI-X */
	pci_put(&h->dev, 0x9e, 2, NVEC - 1);
	pci_put(&h->dev, 0xa0, 4, 0x00000002);	/* table: BAR 2 */
	pci_put(&h->dev, 0xa4, 4, 0x00000802);	/* pending bits: the same, 2048 */
	if (h->ats) {
		pci_put(&h->dev, 0x100, 4, 0x0001000f);	/* ATS */
		pci_put(&h->dev, 0x104, 2, 0x0020);	/* aligned to pages */
	}
}

/* ---- BAR 0 ---- */

static u32 iseg_read(struct hca *h, u32 at)
{
	switch (at) {
	case offsetof(struct mlx5_init_seg, fw_rev):
		return 35 << 16 | 16;		/* minor, major */
	case offsetof(struct mlx5_init_seg, cmdif_rev_fw_sub):
		return 5 << 16 | 1;
	case offsetof(struct mlx5_init_seg, cmdq_addr_h):
		return h->cmdq >> 32;
	case offsetof(struct mlx5_init_seg, cmdq_addr_l_sz):
		/* 32 slots of 64 bytes; state 1: disabled */
		return (h->cmdq & 0xfffff000) | (h->syndrome ? 1 << 8 : h->nic_state) | 5 << 4 | 6;
	case offsetof(struct mlx5_init_seg, health.fw_ver):
		return 16 << 24 | 35 << 16 | 1;
	case offsetof(struct mlx5_init_seg, health.irisc_index):
		return h->syndrome << 16;
	case offsetof(struct mlx5_init_seg, health_counter):
		/* If the counter stood still, the driver would take the firmware for dead. */
		return h->health_counter++ & 0xffffff;
	}
	return 0;
}

static void iseg_write(struct hca *h, u32 at, u32 val)
{
	switch (at) {
	case offsetof(struct mlx5_init_seg, cmdq_addr_h):
		/* The driver starts again, so the firmware does, too. */
		if (h->syndrome)
			hca_restart(h);
		h->cmdq = (u64)val << 32 | (u32)h->cmdq;
		break;
	case offsetof(struct mlx5_init_seg, cmdq_addr_l_sz):
		h->cmdq = (h->cmdq & ~0xffffffffULL) | (val & 0xfffff000);
		h->nic_state = val & 0x700;
		break;
	case offsetof(struct mlx5_init_seg, cmd_dbell):
		cmd_doorbell(h, val);
		break;
	}
}

static void uar_write(struct hca *h, u32 at, const u8 *from, u32 len)
{
	__be32 w[2] = { 0, 0 };

	memcpy(w, from, min(len, 8));
	switch (at) {
	case UAR_CQ:
		if (len == 8)
			cq_doorbell(h, be32_to_cpu(w[0]), be32_to_cpu(w[1]));
		return;
	case UAR_EQ_ARM:
	case UAR_EQ:
		eq_doorbell(h, be32_to_cpu(w[0]), at == UAR_EQ_ARM);
		return;
	}
	/*
	 * Each send doorbell is the beginning of a buffer of 256 bytes, to which more of the WQE
	 * may be written. It is in guest memory as well, so only its first 8 bytes count.
	 */
	if (at >= UAR_SQ && at % 256 == 0 && len == 8)
		sq_doorbell(h, be32_to_cpu(w[1]) >> 8);
}

static void bar0_read(struct hca *h, u64 off, void *to, u32 len)
{
	memset(to, h->syndrome == GONE ? 0xff : 0, len);
	if (h->syndrome == GONE)
		return;
	for (u32 i = 0, n; i < len; i += n) {
		u32 at = (off + i) & ~3U, skip = (off + i) & 3;
		__be32 val = at < sizeof(struct mlx5_init_seg) ? cpu_to_be32(iseg_read(h, at)) : 0;

		n = min(len - i, 4 - skip);
		memcpy((u8 *)to + i, (u8 *)&val + skip, n);
	}
}

static void bar0_write(struct hca *h, u64 off, const void *from, u32 len)
{
	__be32 val;

	if (h->syndrome == GONE)
		return;
	if (off / 4096 >= UAR_FIRST) {
		uar_write(h, off % 4096, from, len);
	} else if (len == 4 && off < sizeof(struct mlx5_init_seg)) {
		memcpy(&val, from, 4);
		iseg_write(h, off, be32_to_cpu(val));
	}
}

/* ---- regions, as vfio numbers them ---- */

static void region_read(struct vfio_user *v, u32 region, u64 off, void *to, u32 len)
{
	struct hca *h = container_of(v, struct hca, dev);

	switch (region) {
	case REGION_BAR0:
		bar0_read(h, off, to, len);
		break;
	case REGION_DOOR:
		door_read(h, off, to, len);
		break;
	default:
		memset(to, 0, len);
	}
}

static void region_write(struct vfio_user *v, u32 region, u64 off, const void *from, u32 len)
{
	struct hca *h = container_of(v, struct hca, dev);

	switch (region) {
	case REGION_BAR0:
		bar0_write(h, off, from, len);
		break;
	case REGION_DOOR:
		door_write(h, off, from, len);
		break;
	case VFIO_CONFIG:
		/*
		 * QEMU has the BARs and MSI-X; of the rest only the command register, relaxed
		 * ordering and the control register of ATS mean something here.
		 */
		if (off <= 4 && off + len > 4) {
			u8 command = ((const u8 *)from)[4 - off];

			if (h->syndrome == GONE && command & ~h->dev.config[4] & PCI_MASTER)
				hca_restart(h);
			h->dev.config[4] = command;
		}
		if (off <= DEVCTL && off + len > DEVCTL)
			h->dev.config[DEVCTL] = ((const u8 *)from)[DEVCTL - off];
		for (u32 i = 0; h->ats && i < len; i++)
			if (off + i == ATS_CTRL || off + i == ATS_CTRL + 1) {
				h->dev.config[off + i] = ((const u8 *)from)[i];
				memset(h->atc, 0, sizeof(h->atc));
			}
		break;
	}
}

/* ---- objects ---- */

int table_add(struct table *t, void *obj)
{
	if (!t->slot)
		t->slot = calloc(t->n, sizeof(*t->slot));
	if (!t->slot)
		return -1;
	for (u32 i = 0; i < t->n; i++) {
		u32 at = (t->next + i) % t->n;

		if (t->slot[at])
			continue;
		t->slot[at] = obj;
		t->next = (at + 1) % t->n;
		t->used++;
		return t->first + at;
	}
	return -1;
}

void *table_get(const struct table *t, u32 id)
{
	return t->slot && id >= t->first && id - t->first < t->n ? t->slot[id - t->first] : NULL;
}

void *table_del(struct table *t, u32 id)
{
	void *obj = table_get(t, id);

	if (obj) {
		t->slot[id - t->first] = NULL;
		t->used--;
	}
	return obj;
}

void objects_free(struct hca *h, bool complain)
{
	struct table *all[] = { &h->pd, &h->uar,  &h->xrcd, &h->td, &h->eq,
				&h->cq, &h->mkey, &h->qp,   &h->srq };
	struct mkey *mk;
	struct srq *srq;
	struct eq *eq;
	struct cq *cq;
	struct qp *qp;

	for (size_t i = 0; complain && i < ARRAY_SIZE(all); i++)
		if (all[i]->used)
			violation(h, "the driver has left %u %s behind", all[i]->used,
				  all[i]->name);
	door_reset(h);
	posted_push(h);
	table_for_each(&h->qp, i, qp)
		qp_destroy(h, qp);
	table_for_each(&h->srq, i, srq) {
		qbuf_free(&srq->buf);
		free(srq);
	}
	table_for_each(&h->mkey, i, mk)
		mkey_free(h, mk);
	table_for_each(&h->cq, i, cq) {
		qbuf_free(&cq->buf);
		free(cq);
	}
	table_for_each(&h->eq, i, eq) {
		qbuf_free(&eq->buf);
		free(eq);
	}
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		free(all[i]->slot);
		all[i]->slot = NULL;
		all[i]->used = 0;
	}
}

/* As after power on, but for what PCI has. */
static void hca_restart(struct hca *h)
{
	objects_free(h, false);
	caps_init(h);
	h->cmdq = 0;
	h->nic_state = 0;
	h->held = 0;
	memset(h->held_until, 0, sizeof(h->held_until));
	h->syndrome = 0;
}

/* ---- what vfio_user.c asks for ---- */

static void reset(struct vfio_user *v)
{
	struct hca *h = container_of(v, struct hca, dev);

	hca_restart(h);
	h->dev.config[4] = 0;
	pci_put(&h->dev, ATS_CTRL, 2, 0);
	memset(h->atc, 0, sizeof(h->atc));
}

static bool tick(struct vfio_user *v)
{
	struct hca *h = container_of(v, struct hca, dev);
	bool commands = cmd_tick(h), qps = qp_tick(h), faults = fault_tick(h);
	bool posted = posted_tick(h);

	return commands || qps || faults || posted;
}

static void unmap(struct vfio_user *v, u64 iova, u64 size)
{
	struct hca *h = container_of(v, struct hca, dev);
	u64 mtts = mtts_into(h, iova, size);

	posted_unmap(h, iova, size);
	ats_invalidate(h, iova, size);
	if (mtts)
		violation(h, "unmapped [%#lx, %#lx] while %lu MTTs in use lead there", iova,
			  iova + (size - 1), mtts);
}

static void heard(struct vfio_user *v, u16 command, bool files, const void *body, u32 len)
{
	record(container_of(v, struct hca, dev), "message", 0, files, command, body, len);
}

static const struct vfio_user_ops ops = {
	.read = region_read,
	.write = region_write,
	.reset = reset,
	.tick = tick,
	.unmap = unmap,
	.heard = heard,
};

const struct stats *stats(struct hca *h)
{
	h->stats.violations = h->dev.violations;
	h->stats.interrupts = h->dev.interrupts;
	h->stats.dma_maps = h->dev.dma.maps;
	h->stats.dma_regions = h->dev.dma.nmap;
	return &h->stats;
}

void hca_init(struct hca *h, bool memory_scheme, bool ats)
{
	memset(h, 0, sizeof(*h));
	h->memory_scheme = memory_scheme;
	h->ats = ats;
	h->seed = 1;
	h->pd = (struct table){ .name = "PDs", .first = 1, .n = 16000 };
	h->uar = (struct table){ .name = "UARs", .first = 16, .n = BAR0_SIZE / 4096 - 16 };
	h->xrcd = (struct table){ .name = "XRC domains", .first = 1, .n = 1000 };
	h->td = (struct table){ .name = "transport domains", .first = 1, .n = 1000 };
	h->eq = (struct table){ .name = "EQs", .first = 1, .n = 100 };
	h->cq = (struct table){ .name = "CQs", .first = 0x80, .n = 16000 };
	h->mkey = (struct table){ .name = "mkeys", .first = 0x10, .n = 1 << 18 };
	h->qp = (struct table){ .name = "QPs", .first = 0x40, .n = 16000 };
	h->srq = (struct table){ .name = "SRQs", .first = 1, .n = 16000 };
	h->dev = (struct vfio_user){
		.name = "connectx",
		.ops = &ops,
		.size = { [REGION_BAR0] = BAR0_SIZE,
			  [REGION_MSIX] = BAR_MSIX_SIZE,
			  [REGION_DOOR] = BAR_DOOR_SIZE },
		.irq_index = VFIO_MSIX,
		.nvec = NVEC,
	};
	vfio_user_init(&h->dev);
	config_init(h);
	caps_init(h);
}

void hca_free(struct hca *h)
{
	objects_free(h, false);
	for (int i = 0; i < CAP_TYPES; i++) {
		free(h->cap_max[i]);
		free(h->cap_cur[i]);
	}
	peer_free(&h->peer);
	vfio_user_free(&h->dev);
}
