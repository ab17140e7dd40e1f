// SPDX-License-Identifier: GPL-2.0-only
/*
 * drm_pagemap and PCI peers: the edu device reaches the memory of pagemap_test, a driver that
 * uses drm_pagemap (selftests/modules/pagemap_test). The driver warns, and the test fails, if
 * memory that a peer may have written to is copied or released before it was read back. dma-tests
 * and odp-tests have more tests of this driver.
 */
#define BENCH		pagemap
#define BENCH_DEVICE	"edu_hmm"
#include "edu-bench.h"

#define PARAMS	"/sys/module/pagemap_test/parameters/"
#define CHUNK	16	/* pages that migrate together, if they are aligned */

/* Set the parameters of the driver: each test does this first. */
static bool params(const char *timeslice_ms, const char *visible)
{
	return write_file(PARAMS "p2p", "Y") && write_file(PARAMS "strangers", "N") &&
	       write_file(PARAMS "fail_copies", "0") &&
	       write_file(PARAMS "timeslice_ms", timeslice_ms) &&
	       write_file(PARAMS "visible", visible);
}

#define ALL	"0xffffffffffffffff"

/* The beginning of most tests: the peer mirrors @mem, whose pages move to the first exporter. */
static bool begin_in_vram(FIXTURE_DATA(pagemap) *self, const char *slice_ms, const char *visible,
			  char *mem, size_t npages)
{
	return params(slice_ms, visible) && reg(self->imp[0], self->mem, NPAGES) > 0 &&
	       export_pages(self->exp[0], mem, npages, 1);
}

/* Bind the first exporter again. Its render node is a new one. */
static bool bind_exporter(FIXTURE_DATA(pagemap) *self)
{
	close(self->exp[0]);
	if (!write_file("/sys/bus/pci/drivers/pagemap_test/bind", self->bdf[0]))
		return false;
	self->exp[0] = open_exporter(0);
	return exp_stats(self->exp[0]).bound;
}

static char *chunk(FIXTURE_DATA(pagemap) *self)
{
	uintptr_t mask = CHUNK * PAGE - 1;

	return (char *)(((uintptr_t)self->mem + mask) & ~mask);
}

static long live(FIXTURE_DATA(pagemap) *self, int e)
{
	return exp_stats(self->exp[e]).bar_live;
}

/*
 * Pages behind the part of VRAM that peers reach migrate. Neither they nor the others are copied
 * needlessly.
 */
TEST_F_TIMEOUT(pagemap, visible, 120)
{
	struct hmm_dmirror_p2p_stats before, after;
	const size_t seen = 5, n = 8;

	ASSERT_TRUE(begin_in_vram(self, "0", "5", self->mem, n));
	before = exp_stats(self->exp[0]);
	ASSERT_EQ(fault(self, self->imp[0], self->mem, n, EDU_HMM_WRITE), 0);
	after = exp_stats(self->exp[0]);
	EXPECT_EQ(self->refused, reachable(self->how[0]) ? n - seen : n);
	EXPECT_EQ(after.migrated - before.migrated, self->refused);
	ASSERT_EQ(state(self, self->imp[0], self->mem, n), 0);
	for (size_t i = 0; i < n; i++)
		EXPECT_EQ(self->pages[i].how, i < seen ? self->how[0] : EDU_HMM_RAM);
	EXPECT_TRUE(filled(self->mem, 0, n * PAGE, 1));
}

