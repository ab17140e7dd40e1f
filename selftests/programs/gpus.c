// SPDX-License-Identifier: GPL-2.0-only
/*
 * Two GPUs of two drivers: memory of this process is in VRAM of nouveau, on the model of a GP100
 * (selftests/models/pascal). xe, on that of a Battlemage (selftests/models/battlemage), reads and
 * writes it there. If xe does not reach the other GPU, the memory migrates to RAM.
 */
#include "xe.h"

#include <sys/wait.h>

#include "nouveau-migrate.h"

#define SEED 5

/* ---- nouveau, and the back door of its GPU (selftests/models/pascal/backdoor.h) ---- */

enum { GP_CHID, GP_OP = 4, GP_VA = 8, GP_LEN = 0x10, GP_STATUS = 0x14, GP_DATA = 0x1000 };
enum { GP_COPIED_BYTES = 0x800 + 9 * 8, GP_SIZE = 8 * 65536 };
enum { GP_LOAD = 1, GP_STORE };
enum { GP_BUSY = 1, GP_DONE };

struct nouveau {
	char bdf[BDF_SIZE];
	int drm;
	volatile uint8_t *door;
	unsigned int channel;
};

/* verb: bind or unbind. Return: the driver has done it. */
static bool driver(const char *name, const char *bdf, const char *verb)
{
	char path[64];

	snprintf(path, sizeof(path), "/sys/bus/pci/drivers/%s/%s", name, verb);
	return write_file(path, bdf);
}

