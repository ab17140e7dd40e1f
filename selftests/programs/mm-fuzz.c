// SPDX-License-Identifier: GPL-2.0-only
/*
 * Random operations on one address space: memory management, migration to the exporters, accesses
 * by the CPU, by importers and by other system calls. The content of each page is known, so each
 * read is checked.
 *
 *   mm-fuzz SEED SECONDS [IMPORTER [EXPORTER]]
 *
 * The last two are PCI addresses of devices to unbind. If there is a GPU of nouveau or xe, it is
 * the exporter, otherwise it is test_hmm.
 *
 * Workers change pages: they hold the locks of the blocks in which the pages are, and know what
 * each page must contain. Movers do what must not change a page, without a lock. One thread serves
 * userfaultfd. One unbinds devices, and turns swap, huge pages and limits of memory on and off. The
 * sequence of one thread follows from the seed, but the threads race. If a page has the wrong
 * content, the last operations on it are printed.
 *
 * Not done: processes that reach the limit of a cgroup, because the kernel then prints a call
 * trace. dma-tests has a test of it (dma.out_of_memory).
 *
 * Not checked: that soft-dirty and userfaultfd notice what a device writes to its own memory. The
 * kernel does not promise it for soft-dirty. For userfaultfd, nouveau-process checks it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#define __user
#include "edu_hmm_uapi.h"
#include "nouveau_drm.h"
#include "pagemap-scan.h"
#include "test_hmm_uapi.h"
#include "xe_drm.h"
#include <uapi/linux/io_uring.h>
#include <io_uring/mini_liburing.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE		25
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL	102
#define MADV_GUARD_REMOVE	103
#endif
#ifndef MADV_SOFT_OFFLINE
#define MADV_SOFT_OFFLINE	101
#endif
#ifndef SYS_mseal
#define SYS_mseal		462
#endif

#define CGROUP			"/sys/fs/cgroup/mm-fuzz"
#define SWAP			"/dev/zram0"

#define PAGE	4096UL
#define HUGE	(2UL << 20)
#define HNR	512
#define BLOCK	16		/* pages of a lock */
#define EVENTS	12		/* that a page remembers */
#define WORKERS	3
#define MOVERS	2

/* Private anonymous memory without and with huge pages, a private file, shared memory. */
enum { SMALL, LARGE, FILE_PRIVATE, SHARED, NAREA };
static const struct { int first, n; } areas[NAREA] = {
	{ 0, 512 }, { 512, 1024 }, { 1536, 256 }, { 1792, 256 },
};
#define NP	2048

struct event {
	uint64_t seq;
	const char *what;
	long arg, result;
	int thread;
};

static struct page {
	uint64_t want;		/* the number that the page contains */
	uint64_t lazy;		/* after MADV_FREE this number and 0 are right, too */
	uint64_t filling;	/* what the thread of userfaultfd gives it */
	atomic_uint faults;	/* that this thread has seen */
	struct event event[EVENTS];
	unsigned int events;
} pages[NP];

struct thread {
	pthread_t id;
	int n;
	uint64_t random;
	char page[PAGE] __attribute__((aligned(PAGE)));
	char *buf;		/* as large as LARGE */
	struct io_uring ring;
};

static char *mem;
static pthread_mutex_t locks[NP / BLOCK];
static _Atomic uint64_t next = 1, seq, steps, peers;
static atomic_bool stop;
static atomic_int failed;
static int file, shm, pagemap, sync_uffd = -1, async_uffd = -1;
static int exporters[2], nexporters, importers[4], gpu = -1;
static uint32_t xe_vm;		/* 0: the GPU is one of nouveau */

/* How often did it happen what may fail for a good reason, but not always? */
enum { MIGRATE, GROW, POISON, ARM, MINOR, SWAPOFF, PIN, NDONE };
static const char *const what_done[] = { "migrate", "grow", "poison", "arm", "minor", "swapoff",
	"pin" };
static _Atomic uint64_t done[NDONE];
static bool soft_dirty;
static pthread_mutex_t soft_dirty_lock = PTHREAD_MUTEX_INITIALIZER;

static unsigned int rnd(struct thread *t, unsigned int n)
{
	t->random = t->random * 6364136223846793005UL + 1442695040888963407UL;
	return (unsigned int)(t->random >> 33) % n;
}

static char *at(int p) { return mem + p * PAGE; }

static int area_of(int p)
{
	int a = 0;

	while (p >= areas[a].first + areas[a].n)
		a++;
	return a;
}

static int call(int fd, unsigned long request, void *arg)
{
	int r;

	do
		r = ioctl(fd, request, arg) ? -errno : 0;
	while (r == -EINTR);
	return r;
}

static int write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), r;

	if (fd < 0)
		return -errno;
	r = write(fd, text, strlen(text)) < 0 ? -errno : 0;
	close(fd);
	return r;
}

static int mirror(int fd, unsigned long request, int p, void *buf, int n)
{
	struct hmm_dmirror_cmd cmd = { .addr = (uintptr_t)at(p), .ptr = (uintptr_t)buf,
				       .npages = n };

	return call(fd, request, &cmd);
}

static int to_device(struct thread *t, int p, int n)
{
	struct drm_nouveau_svm_bind nouveau = {
		.header = (uint64_t)NOUVEAU_SVM_BIND_COMMAND__MIGRATE
				  << NOUVEAU_SVM_BIND_COMMAND_SHIFT |
			  (uint64_t)NOUVEAU_SVM_BIND_TARGET__GPU_VRAM
				  << NOUVEAU_SVM_BIND_TARGET_SHIFT,
		.va_start = (uintptr_t)at(p),
		.va_end = (uintptr_t)at(p + n),
		.npages = n,
	};
	struct drm_xe_vm_bind xe = {
		.vm_id = xe_vm,
		.num_binds = 1,
		.bind = { .op = DRM_XE_VM_BIND_OP_PREFETCH, .addr = (uintptr_t)at(p),
			  .range = n * PAGE, .prefetch_mem_region_instance = 1 },
	};
	int r;

	if (gpu < 0)
		r = mirror(exporters[rnd(t, nexporters)], HMM_DMIRROR_MIGRATE_TO_DEV, p, t->buf, n);
	else if (xe_vm)
		r = call(gpu, DRM_IOCTL_XE_VM_BIND, &xe);
	else
		r = call(gpu, DRM_IOCTL_NOUVEAU_SVM_BIND, &nouveau);
	done[MIGRATE] += !r;
	return r;
}

