// SPDX-License-Identifier: GPL-2.0
/*
 * nouveau's shared virtual memory on the model of a GP100 (selftests/models/pascal): memory of this
 * process moves to VRAM and back; the model's back door loads and stores at the same addresses as a
 * shader would, and says where the GPU's page tables lead and what VRAM holds.
 */
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

#include "door.h"
#include "edu_hmm_uapi.h"
#include "nouveau_drm.h"

#include "kselftest_harness.h"

#define PAGE		4096UL
#define HUGE		(2UL << 20)
#define NPAGES		32

/* The kernel's own buffers are there. GPFIFO entries have 40 bits for an address. */
#define HOLE		((void *)(64UL << 30))
#define HOLE_SIZE	(4UL << 30)

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

static void put(volatile uint8_t *door, unsigned int at, uint32_t val)
{
	*(volatile uint32_t *)(door + at) = val;
}

static uint32_t get(volatile uint8_t *door, unsigned int at)
{
	return *(volatile uint32_t *)(door + at);
}

static struct stats stats(volatile uint8_t *door)
{
	union {
		struct stats s;
		uint32_t word[sizeof(struct stats) / 4];
	} u;

	for (size_t i = 0; i < sizeof(u) / 4; i++)
		u.word[i] = get(door, DOOR_COUNTERS + 4 * i);
	return u.s;
}

static void pause_ms(unsigned int ms)
{
	nanosleep(&(struct timespec){ ms / 1000, ms % 1000 * 1000000L }, NULL);
}

static void begin(struct gpu *self, enum door_op op, const void *va, size_t len)
{
	put(self->door, DOOR_CHID, self->channel);
	put(self->door, DOOR_VA, (uintptr_t)va);
	put(self->door, DOOR_VA + 4, (uintptr_t)va >> 32);
	put(self->door, DOOR_LEN, len);
	put(self->door, DOOR_OP, op);
}

static enum door_status finish(struct gpu *self)
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

static enum door_status gpu(struct gpu *self, enum door_op op, const void *va, size_t len)
{
	begin(self, op, va, len);
	return finish(self);
}

static uint32_t door_word(struct gpu *self, size_t i)
{
	return get(self->door, DOOR_DATA + 4 * i);
}

/* ---- memory ---- */

static uint32_t pattern(size_t i, unsigned int seed)
{
	return (i + 1) * 2654435761U + seed * 40503;
}

static void fill(void *to, size_t size, unsigned int seed)
{
	for (size_t i = 0; i < size / 4; i++)
		((uint32_t *)to)[i] = pattern(i, seed);
}

static size_t wrong(const void *mem, size_t size, unsigned int seed)
{
	size_t n = 0;

	for (size_t i = 0; i < size / 4; i++)
		n += ((const uint32_t *)mem)[i] != pattern(i, seed);
	return n;
}

/* A swap entry that is in no swap: device-private. */
static bool in_vram(const void *page)
{
	uint64_t e = 0;
	int fd = open("/proc/self/pagemap", O_RDONLY);
	ssize_t n = pread(fd, &e, sizeof(e), (uintptr_t)page / PAGE * sizeof(e));

	close(fd);
	return n == sizeof(e) && e >> 62 == 1;
}

static size_t pages_in_vram(const char *mem, size_t n)
{
	size_t there = 0;

	for (size_t i = 0; i < n; i++)
		there += in_vram(mem + i * PAGE);
	return there;
}

static int to_vram(int drm, void *mem, size_t size)
{
	struct drm_nouveau_svm_bind b = {
		.header = (uint64_t)NOUVEAU_SVM_BIND_COMMAND__MIGRATE
				  << NOUVEAU_SVM_BIND_COMMAND_SHIFT |
			  (uint64_t)NOUVEAU_SVM_BIND_TARGET__GPU_VRAM
				  << NOUVEAU_SVM_BIND_TARGET_SHIFT,
		.va_start = (uintptr_t)mem,
		.va_end = (uintptr_t)mem + size,
		.npages = size / PAGE,
	};

	return ioctl(drm, DRM_IOCTL_NOUVEAU_SVM_BIND, &b);
}

