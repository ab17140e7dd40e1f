// SPDX-License-Identifier: GPL-2.0-only
/*
 * The device's end of vfio-user: QEMU (-device vfio-user-pci) requests accesses to regions, tells
 * which memory the device can reach, and passes an eventfd for each interrupt. There is one client
 * and one thread. A message is processed completely before the next one is read.
 */
#include "vfio_user.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
	VERSION = 1,
	DMA_MAP = 2,
	DMA_UNMAP = 3,
	GET_INFO = 4,
	GET_REGION_INFO = 5,
	GET_IRQ_INFO = 7,
	SET_IRQS = 8,
	REGION_READ = 9,
	REGION_WRITE = 10,
	DEVICE_RESET = 13,
};

enum { REPLY = 1, NO_REPLY = 0x10, ERROR = 0x20 };
enum { IRQS = 5 };
enum { IRQ_DATA_NONE = 1, IRQ_DATA_EVENTFD = 4, IRQ_TRIGGER = 32 };
enum { DMA_UNMAP_ALL = 2 };

#define MAX_MSG (1U << 20)
#define MAX_FDS 16

struct header {
	u16 id, command;
	u32 size, flags, error;
};

struct msg {
	struct header h;
	u32 len;		/* of the body */
	int fd[MAX_FDS];
	unsigned int nfd;
	u8 body[MAX_MSG];
};

/* Receives len bytes and the file descriptors that come with them. False: the client has gone. */
static bool receive(int sock, void *to, size_t len, struct msg *m)
{
	while (len) {
		union {
			struct cmsghdr align;
			char buf[CMSG_SPACE(MAX_FDS * sizeof(int))];
		} control;
		struct iovec iov = { to, len };
		struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.buf,
				     .msg_controllen = sizeof(control.buf) };
		ssize_t n = recvmsg(sock, &mh, MSG_CMSG_CLOEXEC);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		for (struct cmsghdr *c = CMSG_FIRSTHDR(&mh); c; c = CMSG_NXTHDR(&mh, c)) {
			size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

			if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
				continue;
			for (size_t i = 0; i < count; i++) {
				int fd;

				memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
				if (m->nfd < MAX_FDS)
					m->fd[m->nfd++] = fd;
				else
					close(fd);
			}
		}
		to = (u8 *)to + n;
		len -= n;
	}
	return true;
}

static bool reply_file(int sock, const struct msg *m, const void *body, u32 len, int error, int fd)
{
	struct header h = { m->h.id, m->h.command, sizeof(h) + len, REPLY | (error ? ERROR : 0),
			    error };
	struct iovec iov[2] = { { &h, sizeof(h) }, { (void *)(body ? body : ""), len } };
	struct msghdr mh = { .msg_iov = iov, .msg_iovlen = 2 };
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int))];
	} control = { 0 };

	if (m->h.flags & NO_REPLY)
		return true;
	if (fd >= 0) {
		mh.msg_control = control.buf;
		mh.msg_controllen = sizeof(control.buf);
		control.align.cmsg_level = SOL_SOCKET;
		control.align.cmsg_type = SCM_RIGHTS;
		control.align.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.align), &fd, sizeof(fd));
	}
	while (iov[0].iov_len || iov[1].iov_len) {
		ssize_t n = sendmsg(sock, &mh, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		for (int i = 0; i < 2; i++) {
			size_t part = min((size_t)n, iov[i].iov_len);

			iov[i].iov_base = (u8 *)iov[i].iov_base + part;
			iov[i].iov_len -= part;
			n -= part;
		}
		mh.msg_controllen = 0;
	}
	return true;
}

static bool reply(int sock, const struct msg *m, const void *body, u32 len, int error)
{
	return reply_file(sock, m, body, len, error, -1);
}

static int take_fd(struct msg *m)
{
	return m->nfd ? m->fd[--m->nfd] : -1;
}

/* ---- interrupts ---- */

void vfio_user_interrupt(struct vfio_user *v, u32 vec)
{
	u64 one = 1;

	if (vec >= v->nvec)
		return;
	v->irq_pending[vec] = v->irq[vec] < 0 ||
			      write(v->irq[vec], &one, sizeof(one)) != sizeof(one);
	v->interrupts++;
}

static void irq_set(struct vfio_user *v, u32 vec, int fd)
{
	if (v->irq[vec] >= 0)
		close(v->irq[vec]);
	v->irq[vec] = fd;
	if (fd >= 0 && v->irq_pending[vec])
		vfio_user_interrupt(v, vec);
}