static bool start_gpu(void)
{
	struct drm_nouveau_svm_init hole = { .unmanaged_addr = 64UL << 30,
					     .unmanaged_size = 4UL << 30 };
	struct drm_xe_vm_create create = { .flags = DRM_XE_VM_CREATE_FLAG_LR_MODE |
						    DRM_XE_VM_CREATE_FLAG_FAULT_MODE };
	struct drm_xe_vm_bind bind = {
		.num_binds = 1,
		.bind = { .op = DRM_XE_VM_BIND_OP_MAP, .flags = DRM_XE_VM_BIND_FLAG_CPU_ADDR_MIRROR,
			  .pat_index = 2, .range = 1UL << 47 },
	};
	char driver[80] = "";

	if (readlink("/sys/class/drm/renderD128/device/driver", driver, sizeof(driver) - 1) > 0 &&
	    !strcmp(strrchr(driver, '/'), "/xe")) {
		if (call(gpu, DRM_IOCTL_XE_VM_CREATE, &create))
			return false;
		bind.vm_id = xe_vm = create.vm_id;
		return !call(gpu, DRM_IOCTL_XE_VM_BIND, &bind);
	}
	/* nouveau keeps its own buffers there. */
	return mmap((void *)hole.unmanaged_addr, hole.unmanaged_size, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1,
		    0) != MAP_FAILED &&
	       !call(gpu, DRM_IOCTL_NOUVEAU_SVM_INIT, &hole);
}

static int fault(int fd, int p, int n, unsigned int flags)
{
	struct edu_hmm_fault cmd = { .addr = (uintptr_t)at(p), .npages = n, .flags = flags };

	return call(fd, EDU_HMM_FAULT, &cmd);
}

static uint64_t pagemap_entry(const void *addr)
{
	uint64_t entry = 0;

	if (pread(pagemap, &entry, 8, (uintptr_t)addr / PAGE * 8) != 8)
		return 0;
	return entry;
}

/* The number is at both ends and in the middle. The rest is zero. */
static const unsigned int where[] = { 0, 2040, 4088 };

static void stamp(char *page, uint64_t number)
{
	memset(page, 0, PAGE);
	for (int i = 0; i < 3; i++)
		memcpy(page + where[i], &number, 8);
}

static uint64_t stamped(const char *page)
{
	uint64_t v[3];

	for (int i = 0; i < 3; i++)
		memcpy(v + i, page + where[i], 8);
	return v[0] == v[1] && v[1] == v[2] ? v[0] : ~0UL;
}

static uint64_t first_content(int p) { return area_of(p) == FILE_PRIVATE ? (1UL << 60) + p : 0; }

static void note(struct thread *t, int p, int n, const char *what, long arg, long result)
{
	uint64_t s = ++seq;

	for (int i = p; i < p + n; i++)
		pages[i].event[pages[i].events++ % EVENTS] =
			(struct event){ s, what, arg, result, t->n };
}

static void wrong(struct thread *t, int p, const char *format, ...)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct page *page = pages + p;
	unsigned int i;
	va_list args;

	stop = true;
	if (failed++ > 3)
		return;
	pthread_mutex_lock(&lock);
	printf("# thread %d page %d of area %d: ", t->n, p, area_of(p));
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n#   wanted %lx or %lx, pagemap %lx\n", page->want, page->lazy,
	       pagemap_entry(at(p)));
	for (int i = 0; i < 4; i++) {
		struct edu_hmm_page entry = { };
		struct edu_hmm_state cmd = { (uintptr_t)at(p), 1, (uintptr_t)&entry };
		int r = call(importers[i], EDU_HMM_STATE, &cmd);

		printf("#   importer %d: %d how %u write %u\n", i, r, entry.how, entry.write);
	}
	for (i = page->events > EVENTS ? page->events - EVENTS : 0; i < page->events; i++) {
		struct event *e = page->event + i % EVENTS;

		printf("#   %lu thread %d %s %lx -> %ld\n", e->seq, e->thread, e->what, e->arg,
		       e->result);
	}
	pthread_mutex_unlock(&lock);
}

/* Accesses */

/* The argument of access_page() hides write(2). */
static ssize_t put_into(int fd, const void *from) { return write(fd, from, PAGE); }

/* PINNED works only for the pages of do_pin(). */
enum { CPU, IMPORTER, EXPORTER = IMPORTER + 4, PROCESS_VM, PIPE, PINNED, WAYS = PINNED };
static const char *const ways[] = { "CPU", "importer 0", "importer 1", "importer 2", "importer 3",
	"exporter", "process_vm", "pipe", "pinned buffer" };

static int some_way(struct thread *t) { return rnd(t, 3) ? rnd(t, WAYS) : IMPORTER + rnd(t, 2); }

/*
 * Is this no error? Devices come and go, the exporter does not fault on all pages, and it may have
 * no page for one that should migrate to RAM ("migrate small").
 */
static bool may_fail(int way, int r)
{
	if (way == PINNED)
		return false;
	return r == -ENODEV || r == -ENXIO || r == -EBADF || r == -ENOSYS || r == -ENOMEM ||
	       ((way == PROCESS_VM || way == PIPE) && r == -EFAULT) ||
	       (way == EXPORTER && (r == -EAGAIN || r == -EBUSY || r == -EFAULT || r == -ENOENT));
}

/* Let io_uring fill a page of its buffer from a pipe, or write the page to the pipe. */
static ssize_t pinned(struct thread *t, int fd, int p, bool write)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&t->ring);
	struct io_uring_cqe *cqe;
	ssize_t n;

	*sqe = (struct io_uring_sqe){
		.opcode = write ? IORING_OP_READ_FIXED : IORING_OP_WRITE_FIXED,
		.fd = fd, .addr = (uintptr_t)at(p), .len = PAGE,
	};
	n = io_uring_submit(&t->ring);
	if (n == 1 && !(n = io_uring_wait_cqe(&t->ring, &cqe))) {
		n = cqe->res;
		io_uring_cqe_seen(&t->ring);
	} else if (n >= 0) {
		n = -EIO;
	}
	errno = n < 0 ? -n : EIO;
	return n;
}