static char *map(size_t size, int advice)
{
	char *p = mmap(NULL, size + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0);

	if (p == MAP_FAILED)
		return p;
	p = (char *)(((uintptr_t)p + HUGE - 1) & ~(HUGE - 1));
	madvise(p, size, advice);
	return p;
}

/* Where the page tables of the GPU lead. */
static uint32_t walk(struct gpu *self, const void *va, uint64_t *addr)
{
	if (gpu(self, DOOR_WALK, va, 0) != DOOR_DONE)
		return ~0U;
	*addr = get(self->door, DOOR_ADDR) | (uint64_t)get(self->door, DOOR_ADDR + 4) << 32;
	return get(self->door, DOOR_FLAGS);
}

static bool open_gpu(struct gpu *self)
{
	struct drm_nouveau_channel_alloc c = { .fb_ctxdma_handle = ~0U,
					       .tt_ctxdma_handle = NOUVEAU_FIFO_ENGINE_CE };
	struct drm_nouveau_svm_init i = { (uintptr_t)HOLE, HOLE_SIZE };
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
	if (self->door == MAP_FAILED ||
	    mmap(HOLE, HOLE_SIZE, PROT_NONE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1,
		 0) != HOLE ||
	    ioctl(self->drm, DRM_IOCTL_NOUVEAU_SVM_INIT, &i) ||
	    ioctl(self->drm, DRM_IOCTL_NOUVEAU_CHANNEL_ALLOC, &c))
		return false;
	self->channel = c.channel;
	self->mem = map(NPAGES * PAGE, MADV_NOHUGEPAGE);
	if (self->mem == MAP_FAILED)
		return false;
	fill(self->mem, NPAGES * PAGE, 1);
	return true;
}

static void close_gpu(struct __test_metadata *_metadata, struct gpu *self)
{
	struct stats s;

	/* The driver is idle: what it has taken from the page tables, no TLB may still have. */
	put(self->door, DOOR_CHECK, 1);
	s = stats(self->door);
	EXPECT_EQ(s.violations, 0);
	EXPECT_EQ(s.unknown_registers, 0);
	EXPECT_EQ(s.unknown_methods, 0);
	EXPECT_EQ(s.bar_faults, 0);
	EXPECT_EQ(s.iommu_faults, 0);
	close(self->drm);
}

/* ---- the GPU and the process ---- */

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

/* It moves to VRAM by the copy engine, and comes back when the CPU touches it. */
TEST_F(svm, there_and_back)
{
	struct gpu *g = &self->gpu;
	struct stats before = stats(g->door), after;

	ASSERT_EQ(to_vram(g->drm, g->mem, NPAGES * PAGE), 0);
	after = stats(g->door);
	EXPECT_EQ(pages_in_vram(g->mem, NPAGES), NPAGES);
	EXPECT_GE(after.copied_bytes - before.copied_bytes, NPAGES * PAGE);
	EXPECT_EQ(wrong(g->mem, NPAGES * PAGE, 1), 0);
	EXPECT_EQ(pages_in_vram(g->mem, NPAGES), 0);
}

/* The page tables of the GPU lead to VRAM, and what the process had is there. */
TEST_F(svm, what_vram_holds)
{
	struct gpu *g = &self->gpu;
	uint64_t addr;

	ASSERT_EQ(to_vram(g->drm, g->mem, NPAGES * PAGE), 0);
	for (int i = 0; i < NPAGES; i += 7) {
		uint32_t flags = walk(g, g->mem + i * PAGE, &addr), bad = 0;

		ASSERT_EQ(flags & (DOOR_VALID | DOOR_SYSTEM | DOOR_READ_ONLY), DOOR_VALID);
		ASSERT_EQ(gpu(g, DOOR_VRAM, (void *)addr, PAGE), DOOR_DONE);
		for (size_t k = 0; k < PAGE / 4; k++)
			bad += door_word(g, k) != pattern(i * PAGE / 4 + k, 1);
		EXPECT_EQ(bad, 0);
	}
	EXPECT_EQ(pages_in_vram(g->mem, NPAGES), NPAGES);
}

