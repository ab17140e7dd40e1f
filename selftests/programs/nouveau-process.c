// SPDX-License-Identifier: GPL-2.0-only
/*
 * A process changes its memory while the memory is in VRAM, on the model of a GP100
 * (selftests/models/pascal). Each test ends with a comparison of the page tables of the GPU and of
 * the process.
 */
#include "nouveau.h"
#include "pagemap-scan.h"
#include "pager.h"

FIXTURE(process)
{
	struct gpu gpu;
};

FIXTURE_SETUP(process)
{
	ASSERT_TRUE(open_gpu(&self->gpu));
}

FIXTURE_TEARDOWN(process)
{
	close_gpu(_metadata, &self->gpu);
}

/* ---- sizes ---- */

/*
 * Ranges that begin and end near borders of small and big pages of the GPU and of huge pages. All
 * requested pages move, and all pages around them stay.
 */
static void sizes(struct __test_metadata *_metadata, struct gpu *g, int advice)
{
	/* pages: from, how many */
	static const size_t parts[][2] = { { 0, 1 },   { 0, 512 }, { 1, 15 },	 { 1, 512 },
					   { 15, 2 },  { 16, 16 }, { 511, 2 }, { 511, 514 },
					   { 512, 513 } };
	size_t all = 3 * HUGE;
	char *mem = map(all, advice);

	ASSERT_NE(mem, MAP_FAILED);
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		char *from = mem + parts[i][0] * PAGE;
		size_t n = parts[i][1];

		ASSERT_EQ(madvise(mem, all, MADV_DONTNEED), 0);
		fill(mem, all, i);
		ASSERT_EQ(nouveau_to_vram(g->drm, from, n * PAGE), 0);
		EXPECT_EQ(pages_in_vram(from, n), n);
		EXPECT_EQ(pages_in_vram(mem, all / PAGE), n);
		ASSERT_EQ(compare(g), 0);
		ASSERT_EQ(wrong(mem, all, i), 0);
	}
}

TEST_F_TIMEOUT(process, sizes, 120)
{
	sizes(_metadata, &self->gpu, MADV_NOHUGEPAGE);
}

TEST_F_TIMEOUT(process, sizes_huge, 120)
{
	sizes(_metadata, &self->gpu, MADV_HUGEPAGE);
}

/* ---- mremap() ---- */

/* Memory keeps its place in VRAM, and the GPU finds it only at the new address. */
static void remap(struct __test_metadata *_metadata, struct gpu *g, char *mem, size_t size,
		  size_t offset)
{
	char *room = map(size + 2 * HUGE, MADV_NOHUGEPAGE), *to = room + offset;
	uint64_t addr = 0, before = 0;

	ASSERT_NE(room, MAP_FAILED);
	fill(mem, size, 4);
	ASSERT_EQ(nouveau_to_vram(g->drm, mem, size), 0);
	ASSERT_EQ(gpu(g, DOOR_LOAD, mem + PAGE, 4), DOOR_DONE);
	ASSERT_EQ(walk(g, mem + PAGE, &before) & (DOOR_VALID | DOOR_SYSTEM), DOOR_VALID);
	ASSERT_EQ(mremap(mem, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, to), to);
	EXPECT_EQ(pages_in_vram(to, size / PAGE), size / PAGE);
	EXPECT_EQ(walk(g, mem + PAGE, &addr) & DOOR_VALID, 0);
	ASSERT_EQ(gpu(g, DOOR_LOAD, to + PAGE, 4), DOOR_DONE);
	EXPECT_EQ(door_word(g, 0), pattern(PAGE / 4, 4));
	EXPECT_EQ(walk(g, to + PAGE, &addr) & (DOOR_VALID | DOOR_SYSTEM), DOOR_VALID);
	EXPECT_EQ(addr, before);
	ASSERT_EQ(compare(g), 0);
	/* The GPU stores, and a part of the memory moves back. */
	put(g->door, DOOR_DATA, 4711);
	ASSERT_EQ(gpu(g, DOOR_STORE, to, 4), DOOR_DONE);
	ASSERT_EQ(mremap(to, size / 2, size / 2, MREMAP_MAYMOVE | MREMAP_FIXED, mem), mem);
	EXPECT_EQ(pages_in_vram(mem, size / 2 / PAGE), size / 2 / PAGE);
	ASSERT_EQ(compare(g), 0);
	EXPECT_EQ(*(uint32_t *)mem, 4711);
	*(uint32_t *)mem = pattern(0, 4);
	EXPECT_EQ(wrong(mem, size / 2, 4), 0);
	for (size_t i = size / 2 / 4; i < size / 4; i++)
		ASSERT_EQ(((uint32_t *)to)[i], pattern(i, 4));
}

TEST_F(process, remapped)
{
	remap(_metadata, &self->gpu, self->gpu.mem, NPAGES * PAGE, PAGE);
}

TEST_F(process, remapped_huge)
{
	char *mem = map(HUGE, MADV_HUGEPAGE);

	ASSERT_NE(mem, MAP_FAILED);
	remap(_metadata, &self->gpu, mem, HUGE, HUGE);
}