static int access_page(struct thread *t, int p, int way, bool write)
{
	/* The engine of the importer needs 400 ms for a page. */
	struct edu_hmm_dma dma = { .addr = (uintptr_t)at(p), .ptr = (uintptr_t)t->page, .len = PAGE,
				   .flags = (rnd(t, 1000) ? EDU_HMM_CPU : 0) |
					    (write ? EDU_HMM_WRITE : 0) };
	struct edu_hmm_page entry = { };
	struct edu_hmm_state state = { (uintptr_t)at(p), 1, (uintptr_t)&entry };
	struct iovec ours = { t->page, PAGE }, theirs = { at(p), PAGE };
	int fds[2];
	ssize_t n;

	switch (way) {
	case CPU:
		memcpy(write ? at(p) : t->page, write ? t->page : at(p), PAGE);
		return 0;
	case IMPORTER ... IMPORTER + 3:
		n = call(importers[way - IMPORTER], EDU_HMM_DMA, &dma);
		if (!n && !call(importers[way - IMPORTER], EDU_HMM_STATE, &state))
			peers += entry.how == EDU_HMM_BUS || entry.how == EDU_HMM_BRIDGE;
		return n;
	case EXPORTER:
		return mirror(exporters[0], HMM_DMIRROR_READ_UNLOCKED, p, t->page, 1);
	case PROCESS_VM:
		n = syscall(write ? SYS_process_vm_writev : SYS_process_vm_readv, getpid(), &ours,
			    1UL, &theirs, 1UL, 0UL);
		return n == PAGE ? 0 : -errno;
	}
	if (pipe2(fds, O_CLOEXEC))
		return -ENOSYS;
	if (!write && way == PINNED)
		n = pinned(t, fds[1], p, false);
	else if (!write && rnd(t, 2))
		n = vmsplice(fds[1], &theirs, 1, 0);
	else
		n = put_into(fds[1], write ? t->page : at(p));
	if (n == PAGE && write && way == PINNED)
		n = pinned(t, fds[0], p, true);
	else if (n == PAGE)
		n = read(fds[0], write ? at(p) : t->page, PAGE);
	n = n == PAGE ? 0 : -errno;
	close(fds[0]);
	close(fds[1]);
	return n;
}

/* Write a new number to the page. */
static void put(struct thread *t, int p, int way)
{
	uint64_t number = next++;
	int r;

	/* test_hmm warns if it cannot write to a page of its own. */
	if (way == EXPORTER)
		way = CPU;
	stamp(t->page, number);
	r = access_page(t, p, way, true);
	if (r && may_fail(way, r))
		r = access_page(t, p, way = CPU, true);
	note(t, p, 1, ways[way], number, r);
	if (r)
		wrong(t, p, "write by %s: %d", ways[way], r);
	pages[p].want = number;
	pages[p].lazy = 0;
}

static void get(struct thread *t, int p, int way)
{
	uint64_t number;
	int r = access_page(t, p, way, false);

	if (r && may_fail(way, r))
		r = access_page(t, p, way = CPU, false);
	number = stamped(t->page);
	if (r)
		wrong(t, p, "read by %s: %d", ways[way], r);
	else if (number != pages[p].want &&
		 !(pages[p].lazy && (!number || number == pages[p].lazy)))
		wrong(t, p, "%s reads %lx", ways[way], number);
}

/* The page may not be written, or may not be accessed at all. */
static void refused(struct thread *t, int p, int n, bool write, bool read)
{
	static const int tried[] = { IMPORTER, IMPORTER + 1, IMPORTER + 2, IMPORTER + 3, PIPE };

	for (int i = p; i < p + n && !stop; i++) {
		int way = tried[rnd(t, 5)];

		stamp(t->page, next++);
		if (write && !access_page(t, i, way, true))
			wrong(t, i, "%s wrote without permission", ways[way]);
		if (read && !access_page(t, i, way, false))
			wrong(t, i, "%s read without permission", ways[way]);
	}
}

/* Ranges */

static void lock_pages(int p, int n)
{
	for (int b = p / BLOCK; b <= (p + n - 1) / BLOCK; b++)
		pthread_mutex_lock(locks + b);
}

static void unlock_pages(int p, int n)
{
	for (int b = p / BLOCK; b <= (p + n - 1) / BLOCK; b++)
		pthread_mutex_unlock(locks + b);
}

static int some_pages(struct thread *t, int a, int max, int *n)
{
	int p = areas[a].first + rnd(t, areas[a].n), left = areas[a].first + areas[a].n - p;

	*n = 1 + rnd(t, left < max ? left : max);
	return p;
}

static void forget(int p, int n)
{
	for (int i = p; i < p + n; i++) {
		if (area_of(i) != SHARED)
			pages[i].want = first_content(i);
		pages[i].lazy = 0;
	}
}

static void map(int p, int n)
{
	int a = area_of(p), fd = a == FILE_PRIVATE ? file : a == SHARED ? shm : -1;
	int flags = MAP_FIXED | (a == SHARED ? MAP_SHARED : MAP_PRIVATE) |
		    (fd < 0 ? MAP_ANONYMOUS : 0);
	off_t offset = fd < 0 ? 0 : (p - areas[a].first) * PAGE;

	if (mmap(at(p), n * PAGE, PROT_READ | PROT_WRITE, flags, fd, offset) == MAP_FAILED) {
		perror("# mmap");
		_exit(4);
	}
	if (a == SMALL)
		madvise(at(p), n * PAGE, MADV_NOHUGEPAGE);
	forget(p, n);
}

/* Move these pages, which the caller has locked, if it likes. */
static void move(struct thread *t, int p, int n)
{
	static const char *const what[] = { "migrate", "migrate", "migrate small", "fault to read",
		"fault to write", "page out" };

	for (int k = rnd(t, 3); k--;) {
		int o = rnd(t, 6), r;

		if (o == 2)
			mirror(exporters[0], HMM_DMIRROR_FLAGS, p, t->buf,
			       HMM_DMIRROR_FLAG_FAIL_ALLOC);
		if (o < 3)
			r = to_device(t, p, n);
		else if (o < 5)
			r = fault(importers[rnd(t, 4)], p, n, o == 4 ? EDU_HMM_WRITE : 0);
		else
			r = madvise(at(p), n * PAGE, MADV_PAGEOUT) ? -errno : 0;
		if (o == 2)
			mirror(exporters[0], HMM_DMIRROR_FLAGS, p, t->buf, 0);
		note(t, p, n, what[o], n, r);
	}
}

/* What a worker does with pages that it has locked */

static void do_put(struct thread *t, int p, int n)
{
	for (int i = p; i < p + n && !stop; i++)
		put(t, i, some_way(t));
}

static void do_get(struct thread *t, int p, int n)
{
	for (int i = p; i < p + n && !stop; i++)
		get(t, i, some_way(t));
}

static void do_get_or_put(struct thread *t, int p, int n)
{
	for (int i = p; i < p + n && !stop; i++)
		if (rnd(t, 2))
			get(t, i, some_way(t));
		else
			put(t, i, some_way(t));
}

static void do_read_only(struct thread *t, int p, int n)
{
	if (mprotect(at(p), n * PAGE, PROT_READ))
		return;
	note(t, p, n, "PROT_READ", 0, 0);
	move(t, p, n);
	refused(t, p, n, true, false);
	do_get(t, p, n);
	mprotect(at(p), n * PAGE, PROT_READ | PROT_WRITE);
}

static void do_no_access(struct thread *t, int p, int n)
{
	if (mprotect(at(p), n * PAGE, PROT_NONE))
		return;
	note(t, p, n, "PROT_NONE", 0, 0);
	move(t, p, n);
	refused(t, p, n, true, true);
	mprotect(at(p), n * PAGE, PROT_READ | PROT_WRITE);
}

