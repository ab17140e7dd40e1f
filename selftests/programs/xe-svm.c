// SPDX-License-Identifier: GPL-2.0-only
/*
 * xe's shared virtual memory on the model of a Battlemage (selftests/models/battlemage): memory of
 * this process moves to VRAM and back, and batches of the copy engine load and store at the same
 * addresses. Each test ends with a comparison of the page tables of the GPU and of the process.
 */
#include "xe.h"

#include <signal.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "pager.h"
#include "peer.h"

/* ---- memory ---- */

FIXTURE(svm)
{
	struct gpu gpu;
};

FIXTURE_SETUP(svm)
{
	ASSERT_TRUE(open_gpu(&self->gpu));
}

FIXTURE_TEARDOWN(svm)
{
	close_gpu(_metadata, &self->gpu);
}

/* A buffer object, where the process sees it. */
static uint32_t *buffer(struct gpu *g, size_t size, bool vram, uint32_t *handle)
{
	struct drm_xe_gem_create c = {
		.size = size,
		.placement = vram ? 1 << g->region : 1,
		.cpu_caching = vram ? DRM_XE_GEM_CPU_CACHING_WC : DRM_XE_GEM_CPU_CACHING_WB,
		.flags = vram ? DRM_XE_GEM_CREATE_FLAG_NEEDS_VISIBLE_VRAM : 0,
	};
	struct drm_xe_gem_mmap_offset o = {};

	if (ioctl(g->drm, DRM_IOCTL_XE_GEM_CREATE, &c))
		return MAP_FAILED;
	*handle = o.handle = c.handle;
	if (ioctl(g->drm, DRM_IOCTL_XE_GEM_MMAP_OFFSET, &o))
		return MAP_FAILED;
	return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, g->drm, o.offset);
}

static int bind_buffer(struct gpu *g, uint32_t vm, uint32_t handle, uint64_t va, uint32_t fence)
{
	struct drm_xe_sync s = { .flags = DRM_XE_SYNC_FLAG_SIGNAL, .handle = fence };
	struct drm_xe_vm_bind b = {
		.vm_id = vm, .num_binds = 1, .num_syncs = 1, .syncs = (uintptr_t)&s,
		.bind = { .obj = handle, .pat_index = PAT, .range = HUGE, .addr = va },
	};
	struct drm_syncobj_wait w = { .handles = (uintptr_t)&fence,
				      .count_handles = 1,
				      .timeout_nsec = INT64_MAX };

	return ioctl(g->drm, DRM_IOCTL_XE_VM_BIND, &b) ||
	       ioctl(g->drm, DRM_IOCTL_SYNCOBJ_WAIT, &w);
}

/* Without shared virtual memory: a batch stores into buffers in VRAM and in RAM, and copies. */
TEST_F(svm, buffers)
{
	struct drm_xe_vm_create v = {};
	struct drm_syncobj_create fence = {};
	struct gpu *g = &self->gpu;
	struct drm_xe_exec_queue_create q = { .width = 1,
					      .num_placements = 1,
					      .instances = (uintptr_t)&g->engine };
	struct drm_xe_sync s = { .flags = DRM_XE_SYNC_FLAG_SIGNAL };
	struct drm_xe_exec x = { .num_syncs = 1,
				 .syncs = (uintptr_t)&s,
				 .address = 2 * HUGE,
				 .num_batch_buffer = 1 };
	struct drm_syncobj_wait w = { .handles = (uintptr_t)&s.handle,
				      .count_handles = 1,
				      .timeout_nsec = INT64_MAX };
	uint32_t *mem[3], handle[3], bad = 0;

	ASSERT_EQ(ioctl(g->drm, DRM_IOCTL_XE_VM_CREATE, &v), 0);
	ASSERT_EQ(ioctl(g->drm, DRM_IOCTL_SYNCOBJ_CREATE, &fence), 0);
	for (int i = 0; i < 3; i++) {
		mem[i] = buffer(g, HUGE, i == 1, &handle[i]);
		ASSERT_NE(mem[i], MAP_FAILED);
		ASSERT_EQ(bind_buffer(g, v.vm_id, handle[i], (2 + i) * HUGE, fence.handle), 0);
	}
	/* New VRAM is cleared. */
	for (size_t i = 0; i < HUGE / 4; i++)
		bad += !!mem[1][i];
	EXPECT_EQ(bad, 0);
	fill(mem[2], HUGE, 3);
	q.vm_id = v.vm_id;
	ASSERT_EQ(ioctl(g->drm, DRM_IOCTL_XE_EXEC_QUEUE_CREATE, &q), 0);
	g->end = mem[0];
	emit_store(g, (void *)(3 * HUGE + 64), 11);
	emit_store(g, (void *)(4 * HUGE + 128), 12);
	emit(g, 2U << 29 | 0x5a << 22 | 8);
	emit(g, PAGE - 1);
	for (int i = 0; i < 3; i++)
		emit(g, 0);
	emit_address(g, (void *)(4 * HUGE + PAGE));
	emit_address(g, (void *)(3 * HUGE + PAGE));
	emit(g, 0);
	emit(g, 0xa << 23);
	g->end = g->batch;
	x.exec_queue_id = q.exec_queue_id;
	s.handle = fence.handle;
	ASSERT_EQ(ioctl(g->drm, DRM_IOCTL_SYNCOBJ_RESET,
			&(struct drm_syncobj_array){ (uintptr_t)&fence.handle, 1, 0 }), 0);
	ASSERT_EQ(ioctl(g->drm, DRM_IOCTL_XE_EXEC, &x), 0);
	ASSERT_EQ(ioctl(g->drm, DRM_IOCTL_SYNCOBJ_WAIT, &w), 0);
	EXPECT_EQ(mem[1][16], 11);
	EXPECT_EQ(mem[2][32], 12);
	for (size_t i = 0; i < PAGE / 4; i++)
		bad += mem[1][PAGE / 4 + i] != pattern(PAGE / 4 + i, 3);
	EXPECT_EQ(bad, 0);
	/* compare() is about the address space of the last batch. */
	ASSERT_EQ(gpu_store(g, g->mem, 0), 0);
}

/* Memory moves to VRAM by the copy engine, and comes back when the CPU touches it. */
static void there_and_back(struct __test_metadata *_metadata, struct gpu *g, char *mem, size_t size)
{
	size_t n = size / PAGE;
	struct stats before = stats(g->door), after;

	fill(mem, size, 1);
	ASSERT_EQ(to_vram(g, mem, size), 0);
	after = stats(g->door);
	EXPECT_EQ(pages_in_vram(mem, n), n);
	EXPECT_GE(after.copied_bytes - before.copied_bytes, size);
	EXPECT_EQ(wrong(mem, size, 1), 0);
	EXPECT_EQ(pages_in_vram(mem, n), 0);
}

TEST_F(svm, there_and_back)
{
	char *mem = map(64 * PAGE, MADV_NOHUGEPAGE);

	ASSERT_NE(mem, MAP_FAILED);
	there_and_back(_metadata, &self->gpu, mem, PAGE);
	there_and_back(_metadata, &self->gpu, mem + 16 * PAGE, 16 * PAGE);
	there_and_back(_metadata, &self->gpu, mem, 64 * PAGE);
}

TEST_F(svm, there_and_back_huge)
{
	char *mem = map(2 * HUGE, MADV_HUGEPAGE);

	ASSERT_NE(mem, MAP_FAILED);
	there_and_back(_metadata, &self->gpu, mem, 2 * HUGE);
}

/* The page tables of the GPU lead to VRAM, and the data of the process are there. */
TEST_F(svm, what_vram_holds)
{
	struct gpu *g = &self->gpu;
	uint64_t addr;

	ASSERT_EQ(to_vram(g, g->mem, NPAGES * PAGE), 0);
	ASSERT_EQ(gpu_store(g, g->mem, pattern(0, 1)), 0);
	for (int i = 0; i < NPAGES; i += 7) {
		uint32_t bad = 0;

		ASSERT_EQ(walk(g, g->mem + i * PAGE, &addr) & (DOOR_VALID | DOOR_LOCAL),
			  DOOR_VALID | DOOR_LOCAL);
		ASSERT_TRUE(door(g, DOOR_VRAM, addr));
		for (size_t k = 0; k < PAGE / 4; k++)
			bad += get(g->door, DOOR_DATA + 4 * k) != pattern(i * PAGE / 4 + k, 1);
		EXPECT_EQ(bad, 0);
	}
	EXPECT_EQ(pages_in_vram(g->mem, NPAGES), NPAGES);
}