/* A load of the GPU from memory that it has never seen: it faults, and is replayed. */
TEST_F(svm, load)
{
	struct gpu *g = &self->gpu;
	struct stats before = stats(g->door), after;
	uint64_t addr;
	uint32_t bad = 0;

	ASSERT_EQ(gpu(g, DOOR_LOAD, g->mem + 100, 3 * PAGE), DOOR_DONE);
	for (size_t k = 0; k < 3 * PAGE / 4; k++)
		bad += door_word(g, k) != pattern(25 + k, 1);
	EXPECT_EQ(bad, 0);
	after = stats(g->door);
	EXPECT_GE(after.faults - before.faults, 4);
	EXPECT_EQ(pages_in_vram(g->mem, NPAGES), 0);
	EXPECT_EQ(walk(g, g->mem, &addr) & (DOOR_VALID | DOOR_SYSTEM), DOOR_VALID | DOOR_SYSTEM);
}

/* A store of the GPU, to RAM and to VRAM: the CPU sees it, and nothing else is changed. */
TEST_F(svm, store)
{
	struct gpu *g = &self->gpu;
	for (int vram = 0; vram < 2; vram++) {
		char *page = g->mem + (5 + vram) * PAGE;

		if (vram)
			ASSERT_EQ(to_vram(g->drm, page, PAGE), 0);
		for (int k = 0; k < 16; k++)
			put(g->door, DOOR_DATA + 4 * k, pattern(k, 2 + vram));
		ASSERT_EQ(gpu(g, DOOR_STORE, page + 64, 64), DOOR_DONE);
		EXPECT_EQ(in_vram(page), vram);
		EXPECT_EQ(wrong(page + 64, 64, 2 + vram), 0);
		fill(page, PAGE, 7);
	}
	EXPECT_EQ(wrong(g->mem, 5 * PAGE, 1), 0);
}

/* The CPU and the GPU add to the same word, in turn: none of it is lost. */
TEST_F(svm, atomic)
{
	struct gpu *g = &self->gpu;
	uint32_t *word = (uint32_t *)g->mem;

	*word = 0;
	for (uint32_t i = 0; i < 20; i++) {
		put(g->door, DOOR_DATA, 3);
		ASSERT_EQ(gpu(g, DOOR_ADD, word, 4), DOOR_DONE);
		EXPECT_EQ(door_word(g, 0), 4 * i);
		EXPECT_EQ(__atomic_fetch_add(word, 1, __ATOMIC_SEQ_CST), 4 * i + 3);
	}
}

/* What the process takes away, the GPU cannot reach any more. */
TEST_F(svm, taken_away)
{
	struct gpu *g = &self->gpu;
	uint64_t addr;

	for (int vram = 0; vram < 2; vram++) {
		fill(g->mem, NPAGES * PAGE, 1);
		if (vram)
			ASSERT_EQ(to_vram(g->drm, g->mem, NPAGES * PAGE), 0);
		ASSERT_EQ(gpu(g, DOOR_LOAD, g->mem, 4 * PAGE), DOOR_DONE);
		ASSERT_EQ(madvise(g->mem, 2 * PAGE, MADV_DONTNEED), 0);
		EXPECT_EQ(walk(g, g->mem, &addr) & DOOR_VALID, 0);
		EXPECT_EQ(walk(g, g->mem + 3 * PAGE, &addr) & DOOR_VALID, DOOR_VALID);
		ASSERT_EQ(gpu(g, DOOR_LOAD, g->mem, 4), DOOR_DONE);
		EXPECT_EQ(door_word(g, 0), 0);
	}
}

/* A huge page is one PTE, and one copy each way. */
TEST_F(svm, huge)
{
	struct gpu *g = &self->gpu;
	char *mem = map(HUGE, MADV_HUGEPAGE);
	uint64_t addr;
	uint32_t flags;

	ASSERT_NE(mem, MAP_FAILED);
	fill(mem, HUGE, 3);
	ASSERT_EQ(to_vram(g->drm, mem, HUGE), 0);
	flags = walk(g, mem + 5 * PAGE, &addr);
	EXPECT_EQ(flags & (DOOR_VALID | DOOR_SYSTEM), DOOR_VALID);
	EXPECT_EQ(flags >> DOOR_SHIFT, 21);
	EXPECT_EQ(pages_in_vram(mem, 512), 512);
	EXPECT_EQ(wrong(mem, HUGE, 3), 0);
}