static void do_unmap(struct thread *t, int p, int n)
{
	munmap(at(p), n * PAGE);
	refused(t, p, n, true, true);
	map(p, n);
	note(t, p, n, "unmap", n, 0);
}

/* The end of a mapping goes, and the rest grows into its place. */
static void do_grow(struct thread *t, int p, int n)
{
	int half = n / 2, r;

	if (!half)
		return;
	munmap(at(p + half), (n - half) * PAGE);
	move(t, p, half);
	r = mremap(at(p), half * PAGE, n * PAGE, 0) == MAP_FAILED;
	if (r)
		map(p + half, n - half);
	else
		forget(p + half, n - half);
	done[GROW] += !r;
	note(t, p, n, "grow", half, r);
	do_get(t, p, n);
}

static void do_map_over(struct thread *t, int p, int n)
{
	map(p, n);
	note(t, p, n, "map", n, 0);
}

static void do_drop(struct thread *t, int p, int n)
{
	munlock(at(p), n * PAGE);
	if (area_of(p) == SHARED) {
		for (int i = p; i < p + n; i++)
			if (!madvise(at(i), PAGE, MADV_REMOVE))
				pages[i].want = 0;
	} else if (!madvise(at(p), n * PAGE, MADV_DONTNEED)) {
		forget(p, n);
	}
	note(t, p, n, "drop", n, 0);
}

static void do_lazy(struct thread *t, int p, int n)
{
	if (madvise(at(p), n * PAGE, MADV_FREE))
		return;
	for (int i = p; i < p + n; i++)
		if (!pages[i].lazy)
			pages[i].lazy = pages[i].want ?: 1;
	note(t, p, n, "MADV_FREE", n, 0);
	move(t, p, n);
	for (int i = p; i < p + n && !stop; i++)
		if (rnd(t, 3))
			put(t, i, some_way(t));
	move(t, p, n);
	do_get(t, p, n);
	madvise(at(p), n * PAGE, MADV_PAGEOUT);
}

static void do_guard(struct thread *t, int p, int n)
{
	munlock(at(p), n * PAGE);
	if (!madvise(at(p), n * PAGE, MADV_GUARD_INSTALL)) {
		forget(p, n);
		move(t, p, n);
		refused(t, p, n, true, true);
		if (!madvise(at(p), n * PAGE, MADV_GUARD_REMOVE))
			return;
	}
	do_map_over(t, p, n);
}

static _Thread_local volatile bool poisons;
static pthread_rwlock_t poison_lock = PTHREAD_RWLOCK_INITIALIZER;

/*
 * The memory of a page fails (MADV_HWPOISON), or is going to fail (MADV_SOFT_OFFLINE). The kernel
 * looks for the page first, and no thread may replace it until the kernel has it.
 */
static void do_poison(struct thread *t, int p, int n)
{
	static atomic_int poisoned;
	bool hard = rnd(t, 2);
	int r;

	(void)n;
	if (area_of(p) != SMALL || poisoned++ > 200)
		return;
	pthread_rwlock_wrlock(&poison_lock);
	/* KSM does not share this page with others. */
	put(t, p, CPU);
	/* The page goes to the list of the LRU. Otherwise the kernel lets it go and looks again. */
	madvise(at(p), PAGE, MADV_COLD);
	poisons = true;
	r = madvise(at(p), PAGE, hard ? MADV_HWPOISON : MADV_SOFT_OFFLINE) ? -errno : 0;
	poisons = false;
	pthread_rwlock_unlock(&poison_lock);
	done[POISON] += !r;
	note(t, p, 1, hard ? "poison" : "offline", 0, r);
	if (!hard) {
		get(t, p, some_way(t));
		return;
	}
	if (!r)
		refused(t, p, 1, true, true);
	do_map_over(t, p, 1);
}

/* A child sees the pages of the time of the fork, and its writes are its own. */
static void child(struct thread *t, int p, int n, const uint64_t *want, int fds[2])
{
	bool shared = area_of(p) == SHARED;
	int exporter = -1, importer = -1;
	char c;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (read(fds[0], &c, 1) != 1)
		_exit(9);
	for (int i = 0; i < n && !shared; i++) {
		uint64_t number = stamped(at(p + i)), lazy = pages[p + i].lazy;

		if (number != want[i] && !(lazy && (!number || number == lazy))) {
			dprintf(1, "# child: page %d contains %lx, wanted %lx\n", p + i, number,
				want[i]);
			_exit(10);
		}
	}
	if (!shared && rnd(t, 2)) {
		struct edu_hmm_register cmd = { (uintptr_t)at(p), n, 0, EDU_HMM_P2P };

		exporter = gpu < 0 ? open("/dev/hmm_dmirror0", O_RDWR | O_CLOEXEC) : -1;
		importer = open("/dev/edu_odp0", O_RDWR | O_CLOEXEC);
		call(importer, EDU_HMM_REGISTER, &cmd);
		mirror(exporter, HMM_DMIRROR_MIGRATE_TO_DEV, p, t->buf, n);
	}
	if (rnd(t, 2) && !syscall(SYS_mseal, at(p), n * PAGE, 0UL) && !munmap(at(p), n * PAGE)) {
		dprintf(1, "# child: unmapped sealed pages\n");
		_exit(12);
	}
	for (int i = 0; i < n && !shared; i++) {
		struct edu_hmm_dma dma = { .addr = (uintptr_t)at(p + i), .ptr = (uintptr_t)t->page,
					   .len = PAGE, .flags = EDU_HMM_CPU | EDU_HMM_WRITE };

		stamp(t->page, (1UL << 50) + i);
		if (call(importer, EDU_HMM_DMA, &dma))
			memcpy(at(p + i), t->page, PAGE);
	}
	for (int i = 0; i < n && !shared; i++) {
		if (stamped(at(p + i)) != (1UL << 50) + i) {
			dprintf(1, "# child: its page %d contains %lx\n", p + i,
				stamped(at(p + i)));
			_exit(11);
		}
	}
	_exit(0);
}

static void do_fork(struct thread *t, int p, int n)
{
	uint64_t want[HNR];
	bool killed = !rnd(t, 4);
	int fds[2], status;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC))
		return;
	for (int i = 0; i < n; i++)
		want[i] = pages[p + i].want;
	note(t, p, n, "fork", killed, 0);
	pthread_rwlock_rdlock(&poison_lock);
	pid = fork();
	if (pid)
		pthread_rwlock_unlock(&poison_lock);
	if (!pid) {
		signal(SIGSEGV, SIG_DFL);
		signal(SIGBUS, SIG_DFL);
		child(t, p, n, want, fds);
	}
	if (pid > 0) {
		move(t, p, n);
		for (int i = p; i < p + n && !stop; i++)
			if (rnd(t, 3))
				put(t, i, some_way(t));
		if (killed || write(fds[1], "x", 1) != 1)
			kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
		if (!killed && status)
			wrong(t, p, "child: %x", status);
	}
	close(fds[0]);
	close(fds[1]);
}