/* Where the new address cannot have a huge page, small pages map the memory. */
TEST_F(process, remapped_huge_askew)
{
	char *mem = map(HUGE, MADV_HUGEPAGE);

	ASSERT_NE(mem, MAP_FAILED);
	remap(_metadata, &self->gpu, mem, HUGE, 3 * PAGE);
}

/* ---- userfaultfd ---- */

/*
 * The process itself provides the pages. A fault of the GPU waits for them. A missing page does not
 * move, because VRAM would get zeroes instead of the data of the process.
 */
TEST_F(process, userfault_missing)
{
	struct gpu *g = &self->gpu;
	char *mem = map(8 * PAGE, MADV_NOHUGEPAGE);
	struct pager p;
	pthread_t thread;

	ASSERT_NE(mem, MAP_FAILED);
	ASSERT_TRUE(userfault(&p, mem, 8 * PAGE, PAGE, &thread));
	ASSERT_EQ(gpu(g, DOOR_LOAD, mem + 3 * PAGE, 4), DOOR_DONE);
	EXPECT_EQ(door_word(g, 0), pattern(0, 3));
	EXPECT_EQ(p.missing, 1);
	ASSERT_EQ(nouveau_to_vram(g->drm, mem, 8 * PAGE), 0);
	EXPECT_EQ(pages_in_vram(mem, 8), 1);
	put(g->door, DOOR_DATA, 4711);
	ASSERT_EQ(gpu(g, DOOR_STORE, mem + 5 * PAGE, 4), DOOR_DONE);
	EXPECT_EQ(p.missing, 2);
	stored_in(_metadata, &p, 8, 5);
}

/* A store of the GPU to write-protected memory waits until the process allows it, in VRAM, too. */
static void write_protected(struct __test_metadata *_metadata, struct gpu *g, char *mem,
			    size_t size, size_t unit)
{
	struct pager p;
	pthread_t thread;

	fill(mem, size, 1);
	ASSERT_TRUE(userfault(&p, mem, size, unit, &thread));
	for (int i = 0; i < 3; i++) {
		if (i < 2)
			ASSERT_EQ(nouveau_to_vram(g->drm, mem, size), 0);
		if (i == 1)	/* the GPU can write it now */
			ASSERT_EQ(gpu(g, DOOR_STORE, mem + PAGE, 4), DOOR_DONE);
		ASSERT_EQ(write_protect(&p, mem, size), 0);
		if (i == 2)	/* it moves as it is */
			ASSERT_EQ(nouveau_to_vram(g->drm, mem, size), 0);
		ASSERT_EQ(pages_in_vram(mem, size / PAGE), size / PAGE);
		ASSERT_EQ(compare(g), 0);
		ASSERT_EQ(gpu(g, DOOR_LOAD, mem + PAGE, 4), DOOR_DONE);
		EXPECT_EQ(p.protect, i);
		put(g->door, DOOR_DATA, 4711 + i);
		ASSERT_EQ(gpu(g, DOOR_STORE, mem + PAGE, 4), DOOR_DONE);
		EXPECT_EQ(p.protect, i + 1);
		EXPECT_EQ(((uint32_t *)mem)[PAGE / 4], 4711 + i);
		/* Now a store of the CPU, which is the usual case. */
		ASSERT_EQ(nouveau_to_vram(g->drm, mem, size), 0);
		((uint32_t *)mem)[PAGE / 4] = pattern(PAGE / 4, 1);
		put(g->door, DOOR_DATA, pattern(PAGE / 4, 1));
		ASSERT_EQ(ioctl(p.fd, UFFDIO_WRITEPROTECT,
				&(struct uffdio_writeprotect){ { (uintptr_t)mem, size }, 0 }),
			  0);
		EXPECT_EQ(p.protect, i + 1);
		EXPECT_EQ(wrong(mem, size, 1), 0);
	}
	EXPECT_EQ(p.missing, 0);
}

TEST_F(process, userfault_protected)
{
	write_protected(_metadata, &self->gpu, self->gpu.mem, NPAGES * PAGE, PAGE);
}

TEST_F(process, userfault_protected_huge)
{
	char *mem = map(HUGE, MADV_HUGEPAGE);

	ASSERT_NE(mem, MAP_FAILED);
	write_protected(_metadata, &self->gpu, mem, HUGE, HUGE);
}

/* How many ranges of the memory were written. They are write-protected now, if the flags say so. */
static int scan_written(char *mem, size_t size, uint64_t flags)
{
	struct page_region ranges[8];
	struct pm_scan_arg scan = {
		.size = sizeof(scan),
		.flags = flags,
		.start = (uintptr_t)mem,
		.end = (uintptr_t)mem + size,
		.vec = (uintptr_t)ranges,
		.vec_len = 8,
		.category_mask = PAGE_IS_WRITTEN,
		.return_mask = PAGE_IS_WRITTEN,
	};
	int fd = open("/proc/self/pagemap", O_RDONLY), ret = ioctl(fd, PAGEMAP_SCAN, &scan);

	close(fd);
	return ret;
}