/* A store to what the process may only read is cancelled, and the channel dies. */
TEST_F(svm, cancel)
{
	struct gpu *g = &self->gpu;
	struct stats before = stats(g->door), after;

	ASSERT_EQ(mprotect(g->mem, PAGE, PROT_READ), 0);
	EXPECT_EQ(gpu(g, DOOR_STORE, g->mem, 4), DOOR_FAILED);
	after = stats(g->door);
	EXPECT_EQ(after.cancels - before.cancels, 1);
	EXPECT_EQ(wrong(g->mem, NPAGES * PAGE, 1), 0);
}

struct mover {
	int drm, ret;
	char *mem;
};

static void *move(void *arg)
{
	struct mover *m = arg;

	m->ret = to_vram(m->drm, m->mem, NPAGES * PAGE);
	return NULL;
}

/* While its copy is held, memory is in neither place: the CPU waits, and then finds all of it. */
TEST_F(svm, held_copy)
{
	struct gpu *g = &self->gpu;
	struct mover m = { g->drm, -1, g->mem };
	pthread_t thread;

	put(g->door, DOOR_HOLD, 1);
	ASSERT_EQ(pthread_create(&thread, NULL, move, &m), 0);
	pause_ms(500);
	EXPECT_EQ(m.ret, -1);
	put(g->door, DOOR_HOLD, 0);
	ASSERT_EQ(pthread_join(thread, NULL), 0);
	EXPECT_EQ(m.ret, 0);
	EXPECT_EQ(wrong(g->mem, NPAGES * PAGE, 1), 0);
}

/*
 * All clients of the GPU fault at once, each fault comes twice, invalidations are slow, half of the
 * pages are in VRAM. Half of the clients store; what they write and what is there stay apart.
 */
TEST_F(svm, burst)
{
	struct gpu *g = &self->gpu, client[DOOR_CLIENTS];
	struct stats before = stats(g->door), after;

	ASSERT_EQ(to_vram(g->drm, g->mem, NPAGES / 2 * PAGE), 0);
	put(g->door, DOOR_TWICE, 1);
	put(g->door, DOOR_SLOW, 20);
	for (int i = 0; i < DOOR_CLIENTS; i++) {
		client[i] = *g;
		client[i].door += i * DOOR_SIZE;
		for (size_t k = 0; k < PAGE / 4; k++)
			put(client[i].door, DOOR_DATA + 4 * k, pattern(k, 100 + i));
		/* From the middle of a page to that of the next. */
		begin(&client[i], i & 1 ? DOOR_STORE : DOOR_LOAD, g->mem + 4 * i * PAGE + 64, PAGE);
	}
	for (int i = 0; i < DOOR_CLIENTS; i++)
		EXPECT_EQ(finish(&client[i]), DOOR_DONE);
	put(g->door, DOOR_TWICE, 0);
	put(g->door, DOOR_SLOW, 0);
	after = stats(g->door);
	EXPECT_GE(after.faults - before.faults, DOOR_CLIENTS);
	for (int i = 0; i < DOOR_CLIENTS; i++) {
		uint32_t *at = (uint32_t *)(g->mem + 4 * i * PAGE + 64);

		for (size_t k = 0; k < PAGE / 4; k++)
			ASSERT_EQ(i & 1 ? at[k] : door_word(&client[i], k),
				  i & 1 ? pattern(k, 100 + i) : pattern(i * PAGE + 16 + k, 1));
		EXPECT_EQ(at[PAGE / 4], pattern(i * PAGE + 16 + PAGE / 4, 1));
	}
}

/*
 * The GPU stores to a page while it moves to VRAM, by a mapping that it has used before: the store
 * must wait until the page is there, or it goes to memory that nobody looks at any more.
 */