static int uffd_register(int fd, int p, int n, int mode)
{
	struct uffdio_register cmd = { .range = { (uintptr_t)at(p), n * PAGE }, .mode = mode };

	return call(fd, UFFDIO_REGISTER, &cmd);
}

static void uffd_unregister(struct thread *t, int fd, int p, int n)
{
	struct uffdio_range cmd = { (uintptr_t)at(p), n * PAGE };
	int r = call(fd, UFFDIO_UNREGISTER, &cmd);

	if (r)
		wrong(t, p, "UFFDIO_UNREGISTER: %d", r);
}

static int uffd_protect(int fd, unsigned long request, int p, int n, bool protect)
{
	struct uffdio_writeprotect cmd = { .range = { (uintptr_t)at(p), n * PAGE },
					   .mode = protect ? UFFDIO_WRITEPROTECT_MODE_WP : 0 };
	int r;

	do
		r = call(fd, request, &cmd);
	while (r == -EAGAIN);
	return r;
}

static long scan(int p, int n, bool protect)
{
	struct page_region regions[64];
	struct pm_scan_arg cmd = { .size = sizeof(cmd), .flags = protect ? PM_SCAN_WP_MATCHING : 0,
				   .start = (uintptr_t)at(p), .end = (uintptr_t)at(p + n),
				   .vec = (uintptr_t)regions, .vec_len = 64,
				   .category_mask = PAGE_IS_WRITTEN,
				   .return_mask = PAGE_IS_WRITTEN };

	return ioctl(pagemap, PAGEMAP_SCAN, &cmd);
}

/* Of the writes to protected pages, none goes unnoticed. */
static void do_protect(struct thread *t, int p, int n)
{
	bool async = async_uffd >= 0 && rnd(t, 2), by_scan = async && rnd(t, 2);
	int fd = async ? async_uffd : sync_uffd, state = rnd(t, 3), r;

	if (fd < 0 || uffd_register(fd, p, n, UFFDIO_REGISTER_MODE_WP))
		return;
	note(t, p, n, async ? "register WP async" : "register WP", state, 0);
	/* In some pages there is something, some are empty, some are zero pages. */
	for (int i = p; i < p + n && !stop; i++) {
		if (!state || !async) {
			put(t, i, some_way(t));
			continue;
		}
		do_drop(t, i, 1);
		if (state == 2)
			get(t, i, CPU);
	}
	move(t, p, n);
	for (int i = p; i < p + n; i++)
		pages[i].faults = 0;
	r = by_scan ? scan(p, n, true) : uffd_protect(fd, UFFDIO_WRITEPROTECT, p, n, true);
	note(t, p, n, by_scan ? "protect by scan" : "protect", state, r);
	if (r < 0 && r != -ENOENT)
		wrong(t, p, "protect: %d", r);
	move(t, p, n);
	for (int i = p; i < p + n && r >= 0 && !stop; i++) {
		int way = some_way(t);

		if (!rnd(t, 3))
			continue;
		put(t, i, way);
		if (async ? scan(i, 1, false) != 1 : !pages[i].faults)
			wrong(t, i, "%s wrote to a protected page, unnoticed", ways[way]);
		get(t, i, some_way(t));
	}
	uffd_protect(fd, UFFDIO_WRITEPROTECT, p, n, false);
	uffd_unregister(t, fd, p, n);
}

/*
 * Of the accesses to armed pages, none goes unnoticed, except those of the exporter to its own
 * memory.
 */
static void do_arm(struct thread *t, int p, int n)
{
	int r;

	if (uffd_register(sync_uffd, p, n, UFFDIO_REGISTER_MODE_RWP))
		return;
	do_put(t, p, n);
	move(t, p, n);
	for (int i = p; i < p + n; i++)
		pages[i].faults = 0;
	r = uffd_protect(sync_uffd, UFFDIO_RWPROTECT, p, n, true);
	done[ARM] += !r;
	note(t, p, n, "arm", 0, r);
	if (r)
		wrong(t, p, "arm: %d", r);
	move(t, p, n);
	for (int i = p; i < p + n && !r && !stop; i++) {
		int way = some_way(t);

		if (way == EXPORTER || !rnd(t, 3))
			continue;
		if (rnd(t, 2))
			get(t, i, way);
		else
			put(t, i, way);
		if (!pages[i].faults)
			wrong(t, i, "access by %s to an armed page, unnoticed", ways[way]);
	}
	uffd_protect(sync_uffd, UFFDIO_RWPROTECT, p, n, false);
	uffd_unregister(t, sync_uffd, p, n);
}

/* The pages are in the file, but not in the page table. */
static void do_minor(struct thread *t, int p, int n)
{
	if (area_of(p) != SHARED || uffd_register(sync_uffd, p, n, UFFDIO_REGISTER_MODE_MINOR))
		return;
	do_put(t, p, n);
	madvise(at(p), n * PAGE, MADV_DONTNEED_LOCKED);
	note(t, p, n, "register minor", 0, 0);
	move(t, p, n);
	do_get_or_put(t, p, n);
	uffd_unregister(t, sync_uffd, p, n);
}

static void do_missing(struct thread *t, int p, int n)
{
	for (int i = p; i < p + n; i++)
		pages[i].filling = rnd(t, 3) ? next++ : 0;
	do_drop(t, p, n);
	if (sync_uffd < 0 || uffd_register(sync_uffd, p, n, UFFDIO_REGISTER_MODE_MISSING))
		return;
	/* A mover may have filled pages in between. */
	madvise(at(p), n * PAGE, MADV_DONTNEED_LOCKED);
	note(t, p, n, "register missing", 0, 0);
	for (int i = p; i < p + n; i++)
		pages[i].want = pages[i].filling;
	move(t, p, n);
	do_get_or_put(t, p, n);
	uffd_unregister(t, sync_uffd, p, n);
	/* Pages that were not accessed are empty. */
	if (stop)
		map(p, n);
}