/* The GPU copies between memory that it has never seen: it faults, and both move to VRAM. */
static void faults(struct __test_metadata *_metadata, struct gpu *g, size_t size, int advice,
		   unsigned int shift)
{
	char *src = map(size, advice), *dst = map(size, advice);
	struct stats before = stats(g->door), after;
	uint64_t addr;

	ASSERT_NE(src, MAP_FAILED);
	ASSERT_NE(dst, MAP_FAILED);
	fill(src, size, 3);
	ASSERT_EQ(gpu_copy(g, dst, src, size), 0);
	after = stats(g->door);
	EXPECT_GE(after.faults - before.faults, 2);
	EXPECT_EQ(after.faults_refused, before.faults_refused);
	EXPECT_EQ(pages_in_vram(src, size / PAGE), size / PAGE);
	EXPECT_EQ(pages_in_vram(dst, size / PAGE), size / PAGE);
	EXPECT_EQ(walk(g, dst, &addr) >> DOOR_SHIFT, shift);
	ASSERT_EQ(compare(g), 0);
	EXPECT_EQ(wrong(dst, size, 3), 0);
	EXPECT_EQ(wrong(src, size, 3), 0);
}

TEST_F(svm, fault_4k)
{
	/* No larger range fits into this memory. */
	char *mem = map(3 * PAGE, MADV_NOHUGEPAGE);
	struct gpu *g = &self->gpu;

	ASSERT_NE(mem, MAP_FAILED);
	ASSERT_EQ(munmap(mem + PAGE, PAGE), 0);
	fill(mem, PAGE, 4);
	ASSERT_EQ(gpu_store(g, mem + 64, pattern(16, 4)), 0);
	EXPECT_EQ(pages_in_vram(mem, 1), 1);
	EXPECT_EQ(wrong(mem, PAGE, 4), 0);
}

TEST_F(svm, fault_64k)
{
	faults(_metadata, &self->gpu, 16 * PAGE, MADV_NOHUGEPAGE, 12);
}

TEST_F(svm, fault_2m)
{
	faults(_metadata, &self->gpu, HUGE, MADV_HUGEPAGE, 21);
}

/* A huge page beside small ones: both move, the GPU copies across the border, one comes back. */
static void huge_beside_small(struct __test_metadata *_metadata, struct gpu *g, bool first)
{
	char *mem = map(2 * HUGE, MADV_NOHUGEPAGE), *dst = map(HUGE, MADV_NOHUGEPAGE);
	char *border = mem + HUGE, *huge = first ? mem : border;
	uint64_t addr = 0;

	ASSERT_NE(mem, MAP_FAILED);
	ASSERT_NE(dst, MAP_FAILED);
	ASSERT_EQ(madvise(huge, HUGE, MADV_HUGEPAGE), 0);
	fill(mem, 2 * HUGE, 5);
	ASSERT_EQ(to_vram(g, mem, 2 * HUGE), 0);
	EXPECT_EQ(pages_in_vram(mem, 2 * HUGE / PAGE), 2 * HUGE / PAGE);
	ASSERT_EQ(gpu_copy(g, dst, border - PAGE, 2 * PAGE), 0);
	EXPECT_EQ(walk(g, huge, &addr) >> DOOR_SHIFT, 21);
	ASSERT_EQ(compare(g), 0);
	EXPECT_EQ(memcmp(dst, border - PAGE, PAGE), 0);
	EXPECT_EQ(pages_in_vram(mem, HUGE / PAGE), 0);
	EXPECT_EQ(pages_in_vram(border, HUGE / PAGE), HUGE / PAGE);
	ASSERT_EQ(compare(g), 0);
	EXPECT_EQ(memcmp(dst + PAGE, border, PAGE), 0);
	EXPECT_EQ(wrong(mem, 2 * HUGE, 5), 0);
}

TEST_F(svm, huge_beside_small)
{
	huge_beside_small(_metadata, &self->gpu, true);
	huge_beside_small(_metadata, &self->gpu, false);
}

/* Return: the VRAM in use, in bytes. The driver frees VRAM later, so wait until it does no more. */
static uint64_t vram_used(struct gpu *g)
{
	struct drm_xe_mem_region vram;
	uint64_t used = 0, last;

	for (int same = 0, i = 0; same < 10 && i < 500; i++) {
		last = used;
		if (!find_vram(g, &vram))
			return 0;
		used = vram.used;
		same = used == last ? same + 1 : 0;
		pause_ms(20);
	}
	return used;
}

/* VRAM is free again when memory comes back, is unmapped, or goes page by page. */
TEST_F_TIMEOUT(svm, no_leak, 120)
{
	struct gpu *g = &self->gpu;
	uint64_t before = 0;

	for (int i = 0; i < 16; i++) {
		char *mem = map(HUGE, i % 2 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);

		ASSERT_NE(mem, MAP_FAILED);
		fill(mem, HUGE, i);
		ASSERT_EQ(to_vram(g, mem, HUGE), 0);
		ASSERT_EQ(gpu_store(g, mem + 64, pattern(16, i)), 0);
		EXPECT_EQ(pages_in_vram(mem, HUGE / PAGE), HUGE / PAGE);
		if (i / 2 % 2) {
			EXPECT_EQ(wrong(mem, HUGE, i), 0);
		} else {
			ASSERT_EQ(munmap(mem + HUGE / 2, PAGE), 0);
		}
		ASSERT_EQ(munmap(mem, HUGE), 0);
		/* The first rounds also allocate what stays, such as page tables. */
		if (i == 3) {
			before = vram_used(g);
			EXPECT_GT(before, 0);
		}
	}
	EXPECT_LE(vram_used(g), before);
}

/* RAM in pieces of 64 KiB: one page table of the GPU has 32 entries. */
TEST_F(svm, ram_64k)
{
	const char *knob = "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/shmem_enabled";
	char *mem = map(2 * HUGE, MADV_NOHUGEPAGE), *to = mem + HUGE;
	/* In IOVAs it is one piece. */
	unsigned int shift = access("/sys/class/iommu/dmar0", F_OK) ? 16 : 21;
	struct gpu *g = &self->gpu;
	uint64_t addr = 0;

	ASSERT_NE(mem, MAP_FAILED);
	ASSERT_EQ(mmap(mem, 2 * HUGE, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0), mem);
	ASSERT_TRUE(write_file(knob, "always"));
	/* Downwards: upwards, pieces can lie side by side in RAM and be one of 2 MiB. */
	for (size_t at = 2 * HUGE; at; at -= 16 * PAGE)
		mem[at - 1] = 1;
	fill(mem, 2 * HUGE, 5);
	ASSERT_TRUE(write_file(knob, "never"));
	ASSERT_EQ(gpu_copy(g, to, mem, HUGE), 0);
	EXPECT_EQ(walk(g, to - PAGE, &addr) >> DOOR_SHIFT, shift);
	EXPECT_EQ(walk(g, to + HUGE - PAGE, &addr) >> DOOR_SHIFT, shift);
	EXPECT_EQ(wrong(to, HUGE, 5), 0);
	/* 64 KiB go: the GPU sees zeroes there. */
	ASSERT_EQ(madvise(mem + 16 * PAGE, 16 * PAGE, MADV_REMOVE), 0);
	ASSERT_EQ(compare(g), 0);
	ASSERT_EQ(gpu_copy(g, to, mem, HUGE), 0);
	EXPECT_EQ(wrong(to, HUGE, 5), 16 * PAGE / 4);
	EXPECT_EQ(((uint32_t *)to)[16 * PAGE / 4], 0);
}

/* A store of the GPU, to RAM and to VRAM: the CPU sees it, and nothing else is changed. */
TEST_F(svm, store)
{
	struct gpu *g = &self->gpu;

	for (int vram = 0; vram < 2; vram++) {
		fill(g->mem, NPAGES * PAGE, vram);
		if (vram)
			ASSERT_EQ(to_vram(g, g->mem, NPAGES * PAGE), 0);
		ASSERT_EQ(gpu_store(g, g->mem + 5 * PAGE + 64, 4711), 0);
		EXPECT_TRUE(in_vram(g->mem + 5 * PAGE));
		EXPECT_EQ(*(uint32_t *)(g->mem + 5 * PAGE + 64), 4711);
		EXPECT_EQ(wrong(g->mem, NPAGES * PAGE, vram), 1);
	}
}