static int set_irqs(struct vfio_user *v, struct msg *m)
{
	struct { u32 argsz, flags, index, start, count; } r;

	if (m->len < sizeof(r))
		return EINVAL;
	memcpy(&r, m->body, sizeof(r));
	if (r.index != v->irq_index)
		return 0;
	if (r.start > v->nvec || r.count > v->nvec - r.start)
		return EINVAL;
	if (r.flags & IRQ_DATA_EVENTFD) {
		if (m->nfd && m->nfd != r.count)
			return EINVAL;
		for (u32 i = r.count; i--;)
			irq_set(v, r.start + i, take_fd(m));
	} else if (r.flags & IRQ_DATA_NONE && r.flags & IRQ_TRIGGER) {
		if (!r.count)
			for (u32 i = 0; i < v->nvec; i++)
				irq_set(v, i, -1);
		for (u32 i = 0; i < r.count; i++)
			vfio_user_interrupt(v, r.start + i);
	}
	return 0;
}

/* ---- memory and regions ---- */

void vfio_user_unmap(struct vfio_user *v, u64 iova, u64 size)
{
	u64 last = iova + (size - 1);
	size_t first, n;

	if (!size || last < iova)
		return;
	n = dma_overlap(&v->dma, iova, last, &first);
	if (!n)
		return;
	if (v->ops->unmap)
		v->ops->unmap(v, iova, size);
	dma_unmap(&v->dma, first, n);
}

static bool inside(const struct vfio_user *v, u32 region, u64 off, u32 len)
{
	u64 size = region < VFIO_REGIONS ? v->size[region] : 0;

	return off <= size && len <= size - off;
}

bool vfio_user_read(struct vfio_user *v, u32 region, u64 off, void *to, u32 len)
{
	if (!inside(v, region, off, len))
		return false;
	if (region == VFIO_CONFIG)
		memcpy(to, v->config + off, len);
	else
		v->ops->read(v, region, off, to, len);
	return true;
}

bool vfio_user_write(struct vfio_user *v, u32 region, u64 off, const void *from, u32 len)
{
	if (!inside(v, region, off, len))
		return false;
	v->ops->write(v, region, off, from, len);
	return true;
}

/* ---- messages ---- */

static const char capabilities[] =
	"{\"capabilities\":{\"max_msg_fds\":8,\"max_data_xfer_size\":4096,\"max_dma_maps\":65535,"
	"\"write_multiple\":false}}";

static bool handle(struct vfio_user *v, int sock, struct msg *m)
{
	struct { u64 offset; u32 region, count; u8 data[4096]; } rw;
	struct { u16 major, minor; char json[sizeof(capabilities)]; } version = { 0, 0, "" };
	struct { u32 argsz, flags; u64 offset, addr, size; } map;
	struct { u32 argsz, flags; u64 addr, size; } unmap;
	struct {
		u32 argsz, flags, index, cap; u64 size, offset;
		/* the capability "sparse mmap": what may be mapped */
		struct { u16 id, version; u32 next, count, reserved; u64 off, size; } sparse;
	} region;
	u32 room;
	struct { u32 argsz, flags, index, count; } irq;
	u32 info[4] = { sizeof(info), 3, VFIO_REGIONS, IRQS };	/* can be reset, is PCI */
	int fd, err;

#define TAKE(what, least) \
	do { \
		memset(&what, 0, sizeof(what)); \
		if (m->len < (least)) \
			return reply(sock, m, NULL, 0, EINVAL); \
		memcpy(&what, m->body, min(m->len, sizeof(what))); \
	} while (0)

	switch (m->h.command) {
	case VERSION:
		memcpy(version.json, capabilities, sizeof(capabilities));
		return reply(sock, m, &version,
			     offsetof(typeof(version), json) + sizeof(capabilities), 0);
	case DMA_MAP:
		TAKE(map, sizeof(map));
		fd = take_fd(m);
		err = dma_map(&v->dma, map.addr, map.size, map.offset, map.flags, fd);
		log_debug(v, "DMA map %#lx + %#lx, flags %u, %s: %d", map.addr, map.size, map.flags,
			  fd < 0 ? "no file" : "file", err);
		if (fd >= 0)
			close(fd);
		return reply(sock, m, NULL, 0, -err);
	case DMA_UNMAP:
		TAKE(unmap, sizeof(unmap));
		log_debug(v, "DMA unmap %#lx + %#lx", unmap.addr, unmap.size);
		if (unmap.flags & DMA_UNMAP_ALL)
			v->dma.nmap = 0;
		else
			vfio_user_unmap(v, unmap.addr, unmap.size);
		return reply(sock, m, &unmap, sizeof(unmap), 0);
	case GET_INFO:
		return reply(sock, m, info, sizeof(info), 0);
	case GET_REGION_INFO:
		TAKE(region, 16);
		if (region.index >= VFIO_REGIONS)
			return reply(sock, m, NULL, 0, EINVAL);
		room = max(region.argsz, offsetof(typeof(region), sparse));
		region = (typeof(region)){ .index = region.index, .size = v->size[region.index] };
		region.flags = region.size ? 3 : 0;		/* read, write */
		region.argsz = offsetof(typeof(region), sparse);
		if (!v->map[region.index].size)
			return reply(sock, m, &region, region.argsz, 0);
		region.flags |= 4 | 8;				/* mmap, capabilities */
		region.argsz = sizeof(region);
		region.cap = offsetof(typeof(region), sparse);
		region.sparse = (typeof(region.sparse)){ 1, 1, 0, 1, 0, v->map[region.index].off,
							 v->map[region.index].size };
		return reply_file(sock, m, &region, min(room, sizeof(region)), 0,
				  v->map[region.index].fd);
	case GET_IRQ_INFO:
		TAKE(irq, sizeof(irq));
		irq.argsz = sizeof(irq);
		irq.count = irq.index == v->irq_index ? v->nvec : 0;
		irq.flags = irq.count ? 1 : 0;			/* eventfd */
		return reply(sock, m, &irq, sizeof(irq), 0);
	case SET_IRQS:
		return reply(sock, m, NULL, 0, set_irqs(v, m));
	case REGION_READ:
		TAKE(rw, 16);
		if (rw.count > sizeof(rw.data) ||
		    !vfio_user_read(v, rw.region, rw.offset, rw.data, rw.count))
			return reply(sock, m, NULL, 0, EINVAL);
		return reply(sock, m, &rw, 16 + rw.count, 0);
	case REGION_WRITE:
		TAKE(rw, 16);
		if (rw.count > sizeof(rw.data) || rw.count > m->len - 16 ||
		    !vfio_user_write(v, rw.region, rw.offset, rw.data, rw.count))
			return reply(sock, m, NULL, 0, EINVAL);
		return reply(sock, m, &rw, 16, 0);
	case DEVICE_RESET:
		v->ops->reset(v);
		return reply(sock, m, NULL, 0, 0);
	}
	log_note(v, "vfio-user command %u is not there", m->h.command);
	return reply(sock, m, NULL, 0, ENOTSUP);
#undef TAKE
}