/* PAGEMAP_SCAN can watch the memory. Return: the file that has to stay open, or -1 */
static int watch(char *mem, size_t size)
{
	struct uffdio_api api = {
		.api = UFFD_API,
		.features = UFFD_FEATURE_WP_ASYNC | UFFD_FEATURE_WP_UNPOPULATED,
	};
	struct uffdio_register range = {
		.range = { (uintptr_t)mem, size },
		.mode = UFFDIO_REGISTER_MODE_WP,
	};
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC);

	fill(mem, size, 1);
	return ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &range) ? -1 : fd;
}

/* PAGEMAP_SCAN protects memory while it moves to VRAM. It stays so there, and on the way back. */
static void scan_moving(struct __test_metadata *_metadata, struct gpu *g, char *mem, size_t size)
{
	struct move m = { g->drm, mem, size, -1 };
	int fd = watch(mem, size);
	pthread_t thread;

	ASSERT_GE(fd, 0);
	put(g->door, DOOR_HOLD, 1);
	ASSERT_EQ(pthread_create(&thread, NULL, nouveau_move, &m), 0);
	pause_ms(500);
	EXPECT_EQ(m.ret, -1);
	EXPECT_EQ(scan_written(mem, size, PM_SCAN_WP_MATCHING), 1);
	put(g->door, DOOR_HOLD, 0);
	ASSERT_EQ(pthread_join(thread, NULL), 0);
	EXPECT_EQ(pages_in_vram(mem, size / PAGE), size / PAGE);
	EXPECT_EQ(scan_written(mem, size, 0), 0);
	EXPECT_EQ(wrong(mem, size, 1), 0);
	EXPECT_EQ(pages_in_vram(mem, size / PAGE), 0);
	EXPECT_EQ(scan_written(mem, size, 0), 0);
	close(fd);
}

TEST_F(process, scan_moving)
{
	scan_moving(_metadata, &self->gpu, self->gpu.mem, NPAGES * PAGE);
}

TEST_F(process, scan_moving_huge)
{
	char *mem = map(HUGE, MADV_HUGEPAGE);

	ASSERT_NE(mem, MAP_FAILED);
	scan_moving(_metadata, &self->gpu, mem, HUGE);
}

/* The GPU can write to its memory. After PAGEMAP_SCAN has protected it, a store is reported. */
static void scan_store(struct __test_metadata *_metadata, struct gpu *g, char *mem, size_t size)
{
	int fd = watch(mem, size);

	ASSERT_GE(fd, 0);
	ASSERT_EQ(nouveau_to_vram(g->drm, mem, size), 0);
	put(g->door, DOOR_DATA, pattern(0, 1));
	ASSERT_EQ(gpu(g, DOOR_STORE, mem, 4), DOOR_DONE);
	EXPECT_EQ(pages_in_vram(mem, size / PAGE), size / PAGE);
	EXPECT_EQ(scan_written(mem, size, PM_SCAN_WP_MATCHING), 1);
	ASSERT_EQ(gpu(g, DOOR_LOAD, mem, 4), DOOR_DONE);
	EXPECT_EQ(pages_in_vram(mem, size / PAGE), size / PAGE);
	EXPECT_EQ(scan_written(mem, size, 0), 0);
	put(g->door, DOOR_DATA, 4711);
	ASSERT_EQ(gpu(g, DOOR_STORE, mem, 4), DOOR_DONE);
	EXPECT_EQ(scan_written(mem, size, 0), 1);
	EXPECT_EQ(*(uint32_t *)mem, 4711);
	close(fd);
}

TEST_F(process, scan_store)
{
	scan_store(_metadata, &self->gpu, self->gpu.mem, NPAGES * PAGE);
}

TEST_F(process, scan_store_huge)
{
	char *mem = map(HUGE, MADV_HUGEPAGE);

	ASSERT_NE(mem, MAP_FAILED);
	scan_store(_metadata, &self->gpu, mem, HUGE);
}

/* ---- the end of a process ---- */

/* The process is killed while its memory moves to VRAM. Afterwards others can use that VRAM. */
TEST_F(process, killed)
{
	struct gpu *g = &self->gpu, other;
	int there[2], status;
	pid_t child;
	char c;

	ASSERT_EQ(pipe(there), 0);
	child = fork();
	ASSERT_GE(child, 0);
	if (!child) {
		if (munmap(HOLE, HOLE_SIZE) || !open_gpu(&other) ||
		    nouveau_to_vram(other.drm, other.mem, NPAGES / 2 * PAGE))
			_exit(1);
		put(g->door, DOOR_HOLD, 1);
		other.door += DOOR_SIZE;
		begin(&other, DOOR_LOAD, other.mem, NPAGES * PAGE / 2);
		if (write(there[1], "t", 1) != 1)
			_exit(1);
		nouveau_to_vram(other.drm, other.mem + NPAGES / 2 * PAGE, NPAGES / 2 * PAGE);
		_exit(2);
	}
	ASSERT_EQ(read(there[0], &c, 1), 1);
	pause_ms(300);
	ASSERT_EQ(kill(child, SIGKILL), 0);
	pause_ms(300);
	/* Its pages must not be freed before the GPU has copied them. */
	EXPECT_EQ(waitpid(child, &status, WNOHANG), 0);
	put(g->door, DOOR_HOLD, 0);
	ASSERT_EQ(waitpid(child, &status, 0), child);
	EXPECT_TRUE(WIFSIGNALED(status));
	ASSERT_EQ(nouveau_to_vram(g->drm, g->mem, NPAGES * PAGE), 0);
	EXPECT_EQ(pages_in_vram(g->mem, NPAGES), NPAGES);
	EXPECT_EQ(wrong(g->mem, NPAGES * PAGE, 1), 0);
}