/* GPU and CPU take turns: the page moves each time. */
TEST_F(svm, atomic)
{
	struct gpu *g = &self->gpu;
	uint32_t *word = (uint32_t *)g->mem;

	*word = 40;
	for (int i = 0; i < 5; i++) {
		ASSERT_EQ(gpu_increment(g, word), 0);
		EXPECT_TRUE(in_vram(word));
		__atomic_fetch_add(word, 1, __ATOMIC_SEQ_CST);
		EXPECT_FALSE(in_vram(word));
	}
	EXPECT_EQ(*word, 50);
}

/* Runs the batch. Its fault is refused, and the queue is lost. */
static void refused(struct __test_metadata *_metadata, struct gpu *g)
{
	uint64_t before = stats(g->door).faults_refused;

	ASSERT_EQ(start_batch(g), 0);
	for (int i = 0; i < 1000 && stats(g->door).faults_refused == before; i++)
		pause_ms(10);
	EXPECT_EQ(stats(g->door).faults_refused, before + 1);
	EXPECT_NE(*g->fence, FENCE);
	ASSERT_TRUE(open_queue(g));
}

/* An access to memory that is not there: the driver refuses the fault, and the queue is lost. */
TEST_F(svm, refused)
{
	struct gpu *g = &self->gpu;
	char *mem = map(HUGE, MADV_NOHUGEPAGE);

	ASSERT_NE(mem, MAP_FAILED);
	ASSERT_EQ(munmap(mem, HUGE), 0);
	emit_store(g, mem, 1);
	refused(_metadata, g);
}

/*
 * A pipe holds a page, so that it cannot move to VRAM. After some attempts the driver refuses an
 * atomic operation.
 */
TEST_F(svm, atomic_held)
{
	struct gpu *g = &self->gpu;
	struct iovec page = { g->mem, PAGE };
	int fds[2];

	ASSERT_EQ(pipe(fds), 0);
	ASSERT_EQ(vmsplice(fds[1], &page, 1, 0), PAGE);
	emit_increment(g, g->mem);
	refused(_metadata, g);
	EXPECT_FALSE(in_vram(g->mem));
	close(fds[0]);
	close(fds[1]);
	EXPECT_EQ(gpu_increment(g, g->mem), 0);
	EXPECT_EQ(*(uint32_t *)g->mem, pattern(0, 1) + 1);
}

/*
 * Two threads: one moves memory to VRAM, and the other one does something with the memory while the
 * copy is held. Both exist before, because the first one has the mmap lock then.
 */
struct race {
	struct gpu *g;
	void (*act)(struct race *r);
	int go, rc;		/* go: 1 starts the first thread, 2 the second one */
	uint32_t word;
};

static void await(struct race *r, int go)
{
	while (__atomic_load_n(&r->go, __ATOMIC_ACQUIRE) < go)
		pause_ms(1);
}

static void *mover(void *arg)
{
	struct race *r = arg;

	await(r, 1);
	r->rc = to_vram(r->g, r->g->mem, NPAGES * PAGE);
	return NULL;
}

static void *actor(void *arg)
{
	struct race *r = arg;

	await(r, 2);
	r->act(r);
	return NULL;
}

static void while_moving(struct __test_metadata *_metadata, struct race *r)
{
	struct stats before = stats(r->g->door);
	pthread_t thread[2];

	ASSERT_EQ(pthread_create(&thread[0], NULL, mover, r), 0);
	ASSERT_EQ(pthread_create(&thread[1], NULL, actor, r), 0);
	put(r->g->door, DOOR_HOLD, 1);
	__atomic_store_n(&r->go, 1, __ATOMIC_RELEASE);
	for (int i = 0; i < 20 || stats(r->g->door).commands == before.commands; i++)
		pause_ms(10);
	EXPECT_EQ(stats(r->g->door).copies, before.copies);
	__atomic_store_n(&r->go, 2, __ATOMIC_RELEASE);
	pause_ms(100);
	EXPECT_EQ(stats(r->g->door).copies, before.copies);
	put(r->g->door, DOOR_HOLD, 0);
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	EXPECT_GT(stats(r->g->door).copies, before.copies);
}

static void read_word(struct race *r)
{
	r->word = ((volatile uint32_t *)r->g->mem)[PAGE / 4];
}

/* The CPU reads memory that is being copied: it waits, and gets the data. */
TEST_F(svm, read_while_moving)
{
	struct gpu *g = &self->gpu;
	struct race r = { .g = g, .act = read_word };

	while_moving(_metadata, &r);
	EXPECT_EQ(r.word, pattern(PAGE / 4, 1));
	EXPECT_EQ(wrong(g->mem, NPAGES * PAGE, 1), 0);
}

static void unmap(struct race *r)
{
	munmap(r->g->mem, NPAGES * PAGE);
}

TEST_F(svm, unmapped_while_moving)
{
	struct gpu *g = &self->gpu;
	struct race r = { .g = g, .act = unmap };

	while_moving(_metadata, &r);
	/* The address space still works. */
	g->mem = map(NPAGES * PAGE, MADV_NOHUGEPAGE);
	there_and_back(_metadata, g, g->mem, NPAGES * PAGE);
}

/* An invalidation takes its time: the kernel waits for it before it gives the page away. */
TEST_F(svm, slow_invalidations)
{
	struct gpu *g = &self->gpu;

	put(g->door, DOOR_SLOW, 50);
	for (int i = 0; i < 4; i++) {
		ASSERT_EQ(gpu_store(g, g->mem + i * PAGE, i), 0);
		EXPECT_EQ(*(volatile uint32_t *)(g->mem + i * PAGE), i);
	}
}

/* Faults are reported late. */
TEST_F(svm, late_faults)
{
	struct gpu *g = &self->gpu;

	put(g->door, DOOR_LATE, 100);
	ASSERT_EQ(gpu_store(g, g->mem, 5), 0);
	EXPECT_EQ(*(volatile uint32_t *)g->mem, 5);
}

/* ---- what a process does to its memory ---- */

FIXTURE(process)
{
	struct gpu gpu;
	char *huge;
};

FIXTURE_SETUP(process)
{
	ASSERT_TRUE(open_gpu(&self->gpu));
	self->huge = map(HUGE, MADV_HUGEPAGE);
	ASSERT_NE(self->huge, MAP_FAILED);
	fill(self->huge, HUGE, 2);
}

FIXTURE_TEARDOWN(process)
{
	close_gpu(_metadata, &self->gpu);
}

/* Return: the number of wrong words that the child sees. */
static int in_child(const char *mem, size_t size, unsigned int seed)
{
	pid_t child = fork();
	int status = -1;

	if (!child)
		_exit(!!wrong(mem, size, seed));
	waitpid(child, &status, 0);
	return status;
}

/* A child reads memory that is in VRAM; so does its parent later. */
TEST_F(process, forked)
{
	struct gpu *g = &self->gpu;

	ASSERT_EQ(to_vram(g, g->mem, NPAGES * PAGE), 0);
	EXPECT_EQ(in_child(g->mem, NPAGES * PAGE, 1), 0);
	EXPECT_EQ(wrong(g->mem, NPAGES * PAGE, 1), 0);
	ASSERT_EQ(to_vram(g, self->huge, HUGE), 0);
	EXPECT_EQ(in_child(self->huge, HUGE, 2), 0);
	EXPECT_EQ(wrong(self->huge, HUGE, 2), 0);
}

/* The process drops its memory while the GPU has it mapped: the GPU then sees zeroes. */
TEST_F(process, dropped)
{
	struct gpu *g = &self->gpu;
	uint32_t *to = (uint32_t *)g->mem;

	ASSERT_EQ(gpu_store(g, self->huge + PAGE, 1), 0);
	ASSERT_EQ(pages_in_vram(self->huge, 512), 512);
	ASSERT_EQ(madvise(self->huge, HUGE, MADV_DONTNEED), 0);
	ASSERT_EQ(compare(g), 0);
	*to = 1;
	ASSERT_EQ(gpu_copy(g, to, self->huge + PAGE, 4), 0);
	EXPECT_EQ(*to, 0);
}

