// SPDX-License-Identifier: GPL-2.0-only
/*
 * The command interface: a page of 64-byte slots in guest memory, a doorbell in the initialisation
 * segment, and mailboxes for the data behind the first 16 bytes.
 *
 * To add a command: write a function of type cmd_fn that reads io->in, writes io->out (both by
 * MLX5_GET and MLX5_SET) and returns a MLX5_CMD_STAT_*, and add a line to the table. Both buffers
 * are at least as large as the layouts of mlx5_ifc.h. The length of data behind a layout (a page
 * list) must be checked against io->inlen, io->outlen.
 */
#include "connectx.h"

#include <stdlib.h>

#define MAX_IN (8U << 20)
#define MAX_OUT (1U << 20)
#define SLOT sizeof(struct mlx5_cmd_layout)

enum {			/* MLX5_CMD_DELIVERY_STAT_*, which only the driver's cmd.c has */
	DELIVERY_TOKEN = 0x2,
	DELIVERY_BLOCK = 0x3,
	DELIVERY_OUT_PTR = 0x4,
	DELIVERY_IN_PTR = 0x5,
	DELIVERY_NO_MEMORY = 0x6,
	DELIVERY_IN_LENGTH = 0x7,
	DELIVERY_OUT_LENGTH = 0x8,
	DELIVERY_DESCRIPTOR = 0x10,
};

