// SPDX-License-Identifier: GPL-2.0-only
/*
 * On-demand paging by the RDMA core under load. The environment variable ODP_STRESS_SECONDS says
 * for how long (20).
 */
#include "odp-workers.h"

static void do_prefetch(struct worker *w)
{
	int n, first = some(w, w->npages, &n), ret;

	ret = patient_fault(w, first, n, roll(w, 2) ? EDU_HMM_NO_FAULT : EDU_HMM_DOWNGRADE);
	if (ret)
		FAIL(w, ret);
}

/* Migrate pages to the memory of the exporter, or let the CPU bring them back. */
static void do_migrate(struct worker *w)
{
	int n, first = some(w, w->npages, &n);
	long ret;

	if (roll(w, 3)) {
		ret = mirror(w->exp, HMM_DMIRROR_MIGRATE_TO_DEV, w->mem + first * PAGE, w->copy, n);
		if (ret < 0 && ret != -ENOENT && ret != -EBUSY)
			FAIL(w, ret);
	} else {
		for (int i = first; i < first + n && i < w->keep; i++)
			if (!kept(w->mem + i * PAGE, i))
				FAIL(w, 1);
	}
}

/* Drop pages, and fill some of them again. */
static void do_dontneed(struct worker *w)
{
	int n, first = w->keep + some(w, w->npages - w->keep, &n);

	if (madvise(w->mem + first * PAGE, n * PAGE, MADV_DONTNEED))
		FAIL(w, -errno);
	for (int i = first; i < first + n; i++) {
		if (!all(w->mem + i * PAGE, PAGE - SLOT, 0))
			FAIL(w, 1);
		if (roll(w, 2))
			fill(w->mem + i * PAGE, PAGE - SLOT, i);
	}
}

/* The device writes to pages that keep their data, and reads back what it has written. */
static void do_dma(struct worker *w)
{
	char *slot = w->mem + w->rounds % w->keep * PAGE + PAGE - SLOT;
	char out[SLOT], in[SLOT];
	int ret;

	fill(out, SLOT, w->rounds);
	do {
		ret = dma(w->fd, slot, out, SLOT, EDU_HMM_WRITE);
		if (!ret)
			ret = dma(w->fd, slot, in, SLOT, 0);
	} while (late(w, ret));
	if (!ret && memcmp(in, out, SLOT))
		ret = 1;
	if (ret)
		FAIL(w, ret);
}

static void do_fault_some(struct worker *w)
{
	int first = roll(w, w->npages), n = 1 + roll(w, w->npages - first), ret;

	ret = patient_fault(w, first, n, EDU_HMM_WRITE);
	if (ret)
		FAIL(w, ret);
}

static void do_drop_some(struct worker *w)
{
	int first = roll(w, w->npages), n = 1 + roll(w, w->npages - first);

	if (madvise(w->mem + first * PAGE, n * PAGE, MADV_DONTNEED))
		FAIL(w, -errno);
}

/*
 * All threads work on the same few pages. At the end as many pages are in the device page table as
 * are counted.
 */
TEST_F_TIMEOUT(odp, fault_and_drop, 36000)
{
	static void (*const work[])(struct worker *w) = {
		do_fault_some, do_fault_some, do_fault_some, do_fault_some, do_drop_some,
			do_drop_some,
	};
	const int count = sizeof(work) / sizeof(*work), npages = 16;
	const char *text = getenv("ODP_STRESS_SECONDS");
	int seconds = text ? atoi(text) : 20, bad = 0;
	atomic_bool stop = false;
	struct worker workers[count], like = {
		.self = self, .fd = self->imp[0], .mem = self->mem, .npages = npages, .stop = &stop,
	};

	ASSERT_GT(reg(like.fd, self->mem, npages), 0);
	ASSERT_TRUE(start_workers(workers, &like, work, count));
	for (time_t end = time(NULL) + seconds; time(NULL) < end && !bad;) {
		usleep(100000);
		for (int i = 0; i < count; i++)
			bad |= workers[i].line;
	}
	stop = true;
	for (int i = 0; i < count; i++) {
		pthread_join(workers[i].thread, NULL);
		EXPECT_EQ(workers[i].line, 0) {
			TH_LOG("worker %d, line %d: %d", i, workers[i].line, workers[i].error);
		}
		EXPECT_GT(workers[i].rounds, 0);
		TH_LOG("worker %d: %u rounds, %u late", i, workers[i].rounds, workers[i].late);
	}
	/* A page that was dropped during a look-up is no reason to give up. */
	EXPECT_EQ(edu_stats(like.fd).again, 0);
	EXPECT_EQ(edu_stats(like.fd).npages, present(self, like.fd, self->mem, npages));
	for (int i = 0; i < npages; i++)
		EXPECT_TRUE(self->pages[i].how == EDU_HMM_NONE ||
			    is_ram(self->pages + i, self->mem + i * PAGE));
	ASSERT_EQ(madvise(self->mem, npages * PAGE, MADV_DONTNEED), 0);
	EXPECT_COUNTS(like.fd, 0, 0, 0);
}

