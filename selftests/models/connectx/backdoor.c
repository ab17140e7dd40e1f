// SPDX-License-Identifier: GPL-2.0-only
/*
 * The back door, BAR 4: a program in the guest maps the BAR and makes the requests of a remote
 * peer. Each channel of 64 KiB is a page of registers (little endian) and a buffer. The model
 * handles an access like an RDMA READ or WRITE from the wire: rkey, translation, page fault,
 * resume, DMA. Longer accesses wrap around in the buffer.
 */
#include "connectx.h"

enum {
	RKEY = 0x00, OP = 0x04, VA = 0x08, LEN = 0x10, STATUS = 0x14,
	/* Low half: opcode of a command, or of UMR; high half N: the Nth of these fails. */
	FAIL = 0x18,
	SLOW = 0x1c,		/* low half: an opcode; high half: delay in ms */
	/*
	 * The firmware is dead, with this syndrome, until the driver restarts it; 0xff: the device
	 * is off the bus until it is bus master again.
	 */
	SYNDROME = 0x20,
	PLAIN = 0x24,	/* 1: no random behaviour, and as few page faults as possible */
	/* Low half: status of failing commands, 0: internal error; high half: more failures. */
	FAIL_STATUS = 0x28,
	NAME = 0x2c,	/* page faults of the memory scheme name this mkey; 0: the right one */
	COUNTERS = 0x800,	/* struct stats, 64 bits each */
	DATA = 0x1000,
};

/*
 * Writing one of these to OP starts it. OP_READ and OP_WRITE access guest memory. OP_WHERE returns
 * the address that VA leads to now, OP_MKEY the context of the mkey with the MTTs of VA, and this
 * mkey. The last two raise no page fault and do no DMA.
 */
enum { OP_READ = 1, OP_WRITE = 2, OP_WHERE = 3, OP_MKEY = 4 };
enum { IDLE, BUSY, DONE, FAILED };

static void finish(struct hca *h, struct xfer *x, enum result r)
{
	struct channel *c = x->owner;

	c->status = r == OK ? DONE : FAILED;
	if (r != OK)
		note(h, "back door: %s of key %#x, address %#lx: %s",
		     c->op == OP_READ ? "read" : "write", c->rkey, c->va, x->why);
}

static void where(struct hca *h, struct channel *c)
{
	struct xlat x;
	enum result r = translate(h, c->rkey, c->va, 1, ACC_READ | ACC_REMOTE, PD_ANY, &x);

	c->status = r == OK ? DONE : FAILED;
	memcpy(c->data, &x.iova, sizeof(x.iova));
}

static void context(struct hca *h, struct channel *c)
{
	struct xlat x;

	translate(h, c->rkey, c->va, 1, ACC_READ | ACC_REMOTE, PD_ANY, &x);
	c->status = x.leaf ? DONE : FAILED;
	if (x.leaf) {
		memcpy(c->data, x.leaf->mkc, sizeof(x.leaf->mkc));
		memcpy(c->data + sizeof(x.leaf->mkc), &x.key, sizeof(x.key));
	}
}

static void start(struct hca *h, struct channel *c)
{
	bool write = c->op == OP_WRITE;
	struct end remote = {
		.n = 1, .remote = true, .pd = PD_ANY, .pf_subtype = MLX5_PFAULT_SUBTYPE_RDMA
	};
	struct end local = { .buf = c->data, .buf_size = sizeof(c->data) };
	enum result r;

	if (c->op == OP_WHERE)
		where(h, c);
	if (c->op == OP_MKEY)
		context(h, c);
	if (c->status == BUSY || (c->op != OP_READ && c->op != OP_WRITE))
		return;
	remote.sge[0] = (struct sge){ .key = c->rkey, .va = c->va, .len = c->len };
	/* The driver's MLX5_PFAULT_RDMA, MLX5_PFAULT_WRITE. */
	remote.pf_type = write ? 6 : 4;
	c->x = (struct xfer){ .len = c->len, .finish = finish, .owner = c };
	c->x.src = write ? local : remote;
	c->x.dst = write ? remote : local;
	c->status = BUSY;
	c->x.why = "the device is dead";
	r = h->syndrome ? DENIED : xfer_run(h, &c->x);
	if (r != PAGE_FAULT)
		finish(h, &c->x, r);
}

