/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What programs for GPUs with shared virtual memory have in common: memory of this process, where
 * it is, and the registers of a back door (selftests/models).
 */
#ifndef SVM_H
#define SVM_H

#define _GNU_SOURCE
#define __user
#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "kselftest_harness.h"

#define PAGE		4096UL
#define HUGE		(2UL << 20)
#define NPAGES		32

/* ---- registers of a back door ---- */

static inline void put(volatile uint8_t *door, unsigned int at, uint32_t val)
{
	*(volatile uint32_t *)(door + at) = val;
}

static inline uint32_t get(volatile uint8_t *door, unsigned int at)
{
	return *(volatile uint32_t *)(door + at);
}

static inline void pause_ms(unsigned int ms)
{
	nanosleep(&(struct timespec){ ms / 1000, ms % 1000 * 1000000L }, NULL);
}

static inline bool write_file(const char *path, const char *value)
{
	int fd = open(path, O_WRONLY);
	bool done = fd >= 0 && write(fd, value, strlen(value)) == (ssize_t)strlen(value);

	close(fd);
	return done;
}

/* ---- memory ---- */

static inline uint32_t pattern(size_t i, unsigned int seed)
{
	return (i + 1) * 2654435761U + seed * 40503;
}

static inline void fill(void *to, size_t size, unsigned int seed)
{
	for (size_t i = 0; i < size / 4; i++)
		((uint32_t *)to)[i] = pattern(i, seed);
}

static inline size_t wrong(const void *mem, size_t size, unsigned int seed)
{
	size_t n = 0;

	for (size_t i = 0; i < size / 4; i++)
		n += ((const uint32_t *)mem)[i] != pattern(i, seed);
	return n;
}

/* The page table entries of the process for n pages. */
static inline bool pagemap(uint64_t va, size_t n, uint64_t *e)
{
	int fd = open("/proc/self/pagemap", O_RDONLY);
	bool good = pread(fd, e, n * sizeof(*e), va / PAGE * sizeof(*e)) ==
		    (ssize_t)(n * sizeof(*e));

	close(fd);
	return good;
}

/* Device-private entries look like swap entries, but belong to no swap file. */
static inline bool device_private(uint64_t e)
{
	return e >> 62 == 1;
}

/* Return: how many of n pages are device-private. */
static inline size_t pages_in_vram(const void *mem, size_t n)
{
	size_t there = 0, k = 0;
	uint64_t e[512];

	for (size_t i = 0; i < n; i += k) {
		k = n - i < ARRAY_SIZE(e) ? n - i : ARRAY_SIZE(e);
		if (!pagemap((uintptr_t)mem + i * PAGE, k, e))
			break;
		for (size_t j = 0; j < k; j++)
			there += device_private(e[j]);
	}
	return there;
}

static inline bool in_vram(const void *page)
{
	return pages_in_vram(page, 1);
}

static inline char *map(size_t size, int advice)
{
	char *p = mmap(NULL, size + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0);

	if (p == MAP_FAILED)
		return p;
	p = (char *)(((uintptr_t)p + HUGE - 1) & ~(HUGE - 1));
	madvise(p, size, advice);
	return p;
}

#endif