/* Memory moves to another address: the GPU finds it only there. */
static void remap(struct __test_metadata *_metadata, struct gpu *g, char *mem, size_t size)
{
	char *to = map(2 * HUGE, MADV_NOHUGEPAGE);
	uint64_t addr;

	ASSERT_NE(to, MAP_FAILED);
	fill(mem, size, 4);
	ASSERT_EQ(to_vram(g, mem, size), 0);
	ASSERT_EQ(gpu_store(g, mem, pattern(0, 4)), 0);
	ASSERT_EQ(pages_in_vram(mem, size / PAGE), size / PAGE);
	ASSERT_EQ(mremap(mem, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, to), to);
	EXPECT_EQ(walk(g, mem, &addr) & DOOR_VALID, 0);
	ASSERT_EQ(gpu_store(g, to + PAGE, 4711), 0);
	ASSERT_EQ(compare(g), 0);
	EXPECT_EQ(((uint32_t *)to)[PAGE / 4], 4711);
	EXPECT_EQ(wrong(to, size, 4), 1);
}

TEST_F(process, remapped)
{
	remap(_metadata, &self->gpu, self->gpu.mem, NPAGES * PAGE);
}

TEST_F(process, remapped_huge)
{
	remap(_metadata, &self->gpu, self->huge, HUGE);
}

/* A part of a huge page is unmapped: the rest keeps its data. */
TEST_F(process, split)
{
	struct gpu *g = &self->gpu;

	ASSERT_EQ(gpu_store(g, self->huge, pattern(0, 2)), 0);
	ASSERT_EQ(munmap(self->huge + HUGE / 2, HUGE / 2), 0);
	ASSERT_EQ(compare(g), 0);
	ASSERT_EQ(gpu_store(g, self->huge + PAGE, pattern(PAGE / 4, 2)), 0);
	EXPECT_EQ(wrong(self->huge, HUGE / 2, 2), 0);
}

/* Memory becomes inaccessible and accessible again. */
TEST_F(process, protected)
{
	struct gpu *g = &self->gpu;
	uint64_t addr;

	ASSERT_EQ(gpu_store(g, self->huge, pattern(0, 2)), 0);
	ASSERT_EQ(mprotect(self->huge, HUGE, PROT_NONE), 0);
	EXPECT_EQ(walk(g, self->huge, &addr) & DOOR_VALID, 0);
	ASSERT_EQ(mprotect(self->huge, HUGE, PROT_READ | PROT_WRITE), 0);
	ASSERT_EQ(gpu_store(g, self->huge + PAGE, pattern(PAGE / 4, 2)), 0);
	EXPECT_EQ(wrong(self->huge, HUGE, 2), 0);
}

/* A process is killed with memory in VRAM, and while its batch waits for a fault. */
static void killed(struct __test_metadata *_metadata, struct gpu *g, bool busy)
{
	pid_t child = fork();
	int status;

	ASSERT_GE(child, 0);
	if (!child) {
		struct gpu own = { .drm = -1 };

		if (!open_gpu(&own) || to_vram(&own, own.mem, NPAGES * PAGE))
			_exit(1);
		if (busy) {
			put(g->door, DOOR_LATE, 2000);
			emit_store(&own, own.mem, 1);
			start_batch(&own);
		}
		kill(getpid(), SIGKILL);
	}
	ASSERT_EQ(waitpid(child, &status, 0), child);
	EXPECT_TRUE(WIFSIGNALED(status));
	put(g->door, DOOR_LATE, 0);
	there_and_back(_metadata, g, g->mem, NPAGES * PAGE);
	ASSERT_EQ(gpu_store(g, g->mem, 0), 0);
}

TEST_F(process, killed)
{
	killed(_metadata, &self->gpu, false);
}

TEST_F(process, killed_in_fault)
{
	killed(_metadata, &self->gpu, true);
}

/* A fault of the GPU waits for the page of the pager. A page that is missing does not move. */
TEST_F(process, userfault_missing)
{
	struct gpu *g = &self->gpu;
	char *mem = map(8 * PAGE, MADV_NOHUGEPAGE);
	struct pager p;
	pthread_t thread;

	ASSERT_NE(mem, MAP_FAILED);
	ASSERT_TRUE(userfault(&p, mem, 8 * PAGE, PAGE, &thread));
	ASSERT_EQ(gpu_store(g, mem + 3 * PAGE, 4711), 0);
	EXPECT_EQ(p.missing, 1);
	stored_in(_metadata, &p, 8, 3);
}

/*
 * A store of the GPU to write-protected memory in VRAM waits until the pager allows it. xe needs
 * write access to the whole range, for a load, too.
 */
static void write_protected(struct __test_metadata *_metadata, struct gpu *g, char *mem,
			    size_t size, size_t unit)
{
	size_t n = size / PAGE;
	struct pager p;
	pthread_t thread;

	fill(mem, size, 1);
	ASSERT_TRUE(userfault(&p, mem, size, unit, &thread));
	ASSERT_EQ(to_vram(g, mem, size), 0);
	ASSERT_EQ(pages_in_vram(mem, n), n);
	/* The GPU can write it before. */
	ASSERT_EQ(gpu_store(g, mem + PAGE, 4711), 0);
	EXPECT_EQ(p.protect, 0);
	ASSERT_EQ(write_protect(&p, mem, size), 0);
	ASSERT_EQ(gpu_store(g, mem + PAGE, pattern(PAGE / 4, 1)), 0);
	EXPECT_GT(p.protect, 0);
	EXPECT_EQ(wrong(mem, size, 1), 0);
	EXPECT_EQ(p.missing, 0);
}

TEST_F(process, userfault_protected)
{
	write_protected(_metadata, &self->gpu, map(NPAGES * PAGE, MADV_NOHUGEPAGE), NPAGES * PAGE,
			PAGE);
}

TEST_F(process, userfault_protected_huge)
{
	write_protected(_metadata, &self->gpu, self->huge, HUGE, HUGE);
}

/* ---- more memory than there is VRAM ---- */

#define FULL	(1200UL << 20)
#define PART	(16UL << 20)

FIXTURE(full)
{
	struct gpu gpu;
	char *mem;
};

FIXTURE_SETUP(full)
{
	ASSERT_TRUE(open_gpu(&self->gpu));
	self->mem = map(FULL, MADV_HUGEPAGE);
	ASSERT_NE(self->mem, MAP_FAILED);
	for (size_t i = 0; i < FULL; i += PAGE)
		*(uint32_t *)(self->mem + i) = pattern(i / PAGE, 8);
}

FIXTURE_TEARDOWN(full)
{
	close_gpu(_metadata, &self->gpu);
}

/* Later parts push earlier ones out. Nothing is lost, and the GPU still works on all of it. */
TEST_F_TIMEOUT(full, prefetch, 120)
{
	struct gpu *g = &self->gpu;
	size_t bad = 0;

	for (size_t i = 0; i < FULL; i += PART)
		ASSERT_EQ(to_vram(g, self->mem + i, PART), 0);
	EXPECT_GT(pages_in_vram(self->mem, FULL / PAGE), FULL / PAGE / 2);
	EXPECT_LT(pages_in_vram(self->mem, FULL / PAGE), FULL / PAGE);
	ASSERT_EQ(gpu_copy(g, self->mem + 8, self->mem + FULL - PAGE, 4), 0);
	EXPECT_EQ(((uint32_t *)self->mem)[2], pattern(FULL / PAGE - 1, 8));
	for (size_t i = 0; i < FULL; i += PAGE)
		bad += *(uint32_t *)(self->mem + i) != pattern(i / PAGE, 8);
	EXPECT_EQ(bad, 0);
}

/* The same by faults of the GPU: the handler has to find VRAM. */
TEST_F_TIMEOUT(full, fault, 120)
{
	struct gpu *g = &self->gpu;
	size_t bad = 0;

	for (size_t i = 0; i < FULL; i += HUGE)
		ASSERT_EQ(gpu_store(g, self->mem + i + 64, i), 0);
	EXPECT_GT(pages_in_vram(self->mem, FULL / PAGE), FULL / PAGE / 2);
	EXPECT_LT(pages_in_vram(self->mem, FULL / PAGE), FULL / PAGE);
	for (size_t i = 0; i < FULL; i += HUGE)
		bad += *(uint32_t *)(self->mem + i + 64) != (uint32_t)i;
	for (size_t i = 0; i < FULL; i += PAGE)
		bad += *(uint32_t *)(self->mem + i) != pattern(i / PAGE, 8);
	EXPECT_EQ(bad, 0);
}

/* ---- the machine sleeps ---- */

FIXTURE(sleep)
{
	struct gpu gpu;
};

FIXTURE_SETUP(sleep)
{
	ASSERT_TRUE(open_gpu(&self->gpu));
}

FIXTURE_TEARDOWN(sleep)
{
	close_gpu(_metadata, &self->gpu);
}

