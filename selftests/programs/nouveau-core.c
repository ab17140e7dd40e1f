// SPDX-License-Identifier: GPL-2.0-only
/*
 * The base of nouveau's shared virtual memory, on the model of a GP100 (selftests/models/pascal):
 * push buffers, and the interrupts that report fences. In the tests of EXEC the client fills its
 * address space itself (VM_BIND).
 */
#include "nouveau.h"

#include <signal.h>
#include <sys/time.h>

#define LARGE		(16UL << 20)
#define PUSH_LIMIT	(1ULL << 40)	/* a GPFIFO entry has 40 bits for an address */

/* ---- the driver's own push buffer ---- */

FIXTURE(push)
{
	struct gpu gpu;
};

FIXTURE_SETUP(push)
{
	ASSERT_TRUE(open_gpu(&self->gpu));
}

FIXTURE_TEARDOWN(push)
{
	close_gpu(_metadata, &self->gpu);
}

/* So many copies that the push buffer wraps several times. None of them is lost. */
TEST_F_TIMEOUT(push, goes_round, 120)
{
	struct gpu *g = &self->gpu;
	char *mem = map(LARGE, MADV_NOHUGEPAGE);

	ASSERT_NE(mem, MAP_FAILED);
	fill(mem, LARGE, 9);
	ASSERT_EQ(nouveau_to_vram(g->drm, mem, LARGE), 0);
	EXPECT_EQ(pages_in_vram(mem, LARGE / PAGE), LARGE / PAGE);
	EXPECT_EQ(wrong(mem, LARGE, 9), 0);
}

/* ---- push buffers of a client ---- */

FIXTURE(exec)
{
	struct gpu gpu;
	uint32_t bo, syncobj;
};

static int vm_bind(FIXTURE_DATA(exec) *self, uint64_t va)
{
	struct drm_nouveau_vm_bind_op op = {
		.op = DRM_NOUVEAU_VM_BIND_OP_MAP,
		.handle = self->bo,
		.addr = va,
		.range = PAGE,
	};
	struct drm_nouveau_vm_bind b = { .op_count = 1, .op_ptr = (uintptr_t)&op };

	return ioctl(self->gpu.drm, DRM_IOCTL_NOUVEAU_VM_BIND, &b);
}

static int exec(FIXTURE_DATA(exec) *self, uint64_t va, size_t len)
{
	struct drm_nouveau_sync sync = { .handle = self->syncobj };
	struct drm_nouveau_exec_push push = { .va = va, .va_len = len };
	struct drm_nouveau_exec e = {
		.channel = self->gpu.channel,
		.push_count = 1,
		.push_ptr = (uintptr_t)&push,
		.sig_count = 1,
		.sig_ptr = (uintptr_t)&sync,
	};

	return ioctl(self->gpu.drm, DRM_IOCTL_NOUVEAU_EXEC, &e);
}

/* Return: 0 if it was done within this time. */
static int wait_s(FIXTURE_DATA(exec) *self, unsigned int s)
{
	struct drm_syncobj_wait w = { .handles = (uintptr_t)&self->syncobj, .count_handles = 1 };
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	w.timeout_nsec = (t.tv_sec + s) * 1000000000LL;
	return ioctl(self->gpu.drm, DRM_IOCTL_SYNCOBJ_WAIT, &w);
}

FIXTURE_SETUP(exec)
{
	struct drm_nouveau_vm_init i = { (uintptr_t)HOLE, HOLE_SIZE };
	struct drm_nouveau_gem_new n = {
		.info = { .size = PAGE, .domain = NOUVEAU_GEM_DOMAIN_GART },
	};
	struct drm_syncobj_create c = {};

	ASSERT_TRUE(open_files(&self->gpu));
	ASSERT_EQ(ioctl(self->gpu.drm, DRM_IOCTL_NOUVEAU_VM_INIT, &i), 0);
	ASSERT_EQ(open_channel(&self->gpu), 0);
	/* The buffer has zeroes: commands that do nothing. */
	ASSERT_EQ(ioctl(self->gpu.drm, DRM_IOCTL_NOUVEAU_GEM_NEW, &n), 0);
	self->bo = n.info.handle;
	ASSERT_EQ(ioctl(self->gpu.drm, DRM_IOCTL_SYNCOBJ_CREATE, &c), 0);
	self->syncobj = c.handle;
}

FIXTURE_TEARDOWN(exec)
{
	close_gpu(_metadata, &self->gpu);
}

