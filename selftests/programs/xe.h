/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What programs for xe on the model of a Battlemage (selftests/models/battlemage) have in common: a
 * client of the driver whose GPU mirrors this process, batches for the copy engine, and the model's
 * back door.
 */
#ifndef XE_H
#define XE_H

#include "svm.h"

#include "battlemage/backdoor.h"
#include "xe_drm.h"

#define BDF_SIZE	32
#define PAT		2		/* cached */
#define PAT_COHERENT	1
#define FENCE		0x600dUL
#define BATCH_SIZE	65536
#define FENCE_AT	32768
#define SECONDS		30

struct stats {
#define X(name) uint64_t name;
	DOOR_STATS(X) DOOR_FAILURES(X)
#undef X
};

struct gpu {
	unsigned int which;		/* of the GPUs of xe, in the order of the bus */
	int drm;
	volatile uint8_t *door;
	uint32_t vm, queue, region;
	bool hidden;			/* the BAR is smaller than VRAM */
	struct drm_xe_engine_class_instance engine;
	uint32_t *batch, *end;		/* the next batch, and where its next command is */
	volatile uint64_t *fence;	/* behind the batch */
	char *mem;			/* NPAGES, in small pages */
	uint64_t peer, peer_end;	/* the BAR of another GPU that may be mapped, or 0 */
};

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

/* ---- the driver ---- */

/* With @queue, that of a job, an access that fails ends the wait. */
static inline int wait_fence(struct gpu *self, volatile uint64_t *fence, uint32_t queue,
			     unsigned int seconds)
{
	struct drm_xe_wait_user_fence w = {
		.exec_queue_id = queue,
		.addr = (uintptr_t)fence,
		.op = DRM_XE_UFENCE_WAIT_OP_EQ,
		.value = FENCE,
		.mask = ~0ULL,
		.timeout = seconds * 1000000000LL,
	};

	return ioctl(self->drm, DRM_IOCTL_XE_WAIT_USER_FENCE, &w) ? -errno : 0;
}

static inline int vm_bind(struct gpu *self, uint32_t op, uint32_t flags, uintptr_t addr,
			  size_t size, uint32_t region)
{
	/* The GPU must not have to fault for a fence that other threads use, too. */
	uint64_t fence __attribute__((aligned(8))) = 0;
	struct drm_xe_sync s = {
		.flags = DRM_XE_SYNC_FLAG_SIGNAL,
		.type = DRM_XE_SYNC_TYPE_USER_FENCE,
		.addr = (uintptr_t)&fence,
		.timeline_value = FENCE,
	};
	struct drm_xe_vm_bind b = {
		.vm_id = self->vm,
		.num_binds = 1,
		.num_syncs = 1,
		.syncs = (uintptr_t)&s,
		.bind = { .pat_index = PAT, .range = size, .addr = addr, .op = op, .flags = flags,
			  .prefetch_mem_region_instance = region },
	};

	if (ioctl(self->drm, DRM_IOCTL_XE_VM_BIND, &b))
		return -errno;
	return wait_fence(self, &fence, 0, SECONDS);
}

static inline int to_vram(struct gpu *self, void *mem, size_t size)
{
	return vm_bind(self, DRM_XE_VM_BIND_OP_PREFETCH, 0, (uintptr_t)mem, size, self->region);
}

/* Where the GPU is on the bus. */
static inline bool gpu_bdf(unsigned int which, char *bdf)
{
	glob_t found;
	bool there;

	if (glob("/sys/bus/pci/drivers/xe/0*", 0, NULL, &found))
		return false;
	there = which < found.gl_pathc;
	if (there)
		snprintf(bdf, BDF_SIZE, "%s", strrchr(found.gl_pathv[which], '/') + 1);
	globfree(&found);
	return there;
}

/* Where a BAR is, as the CPU and as peers see it: in these guests both are the same. */
static inline bool find_bar(const char *bdf, int bar, uint64_t *start, uint64_t *end)
{
	char path[96];
	bool good = true;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/resource", bdf);
	f = fopen(path, "r");
	if (!f)
		return false;
	for (int i = 0; i <= bar; i++)
		good &= fscanf(f, "%lx %lx %*x", start, end) == 2;
	fclose(f);
	return good;
}

static inline bool query(struct gpu *self, uint32_t what, void *answer, size_t room)
{
	struct drm_xe_device_query q = { .query = what };

	if (ioctl(self->drm, DRM_IOCTL_XE_DEVICE_QUERY, &q) || q.size > room)
		return false;
	q.data = (uintptr_t)answer;
	return !ioctl(self->drm, DRM_IOCTL_XE_DEVICE_QUERY, &q);
}

static inline bool find_vram(struct gpu *self, struct drm_xe_mem_region *vram)
{
	uint64_t room[512] = {};
	struct drm_xe_query_mem_regions *r = (void *)room;

	if (!query(self, DRM_XE_DEVICE_QUERY_MEM_REGIONS, r, sizeof(room)))
		return false;
	for (uint32_t i = 0; i < r->num_mem_regions; i++) {
		*vram = r->mem_regions[i];
		if (vram->mem_class == DRM_XE_MEM_REGION_CLASS_VRAM)
			return true;
	}
	return false;
}