/* All pages of a folio have aliases, or none. */
TEST_F_TIMEOUT(pagemap, visible_huge, 120)
{
	char *map = anon(2 * HUGE), *mem;

	ASSERT_TRUE(params("0", "511"));
	ASSERT_NE(map, NULL);
	mem = (char *)(((uintptr_t)map + HUGE - 1) & ~(HUGE - 1));
	madvise(mem, HUGE, MADV_HUGEPAGE);
	ASSERT_GT(reg(self->imp[0], mem, 512), 0);
	ASSERT_TRUE(export_pages(self->exp[0], mem, 512, 1));
	ASSERT_EQ(fault(self, self->imp[0], mem, 1, EDU_HMM_NO_FAULT), 0);
	EXPECT_EQ(how(self, self->imp[0], mem), EDU_HMM_NONE);
	ASSERT_EQ(fault(self, self->imp[0], mem, 1, EDU_HMM_WRITE), 0);
	EXPECT_EQ(how(self, self->imp[0], mem), EDU_HMM_RAM);
	EXPECT_EQ(live(self, 0), 0);
	EXPECT_TRUE(filled(mem, 0, HUGE, 1));
	munmap(map, 2 * HUGE);
}

/* Memory is read back if a peer had its alias, and only then. */
TEST_F_TIMEOUT(pagemap, read_back_copy, 120)
{
	struct hmm_dmirror_p2p_stats before;

	needs_data(self->how[0]);
	ASSERT_TRUE(begin_in_vram(self, "0", ALL, self->mem, 1));
	before = exp_stats(self->exp[0]);
	EXPECT_TRUE(filled(self->mem, 0, PAGE, 1));
	EXPECT_EQ(exp_stats(self->exp[0]).migrated, before.migrated + 1);
	EXPECT_EQ(exp_stats(self->exp[0]).flushes, before.flushes);

	ASSERT_TRUE(export_pages(self->exp[0], self->mem, 1, 2));
	fill(self->buf, PAGE, 3);
	ASSERT_EQ(dma(self->imp[0], self->mem, self->buf, PAGE, EDU_HMM_WRITE), 0);
	EXPECT_TRUE(filled(self->mem, 0, PAGE, 3));
	EXPECT_GT(exp_stats(self->exp[0]).flushes, before.flushes);
}

TEST_F_TIMEOUT(pagemap, read_back_release, 120)
{
	struct hmm_dmirror_p2p_stats before;

	ASSERT_TRUE(begin_in_vram(self, "0", ALL, self->mem, 1));
	before = exp_stats(self->exp[0]);
	ASSERT_EQ(madvise(self->mem, PAGE, MADV_DONTNEED), 0);
	EXPECT_EQ(exp_stats(self->exp[0]).flushes, before.flushes);

	ASSERT_TRUE(export_pages(self->exp[0], self->mem, 1, 2));
	ASSERT_EQ(fault(self, self->imp[0], self->mem, 1, EDU_HMM_NO_FAULT), 0);
	ASSERT_EQ(madvise(self->mem, PAGE, MADV_DONTNEED), 0);
	EXPECT_EQ(exp_stats(self->exp[0]).flushes, before.flushes + 1);
}

/* An alias that was refused leaves no mark. */
TEST_F_TIMEOUT(pagemap, read_back_refused, 120)
{
	struct hmm_dmirror_p2p_stats before;

	ASSERT_TRUE(begin_in_vram(self, "0", "0", self->mem, 1));
	before = exp_stats(self->exp[0]);
	ASSERT_EQ(fault(self, self->imp[0], self->mem, 1, EDU_HMM_WRITE), 0);
	EXPECT_EQ(how(self, self->imp[0], self->mem), EDU_HMM_RAM);
	EXPECT_EQ(exp_stats(self->exp[0]).op_calls, before.op_calls + 1);
	EXPECT_EQ(exp_stats(self->exp[0]).flushes, before.flushes);
}

/*
 * drm_pagemap migrates an allocation as a whole, so a CPU fault on one page takes another one
 * from the peer.
 */