/* Suspend to idle, which ends when all devices are suspended. */
static bool machine_sleeps(void)
{
	return write_file("/sys/module/suspend/parameters/pm_test_delay", "0") &&
	       write_file("/sys/power/pm_test", "devices") &&
	       write_file("/sys/power/state", "freeze");
}

/* VRAM moves to RAM before. */
TEST_F_TIMEOUT(sleep, machine, 120)
{
	struct gpu *g = &self->gpu;

	ASSERT_EQ(to_vram(g, g->mem, NPAGES * PAGE), 0);
	ASSERT_EQ(gpu_store(g, g->mem, pattern(0, 1)), 0);
	ASSERT_TRUE(machine_sleeps());
	EXPECT_EQ(pages_in_vram(g->mem, NPAGES), 0);
	EXPECT_EQ(wrong(g->mem, NPAGES * PAGE, 1), 0);
	there_and_back(_metadata, g, g->mem, NPAGES * PAGE);
	ASSERT_EQ(gpu_store(g, g->mem, 1), 0);
}

/* Does the device have this runtime_status, at the latest after so many seconds? */
static bool has_status(const char *bdf, const char *wanted, int seconds)
{
	char path[80], status[16];
	int fd, n;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/power/runtime_status", bdf);
	for (int i = 0; i <= seconds * 10; i++) {
		fd = open(path, O_RDONLY);
		n = read(fd, status, sizeof(status) - 1);
		close(fd);
		if (n > 0 && !strncmp(status, wanted, strlen(wanted)))
			return true;
		pause_ms(100);
	}
	return false;
}

/* An idle device sleeps, but not while there is memory in VRAM, which peers may reach. */
TEST_F_TIMEOUT(sleep, device, 120)
{
	struct gpu *g = &self->gpu;
	char bdf[BDF_SIZE];

	ASSERT_TRUE(gpu_bdf(0, bdf));
	ASSERT_EQ(to_vram(g, g->mem, NPAGES * PAGE), 0);
	close(g->drm);
	munmap((void *)g->door, DOOR_SIZE);
	EXPECT_FALSE(has_status(bdf, "suspended", 4));
	EXPECT_EQ(pages_in_vram(g->mem, NPAGES), NPAGES);
	EXPECT_EQ(wrong(g->mem, NPAGES * PAGE, 1), 0);
	EXPECT_TRUE(has_status(bdf, "suspended", 20));
	ASSERT_TRUE(open_gpu(g));
	EXPECT_TRUE(has_status(bdf, "active", 0));
	there_and_back(_metadata, g, g->mem, NPAGES * PAGE);
}

/* ---- unbinding ---- */

FIXTURE(unbind)
{
	struct gpu gpu;
	char bdf[BDF_SIZE];
	char *huge;
};

/* verb: bind or unbind. Return: the driver has done it. */
static bool driver(const char *bdf, const char *verb)
{
	char path[64];

	snprintf(path, sizeof(path), "/sys/bus/pci/drivers/xe/%s", verb);
	return write_file(path, bdf);
}

static void close_drm(struct gpu *g)
{
	close(g->drm);
	g->drm = -1;
}

FIXTURE_SETUP(unbind)
{
	ASSERT_TRUE(gpu_bdf(0, self->bdf));
	ASSERT_TRUE(open_gpu(&self->gpu));
	self->huge = map(HUGE, MADV_HUGEPAGE);
	ASSERT_NE(self->huge, MAP_FAILED);
	fill(self->huge, HUGE, 2);
}

FIXTURE_TEARDOWN(unbind)
{
	close_gpu(_metadata, &self->gpu);
}

/* Memory stays in VRAM when the file is closed, and comes back when it is used. */
TEST_F(unbind, not_yet)
{
	struct gpu *g = &self->gpu;

	ASSERT_EQ(to_vram(g, g->mem, NPAGES * PAGE), 0);
	close_drm(g);
	EXPECT_EQ(pages_in_vram(g->mem, NPAGES), NPAGES);
	EXPECT_EQ(wrong(g->mem, NPAGES * PAGE, 1), 0);
}

/* Unbinding when all memory is back in RAM; after binding the GPU works as before. */
TEST_F(unbind, no_pages)
{
	struct gpu *g = &self->gpu;

	there_and_back(_metadata, g, self->huge, HUGE);
	close_drm(g);
	munmap((void *)g->door, DOOR_SIZE);
	ASSERT_TRUE(driver(self->bdf, "unbind"));
	ASSERT_TRUE(driver(self->bdf, "bind"));
	ASSERT_TRUE(open_gpu(g));
	there_and_back(_metadata, g, g->mem, NPAGES * PAGE);
}

/* ---- a peer ---- */

FIXTURE(peer)
{
	struct gpu gpu;
	struct peer peer;
};

FIXTURE_SETUP(peer)
{
	ASSERT_TRUE(open_gpu(&self->gpu));
	ASSERT_TRUE(open_peer(&self->peer, HUGE / PAGE));
	/* Memory of processes is at the end of VRAM, outside of a small BAR. */
	if (self->gpu.hidden)
		self->peer.reached = EDU_HMM_RAM;
}

FIXTURE_TEARDOWN(peer)
{
	close(self->peer.edu);
	close_gpu(_metadata, &self->gpu);
}

/* split: a VMA ends in the middle, so that the page table has an entry for each page */
static void read_write(struct __test_metadata *_metadata, FIXTURE_DATA(peer) *self, char *mem,
		       size_t size, bool split)
{
	uint64_t refused;

	fill(mem, size, 5);
	ASSERT_EQ(edu_register(&self->peer, mem, size), 0);
	ASSERT_EQ(to_vram(&self->gpu, mem, size), 0);
	ASSERT_EQ(pages_in_vram(mem, size / PAGE), size / PAGE);
	if (split)
		ASSERT_EQ(madvise(mem + size / 2, size / 2, MADV_DONTDUMP), 0);
	ASSERT_EQ(edu_fault(&self->peer, mem, size, &refused), 0);
	EXPECT_EQ(!refused, self->peer.reached != EDU_HMM_RAM);
	exchange(_metadata, &self->peer, mem, size);
}

/* Pages in VRAM stay there when a peer reads and writes them, by BAR 2. */
TEST_F(peer, small_pages)
{
	read_write(_metadata, self, self->gpu.mem, NPAGES * PAGE, false);
}

TEST_F(peer, huge_page)
{
	char *mem = map(HUGE, MADV_HUGEPAGE);

	ASSERT_NE(mem, MAP_FAILED);
	read_write(_metadata, self, mem, HUGE, false);
}

TEST_F(peer, huge_page_in_parts)
{
	char *mem = map(HUGE, MADV_HUGEPAGE);

	ASSERT_NE(mem, MAP_FAILED);
	read_write(_metadata, self, mem, HUGE, true);
}

/* The GPU and a peer write to the same memory in VRAM. */
TEST_F(peer, with_gpu)
{
	struct gpu *g = &self->gpu;
	uint32_t word = 7;
	uint64_t refused;

	ASSERT_EQ(edu_register(&self->peer, g->mem, NPAGES * PAGE), 0);
	ASSERT_EQ(to_vram(g, g->mem, NPAGES * PAGE), 0);
	ASSERT_EQ(gpu_store(g, g->mem, 6), 0);
	ASSERT_EQ(edu_fault(&self->peer, g->mem, NPAGES * PAGE, &refused), 0);
	EXPECT_EQ(pages_as(&self->peer, g->mem, NPAGES, self->peer.reached), NPAGES);
	ASSERT_EQ(edu_dma(&self->peer, g->mem + 4, &word, 4, EDU_HMM_WRITE), 0);
	ASSERT_EQ(gpu_store(g, g->mem + 8, 8), 0);
	for (int i = 0; i < 3; i++)
		EXPECT_EQ(((uint32_t *)g->mem)[i], 6 + i);
}

/* Move memory to VRAM and let the peer map it. */
static void peer_maps(struct __test_metadata *_metadata, FIXTURE_DATA(peer) *self, char *mem,
		      size_t size)
{
	size_t n = size / PAGE;

	ASSERT_EQ(to_vram(&self->gpu, mem, size), 0);
	ASSERT_EQ(pages_in_vram(mem, n), n);
	ASSERT_EQ(edu_fault(&self->peer, mem, size, NULL), 0);
	ASSERT_EQ(pages_as(&self->peer, mem, n, self->peer.reached), n);
}

