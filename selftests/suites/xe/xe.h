/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared virtual memory of xe without libdrm, for the tests of this folder: an address space that
 * mirrors the process, a queue of the copy engine, and batches of a few commands.
 */
#ifndef XE_H
#define XE_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <drm.h>
#include <xe_drm.h>

#define PAGE		4096UL
#define CHUNK		(2UL << 20)	/* the largest range of xe */
#define PAT_MIRROR	2		/* in the tables of Xe2 */
#define PAT_USERPTR	1		/* coherent */
#define DONE		0x600dULL
#define SECOND		1000000000LL

struct xe {
	int fd;
	uint32_t vm, queue, vram;	/* vram: instance of the memory region */
	uint32_t *batch;		/* shared with children; no test migrates it */
	volatile uint64_t *done;	/* where a batch reports that it is done */
	int64_t seconds;		/* the limit for a batch */
};

static inline bool xe_pagemap(const void *p, uint64_t *entry)
{
	int fd = open("/proc/self/pagemap", O_RDONLY);
	bool ok = fd >= 0 && pread(fd, entry, 8, (uintptr_t)p / PAGE * 8) == 8;

	if (fd >= 0)
		close(fd);
	return ok;
}

/* How many pages are device private: not present, but with an entry. */
static inline size_t xe_in_vram(const char *p, size_t size)
{
	size_t n = 0;
	uint64_t e;

	for (size_t i = 0; i < size; i += PAGE)
		n += xe_pagemap(p + i, &e) && !(e >> 63) && (e >> 62 & 1);
	return n;
}