TEST_F_TIMEOUT(pagemap, whole_allocation, 120)
{
	char *mem = chunk(self);

	needs_data(self->how[0]);
	ASSERT_TRUE(begin_in_vram(self, "0", ALL, mem, CHUNK));
	fill(self->buf, PAGE, 2);
	ASSERT_EQ(dma(self->imp[0], mem + 3 * PAGE, self->buf, PAGE, EDU_HMM_WRITE), 0);
	EXPECT_EQ(how(self, self->imp[0], mem + 3 * PAGE), self->how[0]);
	if (reachable(self->how[0]))
		EXPECT_EQ(live(self, 0), CHUNK);
	EXPECT_TRUE(filled(mem + 9 * PAGE, 9 * PAGE, PAGE, 1));
	EXPECT_EQ(live(self, 0), 0);
	if (reachable(self->how[0]))
		EXPECT_EQ(how(self, self->imp[0], mem + 3 * PAGE), EDU_HMM_NONE);
	EXPECT_TRUE(filled(mem, 0, 3 * PAGE, 1));
	EXPECT_TRUE(filled(mem + 3 * PAGE, 0, PAGE, 2));
	ASSERT_EQ(dma(self->imp[0], mem + 3 * PAGE, self->buf, PAGE, 0), 0);
	EXPECT_TRUE(filled(self->buf, 0, PAGE, 2));
	EXPECT_EQ(how(self, self->imp[0], mem + 3 * PAGE), EDU_HMM_RAM);
}

/*
 * Parent and child share pages in VRAM, the peer reads them for the parent. The child keeps its
 * data when the parent writes.
 */
TEST_F_TIMEOUT(pagemap, fork, 120)
{
	int go[2];
	char byte;
	pid_t pid;

	needs_data(self->how[0]);
	ASSERT_EQ(pipe(go), 0);
	ASSERT_TRUE(begin_in_vram(self, "0", ALL, self->mem, 4));
	ASSERT_EQ(fault(self, self->imp[0], self->mem, 4, EDU_HMM_WRITE), 0);
	pid = spawn();
	ASSERT_GE(pid, 0);
	if (!pid)
		_exit(read(go[0], &byte, 1) != 1 || !filled(self->mem, 0, 4 * PAGE, 1));
	EXPECT_EQ(how(self, self->imp[0], self->mem), EDU_HMM_NONE);
	ASSERT_EQ(dma(self->imp[0], self->mem, self->buf, PAGE, 0), 0);
	EXPECT_TRUE(filled(self->buf, 0, PAGE, 1));
	EXPECT_EQ(how(self, self->imp[0], self->mem), self->how[0]);
	fill(self->buf, PAGE, 2);
	ASSERT_EQ(dma(self->imp[0], self->mem, self->buf, PAGE, EDU_HMM_WRITE), 0);
	ASSERT_EQ(write(go[1], "", 1), 1);
	EXPECT_TRUE(well(pid));
	EXPECT_TRUE(filled(self->mem, 0, PAGE, 2));
	EXPECT_TRUE(filled(self->mem + PAGE, PAGE, 3 * PAGE, 1));
}

/* While a page may not leave VRAM, a peer reaches it in place. The CPU gets it afterwards. */
TEST_F_TIMEOUT(pagemap, time_slice_alias, 120)
{
	struct hmm_dmirror_p2p_stats before;

	needs_data(self->how[0]);
	ASSERT_TRUE(begin_in_vram(self, "300", ALL, self->mem, 1));
	before = exp_stats(self->exp[0]);
	fill(self->buf, PAGE, 2);
	ASSERT_EQ(dma(self->imp[0], self->mem, self->buf, PAGE, EDU_HMM_WRITE), 0);
	EXPECT_EQ(how(self, self->imp[0], self->mem), self->how[0]);
	if (reachable(self->how[0]))
		EXPECT_EQ(exp_stats(self->exp[0]).migrated, before.migrated);
	EXPECT_TRUE(filled(self->mem, 0, PAGE, 2));
	EXPECT_EQ(exp_stats(self->exp[0]).migrated, before.migrated + 1);
}

