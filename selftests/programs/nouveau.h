/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What programs for nouveau on the model of a GP100 (selftests/models/pascal) have in common: the
 * model's back door, which loads and stores as a shader would, memory of this process, and a client
 * of the driver.
 */
#ifndef NOUVEAU_H
#define NOUVEAU_H

#include "nouveau-migrate.h"

#include "backdoor.h"

struct stats {
#define X(name) uint64_t name;
	DOOR_STATS(X) DOOR_FAILURES(X)
#undef X
};

struct gpu {
	int drm;
	volatile uint8_t *door;
	unsigned int channel;
	char *mem;		/* NPAGES, in small pages */
};

/* ---- the back door ---- */

static inline struct stats stats(volatile uint8_t *door)
{
	union {
		struct stats s;
		uint32_t word[sizeof(struct stats) / 4];
	} u;

	for (size_t i = 0; i < sizeof(u) / 4; i++)
		u.word[i] = get(door, DOOR_COUNTERS + 4 * i);
	return u.s;
}

static inline void begin(struct gpu *self, enum door_op op, const void *va, size_t len)
{
	put(self->door, DOOR_CHID, self->channel);
	put(self->door, DOOR_VA, (uintptr_t)va);
	put(self->door, DOOR_VA + 4, (uintptr_t)va >> 32);
	put(self->door, DOOR_LEN, len);
	put(self->door, DOOR_OP, op);
}

static inline enum door_status finish(struct gpu *self)
{
	enum door_status is;

	for (int i = 0; i < 3000; i++) {
		is = get(self->door, DOOR_STATUS);
		if (is != DOOR_BUSY)
			return is;
		pause_ms(10);
	}
	return is;
}

static inline enum door_status gpu(struct gpu *self, enum door_op op, const void *va, size_t len)
{
	begin(self, op, va, len);
	return finish(self);
}

static inline uint32_t door_word(struct gpu *self, size_t i)
{
	return get(self->door, DOOR_DATA + 4 * i);
}

/* ---- memory ---- */

/* Translations of the page tables of the GPU. */
static inline uint32_t walk(struct gpu *self, const void *va, uint64_t *addr)
{
	if (gpu(self, DOOR_WALK, va, 0) != DOOR_DONE)
		return ~0U;
	*addr = get(self->door, DOOR_ADDR) | (uint64_t)get(self->door, DOOR_ADDR + 4) << 32;
	return get(self->door, DOOR_FLAGS);
}

#define MAPPINGS	4096		/* as many are compared */
#define SPAN		(128UL << 20)	/* chunks of device memory begin at a multiple of this */

struct span {
	uint64_t n, distance;
};

/* Does this page of the GPU's page tables differ from the entry that the process has? */
static inline bool differs(uint64_t e, uint32_t flags, uint64_t addr, struct span *span)
{
	uint64_t pfn = e >> 63 ? e & ((1UL << 55) - 1) : e << 9 >> 14;
	int i;

	if (flags & DOOR_SYSTEM) {
		/* Present, or for atomic access of the GPU. An IOMMU has other addresses. */
		if (!(e >> 62) || (access("/sys/class/iommu/dmar0", F_OK) && pfn != addr / PAGE))
			return true;
		/* A page that is shared with another process is not writable. */
		return e >> 63 && !(flags & DOOR_READ_ONLY) && !(e >> 56 & 1);
	}
	if (!device_private(e))
		return true;
	/* How far VRAM is from the frames of a chunk is the same for all of them. */
	for (i = 0; i < 31 && span[i].n && span[i].n != pfn * PAGE / SPAN; i++)
		;
	if (!span[i].n)
		span[i] = (struct span){ pfn * PAGE / SPAN, addr - pfn * PAGE };
	return span[i].distance != addr - pfn * PAGE;
}

/*
 * Compares what the page tables of the GPU map for this process with the process's page table.
 * Return: the pages that differ. The process must not change its memory meanwhile.
 */
