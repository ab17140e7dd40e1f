// SPDX-License-Identifier: GPL-2.0-only
/* Fuzzes the messages of vfio-user: through a socket, with file descriptors. */
#include "fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

const u64 values[] = {
	0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 13, 14, 16, 24, 32, 33, 0x14, 0x18, 0x100, 0x800, 0xfff,
	0x1000, 0x1001, 0x10000, 0x10800, 0x400000, RAM_SIZE, RAM_SIZE - 8, RAM_END, PEER,
	0x7ffff, 0x80000, 0xffffffff, 0x80000000, 1ULL << 32, 1ULL << 63, ~0ULL, ~0ULL - 4095,
};
const unsigned int nvalues = ARRAY_SIZE(values);

static int sock[2], event_fd, odd_fd;

struct message {
	u16 id, command;
	u32 size, flags, error;
	u8 body[2 * MAX_DATA];
};

static int open_files(void)
{
	int n = 0;

	for (int fd = 3; fd < 64; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static int files_before;

void begin(struct hca *h)
{
	files_before = open_files();
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sock))
		abort();
	if (event_fd)
		return;
	/* Only the first time. A write to odd_fd raises SIGPIPE, as its other end is closed. */
	event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	odd_fd = fcntl(sock[0], F_DUPFD_CLOEXEC, 0);
	files_before += 2;
	end();
	begin(h);
}

void end(void)
{
	close(sock[0]);
	close(sock[1]);
	/* The model must have closed all file descriptors that came with messages. */
	if (open_files() != files_before)
		abort();
}

/* A reply must be marked as one, and be as long as its header says. */
static void take_reply(void)
{
	static struct message reply;
	ssize_t n = recv(sock[0], &reply, sizeof(reply), 0);

	if (n >= 0 && (n < offsetof(struct message, body) || n != reply.size || !(reply.flags & 1)))
		abort();
}

static const u8 counts[] = { 0, 1, 8, 17 };	/* of file descriptors; the model takes 16 */
enum { FDS = 3, FD_KIND = 0xc, ALONE = 0x10, WRONG_SIZE = 0x20, RAW = 0x40, LATER = 0x80 };

/*
 * value: the command; argument: FDS: index of the number of file descriptors; FD_KIND: their file;
 * ALONE: no reply is requested; WRONG_SIZE: the data begins with the size for the header; RAW: the
 * data includes the header; LATER: the model does not read the message before the next one is sent.
 */
static void run_message(struct hca *h, const struct rec *r)
{
	const int fds[] = { ram_fd, peer_fd, event_fd, odd_fd };
	struct message m = { .id = 7,
			     .command = r->value,
			     .size = offsetof(struct message, body) + r->len,
			     .flags = r->arg & ALONE ? 0x10 : 0 };
	unsigned int count = counts[r->arg & FDS];
	union {
		struct cmsghdr head;
		u8 buf[CMSG_SPACE(17 * sizeof(int))];
	} control = { .head = { CMSG_LEN(count * sizeof(int)), SOL_SOCKET, SCM_RIGHTS } };
	struct iovec iov[2] = { { &m, offsetof(struct message, body) },
				{ (void *)r->data, r->len } };
	struct msghdr mh = { .msg_iov = iov, .msg_iovlen = 2 };

	if (r->arg & WRONG_SIZE)
		memcpy(&m.size, r->data, 4);
	if (r->arg & RAW)
		iov[0].iov_len = 0;
	for (unsigned int i = 0; i < count; i++)
		memcpy(CMSG_DATA(&control.head) + i * sizeof(int), &fds[(r->arg & FD_KIND) >> 2],
		       sizeof(int));
	if (count) {
		mh.msg_control = &control;
		mh.msg_controllen = CMSG_SPACE(count * sizeof(int));
	}
	if (iov[0].iov_len + iov[1].iov_len == 0 || sendmsg(sock[0], &mh, MSG_NOSIGNAL) < 0)
		return;
	if (r->arg & LATER)
		return;
	if (vfio_user_message(&h->dev, sock[1]))
		take_reply();
}

static u16 fill_message(struct rec *r, u8 *data)
{
	static const struct {
		u8 command, arg;
		u16 len;
	} known[] = { { 1, 0, 20 }, { 2, 1, 32 },  { 3, 0, 24 }, { 4, 0, 16 },
		      { 5, 0, 32 }, { 7, 0, 16 },  { 8, 9, 20 }, { 8, 10, 20 },
		      { 9, 0, 16 }, { 10, 0, 20 }, { 13, 0, 0 } };
	u32 i = rnd(ARRAY_SIZE(known));
	u64 size = RAM_SIZE, word = known[i].len - 16;

	r->value = known[i].command;
	r->arg = known[i].arg;
	memcpy(data, &(u32){ known[i].len }, 4);
	switch (r->value) {
	case 2:
		data[4] = 1 + rnd(3);
		memcpy(data + 24, &size, 8);
		break;
	case 8:
		data[4] = rnd(2) ? 0x24 : 0x21;
		data[8] = 2;
		data[16] = counts[r->arg & FDS];
		break;
	case 9:
	case 10:
		memset(data, 0, 8);
		data[8] = rnd(9);
		memcpy(data + 12, &word, 4);
		if (r->value == 9)
			data[12] = 4;
	}
	return known[i].len;
}

const struct kind kinds[] = { { run_message, fill_message } };
const unsigned int nkinds = ARRAY_SIZE(kinds);