/* Buffers of io_uring stay where they are, and io_uring sees what others write to them. */
static void do_pin(struct thread *t, int p, int n)
{
	struct iovec buffer = { at(p), n * PAGE };
	int r;

	r = io_uring_register_buffers(&t->ring, &buffer, 1);
	note(t, p, n, "pin", 0, r);
	/* The exporter may have no page of RAM for it. */
	if (r)
		return;
	done[PIN]++;
	for (int k = 0; k < 3; k++) {
		move(t, p, n);
		for (int i = p; i < p + n && !stop; i++)
			if (rnd(t, 2))
				get(t, i, rnd(t, 2) ? PINNED : some_way(t));
			else
				put(t, i, rnd(t, 2) ? PINNED : some_way(t));
	}
	/* io_uring has written to the pages but does not mark them dirty. The CPU does. */
	for (int i = p; i < p + n; i++)
		*(volatile char *)at(i) = *(volatile char *)at(i);
	r = syscall(__NR_io_uring_register, t->ring.ring_fd, IORING_UNREGISTER_BUFFERS, NULL, 0) ?
	    -errno : 0;
	note(t, p, n, "unpin", 0, r);
	if (r)
		wrong(t, p, "unpin: %d", r);
}

static void do_soft_dirty(struct thread *t, int p, int n)
{
	if (!soft_dirty)
		return;
	pthread_mutex_lock(&soft_dirty_lock);
	write_file("/proc/self/clear_refs", "4");
	move(t, p, n);
	for (int i = p; i < p + n && !stop; i++) {
		put(t, i, rnd(t, 2) ? CPU : PROCESS_VM);
		if (!(pagemap_entry(at(i)) >> 55 & 1))
			wrong(t, i, "written, and not soft-dirty");
	}
	pthread_mutex_unlock(&soft_dirty_lock);
}

static const struct {
	void (*act)(struct thread *t, int p, int n);
	int weight;
	bool anonymous;		/* only for anonymous memory */
} acts[] = {
	{ do_put, 4, false },
	{ do_get, 3, false },
	{ do_fork, 3, false },
	{ do_read_only, 2, false },
	{ do_no_access, 1, false },
	{ do_unmap, 1, false },
	{ do_map_over, 1, false },
	{ do_grow, 12, false },
	{ do_poison, 12, false },
	{ do_minor, 8, false },
	{ do_pin, 8, false },
	{ do_drop, 1, false },
	{ do_protect, 4, true },
	{ do_arm, 8, true },
	{ do_missing, 1, true },
	{ do_lazy, 2, true },
	{ do_guard, 1, true },
	{ do_soft_dirty, 1, true },
};

static void act(struct thread *t, int p, int n)
{
	unsigned int sum = 0, i;

	for (i = 0; i < sizeof(acts) / sizeof(*acts); i++)
		sum += acts[i].weight;
	sum = rnd(t, sum);
	for (i = 0; sum >= acts[i].weight; i++)
		sum -= acts[i].weight;
	if (!acts[i].anonymous || area_of(p) <= LARGE)
		acts[i].act(t, p, n);
}

/* Move pages of anonymous memory to another place. */
static void remap_pages(struct thread *t)
{
	int n, p = some_pages(t, rnd(t, 2), 12, &n), q, r;

	q = some_pages(t, rnd(t, 2), 1, &r);
	if (area_of(q + n - 1) > LARGE || area_of(q + n - 1) != area_of(q) ||
	    abs(p - q) < n + 2 * BLOCK)
		return;
	lock_pages(p < q ? p : q, n);
	lock_pages(p < q ? q : p, n);
	r = mremap(at(p), n * PAGE, n * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at(q)) == MAP_FAILED;
	note(t, p, n, "mremap from", q, r);
	note(t, q, n, "mremap to", p, r);
	if (r) {
		map(q, n);
	} else {
		for (int i = 0; i < n; i++) {
			pages[q + i].want = pages[p + i].want;
			pages[q + i].lazy = pages[p + i].lazy;
		}
	}
	map(p, n);
	do_get(t, q, n);
	do_get(t, p, n);
	unlock_pages(p, n);
	unlock_pages(q, n);
}

/* Make a huge page, migrate it, and act on parts of it. */
static void huge_page(struct thread *t)
{
	int p = areas[LARGE].first + HNR * rnd(t, areas[LARGE].n / HNR), n, s;

	lock_pages(p, HNR);
	map(p, HNR);
	madvise(at(p), HUGE, MADV_HUGEPAGE);
	for (int i = p; i < p + HNR && !stop; i++)
		put(t, i, CPU);
	madvise(at(p), HUGE, MADV_COLLAPSE);
	if (!rnd(t, 3))
		do_fork(t, p, HNR);
	move(t, p, HNR);
	for (int k = rnd(t, 4); k-- && !stop;) {
		s = rnd(t, HNR);
		n = 1 + rnd(t, HNR - s < 40 ? HNR - s : 40);
		act(t, p + s, n);
		move(t, p, HNR);
	}
	for (int i = p; i < p + HNR && !stop; i += 1 + rnd(t, 20))
		get(t, i, some_way(t));
	unlock_pages(p, HNR);
}

static _Thread_local struct thread *self;

static void *work(void *arg)
{
	struct thread *t = self = arg;

	while (!stop) {
		int n, p, o = rnd(t, 20);

		if (!o) {
			huge_page(t);
		} else if (o < 4) {
			remap_pages(t);
		} else {
			p = some_pages(t, o < 8 ? SMALL : o < 14 ? LARGE :
					  o < 17 ? FILE_PRIVATE : SHARED, 12, &n);
			lock_pages(p, n);
			move(t, p, n);
			act(t, p, n);
			unlock_pages(p, n);
		}
		steps++;
	}
	return NULL;
}

/* Threads without locks */