static int wait_for_client(const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int sock, client;

	if (strlen(path) >= sizeof(addr.sun_path))
		return -1;
	strcpy(addr.sun_path, path);
	unlink(path);
	sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (sock < 0 || bind(sock, (struct sockaddr *)&addr, sizeof(addr)) || listen(sock, 1))
		return -1;
	client = accept4(sock, NULL, NULL, SOCK_CLOEXEC);
	close(sock);
	unlink(path);
	return client;
}

#define TICK 5

u64 now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000ULL + t.tv_nsec / 1000000;
}

bool vfio_user_message(struct vfio_user *v, int sock)
{
	static struct msg m;
	bool good;

	m.nfd = 0;
	good = receive(sock, &m.h, sizeof(m.h), &m) && m.h.size >= sizeof(m.h) &&
	       m.h.size - sizeof(m.h) <= MAX_MSG;
	if (good) {
		m.len = m.h.size - sizeof(m.h);
		good = receive(sock, m.body, m.len, &m);
	}
	if (good) {
		if (v->ops->heard)
			v->ops->heard(v, m.h.command, m.nfd, m.body, m.len);
		good = handle(v, sock, &m);
	}
	while (m.nfd)
		close(take_fd(&m));
	return good;
}

void vfio_user_init(struct vfio_user *v)
{
	for (int i = 0; i < VFIO_VECTORS; i++)
		v->irq[i] = -1;
	v->peer = -1;
	v->size[VFIO_CONFIG] = sizeof(v->config);
	/* The file of an interrupt may also be a pipe or a socket whose other end is closed. */
	signal(SIGPIPE, SIG_IGN);
}

void vfio_user_free(struct vfio_user *v)
{
	for (int i = 0; i < VFIO_VECTORS; i++)
		irq_set(v, i, -1);
	if (v->peer >= 0)
		close(v->peer);
	free(v->dma.map);
}

int vfio_user_serve(struct vfio_user *v, const char *path)
{
	int sock = wait_for_client(path);
	u64 tick = 0;

	if (sock < 0) {
		perror(path);
		return 2;
	}
	for (;;) {
		struct pollfd p[2] = { { sock, POLLIN, 0 }, { v->peer, POLLIN, 0 } };

		if (v->ticking && now() >= tick) {
			bool more;

			v->ticking = false;
			more = v->ops->tick(v);
			v->ticking |= more;
			tick = now() + TICK;
		}
		if (poll(p, ARRAY_SIZE(p), v->ticking ? TICK : -1) <= 0)
			continue;
		if (p[1].revents)
			peer_answer(v);
		if (p[0].revents && !vfio_user_message(v, sock))
			break;
	}
	close(sock);
	return 0;
}