/* Anonymous memory that begins at a multiple of CHUNK. */
static inline char *xe_memory(size_t size, bool huge)
{
	char *raw = mmap(NULL, size + CHUNK, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *p;

	if (raw == MAP_FAILED)
		return NULL;
	p = (char *)(((uintptr_t)raw + CHUNK - 1) & ~(CHUNK - 1));
	if (p > raw)
		munmap(raw, p - raw);
	if (raw + CHUNK > p)
		munmap(p + size, raw + CHUNK - p);
	madvise(p, size, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	return p;
}

static inline void *xe_query(int fd, uint32_t what)
{
	struct drm_xe_device_query q = { .query = what };
	void *data;

	if (ioctl(fd, DRM_IOCTL_XE_DEVICE_QUERY, &q))
		return NULL;
	data = calloc(1, q.size);
	q.data = (uintptr_t)data;
	if (data && ioctl(fd, DRM_IOCTL_XE_DEVICE_QUERY, &q)) {
		free(data);
		data = NULL;
	}
	return data;
}

/*
 * Wait until *done is DONE. 0, or -errno: -ETIME if it takes longer than that, -EIO if the queue
 * has failed. 0 in place of a queue: VM_BIND.
 */
static inline int xe_wait(struct xe *x, volatile uint64_t *done, uint32_t queue)
{
	struct drm_xe_wait_user_fence w = {
		.addr = (uintptr_t)done, .op = DRM_XE_UFENCE_WAIT_OP_EQ, .value = DONE,
		.mask = ~0ULL, .timeout = x->seconds * SECOND, .exec_queue_id = queue,
	};

	return ioctl(x->fd, DRM_IOCTL_XE_WAIT_USER_FENCE, &w) ? -errno : 0;
}

/* @from: the memory that a userptr maps to @p */
static inline int xe_bind_to(struct xe *x, uint32_t op, uint32_t flags, const void *p, uint64_t size,
			     const void *from)
{
	static _Thread_local volatile uint64_t done __attribute__((aligned(8)));
	struct drm_xe_sync sync = {
		.flags = DRM_XE_SYNC_FLAG_SIGNAL, .type = DRM_XE_SYNC_TYPE_USER_FENCE,
		.addr = (uintptr_t)&done, .timeline_value = DONE,
	};
	struct drm_xe_vm_bind b = {
		.vm_id = x->vm, .num_binds = 1, .num_syncs = 1, .syncs = (uintptr_t)&sync,
		.bind = { .addr = (uintptr_t)p, .range = size, .op = op, .flags = flags,
			  .pat_index = PAT_MIRROR },
	};

	if (op == DRM_XE_VM_BIND_OP_PREFETCH)
		b.bind.prefetch_mem_region_instance = x->vram;
	if (op == DRM_XE_VM_BIND_OP_MAP_USERPTR) {
		b.bind.userptr = (uintptr_t)from;
		b.bind.pat_index = PAT_USERPTR;
	}
	done = 0;
	return ioctl(x->fd, DRM_IOCTL_XE_VM_BIND, &b) ? -errno : xe_wait(x, &done, 0);
}

static inline int xe_bind(struct xe *x, uint32_t op, uint32_t flags, const void *p, uint64_t size)
{
	return xe_bind_to(x, op, flags, p, size, NULL);
}

static inline int xe_to_vram(struct xe *x, const void *p, size_t size)
{
	return xe_bind(x, DRM_XE_VM_BIND_OP_PREFETCH, 0, p, size);
}

/* A queue of the copy engine. A batch that fails takes its queue with it. */
static inline bool xe_queue(struct xe *x)
{
	struct drm_xe_engine_class_instance engine = { .engine_class = DRM_XE_ENGINE_CLASS_COPY };
	struct drm_xe_exec_queue_create c = {
		.width = 1, .num_placements = 1, .vm_id = x->vm, .instances = (uintptr_t)&engine,
	};

	if (ioctl(x->fd, DRM_IOCTL_XE_EXEC_QUEUE_CREATE, &c))
		return false;
	x->queue = c.exec_queue_id;
	return true;
}

/* Open the GPU, and mirror the process. */
static inline bool xe_open(struct xe *x)
{
	struct drm_xe_vm_create c = {
		.flags = DRM_XE_VM_CREATE_FLAG_LR_MODE | DRM_XE_VM_CREATE_FLAG_FAULT_MODE,
	};
	struct drm_xe_query_mem_regions *regions;

	memset(x, 0, sizeof(*x));
	x->seconds = 20;
	/* After unbinding with an open file, the number is another one. */
	x->fd = -1;
	for (int i = 128; x->fd < 0 && i < 192; i++) {
		char path[32];

		snprintf(path, sizeof(path), "/dev/dri/renderD%d", i);
		x->fd = open(path, O_RDWR | O_CLOEXEC);
	}
	if (x->fd < 0)
		return false;
	regions = xe_query(x->fd, DRM_XE_DEVICE_QUERY_MEM_REGIONS);
	for (uint32_t i = 0; regions && i < regions->num_mem_regions; i++)
		if (regions->mem_regions[i].mem_class == DRM_XE_MEM_REGION_CLASS_VRAM)
			x->vram = regions->mem_regions[i].instance;
	free(regions);
	x->batch = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (x->batch == MAP_FAILED || !x->vram || ioctl(x->fd, DRM_IOCTL_XE_VM_CREATE, &c))
		return false;
	x->done = (void *)((char *)x->batch + 8 * PAGE);
	x->vm = c.vm_id;
	return !xe_bind(x, DRM_XE_VM_BIND_OP_MAP, DRM_XE_VM_BIND_FLAG_CPU_ADDR_MIRROR, NULL,
			1ULL << 47) && xe_queue(x);
}

/* Start the batch. */
static inline int xe_start(struct xe *x)
{
	struct drm_xe_sync sync = {
		.flags = DRM_XE_SYNC_FLAG_SIGNAL, .type = DRM_XE_SYNC_TYPE_USER_FENCE,
		.addr = (uintptr_t)x->done, .timeline_value = DONE,
	};
	struct drm_xe_exec e = {
		.exec_queue_id = x->queue, .num_syncs = 1, .syncs = (uintptr_t)&sync,
		.address = (uintptr_t)x->batch, .num_batch_buffer = 1,
	};

	*x->done = 0;
	return ioctl(x->fd, DRM_IOCTL_XE_EXEC, &e) ? -errno : 0;
}

static inline int xe_run(struct xe *x)
{
	int err = xe_start(x);

	return err ?: xe_wait(x, x->done, x->queue);
}

/* Batches: MI_STORE_DATA_IMM, and MI_ATOMIC with the operation increment. */
static inline void xe_set_store(struct xe *x, const void *p, uint32_t value)
{
	uint32_t words[] = { 0x20 << 23 | 2, (uintptr_t)p, (uintptr_t)p >> 32, value, 0xa << 23 };

	memcpy(x->batch, words, sizeof(words));
}

static inline void xe_set_increment(struct xe *x, const void *p)
{
	uint32_t words[] = { 0x2f << 23 | 5 << 8 | 1, (uintptr_t)p, (uintptr_t)p >> 32, 0xa << 23 };

	memcpy(x->batch, words, sizeof(words));
}

static inline int xe_store(struct xe *x, void *p, uint32_t value)
{
	xe_set_store(x, p, value);
	return xe_run(x);
}

static inline uint32_t xe_word(const void *p)
{
	return *(const volatile uint32_t *)p;
}

static inline unsigned long xe_tainted(void)
{
	FILE *f = fopen("/proc/sys/kernel/tainted", "r");
	unsigned long t = ~0UL;

	if (f) {
		if (fscanf(f, "%lu", &t) != 1)
			t = ~0UL;
		fclose(f);
	}
	return t;
}

static inline double xe_clock(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

#endif