/* How long a look takes, in microseconds. */
static unsigned int look_us;

/* Drop a page about every second look. */
static void do_drop_rarely(struct worker *w)
{
	usleep((uint64_t)roll(w, 1000) * look_us / 250);
	if (madvise(w->mem, PAGE, MADV_DONTNEED))
		FAIL(w, -errno);
}

/*
 * The last page is dropped again and again while all parts of a range are looked up without faults.
 * Each drop disturbs at most one part, of 512 pages. Only this part is looked up again. The test
 * allows 20 more, because the kernel invalidates some pages, too.
 */
TEST_F_TIMEOUT(odp, snapshot_and_drop, 600)
{
	static void (*const work[])(struct worker *w) = { do_drop_rarely };
	const int n = 2000, part = 512;
	char *mem = anon((n + 1) * PAGE);
	atomic_bool stop = false;
	struct worker dropper, like = {
		.self = self, .mem = mem + n * PAGE, .npages = 1, .stop = &stop,
	};
	int fd = self->imp[0], looks = 0, ret = 0;
	struct timespec t[2];
	uint64_t calls;

	if (!reachable(self->how[0]))
		SKIP(return, "only an alias tells how often a page is looked up");
	ASSERT_NE(mem, NULL);
	ASSERT_TRUE(export_pages(self->exp[0], mem, n, 1));
	mem[n * PAGE] = 1;
	ASSERT_GT(reg(fd, mem, n + 1), 0);
	clock_gettime(CLOCK_MONOTONIC, t);
	ASSERT_EQ(fault(self, fd, mem, n + 1, EDU_HMM_NO_FAULT), 0);
	clock_gettime(CLOCK_MONOTONIC, t + 1);
	look_us = (t[1].tv_sec - t[0].tv_sec) * 1000000 + (t[1].tv_nsec - t[0].tv_nsec) / 1000;
	calls = exp_stats(self->exp[0]).op_calls;
	ASSERT_TRUE(start_workers(&dropper, &like, work, 1));
	for (; !ret && (looks < 200 || dropper.rounds < 100); looks++)
		ret = fault(self, fd, mem, n + 1, EDU_HMM_NO_FAULT);
	stop = true;
	pthread_join(dropper.thread, NULL);
	calls = exp_stats(self->exp[0]).op_calls - calls;
	EXPECT_EQ(dropper.line, 0);
	TH_LOG("%u drops during %d looks of %u us, %lu calls", dropper.rounds, looks, look_us,
	       calls);
	EXPECT_EQ(ret, 0);
	EXPECT_EQ(edu_stats(fd).again, 0);
	EXPECT_GE(calls, (uint64_t)looks * n);
	EXPECT_LT(calls, (uint64_t)looks * n + (dropper.rounds + 20UL) * part);
	ASSERT_EQ(fault(self, fd, mem, n + 1, EDU_HMM_NO_FAULT), 0);
	EXPECT_COUNTS(fd, n, n, 0);
	munmap(mem, (n + 1) * PAGE);
}

