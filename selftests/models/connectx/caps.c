// SPDX-License-Identifier: GPL-2.0-only
/* The capabilities of the device. All that are not listed are 0: not supported. */
#include "connectx.h"

#include <stdlib.h>

#define CAP_SIZE 4096

static void general(struct hca *h, void *c)
{
#define CAP(field, value) MLX5_SET(cmd_hca_cap, c, field, value)
	/* An InfiniBand port of a virtual function: no flow steering, no RoCE, no e-switch. */
	CAP(port_type, 0);
	CAP(num_ports, 1);
	CAP(ib_virt, 1);
	CAP(gid_table_size, 0);		/* 8 */
	CAP(pkey_table_size, 0);	/* 128 */
	CAP(local_ca_ack_delay, 16);
	/* The model has memory of its own. */
	CAP(page_request_disable, 1);

	CAP(log_max_eq, 7);
	CAP(log_max_eq_sz, 16);
	CAP(max_num_eqs, 100);
	CAP(log_max_cq, 14);
	CAP(log_max_cq_sz, 17);
	CAP(log_max_qp, 14);
	CAP(log_max_qp_sz, 13);
	CAP(log_max_srq, 14);
	CAP(log_max_srq_sz, 13);
	CAP(log_max_mkey, 18);
	CAP(log_max_pd, 14);
	CAP(log_max_xrcd, 10);
	CAP(log_max_transport_domain, 10);
	CAP(log_max_mcg, 4);
	CAP(max_qp_mcg, 4);
	CAP(log_max_ra_req_qp, 4);
	CAP(log_max_ra_res_qp, 4);
	CAP(log_max_msg, 30);
	CAP(max_wqe_sz_sq, 1008);
	CAP(max_wqe_sz_rq, 512);
	CAP(max_wqe_sz_sq_dc, 1008);
	CAP(max_sgl_for_optimized_performance, 32);
	CAP(log_pg_sz, 12);
	CAP(log_uar_page_sz, 0);
	CAP(uar_sz, 2);			/* log2 of MiB: the whole BAR */
	CAP(bf, 1);
	CAP(log_bf_reg_size, 9);
	CAP(rc, 1);
	CAP(uc, 1);
	CAP(ud, 1);
	CAP(xrc, 1);			/* mlx5_ib does not start without it */
	CAP(qkv, 1);
	CAP(pkv, 1);
	CAP(atomic, 1);
	CAP(cq_moderation, 1);
	CAP(cq_oi, 1);

	CAP(ats, h->ats);

	/* They change nothing in the model, but OP_MKEY shows what the driver chose. */
	CAP(relaxed_ordering_write, 1);
	/* With ATS, as in newer adapters, this depends on the configuration space. */
	CAP(relaxed_ordering_read, !h->ats);
	CAP(relaxed_ordering_read_pci_enabled, h->ats);
	CAP(relaxed_ordering_write_umr, 1);
	CAP(relaxed_ordering_read_umr, 1);

	CAP(log_max_klm_list_size, 16);
	CAP(max_indirection, 4);
	CAP(log_max_mrw_sz, 63);
	CAP(umr_extended_translation_offset, 1);
	CAP(imaicl, 1);			/* memory windows */

	/* On-demand paging. Implicit MRs need the last two. */
	CAP(pg, 1);
	CAP(fixed_buffer_size, 1);
	CAP(null_mkey, 1);
#undef CAP
}

static void odp_scheme(void *scheme)
{
#define ODP(transport, what) MLX5_SET(odp_scheme_cap, scheme, transport##_odp_caps.what, 1)
	ODP(rc, send);
	ODP(rc, receive);
	ODP(rc, write);
	ODP(rc, read);
	ODP(rc, atomic);
	ODP(rc, srq_receive);
	ODP(ud, send);
	ODP(xrc, send);
	ODP(xrc, receive);
	ODP(xrc, write);
	ODP(xrc, read);
	ODP(xrc, atomic);
	ODP(xrc, srq_receive);
#undef ODP
}

static void odp(struct hca *h, void *c)
{
	odp_scheme(MLX5_ADDR_OF(odp_cap, c, transport_page_fault_scheme_cap));
	if (!h->memory_scheme)
		return;
	odp_scheme(MLX5_ADDR_OF(odp_cap, c, memory_page_fault_scheme_cap));
	/* Without prefetch the driver does not select this scheme. */
	MLX5_SET(odp_cap, c, memory_page_fault_scheme_cap.page_prefetch, 1);
	MLX5_SET(odp_cap, c, mem_page_fault, 1);
}

static void atomic(struct hca *h, void *c)
{
	MLX5_SET(atomic_caps, c, supported_atomic_req_8B_endianness_mode_1, 1);
	/* Compare and swap, fetch and add. */
	MLX5_SET(atomic_caps, c, atomic_operations, 3);
	MLX5_SET(atomic_caps, c, atomic_size_qp, 8);
}

enum { GENERAL = 0, ODP = 2, ATOMIC = 3 };		/* enum mlx5_cap_type */

static const struct {
	u8 type;
	void (*fill)(struct hca *h, void *cap);
} kinds[] = { { GENERAL, general }, { ODP, odp }, { ATOMIC, atomic } };

void caps_init(struct hca *h)
{
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		u8 type = kinds[i].type;

		if (!h->cap_max[type]) {
			h->cap_max[type] = calloc(1, CAP_SIZE);
			h->cap_cur[type] = calloc(1, CAP_SIZE);
			if (!h->cap_max[type] || !h->cap_cur[type])
				abort();
		}
		kinds[i].fill(h, h->cap_max[type]);
		memcpy(h->cap_cur[type], h->cap_max[type], CAP_SIZE);
	}
	/* These are off until the driver turns them on. */
	MLX5_SET(odp_cap, h->cap_cur[ODP], mem_page_fault, 0);
	MLX5_SET(atomic_caps, h->cap_cur[ATOMIC], atomic_req_8B_endianness_mode, 0);
}

u8 query_hca_cap(struct hca *h, struct cmd_io *io)
{
	u32 mod = MLX5_GET(query_hca_cap_in, io->in, op_mod), type = mod >> 1;
	u32 at = MLX5_BYTE_OFF(query_hca_cap_out, capability);

	if (type >= CAP_TYPES || !h->cap_max[type])
		return MLX5_CMD_STAT_BAD_PARAM_ERR;
	if (io->outlen > at)
		memcpy((u8 *)io->out + at, mod & 1 ? h->cap_cur[type] : h->cap_max[type],
		       min(io->outlen - at, CAP_SIZE));
	return MLX5_CMD_STAT_OK;
}

u8 set_hca_cap(struct hca *h, struct cmd_io *io)
{
	u32 type = MLX5_GET(set_hca_cap_in, io->in, op_mod) >> 1;
	u32 at = MLX5_BYTE_OFF(set_hca_cap_in, capability);

	if (type >= CAP_TYPES || !h->cap_max[type])
		return MLX5_CMD_STAT_BAD_PARAM_ERR;
	/* Of these capabilities the driver passes only the one that it sets. */
	if (type == ATOMIC)
		MLX5_SET(atomic_caps, h->cap_cur[type], atomic_req_8B_endianness_mode,
			 MLX5_GET(set_hca_cap_in, io->in,
				  capability.atomic_caps.atomic_req_8B_endianness_mode));
	else
		memcpy(h->cap_cur[type], (u8 *)io->in + at, min(io->inlen - at, CAP_SIZE));
	return MLX5_CMD_STAT_OK;
}
