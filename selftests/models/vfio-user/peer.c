// SPDX-License-Identifier: GPL-2.0-only
/*
 * DMA from one model to a BAR of another model. QEMU 11 has no way for this: for a device in
 * another process it maps only RAM, and it accepts no DMA requests. So the models exchange
 * datagrams. Either model can start first, and a datagram never arrives in parts.
 */
#include "vfio_user.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

/* Request: the access, which is done only if the BAR has all of it. Answer: room, data read. */
struct peer_msg {
	u64 addr, room;
	u32 len, write;
	u8 data[PEER_MAX];
};

static int datagrams(const char *path, struct sockaddr_un *to)
{
	*to = (struct sockaddr_un){ .sun_family = AF_UNIX };
	if (strlen(path) >= sizeof(to->sun_path))
		return -1;
	strcpy(to->sun_path, path);
	return socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
}

bool peer_listen(struct vfio_user *v, const char *path)
{
	struct sockaddr_un at;

	v->peer = datagrams(path, &at);
	unlink(path);
	return v->peer >= 0 && !bind(v->peer, (struct sockaddr *)&at, sizeof(at));
}

void peer_answer(struct vfio_user *v)
{
	struct sockaddr_un from;
	socklen_t size = sizeof(from);
	struct peer_msg m;

	if (recvfrom(v->peer, &m, sizeof(m), MSG_DONTWAIT, (struct sockaddr *)&from, &size) !=
		    sizeof(m) ||
	    m.len > sizeof(m.data))
		return;
	m.room = v->ops->peer(v, m.addr, m.data, m.len, m.write);
	/* If sending fails, the requester has given up waiting. */
	sendto(v->peer, &m, sizeof(m), MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&from, size);
}

static int connected(const char *path)
{
	struct sockaddr_un to, self = { .sun_family = AF_UNIX };
	struct timeval limit = { .tv_sec = PEER_SECONDS };
	int sock = datagrams(path, &to);

	setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	/* The answer needs an address. The kernel chooses one. */
	if (sock >= 0 && !bind(sock, (struct sockaddr *)&self, sizeof(self.sun_family)) &&
	    !connect(sock, (struct sockaddr *)&to, sizeof(to)))
		return sock;
	if (sock >= 0)
		close(sock);
	return -1;
}

static bool ask(struct peer *p, struct peer_msg *m)
{
	if (p->gone)
		return false;
	if (!p->sock)
		p->sock = connected(p->path);
	if (p->sock >= 0 && send(p->sock, m, sizeof(*m), MSG_NOSIGNAL) == sizeof(*m) &&
	    recv(p->sock, m, sizeof(*m), 0) == sizeof(*m))
		return true;
	/* A late answer must not be taken for the answer to the next request. */
	perror(p->path);
	p->gone = true;
	return false;
}

u64 peer_access(struct peer *p, u64 addr, void *buf, u32 len, bool write)
{
	struct peer_msg m = { .addr = addr, .len = len, .write = write };

	if (!p->path)
		return 0;
	if (write)
		memcpy(m.data, buf, len);
	if (!ask(p, &m))
		return 0;
	if (len && !write && m.room >= len)
		memcpy(buf, m.data, len);
	return m.room;
}

void peer_free(struct peer *p)
{
	if (p->sock > 0)
		close(p->sock);
}