TEST_F(svm, store_while_moving)
{
	struct gpu *g = &self->gpu;
	struct mover m = { g->drm, -1, g->mem };
	pthread_t thread;

	put(g->door, DOOR_DATA, pattern(0, 1));
	ASSERT_EQ(gpu(g, DOOR_STORE, g->mem, 4), DOOR_DONE);
	put(g->door, DOOR_HOLD, 1);
	ASSERT_EQ(pthread_create(&thread, NULL, move, &m), 0);
	pause_ms(500);
	put(g->door, DOOR_DATA, 4711);
	begin(g, DOOR_STORE, g->mem, 4);
	pause_ms(200);
	EXPECT_EQ(get(g->door, DOOR_STATUS), DOOR_BUSY);
	put(g->door, DOOR_HOLD, 0);
	ASSERT_EQ(pthread_join(thread, NULL), 0);
	EXPECT_EQ(m.ret, 0);
	EXPECT_EQ(finish(g), DOOR_DONE);
	EXPECT_EQ(*(uint32_t *)g->mem, 4711);
	for (size_t i = 1; i < NPAGES * PAGE / 4; i++)
		ASSERT_EQ(((uint32_t *)g->mem)[i], pattern(i, 1));
}

/* ---- a peer: the edu device, whose driver asks for aliases of device memory ---- */

#define BLOCKS	16	/* huge pages: as many as edu_hmm mirrors at most */

/* What the driver has reserved, of a BAR 1 that may be too small for it. */
static size_t aperture(void)
{
	size_t size = 0;
	glob_t found;
	FILE *f;

	if (glob("/sys/bus/pci/drivers/nouveau/0*/p2pmem/size", 0, NULL, &found))
		return 0;
	f = fopen(found.gl_pathv[0], "r");
	globfree(&found);
	if (!f || fscanf(f, "%zu", &size) != 1)
		size = 0;
	if (f)
		fclose(f);
	return size;
}

FIXTURE(peer)
{
	struct gpu gpu;
	int edu, reached;		/* enum edu_hmm_how that the topology demands */
	size_t aperture;		/* bytes of BAR 1 that are for peers */
	struct edu_hmm_page *pages;
};

FIXTURE_SETUP(peer)
{
	const char *verdict = getenv("HMM_P2P_VERDICT");

	ASSERT_TRUE(open_gpu(&self->gpu));
	self->edu = open("/dev/edu_hmm0", O_RDWR);
	ASSERT_GE(self->edu, 0);
	ASSERT_NE(verdict, NULL);
	self->reached = !strcmp(verdict, "bus") ? EDU_HMM_BUS : EDU_HMM_BRIDGE;
	self->aperture = aperture();
	ASSERT_GE(self->aperture, HUGE);
	self->pages = calloc(BLOCKS * HUGE / PAGE, sizeof(*self->pages));
	ASSERT_NE(self->pages, NULL);
}

FIXTURE_TEARDOWN(peer)
{
	close(self->edu);
	close_gpu(_metadata, &self->gpu);
}

static int edu_register(FIXTURE_DATA(peer) *self, void *mem, size_t size)
{
	struct edu_hmm_register r = { .addr = (uintptr_t)mem, .npages = size / PAGE };

	return ioctl(self->edu, EDU_HMM_REGISTER, &r);
}

static int edu_fault(FIXTURE_DATA(peer) *self, void *mem, size_t size)
{
	struct edu_hmm_fault f = { .addr = (uintptr_t)mem,
				   .npages = size / PAGE,
				   .flags = EDU_HMM_WRITE };

	return ioctl(self->edu, EDU_HMM_FAULT, &f);
}

/* The other end of the copy is @buf; flags: 0 reads memory, EDU_HMM_WRITE writes it. */
static int edu_dma(FIXTURE_DATA(peer) *self, void *mem, void *buf, size_t len, unsigned int flags)
{
	struct edu_hmm_dma d = {
		.addr = (uintptr_t)mem, .ptr = (uintptr_t)buf, .len = len, .flags = flags
	};

	return ioctl(self->edu, EDU_HMM_DMA, &d);
}

/* How many of these pages the peer has as @how. */
static size_t pages_as(FIXTURE_DATA(peer) *self, void *mem, size_t n, int how)
{
	struct edu_hmm_state s = { .addr = (uintptr_t)mem,
				   .npages = n,
				   .pages = (uintptr_t)self->pages };
	size_t found = 0;

	if (ioctl(self->edu, EDU_HMM_STATE, &s))
		return ~0UL;
	for (size_t i = 0; i < n; i++)
		found += self->pages[i].how == how;
	return found;
}