/*
 * The process is killed while the driver handles a fault of the GPU: the handler waits for a page
 * that nobody provides. When the page comes, the process and its address space of the GPU are gone.
 */
TEST_F(process, killed_in_fault)
{
	struct gpu *g = &self->gpu, other;
	int there[2], status, pidfd, uffd;
	static char page[PAGE] __attribute__((aligned(PAGE)));
	struct { int uffd; char *mem; } at;
	struct uffd_msg m;
	struct pager p;
	pid_t child;

	ASSERT_EQ(pipe(there), 0);
	child = fork();
	ASSERT_GE(child, 0);
	if (!child) {
		at.mem = map(PAGE, MADV_NOHUGEPAGE);
		if (munmap(HOLE, HOLE_SIZE) || at.mem == MAP_FAILED || !open_gpu(&other) ||
		    !userfault(&p, at.mem, PAGE, PAGE, NULL))
			_exit(1);
		begin(&other, DOOR_LOAD, at.mem, 4);
		at.uffd = p.fd;
		/* The handler waits once there is a message for the pager. */
		if (read(p.fd, &m, sizeof(m)) != sizeof(m) ||
		    write(there[1], &at, sizeof(at)) != sizeof(at))
			_exit(2);
		pause();
	}
	ASSERT_EQ(read(there[0], &at, sizeof(at)), (ssize_t)sizeof(at));
	pidfd = syscall(SYS_pidfd_open, child, 0);
	uffd = syscall(SYS_pidfd_getfd, pidfd, at.uffd, 0);
	ASSERT_GE(uffd, 0);
	ASSERT_EQ(kill(child, SIGKILL), 0);
	ASSERT_EQ(waitpid(child, &status, 0), child);
	EXPECT_TRUE(WIFSIGNALED(status));
	EXPECT_EQ(ioctl(uffd, UFFDIO_COPY,
			&(struct uffdio_copy){ .dst = (uintptr_t)at.mem, .src = (uintptr_t)page,
					       .len = PAGE }),
		  0);
	close(uffd);
	close(pidfd);
	/* The handler is free again: it handles a fault of this process. */
	ASSERT_EQ(gpu(g, DOOR_LOAD, g->mem, 4), DOOR_DONE);
	EXPECT_EQ(door_word(g, 0), pattern(0, 1));
}

/* The same, but only the process itself has its userfaultfd. Nobody else can end the fault. */
TEST_F(process, killed_pager)
{
	struct gpu *g = &self->gpu, other;
	int there[2], status = 0;
	struct uffd_msg m;
	struct pager p;
	pid_t child, ended = 0;
	char *mem;

	ASSERT_EQ(pipe(there), 0);
	child = fork();
	ASSERT_GE(child, 0);
	if (!child) {
		mem = map(PAGE, MADV_NOHUGEPAGE);
		if (munmap(HOLE, HOLE_SIZE) || mem == MAP_FAILED ||
		    !userfault(&p, mem, PAGE, PAGE, NULL) || !open_gpu(&other))
			_exit(1);
		begin(&other, DOOR_LOAD, mem, 4);
		if (read(p.fd, &m, sizeof(m)) != sizeof(m) || write(there[1], "", 1) != 1)
			_exit(2);
		pause();
	}
	ASSERT_EQ(read(there[0], &status, 1), 1);
	ASSERT_EQ(kill(child, SIGKILL), 0);
	for (int i = 0; i < 100 && !ended; i++) {
		pause_ms(100);
		ended = waitpid(child, &status, WNOHANG);
	}
	ASSERT_EQ(ended, child);
	EXPECT_TRUE(WIFSIGNALED(status));
	ASSERT_EQ(gpu(g, DOOR_LOAD, g->mem, 4), DOOR_DONE);
	EXPECT_EQ(door_word(g, 0), pattern(0, 1));
}

/*
 * The machine shall sleep while the handler of GPU faults waits for a page that the process
 * provides. The process is frozen first, so the machine must stay awake.
 */