static bool open_nouveau(struct nouveau *n)
{
	struct drm_nouveau_svm_init i = { (uintptr_t)HOLE, HOLE_SIZE };
	struct drm_nouveau_channel_alloc c = { .fb_ctxdma_handle = ~0U,
					       .tt_ctxdma_handle = NOUVEAU_FIFO_ENGINE_CE };
	char path[96];
	glob_t found;
	int fd;

	if (glob("/sys/bus/pci/drivers/nouveau/0*", 0, NULL, &found))
		return false;
	snprintf(n->bdf, BDF_SIZE, "%s", strrchr(found.gl_pathv[0], '/') + 1);
	globfree(&found);
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/drm/renderD*", n->bdf);
	if (glob(path, 0, NULL, &found))
		return false;
	snprintf(path, sizeof(path), "/dev/dri/%s", strrchr(found.gl_pathv[0], '/') + 1);
	globfree(&found);
	n->drm = open(path, O_RDWR | O_CLOEXEC);
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/resource5", n->bdf);
	fd = open(path, O_RDWR | O_SYNC);
	n->door = mmap(NULL, GP_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (n->drm < 0 || n->door == MAP_FAILED ||
	    mmap(HOLE, HOLE_SIZE, PROT_NONE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1,
		 0) != HOLE ||
	    ioctl(n->drm, DRM_IOCTL_NOUVEAU_SVM_INIT, &i) ||
	    ioctl(n->drm, DRM_IOCTL_NOUVEAU_CHANNEL_ALLOC, &c))
		return false;
	n->channel = c.channel;
	return true;
}

/* What the copy engine of nouveau has moved, in either direction. */
static uint64_t moved(struct nouveau *n)
{
	return get(n->door, GP_COPIED_BYTES) | (uint64_t)get(n->door, GP_COPIED_BYTES + 4) << 32;
}

/* op: GP_LOAD or GP_STORE, of a word, by the GPU of nouveau. */
static bool nouveau_word(struct nouveau *n, unsigned int op, void *va, uint32_t *val)
{
	put(n->door, GP_CHID, n->channel);
	put(n->door, GP_VA, (uintptr_t)va);
	put(n->door, GP_VA + 4, (uintptr_t)va >> 32);
	put(n->door, GP_LEN, 4);
	if (op == GP_STORE)
		put(n->door, GP_DATA, *val);
	put(n->door, GP_OP, op);
	for (int i = 0; i < 3000 && get(n->door, GP_STATUS) == GP_BUSY; i++)
		pause_ms(10);
	if (op == GP_LOAD)
		*val = get(n->door, GP_DATA);
	return get(n->door, GP_STATUS) == GP_DONE;
}

/* ---- both ---- */

FIXTURE(gpus)
{
	struct gpu xe;
	struct nouveau nouveau;
	char *mem, *huge, *ram;
	size_t size;
	bool reached;
};

static int madvise_xe(struct gpu *g, void *mem, size_t size, uint32_t type, uint32_t value)
{
	struct drm_xe_madvise m = { .start = (uintptr_t)mem,
				    .range = size,
				    .vm_id = g->vm,
				    .type = type };

	if (type == DRM_XE_MEM_RANGE_ATTR_ATOMIC)
		m.atomic.val = value;
	else
		m.preferred_mem_loc.devmem_fd = value;
	return ioctl(g->drm, DRM_IOCTL_XE_MADVISE, &m);
}

static int prefer(struct gpu *g, void *mem, size_t size, int where)
{
	return madvise_xe(g, mem, size, DRM_XE_MEM_RANGE_ATTR_PREFERRED_LOC, where);
}

FIXTURE_SETUP(gpus)
{
	const char *verdict = getenv("HMM_P2P_VERDICT");

	ASSERT_TRUE(open_gpu(&self->xe));
	ASSERT_TRUE(open_nouveau(&self->nouveau));
	ASSERT_TRUE(find_bar(self->nouveau.bdf, 1, &self->xe.peer, &self->xe.peer_end));
	self->reached = verdict && strcmp(verdict, "none");
	self->mem = self->xe.mem;
	self->size = NPAGES * PAGE;
	self->huge = map(HUGE, MADV_HUGEPAGE);
	self->ram = mmap(NULL, HUGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(self->huge, MAP_FAILED);
	ASSERT_NE(self->ram, MAP_FAILED);
	/* xe may map memory where it is, instead of migrating it to its own VRAM. */
	ASSERT_EQ(prefer(&self->xe, self->mem, self->size, DRM_XE_PREFERRED_LOC_DEFAULT_SYSTEM), 0);
	ASSERT_EQ(prefer(&self->xe, self->huge, HUGE, DRM_XE_PREFERRED_LOC_DEFAULT_SYSTEM), 0);
}

FIXTURE_TEARDOWN(gpus)
{
	close_gpu(_metadata, &self->xe);
	close(self->nouveau.drm);
}

/* Return: how many of these pages xe has mapped in the BAR of the other GPU. */
static size_t in_place(FIXTURE_DATA(gpus) *self, const char *mem, size_t n)
{
	size_t found = 0;
	uint64_t addr;

	for (size_t i = 0; i < n; i++, mem += PAGE) {
		uint32_t flags = walk(&self->xe, mem, &addr);

		found += flags & DOOR_VALID && !(flags & (DOOR_LOCAL | DOOR_ATOMIC)) &&
			 addr >= self->xe.peer && addr < self->xe.peer_end;
	}
	return found;
}

/* Puts memory with known data into VRAM of nouveau, and lets xe map it. */
static void map_it(struct __test_metadata *_metadata, FIXTURE_DATA(gpus) *self, char *mem,
		   size_t size)
{
	size_t n = size / PAGE;

	fill(mem, size, SEED);
	ASSERT_EQ(nouveau_to_vram(self->nouveau.drm, mem, size), 0);
	ASSERT_EQ(pages_in_vram(mem, n), n);
	ASSERT_EQ(gpu_copy(&self->xe, self->ram, mem, size), 0);
	ASSERT_EQ(wrong(self->ram, size, SEED), 0);
	ASSERT_EQ(pages_in_vram(mem, n), self->reached ? n : 0);
	ASSERT_EQ(in_place(self, mem, n), self->reached ? n : 0);
}

/*
 * xe reads and writes all of it. Nothing moves, and all bytes go between the devices. Then the CPU
 * takes the memory back, with what xe has written.
 */
static void read_write(struct __test_metadata *_metadata, FIXTURE_DATA(gpus) *self, char *mem,
		       size_t size)
{
	struct stats before = stats(self->xe.door), after;
	uint64_t copied, read, written;
	size_t n = size / PAGE, there, bad;

	fill(mem, size, SEED);
	ASSERT_EQ(nouveau_to_vram(self->nouveau.drm, mem, size), 0);
	ASSERT_EQ(pages_in_vram(mem, n), n);
	copied = moved(&self->nouveau);
	ASSERT_EQ(gpu_copy(&self->xe, self->ram, mem, size), 0);
	bad = wrong(self->ram, size, SEED);
	fill(self->ram, size, SEED + 1);
	ASSERT_EQ(gpu_copy(&self->xe, mem, self->ram, size), 0);
	copied = moved(&self->nouveau) - copied;
	after = stats(self->xe.door);
	read = after.peer_bytes_read - before.peer_bytes_read;
	written = after.peer_bytes_written - before.peer_bytes_written;
	there = pages_in_vram(mem, n);
	if (self->reached) {
		EXPECT_EQ(copied, 0);
		EXPECT_EQ(there, n);
		EXPECT_EQ(in_place(self, mem, n), n);
		EXPECT_GE(read, size);
		EXPECT_EQ(written, size);
		EXPECT_EQ(compare(&self->xe), 0);
	} else {
		EXPECT_EQ(there, 0);
		EXPECT_EQ(read + written, 0);
	}
	bad += wrong(mem, size, SEED + 1);
	EXPECT_EQ(bad, 0);
	EXPECT_EQ(in_place(self, mem, n), 0);
	printf("# gpus-table gpu=xe owner=nouveau pages=%zu read=%lu written=%lu ", n, read,
	       written);
	printf("vram=%zu copied=%lu data=%s\n", there, copied, bad ? "WRONG" : "verified");
}

TEST_F(gpus, small_pages)
{
	read_write(_metadata, self, self->mem, self->size);
}

TEST_F(gpus, huge_page)
{
	read_write(_metadata, self, self->huge, HUGE);
}

/* By prefetch to system memory, without a GPU fault. */
TEST_F(gpus, prefetch)
{
	size_t n = NPAGES;

	fill(self->mem, self->size, SEED);
	ASSERT_EQ(nouveau_to_vram(self->nouveau.drm, self->mem, self->size), 0);
	ASSERT_EQ(vm_bind(&self->xe, DRM_XE_VM_BIND_OP_PREFETCH, 0, (uintptr_t)self->mem,
			  self->size, 0), 0);
	/* The door looks at the address space of the last batch. */
	ASSERT_EQ(gpu_store(&self->xe, self->ram, 0), 0);
	EXPECT_EQ(in_place(self, self->mem, n), self->reached ? n : 0);
	EXPECT_EQ(pages_in_vram(self->mem, n), self->reached ? n : 0);
	EXPECT_EQ(wrong(self->mem, self->size, SEED), 0);
}

/* The GPUs see what the other one writes. */
TEST_F(gpus, both_write)
{
	uint32_t val = 11;

	map_it(_metadata, self, self->mem, self->size);
	for (int i = 0; i < 8; i++) {
		char *at = self->mem + i * PAGE + 64;

		ASSERT_TRUE(nouveau_word(&self->nouveau, GP_STORE, at, &val));
		ASSERT_EQ(gpu_copy(&self->xe, self->ram, at, 4), 0);
		EXPECT_EQ(*(uint32_t *)self->ram, val);
		ASSERT_EQ(gpu_store(&self->xe, at + 4, val + 1), 0);
		/* A read pushes the write, which may be on its way. */
		ASSERT_EQ(gpu_copy(&self->xe, self->ram, at, 8), 0);
		ASSERT_TRUE(nouveau_word(&self->nouveau, GP_LOAD, at + 4, &val));
		EXPECT_EQ(val, 12 + 2 * i);
		val++;
	}
	if (self->reached)
		EXPECT_EQ(pages_in_vram(self->mem, NPAGES), NPAGES);
}

/* If the preferred location is VRAM of xe, the memory migrates there. */
TEST_F(gpus, policy_is_vram)
{
	uint64_t addr;

	map_it(_metadata, self, self->mem, self->size);
	ASSERT_EQ(prefer(&self->xe, self->mem, self->size, DRM_XE_PREFERRED_LOC_DEFAULT_DEVICE), 0);
	ASSERT_EQ(to_vram(&self->xe, self->mem, self->size), 0);
	ASSERT_EQ(gpu_store(&self->xe, self->mem, pattern(0, SEED)), 0);
	for (size_t i = 0; i < NPAGES; i++)
		EXPECT_TRUE(walk(&self->xe, self->mem + i * PAGE, &addr) & DOOR_LOCAL);
	EXPECT_EQ(wrong(self->mem, self->size, SEED), 0);
}

/* A BAR takes no atomics: the page migrates to VRAM of xe. */
TEST_F(gpus, atomic)
{
	uint64_t addr;

	map_it(_metadata, self, self->mem, self->size);
	ASSERT_EQ(gpu_increment(&self->xe, self->mem + PAGE), 0);
	EXPECT_TRUE(walk(&self->xe, self->mem + PAGE, &addr) & DOOR_LOCAL);
	EXPECT_EQ(*(uint32_t *)(self->mem + PAGE), pattern(PAGE / 4, SEED) + 1);
}

/* Device atomics work in RAM: the memory migrates to there, also if it was mapped before. */
static void device_atomics(struct __test_metadata *_metadata, FIXTURE_DATA(gpus) *self, bool before)
{
	char *at = self->mem + PAGE;

	if (before) {
		map_it(_metadata, self, self->mem, self->size);
	} else {
		fill(self->mem, self->size, SEED);
		ASSERT_EQ(nouveau_to_vram(self->nouveau.drm, self->mem, self->size), 0);
	}
	ASSERT_EQ(madvise_xe(&self->xe, self->mem, self->size, DRM_XE_MEM_RANGE_ATTR_ATOMIC,
			     DRM_XE_ATOMIC_DEVICE), 0);
	ASSERT_EQ(gpu_increment(&self->xe, at), 0);
	EXPECT_FALSE(in_vram(at));
	EXPECT_EQ(in_place(self, at, 1), 0);
	EXPECT_EQ(*(uint32_t *)at, pattern(PAGE / 4, SEED) + 1);
}

TEST_F(gpus, device_atomics)
{
	device_atomics(_metadata, self, false);
}

TEST_F(gpus, device_atomics_later)
{
	device_atomics(_metadata, self, true);
}

/* xe touches one page. Out of reach, the pages of the same range migrate, at most 64 KiB. */
TEST_F(gpus, touched)
{
	char *at = self->mem + self->size / 2;

	fill(self->mem, self->size, SEED);
	ASSERT_EQ(nouveau_to_vram(self->nouveau.drm, self->mem, self->size), 0);
	ASSERT_EQ(gpu_store(&self->xe, at, pattern((at - self->mem) / 4, SEED)), 0);
	EXPECT_EQ(in_vram(at), self->reached);
	EXPECT_GE(pages_in_vram(self->mem, NPAGES), self->reached ? NPAGES : NPAGES - 16);
	EXPECT_EQ(wrong(self->mem, self->size, SEED), 0);
}

/* The CPU touches one page: it alone goes, and after it came back xe finds it again. */
TEST_F(gpus, one_page)
{
	char *at = self->mem + 3 * PAGE;

	map_it(_metadata, self, self->mem, self->size);
	*(volatile uint32_t *)at = 77;
	EXPECT_EQ(in_place(self, at, 1), 0);
	if (self->reached)
		EXPECT_EQ(pages_in_vram(self->mem, NPAGES), NPAGES - 1);
	ASSERT_EQ(gpu_store(&self->xe, at + 4, 78), 0);
	EXPECT_FALSE(in_vram(at));
	ASSERT_EQ(nouveau_to_vram(self->nouveau.drm, at, PAGE), 0);
	EXPECT_TRUE(in_vram(at));
	ASSERT_EQ(gpu_copy(&self->xe, self->ram, at, 8), 0);
	EXPECT_EQ(((uint32_t *)self->ram)[0], 77);
	EXPECT_EQ(((uint32_t *)self->ram)[1], 78);
	EXPECT_EQ(in_vram(at), self->reached);
}

/*
 * VRAM of xe itself is not reached through its own BAR. It migrates, if an address space has system
 * memory as its preferred location.
 */
TEST_F(gpus, own_pages)
{
	struct gpu other = {};

	ASSERT_TRUE(open_gpu(&other));
	fill(self->mem, self->size, SEED);
	ASSERT_EQ(to_vram(&self->xe, self->mem, self->size), 0);
	ASSERT_EQ(pages_in_vram(self->mem, NPAGES), NPAGES);
	ASSERT_EQ(prefer(&other, self->mem, self->size, DRM_XE_PREFERRED_LOC_DEFAULT_SYSTEM), 0);
	ASSERT_EQ(gpu_copy(&other, self->ram, self->mem, self->size), 0);
	EXPECT_EQ(wrong(self->ram, self->size, SEED), 0);
	EXPECT_EQ(pages_in_vram(self->mem, NPAGES), 0);
	close(other.drm);
	/* The teardown looks at the address space of the last batch. */
	ASSERT_EQ(gpu_store(&self->xe, self->ram, 0), 0);
}

/* ---- what the process does meanwhile ---- */

TEST_F(gpus, forked)
{
	int status;
	pid_t pid;

	map_it(_metadata, self, self->mem, self->size);
	pid = fork();
	if (!pid)
		_exit(!!wrong(self->mem, self->size, SEED));
	ASSERT_EQ(gpu_store(&self->xe, self->mem, 5), 0);
	ASSERT_EQ(waitpid(pid, &status, 0), pid);
	EXPECT_EQ(status, 0);
	EXPECT_EQ(*(uint32_t *)self->mem, 5);
}

/* After fork, xe writes for the child: the parent keeps its data, and the way to them. */
TEST_F(gpus, child_writes)
{
	int status;
	pid_t pid;

	map_it(_metadata, self, self->mem, self->size);
	pid = fork();
	if (!pid) {
		struct gpu own = { .drm = -1 };

		_exit(!open_gpu(&own) ||
		      prefer(&own, self->mem, self->size, DRM_XE_PREFERRED_LOC_DEFAULT_SYSTEM) ||
		      gpu_store(&own, self->mem + PAGE, 4711) ||
		      *(volatile uint32_t *)(self->mem + PAGE) != 4711);
	}
	ASSERT_EQ(waitpid(pid, &status, 0), pid);
	EXPECT_EQ(status, 0);
	ASSERT_EQ(gpu_copy(&self->xe, self->ram, self->mem, self->size), 0);
	EXPECT_EQ(wrong(self->ram, self->size, SEED), 0);
	EXPECT_EQ(wrong(self->mem, self->size, SEED), 0);
}

TEST_F(gpus, unmapped)
{
	map_it(_metadata, self, self->huge, HUGE);
	ASSERT_EQ(munmap(self->huge + HUGE / 2, HUGE / 2), 0);
	EXPECT_EQ(in_place(self, self->huge + HUGE / 2, HUGE / 2 / PAGE), 0);
	ASSERT_EQ(gpu_copy(&self->xe, self->ram, self->huge, HUGE / 2), 0);
	EXPECT_EQ(wrong(self->ram, HUGE / 2, SEED), 0);
}

TEST_F(gpus, read_only)
{
	map_it(_metadata, self, self->mem, self->size);
	ASSERT_EQ(mprotect(self->mem, self->size, PROT_READ), 0);
	EXPECT_NE(gpu_store(&self->xe, self->mem, 1), 0);
	EXPECT_EQ(wrong(self->mem, self->size, SEED), 0);
	/* The queue is dead: the rest is up to the teardown. */
}

struct mover {
	struct nouveau *nouveau;
	char *mem;
	size_t size;
	volatile bool stop;
};

/* Words that nobody writes, and the first word of each page, which xe writes. */
static void *move(void *arg)
{
	struct mover *m = arg;
	size_t bad = 0;

	for (unsigned int i = 0; !m->stop; i++) {
		char *at = m->mem + i % NPAGES * PAGE;

		if (nouveau_to_vram(m->nouveau->drm, m->mem, m->size))
			bad++;
		bad += *(volatile uint32_t *)(at + 128) !=
		       pattern((at + 128 - m->mem) / 4, SEED);
	}
	return (void *)bad;
}

/* Pages move between RAM and VRAM of nouveau while xe stores to them. */
TEST_F_TIMEOUT(gpus, moving, 120)
{
	struct mover m = { &self->nouveau, self->mem, self->size, false };
	pthread_t thread;
	void *bad;

	map_it(_metadata, self, self->mem, self->size);
	ASSERT_EQ(pthread_create(&thread, NULL, move, &m), 0);
	for (uint32_t i = 0; i < 200; i++) {
		volatile uint32_t *at = (void *)(self->mem + i % NPAGES * PAGE);

		ASSERT_EQ(gpu_store(&self->xe, at, i), 0);
		/* Every other time the CPU looks, and takes the page away. */
		if (i & 1)
			ASSERT_EQ(*at, i);
	}
	m.stop = true;
	pthread_join(thread, &bad);
	EXPECT_EQ(bad, NULL);
	for (uint32_t i = 200 - NPAGES; i < 200; i++)
		EXPECT_EQ(*(uint32_t *)(self->mem + i % NPAGES * PAGE), i);
}

/* Both GPUs take the memory from each other. */
TEST_F_TIMEOUT(gpus, tug_of_war, 120)
{
	map_it(_metadata, self, self->mem, self->size);
	for (uint32_t i = 0; i < 10; i++) {
		ASSERT_EQ(to_vram(&self->xe, self->mem, self->size), 0);
		ASSERT_EQ(gpu_store(&self->xe, self->mem + 8, i), 0);
		/* nouveau does not take pages of another GPU: the CPU fetches them. */
		ASSERT_EQ(*(uint32_t *)(self->mem + 8), i);
		ASSERT_EQ(nouveau_to_vram(self->nouveau.drm, self->mem, self->size), 0);
		ASSERT_EQ(gpu_store(&self->xe, self->mem + 12, i), 0);
		ASSERT_EQ(gpu_copy(&self->xe, self->ram, self->mem, self->size), 0);
		ASSERT_EQ(((uint32_t *)self->ram)[2], i);
		ASSERT_EQ(((uint32_t *)self->ram)[3], i);
	}
}

/* ---- unbinding ---- */

/* nouveau takes its memory back; xe then finds it in RAM. */
TEST_F_TIMEOUT(gpus, unbind_nouveau, 120)
{
	map_it(_metadata, self, self->mem, self->size);
	close(self->nouveau.drm);
	munmap((void *)self->nouveau.door, GP_SIZE);
	ASSERT_TRUE(driver("nouveau", self->nouveau.bdf, "unbind"));
	EXPECT_EQ(pages_in_vram(self->mem, NPAGES), 0);
	EXPECT_EQ(in_place(self, self->mem, NPAGES), 0);
	ASSERT_EQ(gpu_copy(&self->xe, self->ram, self->mem, self->size), 0);
	EXPECT_EQ(wrong(self->ram, self->size, SEED), 0);
	EXPECT_TRUE(driver("nouveau", self->nouveau.bdf, "bind"));
}

/* The memory stays where it is when the driver that has mapped it goes. */
TEST_F_TIMEOUT(gpus, unbind_xe, 120)
{
	char bdf[BDF_SIZE];

	ASSERT_TRUE(gpu_bdf(0, bdf));
	map_it(_metadata, self, self->mem, self->size);
	close(self->xe.drm);
	self->xe.drm = -1;
	munmap((void *)self->xe.door, DOOR_SIZE);
	ASSERT_TRUE(driver("xe", bdf, "unbind"));
	EXPECT_EQ(pages_in_vram(self->mem, NPAGES), self->reached ? NPAGES : 0);
	EXPECT_EQ(wrong(self->mem, self->size, SEED), 0);
	EXPECT_TRUE(driver("xe", bdf, "bind"));
	ASSERT_TRUE(open_gpu(&self->xe));
}

TEST_HARNESS_MAIN