/* The driver is unbound: the data of the peer are there, and the peer has no page in VRAM left. */
TEST_F_TIMEOUT(peer, unbind, 60)
{
	struct gpu *g = &self->gpu;
	bool in_place = self->peer.reached != EDU_HMM_RAM;
	char bdf[BDF_SIZE];
	uint32_t buf[128];

	ASSERT_TRUE(gpu_bdf(0, bdf));
	ASSERT_EQ(edu_register(&self->peer, g->mem, NPAGES * PAGE), 0);
	peer_maps(_metadata, self, g->mem, NPAGES * PAGE);
	fill(buf, sizeof(buf), 6);
	ASSERT_EQ(edu_dma(&self->peer, g->mem + PAGE, buf, sizeof(buf), EDU_HMM_WRITE), 0);
	ASSERT_TRUE(driver(bdf, "unbind"));
	EXPECT_EQ(pages_in_vram(g->mem, NPAGES), 0);
	EXPECT_EQ(pages_as(&self->peer, g->mem, NPAGES, self->peer.reached),
		  in_place ? 0 : NPAGES);
	EXPECT_EQ(wrong(g->mem + PAGE, sizeof(buf), 6), 0);
	EXPECT_EQ(wrong(g->mem, PAGE, 1), 0);
	close_drm(g);
	ASSERT_TRUE(driver(bdf, "bind"));
}

/* The machine sleeps: the peer has no page left. Later it reaches the new place of the memory. */
TEST_F_TIMEOUT(peer, machine_sleeps, 120)
{
	struct gpu *g = &self->gpu;
	bool in_place = self->peer.reached != EDU_HMM_RAM;
	uint32_t buf[128];

	ASSERT_EQ(edu_register(&self->peer, g->mem, NPAGES * PAGE), 0);
	for (int i = 0; i < 2; i++) {
		peer_maps(_metadata, self, g->mem, NPAGES * PAGE);
		fill(buf, sizeof(buf), 6 + i);
		ASSERT_EQ(edu_dma(&self->peer, g->mem + PAGE, buf, sizeof(buf), EDU_HMM_WRITE), 0);
		if (i)
			break;
		ASSERT_TRUE(machine_sleeps());
		EXPECT_EQ(pages_in_vram(g->mem, NPAGES), 0);
		EXPECT_EQ(pages_as(&self->peer, g->mem, NPAGES, self->peer.reached),
			  in_place ? 0 : NPAGES);
		EXPECT_EQ(wrong(g->mem + PAGE, sizeof(buf), 6), 0);
	}
	EXPECT_EQ(wrong(g->mem + PAGE, sizeof(buf), 7), 0);
	EXPECT_EQ(wrong(g->mem, PAGE, 1), 0);
}

/* Is one of n pages in VRAM where this entry of pagemap says? */
static bool has_frame(char *mem, size_t n, uint64_t entry)
{
	uint64_t e[NPAGES];
	bool found = false;

	if (!pagemap((uintptr_t)mem, n, e))
		return false;
	for (size_t i = 0; i < n; i++)
		found |= device_private(e[i]) && (e[i] ^ entry) << 9 >> 14 == 0;
	return found;
}

/* Memory is freed while writes of the peer are in flight. They must not reach its next owner. */
TEST_F_TIMEOUT(peer, handed_out_again, 60)
{
	struct gpu *g = &self->gpu;
	bool in_place = self->peer.reached != EDU_HMM_RAM;
	size_t size = NPAGES * PAGE;
	char *mem = map(size + PAGE, MADV_NOHUGEPAGE);
	uint32_t buf[128];
	uint64_t entry;

	ASSERT_NE(mem, MAP_FAILED);
	fill(mem, size + PAGE, 3);
	ASSERT_EQ(edu_register(&self->peer, mem, size + PAGE), 0);
	peer_maps(_metadata, self, mem, size + PAGE);
	ASSERT_TRUE(pagemap((uintptr_t)mem + size - PAGE, 1, &entry));
	fill(buf, sizeof(buf), 9);
	ASSERT_EQ(edu_dma(&self->peer, mem + size - PAGE, buf, sizeof(buf), EDU_HMM_WRITE), 0);
	ASSERT_EQ(madvise(mem, size, MADV_DONTNEED), 0);
	/* A worker frees buffers, so the memory may be handed out only later. */
	for (int i = 0; i < 50; i++) {
		ASSERT_EQ(to_vram(g, g->mem, size), 0);
		if (!in_place || has_frame(g->mem, NPAGES, entry))
			break;
		EXPECT_EQ(wrong(g->mem, size, 1), 0);
		pause_ms(20);
	}
	ASSERT_EQ(has_frame(g->mem, NPAGES, entry), in_place);
	/* Earlier writes of the peer arrive before this read returns. */
	ASSERT_EQ(edu_dma(&self->peer, mem + size, buf, sizeof(buf), 0), 0);
	EXPECT_EQ(pages_in_vram(g->mem, NPAGES), NPAGES);
	EXPECT_EQ(wrong(g->mem, size, 1), 0);
}

/* ---- bugs of the base, which 1-xe-fixes fixes ---- */

FIXTURE(fixes)
{
	struct gpu gpu;
	char bdf[BDF_SIZE];
	char *huge;
};

FIXTURE_SETUP(fixes)
{
	ASSERT_TRUE(gpu_bdf(0, self->bdf));
	ASSERT_TRUE(open_gpu(&self->gpu));
	self->huge = map(HUGE, MADV_HUGEPAGE);
	ASSERT_NE(self->huge, MAP_FAILED);
	fill(self->huge, HUGE, 2);
}

FIXTURE_TEARDOWN(fixes)
{
	reset_door(&self->gpu);
	/* compare() would find the same bugs in tests that have shown them. */
	close_drm(&self->gpu);
}

static uint32_t word(const void *mem)
{
	return *(const volatile uint32_t *)mem;
}

/* After fork() the GPU of the parent writes: the child must not see it. */
static void write_after_fork(struct __test_metadata *_metadata, struct gpu *g, char *mem, bool vram,
			     bool atomic)
{
	uint32_t before = word(mem + PAGE), seen = 0;
	int go[2], back[2];
	pid_t child;

	if (vram)
		ASSERT_EQ(to_vram(g, mem, NPAGES * PAGE), 0);
	ASSERT_EQ(pipe(go), 0);
	ASSERT_EQ(pipe(back), 0);
	child = fork();
	ASSERT_GE(child, 0);
	if (!child) {
		if (read(go[0], &seen, 1) != 1)
			_exit(1);
		seen = word(mem + PAGE);
		_exit(write(back[1], &seen, 4) != 4);
	}
	EXPECT_EQ(atomic ? gpu_increment(g, mem + PAGE) : gpu_store(g, mem + PAGE, before + 1), 0);
	ASSERT_EQ(write(go[1], "", 1), 1);
	ASSERT_EQ(read(back[0], &seen, 4), 4);
	EXPECT_EQ(seen, before);
	EXPECT_EQ(word(mem + PAGE), before + 1);
	waitpid(child, NULL, 0);
}

TEST_F(fixes, store_after_fork)
{
	write_after_fork(_metadata, &self->gpu, self->gpu.mem, true, false);
}

TEST_F(fixes, store_after_fork_huge)
{
	write_after_fork(_metadata, &self->gpu, self->huge, true, false);
}

TEST_F(fixes, store_after_fork_ram)
{
	write_after_fork(_metadata, &self->gpu, self->gpu.mem, false, false);
}

/* For an atomic, memory has to be in VRAM. */
TEST_F(fixes, atomic_after_fork)
{
	write_after_fork(_metadata, &self->gpu, self->gpu.mem, true, true);
}

TEST_F(fixes, atomic_after_fork_ram)
{
	write_after_fork(_metadata, &self->gpu, self->gpu.mem, false, true);
}

/* The GPU of a child stores: the parent must not see it. */
TEST_F(fixes, store_of_child)
{
	struct gpu *g = &self->gpu;
	int status = -1;
	pid_t child;

	ASSERT_EQ(to_vram(g, g->mem, NPAGES * PAGE), 0);
	child = fork();
	ASSERT_GE(child, 0);
	if (!child) {
		struct gpu own = { .drm = -1 };

		_exit(!open_gpu(&own) || gpu_store(&own, g->mem + PAGE, 4711) ||
		      word(g->mem + PAGE) != 4711);
	}
	ASSERT_EQ(waitpid(child, &status, 0), child);
	EXPECT_EQ(status, 0);
	EXPECT_EQ(wrong(g->mem, NPAGES * PAGE, 1), 0);
}