TEST_F(process, sleep_in_fault)
{
	struct gpu *g = &self->gpu;
	char *mem = map(PAGE, MADV_NOHUGEPAGE);
	struct uffd_msg m;
	struct pager p;

	ASSERT_NE(mem, MAP_FAILED);
	ASSERT_TRUE(userfault(&p, mem, PAGE, PAGE, NULL));
	ASSERT_TRUE(write_file("/sys/power/pm_freeze_timeout", "1000"));
	ASSERT_TRUE(write_file("/sys/module/suspend/parameters/pm_test_delay", "0"));
	ASSERT_TRUE(write_file("/sys/power/pm_test", "devices"));
	begin(g, DOOR_LOAD, mem, 4);
	ASSERT_EQ(read(p.fd, &m, sizeof(m)), (ssize_t)sizeof(m));
	EXPECT_FALSE(write_file("/sys/power/state", "freeze"));
	EXPECT_EQ(errno, EBUSY);
	/* The process goes on, and provides the page. */
	EXPECT_EQ(ioctl(p.fd, UFFDIO_ZEROPAGE,
			&(struct uffdio_zeropage){ .range = { (uintptr_t)mem, PAGE } }),
		  0);
	EXPECT_EQ(finish(g), DOOR_DONE);
	/* A fault that was handled does not keep the machine awake. */
	EXPECT_TRUE(write_file("/sys/power/state", "freeze"));
	ASSERT_EQ(gpu(g, DOOR_LOAD, g->mem, 4), DOOR_DONE);
	EXPECT_EQ(door_word(g, 0), pattern(0, 1));
}

/* Memory that nobody may access stays where it is: it would only take VRAM. */
TEST_F(process, inaccessible)
{
	struct gpu *g = &self->gpu;

	ASSERT_EQ(mprotect(g->mem, NPAGES / 2 * PAGE, PROT_NONE), 0);
	ASSERT_EQ(nouveau_to_vram(g->drm, g->mem, NPAGES * PAGE), 0);
	EXPECT_EQ(pages_in_vram(g->mem, NPAGES), NPAGES / 2);
	ASSERT_EQ(nouveau_to_vram(g->drm, HOLE, HUGE), 0);
	EXPECT_EQ(pages_in_vram(HOLE, HUGE / PAGE), 0);
	ASSERT_EQ(mprotect(g->mem, NPAGES / 2 * PAGE, PROT_READ | PROT_WRITE), 0);
	EXPECT_EQ(wrong(g->mem, NPAGES * PAGE, 1), 0);
}

/* ---- faults ---- */

/* More faults than the buffer has room for. None is forgotten. */
TEST_F(process, faults_overflow)
{
	struct gpu *g = &self->gpu, client[DOOR_CLIENTS];
	struct stats before = stats(g->door), after;

	/* The driver is busy with the first one while the others come. */
	put(g->door, DOOR_SLOW, 200);
	put(g->door, DOOR_AGAIN, 60);
	for (int i = 0; i < DOOR_CLIENTS; i++) {
		client[i] = *g;
		client[i].door += i * DOOR_SIZE;
		begin(&client[i], DOOR_LOAD, g->mem + i * PAGE, 4);
	}
	put(g->door, DOOR_SLOW, 0);
	for (int i = 0; i < DOOR_CLIENTS; i++) {
		EXPECT_EQ(finish(&client[i]), DOOR_DONE);
		EXPECT_EQ(door_word(&client[i], 0), pattern(i * PAGE / 4, 1));
	}
	put(g->door, DOOR_AGAIN, 0);
	after = stats(g->door);
	EXPECT_GT(after.faults_lost, before.faults_lost);
}

/* The valid bit of an entry comes later than the entry. */
TEST_F(process, faults_late)
{
	struct gpu *g = &self->gpu;

	put(g->door, DOOR_LATE, 100);
	ASSERT_EQ(gpu(g, DOOR_LOAD, g->mem, 4), DOOR_DONE);
	EXPECT_EQ(door_word(g, 0), pattern(0, 1));
	put(g->door, DOOR_LATE, 0);
}

/* ---- all of it at once ---- */

#define SMALL	64
#define LARGE	2
#define ALL	(SMALL + LARGE * 512)

struct mix {
	struct gpu *gpu;
	char *mem;		/* SMALL small pages, then LARGE huge ones */
	char *spare;		/* as much, where parts of it are for a while */
	uint64_t random;
	bool disturbed;
	uint32_t seed[ALL];	/* 0: zeroes */
	pthread_mutex_t lock;	/* addresses are not to be mapped for a while */
};

static uint32_t rnd(uint64_t *state, uint32_t n)
{
	*state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (*state >> 33) % n;
}

/* Part of one of the mappings: none goes over the end. */
static size_t part(uint64_t *random, size_t *n)
{
	size_t at = rnd(random, 3) ? rnd(random, SMALL) : SMALL + rnd(random, LARGE * 512), room;

	room = at < SMALL ? SMALL - at : ALL - at;
	*n = rnd(random, 4) ? 1 + rnd(random, 16) : 1 + rnd(random, 600);
	*n = *n < room ? *n : room;
	return at;
}

static uint32_t word(const struct mix *m, size_t page, int i)
{
	return m->seed[page] ? pattern(i, m->seed[page]) : 0;
}