/* All operations at the same time on one range. */
TEST_F_TIMEOUT(odp, stress, 36000)
{
	static void (*const work[])(struct worker *w) = {
		do_fault, do_fault, do_fault, do_fault, do_migrate, do_dontneed, do_prefetch,
			do_fork, do_dma,
	};
	static const char *const names[] = {
		"fault", "fault", "fault", "fault", "migrate", "dontneed", "prefetch", "fork",
			"dma",
	};
	const int count = sizeof(work) / sizeof(*work), npages = 640, keep = 320;
	const char *text = getenv("ODP_STRESS_SECONDS");
	int seconds = text ? atoi(text) : 20, reach = reachable(self->how[0]);
	struct worker workers[count], *last = workers + count - 1, like;
	struct hmm_dmirror_p2p_stats before = exp_stats(self->exp[0]);
	int fd = self->imp[0], bad = 0, round;
	atomic_bool stop = false;
	struct edu_hmm_stats s;
	time_t end;

	needs_data(self->how[0]);
	like = (struct worker){
		.self = self, .fd = fd, .exp = self->exp[0], .mem = anon(npages * PAGE),
			.npages = npages, .keep = keep,
		.stop = &stop,
	};
	ASSERT_NE(like.mem, NULL);
	for (int i = 0; i < keep; i++)
		fill(like.mem + i * PAGE, PAGE - SLOT, i);
	ASSERT_EQ(reg(fd, like.mem, npages), self->shape);
	ASSERT_TRUE(start_workers(workers, &like, work, count));
	end = time(NULL) + seconds;
	for (int i = 1; time(NULL) < end && !bad; i++) {
		sleep(1);
		for (int w = 0; w < count; w++)
			bad |= workers[w].line;
		if (i % 30 == 0)
			TH_LOG("%d seconds, %u faults", i, workers[0].rounds);
	}
	stop = true;
	for (int i = 0; i < count; i++) {
		pthread_join(workers[i].thread, NULL);
		EXPECT_EQ(workers[i].line, 0) {
			TH_LOG("%s, line %d: %d", names[i], workers[i].line, workers[i].error);
		}
		EXPECT_GT(workers[i].rounds, 0);
		TH_LOG("%s: %u rounds, %u late", names[i], workers[i].rounds, workers[i].late);
	}
	s = edu_stats(fd);
	TH_LOG("%lu p2p pages, %lu fallbacks, %lu dropped, %lu waits, %lu migrated",
	       (long)s.p2p_pages, (long)s.p2p_fallbacks,
	       (long)s.dropped, (long)s.waits,
		(long)(exp_stats(self->exp[0]).migrated - before.migrated));
	EXPECT_EQ(s.npages, present(self, fd, like.mem, npages));
	EXPECT_GT(s.dropped, 0);
	EXPECT_GT(reach ? s.p2p_pages : s.p2p_fallbacks, 0);
	EXPECT_EQ(reach ? s.p2p_fallbacks : s.p2p_pages, 0);

	/* All pages can be faulted in, and have the right data. */
	ASSERT_EQ(fault(self, fd, like.mem, npages, EDU_HMM_WRITE), 0);
	EXPECT_EQ(edu_stats(fd).npages, npages);
	for (int i = 0; i < keep; i++) {
		EXPECT_TRUE(kept(like.mem + i * PAGE, i)) TH_LOG("page %d", i);
		/* The last round in which the device wrote to this page. */
		round = i + ((int)last->rounds - 1 - i) / keep * keep;
		if ((int)last->rounds > i && !last->line) {
			EXPECT_TRUE(filled(like.mem + (i + 1) * PAGE - SLOT, 0, SLOT, round));
		}
	}
	for (int i = keep; i < npages; i++) {
		EXPECT_TRUE(all(like.mem + i * PAGE, PAGE, 0) || kept(like.mem + i * PAGE, i)) {
			TH_LOG("page %d", i);
		}
	}
	ASSERT_EQ(fault(self, fd, like.mem, npages, EDU_HMM_WRITE), 0);
	ASSERT_EQ(state(self, fd, like.mem, npages), 0);
	for (int i = 0; i < npages; i++) {
		EXPECT_TRUE(is_ram(self->pages + i, like.mem + i * PAGE)) TH_LOG("page %d", i);
	}
	ASSERT_EQ(munmap(like.mem, npages * PAGE), 0);
	EXPECT_EQ(edu_stats(fd).npages, 0);
	EXPECT_EQ(exp_stats(self->exp[0]).bar_live, 0);
}

TEST_HARNESS_MAIN