/* A peer that does not reach the page waits for it, and gets no error. */
TEST_F_TIMEOUT(pagemap, time_slice_fallback, 120)
{
	ASSERT_TRUE(begin_in_vram(self, "300", "0", self->mem, 1));
	ASSERT_EQ(fault(self, self->imp[0], self->mem, 1, EDU_HMM_WRITE), 0);
	/* The exporter was asked again and again. */
	EXPECT_GT(self->refused, 1);
	EXPECT_EQ(how(self, self->imp[0], self->mem), EDU_HMM_RAM);
	EXPECT_TRUE(filled(self->mem, 0, PAGE, 1));
}

/*
 * The pages move to another device without a detour. A peer has written to one that is not the
 * first.
 */
TEST_F_TIMEOUT(pagemap, to_other_device, 120)
{
	struct hmm_dmirror_p2p_stats before;
	char *mem = chunk(self);

	if (self->nexp < 2)
		SKIP(return, "one exporter");
	needs_data(self->how[0]);
	ASSERT_TRUE(params("0", ALL));
	ASSERT_GT(reg(self->imp[0], self->mem, NPAGES), 0);
	fill(mem, CHUNK * PAGE, 1);
	for (int i = 0; i < CHUNK; i++)
		ASSERT_EQ(mirror(self->exp[0], HMM_DMIRROR_MIGRATE_TO_DEV, mem + i * PAGE,
				 self->buf, 1),
			  1);
	before = exp_stats(self->exp[0]);
	fill(self->buf, PAGE, 2);
	ASSERT_EQ(dma(self->imp[0], mem + 5 * PAGE, self->buf, PAGE, EDU_HMM_WRITE), 0);
	ASSERT_EQ(how(self, self->imp[0], mem + 5 * PAGE), self->how[0]);

	ASSERT_EQ(mirror(self->exp[1], HMM_DMIRROR_MIGRATE_TO_DEV, mem, self->buf, CHUNK), CHUNK);
	EXPECT_EQ(live(self, 0), 0);
	EXPECT_EQ(live(self, 1), CHUNK);
	EXPECT_EQ(exp_stats(self->exp[0]).migrated - before.migrated, CHUNK);
	EXPECT_GT(exp_stats(self->exp[0]).flushes, before.flushes);
	EXPECT_TRUE(filled(self->buf + 5 * PAGE, 0, PAGE, 2));
	EXPECT_TRUE(filled(self->buf + 6 * PAGE, 6 * PAGE, 10 * PAGE, 1));
	EXPECT_EQ(how(self, self->imp[0], mem + 5 * PAGE), EDU_HMM_NONE);
	EXPECT_TRUE(filled(mem + 5 * PAGE, 0, PAGE, 2));
}

/*
 * A device of another driver works with the memory, where it is if the device reaches it. A device
 * that does not know its own pages gets them in RAM, not in its BAR.
 */
TEST_F_TIMEOUT(pagemap, other_driver, 120)
{
	const char *verdict = getenv("HMM_P2P_VERDICT");
	struct hmm_dmirror_p2p_stats before, after;
	char *mem = chunk(self);
	bool stays;

	if (self->nexp < 2)
		SKIP(return, "one exporter");
	/* The exporters are as far from each other as an importer is from one of them. */
	stays = verdict && !strstr(verdict, "none");
	ASSERT_TRUE(params("0", ALL));
	ASSERT_TRUE(export_pages(self->exp[0], mem, CHUNK, 1));
	before = exp_stats(self->exp[0]);
	ASSERT_TRUE(write_file(PARAMS "strangers", "Y"));
	EXPECT_EQ(mirror(self->exp[1], HMM_DMIRROR_READ, mem, self->buf, CHUNK), CHUNK);
	EXPECT_TRUE(filled(self->buf, 0, CHUNK * PAGE, 1));
	fill(self->buf, CHUNK * PAGE, 2);
	EXPECT_EQ(mirror(self->exp[1], HMM_DMIRROR_WRITE, mem, self->buf, CHUNK), CHUNK);
	after = exp_stats(self->exp[0]);
	EXPECT_EQ(after.migrated - before.migrated, stays ? 0 : CHUNK);
	EXPECT_EQ(live(self, 0), stays ? CHUNK : 0);

	EXPECT_EQ(mirror(self->exp[0], HMM_DMIRROR_READ, mem, self->buf, CHUNK), CHUNK);
	EXPECT_EQ(live(self, 0), 0);
	ASSERT_TRUE(write_file(PARAMS "strangers", "N"));
	EXPECT_TRUE(filled(self->buf, 0, CHUNK * PAGE, 2));
	EXPECT_TRUE(filled(mem, 0, CHUNK * PAGE, 2));
	if (stays)
		EXPECT_GT(exp_stats(self->exp[0]).flushes, before.flushes);
}