/*
 * The channel is not on the first runlist, and begins late, so that the waiter is there before the
 * fence is done. Then only the interrupt can wake the waiter.
 */
TEST_F(exec, fence_event)
{
	struct gpu *g = &self->gpu;

	ASSERT_EQ(vm_bind(self, HUGE), 0);
	put(g->door, DOOR_DELAY, 1000);
	ASSERT_EQ(exec(self, HUGE, PAGE), 0);
	EXPECT_EQ(wait_s(self, 8), 0);
	put(g->door, DOOR_DELAY, 0);
}

/* Push buffers work up to the last address that an entry of the GPFIFO can hold, not beyond. */
TEST_F(exec, limit)
{
	struct stats before = stats(self->gpu.door), after;

	ASSERT_EQ(vm_bind(self, PUSH_LIMIT - PAGE), 0);
	ASSERT_EQ(vm_bind(self, PUSH_LIMIT), 0);
	ASSERT_EQ(vm_bind(self, 3 * PUSH_LIMIT), 0);
	EXPECT_EQ(exec(self, PUSH_LIMIT - PAGE, PAGE), 0);
	EXPECT_EQ(wait_s(self, 60), 0);
	EXPECT_EQ(exec(self, PUSH_LIMIT - PAGE, PAGE + 4), -1);
	EXPECT_EQ(errno, EINVAL);
	EXPECT_EQ(exec(self, PUSH_LIMIT, PAGE), -1);
	EXPECT_EQ(errno, EINVAL);
	EXPECT_EQ(exec(self, 3 * PUSH_LIMIT, PAGE), -1);
	EXPECT_EQ(errno, EINVAL);
	EXPECT_EQ(exec(self, ~0ULL, PAGE), -1);
	EXPECT_EQ(errno, EINVAL);
	after = stats(self->gpu.door);
	EXPECT_EQ(after.fatal_faults - before.fatal_faults, 0);
}

/* ---- where the driver's own buffers are ---- */

FIXTURE(hole)
{
	struct gpu gpu;
};

FIXTURE_SETUP(hole)
{
	ASSERT_TRUE(open_files(&self->gpu));
}

FIXTURE_TEARDOWN(hole)
{
	close_gpu(_metadata, &self->gpu);
}

/* The only hole for them is out of reach of host, so no channel can be made. */
TEST_F(hole, limit)
{
	struct stats before = stats(self->gpu.door), after;

	ASSERT_EQ(svm_init(&self->gpu, (void *)PUSH_LIMIT), 0);
	EXPECT_EQ(open_channel(&self->gpu), -1);
	EXPECT_EQ(errno, ENOSPC);
	after = stats(self->gpu.door);
	EXPECT_EQ(after.fatal_faults - before.fatal_faults, 0);
}

/*
 * The memory of a large buffer is in several blocks, which may be adjacent. They are mapped one by
 * one, and must be synced one by one. On a kernel with debug options dma-debug checks this.
 */
TEST_F(hole, synced)
{
	struct drm_nouveau_gem_new n = {
		.info = { .size = 2 * LARGE, .domain = NOUVEAU_GEM_DOMAIN_GART },
	};
	struct drm_nouveau_gem_cpu_prep prep = { .flags = NOUVEAU_GEM_CPU_PREP_WRITE };
	struct drm_nouveau_gem_cpu_fini fini = {};

	ASSERT_EQ(ioctl(self->gpu.drm, DRM_IOCTL_NOUVEAU_GEM_NEW, &n), 0);
	prep.handle = n.info.handle;
	EXPECT_EQ(ioctl(self->gpu.drm, DRM_IOCTL_NOUVEAU_GEM_CPU_PREP, &prep), 0);
	fini.handle = n.info.handle;
	EXPECT_EQ(ioctl(self->gpu.drm, DRM_IOCTL_NOUVEAU_GEM_CPU_FINI, &fini), 0);
}

/* A hole outside of the GPU's address space is refused, and what was made for it goes away. */
TEST_F(hole, beyond_limit)
{
	struct drm_nouveau_svm_init i = { 1ULL << 60, 0 };

	for (int n = 0; n < 16; n++) {
		int fd = open("/dev/dri/renderD128", O_RDWR);

		ASSERT_GE(fd, 0);
		EXPECT_EQ(ioctl(fd, DRM_IOCTL_NOUVEAU_SVM_INIT, &i), -1);
		EXPECT_EQ(errno, EINVAL);
		close(fd);
	}
	EXPECT_EQ(svm_init(&self->gpu, HOLE), 0);
}