/* The words of a page that have its pattern. */
static const int places[] = { 0, 517, 1023 };

static size_t page_wrong(const struct mix *m, const char *mem, size_t page)
{
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(places); i++)
		n += ((const volatile uint32_t *)mem)[page * PAGE / 4 + places[i]] !=
		     word(m, page, places[i]);
	return n;
}

/* One thing that a process does. Return: what is wrong afterwards. */
static const char *act(struct mix *m)
{
	size_t n, at = part(&m->random, &n);
	char *mem = m->mem + at * PAGE, *spare = m->spare + at * PAGE;
	struct gpu *g = m->gpu;
	const char *bad = NULL;
	pid_t child;
	int status;

	switch (rnd(&m->random, 12)) {
	case 0:
	case 1:
	case 2:
		return nouveau_to_vram(g->drm, mem, n * PAGE) ? "to_vram" : NULL;
	case 3:
		for (size_t p = at; p < at + n; p++)
			if (page_wrong(m, m->mem, p))
				return "page of the CPU";
		return NULL;
	case 4:
		m->seed[at] = m->random | 1;
		for (size_t i = 0; i < ARRAY_SIZE(places); i++)
			((volatile uint32_t *)mem)[places[i]] = word(m, at, places[i]);
		return NULL;
	case 5:
		m->seed[at] = m->random | 1;
		for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
			put(g->door, DOOR_DATA, word(m, at, places[i]));
			if (gpu(g, DOOR_STORE, mem + 4 * places[i], 4) != DOOR_DONE)
				return "store of the GPU";
		}
		return NULL;
	case 6:
	case 7:
		for (size_t i = 0; i < ARRAY_SIZE(places); i++)
			if (gpu(g, DOOR_LOAD, mem + 4 * places[i], 4) != DOOR_DONE ||
			    door_word(g, 0) != word(m, at, places[i]))
				return "load of the GPU";
		return NULL;
	case 8:
		memset(m->seed + at, 0, n * sizeof(*m->seed));
		return madvise(mem, n * PAGE, MADV_DONTNEED) ? "madvise" : NULL;
	case 9:
		if (mprotect(mem, n * PAGE, PROT_READ) ||
		    (rnd(&m->random, 2) && nouveau_to_vram(g->drm, mem, n * PAGE)) ||
		    mprotect(mem, n * PAGE, PROT_READ | PROT_WRITE))
			return "mprotect";
		return NULL;
	case 10:
		pthread_mutex_lock(&m->lock);
		if (mremap(mem, n * PAGE, n * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, spare) != spare)
			bad = "mremap";
		else if (rnd(&m->random, 2))
			nouveau_to_vram(g->drm, spare, n * PAGE);
		if (!bad && page_wrong(m, m->spare, at))
			bad = "page at another address";
		if (!bad &&
		    mremap(spare, n * PAGE, n * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, mem) != mem)
			bad = "mremap back";
		pthread_mutex_unlock(&m->lock);
		return bad;
	}
	child = fork();
	if (!child) {
		for (size_t p = at; p < at + n; p++)
			if (page_wrong(m, m->mem, p))
				_exit(1);
		_exit(0);
	}
	/* Meanwhile it is written here. */
	m->seed[at] = m->random | 1;
	for (size_t i = 0; i < ARRAY_SIZE(places); i++)
		((volatile uint32_t *)mem)[places[i]] = word(m, at, places[i]);
	return child < 0 || waitpid(child, &status, 0) != child || status ? "child" : NULL;
}

static bool mix_up(struct mix *m, struct gpu *g)
{
	*m = (struct mix){ .gpu = g, .random = 1, .lock = PTHREAD_MUTEX_INITIALIZER };
	/* Both parts begin at a huge page. */
	m->mem = map(HUGE + LARGE * HUGE, MADV_HUGEPAGE);
	m->spare = map(HUGE + LARGE * HUGE, MADV_HUGEPAGE);
	if (m->mem == MAP_FAILED || m->spare == MAP_FAILED)
		return false;
	m->mem += HUGE - SMALL * PAGE;
	m->spare += HUGE - SMALL * PAGE;
	return !madvise(m->mem, SMALL * PAGE, MADV_NOHUGEPAGE);
}

static void run(struct __test_metadata *_metadata, struct mix *m, int steps)
{
	const char *bad;

	for (int i = 0; i < steps; i++) {
		put(m->gpu->door, DOOR_BACKWARDS, rnd(&m->random, 2));
		put(m->gpu->door, DOOR_AGAIN, rnd(&m->random, 3));
		put(m->gpu->door, DOOR_SLOW, rnd(&m->random, 2));
		put(m->gpu->door, DOOR_DELAY, rnd(&m->random, 4) ? 0 : 4);
		bad = act(m);
		ASSERT_EQ(bad, NULL)
		TH_LOG("step %d: %s", i, bad);
		if (m->disturbed || i % 16)
			continue;
		ASSERT_EQ(compare(m->gpu), 0)
		TH_LOG("step %d", i);
	}
}