/* The driver is unbound while the peer writes to a page. It is evicted with the data. */
TEST_F_TIMEOUT(pagemap, unbind, 120)
{
	struct hmm_dmirror_p2p_stats before;
	const int n = 8;

	if (self->nexp > 1)
		SKIP(return, "the other exporter would be the first one");
	needs_data(self->how[0]);
	ASSERT_EQ(munmap(self->bar[0], self->bar_size[0]), 0);
	ASSERT_TRUE(begin_in_vram(self, "0", ALL, self->mem, n));
	before = exp_stats(self->exp[0]);
	ASSERT_EQ(fault(self, self->imp[0], self->mem, n, EDU_HMM_WRITE), 0);
	fill(self->buf, 2048, 2);
	ASSERT_EQ(dma(self->imp[0], self->mem, self->buf, 2048, EDU_HMM_WRITE | EDU_HMM_ASYNC), 0);
	ASSERT_TRUE(take_away(self->bdf[0], "exporter0", false));
	EXPECT_EQ(exp_stats(self->exp[0]).bound, 0);
	EXPECT_EQ(exp_stats(self->exp[0]).migrated - before.migrated, n);
	EXPECT_EQ(mirror(self->exp[0], HMM_DMIRROR_MIGRATE_TO_DEV, self->mem, self->buf + PAGE, 1),
		  -ENODEV);
	if (reachable(self->how[0])) {
		EXPECT_EQ(edu_stats(self->imp[0]).in_flight, 0);
		EXPECT_EQ(how(self, self->imp[0], self->mem), EDU_HMM_NONE);
	}
	ASSERT_EQ(call(self->imp[0], EDU_HMM_WAIT, NULL), 0);
	EXPECT_TRUE(filled(self->mem, 0, 2048, 2));
	EXPECT_TRUE(filled(self->mem + 2048, 2048, n * PAGE - 2048, 1));

	/* The device is bound again, and has aliases. */
	ASSERT_TRUE(bind_exporter(self));
	ASSERT_TRUE(export_pages(self->exp[0], self->mem, 1, 3));
	ASSERT_EQ(fault(self, self->imp[0], self->mem, 1, EDU_HMM_WRITE), 0);
	EXPECT_EQ(how(self, self->imp[0], self->mem), self->how[0]);
}

/*
 * Copies to RAM fail: in a page fault of the CPU, which then fails, and in evictions, which are
 * repeated. No data are lost.
 */
TEST_F_TIMEOUT(pagemap, copy_fails, 120)
{
	const int n = 8;
	char left[4] = "";
	int fds[2], fd;

	if (self->nexp > 1)
		SKIP(return, "the other exporter would be the first one");
	ASSERT_TRUE(begin_in_vram(self, "0", ALL, self->mem, n));
	ASSERT_EQ(munmap(self->bar[0], self->bar_size[0]), 0);
	ASSERT_EQ(pipe(fds), 0);
	ASSERT_TRUE(write_file(PARAMS "fail_copies", "1"));
	EXPECT_EQ(write(fds[1], self->mem, 1), -1);
	EXPECT_EQ(errno, EFAULT);
	EXPECT_EQ(live(self, 0), n);
	EXPECT_TRUE(filled(self->mem, 0, PAGE, 1));

	/* drm_pagemap_evict_to_ram() tries three times, and the driver repeats it. */
	ASSERT_TRUE(write_file(PARAMS "fail_copies", "4"));
	ASSERT_TRUE(take_away(self->bdf[0], "exporter0", false));
	fd = open(PARAMS "fail_copies", O_RDONLY);
	EXPECT_GT(read(fd, left, sizeof(left) - 1), 0);
	EXPECT_STREQ(left, "0\n");
	EXPECT_EQ(live(self, 0), 0);
	EXPECT_TRUE(filled(self->mem, 0, n * PAGE, 1));
	ASSERT_TRUE(bind_exporter(self));
}

