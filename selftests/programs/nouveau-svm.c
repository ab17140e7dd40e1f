// SPDX-License-Identifier: GPL-2.0-only
/*
 * nouveau's shared virtual memory on the model of a GP100 (selftests/models/pascal): memory of this
 * process moves to VRAM and back; the model's back door loads and stores at the same addresses as a
 * shader would, and says where the GPU's page tables lead and what VRAM holds.
 */
#include "nouveau.h"

#include <sched.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>

#include "peer.h"

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

#define CHUNK	(256UL << 20)	/* VRAM that the driver takes at a time */

/* Chunks of device memory that the driver has. */
static int chunks(void)
{
	FILE *f = fopen("/proc/iomem", "r");
	char line[128];
	int n = 0;

	while (f && fgets(line, sizeof(line), f))
		n += !!strstr(line, "nouveau_dmem");
	if (f)
		fclose(f);
	return n;
}

/*
 * All small pages of a chunk can be used. This test comes first, because chunks that huge
 * pages leave behind are used for small pages, too.
 */
TEST_F(svm, whole_chunk)
{
	char *mem = map(CHUNK, MADV_NOHUGEPAGE);
	int before;

	ASSERT_NE(mem, MAP_FAILED);
	/* Memory without a page table moves as huge pages, whatever the advice. */
	for (size_t i = 0; i < CHUNK; i += HUGE)
		mem[i] = 1;
	/* Other processes may have pages in a chunk of huge pages. */
	ASSERT_EQ(nouveau_to_vram(self->gpu.drm, mem, PAGE), 0);
	before = chunks();
	EXPECT_GE(before, 1);
	ASSERT_EQ(nouveau_to_vram(self->gpu.drm, mem, CHUNK), 0);
	EXPECT_EQ(pages_in_vram(mem, CHUNK / PAGE), CHUNK / PAGE);
	EXPECT_EQ(chunks(), before);
}

/* Memory moves to VRAM by the copy engine, and comes back when the CPU touches it. */
TEST_F(svm, there_and_back)
{
	struct gpu *g = &self->gpu;
	struct stats before = stats(g->door), after;

	ASSERT_EQ(nouveau_to_vram(g->drm, g->mem, NPAGES * PAGE), 0);
	after = stats(g->door);
	EXPECT_EQ(pages_in_vram(g->mem, NPAGES), NPAGES);
	EXPECT_GE(after.copied_bytes - before.copied_bytes, NPAGES * PAGE);
	EXPECT_EQ(wrong(g->mem, NPAGES * PAGE, 1), 0);
	EXPECT_EQ(pages_in_vram(g->mem, NPAGES), 0);
}

