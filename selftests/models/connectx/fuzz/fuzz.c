// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the fuzzers share: guest memory, the way of a command, inputs and how to change them. See
 * fuzz.h.
 */
#include "fuzz.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_RECORDS 64

size_t LLVMFuzzerMutate(u8 *data, size_t size, size_t max);

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
	/* Once: from then on it is copied. */
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
 * argument: slot, and 32: do not ring the doorbell, for it is to be changed; value: length of the
 * output
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
		/* Where all have it. */
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

/* argument: the region; value: where, in words */
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

/* ---- inputs ---- */

/* The next record; data: where the zeroes shall be behind it. */
static bool next(const u8 **p, const u8 *end, struct rec *r, u8 *data)
{
	const u8 *at = *p;

	if (end - at < RECORD_HEADER)
		return false;
	*r = (struct rec){ at[0], at[1], at[2] | at[3] << 8, at[4] | at[5] << 8, data };
	at += RECORD_HEADER;
	r->len = min(r->len, min(end - at, MAX_DATA));
	memcpy(data, at, r->len);
	memset(data + r->len, 0, MAX_DATA - r->len);
	*p = at + r->len;
	return true;
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
	/* Small tables: their ends can be reached. */
	h->pd.n = h->uar.n = h->xrcd.n = h->td.n = h->eq.n = 4;
	h->cq.n = h->srq.n = 8;
	h->mkey.n = h->qp.n = 32;
	if (getenv("SAY")) {
		h->verbose = true;
	} else {
		h->notes = 10000;
		h->stats.violations = 1000;
	}
	begin(h);
	p++;
	for (int n = 0; n < MAX_RECORDS && next(&p, last, &r, data); n++)
		kinds[r.kind % nkinds].run(h, &r);
	objects_free(h, false);
	/* What was taken has been given back. */
	if (h->stats.mkeys_enabled || h->xlt_total)
		abort();
	hca_free(h);
	end();
	return 0;
}

/* ---- how to change them ---- */

/* A whole record, a number in one, or bytes of one as libFuzzer likes. */

static u64 seed;

u32 rnd(u32 n)
{
	seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
	return (seed >> 33) % n;
}

struct input {
	unsigned int n;
	struct rec rec[MAX_RECORDS];
	u8 data[MAX_RECORDS][MAX_DATA];
};

static void parse(struct input *in, const u8 *p, size_t size)
{
	const u8 *last = p + size;

	for (in->n = 0; size && in->n < MAX_RECORDS; in->n++)
		if (!next(&p, last, &in->rec[in->n], in->data[in->n]))
			break;
}

static size_t unparse(const struct input *in, u8 *to, size_t max)
{
	size_t at = 0;

	for (unsigned int i = 0; i < in->n; i++) {
		const struct rec *r = &in->rec[i];

		if (max - at < RECORD_HEADER + r->len)
			break;
		memcpy(to + at,
		       (u8[]){ r->kind, r->arg, r->value, r->value >> 8, r->len, r->len >> 8 },
		       RECORD_HEADER);
		memcpy(to + at + RECORD_HEADER, r->data, r->len);
		at += RECORD_HEADER + r->len;
	}
	return at;
}

/* Makes room for record i; its data is its own. */
static void open_gap(struct input *in, unsigned int i)
{
	for (unsigned int j = in->n++; j > i; j--) {
		in->rec[j] = in->rec[j - 1];
		in->rec[j].data = memcpy(in->data[j], in->data[j - 1], MAX_DATA);
	}
	in->rec[i].data = in->data[i];
}

static void put_value(struct rec *r, u8 *data)
{
	u32 width = 1 << rnd(4), at;
	__be64 be = cpu_to_be64(values[rnd(nvalues)] << (64 - 8 * width));

	if (r->len < width)
		return;
	at = rnd(r->len / width) * width;
	memcpy(data + at, &be, width);
	if (rnd(4) == 0)	/* little endian: the back door, vfio-user */
		for (u32 i = 0; i < width / 2; i++) {
			u8 b = data[at + i];

			data[at + i] = data[at + width - 1 - i];
			data[at + width - 1 - i] = b;
		}
}

size_t LLVMFuzzerCustomMutator(u8 *p, size_t size, size_t max, unsigned int with)
{
	static struct input in;
	unsigned int i;
	struct rec *r;
	u8 *data;

	seed = with;
	if (max < 64)
		return LLVMFuzzerMutate(p, size, max);
	if (!size)
		p[0] = 0;
	parse(&in, p + !!size, size ? size - 1 : 0);
	for (int n = 1 + rnd(4); n--;) {
		u32 what = rnd(16);

		if (what < 4 || !in.n) {
			if (in.n == MAX_RECORDS)
				continue;
			i = rnd(in.n + 1);
			open_gap(&in, i);
			r = &in.rec[i];
			*r = (struct rec){ .kind = rnd(nkinds),
					   .arg = rnd(256),
					   .value = rnd(65536),
					   .data = in.data[i] };
			memset(in.data[i], 0, MAX_DATA);
			if (kinds[r->kind].fill)
				r->len = kinds[r->kind].fill(r, in.data[i]);
			r->len = min(r->len, MAX_DATA);
			continue;
		}
		i = rnd(in.n);
		r = &in.rec[i];
		data = in.data[i];
		switch (what) {
		case 4:
			for (in.n--; i < in.n; i++) {
				in.rec[i] = in.rec[i + 1];
				in.rec[i].data = memcpy(in.data[i], in.data[i + 1], MAX_DATA);
			}
			break;
		case 5:
			if (in.n < MAX_RECORDS)
				open_gap(&in, i);
			break;
		case 6:
			r->arg ^= 1 << rnd(8);
			break;
		case 7:
			r->value = rnd(2) ? r->value ^ 1 << rnd(16) : values[rnd(nvalues)];
			break;
		case 8:
			r->len = min(rnd(2) ? r->len + 16 : rnd(r->len + 64), MAX_DATA);
			break;
		case 9:
		case 10:
			r->len = LLVMFuzzerMutate(data, r->len, min(r->len + 64, MAX_DATA));
			break;
		case 11:
			if (rnd(8) == 0)
				p[0] ^= 1;
			break;
		default:
			put_value(r, data);
		}
	}
	return 1 + unparse(&in, p + 1, max - 1);
}

size_t LLVMFuzzerCustomCrossOver(const u8 *a, size_t asize, const u8 *b, size_t bsize, u8 *out,
				 size_t max, unsigned int with)
{
	static struct input in, other;
	unsigned int skip;

	seed = with;
	if (!asize || !bsize || max < 64)
		return 0;
	parse(&in, a + 1, asize - 1);
	parse(&other, b + 1, bsize - 1);
	in.n = rnd(in.n + 1);
	skip = rnd(other.n + 1);
	for (; skip < other.n && in.n < MAX_RECORDS; skip++) {
		in.rec[in.n] = other.rec[skip];
		in.rec[in.n].data = memcpy(in.data[in.n], other.data[skip], MAX_DATA);
		in.n++;
	}
	out[0] = a[0];
	return 1 + unparse(&in, out + 1, max - 1);
}