/* The CPU of a child writes while pages are shared: the GPU of the parent still has its own. */
TEST_F(fixes, store_after_child)
{
	struct gpu *g = &self->gpu;
	int status = -1;
	pid_t child;

	ASSERT_EQ(to_vram(g, g->mem, NPAGES * PAGE), 0);
	child = fork();
	ASSERT_GE(child, 0);
	if (!child) {
		fill(g->mem, NPAGES * PAGE, 3);
		_exit(!!wrong(g->mem, NPAGES * PAGE, 3));
	}
	ASSERT_EQ(waitpid(child, &status, 0), child);
	EXPECT_EQ(status, 0);
	EXPECT_EQ(gpu_store(g, g->mem + PAGE, 4711), 0);
	EXPECT_EQ(word(g->mem + PAGE), 4711);
	EXPECT_EQ(wrong(g->mem, NPAGES * PAGE, 1), 1);
}

/* One prefetch moves memory that was shared with a child, although its entries are read-only. */
static void prefetch_after_fork(struct __test_metadata *_metadata, struct gpu *g, char *mem,
				size_t size, unsigned int seed)
{
	EXPECT_EQ(in_child(mem, size, seed), 0);
	ASSERT_EQ(to_vram(g, mem, size), 0);
	EXPECT_EQ(pages_in_vram(mem, size / PAGE), size / PAGE);
	EXPECT_EQ(wrong(mem, size, seed), 0);
}

TEST_F(fixes, prefetch_after_fork)
{
	prefetch_after_fork(_metadata, &self->gpu, self->gpu.mem, NPAGES * PAGE, 1);
}

TEST_F(fixes, prefetch_after_fork_huge)
{
	prefetch_after_fork(_metadata, &self->gpu, self->huge, HUGE, 2);
}

/* A half of a range is read-only: a write into it must not go through, only one beside it. */
TEST_F(fixes, store_to_read_only)
{
	struct gpu *g = &self->gpu;
	char *half = self->huge + HUGE / 2;

	ASSERT_EQ(to_vram(g, self->huge, HUGE), 0);
	ASSERT_EQ(mprotect(half, HUGE / 2, PROT_READ), 0);
	EXPECT_EQ(gpu_store(g, self->huge, pattern(0, 2)), 0);
	emit_store(g, half, 4711);
	refused(_metadata, g);
	EXPECT_EQ(word(half), pattern(HUGE / 2 / 4, 2));
	EXPECT_EQ(gpu_store(g, self->huge + PAGE, 4711), 0);
	EXPECT_EQ(word(self->huge + PAGE), 4711);
}

TEST_F(fixes, atomic_beside_read_only)
{
	struct gpu *g = &self->gpu;

	ASSERT_EQ(to_vram(g, self->huge, HUGE), 0);
	ASSERT_EQ(mprotect(self->huge + HUGE / 2, HUGE / 2, PROT_READ), 0);
	EXPECT_EQ(gpu_increment(g, self->huge), 0);
	EXPECT_EQ(word(self->huge), pattern(0, 2) + 1);
}

/* mprotect() to read-only and back leaves read-only entries: the GPU may write. */
TEST_F(fixes, store_after_read_only)
{
	struct gpu *g = &self->gpu;

	ASSERT_EQ(to_vram(g, self->huge, HUGE), 0);
	ASSERT_EQ(mprotect(self->huge, HUGE, PROT_READ), 0);
	ASSERT_EQ(mprotect(self->huge, HUGE, PROT_READ | PROT_WRITE), 0);
	EXPECT_EQ(gpu_store(g, self->huge + PAGE, 4711), 0);
	EXPECT_EQ(word(self->huge + PAGE), 4711);
	EXPECT_EQ(wrong(self->huge, HUGE, 2), 1);
	/* It can go to VRAM again, and stays writable there. */
	ASSERT_EQ(to_vram(g, self->huge, HUGE), 0);
	EXPECT_EQ(gpu_store(g, self->huge + PAGE, pattern(PAGE / 4, 2)), 0);
	EXPECT_EQ(pages_in_vram(self->huge, HUGE / PAGE), HUGE / PAGE);
	EXPECT_EQ(wrong(self->huge, HUGE, 2), 0);
}

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL	102
#define MADV_GUARD_REMOVE	103
#endif
#define GUARD			-1	/* in place of a protection */

static int protect(char *mem, size_t size, int prot)
{
	return prot == GUARD ? madvise(mem, size, MADV_GUARD_INSTALL) : mprotect(mem, size, prot);
}

/*
 * From the middle of a range on, pages cannot be mapped, or not for writing. A store beside them
 * works, and no fault is retried for ever with the lock that VM_BIND needs.
 */
static void store_beside(struct __test_metadata *_metadata, struct gpu *g, char *mem, size_t size,
			 int prot)
{
	char *part = mem + HUGE / 2, *behind = part + size;
	int rc;

	ASSERT_EQ(gpu_store(g, mem, 1), 0);
	ASSERT_EQ(protect(part, size, prot), 0);
	emit_store(g, part - PAGE, 4711);
	ASSERT_EQ(start_batch(g), 0);
	rc = wait_batch(g, 10);
	if (rc) {		/* end the retries */
		madvise(part, size, MADV_GUARD_REMOVE);
		mprotect(part, size, PROT_READ | PROT_WRITE);
	}
	ASSERT_EQ(rc, 0);
	EXPECT_EQ(word(part - PAGE), 4711);
	if (behind < mem + HUGE) {
		EXPECT_EQ(gpu_store(g, behind, 4712), 0);
		EXPECT_EQ(word(behind), 4712);
	}
	emit_store(g, part, 4713);
	refused(_metadata, g);
	EXPECT_EQ(to_vram(g, g->mem, NPAGES * PAGE), 0);
	EXPECT_EQ(gpu_store(g, mem + PAGE, 4714), 0);
	EXPECT_EQ(word(mem + PAGE), 4714);
}

TEST_F_TIMEOUT(fixes, store_beside_inaccessible, 60)
{
	store_beside(_metadata, &self->gpu, self->huge, HUGE / 2, PROT_NONE);
}

TEST_F_TIMEOUT(fixes, store_beside_inaccessible_page, 60)
{
	store_beside(_metadata, &self->gpu, self->huge, PAGE, PROT_NONE);
}

TEST_F_TIMEOUT(fixes, store_beside_read_only, 60)
{
	store_beside(_metadata, &self->gpu, self->huge, HUGE / 2, PROT_READ);
}

TEST_F_TIMEOUT(fixes, store_beside_guard, 60)
{
	store_beside(_metadata, &self->gpu, self->huge, PAGE, GUARD);
}

/*
 * All memory in VRAM comes back when the driver is unbound. With its last page the driver's pagemap
 * goes, which must not be used any more. Without KASAN only a crash now and then shows that it is.
 */
TEST_F_TIMEOUT(fixes, unbind_with_pages, 60)
{
	struct gpu *g = &self->gpu;

	for (int i = 0; i < 5; i++) {
		if (i)
			ASSERT_TRUE(open_gpu(g));
		ASSERT_EQ(to_vram(g, g->mem, NPAGES * PAGE), 0);
		ASSERT_EQ(to_vram(g, self->huge, HUGE), 0);
		ASSERT_EQ(pages_in_vram(self->huge, 512), 512);
		close_drm(g);
		ASSERT_TRUE(driver(self->bdf, "unbind"));
		EXPECT_EQ(pages_in_vram(g->mem, NPAGES), 0);
		EXPECT_EQ(pages_in_vram(self->huge, 512), 0);
		EXPECT_EQ(wrong(g->mem, NPAGES * PAGE, 1), 0);
		EXPECT_EQ(wrong(self->huge, HUGE, 2), 0);
		ASSERT_TRUE(driver(self->bdf, "bind"));
	}
}

