// SPDX-License-Identifier: GPL-2.0-only
/* Shared by the fuzzers: guest memory, commands, and actions of a guest. See fuzz.h. */
#include "fuzz.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

const bool big_endian = true;

u8 *ram;
int ram_fd, peer_fd;
static struct dma_region *map;
static size_t nmap;

static int memory(const char *name, size_t size)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, size) || fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK)) {
		perror(name);
		exit(2);
	}
	return fd;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static struct hca h;

	ram_fd = memory("ram", RAM_SIZE);
	peer_fd = memory("peer", PEER_SIZE);
	ram = mmap(NULL, RAM_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, ram_fd, 0);
	if (ram == MAP_FAILED) {
		perror("ram");
		exit(2);
	}
	/* Map the memory once. Each input gets a copy of the map. */
	hca_init(&h, false, false);
	for (u64 at = 0; at < RAM_END; at += RAM_SIZE)
		if (dma_map(&h.dev.dma, at, RAM_SIZE, 0, 3, ram_fd))
			abort();
	if (dma_map(&h.dev.dma, READ_ONLY, RAM_SIZE, 0, 1, ram_fd) ||
	    dma_map(&h.dev.dma, PEER, PEER_SIZE, 0, 3, peer_fd))
		abort();
	map = h.dev.dma.map;
	nmap = h.dev.dma.nmap;
	h.dev.dma.map = NULL;
	hca_free(&h);
	return 0;
}

void map_memory(struct hca *h)
{
	h->dev.dma.map = malloc(nmap * sizeof(*map));
	memcpy(h->dev.dma.map, map, nmap * sizeof(*map));
	h->dev.dma.nmap = h->dev.dma.room = nmap;
}

/* ---- what a guest does ---- */

void bar_write(struct hca *h, u64 at, u32 first, u32 second, unsigned int words)
{
	__be32 w[2] = { cpu_to_be32(first), cpu_to_be32(second) };

	vfio_user_write(&h->dev, 0, at, w, 4 * words);
}

/* A chain of mailboxes, with this data or empty. */
static void boxes(u32 at, const u8 *data, u32 len)
{
	u32 n = len ? (len + MLX5_CMD_DATA_BLOCK_SIZE - 1) / MLX5_CMD_DATA_BLOCK_SIZE : 0;

	for (u32 i = 0; i < n; i++, at += 1024) {
		struct mlx5_cmd_prot_block *b = (struct mlx5_cmd_prot_block *)(ram + at);

		memset(b, 0, sizeof(*b));
		if (data)
			memcpy(b->data, data + i * MLX5_CMD_DATA_BLOCK_SIZE,
			       min(len - i * MLX5_CMD_DATA_BLOCK_SIZE, MLX5_CMD_DATA_BLOCK_SIZE));
		b->next = cpu_to_be64(i + 1 < n ? at + 1024 : 0);
		b->block_num = cpu_to_be32(i);
	}
}

void command(struct hca *h, u32 slot, const void *in, u32 inlen, u32 outlen, bool ring)
{
	struct mlx5_cmd_layout *lay = (struct mlx5_cmd_layout *)(ram + CMDQ) + slot;

	memset(lay, 0, sizeof(*lay));
	lay->type = MLX5_PCI_CMD_XPORT;
	lay->inlen = cpu_to_be32(inlen);
	lay->outlen = cpu_to_be32(outlen);
	memcpy(lay->in, in, min(inlen, sizeof(lay->in)));
	lay->in_ptr = cpu_to_be64(BOXES);
	lay->out_ptr = cpu_to_be64(BOXES_OUT);
	boxes(BOXES, (const u8 *)in + 16, inlen > 16 ? inlen - 16 : 0);
	boxes(BOXES_OUT, NULL, outlen > 16 ? outlen - 16 : 0);
	lay->status_own = 1;
	if (ring)
		bar_write(h, offsetof(struct mlx5_init_seg, cmd_dbell), 1U << slot, 0, 1);
}

/*
 * argument: the slot; 32: do not ring the doorbell, so that a later record can change the command;
 * value: length of the output
 */
void run_command(struct hca *h, const struct rec *r)
{
	command(h, r->arg & 31, r->data, r->len, r->value & 0x1fff, !(r->arg & 32));
}