static void mover_acts(struct thread *t, int p, int n)
{
	static const int advice[] = { MADV_COLD, MADV_PAGEOUT, MADV_PAGEOUT, MADV_HUGEPAGE,
		MADV_NOHUGEPAGE, MADV_MERGEABLE, MADV_UNMERGEABLE, MADV_POPULATE_READ,
		MADV_POPULATE_WRITE };
	static const unsigned int flags[] = { 0, EDU_HMM_WRITE, EDU_HMM_NO_FAULT,
		EDU_HMM_DOWNGRADE };
	void *addr = at(p), *where8[8];
	int nodes[8], status[8];
	unsigned long mask = 1 + rnd(t, 3);
	int r = 0, o = rnd(t, 17);
	struct page_region region;
	struct pm_scan_arg cmd = { .size = sizeof(cmd), .start = (uintptr_t)addr,
				   .end = (uintptr_t)at(p + n), .vec = (uintptr_t)&region,
				   .vec_len = 1, .category_mask = PAGE_IS_PRESENT,
				   .return_mask = 255 };

	switch (o) {
	case 0 ... 3:
		r = to_device(t, p, n);
		break;
	case 4:
		r = mirror(exporters[0], HMM_DMIRROR_MIGRATE_TO_SYS, p, t->buf, n);
		break;
	case 5:
		r = mirror(exporters[0], rnd(t, 2) ? HMM_DMIRROR_EXCLUSIVE : HMM_DMIRROR_SNAPSHOT,
			   p, t->buf, n > 16 ? 16 : n);
		break;
	case 6 ... 7:
		r = fault(importers[rnd(t, 3)], p, n, flags[rnd(t, 4)]);
		break;
	case 8 ... 11:
		o = 100 + rnd(t, sizeof(advice) / sizeof(*advice));
		r = madvise(addr, n * PAGE, advice[o - 100]) ? -errno : 0;
		break;
	case 12:
		r = rnd(t, 2) ? mlock2(addr, n * PAGE, rnd(t, 2)) : munlock(addr, n * PAGE);
		break;
	case 13:
		for (int i = 0; i < 8; i++) {
			where8[i] = at(p + (i < n ? i : 0));
			nodes[i] = rnd(t, 2);
		}
		r = rnd(t, 2) ? syscall(SYS_move_pages, 0, 8UL, where8, nodes, status, 2) :
				syscall(SYS_mbind, addr, n * PAGE, 2 + rnd(t, 2), &mask, 3UL, 2);
		break;
	case 14:
		r = ioctl(pagemap, PAGEMAP_SCAN, &cmd);
		break;
	case 15:
		p &= ~(HNR - 1);
		n = 1;
		r = rnd(t, 4) ? madvise(at(p), HUGE, MADV_COLLAPSE) :
				write_file("/proc/sys/vm/compact_memory", "1");
		break;
	case 16:
		/* In another thread, one of several pages that migrate to RAM gets no memory. */
		for (int i = 0; i < 100 && !stop; i++) {
			r = mirror(exporters[0], HMM_DMIRROR_FLAGS, p, t->buf,
				   HMM_DMIRROR_FLAG_FAIL_ALLOC);
			usleep(rnd(t, 500));
		}
		break;
	}
	note(t, p, n, "mover", o, r);
}

static void *mover(void *arg)
{
	struct thread *t = self = arg;

	while (!stop) {
		int n, p = some_pages(t, rnd(t, NAREA), rnd(t, 4) ? 32 : 600, &n);

		pthread_rwlock_rdlock(&poison_lock);
		mover_acts(t, p, n);
		pthread_rwlock_unlock(&poison_lock);
		steps++;
	}
	return NULL;
}

static void *serve_uffd(void *arg)
{
	struct thread *t = self = arg;
	struct uffd_msg msg;

	while (read(sync_uffd, &msg, sizeof(msg)) == sizeof(msg)) {
		int p = ((char *)msg.arg.pagefault.address - mem) / PAGE, r;
		struct uffdio_copy copy = { .dst = (uintptr_t)at(p),
					    .src = (uintptr_t)t->page, .len = PAGE };
		struct uffdio_range range = { (uintptr_t)at(p), PAGE };

		if (msg.event != UFFD_EVENT_PAGEFAULT)
			continue;
		pages[p].faults++;
		if (msg.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WP) {
			r = uffd_protect(sync_uffd, UFFDIO_WRITEPROTECT, p, 1, false);
		} else if (msg.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_RWP) {
			r = uffd_protect(sync_uffd, UFFDIO_RWPROTECT, p, 1, false);
		} else if (msg.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_MINOR) {
			struct uffdio_continue pass = { .range = range };

			do
				r = call(sync_uffd, UFFDIO_CONTINUE, &pass);
			while (r == -EAGAIN);
			done[MINOR] += !r;
			if (r)
				call(sync_uffd, UFFDIO_WAKE, &range);
		} else {
			stamp(t->page, pages[p].filling);
			do
				r = call(sync_uffd, UFFDIO_COPY, &copy);
			while (r == -EAGAIN);
			if (r)
				call(sync_uffd, UFFDIO_WAKE, &range);
		}
		note(t, p, 1, "userfaultfd", msg.arg.pagefault.flags, r);
	}
	return NULL;
}

static void open_importer(int i)
{
	struct edu_hmm_register cmd = { .addr = (uintptr_t)mem, .npages = NP,
					.flags = i < 2 ? EDU_HMM_P2P : 0 };
	int fd = open(i < 3 ? "/dev/edu_odp0" : "/dev/edu_hmm0", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return;
	call(fd, EDU_HMM_REGISTER, &cmd);
	if (importers[i] < 0) {
		importers[i] = fd;
		return;
	}
	dup3(fd, importers[i], O_CLOEXEC);
	close(fd);
}

/* Unbind the devices that the arguments name, and bind them again. */
static char *importer_bdf, *exporter_bdf;

static void *unbinder(void *arg)
{
	struct thread *t = self = arg;

	while (importer_bdf && !stop) {
		const char *driver = "edu_hmm", *bdf = importer_bdf;
		char path[80];

		for (int i = 0; i < 30 && !stop; i++)
			usleep(100000);
		switch (rnd(t, 6)) {
		case 0:
			if (exporter_bdf) {
				driver = "test_hmm";
				bdf = exporter_bdf;
			}
			/* fall through */
		case 1:
			snprintf(path, sizeof(path), "/sys/bus/pci/drivers/%s/unbind", driver);
			write_file(path, bdf);
			usleep(rnd(t, 300000));
			snprintf(path, sizeof(path), "/sys/bus/pci/drivers/%s/bind", driver);
			write_file(path, bdf);
			break;
		case 2:
			/* Closing a mirror evicts all pages. */
			close(open("/dev/hmm_dmirror0", O_RDWR | O_CLOEXEC));
			break;
		case 3:
			write_file("/sys/kernel/mm/transparent_hugepage/enabled",
				   rnd(t, 3) ? "always" : "never");
			write_file("/proc/sys/vm/drop_caches", "3");
			break;
		case 4:
			done[SWAPOFF] += !swapoff(SWAP) && !swapon(SWAP, 0);
			break;
		case 5:
			/* The kernel delays each thread that allocates a page, for up to 2 s. */
			write_file(CGROUP "/memory.high", "6M");
			usleep(rnd(t, 300000));
			write_file(CGROUP "/memory.high", "max");
			break;
		}
		for (int i = 0; i < 4; i++)
			open_importer(i);
	}
	return NULL;
}

static void on_signal(int signal, siginfo_t *info, void *context)
{
	long p = ((char *)info->si_addr - mem) / (long)PAGE;

	(void)context;
	/* MADV_HWPOISON sends SIGBUS to the caller. */
	if (poisons && info->si_code == BUS_MCEERR_AR)
		return;
	if (self && p >= 0 && p < NP)
		wrong(self, p, "signal %d, code %d", signal, info->si_code);
	else
		printf("# signal %d at %p\n", signal, info->si_addr);
	fflush(stdout);
	_exit(3);
}

static int open_uffd(uint64_t features)
{
	struct uffdio_api api = { .api = UFFD_API, .features = features };
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC);

	if (fd >= 0 && ioctl(fd, UFFDIO_API, &api)) {
		close(fd);
		return -1;
	}
	return fd;
}