static void on_alarm(int number __attribute__((unused)))
{
}

/* A signal may interrupt SVM_INIT. The process can try again. */
TEST_F(hole, interrupted)
{
	struct itimerval when = {}, never = {};
	int interrupted = 0, rc;

	ASSERT_EQ(sigaction(SIGALRM, &(struct sigaction){ .sa_handler = on_alarm }, NULL), 0);
	for (int us = 20; us < 100000 && interrupted < 3; us += us / 8 + 1) {
		close(self->gpu.drm);
		self->gpu.drm = open("/dev/dri/renderD128", O_RDWR);
		ASSERT_GE(self->gpu.drm, 0);
		when.it_value.tv_usec = us;
		ASSERT_EQ(setitimer(ITIMER_REAL, &when, NULL), 0);
		rc = svm_init(&self->gpu, HOLE);
		if (rc) {
			ASSERT_EQ(errno, EINTR);
			interrupted++;
		}
		ASSERT_EQ(setitimer(ITIMER_REAL, &never, NULL), 0);
		if (rc)
			ASSERT_EQ(svm_init(&self->gpu, HOLE), 0);
	}
	EXPECT_GT(interrupted, 0);
}

TEST_F(hole, unaligned)
{
	EXPECT_EQ(svm_init(&self->gpu, (char *)HOLE + PAGE / 2), -1);
	EXPECT_EQ(errno, EINVAL);
}

/* Only the first page of a huge page is outside. The GPU must not map the huge page as a whole. */
TEST_F(hole, inside_huge_page)
{
	struct gpu *g = &self->gpu;
	uint64_t addr;
	char *mem = mmap(HOLE, HUGE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	ASSERT_EQ(mem, HOLE);
	ASSERT_EQ(madvise(mem, HUGE, MADV_HUGEPAGE), 0);
	fill(mem, HUGE, 3);
	ASSERT_EQ(svm_init(g, mem + PAGE), 0);
	ASSERT_EQ(open_channel(g), 0);
	ASSERT_EQ(gpu(g, DOOR_LOAD, mem, 4), DOOR_DONE);
	EXPECT_EQ(door_word(g, 0), pattern(0, 3));
	EXPECT_EQ(walk(g, mem, &addr),
		  DOOR_VALID | DOOR_SYSTEM | DOOR_NO_ATOMIC | 12 << DOOR_SHIFT);
}

/* A client also chooses the offset in its buffer, so the sum may be any address. */
TEST_F(hole, offset)
{
	struct gpu *g = &self->gpu;
	struct stats before = stats(g->door), after;
	struct drm_nouveau_gem_new n = {
		.info = { .size = PAGE, .domain = NOUVEAU_GEM_DOMAIN_GART },
	};
	struct drm_nouveau_gem_pushbuf_bo bo = {
		.read_domains = NOUVEAU_GEM_DOMAIN_GART,
		.valid_domains = NOUVEAU_GEM_DOMAIN_GART,
	};
	struct drm_nouveau_gem_pushbuf_push push = { .length = PAGE };
	struct drm_nouveau_gem_pushbuf p = {
		.nr_buffers = 1,
		.buffers = (uintptr_t)&bo,
		.nr_push = 1,
		.push = (uintptr_t)&push,
	};

	ASSERT_EQ(svm_init(g, HOLE), 0);
	ASSERT_EQ(open_channel(g), 0);
	p.channel = g->channel;
	ASSERT_EQ(ioctl(g->drm, DRM_IOCTL_NOUVEAU_GEM_NEW, &n), 0);
	bo.handle = n.info.handle;
	p.vram_available = NOUVEAU_GEM_PUSHBUF_SYNC;
	EXPECT_EQ(ioctl(g->drm, DRM_IOCTL_NOUVEAU_GEM_PUSHBUF, &p), 0);
	push.offset = PUSH_LIMIT;
	p.vram_available = NOUVEAU_GEM_PUSHBUF_SYNC;
	EXPECT_EQ(ioctl(g->drm, DRM_IOCTL_NOUVEAU_GEM_PUSHBUF, &p), -1);
	EXPECT_EQ(errno, EINVAL);
	after = stats(g->door);
	EXPECT_EQ(after.fatal_faults - before.fatal_faults, 0);
}

TEST_HARNESS_MAIN