u16 fill_command(struct rec *r, u8 *data)
{
	static const u16 registers[] = { 0x5003, 0x5004, 0x500f, 0x6001 };
	static const u8 numbers[] = { 1, 0x10, 0x40, 0x80 };	/* the first ones of the tables */
	const struct cmd *c = &commands[rnd(ncommands)];

	MLX5_SET(enable_hca_in, data, opcode, c->op);
	switch (c->op) {
	case MLX5_CMD_OP_CREATE_EQ:
		memset(MLX5_ADDR_OF(create_eq_in, data, event_bitmask), 0xff, 8);
		MLX5_SET(create_eq_in, data, eq_context_entry.log_eq_size, rnd(24));
		break;
	case MLX5_CMD_OP_CREATE_CQ:
		MLX5_SET(create_cq_in, data, cq_context.c_eqn_or_apu_element, 1);
		MLX5_SET(create_cq_in, data, cq_context.log_cq_size, rnd(24));
		break;
	case MLX5_CMD_OP_CREATE_QP:
		MLX5_SET(create_qp_in, data, qpc.cqn_snd, 0x80);
		MLX5_SET(create_qp_in, data, qpc.cqn_rcv, 0x80);
		MLX5_SET(create_qp_in, data, qpc.log_sq_size, rnd(16));
		break;
	case MLX5_CMD_OP_CREATE_MKEY:
		MLX5_SET(create_mkey_in, data, memory_key_mkey_entry.access_mode_1_0, rnd(4));
		MLX5_SET(create_mkey_in, data, memory_key_mkey_entry.translations_octword_size,
			 rnd(4));
		break;
	case MLX5_CMD_OP_ACCESS_REG:
		MLX5_SET(access_register_in, data, register_id,
			 registers[rnd(ARRAY_SIZE(registers))]);
		break;
	default:
		/* All commands have the number of their object here. */
		MLX5_SET(dealloc_pd_in, data, pd, numbers[rnd(ARRAY_SIZE(numbers))] + rnd(2));
	}
	r->arg &= ~32;
	r->value = c->out + rnd(2) * 64;
	return c->in + 16 * rnd(4);
}

void run_poke(struct hca *h, const struct rec *r)
{
	u32 at = r->value * 16 % RAM_SIZE;

	memcpy(ram + at, r->data, min(r->len, RAM_SIZE - at));
}

u16 fill_poke(struct rec *r, u8 *data)
{
	r->value = (rnd(2) ? CMDQ + rnd(64) * 16 : BOXES + rnd(16) * 512) / 16;
	return 8;
}

/* argument: the region; value: the offset, in words */
void run_write(struct hca *h, const struct rec *r)
{
	vfio_user_write(&h->dev, r->arg & 15, r->value * 4, r->data, r->len);
}

u16 fill_write(struct rec *r, u8 *data)
{
	static const u32 doorbells[] = { 0x10,	  0x14,	   0x18,    0x10020,
					 0x10040, 0x10048, 0x10800, 0x10900 };

	r->arg = 0;
	r->value = doorbells[rnd(ARRAY_SIZE(doorbells))] / 4;
	return r->value < 0x1000 ? 4 : 8;
}

void run_read(struct hca *h, const struct rec *r)
{
	u8 data[MAX_DATA];

	vfio_user_read(&h->dev, r->arg & 15, r->value * 4, data, min(r->len, sizeof(data)));
}

/* Time passes: nothing has to wait any more. */
void run_tick(struct hca *h, const struct rec *r)
{
	struct qp *qp;

	for (u32 i = 0; h->waiting && i < MAX_FAULTS; i++)
		h->fault[i].until = !!h->fault[i].until;
	table_for_each(&h->qp, i, qp)
		qp->until = !!qp->until;
	h->posted_until = 0;
	h->dev.ticking = qp_tick(h);
	h->dev.ticking |= fault_tick(h);
	h->dev.ticking |= posted_tick(h);
}

int LLVMFuzzerTestOneInput(const u8 *p, size_t size)
{
	static struct hca hca;
	struct hca *h = &hca;
	const u8 *last = p + size;
	static u8 data[MAX_DATA];
	struct rec r;

	if (!size)
		return 0;
	memset(ram, 0, RAM_SIZE);
	hca_init(h, *p & 1, *p & 2);
	/* The tables are small, so that inputs reach their ends. */
	h->pd.n = h->uar.n = h->xrcd.n = h->td.n = h->eq.n = 4;
	h->cq.n = h->srq.n = 8;
	h->mkey.n = h->qp.n = 32;
	if (getenv("SAY"))
		h->dev.verbose = true;
	else
		h->dev.mute = true;
	begin(h);
	p++;
	for (int n = 0; n < MAX_RECORDS && next(&p, last, &r, data); n++)
		kinds[r.kind % nkinds].run(h, &r);
	objects_free(h, false);
	/* All mkeys must have been released. */
	if (h->stats.mkeys_enabled || h->xlt_total)
		abort();
	hca_free(h);
	end();
	return 0;
}