/* All the small allocations have their number at the same place. */
#define ID_AT(layout, field)                                       \
	_Static_assert(__mlx5_bit_off(layout, field) == 0x48 &&    \
			       __mlx5_bit_sz(layout, field) == 24, \
		       #layout)
ID_AT(alloc_pd_out, pd);
ID_AT(alloc_uar_out, uar);
ID_AT(alloc_xrcd_out, xrcd);
ID_AT(alloc_transport_domain_out, transport_domain);
ID_AT(create_cq_out, cqn);
ID_AT(create_qp_out, qpn);
ID_AT(create_srq_out, srqn);
ID_AT(create_mkey_out, mkey_index);
ID_AT(dealloc_pd_in, pd);
ID_AT(dealloc_uar_in, uar);
ID_AT(dealloc_xrcd_in, xrcd);
ID_AT(dealloc_transport_domain_in, transport_domain);
ID_AT(destroy_cq_in, cqn);
ID_AT(query_cq_in, cqn);
ID_AT(modify_cq_in, cqn);
ID_AT(destroy_qp_in, qpn);
ID_AT(rst2init_qp_in, qpn);
ID_AT(qp_2rst_in, qpn);
ID_AT(query_qp_in, qpn);
ID_AT(destroy_srq_in, srqn);
ID_AT(destroy_mkey_in, mkey_index);
ID_AT(query_mkey_in, mkey_index);

void set_id(struct cmd_io *io, u32 id)
{
	MLX5_SET(alloc_pd_out, io->out, pd, id);
}

u32 get_id(const struct cmd_io *io)
{
	return MLX5_GET(dealloc_pd_in, io->in, pd);
}

static u8 ok(struct hca *h, struct cmd_io *io)
{
	return MLX5_CMD_STAT_OK;
}

static u8 allocate(struct hca *h, struct cmd_io *io)
{
	struct table *t = (struct table *)((u8 *)h + io->cmd->table);
	int id = table_add(t, t);

	if (id < 0)
		return MLX5_CMD_STAT_LIM_ERR;
	set_id(io, id);
	return MLX5_CMD_STAT_OK;
}

static u8 deallocate(struct hca *h, struct cmd_io *io)
{
	struct table *t = (struct table *)((u8 *)h + io->cmd->table);

	return table_del(t, get_id(io)) ? MLX5_CMD_STAT_OK : MLX5_CMD_STAT_BAD_RES_ERR;
}

static u8 teardown_hca(struct hca *h, struct cmd_io *io)
{
	objects_free(h, true);
	return MLX5_CMD_STAT_OK;
}

static u8 disable_hca(struct hca *h, struct cmd_io *io)
{
	objects_free(h, true);
	caps_init(h);
	return MLX5_CMD_STAT_OK;
}

/* Bit n: version n of the interface is supported. */
static u8 query_issi(struct hca *h, struct cmd_io *io)
{
	MLX5_SET(query_issi_out, io->out, supported_issi_dw0, 1);
	return MLX5_CMD_STAT_OK;
}

static u8 query_adapter(struct hca *h, struct cmd_io *io)
{
	void *p = MLX5_ADDR_OF(query_adapter_out, io->out, query_adapter_struct);

	MLX5_SET(query_adapter_param_block, p, ieee_vendor_id, 0x2c9);
	memcpy(MLX5_ADDR_OF(query_adapter_param_block, p, vsd_contd_psid), "MODEL", 5);
	return MLX5_CMD_STAT_OK;
}

#define GUID 0x0002c90300c0ffeeULL

static u8 query_hca_vport_context(struct hca *h, struct cmd_io *io)
{
	void *c = MLX5_ADDR_OF(query_hca_vport_context_out, io->out, hca_vport_context);

	MLX5_SET(hca_vport_context, c, vport_state, 4);		/* active */
	MLX5_SET(hca_vport_context, c, port_state, 4);
	MLX5_SET(hca_vport_context, c, port_physical_state, 5);	/* link up */
	MLX5_SET64(hca_vport_context, c, system_image_guid, GUID);
	MLX5_SET64(hca_vport_context, c, node_guid, GUID);
	MLX5_SET64(hca_vport_context, c, port_guid, GUID + 1);
	MLX5_SET(hca_vport_context, c, cap_mask1_field_select, ~0U);
	MLX5_SET(hca_vport_context, c, lid, 1);
	MLX5_SET(hca_vport_context, c, sm_lid, 1);
	return MLX5_CMD_STAT_OK;
}

static u8 query_hca_vport_gid(struct hca *h, struct cmd_io *io)
{
	__be64 *gid = (__be64 *)((u8 *)io->out + MLX5_ST_SZ_BYTES(query_hca_vport_gid_out));

	if (io->outlen < MLX5_ST_SZ_BYTES(query_hca_vport_gid_out) + 16)
		return MLX5_CMD_STAT_BAD_OUTP_LEN_ERR;
	MLX5_SET(query_hca_vport_gid_out, io->out, gids_num, 1);
	gid[0] = cpu_to_be64(0xfe80ULL << 48);
	if (MLX5_GET(query_hca_vport_gid_in, io->in, gid_index) == 0)
		gid[1] = cpu_to_be64(GUID + 1);
	else
		gid[0] = 0;
	return MLX5_CMD_STAT_OK;
}

static u8 query_hca_vport_pkey(struct hca *h, struct cmd_io *io)
{
	void *pkey = MLX5_ADDR_OF(query_hca_vport_pkey_out, io->out, pkey);

	if (io->outlen < MLX5_BYTE_OFF(query_hca_vport_pkey_out, pkey) + MLX5_ST_SZ_BYTES(pkey))
		return MLX5_CMD_STAT_BAD_OUTP_LEN_ERR;
	if (MLX5_GET(query_hca_vport_pkey_in, io->in, pkey_index) == 0)
		MLX5_SET(pkey, pkey, pkey, 0xffff);
	return MLX5_CMD_STAT_OK;
}

enum { REG_PMTU = 0x5003, REG_PTYS = 0x5004, REG_PVLC = 0x500f, REG_NODE_DESC = 0x6001 };

static u8 access_reg(struct hca *h, struct cmd_io *io)
{
	u32 at = MLX5_BYTE_OFF(access_register_in, register_data);
	u32 id = MLX5_GET(access_register_in, io->in, register_id);
	bool write = !MLX5_GET(access_register_in, io->in, op_mod);
	u8 *out = (u8 *)io->out + at;
	u8 reg[512] = { 0 };

	_Static_assert(MLX5_BYTE_OFF(access_register_in, register_data) ==
		       MLX5_BYTE_OFF(access_register_out, register_data), "register_data");
	if (io->outlen < at)
		return MLX5_CMD_STAT_BAD_OUTP_LEN_ERR;
	switch (id) {
	case REG_PMTU:
		MLX5_SET(pmtu_reg, reg, max_mtu, 4096);
		MLX5_SET(pmtu_reg, reg, admin_mtu, 4096);
		MLX5_SET(pmtu_reg, reg, oper_mtu, 4096);
		break;
	case REG_PTYS:
		MLX5_SET(ptys_reg, reg, ib_link_width_oper, 4);	/* 4X */
		MLX5_SET(ptys_reg, reg, ib_proto_oper, 32);	/* EDR */
		break;
	case REG_PVLC:
		MLX5_SET(pvlc_reg, reg, vl_hw_cap, 1);
		break;
	case REG_NODE_DESC:
		if (write && io->inlen >= at + sizeof(h->node_desc))
			memcpy(h->node_desc, (u8 *)io->in + at, sizeof(h->node_desc));
		memcpy(reg, h->node_desc, sizeof(h->node_desc));
		break;
	default:
		note(h, "register %#x is not there", id);
		return MLX5_CMD_STAT_BAD_PARAM_ERR;
	}
	memcpy(out, reg, min(io->outlen - at, sizeof(reg)));
	return MLX5_CMD_STAT_OK;
}

/* A management agent that knows no attribute. */
static u8 mad_ifc(struct hca *h, struct cmd_io *io)
{
	u8 *mad = MLX5_ADDR_OF(mad_ifc_out, io->out, response_mad_packet);

	memcpy(mad, MLX5_ADDR_OF(mad_ifc_in, io->in, mad), MLX5_FLD_SZ_BYTES(mad_ifc_in, mad));
	mad[3] |= 0x80;		/* method: response */
	mad[5] = 0x0c;		/* status: method and attribute not supported together */
	return MLX5_CMD_STAT_OK;
}

#define CMD2(OP, layout, fn, table)                                   \
	{                                                             \
		MLX5_CMD_OP_##OP, #OP, MLX5_ST_SZ_BYTES(layout##_in), \
			MLX5_ST_SZ_BYTES(layout##_out), fn, table     \
	}
#define CMD(OP, name, fn) CMD2(OP, name, fn, 0)
#define ALLOC(OP, name, what) CMD2(OP, name, allocate, offsetof(struct hca, what))
#define FREE(OP, name, what) CMD2(OP, name, deallocate, offsetof(struct hca, what))

const struct cmd commands[] = {
	CMD(QUERY_HCA_CAP, query_hca_cap, query_hca_cap),
	CMD(QUERY_ADAPTER, query_adapter, query_adapter),
	CMD(INIT_HCA, init_hca, ok),
	CMD(TEARDOWN_HCA, teardown_hca, teardown_hca),
	CMD(ENABLE_HCA, enable_hca, ok),
	CMD(DISABLE_HCA, disable_hca, disable_hca),
	CMD(QUERY_PAGES, query_pages, ok),	/* none needed */
	CMD(SET_HCA_CAP, set_hca_cap, set_hca_cap),
	CMD(QUERY_ISSI, query_issi, query_issi),
	CMD(CREATE_MKEY, create_mkey, create_mkey),
	CMD(QUERY_MKEY, query_mkey, query_mkey),
	CMD(DESTROY_MKEY, destroy_mkey, destroy_mkey),
	CMD(QUERY_SPECIAL_CONTEXTS, query_special_contexts, query_special_contexts),
	CMD(PAGE_FAULT_RESUME, page_fault_resume, page_fault_resume),
	CMD(CREATE_EQ, create_eq, create_eq),
	CMD(DESTROY_EQ, destroy_eq, destroy_eq),
	CMD(CREATE_CQ, create_cq, create_cq),
	CMD(DESTROY_CQ, destroy_cq, destroy_cq),
	CMD(QUERY_CQ, query_cq, query_cq),
	CMD(MODIFY_CQ, modify_cq, modify_cq),
	CMD(CREATE_QP, create_qp, create_qp),
	CMD(DESTROY_QP, destroy_qp, destroy_qp),
	CMD(RST2INIT_QP, rst2init_qp, modify_qp),
	CMD(INIT2INIT_QP, init2init_qp, modify_qp),
	CMD(INIT2RTR_QP, init2rtr_qp, modify_qp),
	CMD(RTR2RTS_QP, rtr2rts_qp, modify_qp),
	CMD(RTS2RTS_QP, rts2rts_qp, modify_qp),
	CMD(2ERR_QP, qp_2err, modify_qp),
	CMD(2RST_QP, qp_2rst, modify_qp),
	CMD(QUERY_QP, query_qp, query_qp),
	CMD(CREATE_SRQ, create_srq, create_srq),
	CMD(DESTROY_SRQ, destroy_srq, destroy_srq),
	CMD(QUERY_SRQ, query_srq, query_srq),
	CMD(ARM_RQ, arm_rq, arm_srq),
	CMD(QUERY_HCA_VPORT_CONTEXT, query_hca_vport_context, query_hca_vport_context),
	CMD(MODIFY_HCA_VPORT_CONTEXT, modify_hca_vport_context, ok),
	CMD(QUERY_HCA_VPORT_GID, query_hca_vport_gid, query_hca_vport_gid),
	CMD(QUERY_HCA_VPORT_PKEY, query_hca_vport_pkey, query_hca_vport_pkey),
	ALLOC(ALLOC_PD, alloc_pd, pd),
	FREE(DEALLOC_PD, dealloc_pd, pd),
	ALLOC(ALLOC_UAR, alloc_uar, uar),
	FREE(DEALLOC_UAR, dealloc_uar, uar),
	ALLOC(ALLOC_XRCD, alloc_xrcd, xrcd),
	FREE(DEALLOC_XRCD, dealloc_xrcd, xrcd),
	ALLOC(ALLOC_TRANSPORT_DOMAIN, alloc_transport_domain, td),
	FREE(DEALLOC_TRANSPORT_DOMAIN, dealloc_transport_domain, td),
	{ MLX5_CMD_OP_ACCESS_REG, "ACCESS_REG", MLX5_ST_SZ_BYTES(access_register_in),
	  MLX5_ST_SZ_BYTES(access_register_out), access_reg, 0 },
	CMD(MAD_IFC, mad_ifc, mad_ifc),
	CMD(ATTACH_TO_MCG, attach_to_mcg, ok),
	CMD(DETACH_FROM_MCG, detach_from_mcg, ok),
};
const size_t ncommands = ARRAY_SIZE(commands);

static u8 run(struct hca *h, struct cmd_io *io)
{
	u32 op = MLX5_GET(enable_hca_in, io->in, opcode);
	u8 status;

	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (commands[i].op == op)
			io->cmd = &commands[i];
	if (!io->cmd) {
		note(h, "command %#x is not there", op);
		h->stats.bad_commands++;
		return MLX5_CMD_STAT_BAD_OP_ERR;
	}
	if (io->inlen < io->cmd->in)
		return MLX5_CMD_STAT_BAD_INP_LEN_ERR;
	if (inject(h, op)) {
		note(h, "%s: made to fail", io->cmd->name);
		return h->fail_status ? h->fail_status : MLX5_CMD_STAT_INT_ERR;
	}
	status = io->cmd->fn(h, io);
	debug(h, "%s id %#x: status %u, out %#x", io->cmd->name, get_id(io), status,
	      MLX5_GET(alloc_pd_out, io->out, pd));
	if (status) {
		note(h, "%s: status %#x", io->cmd->name, status);
		h->stats.bad_commands++;
	}
	return status;
}

/* Copies between buf and the chain of mailboxes at addr. */
static u8 mailboxes(struct hca *h, u64 addr, u8 *buf, size_t len, u8 token, bool out)
{
	struct mlx5_cmd_prot_block b;

	for (u32 i = 0; len; i++) {
		size_t n = min(len, sizeof(b.data));

		if (addr & 0x1ff)
			return out ? DELIVERY_OUT_PTR : DELIVERY_IN_PTR;
		if (!dma_read(h, addr, &b, sizeof(b)))
			return out ? DELIVERY_OUT_PTR : DELIVERY_IN_PTR;
		if (be32_to_cpu(b.block_num) != i)
			return DELIVERY_BLOCK;
		if (b.token != token)
			return DELIVERY_TOKEN;
		if (!out)
			memcpy(buf, b.data, n);
		else if (!dma_write(h, addr, buf, n))
			return DELIVERY_OUT_PTR;
		buf += n;
		len -= n;
		addr = be64_to_cpu(b.next);
	}
	return 0;
}

static u8 deliver(struct hca *h, struct mlx5_cmd_layout *lay)
{
	struct cmd_io io = { .inlen = be32_to_cpu(lay->inlen), .outlen = be32_to_cpu(lay->outlen) };
	size_t inlen = io.inlen, outlen = io.outlen, want = 0;
	u8 err, status;

	if (lay->type != MLX5_PCI_CMD_XPORT)
		return DELIVERY_DESCRIPTOR;
	if (inlen < 8 || inlen > MAX_IN)
		return DELIVERY_IN_LENGTH;
	if (outlen < 8 || outlen > MAX_OUT)
		return DELIVERY_OUT_LENGTH;
	/* Handlers rely on both being as large as any layout. */
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		want = max(want, max(commands[i].in, commands[i].out));
	want += 64;
	io.in = calloc(1, max(inlen, want));
	io.out = calloc(1, max(outlen, want));
	if (!io.in || !io.out) {
		free(io.in);
		free(io.out);
		return DELIVERY_NO_MEMORY;
	}
	memcpy(io.in, lay->in, min(inlen, sizeof(lay->in)));
	err = mailboxes(h, be64_to_cpu(lay->in_ptr), (u8 *)io.in + 16, inlen > 16 ? inlen - 16 : 0,
			lay->token, false);
	if (!err) {
		record(h, "command", 0, 0, outlen, io.in, inlen);
		status = run(h, &io);
		if (status)
			memset(io.out, 0, outlen);
		*(u8 *)io.out = status;
		((__be32 *)io.out)[1] =
			cpu_to_be32(status ? io.syndrome ? io.syndrome : 0xbad0000 | status : 0);
		memcpy(lay->out, io.out, min(outlen, sizeof(lay->out)));
		err = mailboxes(h, be64_to_cpu(lay->out_ptr), (u8 *)io.out + 16,
				outlen > 16 ? outlen - 16 : 0, lay->token, true);
	}
	free(io.in);
	free(io.out);
	return err;
}

void cmd_doorbell(struct hca *h, u32 vector)
{
	for (int i = 0; i < 32; i++) {
		u64 at = h->cmdq + i * SLOT, n = SLOT;
		struct mlx5_cmd_layout lay, *guest;
		bool events = false;
		struct eq *eq;
		u8 err;

		if (!(vector & 1U << i) || h->syndrome)
			continue;
		if (!dma_read(h, at, &lay, SLOT))
			return;
		if (!(lay.status_own & 1)) {
			violation(h, "doorbell of command slot %d, which the driver still owns", i);
			continue;
		}
		if (hold(h, &h->held_until[i], MLX5_GET(enable_hca_in, lay.in, opcode))) {
			h->held |= 1U << i;
			continue;
		}
		/* Before the command, because an EQ does not report the command that created it. */
		table_for_each(&h->eq, e, eq)
			events |= eq->mask[0] >> MLX5_EVENT_TYPE_CMD & 1;
		h->stats.commands++;
		err = deliver(h, &lay);
		if (err) {
			note(h, "command slot %d could not be delivered: %#x", i, err);
			h->stats.bad_commands++;
		}
		guest = (struct mlx5_cmd_layout *)dma_ptr(h, at, &n, true);
		if (!guest || n < SLOT)
			return;
		memcpy(guest->out, lay.out, sizeof(lay.out));
		__atomic_store_n(&guest->status_own, err << 1, __ATOMIC_RELEASE);
		if (events) {
			_Static_assert(offsetof(struct mlx5_eqe_cmd, vector) == 0, "vector");
			struct mlx5_eqe_cmd e = { .vector = cpu_to_be32(1U << i) };

			event(h, MLX5_EVENT_TYPE_CMD, 0, &e, sizeof(e));
		}
	}
}

bool cmd_tick(struct hca *h)
{
	u32 due = 0;

	for (int i = 0; i < 32; i++)
		if (h->held & 1U << i && h->held_until[i] <= now())
			due |= 1U << i;
	h->held &= ~due;
	if (due)
		cmd_doorbell(h, due);
	return h->held;
}