static void prepare(void)
{
	static const char *const settings[][2] = {
		{ "/sys/kernel/mm/ksm/pages_to_scan", "2000" },
		{ "/sys/kernel/mm/ksm/sleep_millisecs", "10" },
		{ "/sys/kernel/mm/ksm/run", "1" },
		{ "/sys/kernel/mm/transparent_hugepage/enabled", "always" },
		{ "/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs", "10" },
		{ "/sys/kernel/mm/transparent_hugepage/khugepaged/alloc_sleep_millisecs", "10" },
		{ "/sys/kernel/mm/transparent_hugepage/khugepaged/pages_to_scan", "100000" },
		{ CGROUP "/cgroup.procs", "0" },
	};
	struct hmm_dmirror_p2p_stats stats;
	char page[PAGE];

	mount("none", "/sys/fs/cgroup", "cgroup2", 0, NULL);
	write_file("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
	mkdir(CGROUP, 0755);
	for (unsigned int i = 0; i < sizeof(settings) / sizeof(*settings); i++)
		write_file(settings[i][0], settings[i][1]);
	mem = mmap(NULL, NP * PAGE + HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mem = (char *)(((uintptr_t)mem + HUGE - 1) & ~(HUGE - 1));
	file = memfd_create("private", MFD_CLOEXEC);
	shm = memfd_create("shared", MFD_CLOEXEC);
	for (int i = 0; i < areas[FILE_PRIVATE].n; i++) {
		stamp(page, first_content(areas[FILE_PRIVATE].first + i));
		if (write(file, page, PAGE) != PAGE)
			perror("# memfd");
	}
	if (ftruncate(shm, areas[SHARED].n * PAGE))
		perror("# memfd");
	for (int a = 0; a < NAREA; a++)
		map(areas[a].first, areas[a].n);
	for (int i = 0; i < NP / BLOCK; i++)
		pthread_mutex_init(locks + i, NULL);
	pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	*(volatile char *)page = 1;
	soft_dirty = pagemap_entry(page) >> 55 & 1;
	gpu = open("/dev/dri/renderD128", O_RDWR | O_CLOEXEC);
	exporters[0] = gpu < 0 ? open("/dev/hmm_dmirror0", O_RDWR | O_CLOEXEC) : -1;
	exporters[1] = gpu < 0 ? open("/dev/hmm_dmirror1", O_RDWR | O_CLOEXEC) : -1;
	if (gpu < 0 ? exporters[0] < 0 : !start_gpu()) {
		perror("# exporter");
		_exit(4);
	}
	nexporters = 1 + (!call(exporters[1], HMM_DMIRROR_P2P_STATS, &stats) && stats.bar_pages);
	for (int i = 0; i < 4; i++) {
		importers[i] = -1;
		open_importer(i);
	}
	sync_uffd = open_uffd(UFFD_FEATURE_MINOR_SHMEM | UFFD_FEATURE_RWP);
	if (sync_uffd < 0)
		sync_uffd = open_uffd(0);
	async_uffd = open_uffd(UFFD_FEATURE_WP_ASYNC | UFFD_FEATURE_WP_UNPOPULATED);
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO };
	unsigned long seed = argc > 1 ? atol(argv[1]) : 1;
	int seconds = argc > 2 ? atoi(argv[2]) : 60, idle = 0;
	const char *verdict = getenv("HMM_P2P_VERDICT");
	static struct thread threads[WORKERS + MOVERS + 2];
	uint64_t last = 0;

	importer_bdf = argc > 3 ? argv[3] : NULL;
	exporter_bdf = argc > 4 ? argv[4] : NULL;
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("TAP version 13\n1..1\n");
	sigaction(SIGSEGV, &action, NULL);
	sigaction(SIGBUS, &action, NULL);
	prepare();
	for (int i = 0; i < WORKERS; i++) {
		if (io_uring_queue_init(4, &threads[i].ring, 0)) {
			perror("# io_uring");
			_exit(4);
		}
	}
	printf("# seed %lu, %d exporters, %s, userfaultfd %d %d, soft-dirty %d\n",
	       seed, nexporters, gpu < 0 ? "test_hmm" : xe_vm ? "xe" : "nouveau", sync_uffd >= 0,
	       async_uffd >= 0, soft_dirty);
	for (int i = 0; i < WORKERS + MOVERS + 2; i++) {
		struct thread *t = threads + i;

		t->n = i;
		t->random = seed * 1000003 + i * 7919 + 1;
		t->buf = malloc(areas[LARGE].n * PAGE);
		if (i < WORKERS)
			pthread_create(&t->id, NULL, work, t);
		else if (i < WORKERS + MOVERS)
			pthread_create(&t->id, NULL, mover, t);
		else if (i == WORKERS + MOVERS)
			pthread_create(&t->id, NULL, unbinder, t);
		else
			pthread_create(&t->id, NULL, serve_uffd, t);
	}
	for (int s = 0; s < seconds && !stop; s++) {
		sleep(1);
		idle = steps == last ? idle + 1 : 0;
		last = steps;
		if (s % 30 == 29)
			printf("# %d s, %lu steps\n", s + 1, last);
		if (idle > 200) {
			printf("# no step for 200 s\n");
			write_file("/proc/sysrq-trigger", "w");
			failed++;
			stop = true;
		}
	}
	stop = true;
	for (int s = 0; s < 60 && idle <= 200; s++) {
		static int ended;

		while (ended <= WORKERS + MOVERS && !pthread_tryjoin_np(threads[ended].id, NULL))
			ended++;
		if (ended > WORKERS + MOVERS)
			break;
		sleep(1);
		if (s == 59) {
			printf("# thread %d does not end\n", ended);
			failed++;
		}
	}
	for (int p = 0; p < NP && !failed; p++)
		get(threads, p, CPU);
	printf("# %lu steps, %lu accesses of importers to device memory\n", (uint64_t)steps,
	       (uint64_t)peers);
	for (int i = 0; i < NDONE; i++) {
		printf("# %s: %lu times\n", what_done[i], (uint64_t)done[i]);
		/* Without an importer to unbind, nobody turns swap off. */
		failed += steps > 20000 && !done[i] && (i != SWAPOFF || importer_bdf);
	}
	if (!failed && !peers && verdict && (strstr(verdict, "bus") || strstr(verdict, "bridge"))) {
		printf("# the topology lets them reach it\n");
		failed++;
	}
	printf("%sok 1 mm-fuzz.seed_%lu\n", failed ? "not " : "", seed);
	fflush(stdout);
	_exit(failed != 0);
}