/* A process ends with an address space of a GPU that has been unbound meanwhile. */
static void exit_unbound(struct __test_metadata *_metadata, FIXTURE_DATA(fixes) *self, bool busy)
{
	int ready[2], go[2], status = -1;
	char c = 0;
	pid_t child;

	close_drm(&self->gpu);
	ASSERT_EQ(pipe(ready), 0);
	ASSERT_EQ(pipe(go), 0);
	child = fork();
	ASSERT_GE(child, 0);
	if (!child) {
		struct gpu own = { .drm = -1 };

		close(go[1]);
		c = open_gpu(&own) && !gpu_store(&own, own.mem, pattern(0, 1));
		if (write(ready[1], &c, 1) != 1)
			_exit(2);
		while (busy) {
			char *mem = map(HUGE, MADV_NOHUGEPAGE);

			emit_store(&own, mem, 1);
			if (start_batch(&own) || wait_batch(&own, 3))
				break;
			munmap(mem, HUGE / 2);
			munmap(mem + HUGE / 2, HUGE / 2);
		}
		_exit(read(go[0], &c, 1) != 1 || wrong(own.mem, NPAGES * PAGE, 1));
	}
	ASSERT_EQ(read(ready[0], &c, 1), 1);
	EXPECT_EQ(c, 1);
	if (busy)
		pause_ms(300);
	ASSERT_TRUE(driver(self->bdf, "unbind"));
	ASSERT_EQ(write(go[1], "", 1), 1);
	ASSERT_EQ(waitpid(child, &status, 0), child);
	EXPECT_EQ(status, 0);
	ASSERT_TRUE(driver(self->bdf, "bind"));
}

TEST_F_TIMEOUT(fixes, unbind_exit, 60)
{
	exit_unbound(_metadata, self, false);
}

/* The process maps, uses and unmaps memory when the driver is unbound. */
TEST_F_TIMEOUT(fixes, unbind_busy, 90)
{
	exit_unbound(_metadata, self, true);
}

/* The driver is unbound while a process has an address space with memory in VRAM. */
TEST_F_TIMEOUT(fixes, unbind_in_use, 60)
{
	struct gpu *g = &self->gpu;

	ASSERT_EQ(gpu_store(g, g->mem, pattern(0, 1)), 0);
	ASSERT_EQ(gpu_store(g, self->huge, pattern(0, 2)), 0);
	ASSERT_TRUE(driver(self->bdf, "unbind"));
	EXPECT_EQ(wrong(g->mem, NPAGES * PAGE, 1), 0);
	EXPECT_EQ(wrong(self->huge, HUGE, 2), 0);
	/* The kernel must not use what unbinding has freed. */
	ASSERT_EQ(munmap(g->mem, NPAGES * PAGE), 0);
	ASSERT_EQ(munmap(self->huge, HUGE / 2), 0);
	close_drm(g);
	pause_ms(500);
	ASSERT_TRUE(driver(self->bdf, "bind"));
}

/* The same with memory that the process has given to the driver, at another address. */
TEST_F_TIMEOUT(fixes, unbind_userptr, 60)
{
	struct gpu *g = &self->gpu;
	char *at = map(HUGE, MADV_NOHUGEPAGE);
	uint64_t fence __attribute__((aligned(8))) = 0;
	struct drm_xe_sync s = { .flags = DRM_XE_SYNC_FLAG_SIGNAL,
				 .type = DRM_XE_SYNC_TYPE_USER_FENCE,
				 .addr = (uintptr_t)&fence,
				 .timeline_value = FENCE };
	struct drm_xe_vm_bind b = {
		.vm_id = g->vm, .num_binds = 1, .num_syncs = 1, .syncs = (uintptr_t)&s,
		.bind = { .pat_index = PAT_COHERENT, .range = HUGE, .addr = (uintptr_t)at,
			  .userptr = (uintptr_t)self->huge, .op = DRM_XE_VM_BIND_OP_MAP_USERPTR,
			  .flags = DRM_XE_VM_BIND_FLAG_IMMEDIATE },
	};

	ASSERT_NE(at, MAP_FAILED);
	ASSERT_EQ(ioctl(g->drm, DRM_IOCTL_XE_VM_BIND, &b), 0);
	ASSERT_EQ(wait_fence(g, &fence, 0, SECONDS), 0);
	ASSERT_EQ(gpu_store(g, at + PAGE, 4711), 0);
	EXPECT_EQ(word(self->huge + PAGE), 4711);
	ASSERT_TRUE(driver(self->bdf, "unbind"));
	EXPECT_EQ(wrong(self->huge, HUGE, 2), 1);
	ASSERT_EQ(munmap(self->huge, HUGE), 0);
	close_drm(g);
	pause_ms(500);
	ASSERT_TRUE(driver(self->bdf, "bind"));
}

/* ---- copies that fail ---- */

FIXTURE(copy)
{
	struct gpu gpu;
	char bdf[BDF_SIZE];
};

FIXTURE_SETUP(copy)
{
	ASSERT_TRUE(gpu_bdf(0, self->bdf));
	ASSERT_TRUE(open_gpu(&self->gpu));
}

/* The driver has given up the GPU. Memory in VRAM could not leave it now. */
FIXTURE_TEARDOWN(copy)
{
	reset_door(&self->gpu);
	munmap(self->gpu.mem, NPAGES * PAGE);
	close_drm(&self->gpu);
	EXPECT_TRUE(driver(self->bdf, "unbind"));
	EXPECT_TRUE(driver(self->bdf, "bind"));
}

static void *move_all(void *arg)
{
	struct gpu *g = arg;

	to_vram(g, g->mem, NPAGES * PAGE);
	return NULL;
}

/* A copy to VRAM fails: the process still has its data. */
TEST_F_TIMEOUT(copy, there_fails, 120)
{
	struct gpu *g = &self->gpu;
	pthread_t thread;

	put(g->door, DOOR_HOLD, 1);
	ASSERT_EQ(pthread_create(&thread, NULL, move_all, g), 0);
	pthread_join(thread, NULL);
	put(g->door, DOOR_HOLD, 0);
	EXPECT_EQ(wrong(g->mem, NPAGES * PAGE, 1), 0);
}

/* A copy back fails: the CPU gets SIGBUS or the data, but no other data. */
TEST_F_TIMEOUT(copy, back_fails, 120)
{
	struct gpu *g = &self->gpu;
	int status = -1;
	pid_t child;

	ASSERT_EQ(to_vram(g, g->mem, PAGE), 0);
	child = fork();
	ASSERT_GE(child, 0);
	if (!child) {
		put(g->door, DOOR_HOLD, 1);
		_exit(word(g->mem) != pattern(0, 1));
	}
	ASSERT_EQ(waitpid(child, &status, 0), child);
	put(g->door, DOOR_HOLD, 0);
	EXPECT_TRUE(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS));
}

/* ---- the GPU falls off the bus ---- */

FIXTURE(gone)
{
	struct gpu gpu;
	char bdf[BDF_SIZE];
};

FIXTURE_SETUP(gone)
{
	ASSERT_TRUE(gpu_bdf(0, self->bdf));
	ASSERT_TRUE(open_gpu(&self->gpu));
}

FIXTURE_TEARDOWN(gone)
{
	close_gpu(_metadata, &self->gpu);
}

/*
 * Each register reads as all ones. A process that needs data in VRAM gets SIGBUS and no other data.
 * Data in RAM are as they were. The driver can be unbound, and after a reset the GPU works again.
 */
TEST_F_TIMEOUT(gone, with_pages, 300)
{
	char *ram = map(NPAGES * PAGE, MADV_NOHUGEPAGE), path[64];
	struct gpu *g = &self->gpu;
	int status;
	pid_t child;

	ASSERT_NE(ram, MAP_FAILED);
	fill(ram, NPAGES * PAGE, 3);
	ASSERT_EQ(to_vram(g, g->mem, NPAGES * PAGE), 0);
	put(g->door, DOOR_GONE, 1);

	child = fork();
	ASSERT_GE(child, 0);
	if (!child)
		_exit(word(g->mem) != pattern(0, 1));
	ASSERT_EQ(waitpid(child, &status, 0), child);
	EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
	to_vram(g, ram, NPAGES * PAGE);
	EXPECT_EQ(pages_in_vram(ram, NPAGES), 0);
	EXPECT_EQ(wrong(ram, NPAGES * PAGE, 3), 0);

	munmap(g->mem, NPAGES * PAGE);
	munmap(ram, NPAGES * PAGE);
	close_drm(g);
	munmap((void *)g->door, DOOR_SIZE);
	ASSERT_TRUE(driver(self->bdf, "unbind"));
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/reset", self->bdf);
	ASSERT_TRUE(write_file(path, "1"));
	ASSERT_TRUE(driver(self->bdf, "bind"));
	ASSERT_TRUE(open_gpu(g));
	there_and_back(_metadata, g, g->mem, NPAGES * PAGE);
}

TEST_HARNESS_MAIN