static inline size_t compare(struct gpu *self)
{
	struct span span[32] = {};
	uint64_t va = 0, addr, again = 0, e[512];
	size_t found = 0, n;
	uint32_t flags;

	for (int m = 0; m < MAPPINGS && gpu(self, DOOR_NEXT, (void *)va, 0) == DOOR_DONE; m++) {
		va = get(self->door, DOOR_VA) | (uint64_t)get(self->door, DOOR_VA + 4) << 32;
		addr = get(self->door, DOOR_ADDR) | (uint64_t)get(self->door, DOOR_ADDR + 4) << 32;
		flags = get(self->door, DOOR_FLAGS);
		n = (1UL << (flags >> DOOR_SHIFT)) / PAGE;
		if (va >= (uintptr_t)HOLE && va < (uintptr_t)HOLE + HOLE_SIZE)
			n = 0;
		if (!pagemap(va, n, e))
			return -1;
		for (size_t i = 0; i < n; i++, va += PAGE, addr += PAGE) {
			/* If the kernel has just moved the page, the GPU no longer maps it. */
			if (!differs(e[i], flags, addr, span) ||
			    walk(self, (void *)va, &again) != flags || again != addr ||
			    !pagemap(va, 1, &e[i]) || !differs(e[i], flags, addr, span))
				continue;
			if (!found++)
				printf("# GPU: %#lx leads to %s %#lx; the process has %#lx\n", va,
				       flags & DOOR_SYSTEM ? "RAM" : "VRAM", addr, e[i]);
		}
		if (!n)
			va += 1UL << (flags >> DOOR_SHIFT);
	}
	return found;
}

/* ---- the driver ---- */

#define BDF_SIZE 32

/* Where the GPU is on the bus. */
static inline bool gpu_bdf(char *bdf)
{
	glob_t found;

	if (glob("/sys/bus/pci/drivers/nouveau/0*", 0, NULL, &found))
		return false;
	snprintf(bdf, BDF_SIZE, "%s", strrchr(found.gl_pathv[0], '/') + 1);
	globfree(&found);
	return true;
}

/* "size": what the driver has reserved, of a BAR 1 that may be too small; "available" to others. */
static inline size_t p2pmem(const char *what)
{
	size_t size = ~0UL;
	char path[64];
	glob_t found;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/bus/pci/drivers/nouveau/0*/p2pmem/%s", what);
	if (glob(path, 0, NULL, &found))
		return size;
	f = fopen(found.gl_pathv[0], "r");
	globfree(&found);
	if (!f || fscanf(f, "%zu", &size) != 1)
		size = ~0UL;
	if (f)
		fclose(f);
	return size;
}

/* A client without an address space yet, and the door. */
static inline bool open_files(struct gpu *self)
{
	glob_t found;
	int fd;

	self->drm = open("/dev/dri/renderD128", O_RDWR);
	if (self->drm < 0 || glob("/sys/bus/pci/drivers/nouveau/0*/resource5", 0, NULL, &found))
		return false;
	fd = open(found.gl_pathv[0], O_RDWR | O_SYNC);
	globfree(&found);
	self->door =
		mmap(NULL, DOOR_CLIENTS * DOOR_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return self->door != MAP_FAILED;
}

static inline int open_channel(struct gpu *self)
{
	struct drm_nouveau_channel_alloc c = { .fb_ctxdma_handle = ~0U,
					       .tt_ctxdma_handle = NOUVEAU_FIFO_ENGINE_CE };

	if (ioctl(self->drm, DRM_IOCTL_NOUVEAU_CHANNEL_ALLOC, &c))
		return -1;
	self->channel = c.channel;
	return 0;
}

static inline int svm_init(struct gpu *self, void *hole)
{
	struct drm_nouveau_svm_init i = { (uintptr_t)hole, HOLE_SIZE };

	return ioctl(self->drm, DRM_IOCTL_NOUVEAU_SVM_INIT, &i);
}

static inline bool open_gpu(struct gpu *self)
{
	if (!open_files(self) ||
	    mmap(HOLE, HOLE_SIZE, PROT_NONE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1,
		 0) != HOLE ||
	    svm_init(self, HOLE) || open_channel(self))
		return false;
	self->mem = map(NPAGES * PAGE, MADV_NOHUGEPAGE);
	if (self->mem == MAP_FAILED)
		return false;
	fill(self->mem, NPAGES * PAGE, 1);
	return true;
}

static inline void close_gpu(struct __test_metadata *_metadata, struct gpu *self)
{
	struct stats s;

	/* A test that failed may have left settings behind. */
	for (unsigned int at = DOOR_HOLD; at <= DOOR_FAIL; at += 4)
		put(self->door, at, 0);
	put(self->door, DOOR_BACKWARDS, 0);
	put(self->door, DOOR_BEHIND, 0);
	EXPECT_EQ(compare(self), 0);
	/* The driver is idle: no TLB may hold an entry that the page tables no longer have. */
	put(self->door, DOOR_CHECK, 1);
	s = stats(self->door);
	EXPECT_EQ(s.violations, 0);
	EXPECT_EQ(s.unknown_registers, 0);
	EXPECT_EQ(s.unknown_methods, 0);
	EXPECT_EQ(s.bar_faults, 0);
	EXPECT_EQ(s.iommu_faults, 0);
	close(self->drm);
}

#endif