/* The driver, the copy engine, the memory region VRAM, the door. */
static inline bool open_files(struct gpu *self)
{
	uint64_t room[512] = {};
	struct drm_xe_query_engines *e = (void *)room;
	struct drm_xe_mem_region vram;
	char bdf[BDF_SIZE], path[96];
	glob_t found;
	int fd;

	if (!gpu_bdf(self->which, bdf))
		return false;
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/drm/renderD*", bdf);
	if (glob(path, 0, NULL, &found))
		return false;
	snprintf(path, sizeof(path), "/dev/dri/%s", strrchr(found.gl_pathv[0], '/') + 1);
	globfree(&found);
	self->drm = open(path, O_RDWR | O_CLOEXEC);
	if (self->drm < 0 || !query(self, DRM_XE_DEVICE_QUERY_ENGINES, e, sizeof(room)))
		return false;
	for (uint32_t i = 0; i < e->num_engines; i++)
		if (e->engines[i].instance.engine_class == DRM_XE_ENGINE_CLASS_COPY)
			self->engine = e->engines[i].instance;
	if (!find_vram(self, &vram))
		return false;
	self->region = vram.instance;
	self->hidden = vram.cpu_visible_size < vram.total_size;
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/resource4", bdf);
	fd = open(path, O_RDWR | O_SYNC);
	self->door = mmap(NULL, DOOR_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return self->door != MAP_FAILED;
}

/* A batch whose fault is refused takes its queue with it. */
static inline bool open_queue(struct gpu *self)
{
	struct drm_xe_exec_queue_create q = { .width = 1,
					      .num_placements = 1,
					      .vm_id = self->vm,
					      .instances = (uintptr_t)&self->engine };

	if (ioctl(self->drm, DRM_IOCTL_XE_EXEC_QUEUE_CREATE, &q))
		return false;
	self->queue = q.exec_queue_id;
	return true;
}

/* An address space of the GPU that mirrors this process, and a queue in it. */
static inline bool open_vm(struct gpu *self)
{
	struct drm_xe_vm_create v = { .flags = DRM_XE_VM_CREATE_FLAG_LR_MODE |
					       DRM_XE_VM_CREATE_FLAG_FAULT_MODE };

	if (ioctl(self->drm, DRM_IOCTL_XE_VM_CREATE, &v))
		return false;
	self->vm = v.vm_id;
	return !vm_bind(self, DRM_XE_VM_BIND_OP_MAP, DRM_XE_VM_BIND_FLAG_CPU_ADDR_MIRROR, 0,
			1UL << 47, 0) &&
	       open_queue(self);
}

static inline bool open_gpu(struct gpu *self)
{
	if (!open_files(self) || !open_vm(self))
		return false;
	/* Memory that fork() does not copy, and that stays in RAM. */
	self->batch = mmap(NULL, BATCH_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
			   0);
	self->mem = map(NPAGES * PAGE, MADV_NOHUGEPAGE);
	if (self->batch == MAP_FAILED || self->mem == MAP_FAILED)
		return false;
	self->end = self->batch;
	self->fence = (void *)((char *)self->batch + FENCE_AT);
	fill(self->mem, NPAGES * PAGE, 1);
	return true;
}

/* ---- batches ---- */

static inline void emit(struct gpu *self, uint32_t word)
{
	*self->end++ = word;
}

static inline void emit_address(struct gpu *self, const volatile void *va)
{
	emit(self, (uintptr_t)va);
	emit(self, (uintptr_t)va >> 32);
}

static inline int start_batch(struct gpu *self)
{
	struct drm_xe_sync s = {
		.flags = DRM_XE_SYNC_FLAG_SIGNAL,
		.type = DRM_XE_SYNC_TYPE_USER_FENCE,
		.addr = (uintptr_t)self->fence,
		.timeline_value = FENCE,
	};
	struct drm_xe_exec x = {
		.exec_queue_id = self->queue,
		.num_syncs = 1,
		.syncs = (uintptr_t)&s,
		.address = (uintptr_t)self->batch,
		.num_batch_buffer = 1,
	};

	emit(self, 0xa << 23);			/* MI_BATCH_BUFFER_END */
	emit(self, 0);
	self->end = self->batch;
	*self->fence = 0;
	return ioctl(self->drm, DRM_IOCTL_XE_EXEC, &x) ? -errno : 0;
}

static inline int wait_batch(struct gpu *self, unsigned int seconds)
{
	return wait_fence(self, self->fence, self->queue, seconds);
}

static inline int run_batch(struct gpu *self)
{
	int rc = start_batch(self);

	return rc ? rc : wait_batch(self, SECONDS);
}

static inline void emit_store(struct gpu *self, const volatile void *va, uint32_t val)
{
	emit(self, 0x20 << 23 | 2);		/* MI_STORE_DATA_IMM */
	emit_address(self, va);
	emit(self, val);
}

static inline int gpu_store(struct gpu *self, const volatile void *va, uint32_t val)
{
	emit_store(self, va, val);
	return run_batch(self);
}

static inline int gpu_copy(struct gpu *self, void *dst, const void *src, size_t len)
{
	emit(self, 2U << 29 | 0x5a << 22 | 8);	/* MEM_COPY */
	emit(self, len - 1);
	for (int i = 0; i < 3; i++)
		emit(self, 0);
	emit_address(self, src);
	emit_address(self, dst);
	emit(self, 0);
	return run_batch(self);
}

static inline void emit_increment(struct gpu *self, void *va)
{
	emit(self, 0x2f << 23 | 5 << 8 | 1);	/* MI_ATOMIC */
	emit_address(self, va);
}

static inline int gpu_increment(struct gpu *self, void *va)
{
	emit_increment(self, va);
	return run_batch(self);
}

/* ---- page tables of the GPU ---- */

static inline bool door(struct gpu *self, enum door_op op, uint64_t va)
{
	put(self->door, DOOR_VA, va);
	put(self->door, DOOR_VA + 4, va >> 32);
	put(self->door, DOOR_OP, op);
	return get(self->door, DOOR_STATUS) == DOOR_DONE;
}

static inline uint64_t get64(struct gpu *self, unsigned int at)
{
	return get(self->door, at) | (uint64_t)get(self->door, at + 4) << 32;
}

/* The flags of the translation; 0: there is none. The address space is that of the last batch. */
static inline uint32_t walk(struct gpu *self, const void *va, uint64_t *addr)
{
	if (!door(self, DOOR_WALK, (uintptr_t)va))
		return 0;
	*addr = get64(self, DOOR_ADDR);
	return get(self->door, DOOR_FLAGS);
}

/* Does this page of the GPU's page tables differ from the entry that the process has? */
static inline bool differs(struct gpu *self, uint64_t e, uint32_t flags, uint64_t addr,
			   uint64_t *distance)
{
	uint64_t pfn = e >> 63 ? e & ((1UL << 55) - 1) : e << 9 >> 14;

	/* A BAR takes no atomics. */
	if (!(flags & DOOR_LOCAL) && addr >= self->peer && addr < self->peer_end)
		return !device_private(e) || flags & DOOR_ATOMIC;
	if (!(flags & DOOR_LOCAL)) {
		/* Present. An IOMMU has other addresses. */
		if (!(e >> 63) || (access("/sys/class/iommu/dmar0", F_OK) && pfn != addr / PAGE))
			return true;
		/* A page of private memory that is shared with another process is not writable. */
		return !(e >> 61 & 1) && flags & DOOR_WRITABLE && !(e >> 56 & 1);
	}
	if (!device_private(e))
		return true;
	/* How far VRAM is from its frames is the same for all of it. */
	if (!*distance)
		*distance = addr - pfn * PAGE;
	return *distance != addr - pfn * PAGE;
}

#define MAPPINGS	16384		/* as many are compared */

/*
 * Compares what the page tables of the GPU map for this process with the process's page table.
 * Return: the pages that differ. The process must not change its memory meanwhile.
 */
static inline size_t compare(struct gpu *self)
{
	uint64_t va = 0, addr, distance = 0, e[512];
	size_t found = 0, n;
	uint32_t flags;

	/* Number 0 is the driver's address space: there was no batch of a process yet. */
	if (!get(self->door, DOOR_ASID))
		return 0;
	for (int m = 0; m < MAPPINGS && door(self, DOOR_NEXT, va); m++) {
		va = get64(self, DOOR_VA);
		addr = get64(self, DOOR_ADDR);
		flags = get(self->door, DOOR_FLAGS);
		n = (1UL << (flags >> DOOR_SHIFT)) / PAGE;
		if (n > ARRAY_SIZE(e) || !pagemap(va, n, e))
			return ~0UL;
		for (size_t i = 0; i < n; i++, va += PAGE, addr += PAGE) {
			if (!differs(self, e[i], flags, addr, &distance))
				continue;
			if (!found++)
				printf("# GPU: %#lx leads to %s %#lx (%#x); the process has %#lx\n",
				       va, flags & DOOR_LOCAL ? "VRAM" : "RAM", addr, flags, e[i]);
		}
	}
	return found;
}

/* A test that failed may have left settings behind. */
static inline void reset_door(struct gpu *self)
{
	for (unsigned int at = DOOR_HOLD; at <= DOOR_LATE; at += 4)
		put(self->door, at, 0);
}

static inline void close_gpu(struct __test_metadata *_metadata, struct gpu *self)
{
	struct stats s;

	reset_door(self);
	if (self->drm >= 0)
		EXPECT_EQ(compare(self), 0);
	/* The driver is idle: no TLB may hold an entry that the page tables no longer have. */
	put(self->door, DOOR_CHECK, 1);
	s = stats(self->door);
	EXPECT_EQ(s.violations, 0);
	EXPECT_EQ(s.unknown_registers, 0);
	EXPECT_EQ(s.unknown_commands, 0);
	EXPECT_EQ(s.unknown_requests, 0);
	EXPECT_EQ(s.ggtt_faults, 0);
	EXPECT_EQ(s.iommu_faults, 0);
	close(self->drm);
}

#endif