static void read_write(struct __test_metadata *_metadata, FIXTURE_DATA(peer) *self, char *mem,
		       size_t size)
{
	struct gpu *g = &self->gpu;
	size_t n = size / PAGE;
	uint32_t buf[128];

	fill(mem, size, 5);
	ASSERT_EQ(edu_register(self, mem, size), 0);
	ASSERT_EQ(to_vram(g->drm, mem, size), 0);
	ASSERT_EQ(pages_in_vram(mem, n), n);
	ASSERT_EQ(edu_fault(self, mem, size), 0);
	EXPECT_EQ(pages_as(self, mem, n, self->reached), n);
	/* It reads what the process had, and writes, and all that while nothing migrates. */
	ASSERT_EQ(edu_dma(self, mem + size - PAGE, buf, sizeof(buf), 0), 0);
	for (size_t i = 0; i < ARRAY_SIZE(buf); i++)
		ASSERT_EQ(buf[i], pattern((size - PAGE) / 4 + i, 5));
	fill(buf, sizeof(buf), 6);
	ASSERT_EQ(edu_dma(self, mem + PAGE, buf, sizeof(buf), EDU_HMM_WRITE), 0);
	EXPECT_EQ(pages_in_vram(mem, n), n);
	/* The CPU takes it back, with what the peer has written, and the peer has nothing more. */
	EXPECT_EQ(wrong(mem + PAGE, sizeof(buf), 6), 0);
	EXPECT_EQ(pages_as(self, mem + PAGE, 1, self->reached), 0);
	for (size_t i = 0; i < size / 4; i++)
		if (i < PAGE / 4 || i >= PAGE / 4 + ARRAY_SIZE(buf))
			ASSERT_EQ(((uint32_t *)mem)[i], pattern(i, 5));
}

/* Pages in VRAM stay there when a peer reads and writes them, by BAR 1. */
TEST_F(peer, small_pages)
{
	read_write(_metadata, self, self->gpu.mem, NPAGES * PAGE);
}

TEST_F(peer, huge_page)
{
	char *mem = map(HUGE, MADV_HUGEPAGE);

	ASSERT_NE(mem, MAP_FAILED);
	read_write(_metadata, self, mem, HUGE);
}

/*
 * More blocks than there are windows in BAR 1: what gets none migrates, and none is wrong. When a
 * block is given up, its window serves another.
 */
TEST_F(peer, windows)
{
	char *mem = map(BLOCKS * HUGE, MADV_HUGEPAGE);
	size_t n = BLOCKS * HUGE / PAGE, there;

	ASSERT_NE(mem, MAP_FAILED);
	fill(mem, BLOCKS * HUGE, 8);
	ASSERT_EQ(edu_register(self, mem, BLOCKS * HUGE), 0);
	ASSERT_EQ(to_vram(self->gpu.drm, mem, BLOCKS * HUGE), 0);
	ASSERT_EQ(edu_fault(self, mem, BLOCKS * HUGE), 0);
	there = pages_as(self, mem, n, self->reached);
	EXPECT_EQ(there, self->aperture < BLOCKS * HUGE ? self->aperture / PAGE : n);
	EXPECT_EQ(there + pages_as(self, mem, n, EDU_HMM_RAM), n);
	EXPECT_EQ(pages_in_vram(mem, n), there);
	EXPECT_EQ(wrong(mem, BLOCKS * HUGE, 8), 0);
	for (int i = 0; i < BLOCKS; i++) {
		char *block = mem + i * HUGE;

		ASSERT_EQ(to_vram(self->gpu.drm, block, HUGE), 0);
		ASSERT_EQ(edu_fault(self, block, HUGE), 0);
		EXPECT_EQ(pages_as(self, block, HUGE / PAGE, self->reached), HUGE / PAGE);
		ASSERT_EQ(madvise(block, HUGE, MADV_DONTNEED), 0);
	}
}

TEST_HARNESS_MAIN