/* The page tables of the GPU lead to VRAM, and the data of the process are there. */
TEST_F(svm, what_vram_holds)
{
	struct gpu *g = &self->gpu;
	uint64_t addr;

	ASSERT_EQ(nouveau_to_vram(g->drm, g->mem, NPAGES * PAGE), 0);
	for (int i = 0; i < NPAGES; i += 7) {
		uint32_t flags, bad = 0;

		/* The pages are mapped when the GPU needs them. */
		ASSERT_EQ(gpu(g, DOOR_LOAD, g->mem + i * PAGE, 4), DOOR_DONE);
		flags = walk(g, g->mem + i * PAGE, &addr);
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
			ASSERT_EQ(nouveau_to_vram(g->drm, page, PAGE), 0);
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

/* The GPU no longer reaches memory that the process has unmapped or protected. */
TEST_F(svm, taken_away)
{
	struct gpu *g = &self->gpu;
	uint64_t addr;

	for (int vram = 0; vram < 2; vram++) {
		fill(g->mem, NPAGES * PAGE, 1);
		if (vram)
			ASSERT_EQ(nouveau_to_vram(g->drm, g->mem, NPAGES * PAGE), 0);
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
	ASSERT_EQ(nouveau_to_vram(g->drm, mem, HUGE), 0);
	ASSERT_EQ(gpu(g, DOOR_LOAD, mem + 5 * PAGE, 4), DOOR_DONE);
	flags = walk(g, mem + 5 * PAGE, &addr);
	EXPECT_EQ(flags & (DOOR_VALID | DOOR_SYSTEM), DOOR_VALID);
	EXPECT_EQ(flags >> DOOR_SHIFT, 21);
	EXPECT_EQ(pages_in_vram(mem, 512), 512);
	EXPECT_EQ(wrong(mem, HUGE, 3), 0);
}

/* A store to read-only memory of the process is cancelled, and the channel dies. */
static void cancel(struct __test_metadata *_metadata, struct gpu *g)
{
	struct stats before = stats(g->door), after;

	ASSERT_EQ(mprotect(g->mem, PAGE, PROT_READ), 0);
	EXPECT_EQ(gpu(g, DOOR_STORE, g->mem, 4), DOOR_FAILED);
	after = stats(g->door);
	EXPECT_EQ(after.cancels - before.cancels, 1);
	EXPECT_EQ(wrong(g->mem, NPAGES * PAGE, 1), 0);
}

TEST_F(svm, cancel)
{
	cancel(_metadata, &self->gpu);
}

TEST_F(svm, cancel_in_vram)
{
	ASSERT_EQ(nouveau_to_vram(self->gpu.drm, self->gpu.mem, PAGE), 0);
	cancel(_metadata, &self->gpu);
}

/*
 * After mprotect() and back, memory in VRAM is read-only in the page table of the CPU until the
 * next write. The GPU may be the writer.
 */
static void was_read_only(struct __test_metadata *_metadata, struct gpu *g, char *mem, size_t size)
{
	struct stats before, after;

	fill(mem, size, 1);
	ASSERT_EQ(nouveau_to_vram(g->drm, mem, size), 0);
	ASSERT_EQ(mprotect(mem, size, PROT_READ), 0);
	ASSERT_EQ(mprotect(mem, size, PROT_READ | PROT_WRITE), 0);
	ASSERT_EQ(pages_in_vram(mem, size / PAGE), size / PAGE);
	before = stats(g->door);
	put(g->door, DOOR_DATA, 4711);
	ASSERT_EQ(gpu(g, DOOR_STORE, mem, 4), DOOR_DONE);
	after = stats(g->door);
	EXPECT_LE(after.faults - before.faults, 4);
	EXPECT_EQ(*(uint32_t *)mem, 4711);
	*(uint32_t *)mem = pattern(0, 1);
	EXPECT_EQ(wrong(mem, size, 1), 0);
}

TEST_F(svm, was_read_only)
{
	was_read_only(_metadata, &self->gpu, self->gpu.mem, NPAGES * PAGE);
}

TEST_F(svm, was_read_only_huge)
{
	char *mem = map(HUGE, MADV_HUGEPAGE);

	ASSERT_NE(mem, MAP_FAILED);
	was_read_only(_metadata, &self->gpu, mem, HUGE);
}

/* After fork() memory is read-only for both. Only the parent sees later stores of the GPU. */
TEST_F(svm, forked)
{
	struct gpu *g = &self->gpu;
	int stored[2], status;
	pid_t child;
	char c;

	ASSERT_EQ(nouveau_to_vram(g->drm, g->mem, NPAGES * PAGE), 0);
	ASSERT_EQ(pipe(stored), 0);
	child = fork();
	ASSERT_GE(child, 0);
	if (!child) {
		close(stored[1]);
		_exit(read(stored[0], &c, 1) != 1 || wrong(g->mem, NPAGES * PAGE, 1));
	}
	put(g->door, DOOR_DATA, 4711);
	ASSERT_EQ(gpu(g, DOOR_STORE, g->mem, 4), DOOR_DONE);
	ASSERT_EQ(write(stored[1], "s", 1), 1);
	ASSERT_EQ(waitpid(child, &status, 0), child);
	EXPECT_EQ(status, 0);
	EXPECT_EQ(*(uint32_t *)g->mem, 4711);
	*(uint32_t *)g->mem = pattern(0, 1);
	EXPECT_EQ(wrong(g->mem, NPAGES * PAGE, 1), 0);
}

/* While its copy is held, memory is in neither place. The CPU waits, then finds all data. */
TEST_F(svm, held_copy)
{
	struct gpu *g = &self->gpu;
	struct move m = { g->drm, g->mem, NPAGES * PAGE, -1 };
	pthread_t thread;

	put(g->door, DOOR_HOLD, 1);
	ASSERT_EQ(pthread_create(&thread, NULL, nouveau_move, &m), 0);
	pause_ms(500);
	EXPECT_EQ(m.ret, -1);
	put(g->door, DOOR_HOLD, 0);
	ASSERT_EQ(pthread_join(thread, NULL), 0);
	EXPECT_EQ(m.ret, 0);
	EXPECT_EQ(wrong(g->mem, NPAGES * PAGE, 1), 0);
}

/*
 * All clients of the GPU fault at once, each fault comes twice, invalidations are slow, half of the
 * pages are in VRAM. Half of the clients store. Their data do not mix with other data.
 */
TEST_F(svm, burst)
{
	struct gpu *g = &self->gpu, client[DOOR_CLIENTS];
	struct stats before = stats(g->door), after;

	ASSERT_EQ(nouveau_to_vram(g->drm, g->mem, NPAGES / 2 * PAGE), 0);
	put(g->door, DOOR_AGAIN, 1);
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
	put(g->door, DOOR_AGAIN, 0);
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
 * The GPU stores to a page while the page moves to VRAM, by a mapping that it has used before. The
 * store must wait until the page has moved. Otherwise it is lost in the old memory.
 */
TEST_F(svm, store_while_moving)
{
	struct gpu *g = &self->gpu;
	struct move m = { g->drm, g->mem, NPAGES * PAGE, -1 };
	pthread_t thread;

	put(g->door, DOOR_DATA, pattern(0, 1));
	ASSERT_EQ(gpu(g, DOOR_STORE, g->mem, 4), DOOR_DONE);
	put(g->door, DOOR_HOLD, 1);
	ASSERT_EQ(pthread_create(&thread, NULL, nouveau_move, &m), 0);
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

/*
 * The same just after the flush of the TLB, while the driver still needs the entry to unmap the
 * page: the GPU must take a fault.
 */
static void behind_flush(struct __test_metadata *_metadata, struct gpu *g, char *mem, size_t size)
{
	struct stats before, after;
	uint64_t addr;
	uint32_t is;

	ASSERT_EQ(gpu(g, DOOR_LOAD, mem, 4), DOOR_DONE);
	is = walk(g, mem, &addr);
	ASSERT_EQ(is & (DOOR_VALID | DOOR_SYSTEM | DOOR_READ_ONLY), DOOR_VALID | DOOR_SYSTEM);
	ASSERT_EQ(1UL << (is >> DOOR_SHIFT), size);
	before = stats(g->door);
	put(g->door, DOOR_DATA, 4711);
	put(g->door, DOOR_BEHIND, 1);
	begin(g, DOOR_STORE, mem, 4);
	ASSERT_EQ(nouveau_to_vram(g->drm, mem, size), 0);
	EXPECT_EQ(finish(g), DOOR_DONE);
	after = stats(g->door);
	EXPECT_GT(after.faults, before.faults);
	EXPECT_EQ(after.sparse, before.sparse);
	EXPECT_EQ(*(uint32_t *)mem, 4711);
}

TEST_F(svm, store_behind_flush)
{
	behind_flush(_metadata, &self->gpu, self->gpu.mem, PAGE);
	for (size_t i = 1; i < NPAGES * PAGE / 4; i++)
		ASSERT_EQ(((uint32_t *)self->gpu.mem)[i], pattern(i, 1));
}

/* The huge page is full of PTEs. The GPU must not take it for a page table. */
TEST_F(svm, store_behind_flush_huge)
{
	struct gpu *g = &self->gpu;
	uint64_t *mem = (uint64_t *)map(HUGE, MADV_HUGEPAGE), victim, pte;

	ASSERT_NE(mem, MAP_FAILED);
	ASSERT_TRUE(pagemap((uintptr_t)g->mem, 1, &victim));
	victim &= (1UL << 55) - 1;
	ASSERT_NE(victim, 0);
	/* Valid, volatile, in system memory, at the first page of g->mem. */
	pte = victim << 8 | 1 << 3 | 2 << 1 | 1;
	for (size_t i = 0; i < HUGE / 8; i++)
		mem[i] = pte;
	behind_flush(_metadata, g, (char *)mem, HUGE);
	for (size_t i = 1; i < HUGE / 8; i++)
		ASSERT_EQ(mem[i], pte);
	EXPECT_EQ(wrong(g->mem, NPAGES * PAGE, 1), 0);
}

/*
 * The process gives up a page of a huge page, which is one PTE of the GPU. The GPU no longer
 * reaches that page. The other pages keep their places and data.
 */
static void in_parts(struct __test_metadata *_metadata, struct gpu *g, bool vram)
{
	char *mem = map(HUGE, MADV_HUGEPAGE);
	uint64_t addr;

	ASSERT_NE(mem, MAP_FAILED);
	fill(mem, HUGE, 3);
	if (vram)
		ASSERT_EQ(nouveau_to_vram(g->drm, mem, HUGE), 0);
	ASSERT_EQ(gpu(g, DOOR_LOAD, mem + 9 * PAGE, 4), DOOR_DONE);
	ASSERT_EQ(walk(g, mem, &addr) >> DOOR_SHIFT, 21);
	ASSERT_EQ(madvise(mem + 9 * PAGE, PAGE, MADV_DONTNEED), 0);
	EXPECT_EQ(walk(g, mem + 9 * PAGE, &addr) & DOOR_VALID, 0);
	ASSERT_EQ(gpu(g, DOOR_LOAD, mem + 11 * PAGE, 4), DOOR_DONE);
	EXPECT_EQ(door_word(g, 0), pattern(11 * PAGE / 4, 3));
	/* Do not begin with the first page: a copy from the wrong place would read that page. */
	for (int i = 511; i >= 0; i--)
		for (size_t k = i * PAGE / 4; k < (i + 1) * PAGE / 4; k++)
			ASSERT_EQ(((uint32_t *)mem)[k], i == 9 ? 0 : pattern(k, 3));
}

TEST_F(svm, huge_in_parts)
{
	in_parts(_metadata, &self->gpu, true);
}

TEST_F(svm, huge_in_parts_ram)
{
	in_parts(_metadata, &self->gpu, false);
}

/* A huge page in VRAM whose PMD was split comes back page by page. */
TEST_F(svm, huge_split)
{
	struct gpu *g = &self->gpu;
	char *mem = map(HUGE, MADV_HUGEPAGE);

	ASSERT_NE(mem, MAP_FAILED);
	fill(mem, HUGE, 3);
	ASSERT_EQ(nouveau_to_vram(g->drm, mem, HUGE), 0);
	ASSERT_EQ(mprotect(mem + 9 * PAGE, PAGE, PROT_READ), 0);
	ASSERT_EQ(pages_in_vram(mem, 512), 512);
	for (size_t k = HUGE / 4; k--;)
		ASSERT_EQ(((uint32_t *)mem)[k], pattern(k, 3));
}

struct range {
	char *mem;
	size_t size;
};

static void *give_up(void *arg)
{
	struct range *r = arg;

	return madvise(r->mem, r->size, MADV_DONTNEED) ? "failed" : "done";
}

struct faulter {
	char *page;
	volatile bool go;
};

static void *look(void *arg)
{
	struct faulter *f = arg;

	while (!f->go)
		pause_ms(5);
	*(volatile char *)f->page;
	return NULL;
}

/*
 * One thread drops memory while another one faults. The second thread has found a page in VRAM, and
 * waits while the first one invalidates the GPU's mapping, which is slow. Then the second thread
 * moves to the processor of the first one, which has a higher priority, so it continues only when
 * the first one has ended. By then the page that it has found is freed.
 */
static void during_fault(struct __test_metadata *_metadata, struct gpu *g, struct range gone,
			 char *used)
{
	struct sched_param param = { .sched_priority = 1 };
	struct faulter faulter = { used, false };
	pthread_t first, second;
	pthread_attr_t attr;
	const char *result;
	cpu_set_t cpu[2], all;

	for (int i = 0; i < 2; i++) {
		CPU_ZERO(&cpu[i]);
		CPU_SET(i, &cpu[i]);
	}
	ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
	ASSERT_EQ(sched_setaffinity(0, sizeof(cpu[1]), &cpu[1]), 0);
	pthread_attr_init(&attr);
	pthread_attr_setaffinity_np(&attr, sizeof(cpu[0]), &cpu[0]);
	pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED);
	pthread_attr_setschedpolicy(&attr, SCHED_FIFO);
	pthread_attr_setschedparam(&attr, &param);
	/* This takes the mmap lock for writing, so it has to come before the first thread. */
	ASSERT_EQ(pthread_create(&second, NULL, look, &faulter), 0);
	put(g->door, DOOR_SLOW, 600);
	ASSERT_EQ(pthread_create(&first, &attr, give_up, &gone), 0);
	pause_ms(150);
	faulter.go = true;
	pause_ms(150);
	/* On a busy machine the thread may have ended by now. Then the test shows nothing. */
	pthread_setaffinity_np(second, sizeof(cpu[0]), &cpu[0]);
	ASSERT_EQ(pthread_join(first, (void **)&result), 0);
	EXPECT_STREQ(result, "done");
	ASSERT_EQ(pthread_join(second, NULL), 0);
	put(g->door, DOOR_SLOW, 0);
	ASSERT_EQ(sched_setaffinity(0, sizeof(all), &all), 0);
}

/* The thread gives up the page that faults: its old data do not come back. */
TEST_F(svm, gone_during_fault)
{
	struct gpu *g = &self->gpu;
	size_t bad = 0;

	ASSERT_EQ(nouveau_to_vram(g->drm, g->mem, NPAGES * PAGE), 0);
	ASSERT_EQ(gpu(g, DOOR_LOAD, g->mem, 4), DOOR_DONE);
	during_fault(_metadata, g, (struct range){ g->mem, PAGE }, g->mem);
	EXPECT_EQ(*(uint32_t *)g->mem, 0);
	for (size_t i = PAGE / 4; i < NPAGES * PAGE / 4; i++)
		bad += ((uint32_t *)g->mem)[i] != pattern(i, 1);
	EXPECT_EQ(bad, 0);
}

static char *huge_in_vram(struct gpu *g)
{
	char *mem = map(HUGE, MADV_HUGEPAGE);

	if (mem == MAP_FAILED)
		return NULL;
	fill(mem, HUGE, 3);
	if (nouveau_to_vram(g->drm, mem, HUGE) || gpu(g, DOOR_LOAD, mem, 4) != DOOR_DONE)
		return NULL;
	return mem;
}

TEST_F(svm, huge_gone_during_fault)
{
	char *mem = huge_in_vram(&self->gpu);
	size_t bad = 0;

	ASSERT_NE(mem, NULL);
	during_fault(_metadata, &self->gpu, (struct range){ mem, HUGE }, mem + 100 * PAGE);
	for (size_t k = 0; k < HUGE / 4; k++)
		bad += !!((uint32_t *)mem)[k];
	EXPECT_EQ(bad, 0);
}

/* Another page of the same huge page, which is split for that. All others keep their data. */
TEST_F(svm, huge_split_during_fault)
{
	char *mem = huge_in_vram(&self->gpu);
	size_t bad = 0;

	ASSERT_NE(mem, NULL);
	during_fault(_metadata, &self->gpu, (struct range){ mem, PAGE }, mem + 100 * PAGE);
	for (size_t k = 0; k < HUGE / 4; k++)
		bad += ((uint32_t *)mem)[k] != (k < PAGE / 4 ? 0 : pattern(k, 3));
	EXPECT_EQ(bad, 0);
}

/* The GPU mirrors one process: another one that has the file cannot move its memory with it. */
TEST_F(svm, other_process)
{
	struct gpu *g = &self->gpu;
	pid_t child = fork();
	int status;

	ASSERT_GE(child, 0);
	if (!child)
		_exit(nouveau_to_vram(g->drm, g->mem, PAGE) != -1 || errno != EINVAL ||
		      in_vram(g->mem));
	ASSERT_EQ(waitpid(child, &status, 0), child);
	EXPECT_EQ(status, 0);
}

/* Memory that the process drops while it moves is not mapped for the GPU afterwards. */
TEST_F(svm, gone_while_moving)
{
	struct gpu *g = &self->gpu;
	struct move m = { g->drm, g->mem, NPAGES * PAGE, -1 };
	pthread_t thread;
	uint64_t addr;

	put(g->door, DOOR_HOLD, 1);
	ASSERT_EQ(pthread_create(&thread, NULL, nouveau_move, &m), 0);
	pause_ms(500);
	ASSERT_EQ(madvise(g->mem, PAGE, MADV_DONTNEED), 0);
	put(g->door, DOOR_HOLD, 0);
	ASSERT_EQ(pthread_join(thread, NULL), 0);
	EXPECT_EQ(walk(g, g->mem, &addr) & DOOR_VALID, 0);
	ASSERT_EQ(gpu(g, DOOR_LOAD, g->mem, 4), DOOR_DONE);
	EXPECT_EQ(door_word(g, 0), 0);
	for (size_t i = PAGE / 4; i < NPAGES * PAGE / 4; i++)
		ASSERT_EQ(((uint32_t *)g->mem)[i], pattern(i, 1));
}

/*
 * The process puts a page into a hole while the hole moves. The process keeps its page, and the
 * page of VRAM for the hole is freed. The GPU finds the page of the process.
 */
TEST_F(svm, filled_while_moving)
{
	struct gpu *g = &self->gpu;
	struct move m = { g->drm, g->mem, NPAGES * PAGE, -1 };
	uint32_t *word = (uint32_t *)(g->mem + 3 * PAGE);
	pthread_t thread;
	uint64_t addr;

	ASSERT_EQ(madvise(word, PAGE, MADV_DONTNEED), 0);
	put(g->door, DOOR_HOLD, 1);
	ASSERT_EQ(pthread_create(&thread, NULL, nouveau_move, &m), 0);
	pause_ms(500);
	*word = 4711;
	put(g->door, DOOR_HOLD, 0);
	ASSERT_EQ(pthread_join(thread, NULL), 0);
	EXPECT_EQ(pages_in_vram(g->mem, NPAGES), NPAGES - 1);
	EXPECT_EQ(walk(g, word, &addr) & DOOR_VALID, 0);
	ASSERT_EQ(gpu(g, DOOR_LOAD, word, 4), DOOR_DONE);
	EXPECT_EQ(door_word(g, 0), 4711);
	EXPECT_EQ(*word, 4711);
}

/*
 * An atomic operation and, behind it, a load of read-only memory are handled together: both faults
 * arrive while the driver handles the slow fault of a third client.
 */
TEST_F(svm, load_behind_atomic)
{
	struct gpu *g = &self->gpu, client[3];

	ASSERT_EQ(mprotect(g->mem + 20 * PAGE, PAGE, PROT_READ), 0);
	put(g->door, DOOR_SLOW, 100);
	for (int i = 0; i < 3; i++) {
		client[i] = *g;
		client[i].door += i * DOOR_SIZE;
	}
	begin(&client[0], DOOR_LOAD, g->mem + 30 * PAGE, 4);
	begin(&client[1], DOOR_ADD, g->mem + 10 * PAGE, 4);
	begin(&client[2], DOOR_LOAD, g->mem + 20 * PAGE, 4);
	for (int i = 0; i < 3; i++)
		EXPECT_EQ(finish(&client[i]), DOOR_DONE);
	put(g->door, DOOR_SLOW, 0);
	EXPECT_EQ(door_word(&client[2], 0), pattern(20 * PAGE / 4, 1));
}

#define THREADS	4

struct reader {
	char *mem;
	size_t size, wrong;
};

static void *read_back(void *arg)
{
	struct reader *r = arg;

	r->wrong = wrong(r->mem, r->size, 1);
	return NULL;
}

/* Many threads take their memory back at once, by one copy engine. */
TEST_F(svm, parallel)
{
	struct gpu *g = &self->gpu;
	size_t size = 128 * PAGE;
	char *mem = map(THREADS * size, MADV_NOHUGEPAGE);
	struct reader reader[THREADS];
	pthread_t thread[THREADS];

	ASSERT_NE(mem, MAP_FAILED);
	for (int i = 0; i < THREADS; i++)
		fill(mem + i * size, size, 1);
	ASSERT_EQ(nouveau_to_vram(g->drm, mem, THREADS * size), 0);
	for (int i = 0; i < THREADS; i++) {
		reader[i] = (struct reader){ mem + i * size, size, 0 };
		ASSERT_EQ(pthread_create(&thread[i], NULL, read_back, &reader[i]), 0);
	}
	for (int i = 0; i < THREADS; i++) {
		ASSERT_EQ(pthread_join(thread[i], NULL), 0);
		EXPECT_EQ(reader[i].wrong, 0);
	}
}

static void *submit(void *arg)
{
	struct gpu *g = arg;
	struct drm_nouveau_gem_new n = {
		.info = { .size = PAGE,
			  .domain = NOUVEAU_GEM_DOMAIN_VRAM | NOUVEAU_GEM_DOMAIN_GART },
	};
	struct drm_nouveau_gem_pushbuf_bo bo = {
		.read_domains = NOUVEAU_GEM_DOMAIN_GART,
		.valid_domains = NOUVEAU_GEM_DOMAIN_GART,
	};
	struct drm_nouveau_gem_pushbuf_push push = { .length = 16 };
	struct drm_nouveau_gem_pushbuf p = {
		.channel = g->channel,
		.nr_buffers = 1,
		.buffers = (uintptr_t)&bo,
		.nr_push = 1,
		.push = (uintptr_t)&push,
		.vram_available = NOUVEAU_GEM_PUSHBUF_SYNC,
	};

	if (ioctl(g->drm, DRM_IOCTL_NOUVEAU_GEM_NEW, &n))
		return "GEM_NEW";
	bo.handle = n.info.handle;
	return ioctl(g->drm, DRM_IOCTL_NOUVEAU_GEM_PUSHBUF, &p) ? "GEM_PUSHBUF" : "done";
}

/*
 * A buffer of another client leaves VRAM by a copy that has to wait. Memory of the process does not
 * wait for it, in either direction. In the end the buffer is unmapped before its pages are freed.
 * With an IOMMU the model checks this.
 */
TEST_F(svm, beside_buffers)
{
	struct gpu *g = &self->gpu, other;
	struct stats before = stats(g->door), after;
	pthread_t thread;
	const char *result = NULL;

	ASSERT_TRUE(open_files(&other));
	ASSERT_EQ(open_channel(&other), 0);
	put(g->door, DOOR_HOLD, HOLD_VIRTUAL);
	ASSERT_EQ(pthread_create(&thread, NULL, submit, &other), 0);
	pause_ms(500);
	EXPECT_EQ(stats(g->door).copies, before.copies);
	ASSERT_EQ(nouveau_to_vram(g->drm, g->mem, NPAGES * PAGE), 0);
	EXPECT_EQ(pages_in_vram(g->mem, NPAGES), NPAGES);
	EXPECT_EQ(wrong(g->mem, NPAGES * PAGE, 1), 0);
	after = stats(g->door);
	put(g->door, DOOR_HOLD, 0);
	ASSERT_EQ(pthread_join(thread, (void **)&result), 0);
	EXPECT_STREQ(result, "done");
	EXPECT_GT(stats(g->door).copies, after.copies);
	/* A worker unmaps the buffer. If it is slow, the model notices pages freed before that. */
	put(g->door, DOOR_SLOW, 200);
	close(other.drm);
	put(g->door, DOOR_SLOW, 0);
}

#define CRUMBS	(256UL << 20)

static struct {
	const char *name;
	long val;
} famine[] = {
	{ "extfrag_threshold", 1000 },		/* no compaction for huge pages, */
	{ "compaction_proactiveness", 0 },	/* nor unasked */
	{ "min_free_kbytes", 4096 },
};

static long before_famine[ARRAY_SIZE(famine)];

static bool vm_sysctl(const char *name, long val, long *old)
{
	char path[64], line[32] = "";
	int fd;
	bool good;

	snprintf(path, sizeof(path), "/proc/sys/vm/%s", name);
	fd = open(path, O_RDWR);
	good = pread(fd, line, sizeof(line) - 1, 0) > 0 && dprintf(fd, "%ld", val) > 0;
	close(fd);
	if (old)
		*old = atol(line);
	return good;
}

/* No huge page of RAM is free. Every other small page is free, so no huge page can be made. */
static bool begin_famine(void)
{
	char *mem = map(CRUMBS, MADV_NOHUGEPAGE);
	bool good = mem != MAP_FAILED;
	cpu_set_t all;

	if (good)
		memset(mem, 1, CRUMBS);
	for (size_t i = 0; good && i < CRUMBS; i += 2 * PAGE)
		good = !madvise(mem + i, PAGE, MADV_DONTNEED);
	for (size_t i = 0; good && i < ARRAY_SIZE(famine); i++)
		good = vm_sysctl(famine[i].name, famine[i].val, &before_famine[i]);
	/* All that exist. A processor may keep some for itself. */
	for (int cpu = 0; good && cpu < get_nprocs(); cpu++) {
		cpu_set_t one;

		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		good = !sched_setaffinity(0, sizeof(one), &one) &&
		       vm_sysctl("nr_hugepages", 1 << 20, NULL);
	}
	memset(&all, 0xff, sizeof(all));
	return good && !sched_setaffinity(0, sizeof(all), &all);
}

static bool end_famine(void)
{
	bool good = vm_sysctl("nr_hugepages", 0, NULL);

	for (size_t i = ARRAY_SIZE(famine); i--;)
		good &= vm_sysctl(famine[i].name, before_famine[i], NULL);
	return good;
}

/* A huge page comes back page by page where RAM has no huge page for it. */
TEST_F(svm, no_huge_page)
{
	struct gpu *g = &self->gpu;
	char *mem = map(HUGE, MADV_HUGEPAGE);

	ASSERT_NE(mem, MAP_FAILED);
	fill(mem, HUGE, 3);
	ASSERT_EQ(nouveau_to_vram(g->drm, mem, HUGE), 0);
	ASSERT_TRUE(begin_famine());
	EXPECT_EQ(*(uint32_t *)mem, pattern(0, 3));
	EXPECT_EQ(pages_in_vram(mem, 512), 511);
	EXPECT_EQ(wrong(mem, HUGE, 3), 0);
	EXPECT_TRUE(end_famine());
}

/* ---- the driver is unbound; with open files it would crash ---- */

FIXTURE(unbind)
{
	struct gpu gpu;
	char bdf[BDF_SIZE];
	char *huge;
};

/* verb: bind or unbind */
static bool driver(FIXTURE_DATA(unbind) *self, const char *verb)
{
	char path[64];

	close(self->gpu.drm);
	self->gpu.drm = -1;
	snprintf(path, sizeof(path), "/sys/bus/pci/drivers/nouveau/%s", verb);
	return write_file(path, self->bdf);
}

FIXTURE_SETUP(unbind)
{
	struct gpu *g = &self->gpu;

	ASSERT_TRUE(open_gpu(g));
	ASSERT_TRUE(gpu_bdf(self->bdf));
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

	ASSERT_EQ(nouveau_to_vram(g->drm, g->mem, NPAGES * PAGE), 0);
	close(g->drm);
	g->drm = -1;
	EXPECT_EQ(pages_in_vram(g->mem, NPAGES), NPAGES);
	EXPECT_EQ(wrong(g->mem, NPAGES * PAGE, 1), 0);
}

/* All memory in VRAM comes back when the driver is unbound. */
TEST_F(unbind, with_pages)
{
	struct gpu *g = &self->gpu;

	ASSERT_EQ(nouveau_to_vram(g->drm, g->mem, NPAGES * PAGE), 0);
	ASSERT_EQ(nouveau_to_vram(g->drm, self->huge, HUGE), 0);
	ASSERT_EQ(pages_in_vram(self->huge, 512), 512);
	ASSERT_TRUE(driver(self, "unbind"));
	EXPECT_EQ(pages_in_vram(g->mem, NPAGES), 0);
	EXPECT_EQ(pages_in_vram(self->huge, 512), 0);
	EXPECT_EQ(wrong(g->mem, NPAGES * PAGE, 1), 0);
	EXPECT_EQ(wrong(self->huge, HUGE, 2), 0);
	ASSERT_TRUE(driver(self, "bind"));
}

/* A copy to VRAM that fails: the memory is still in RAM. The engine is dead until the next bind. */
TEST_F(unbind, copy_there_fails)
{
	struct gpu *g = &self->gpu;

	put(g->door, DOOR_FAIL, 1);
	nouveau_to_vram(g->drm, g->mem, NPAGES * PAGE);
	EXPECT_EQ(pages_in_vram(g->mem, NPAGES), 0);
	EXPECT_EQ(wrong(g->mem, NPAGES * PAGE, 1), 0);
	ASSERT_TRUE(driver(self, "unbind"));
	ASSERT_TRUE(driver(self, "bind"));
}

/* A copy back fails: the CPU gets SIGBUS and no wrong data. */
TEST_F(unbind, copy_back_fails)
{
	struct gpu *g = &self->gpu;
	int status;
	pid_t child;

	ASSERT_EQ(nouveau_to_vram(g->drm, g->mem, PAGE), 0);
	child = fork();
	ASSERT_GE(child, 0);
	if (!child) {
		put(g->door, DOOR_FAIL, 1);
		_exit(*(volatile uint32_t *)g->mem == pattern(0, 1));
	}
	ASSERT_EQ(waitpid(child, &status, 0), child);
	EXPECT_TRUE(WIFSIGNALED(status));
	EXPECT_EQ(WTERMSIG(status), SIGBUS);
	EXPECT_TRUE(in_vram(g->mem));
	ASSERT_TRUE(driver(self, "unbind"));
	ASSERT_TRUE(driver(self, "bind"));
}

static size_t free_memory(void)
{
	struct sysinfo i;

	return sysinfo(&i) ? 0 : i.freeram * i.mem_unit;
}

/* The first copy back that fails costs the memory it went to. Later CPU faults cost nothing. */
TEST_F(unbind, copy_back_fails_again)
{
	struct gpu *g = &self->gpu;
	size_t before;
	int fd[2];

	ASSERT_EQ(pipe(fd), 0);
	ASSERT_EQ(nouveau_to_vram(g->drm, self->huge, HUGE), 0);
	put(g->door, DOOR_FAIL, 1);
	EXPECT_EQ(write(fd[1], self->huge, 1), -1);
	EXPECT_EQ(errno, EFAULT);
	before = free_memory();
	for (int i = 0; i < 50; i++)
		EXPECT_EQ(write(fd[1], self->huge, 1), -1);
	EXPECT_GT(free_memory() + 25 * HUGE, before);
	ASSERT_TRUE(driver(self, "unbind"));
	ASSERT_TRUE(driver(self, "bind"));
}

/* Of each huge page, the first page has data. */
static void huge_to_vram(struct __test_metadata *_metadata, struct gpu *g, char *mem, size_t size)
{
	for (size_t at = 0; at < size; at += HUGE)
		fill(mem + at, PAGE, 8);
	EXPECT_EQ(nouveau_to_vram(g->drm, mem, size), 0);
	EXPECT_EQ(pages_in_vram(mem, size / PAGE), size / PAGE);
}

static void *unbind(void *self)
{
	return driver(self, "unbind") ? "done" : "failed";
}

/*
 * The driver is unbound while a CPU fault holds the page. The copy of the fault fails, so the page
 * stays in VRAM, and this process does not access it. The driver must try again to evict it.
 */
TEST_F_TIMEOUT(unbind, page_in_use, 60)
{
	struct gpu *g = &self->gpu;
	struct timespec end;
	const char *result = NULL;
	pthread_t thread;
	int status;
	pid_t child;

	ASSERT_EQ(nouveau_to_vram(g->drm, g->mem, PAGE), 0);
	put(g->door, DOOR_FAIL, 1);
	put(g->door, DOOR_HOLD, 1);
	child = fork();
	ASSERT_GE(child, 0);
	if (!child) {
		close(g->drm);
		_exit(*(volatile uint32_t *)g->mem == pattern(0, 1));
	}
	pause_ms(500);
	ASSERT_EQ(pthread_create(&thread, NULL, unbind, self), 0);
	pause_ms(1000);
	put(g->door, DOOR_HOLD, 0);
	ASSERT_EQ(waitpid(child, &status, 0), child);
	EXPECT_TRUE(WIFSIGNALED(status));
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += 20;
	EXPECT_EQ(pthread_timedjoin_np(thread, (void **)&result, &end), 0);
	if (!result) {
		/* The unbind waits for this. */
		munmap(g->mem, PAGE);
		pthread_join(thread, (void **)&result);
	}
	EXPECT_STREQ(result, "done");
	ASSERT_TRUE(driver(self, "bind"));
}

/* ---- the GPU sleeps ---- */

/* A file of sysfs, of which the first line is read or set. %s: the GPU */
static bool sysfs(FIXTURE_DATA(unbind) *self, const char *format, char *line, size_t size)
{
	bool write = !size;
	char path[128];
	FILE *f;
	bool ok;

	snprintf(path, sizeof(path), format, self->bdf);
	f = fopen(path, write ? "w" : "r");
	if (!f)
		return false;
	ok = write ? fputs(line, f) >= 0 : !!fgets(line, size, f);
	ok &= !fclose(f);
	if (!write)
		line[strcspn(line, "\n")] = 0;
	return ok;
}

static bool set(FIXTURE_DATA(unbind) *self, const char *format, char *value)
{
	return sysfs(self, format, value, 0);
}

#define POWER "/sys/bus/pci/devices/%s/power/"

/* Suspend to idle, which ends when all devices are suspended. */
static bool machine_sleeps(FIXTURE_DATA(unbind) *self)
{
	return set(self, "/sys/module/suspend/parameters/pm_test_delay", "0") &&
	       set(self, "/sys/power/pm_test", "devices") &&
	       set(self, "/sys/power/state", "freeze");
}

static bool gpu_is(FIXTURE_DATA(unbind) *self, const char *state)
{
	char line[32];

	for (int i = 0; i < 6000; i++) {
		if (sysfs(self, POWER "runtime_status", line, sizeof(line)) && !strcmp(line, state))
			return true;
		pause_ms(20);
	}
	return false;
}

/*
 * If the copy engine fails, the suspend fails, and the pages stay in place. The memory that the
 * copies went to is in use until the driver is unbound.
 */
TEST_F(unbind, copy_before_sleep_fails)
{
	struct gpu *g = &self->gpu;
	size_t size = 16 * HUGE, before;
	char *mem = map(size, MADV_HUGEPAGE);

	ASSERT_NE(mem, MAP_FAILED);
	memset(mem, 0, size);
	before = free_memory();
	ASSERT_EQ(nouveau_to_vram(g->drm, g->mem, NPAGES * PAGE), 0);
	/* The last chunk that the driver took is evicted first. */
	huge_to_vram(_metadata, g, mem, size);
	put(g->door, DOOR_FAIL, 1);
	EXPECT_FALSE(machine_sleeps(self));
	EXPECT_EQ(pages_in_vram(g->mem, NPAGES), NPAGES);
	/* The engine is dead now. The memory is lost, but the machine sleeps. */
	EXPECT_TRUE(machine_sleeps(self));
	EXPECT_EQ(pages_in_vram(g->mem, NPAGES), 0);
	EXPECT_EQ(*(uint32_t *)g->mem, 0);
	EXPECT_EQ(pages_in_vram(mem, size / PAGE), 0);
	EXPECT_LT(free_memory(), before - size / 2);
	ASSERT_TRUE(driver(self, "unbind"));
	ASSERT_TRUE(driver(self, "bind"));
	EXPECT_GT(free_memory(), before - size / 2);
}

FIXTURE(sleep)
{
	FIXTURE_DATA(unbind) on;
};

static void stay_awake(struct __test_metadata *_metadata, FIXTURE_DATA(unbind) *on)
{
	ASSERT_TRUE(open_gpu(&on->gpu));
	ASSERT_TRUE(gpu_bdf(on->bdf));
	ASSERT_TRUE(set(on, POWER "control", "on"));
	on->huge = map(HUGE, MADV_HUGEPAGE);
	ASSERT_NE(on->huge, MAP_FAILED);
	fill(on->huge, HUGE, 2);
}

FIXTURE_SETUP(sleep)
{
	stay_awake(_metadata, &self->on);
}

FIXTURE_TEARDOWN(sleep)
{
	ASSERT_TRUE(set(&self->on, POWER "control", "on"));
	close_gpu(_metadata, &self->on.gpu);
}

/* Small pages and a huge one are in VRAM. */
static void fill_vram(struct __test_metadata *_metadata, FIXTURE_DATA(unbind) *on)
{
	ASSERT_EQ(nouveau_to_vram(on->gpu.drm, on->gpu.mem, NPAGES * PAGE), 0);
	ASSERT_EQ(nouveau_to_vram(on->gpu.drm, on->huge, HUGE), 0);
	ASSERT_EQ(pages_in_vram(on->gpu.mem, NPAGES), NPAGES);
	ASSERT_EQ(pages_in_vram(on->huge, 512), 512);
}

/* All memory has left VRAM, the data are right, and the memory can move to VRAM again. */
static void after_sleep(struct __test_metadata *_metadata, FIXTURE_DATA(unbind) *on)
{
	struct gpu *g = &on->gpu;

	EXPECT_EQ(pages_in_vram(g->mem, NPAGES), 0);
	EXPECT_EQ(pages_in_vram(on->huge, 512), 0);
	EXPECT_EQ(wrong(g->mem, NPAGES * PAGE, 1), 0);
	EXPECT_EQ(wrong(on->huge, HUGE, 2), 0);
	fill_vram(_metadata, on);
	ASSERT_EQ(gpu(g, DOOR_LOAD, g->mem, 4), DOOR_DONE);
	EXPECT_EQ(door_word(g, 0), pattern(0, 1));
	EXPECT_EQ(wrong(g->mem, NPAGES * PAGE, 1), 0);
	EXPECT_EQ(wrong(on->huge, HUGE, 2), 0);
}

/* The driver saves its objects in VRAM word by word. That takes long on the model. */
TEST_F_TIMEOUT(sleep, machine, 200)
{
	fill_vram(_metadata, &self->on);
	ASSERT_TRUE(machine_sleeps(&self->on));
	after_sleep(_metadata, &self->on);
}

/* The device sleeps when it has been idle, and wakes up for an ioctl, not for a page fault. */
TEST_F_TIMEOUT(sleep, device, 200)
{
	FIXTURE_DATA(unbind) *on = &self->on;

	fill_vram(_metadata, on);
	ASSERT_TRUE(set(on, POWER "autosuspend_delay_ms", "100"));
	ASSERT_TRUE(set(on, POWER "control", "auto"));
	ASSERT_TRUE(gpu_is(on, "suspended"));
	EXPECT_EQ(pages_in_vram(on->gpu.mem, NPAGES), 0);
	EXPECT_EQ(wrong(on->gpu.mem, NPAGES * PAGE, 1), 0);
	EXPECT_TRUE(gpu_is(on, "suspended"));
	ASSERT_TRUE(set(on, POWER "control", "on"));
	ASSERT_TRUE(gpu_is(on, "active"));
	after_sleep(_metadata, on);
}

static int close_channel(struct gpu *g)
{
	struct drm_nouveau_channel_free c = { .channel = g->channel };

	return ioctl(g->drm, DRM_IOCTL_NOUVEAU_CHANNEL_FREE, &c);
}

/* The process frees memory while the GPU is off. Afterwards the GPU must not reach it. */
static void freed(struct __test_metadata *_metadata, FIXTURE_DATA(unbind) *on, bool channel)
{
	struct gpu *g = &on->gpu;
	uint64_t addr;

	for (size_t i = 0; i < NPAGES; i++)
		ASSERT_EQ(gpu(g, DOOR_LOAD, g->mem + i * PAGE, 4), DOOR_DONE);
	ASSERT_EQ(gpu(g, DOOR_LOAD, on->huge, 4), DOOR_DONE);
	ASSERT_EQ(walk(g, g->mem, &addr) & (DOOR_VALID | DOOR_SYSTEM), DOOR_VALID | DOOR_SYSTEM);
	if (!channel)
		ASSERT_EQ(close_channel(g), 0);
	ASSERT_TRUE(set(on, POWER "autosuspend_delay_ms", "100"));
	ASSERT_TRUE(set(on, POWER "control", "auto"));
	ASSERT_TRUE(gpu_is(on, "suspended"));
	ASSERT_EQ(madvise(g->mem, PAGE, MADV_DONTNEED), 0);
	ASSERT_EQ(madvise(on->huge, HUGE, MADV_DONTNEED), 0);
	EXPECT_TRUE(gpu_is(on, "suspended"));
	ASSERT_TRUE(set(on, POWER "control", "on"));
	ASSERT_TRUE(gpu_is(on, "active"));
	if (!channel)
		ASSERT_EQ(open_channel(g), 0);
	EXPECT_EQ(walk(g, g->mem, &addr) & DOOR_VALID, 0);
	EXPECT_EQ(walk(g, on->huge, &addr) & DOOR_VALID, 0);
	EXPECT_EQ(compare(g), 0);
	/* The GPU maps the pages again when it needs them. */
	ASSERT_EQ(gpu(g, DOOR_LOAD, g->mem, 4), DOOR_DONE);
	EXPECT_EQ(door_word(g, 0), 0);
	ASSERT_EQ(gpu(g, DOOR_LOAD, g->mem + PAGE, 4), DOOR_DONE);
	EXPECT_EQ(door_word(g, 0), pattern(PAGE / 4, 1));
}

TEST_F_TIMEOUT(sleep, gone_meanwhile, 200)
{
	freed(_metadata, &self->on, true);
}

/* The address space has no channel while the GPU is off, and gets one later. */
TEST_F_TIMEOUT(sleep, gone_without_channel, 200)
{
	freed(_metadata, &self->on, false);
}

/* A channel executes no fence within 15 s. The suspend fails, and all works as before. */
FIXTURE(sleepless)
{
	FIXTURE_DATA(unbind) on;
};

FIXTURE_SETUP(sleepless)
{
	stay_awake(_metadata, &self->on);
	put(self->on.gpu.door, DOOR_DELAY, 31000);
}

FIXTURE_TEARDOWN(sleepless)
{
	struct gpu *g = &self->on.gpu;

	put(g->door, DOOR_DELAY, 0);
	ASSERT_TRUE(set(&self->on, POWER "control", "on"));
	ASSERT_EQ(gpu(g, DOOR_LOAD, g->mem, 4), DOOR_DONE);
	EXPECT_EQ(door_word(g, 0), pattern(0, 1));
	fill_vram(_metadata, &self->on);
	EXPECT_EQ(wrong(g->mem, NPAGES * PAGE, 1), 0);
	EXPECT_EQ(wrong(self->on.huge, HUGE, 2), 0);
	close_gpu(_metadata, g);
}

TEST_F_TIMEOUT(sleepless, machine, 200)
{
	EXPECT_FALSE(machine_sleeps(&self->on));
}

TEST_F_TIMEOUT(sleepless, device, 200)
{
	FIXTURE_DATA(unbind) *on = &self->on;
	char status[32] = "";

	ASSERT_TRUE(set(on, POWER "autosuspend_delay_ms", "100"));
	ASSERT_TRUE(set(on, POWER "control", "auto"));
	EXPECT_TRUE(gpu_is(on, "suspending"));
	for (int i = 0; i < 6000; i++) {
		if (!sysfs(on, POWER "runtime_status", status, sizeof(status)) ||
		    strcmp(status, "suspending"))
			break;
		pause_ms(20);
	}
	EXPECT_STREQ(status, "active");
}

/* ---- a peer: the edu device, whose driver asks for aliases of device memory ---- */

#define BLOCKS	16	/* huge pages: as many as edu_hmm mirrors at most */

/* The driver reserves nothing of BAR 1 for peers unless it is told to. */
TEST_F(svm, no_aperture)
{
	EXPECT_EQ(p2pmem("size"), ~0UL);
}

FIXTURE(peer)
{
	struct gpu gpu;
	struct peer peer;
	size_t aperture;		/* bytes of BAR 1 that are for peers */
};

FIXTURE_SETUP(peer)
{
	ASSERT_TRUE(open_gpu(&self->gpu));
	ASSERT_TRUE(open_peer(&self->peer, BLOCKS * HUGE / PAGE));
	self->aperture = p2pmem("size");
	ASSERT_GE(self->aperture, HUGE);
	ASSERT_NE(self->aperture, ~0UL);
	ASSERT_EQ(p2pmem("available"), 0);
}

FIXTURE_TEARDOWN(peer)
{
	close(self->peer.edu);
	close_gpu(_metadata, &self->gpu);
}

static void read_write(struct __test_metadata *_metadata, FIXTURE_DATA(peer) *self, char *mem,
		       size_t size)
{
	fill(mem, size, 5);
	ASSERT_EQ(edu_register(&self->peer, mem, size), 0);
	ASSERT_EQ(nouveau_to_vram(self->gpu.drm, mem, size), 0);
	ASSERT_EQ(pages_in_vram(mem, size / PAGE), size / PAGE);
	ASSERT_EQ(edu_fault(&self->peer, mem, size, NULL), 0);
	exchange(_metadata, &self->peer, mem, size);
}

/* The driver tells clients how much of BAR 1 is left for them. */
TEST_F(peer, rest_of_bar)
{
	struct drm_nouveau_getparam p = { .param = NOUVEAU_GETPARAM_VRAM_BAR_SIZE };
	char bdf[BDF_SIZE], path[64];
	struct stat bar;

	ASSERT_TRUE(gpu_bdf(bdf));
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/resource1", bdf);
	ASSERT_EQ(stat(path, &bar), 0);
	ASSERT_EQ(ioctl(self->gpu.drm, DRM_IOCTL_NOUVEAU_GETPARAM, &p), 0);
	EXPECT_EQ(p.value + self->aperture, bar.st_size);
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

/* The driver is unbound: the data of the peer are there, and the peer has no page left. */
TEST_F(peer, unbind)
{
	struct gpu *g = &self->gpu;
	FIXTURE_DATA(unbind) driver_of = { .gpu = *g };
	uint32_t buf[128];

	ASSERT_TRUE(gpu_bdf(driver_of.bdf));
	ASSERT_EQ(edu_register(&self->peer, g->mem, NPAGES * PAGE), 0);
	ASSERT_EQ(nouveau_to_vram(g->drm, g->mem, NPAGES * PAGE), 0);
	ASSERT_EQ(edu_fault(&self->peer, g->mem, NPAGES * PAGE, NULL), 0);
	EXPECT_EQ(pages_as(&self->peer, g->mem, NPAGES, self->peer.reached), NPAGES);
	fill(buf, sizeof(buf), 6);
	ASSERT_EQ(edu_dma(&self->peer, g->mem + PAGE, buf, sizeof(buf), EDU_HMM_WRITE), 0);
	ASSERT_TRUE(driver(&driver_of, "unbind"));
	g->drm = -1;
	EXPECT_EQ(pages_in_vram(g->mem, NPAGES), 0);
	EXPECT_EQ(pages_as(&self->peer, g->mem, NPAGES, self->peer.reached), 0);
	EXPECT_EQ(wrong(g->mem + PAGE, sizeof(buf), 6), 0);
	EXPECT_EQ(wrong(g->mem, PAGE, 1), 0);
	ASSERT_TRUE(driver(&driver_of, "bind"));
}

/* The machine sleeps: the peer has no page left. Later it reaches the memory's new place. */
TEST_F_TIMEOUT(peer, machine_sleeps, 200)
{
	struct gpu *g = &self->gpu;
	FIXTURE_DATA(unbind) driver_of = { .gpu = *g };
	char *huge = map(HUGE, MADV_HUGEPAGE);
	uint32_t buf[128];

	ASSERT_NE(huge, MAP_FAILED);
	fill(huge, HUGE, 2);
	ASSERT_TRUE(gpu_bdf(driver_of.bdf));
	ASSERT_EQ(edu_register(&self->peer, g->mem, NPAGES * PAGE), 0);
	for (int i = 0; i < 2; i++) {
		ASSERT_EQ(nouveau_to_vram(g->drm, g->mem, NPAGES * PAGE), 0);
		ASSERT_EQ(nouveau_to_vram(g->drm, huge, HUGE), 0);
		ASSERT_EQ(edu_fault(&self->peer, g->mem, NPAGES * PAGE, NULL), 0);
		EXPECT_EQ(pages_as(&self->peer, g->mem, NPAGES, self->peer.reached), NPAGES);
		ASSERT_EQ(edu_dma(&self->peer, g->mem + PAGE, buf, sizeof(buf), 0), 0);
		EXPECT_EQ(buf[1], pattern(PAGE / 4 + 1, 1));
		if (!i)
			ASSERT_TRUE(machine_sleeps(&driver_of));
		EXPECT_EQ(pages_as(&self->peer, g->mem, NPAGES, self->peer.reached),
			  i ? NPAGES : 0);
		EXPECT_EQ(wrong(g->mem, NPAGES * PAGE, 1), 0);
	}
}

/* Memory is freed while writes of the peer are in flight. They must not reach its next owner. */
TEST_F(peer, handed_out_again)
{
	struct gpu *g = &self->gpu;
	size_t size = NPAGES * PAGE;
	char *mem = map(size + PAGE, MADV_NOHUGEPAGE);
	uint32_t buf[128];

	ASSERT_NE(mem, MAP_FAILED);
	fill(mem, size + PAGE, 3);
	ASSERT_EQ(edu_register(&self->peer, mem, size + PAGE), 0);
	ASSERT_EQ(nouveau_to_vram(g->drm, mem, size + PAGE), 0);
	ASSERT_EQ(edu_fault(&self->peer, mem, size + PAGE, NULL), 0);
	EXPECT_EQ(pages_as(&self->peer, mem, NPAGES + 1, self->peer.reached), NPAGES + 1);
	fill(buf, sizeof(buf), 9);
	ASSERT_EQ(edu_dma(&self->peer, mem + size - PAGE, buf, sizeof(buf), EDU_HMM_WRITE), 0);
	ASSERT_EQ(madvise(mem, size, MADV_DONTNEED), 0);
	ASSERT_EQ(nouveau_to_vram(g->drm, g->mem, size), 0);
	/* Earlier writes of the peer arrive before this read returns. */
	ASSERT_EQ(edu_dma(&self->peer, mem + size, buf, sizeof(buf), 0), 0);
	EXPECT_EQ(pages_in_vram(g->mem, NPAGES), NPAGES);
	EXPECT_EQ(wrong(g->mem, size, 1), 0);
}

/*
 * Move memory to VRAM and let the peer fault on one part after the other. Return: how many pages
 * stay. The others migrate.
 */
static size_t stay(struct __test_metadata *_metadata, FIXTURE_DATA(peer) *self, char *mem,
		   size_t size)
{
	size_t part = BLOCKS * HUGE, n = part / PAGE, total = 0, there;

	huge_to_vram(_metadata, &self->gpu, mem, size);
	for (char *end = mem + size; mem < end; mem += part) {
		close(self->peer.edu);
		self->peer.edu = open("/dev/edu_hmm0", O_RDWR);
		EXPECT_EQ(edu_register(&self->peer, mem, part), 0);
		EXPECT_EQ(edu_fault(&self->peer, mem, part, NULL), 0);
		there = pages_as(&self->peer, mem, n, self->peer.reached);
		EXPECT_EQ(there + pages_as(&self->peer, mem, n, EDU_HMM_RAM), n);
		EXPECT_EQ(pages_in_vram(mem, n), there);
		total += there;
	}
	return total;
}

/*
 * The memory is half of VRAM, mostly more than there are windows in BAR 1. Pages without a window
 * migrate, and all data are right. Memory with a window that was freed is used again first.
 */
TEST_F_TIMEOUT(peer, windows, 300)
{
	struct drm_nouveau_getparam vram = { .param = NOUVEAU_GETPARAM_FB_SIZE };
	size_t part = BLOCKS * HUGE, size, first, again, small;
	char *mem;

	ASSERT_EQ(ioctl(self->gpu.drm, DRM_IOCTL_NOUVEAU_GETPARAM, &vram), 0);
	size = vram.value / 2 / part * part;
	mem = map(size, MADV_HUGEPAGE);
	ASSERT_NE(mem, MAP_FAILED);
	first = stay(_metadata, self, mem, size);
	for (size_t at = 0; at < size; at += HUGE)
		EXPECT_EQ(wrong(mem + at, PAGE, 8), 0);
	ASSERT_EQ(madvise(mem, size, MADV_DONTNEED), 0);
	again = stay(_metadata, self, mem, size);
	ASSERT_EQ(madvise(mem, size, MADV_DONTNEED), 0);
	/* Memory with windows is handed out first, and freed before the rest. */
	huge_to_vram(_metadata, &self->gpu, mem, 2 * part);
	ASSERT_EQ(madvise(mem, 2 * part, MADV_DONTNEED), 0);
	small = stay(_metadata, self, mem, part);
	TH_LOG("%zu MiB of BAR 1 for %zu MiB: %zu pages stay, %zu migrate", self->aperture >> 20,
	       size >> 20, first, size / PAGE - first);
	EXPECT_GT(first, 0);
	EXPECT_LE(first, self->aperture / PAGE);
	EXPECT_EQ(first == size / PAGE, self->aperture / 2 >= size);
	EXPECT_EQ(again, first);
	EXPECT_EQ(small, first < part / PAGE ? first : part / PAGE);
}

TEST_HARNESS_MAIN