u32 dice(struct hca *h, u32 n)
{
	h->seed = h->seed * 6364136223846793005ULL + 1442695040888963407ULL;
	return (h->seed >> 33) % n;
}

bool once_in(struct hca *h, u32 n)
{
	return !h->plain && !dice(h, n);
}

bool inject(struct hca *h, u16 op)
{
	if (!h->fail_in || op != h->fail_op || --h->fail_in)
		return false;
	if (h->fail_more) {
		h->fail_more--;
		h->fail_in = 1;
	}
	h->stats.injected++;
	return true;
}

bool hold(struct hca *h, u64 *until, u16 op)
{
	if (!*until && op == h->slow_op && h->slow_ms) {
		*until = now() + h->slow_ms;
		h->dev.ticking = true;
	} else if (!*until && op == MLX5_OPCODE_UMR && once_in(h, 64)) {
		/* Until it is done, other operations may use the old translations. */
		*until = now() + 1;
		h->dev.ticking = true;
	}
	if (*until > now())
		return true;
	*until = 0;
	return false;
}

void door_reset(struct hca *h)
{
	h->fail_in = 0;
	h->fail_status = 0;
	h->fail_more = 0;
	h->slow_ms = 0;
	h->plain = false;
	h->name = 0;
	for (int i = 0; i < CHANNELS; i++) {
		struct channel *c = &h->channel[i];

		fault_cancel(h, &c->x);
		if (c->status == BUSY)
			c->status = FAILED;
	}
}

static u32 get(struct hca *h, struct channel *c, u32 at)
{
	switch (at) {
	case RKEY:
		return c->rkey;
	case OP:
		return c->op;
	case VA:
		return c->va;
	case VA + 4:
		return c->va >> 32;
	case LEN:
		return c->len;
	case STATUS:
		return c->status;
	}
	if (at >= COUNTERS && at + 4 <= COUNTERS + sizeof(h->stats)) {
		u32 val;

		memcpy(&val, (const u8 *)stats(h) + (at - COUNTERS), 4);
		return val;
	}
	return 0;
}

static void set(struct hca *h, struct channel *c, u32 at, u32 val)
{
	if (c->status == BUSY)
		return;
	switch (at) {
	case RKEY:
		c->rkey = val;
		break;
	case VA:
		c->va = (c->va & ~0xffffffffULL) | val;
		break;
	case VA + 4:
		c->va = (u64)val << 32 | (u32)c->va;
		break;
	case LEN:
		c->len = val;
		break;
	case OP:
		c->op = val;
		start(h, c);
		break;
	case FAIL:
		h->fail_op = val;
		h->fail_in = val >> 16;
		break;
	case SLOW:
		h->slow_op = val;
		h->slow_ms = val >> 16;
		break;
	case PLAIN:
		h->plain = val;
		break;
	case NAME:
		h->name = val;
		break;
	case FAIL_STATUS:
		h->fail_status = val;
		h->fail_more = val >> 16;
		break;
	case SYNDROME:
		posted_push(h);
		h->syndrome = val;
		note(h, "%s: %#x", h->syndrome == GONE ? "off the bus" : "the firmware dies",
		     h->syndrome);
		door_reset(h);
		break;
	}
}

void door_read(struct hca *h, u64 off, void *to, u32 len)
{
	struct channel *c = &h->channel[off / CHANNEL_SIZE];
	u32 at = off % CHANNEL_SIZE;

	memset(to, 0, len);
	if (at >= DATA) {
		memcpy(to, c->data + (at - DATA), min(len, CHANNEL_SIZE - at));
		return;
	}
	for (u32 i = 0; i + 4 <= len; i += 4) {
		u32 val = get(h, c, at + i);

		memcpy((u8 *)to + i, &val, 4);
	}
}

void door_write(struct hca *h, u64 off, const void *from, u32 len)
{
	struct channel *c = &h->channel[off / CHANNEL_SIZE];
	u32 at = off % CHANNEL_SIZE, val;

	if (at >= DATA) {
		if (c->status != BUSY)
			memcpy(c->data + (at - DATA), from, min(len, CHANNEL_SIZE - at));
		return;
	}
	for (u32 i = 0; i + 4 <= len; i += 4) {
		memcpy(&val, (const u8 *)from + i, 4);
		set(h, c, at + i, val);
	}
}