static void *unbind(void *bdf)
{
	return take_away(bdf, "exporter0", false) ? bdf : NULL;
}

/*
 * The process that moved the pages to VRAM has exited, its child still has them. They are evicted
 * for the child.
 */
TEST_F_TIMEOUT(pagemap, unbind_orphan, 120)
{
	pthread_t thread;
	int go[2], result[2];
	void *unbound;
	char byte = 0;
	pid_t pid;

	if (self->nexp > 1)
		SKIP(return, "the other exporter would be the first one");
	ASSERT_TRUE(params("0", ALL));
	ASSERT_EQ(munmap(self->bar[0], self->bar_size[0]), 0);
	ASSERT_EQ(pipe(go), 0);
	ASSERT_EQ(pipe(result), 0);
	pid = spawn();
	ASSERT_GE(pid, 0);
	if (!pid) {
		int exporter = open_exporter(0);

		if (!export_pages(exporter, self->mem, 4, 1))
			_exit(1);
		pid = fork();
		if (pid)
			_exit(pid < 0);
		/* The end of the test ends this process, too. */
		close(go[1]);
		if (read(go[0], &byte, 1) == 1 && filled(self->mem, 0, 4 * PAGE, 1))
			write(result[1], "", 1);
		_exit(0);
	}
	ASSERT_TRUE(well(pid));
	close(result[1]);
	EXPECT_EQ(live(self, 0), 4);
	ASSERT_EQ(pthread_create(&thread, NULL, unbind, self->bdf[0]), 0);
	for (int i = 0; i < 200 && live(self, 0); i++)
		usleep(100000);
	EXPECT_EQ(live(self, 0), 0);
	/* If they are not evicted, unbinding waits for the child. */
	ASSERT_EQ(write(go[1], "", 1), 1);
	EXPECT_EQ(read(result[0], &byte, 1), 1);
	ASSERT_EQ(pthread_join(thread, &unbound), 0);
	EXPECT_NE(unbound, NULL);
	ASSERT_TRUE(bind_exporter(self));
}

/* A driver without aliases: all pages migrate. */
TEST_F_TIMEOUT(pagemap, no_aliases, 120)
{
	bool good;

	if (self->nexp > 1)
		SKIP(return, "the other exporter would be the first one");
	ASSERT_TRUE(params("0", ALL));
	ASSERT_TRUE(take_away(self->bdf[0], "exporter0", false));
	ASSERT_TRUE(write_file(PARAMS "p2p", "N"));
	good = bind_exporter(self);
	write_file(PARAMS "p2p", "Y");
	ASSERT_TRUE(good);
	ASSERT_GT(reg(self->imp[0], self->mem, NPAGES), 0);
	ASSERT_TRUE(export_pages(self->exp[0], self->mem, 2, 1));
	ASSERT_EQ(fault(self, self->imp[0], self->mem, 2, EDU_HMM_WRITE), 0);
	EXPECT_EQ(how(self, self->imp[0], self->mem), EDU_HMM_RAM);
	EXPECT_EQ(exp_stats(self->exp[0]).op_calls, 0);
	EXPECT_TRUE(filled(self->mem, 0, 2 * PAGE, 1));

	ASSERT_TRUE(take_away(self->bdf[0], "exporter0", false));
	ASSERT_TRUE(bind_exporter(self));
}

TEST_HARNESS_MAIN