static void all_right(struct __test_metadata *_metadata, struct mix *m)
{
	ASSERT_EQ(compare(m->gpu), 0);
	for (size_t p = 0; p < ALL; p++) {
		ASSERT_EQ(page_wrong(m, m->mem, p), 0)
		TH_LOG("page %zu", p);
	}
}

/* A process changes its memory in an order that depends on the seed alone. */
TEST_F_TIMEOUT(process, mixed, 300)
{
	static struct mix m;

	ASSERT_TRUE(mix_up(&m, &self->gpu));
	run(_metadata, &m, 300);
	all_right(_metadata, &m);
}

static void *disturb(void *arg)
{
	struct mix *m = arg;
	struct gpu g = *m->gpu;
	uint64_t random = 2;
	size_t at, n;

	g.door += DOOR_SIZE;
	while (__atomic_load_n(&m->disturbed, __ATOMIC_RELAXED)) {
		at = part(&random, &n);
		nouveau_to_vram(g.drm, m->mem + at * PAGE, n * PAGE);
		at = part(&random, &n);
		pthread_mutex_lock(&m->lock);
		if (gpu(&g, DOOR_LOAD, m->mem + at * PAGE, 4) != DOOR_DONE)
			printf("# disturb: load of page %zu failed\n", at);
		pthread_mutex_unlock(&m->lock);
	}
	return NULL;
}

/* The same while another thread moves all of it to VRAM all the time, and the GPU loads. */
TEST_F_TIMEOUT(process, mixed_races, 300)
{
	static struct mix m;
	pthread_t thread;

	ASSERT_TRUE(mix_up(&m, &self->gpu));
	m.disturbed = true;
	ASSERT_EQ(pthread_create(&thread, NULL, disturb, &m), 0);
	run(_metadata, &m, 150);
	__atomic_store_n(&m.disturbed, false, __ATOMIC_RELAXED);
	ASSERT_EQ(pthread_join(thread, NULL), 0);
	all_right(_metadata, &m);
}

/* ---- more memory than VRAM (part "full" of the suite, with little of it) ---- */

FIXTURE(full)
{
	struct gpu gpu;
	size_t size, blocks;	/* of memory: all of VRAM and more */
	char *mem;
};

/* The page of a block that has something in it. */
static char *in_block(FIXTURE_DATA(full) *self, size_t i)
{
	return self->mem + i * HUGE + i % 512 * PAGE;
}

FIXTURE_SETUP(full)
{
	struct drm_nouveau_getparam p = { .param = NOUVEAU_GETPARAM_FB_SIZE };

	ASSERT_TRUE(open_gpu(&self->gpu));
	ASSERT_EQ(ioctl(self->gpu.drm, DRM_IOCTL_NOUVEAU_GETPARAM, &p), 0);
	self->blocks = p.value / HUGE + 32;
	self->size = self->blocks * HUGE;
	self->mem = map(self->size, MADV_HUGEPAGE);
	ASSERT_NE(self->mem, MAP_FAILED);
	for (size_t i = 0; i < self->blocks; i++)
		fill(in_block(self, i), 64, i);
}

FIXTURE_TEARDOWN(full)
{
	close_gpu(_metadata, &self->gpu);
}

/* Memory moves until VRAM is full. The rest moves when other memory has left. No data are lost. */
TEST_F_TIMEOUT(full, huge, 120)
{
	struct gpu *g = &self->gpu;
	size_t there, first = 0, last;

	ASSERT_EQ(nouveau_to_vram(g->drm, self->mem, self->size), 0);
	there = pages_in_vram(self->mem, self->size / PAGE);
	EXPECT_GE(there, self->size / PAGE / 4);
	EXPECT_LT(there, self->size / PAGE);
	EXPECT_EQ(there % 512, 0);
	EXPECT_EQ(compare(g), 0);
	while (!in_vram(self->mem + first * HUGE))
		first++;
	for (last = self->blocks - 1; in_vram(self->mem + last * HUGE); last--)
		;
	/* The GPU reaches both. */
	for (size_t i = first;; i = last) {
		ASSERT_EQ(gpu(g, DOOR_LOAD, in_block(self, i), 4), DOOR_DONE);
		EXPECT_EQ(door_word(g, 0), pattern(0, i));
		if (i == last)
			break;
	}
	ASSERT_EQ(nouveau_to_vram(g->drm, self->mem + last * HUGE, HUGE), 0);
	EXPECT_FALSE(in_vram(self->mem + last * HUGE));
	ASSERT_EQ(madvise(self->mem + first * HUGE, HUGE, MADV_DONTNEED), 0);
	ASSERT_EQ(nouveau_to_vram(g->drm, self->mem + last * HUGE, HUGE), 0);
	EXPECT_EQ(pages_in_vram(self->mem + last * HUGE, 512), 512);
	for (size_t i = 0; i < self->blocks; i++)
		EXPECT_EQ(wrong(in_block(self, i), 64, i), i == first ? 16 : 0);
}

