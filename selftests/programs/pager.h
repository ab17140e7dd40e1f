/* SPDX-License-Identifier: GPL-2.0-only */
/* A process that provides its pages itself, by userfaultfd: page n has the pattern with seed n. */
#ifndef PAGER_H
#define PAGER_H

#include "svm.h"

#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/syscall.h>

struct pager {
	int fd, missing, protect;
	char *mem;
	size_t unit;		/* bytes that it unprotects at a time */
};

static inline void *serve(void *arg)
{
	struct pager *p = arg;
	struct pollfd wait = { .fd = p->fd, .events = POLLIN };
	static char page[PAGE] __attribute__((aligned(PAGE)));
	struct uffd_msg m;

	while (poll(&wait, 1, -1) == 1 && read(p->fd, &m, sizeof(m)) == sizeof(m)) {
		uint64_t at = m.arg.pagefault.address & ~(p->unit - 1);

		if (m.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WP) {
			p->protect++;
			ioctl(p->fd, UFFDIO_WRITEPROTECT,
			      &(struct uffdio_writeprotect){ { at, p->unit }, 0 });
			continue;
		}
		p->missing++;
		at = m.arg.pagefault.address & ~(PAGE - 1);
		fill(page, PAGE, (at - (uintptr_t)p->mem) / PAGE);
		ioctl(p->fd, UFFDIO_COPY,
		      &(struct uffdio_copy){ .dst = at, .src = (uintptr_t)page, .len = PAGE });
	}
	return NULL;
}

static inline bool userfault(struct pager *p, char *mem, size_t size, size_t unit,
			     pthread_t *thread)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register r = {
		.range = { (uintptr_t)mem, size },
		.mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP,
	};

	*p = (struct pager){ .fd = syscall(SYS_userfaultfd, O_CLOEXEC), .mem = mem, .unit = unit };
	return p->fd >= 0 && !ioctl(p->fd, UFFDIO_API, &api) &&
	       !ioctl(p->fd, UFFDIO_REGISTER, &r) &&
	       (!thread || !pthread_create(thread, NULL, serve, p));
}

static inline int write_protect(struct pager *p, char *mem, size_t size)
{
	return ioctl(p->fd, UFFDIO_WRITEPROTECT,
		     &(struct uffdio_writeprotect){ { (uintptr_t)mem, size },
						    UFFDIO_WRITEPROTECT_MODE_WP });
}

/* All of the n pages are the pager's, but a GPU has stored 4711 in one of them. */
static inline void stored_in(struct __test_metadata *_metadata, struct pager *p, int n, int page)
{
	EXPECT_EQ(*(uint32_t *)(p->mem + page * PAGE), 4711);
	for (int i = 0; i < n; i++)
		EXPECT_EQ(wrong(p->mem + i * PAGE, PAGE, i), i == page);
	EXPECT_EQ(p->missing, n);
	EXPECT_EQ(p->protect, 0);
}

#endif