/* VRAM that is full of huge pages takes no small pages. These stay in RAM, with the right data. */
TEST_F_TIMEOUT(full, small, 120)
{
	struct gpu *g = &self->gpu;

	ASSERT_EQ(nouveau_to_vram(g->drm, self->mem, self->size), 0);
	ASSERT_EQ(nouveau_to_vram(g->drm, g->mem, NPAGES * PAGE), 0);
	EXPECT_EQ(pages_in_vram(g->mem, NPAGES), 0);
	ASSERT_EQ(gpu(g, DOOR_LOAD, g->mem + PAGE, 4), DOOR_DONE);
	EXPECT_EQ(door_word(g, 0), pattern(PAGE / 4, 1));
	EXPECT_EQ(wrong(g->mem, NPAGES * PAGE, 1), 0);
}

static int new_buffer(struct gpu *g, size_t size, uint32_t domain)
{
	struct drm_nouveau_gem_new n = { .info = { .size = size, .domain = domain } };

	return ioctl(g->drm, DRM_IOCTL_NOUVEAU_GEM_NEW, &n) ? errno : 0;
}

/* Buffers of another client that fill VRAM leave it for memory of a process. Then they get none. */
TEST_F_TIMEOUT(full, beside_buffers, 120)
{
	struct gpu *g = &self->gpu, other;
	size_t there;

	ASSERT_TRUE(open_files(&other));
	ASSERT_EQ(open_channel(&other), 0);
	for (int i = 0; i < 7; i++)
		ASSERT_EQ(new_buffer(&other, self->size / 8,
				     NOUVEAU_GEM_DOMAIN_VRAM | NOUVEAU_GEM_DOMAIN_GART),
			  0);
	ASSERT_EQ(nouveau_to_vram(g->drm, self->mem, self->size), 0);
	there = pages_in_vram(self->mem, self->size / PAGE);
	EXPECT_GE(there, self->size / PAGE / 4);
	EXPECT_EQ(new_buffer(&other, self->size, NOUVEAU_GEM_DOMAIN_VRAM), ENOMEM);
	EXPECT_EQ(pages_in_vram(self->mem, self->size / PAGE), there);
	for (size_t i = 0; i < self->blocks; i++)
		EXPECT_EQ(wrong(in_block(self, i), 64, i), 0);
	close(other.drm);
}

static uint64_t param(struct gpu *g, uint64_t which)
{
	struct drm_nouveau_getparam p = { .param = which };

	return ioctl(g->drm, DRM_IOCTL_NOUVEAU_GETPARAM, &p) ? 0 : p.value;
}

/* All of VRAM. Buffers leave it for others, the oldest first, so some small ones are the oldest. */
static bool fill_up(struct gpu *g)
{
	uint64_t total = param(g, NOUVEAU_GETPARAM_FB_SIZE), rest = 24UL << 20, used;

	for (int i = 0; i < 64; i++)
		if (new_buffer(g, PAGE, NOUVEAU_GEM_DOMAIN_VRAM))
			return false;
	for (size_t size = 32UL << 20; size >= 1UL << 20; size /= 2)
		while (param(g, NOUVEAU_GETPARAM_VRAM_USED) + size + rest < total)
			if (new_buffer(g, size, NOUVEAU_GEM_DOMAIN_VRAM))
				return false;
	do
		used = param(g, NOUVEAU_GETPARAM_VRAM_USED);
	while (!new_buffer(g, PAGE, NOUVEAU_GEM_DOMAIN_VRAM) &&
	       param(g, NOUVEAU_GETPARAM_VRAM_USED) > used);
	return true;
}

/*
 * Small buffers fill VRAM, and the GPU accesses memory for which it has no page table yet, again
 * and again. When no page table is left, the channel is killed, and nothing else happens.
 */
TEST_F_TIMEOUT(full, no_page_table, 240)
{
	struct gpu *g = &self->gpu, other, third = { .door = g->door };
	struct stats before = stats(g->door), after;
	enum door_status is = DOOR_DONE;
	char *at;

	ASSERT_TRUE(open_files(&other));
	ASSERT_TRUE(fill_up(&other));
	/* Each of these needs a page table of its own. */
	for (uint64_t i = 0; i < 64 && is == DOOR_DONE; i++) {
		at = mmap((void *)(0x200000000000 + (i << 30)), PAGE, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_POPULATE, -1, 0);
		ASSERT_NE(at, MAP_FAILED);
		is = gpu(g, DOOR_LOAD, at, 4);
	}
	EXPECT_EQ(is, DOOR_FAILED);
	after = stats(g->door);
	EXPECT_EQ(after.cancels - before.cancels, 1);
	close(other.drm);
	/* The same page, now that there is VRAM. */
	third.drm = open("/dev/dri/renderD128", O_RDWR);
	ASSERT_EQ(svm_init(&third, HOLE), 0);
	ASSERT_EQ(open_channel(&third), 0);
	EXPECT_EQ(gpu(&third, DOOR_LOAD, at, 4), DOOR_DONE);
	close(third.drm);
}

TEST_HARNESS_MAIN
