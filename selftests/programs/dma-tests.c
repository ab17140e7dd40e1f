// SPDX-License-Identifier: GPL-2.0-only
/*
 * The DMA engine of an edu device (selftests/modules/edu_hmm) reads and writes the memory of this
 * process, wherever it is. The data on both sides are compared. With EDU_DEVICE=edu_odp the device
 * uses on-demand paging by the RDMA core.
 */
#define BENCH		dma
#define BENCH_DEVICE	"edu_hmm"
#include "edu-bench.h"
#include <elf.h>
#include <sys/resource.h>
#include <sys/wait.h>

/*
 * Longer than the 100 ms after which the device would write to a page that it must not use any
 * more.
 */
#define LATE_US		300000

static int edu_wait(int fd)
{
	return call(fd, EDU_HMM_WAIT, NULL);
}

/*
 * All pages are mapped by their alias, or are in system memory, as the topology demands. Each has
 * the right address.
 */
TEST_F_TIMEOUT(dma, mapping, 300)
{
	uint64_t first = 0;

	ASSERT_EQ(reg(self->imp[0], self->mem, NPAGES), self->shape);
	for (int e = 0; e < self->nexp; e++) {
		struct hmm_dmirror_p2p_stats before, after;

		ASSERT_TRUE(export_pages(self->exp[e], self->mem, NPAGES, e));
		before = exp_stats(self->exp[e]);
		ASSERT_EQ(fault(self, self->imp[0], self->mem, NPAGES, EDU_HMM_WRITE), 0);
		after = exp_stats(self->exp[e]);
		EXPECT_EQ(self->refused, reachable(self->how[e]) ? 0 : NPAGES);
		EXPECT_EQ(after.migrated - before.migrated, reachable(self->how[e]) ? 0 : NPAGES);
		ASSERT_EQ(state(self, self->imp[0], self->mem, NPAGES), 0);
		for (int i = 0; i < NPAGES; i++) {
			struct edu_hmm_page *p = self->pages + i;

			ASSERT_EQ(p->how, self->how[e]);
			EXPECT_EQ(p->write, 1);
			if (reachable(p->how)) {
				/* Small pages come one after the other out of an empty BAR. */
				if (!i)
					first = p->phys;
				if (!bench_nouveau())
					EXPECT_EQ(p->phys, first + i * PAGE);
				EXPECT_NE(bar_page(self, e, p->phys), NULL);
				EXPECT_TRUE(filled(bar_page(self, e, p->phys), i * PAGE, PAGE, e));
			}
			/* An IOVA is contiguous over the range, and no physical address. */
			if (self->shape != EDU_HMM_IOVA || p->how == EDU_HMM_BUS) {
				EXPECT_EQ(p->dma, p->phys);
			} else {
				EXPECT_NE(p->dma, p->phys);
				EXPECT_EQ(p->dma, self->pages[0].dma + i * PAGE);
			}
		}
		/* The CPU faults on them. */
		EXPECT_TRUE(filled(self->mem, 0, NPAGES * PAGE, e));
		EXPECT_EQ(exp_stats(self->exp[e]).migrated - before.migrated, NPAGES);
		if (reachable(self->how[e]))
			EXPECT_EQ(how(self, self->imp[0], self->mem), EDU_HMM_NONE);
	}
}

/* The exporter and the CPU read what the device writes, and the device reads what they write. */
TEST_F_TIMEOUT(dma, write_read, 600)
{
	const size_t len = 4 * PAGE;

	ASSERT_EQ(reg(self->imp[0], self->mem, NPAGES), self->shape);
	for (int e = 0; e < self->nexp; e++) {
		struct hmm_dmirror_p2p_stats before;

		needs_data(self->how[e]);
		ASSERT_TRUE(export_pages(self->exp[e], self->mem, NPAGES, 1));
		before = exp_stats(self->exp[e]);

		/* The device reads the data of the exporter. */
		ASSERT_EQ(dma(self->imp[0], self->mem, self->buf, len, 0), 0);
		EXPECT_TRUE(filled(self->buf, 0, len, 1));

		/* The device writes, the exporter reads its own memory. */
		fill(self->buf, len, 2);
		ASSERT_EQ(dma(self->imp[0], self->mem, self->buf, len, EDU_HMM_WRITE), 0);
		/* Writes to nouveau are posted: a read makes them arrive. */
		if (bench_nouveau())
			ASSERT_EQ(dma(self->imp[0], self->mem, self->buf, 4, 0), 0);
		memset(self->buf, 0, len);
		ASSERT_EQ(mirror(self->exp[e], HMM_DMIRROR_READ, self->mem, self->buf, 4), 4);
		EXPECT_TRUE(filled(self->buf, 0, len, 2));

		/* The exporter writes its own memory, the device reads. */
		fill(self->buf, len, 3);
		ASSERT_EQ(mirror(self->exp[e], HMM_DMIRROR_WRITE, self->mem, self->buf, 4), 4);
		memset(self->buf, 0, len);
		ASSERT_EQ(dma(self->imp[0], self->mem, self->buf, len, 0), 0);
		EXPECT_TRUE(filled(self->buf, 0, len, 3));
		if (reachable(self->how[e]))
			EXPECT_EQ(exp_stats(self->exp[e]).migrated, before.migrated);

		/* The device writes again. The CPU reads, so the page migrates. */
		fill(self->buf, len, 4);
		ASSERT_EQ(dma(self->imp[0], self->mem, self->buf, len, EDU_HMM_WRITE), 0);
		EXPECT_TRUE(filled(self->mem, 0, len, 4));
		EXPECT_TRUE(filled(self->mem + len, len, NPAGES * PAGE - len, 1));
		EXPECT_EQ(exp_stats(self->exp[e]).migrated - before.migrated, NPAGES);

		/* The CPU writes, the device reads RAM. */
		fill(self->mem, len, 5);
		memset(self->buf, 0, len);
		ASSERT_EQ(dma(self->imp[0], self->mem, self->buf, len, 0), 0);
		EXPECT_TRUE(filled(self->buf, 0, len, 5));
		EXPECT_EQ(how(self, self->imp[0], self->mem), EDU_HMM_RAM);
	}
}

/*
 * Odd addresses and lengths. The pages are in RAM and in the memory of each exporter in turn.
 */
TEST_F_TIMEOUT(dma, unaligned, 600)
{
	const size_t skip = 1000, len = 5 * PAGE + 77;

	for (int e = 0; e < self->nexp; e++)
		needs_data(self->how[e]);
	fill(self->mem, NPAGES * PAGE, 1);
	for (int i = 0; i < 8; i++) {
		int e = i % (self->nexp + 1);

		if (e < self->nexp)
			ASSERT_EQ(mirror(self->exp[e], HMM_DMIRROR_MIGRATE_TO_DEV,
					 self->mem + i * PAGE, self->buf, 1),
				  1);
	}
	ASSERT_GT(reg(self->imp[0], self->mem, NPAGES), 0);
	ASSERT_EQ(dma(self->imp[0], self->mem + skip, self->buf, len, 0), 0);
	EXPECT_TRUE(filled(self->buf, skip, len, 1));

	ASSERT_EQ(state(self, self->imp[0], self->mem, 8), 0);
	for (int i = 0; i < 6; i++) {
		int e = i % (self->nexp + 1);

		EXPECT_EQ(self->pages[i].how, e < self->nexp ? self->how[e] : EDU_HMM_RAM);
	}

	fill(self->buf, len, 2);
	ASSERT_EQ(dma(self->imp[0], self->mem + skip, self->buf, len, EDU_HMM_WRITE), 0);
	EXPECT_TRUE(filled(self->mem, 0, skip, 1));
	EXPECT_TRUE(filled(self->mem + skip, 0, len, 2));
	EXPECT_TRUE(filled(self->mem + skip + len, skip + len, NPAGES * PAGE - skip - len, 1));
}

/*
 * A range over the memory of two exporters and RAM. One walk reaches each page in its own way.
 */
TEST_F_TIMEOUT(dma, two_exporters, 600)
{
	struct hmm_dmirror_p2p_stats before[EXPORTERS];
	size_t third = NPAGES / 3 * PAGE;
	uint64_t refused = 0;

	if (self->nexp < 2)
		SKIP(return, "one exporter");
	needs_data(self->how[0]);
	ASSERT_TRUE(export_pages(self->exp[0], self->mem, NPAGES / 3, 1));
	ASSERT_TRUE(export_pages(self->exp[1], self->mem + third, NPAGES / 3, 2));
	fill(self->mem + 2 * third, third, 3);
	for (int e = 0; e < 2; e++) {
		before[e] = exp_stats(self->exp[e]);
		refused += reachable(self->how[e]) ? 0 : NPAGES / 3;
	}

	ASSERT_GT(reg(self->imp[0], self->mem, NPAGES), 0);
	ASSERT_EQ(fault(self, self->imp[0], self->mem, NPAGES / 3 * 3, EDU_HMM_WRITE), 0);
	EXPECT_EQ(self->refused, refused);
	ASSERT_EQ(state(self, self->imp[0], self->mem, NPAGES), 0);
	for (int i = 0; i < NPAGES / 3; i++) {
		EXPECT_EQ(self->pages[i].how, self->how[0]);
		EXPECT_EQ(self->pages[NPAGES / 3 + i].how, self->how[1]);
		EXPECT_EQ(self->pages[2 * (NPAGES / 3) + i].how, EDU_HMM_RAM);
	}
	for (int e = 0; e < 2; e++)
		EXPECT_EQ(exp_stats(self->exp[e]).migrated - before[e].migrated,
			  reachable(self->how[e]) ? 0 : NPAGES / 3);

	for (int i = 0; i < 3; i++) {
		ASSERT_EQ(dma(self->imp[0], self->mem + i * third, self->buf, PAGE,
			      EDU_HMM_NO_FAULT),
			  0);
		EXPECT_TRUE(filled(self->buf, 0, PAGE, i + 1));
		fill(self->buf, PAGE, i + 11);
		ASSERT_EQ(dma(self->imp[0], self->mem + i * third, self->buf, PAGE,
			      EDU_HMM_WRITE | EDU_HMM_NO_FAULT),
			  0);
	}
	for (int i = 0; i < 3; i++) {
		EXPECT_TRUE(filled(self->mem + i * third, 0, PAGE, i + 11));
		EXPECT_TRUE(filled(self->mem + i * third + PAGE, PAGE, third - PAGE, i + 1));
	}
}

/*
 * Pages in the memory of the importer itself are found but not mapped. Their neighbours are
 * mapped.
 */
TEST_F_TIMEOUT(dma, local, 600)
{
	struct edu_hmm_migrate migrate = { .addr = (uintptr_t)self->mem + 4 * PAGE, .npages = 4 };
	int want[] = { EDU_HMM_RAM, EDU_HMM_LOCAL, self->how[0] };
	const size_t len = 4 * PAGE;

	if (bench_odp())
		SKIP(return, "edu_odp has no memory of its own");
	needs_data(self->how[0]);
	for (int i = 0; i < 3; i++)
		fill(self->mem + i * len, len, i);
	ASSERT_GT(reg(self->imp[0], self->mem, NPAGES), 0);
	ASSERT_EQ(call(self->imp[0], EDU_HMM_MIGRATE, &migrate), 0);
	ASSERT_EQ(migrate.moved, 4);
	ASSERT_TRUE(export_pages(self->exp[0], self->mem + 2 * len, 4, 2));

	ASSERT_EQ(fault(self, self->imp[0], self->mem, 12, EDU_HMM_WRITE), 0);
	EXPECT_EQ(self->refused, reachable(self->how[0]) ? 0 : 4);
	ASSERT_EQ(state(self, self->imp[0], self->mem, 12), 0);
	for (int i = 0; i < 12; i++) {
		EXPECT_EQ(self->pages[i].how, want[i / 4]);
		EXPECT_EQ(!self->pages[i].dma, want[i / 4] == EDU_HMM_LOCAL);
	}
	ASSERT_EQ(dma(self->imp[0], self->mem, self->buf, 3 * len, EDU_HMM_NO_FAULT), 0);
	for (int i = 0; i < 3; i++)
		EXPECT_TRUE(filled(self->buf + i * len, 0, len, i));
	fill(self->buf, 3 * len, 9);
	ASSERT_EQ(dma(self->imp[0], self->mem, self->buf, 3 * len,
		      EDU_HMM_WRITE | EDU_HMM_NO_FAULT),
		  0);
	EXPECT_EQ(how(self, self->imp[0], self->mem + len), EDU_HMM_LOCAL);
	/* The CPU faults on the pages in both memories. */
	EXPECT_TRUE(filled(self->mem, 0, 3 * len, 9));
	EXPECT_EQ(how(self, self->imp[0], self->mem + len), EDU_HMM_NONE);
}

/*
 * A huge page in the memory of the exporter. Its aliases are contiguous. Data are compared at both
 * ends and in the middle.
 */
TEST_F_TIMEOUT(dma, huge, 600)
{
	static const unsigned int at[] = { 0, 1, 255, 256, 511 };
	struct hmm_dmirror_p2p_stats before;
	char *map = anon(2 * HUGE), *mem;
	uint64_t first;

	needs_data(self->how[0]);
	ASSERT_NE(map, NULL);
	mem = (char *)(((uintptr_t)map + HUGE - 1) & ~(HUGE - 1));
	madvise(mem, HUGE, MADV_HUGEPAGE);
	ASSERT_TRUE(export_pages(self->exp[0], mem, 512, 1));
	before = exp_stats(self->exp[0]);
	ASSERT_GT(reg(self->imp[0], mem, 512), 0);
	/*
	 * Beginning in the middle, which the walk must not take for the start. One call: it is a
	 * huge page indeed.
	 */
	ASSERT_EQ(fault(self, self->imp[0], mem + 100 * PAGE, 32, EDU_HMM_WRITE), 0);
	if (!bench_nouveau())
		EXPECT_EQ(exp_stats(self->exp[0]).op_calls - before.op_calls, 1);
	ASSERT_EQ(state(self, self->imp[0], mem + 100 * PAGE, 1), 0);
	first = self->pages[0].phys - 100 * PAGE;
	ASSERT_EQ(fault(self, self->imp[0], mem, 512, EDU_HMM_WRITE), 0);
	ASSERT_EQ(state(self, self->imp[0], mem, 512), 0);
	for (int i = 0; i < 512; i++) {
		ASSERT_EQ(self->pages[i].how, self->how[0]);
		if (reachable(self->how[0]))
			EXPECT_EQ(self->pages[i].phys, first + i * PAGE);
	}
	for (unsigned int i = 0; i < sizeof(at) / sizeof(*at); i++) {
		ASSERT_EQ(dma(self->imp[0], mem + at[i] * PAGE, self->buf, PAGE, EDU_HMM_NO_FAULT),
			  0);
		EXPECT_TRUE(filled(self->buf, at[i] * PAGE, PAGE, 1));
		fill(self->buf, PAGE, i + 2);
		ASSERT_EQ(dma(self->imp[0], mem + at[i] * PAGE, self->buf, PAGE,
			      EDU_HMM_WRITE | EDU_HMM_NO_FAULT),
			  0);
	}
	if (reachable(self->how[0]))
		EXPECT_EQ(exp_stats(self->exp[0]).migrated, before.migrated);
	for (unsigned int i = 0; i < sizeof(at) / sizeof(*at); i++)
		EXPECT_TRUE(filled(mem + at[i] * PAGE, 0, PAGE, i + 2));
	EXPECT_TRUE(filled(mem + 2 * PAGE, 2 * PAGE, 253 * PAGE, 1));
	munmap(map, 2 * HUGE);
}

/*
 * Each second page is requested, by its own entry of the array. The pages between them stay as they
 * are.
 */
TEST_F_TIMEOUT(dma, each_second, 300)
{
	if (bench_odp())
		SKIP(return, "the RDMA core asks for ranges");
	ASSERT_GT(reg(self->imp[0], self->mem, NPAGES), 0);
	/* There has to be a page table. A hole without one is faulted in as a whole. */
	fill(self->mem, PAGE, 1);
	ASSERT_EQ(madvise(self->mem, PAGE, MADV_DONTNEED), 0);
	ASSERT_EQ(fault(self, self->imp[0], self->mem, NPAGES, EDU_HMM_WRITE | EDU_HMM_ODD), 0);
	ASSERT_EQ(state(self, self->imp[0], self->mem, NPAGES), 0);
	for (int i = 1; i < NPAGES; i += 2) {
		EXPECT_EQ(self->pages[i - 1].how, EDU_HMM_NONE);
		EXPECT_EQ(self->pages[i].how, EDU_HMM_RAM);
		EXPECT_EQ(self->pages[i].write, 1);
	}
	/* Here aliases of device memory are not requested. */
	ASSERT_TRUE(export_pages(self->exp[0], self->mem, 4, 1));
	ASSERT_EQ(fault(self, self->imp[0], self->mem, 4, EDU_HMM_ODD), 0);
	ASSERT_EQ(state(self, self->imp[0], self->mem, 4), 0);
	for (int i = 0; i < 4; i++)
		EXPECT_EQ(self->pages[i].how, i & 1 ? EDU_HMM_RAM : EDU_HMM_NONE);
	EXPECT_EQ(exp_stats(self->exp[0]).bar_live, 2);
	EXPECT_TRUE(filled(self->mem, 0, 4 * PAGE, 1));
}

/* A read-only page becomes writable, or stays read-only. */
TEST_F_TIMEOUT(dma, read_then_write, 300)
{
	needs_data(self->how[0]);
	ASSERT_TRUE(export_pages(self->exp[0], self->mem, 2, 1));
	ASSERT_EQ(mprotect(self->mem, 2 * PAGE, PROT_READ), 0);
	ASSERT_GT(reg(self->imp[0], self->mem, NPAGES), 0);

	ASSERT_EQ(dma(self->imp[0], self->mem, self->buf, 64, 0), 0);
	EXPECT_TRUE(filled(self->buf, 0, 64, 1));
	EXPECT_EQ(self->how[0], how(self, self->imp[0], self->mem));
	EXPECT_EQ(self->pages[0].write, 0);
	EXPECT_EQ(dma(self->imp[0], self->mem, self->buf, 64, EDU_HMM_WRITE | EDU_HMM_NO_FAULT),
		  -ENOENT);
	EXPECT_EQ(dma(self->imp[0], self->mem, self->buf, 64, EDU_HMM_WRITE), -EPERM);

	ASSERT_EQ(mprotect(self->mem, 2 * PAGE, PROT_READ | PROT_WRITE), 0);
	fill(self->buf, 64, 2);
	ASSERT_EQ(dma(self->imp[0], self->mem, self->buf, 64, EDU_HMM_WRITE), 0);
	EXPECT_TRUE(filled(self->mem, 0, 64, 2));
	EXPECT_TRUE(filled(self->mem + 64, 64, 2 * PAGE - 64, 1));
}

/* Freed memory of the exporter is used again by another page. */
TEST_F_TIMEOUT(dma, reuse, 300)
{
	uint64_t phys;

	needs_data(self->how[0]);
	ASSERT_GT(reg(self->imp[0], self->mem, NPAGES), 0);
	ASSERT_TRUE(export_pages(self->exp[0], self->mem, 4, 1));
	ASSERT_EQ(fault(self, self->imp[0], self->mem, 4, EDU_HMM_WRITE), 0);
	ASSERT_EQ(state(self, self->imp[0], self->mem, 4), 0);
	phys = self->pages[0].phys;
	ASSERT_EQ(madvise(self->mem, 4 * PAGE, MADV_DONTNEED), 0);
	ASSERT_TRUE(export_pages(self->exp[0], self->mem + 8 * PAGE, 4, 2));

	ASSERT_EQ(dma(self->imp[0], self->mem + 8 * PAGE, self->buf, PAGE, 0), 0);
	EXPECT_TRUE(filled(self->buf, 0, PAGE, 2));
	ASSERT_EQ(state(self, self->imp[0], self->mem + 8 * PAGE, 4), 0);
	if (reachable(self->how[0])) {
		/* At least one of four pages has the same memory. */
		bool same = false;

		ASSERT_EQ(fault(self, self->imp[0], self->mem + 8 * PAGE, 4, 0), 0);
		ASSERT_EQ(state(self, self->imp[0], self->mem + 8 * PAGE, 4), 0);
		for (int i = 0; i < 4; i++)
			same |= self->pages[i].phys == phys;
		EXPECT_TRUE(same);
	}
	EXPECT_EQ(dma(self->imp[0], self->mem, self->buf, 64, EDU_HMM_NO_FAULT), -ENOENT);
	ASSERT_EQ(dma(self->imp[0], self->mem, self->buf, 64, 0), 0);
	EXPECT_TRUE(all(self->buf, 64, 0));
}

/* Events that fire the interval notifier of the importer while the device accesses a page. */
enum act { MUNMAP, DONTNEED, TO_RAM, TO_DEVICE, FORK, MPROTECT, EXIT, KILL };

struct flight {
	uint64_t phys;		/* of the page that the device accesses */
	int how;
	int error;		/* line of this file that failed in the child, or 0 */
	int ready;
};

/* Replace the memory by shared memory, which can be looked at after it is unmapped. */
static bool share_mem(FIXTURE_DATA(dma) *self)
{
	int fd = memfd_create("dma-tests", MFD_CLOEXEC);
	void *mem;

	if (fd < 0 || ftruncate(fd, NPAGES * PAGE))
		return false;
	self->observer = mmap(NULL, NPAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	mem = mmap(self->mem, NPAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	close(fd);
	return self->observer != MAP_FAILED && mem == self->mem;
}

/*
 * Start a transfer of 2048 bytes: the device writes data of seed 2 to the first page, which has
 * data of seed 1, or reads it. Return: 0, or the line that failed.
 */
static int take_off(FIXTURE_DATA(dma) *self, bool alias, unsigned int flags, struct flight *f)
{
	fill(self->mem, PAGE, 1);
	if (alias && !export_pages(self->exp[0], self->mem, 1, 1))
		return __LINE__;
	if (reg(self->imp[0], self->mem, NPAGES) != (int)self->shape)
		return __LINE__;
	if (fault(self, self->imp[0], self->mem, 1, EDU_HMM_WRITE))
		return __LINE__;
	f->how = how(self, self->imp[0], self->mem);
	f->phys = self->pages[0].phys;
	if (f->how != (alias ? self->how[0] : EDU_HMM_RAM))
		return __LINE__;
	fill(self->buf, 2048, 2);
	if (dma(self->imp[0], self->mem, self->buf, 2048, flags | EDU_HMM_ASYNC))
		return __LINE__;
	return edu_stats(self->imp[0]).in_flight ? 0 : __LINE__;
}

/* The process that started the transfer exits or is killed. */
static void leave_in_flight(struct __test_metadata *_metadata, FIXTURE_DATA(dma) * self, bool alias,
			    enum act act, struct flight *f)
{
	pid_t pid = spawn();

	ASSERT_GE(pid, 0);
	if (!pid) {
		/* A file of test_hmm belongs to the process that opened it. */
		self->exp[0] = open_exporter(0);
		f->error = take_off(self, alias, EDU_HMM_WRITE, f);
		__atomic_store_n(&f->ready, 1, __ATOMIC_RELEASE);
		while (act == KILL)
			pause();
		_exit(0);
	}
	while (!__atomic_load_n(&f->ready, __ATOMIC_ACQUIRE))
		usleep(1000);
	if (act == KILL)
		kill(pid, SIGKILL);
	ASSERT_EQ(waitpid(pid, NULL, 0), pid);
	ASSERT_EQ(f->error, 0);
}

static void in_flight(struct __test_metadata *_metadata, FIXTURE_DATA(dma) * self, bool alias,
		      enum act act)
{
	struct edu_hmm_stats stats;
	struct flight *f;
	int go[2] = { -1, -1 };
	pid_t pid = -1;
	char *place;

	f = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(f, MAP_FAILED);
	if (!alias && (act == MUNMAP || act == DONTNEED || act == EXIT || act == KILL))
		ASSERT_TRUE(share_mem(self));
	if (act == EXIT || act == KILL)
		leave_in_flight(_metadata, self, alias, act, f);
	else
		ASSERT_EQ(take_off(self, alias, EDU_HMM_WRITE, f), 0);

	switch (act) {
	case MUNMAP:
		ASSERT_EQ(munmap(self->mem, PAGE), 0);
		break;
	case DONTNEED:
		ASSERT_EQ(madvise(self->mem, PAGE, MADV_DONTNEED), 0);
		break;
	case TO_RAM:
		EXPECT_TRUE(filled(self->mem, 0, 1, 2));
		break;
	case TO_DEVICE:
		ASSERT_EQ(mirror(self->exp[0], HMM_DMIRROR_MIGRATE_TO_DEV, self->mem,
				 self->buf + PAGE, 1),
			  1);
		/* The migration has copied the data that the device wrote. */
		EXPECT_TRUE(filled(self->buf + PAGE, 0, 2048, 2));
		break;
	case FORK:
		ASSERT_EQ(pipe(go), 0);
		pid = spawn();
		ASSERT_GE(pid, 0);
		if (!pid) {
			bool early = filled(self->mem, 0, 2048, 2);
			char byte;

			if (read(go[0], &byte, 1) != 1 || !early)
				_exit(1);
			_exit(filled(self->mem, 0, 2048, 2) &&
					      filled(self->mem + 2048, 2048, 2048, 1) ?
				      0 :
				      2);
		}
		break;
	case MPROTECT:
		ASSERT_EQ(mprotect(self->mem, PAGE, PROT_READ), 0);
		EXPECT_TRUE(filled(self->mem, 0, 2048, 2));
		break;
	case EXIT:
	case KILL:
		break;
	}

	/* The event returned after the device had finished. */
	stats = edu_stats(self->imp[0]);
	EXPECT_EQ(stats.in_flight, 0);
	EXPECT_EQ(stats.waits, 1);
	EXPECT_EQ(stats.dropped, 1);

	/* If this process no longer has the memory, the device must not write to it any more. */
	place = self->observer;
	if (reachable(f->how) && act != FORK && act != MPROTECT) {
		ASSERT_EQ(exp_stats(self->exp[0]).bar_live, 0);
		/* This program does not know where nouveau's windows are. */
		place = bench_nouveau() ? NULL : bar_page(self, 0, f->phys);
		ASSERT_TRUE(place || bench_nouveau());
	}
	if (place)
		memset(place, 0xee, PAGE);
	usleep(LATE_US);
	if (place)
		EXPECT_TRUE(all(place, PAGE, 0xee));
	ASSERT_EQ(edu_wait(self->imp[0]), 0);
	if (act == EXIT || act == KILL) {
		EXPECT_EQ(how(self, self->imp[0], self->mem), -EPERM);
		return;
	}
	EXPECT_EQ(how(self, self->imp[0], self->mem), EDU_HMM_NONE);

	switch (act) {
	case MUNMAP:
		EXPECT_EQ(dma(self->imp[0], self->mem, self->buf, 64, 0), -EFAULT);
		break;
	case DONTNEED:
		/* Shared memory has the data that were written to it last. */
		EXPECT_TRUE(all(self->mem, PAGE, self->observer ? 0xee : 0));
		break;
	case FORK:
		/* A write of the device is a write of this process. The child does not see it. */
		fill(self->buf, 2048, 3);
		ASSERT_EQ(dma(self->imp[0], self->mem, self->buf, 2048, EDU_HMM_WRITE), 0);
		ASSERT_EQ(write(go[1], "", 1), 1);
		EXPECT_TRUE(well(pid));
		EXPECT_TRUE(filled(self->mem, 0, 2048, 3));
		EXPECT_TRUE(filled(self->mem + 2048, 2048, 2048, 1));
		break;
	case MPROTECT:
		EXPECT_EQ(dma(self->imp[0], self->mem, self->buf, 64, EDU_HMM_WRITE), -EPERM);
		ASSERT_EQ(dma(self->imp[0], self->mem, self->buf, 2048, 0), 0);
		EXPECT_TRUE(filled(self->buf, 0, 2048, 2));
		EXPECT_TRUE(filled(self->mem, 0, 2048, 2));
		break;
	default:
		EXPECT_TRUE(filled(self->mem, 0, 2048, 2));
		EXPECT_TRUE(filled(self->mem + 2048, 2048, 2048, 1));
	}
}

#define IN_FLIGHT_RAM(_name, _act)						\
	TEST_F_TIMEOUT(dma, in_flight_##_name##_ram, 120)			\
	{									\
		in_flight(_metadata, self, false, _act);			\
	}

#define IN_FLIGHT_ALIAS(_name, _act)						\
	TEST_F_TIMEOUT(dma, in_flight_##_name##_alias, 120)			\
	{									\
		needs_data(self->how[0]);					\
		if (!reachable(self->how[0]))					\
			SKIP(return, "there are no aliases in this topology");	\
		in_flight(_metadata, self, true, _act);				\
	}

IN_FLIGHT_RAM(munmap, MUNMAP)
IN_FLIGHT_RAM(dontneed, DONTNEED)
IN_FLIGHT_RAM(to_device, TO_DEVICE)
IN_FLIGHT_RAM(fork, FORK)
IN_FLIGHT_RAM(mprotect, MPROTECT)
IN_FLIGHT_RAM(exit, EXIT)
IN_FLIGHT_RAM(kill, KILL)
IN_FLIGHT_ALIAS(munmap, MUNMAP)
IN_FLIGHT_ALIAS(dontneed, DONTNEED)
IN_FLIGHT_ALIAS(to_ram, TO_RAM)
IN_FLIGHT_ALIAS(fork, FORK)
IN_FLIGHT_ALIAS(mprotect, MPROTECT)
IN_FLIGHT_ALIAS(exit, EXIT)
IN_FLIGHT_ALIAS(kill, KILL)

/*
 * The memory is unmapped while the device reads it. The device does not read data that are written
 * there later.
 */
static void read_in_flight(struct __test_metadata *_metadata, FIXTURE_DATA(dma) *self, bool alias)
{
	struct flight f;
	char *place;

	if (!alias)
		ASSERT_TRUE(share_mem(self));
	ASSERT_EQ(take_off(self, alias, 0, &f), 0);
	ASSERT_EQ(munmap(self->mem, PAGE), 0);
	EXPECT_EQ(edu_stats(self->imp[0]).in_flight, 0);
	place = alias ? bar_page(self, 0, f.phys) : self->observer;
	ASSERT_NE(place, NULL);
	memset(place, 0xee, PAGE);
	ASSERT_EQ(edu_wait(self->imp[0]), 0);
	EXPECT_TRUE(filled(self->buf, 0, 2048, 1));
}

TEST_F_TIMEOUT(dma, in_flight_read_ram, 120)
{
	read_in_flight(_metadata, self, false);
}

TEST_F_TIMEOUT(dma, in_flight_read_alias, 120)
{
	needs_data(self->how[0]);
	if (!reachable(self->how[0]))
		SKIP(return, "there are no aliases in this topology");
	read_in_flight(_metadata, self, true);
}

/*
 * The file is closed while the device accesses the memory. close() waits for the end of the
 * transfer.
 */
TEST_F_TIMEOUT(dma, in_flight_close, 120)
{
	struct flight f;

	needs_data(self->how[0]);
	ASSERT_EQ(take_off(self, true, EDU_HMM_WRITE, &f), 0);
	ASSERT_EQ(close(self->imp[0]), 0);
	EXPECT_TRUE(filled(self->mem, 0, 2048, 2));
	EXPECT_EQ(edu_wait(self->imp[0]), -EBADF);
	self->imp[0] = open_importer(0);
	ASSERT_GE(self->imp[0], 0);
	ASSERT_GT(reg(self->imp[0], self->mem, NPAGES), 0);
	ASSERT_EQ(dma(self->imp[0], self->mem, self->buf, 64, 0), 0);
	EXPECT_TRUE(filled(self->buf, 0, 64, 2));
}

#define REGISTER(_fd, _addr, _n, ...)                                     \
	({                                                                \
		struct edu_hmm_register c = { .addr = (uintptr_t)(_addr), \
					      .npages = (_n),             \
					      __VA_ARGS__ };              \
		call(_fd, EDU_HMM_REGISTER, &c);                          \
	})
#define FAULT(_fd, _addr, _n, ...)                                     \
	({                                                             \
		struct edu_hmm_fault c = { .addr = (uintptr_t)(_addr), \
					   .npages = (_n),             \
					   __VA_ARGS__ };              \
		call(_fd, EDU_HMM_FAULT, &c);                          \
	})
#define STATE(_fd, _addr, _n, _p)                                      \
	({                                                             \
		struct edu_hmm_state c = { .addr = (uintptr_t)(_addr), \
					   .npages = (_n),             \
					   .pages = (uintptr_t)(_p) }; \
		call(_fd, EDU_HMM_STATE, &c);                          \
	})
#define MIGRATE(_fd, _addr, _n)                                                            \
	({                                                                                 \
		struct edu_hmm_migrate c = { .addr = (uintptr_t)(_addr), .npages = (_n) }; \
		call(_fd, EDU_HMM_MIGRATE, &c);                                            \
	})
#define NOWHERE ((void *)1UL)

/* Bad arguments return an errno. */
TEST_F_TIMEOUT(dma, bad_input, 120)
{
	int fd = self->imp[0];

	/* Without a range, all calls fail. */
	EXPECT_EQ(FAULT(fd, self->mem, 1), -ENXIO);
	EXPECT_EQ(STATE(fd, self->mem, 1, self->pages), -ENXIO);
	EXPECT_EQ(dma(fd, self->mem, self->buf, 1, 0), -ENXIO);
	EXPECT_EQ(edu_wait(fd), -EINVAL);
	EXPECT_EQ(call(fd, _IO('E', 0x77), NULL), -ENOTTY);

	EXPECT_EQ(REGISTER(fd, self->mem + 1, 1), -EINVAL);
	EXPECT_EQ(REGISTER(fd, self->mem, 0), -EINVAL);
	EXPECT_EQ(REGISTER(fd, self->mem, EDU_HMM_MAX_PAGES + 1), -EINVAL);
	EXPECT_EQ(REGISTER(fd, self->mem, ~0ULL), -EINVAL);
	EXPECT_EQ(REGISTER(fd, self->mem, 1ULL << 52), -EINVAL);
	EXPECT_EQ(REGISTER(fd, -PAGE, 2), -EINVAL);
	EXPECT_EQ(REGISTER(fd, self->mem, 1, .flags = 1U << 31), -EINVAL);
	EXPECT_EQ(call(fd, EDU_HMM_REGISTER, NOWHERE), -EFAULT);
	EXPECT_EQ(call(fd, EDU_HMM_STATS, NOWHERE), -EFAULT);
	/* None of these calls has left a range behind. */
	ASSERT_EQ(REGISTER(fd, self->mem, NPAGES), 0);
	EXPECT_EQ(REGISTER(fd, self->mem, NPAGES), -EBUSY);

	EXPECT_EQ(FAULT(fd, self->mem + 1, 1), -EINVAL);
	EXPECT_EQ(FAULT(fd, self->mem, 0), -EINVAL);
	EXPECT_EQ(FAULT(fd, self->mem, NPAGES + 1), -EINVAL);
	EXPECT_EQ(FAULT(fd, self->mem + PAGE, NPAGES), -EINVAL);
	EXPECT_EQ(FAULT(fd, self->mem - PAGE, 1), -EINVAL);
	EXPECT_EQ(FAULT(fd, self->mem + NPAGES * PAGE, 1), -EINVAL);
	EXPECT_EQ(FAULT(fd, self->mem, ~0ULL), -EINVAL);
	EXPECT_EQ(FAULT(fd, self->mem, 1ULL << 52), -EINVAL);
	EXPECT_EQ(FAULT(fd, -PAGE, 1), -EINVAL);
	EXPECT_EQ(FAULT(fd, self->mem, 1, .flags = EDU_HMM_ASYNC), -EINVAL);
	EXPECT_EQ(FAULT(fd, self->mem, 1, .flags = 1U << 31), -EINVAL);
	EXPECT_EQ(FAULT(fd, self->mem, 1, .pad = 1), -EINVAL);
	EXPECT_EQ(call(fd, EDU_HMM_FAULT, NOWHERE), -EFAULT);

	EXPECT_EQ(STATE(fd, self->mem + 1, 1, self->pages), -EINVAL);
	EXPECT_EQ(STATE(fd, self->mem, 0, self->pages), -EINVAL);
	EXPECT_EQ(STATE(fd, self->mem, NPAGES + 1, self->pages), -EINVAL);
	EXPECT_EQ(STATE(fd, self->mem, 1ULL << 52, self->pages), -EINVAL);
	EXPECT_EQ(STATE(fd, self->mem, 1, NOWHERE), -EFAULT);
	EXPECT_EQ(call(fd, EDU_HMM_STATE, NOWHERE), -EFAULT);

	EXPECT_EQ(dma(fd, self->mem, self->buf, 0, 0), -EINVAL);
	EXPECT_EQ(dma(fd, self->mem - 1, self->buf, 1, 0), -EINVAL);
	EXPECT_EQ(dma(fd, self->mem + NPAGES * PAGE, self->buf, 1, 0), -EINVAL);
	EXPECT_EQ(dma(fd, self->mem + 1, self->buf, NPAGES * PAGE, 0), -EINVAL);
	EXPECT_EQ(dma(fd, self->mem, self->buf, ~0UL, 0), -EINVAL);
	EXPECT_EQ(dma(fd, self->mem, self->buf, 1, 1U << 31), -EINVAL);
	EXPECT_EQ(dma(fd, self->mem, self->buf, 2049, EDU_HMM_ASYNC), -EINVAL);
	EXPECT_EQ(dma(fd, self->mem + 2047, self->buf, 2, EDU_HMM_ASYNC), -EINVAL);
	EXPECT_EQ(dma(fd, self->mem, NOWHERE, 1, EDU_HMM_WRITE), -EFAULT);
	EXPECT_EQ(dma(fd, self->mem, NOWHERE, 1, 0), -EFAULT);
	EXPECT_EQ(dma(fd, self->mem, NOWHERE, 1, EDU_HMM_ASYNC), 0);
	EXPECT_EQ(dma(fd, self->mem, self->buf, 1, 0), -EBUSY);
	EXPECT_EQ(edu_wait(fd), -EFAULT);
	EXPECT_EQ(edu_wait(fd), -EINVAL);
	EXPECT_EQ(call(fd, EDU_HMM_DMA, NOWHERE), -EFAULT);
}

/* Bad arguments of EDU_HMM_MIGRATE, and more pages than the device has. */
TEST_F_TIMEOUT(dma, bad_migrate, 120)
{
	char *many = anon(2 * EDU_HMM_LOCAL_PAGES * PAGE);
	int fd = self->imp[0], big;
	bool odp = bench_odp();

	ASSERT_NE(many, NULL);
	EXPECT_EQ(MIGRATE(fd, self->mem, 1), odp ? -ENOTTY : -ENXIO);
	ASSERT_GT(reg(fd, self->mem, NPAGES), 0);
	EXPECT_EQ(MIGRATE(fd, self->mem + 1, 1), odp ? -ENOTTY : -EINVAL);
	EXPECT_EQ(MIGRATE(fd, self->mem, 0), odp ? -ENOTTY : -EINVAL);
	EXPECT_EQ(MIGRATE(fd, self->mem, NPAGES + 1), odp ? -ENOTTY : -EINVAL);
	EXPECT_EQ(MIGRATE(fd, self->mem, ~0ULL), odp ? -ENOTTY : -EINVAL);
	EXPECT_EQ(MIGRATE(fd, self->mem, 1ULL << 52), odp ? -ENOTTY : -EINVAL);
	EXPECT_EQ(call(fd, EDU_HMM_MIGRATE, NOWHERE), odp ? -ENOTTY : -EFAULT);

	big = open_importer(0);
	ASSERT_GE(big, 0);
	ASSERT_GT(reg(big, many, 2 * EDU_HMM_LOCAL_PAGES), 0);
	EXPECT_EQ(MIGRATE(big, many, EDU_HMM_LOCAL_PAGES + 1), odp ? -ENOTTY : -EINVAL);
	EXPECT_EQ(MIGRATE(big, many, EDU_HMM_LOCAL_PAGES), odp ? -ENOTTY : 0);
	EXPECT_EQ(MIGRATE(big, many + EDU_HMM_LOCAL_PAGES * PAGE, EDU_HMM_LOCAL_PAGES),
		  odp ? -ENOTTY : 0);
	EXPECT_EQ(how(self, big, many), EDU_HMM_NONE);
	ASSERT_EQ(close(big), 0);
	EXPECT_EQ(FAULT(big, many, 1), -EBADF);
	EXPECT_EQ(REGISTER(big, many, 1), -EBADF);
	/* Some of it is still in the memory of the device. */
	ASSERT_EQ(munmap(many, 2 * EDU_HMM_LOCAL_PAGES * PAGE), 0);
}

/* Memory that is not mapped, in the range or in the buffer of the caller. */
TEST_F_TIMEOUT(dma, bad_memory, 120)
{
	char *edge = anon(2 * PAGE);
	int fd = self->imp[0];

	ASSERT_NE(edge, NULL);
	ASSERT_EQ(mprotect(edge + PAGE, PAGE, PROT_NONE), 0);
	ASSERT_GT(reg(fd, self->mem, NPAGES), 0);
	EXPECT_EQ(dma(fd, self->mem, edge, 2 * PAGE, 0), -EFAULT);
	EXPECT_EQ(dma(fd, self->mem, edge, 2 * PAGE, EDU_HMM_WRITE), -EFAULT);
	EXPECT_EQ(dma(fd, self->mem, (void *)-PAGE, 2 * PAGE, EDU_HMM_WRITE), -EFAULT);

	ASSERT_EQ(munmap(self->mem, PAGE), 0);
	EXPECT_EQ(FAULT(fd, self->mem, 2), -EFAULT);
	EXPECT_EQ(MIGRATE(fd, self->mem, 2), bench_odp() ? -ENOTTY : -EFAULT);
	EXPECT_EQ(FAULT(fd, self->mem, 2, .flags = EDU_HMM_NO_FAULT), 0);
	EXPECT_EQ(how(self, fd, self->mem), EDU_HMM_NONE);
	/* The rest of the range can be used. */
	fill(self->buf, PAGE, 7);
	ASSERT_EQ(dma(fd, self->mem + PAGE, self->buf, PAGE, EDU_HMM_WRITE), 0);
	EXPECT_TRUE(filled(self->mem + PAGE, 0, PAGE, 7));
}

/* Another process cannot use the range. */
TEST_F_TIMEOUT(dma, bad_process, 120)
{
	int fd = self->imp[0];
	pid_t pid;

	ASSERT_GT(reg(fd, self->mem, NPAGES), 0);
	pid = spawn();
	ASSERT_GE(pid, 0);
	if (!pid)
		_exit(FAULT(fd, self->mem + PAGE, 1) != -EPERM ||
		      STATE(fd, self->mem + PAGE, 1, self->pages) != -EPERM ||
		      dma(fd, self->mem + PAGE, self->buf, 1, 0) != -EPERM ||
		      MIGRATE(fd, self->mem + PAGE, 1) != (bench_odp() ? -ENOTTY : -EPERM) ||
		      REGISTER(fd, self->mem + PAGE, 1) != -EBUSY);
	EXPECT_TRUE(well(pid));
}

/*
 * Several importers use the same pages. Each writes to a place of its own in each page, and reads
 * back the data that it has written last.
 */
#define SLOT		64
#define BUSY_PAGES	4
/* A seed for fill() that was not used for these pages before. */
#define SEED(round)	((round) + 100)

struct importer {
	pthread_t thread;
	FIXTURE_DATA(dma) *self;
	int n;
	int fd;
	bool stop;
	unsigned int rounds;	/* rounds with the right data */
	/* Errno of the first call that failed, or 1 if the data were wrong. */
	int error;
};

static void *import(void *arg)
{
	struct importer *i = arg;
	char out[SLOT], in[SLOT];

	while (!__atomic_load_n(&i->stop, __ATOMIC_RELAXED) && !i->error) {
		char *slot = i->self->mem + i->rounds % BUSY_PAGES * PAGE + i->n * SLOT;

		fill(out, SLOT, SEED(i->rounds));
		i->error = dma(i->fd, slot, out, SLOT, EDU_HMM_WRITE);
		if (!i->error)
			i->error = dma(i->fd, slot, in, SLOT, 0);
		for (int b = 0; !i->error && b < SLOT; b++) {
			if (in[b] == out[b])
				continue;
			printf("# importer %d, round %u, byte %d: read %#hhx, not %#hhx\n", i->n,
			       i->rounds, b, in[b], out[b]);
			i->error = 1;
		}
		if (!i->error)
			__atomic_fetch_add(&i->rounds, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

/* Start the thread of importer @n and wait for its first round. */
static bool start_importer(FIXTURE_DATA(dma) *self, struct importer *i, int n)
{
	*i = (struct importer){ .self = self, .n = n, .fd = open_importer(n % self->nimp) };
	if (i->fd < 0 || reg(i->fd, self->mem, NPAGES) < 0 ||
	    pthread_create(&i->thread, NULL, import, i))
		return false;
	while (!__atomic_load_n(&i->rounds, __ATOMIC_RELAXED) && !i->error)
		usleep(10000);
	return !i->error;
}

static void stop_importer(struct importer *i)
{
	__atomic_store_n(&i->stop, true, __ATOMIC_RELAXED);
	pthread_join(i->thread, NULL);
}

/* Does the CPU read the data of the last round of an importer? */
static bool imported(FIXTURE_DATA(dma) *self, const struct importer *i)
{
	unsigned int last = i->rounds - 1;

	return filled(self->mem + last % BUSY_PAGES * PAGE + i->n * SLOT, 0, SLOT, SEED(last));
}

/* The exporter is unbound or unplugged while its pages are mapped, and the device writes to one. */
static void exporter_gone(struct __test_metadata *_metadata, FIXTURE_DATA(dma) *self, bool unplug)
{
	const size_t n = 8;
	struct hmm_dmirror_p2p_stats before;
	struct importer imp;

	ASSERT_EQ(munmap(self->bar[0], exp_stats(self->exp[0]).bar_pages * PAGE), 0);
	ASSERT_GT(reg(self->imp[0], self->mem, NPAGES), 0);
	ASSERT_TRUE(export_pages(self->exp[0], self->mem, n, 1));
	before = exp_stats(self->exp[0]);
	ASSERT_EQ(fault(self, self->imp[0], self->mem, n, EDU_HMM_WRITE), 0);
	EXPECT_EQ(how(self, self->imp[0], self->mem + BUSY_PAGES * PAGE), self->how[0]);
	/*
	 * It is not known how long the host takes to unplug the device. A thread keeps the importer
	 * busy meanwhile.
	 */
	if (unplug) {
		ASSERT_TRUE(start_importer(self, &imp, 0));
	} else {
		fill(self->buf, 2048, 2);
		ASSERT_EQ(dma(self->imp[0], self->mem, self->buf, 2048,
			      EDU_HMM_WRITE | EDU_HMM_ASYNC),
			  0);
	}

	ASSERT_TRUE(take_away(self->bdf[0], "exporter0", unplug));
	EXPECT_EQ(exp_stats(self->exp[0]).bound, 0);
	EXPECT_EQ(exp_stats(self->exp[0]).bar_pages, 0);
	EXPECT_EQ(exp_stats(self->exp[0]).migrated - before.migrated, n);
	if (reachable(self->how[0]))
		EXPECT_EQ(how(self, self->imp[0], self->mem + BUSY_PAGES * PAGE), EDU_HMM_NONE);

	/* All data were saved, with the last write of the device. */
	if (unplug) {
		unsigned int rounds = __atomic_load_n(&imp.rounds, __ATOMIC_RELAXED);

		while (__atomic_load_n(&imp.rounds, __ATOMIC_RELAXED) < rounds + 2 && !imp.error)
			usleep(10000);
		stop_importer(&imp);
		EXPECT_EQ(imp.error, 0);
		EXPECT_TRUE(imported(self, &imp));
		EXPECT_TRUE(filled(self->mem + SLOT, SLOT, PAGE - SLOT, 1));
	} else {
		if (reachable(self->how[0])) {
			EXPECT_EQ(edu_stats(self->imp[0]).in_flight, 0);
			EXPECT_EQ(edu_stats(self->imp[0]).waits, 1);
		}
		ASSERT_EQ(edu_wait(self->imp[0]), 0);
		EXPECT_TRUE(filled(self->mem, 0, 2048, 2));
		EXPECT_TRUE(filled(self->mem + 2048, 2048, PAGE - 2048, 1));
	}
	EXPECT_TRUE(filled(self->mem + BUSY_PAGES * PAGE, BUSY_PAGES * PAGE,
			   (n - BUSY_PAGES) * PAGE, 1));
	ASSERT_EQ(fault(self, self->imp[0], self->mem, n, EDU_HMM_WRITE), 0);
	EXPECT_EQ(self->refused, 0);
	EXPECT_EQ(how(self, self->imp[0], self->mem), EDU_HMM_RAM);
	fill(self->buf, PAGE, 3);
	ASSERT_EQ(dma(self->imp[0], self->mem, self->buf, PAGE, EDU_HMM_WRITE), 0);
	EXPECT_TRUE(filled(self->mem, 0, PAGE, 3));
}

/* The importer is unbound or unplugged while pages are mapped for it, and it writes to one. */
static void importer_gone(struct __test_metadata *_metadata, FIXTURE_DATA(dma) *self, bool unplug)
{
	struct edu_hmm_migrate migrate = { .addr = (uintptr_t)self->mem + 16 * PAGE, .npages = 4 };
	struct importer imp, waiter;
	struct hmm_dmirror_p2p_stats before;
	const size_t n = 8;
	char bdf[32];

	ASSERT_TRUE(importer_bdf(bdf, sizeof(bdf)));
	ASSERT_GT(reg(self->imp[0], self->mem, NPAGES), 0);
	fill(self->mem, NPAGES * PAGE, 1);
	if (!bench_odp()) {
		ASSERT_EQ(call(self->imp[0], EDU_HMM_MIGRATE, &migrate), 0);
		ASSERT_EQ(migrate.moved, 4);
	}
	ASSERT_TRUE(export_pages(self->exp[0], self->mem, n, 1));
	before = exp_stats(self->exp[0]);
	ASSERT_EQ(fault(self, self->imp[0], self->mem, NPAGES, EDU_HMM_WRITE), 0);
	/*
	 * Threads use the device. Then one file takes the engine and does not return it.
	 */
	ASSERT_TRUE(start_importer(self, &imp, 0));
	ASSERT_TRUE(start_importer(self, &waiter, self->nimp));
	fill(self->buf, 64, 2);
	ASSERT_EQ(dma(self->imp[0], self->mem + PAGE / 2, self->buf, 64,
		      EDU_HMM_WRITE | EDU_HMM_ASYNC),
		  0);

	ASSERT_TRUE(take_away(bdf, "importer0", unplug));
	stop_importer(&imp);
	stop_importer(&waiter);
	EXPECT_EQ(imp.error, -ENODEV);
	EXPECT_EQ(waiter.error, -ENODEV);
	ASSERT_EQ(close(imp.fd), 0);
	EXPECT_EQ(fault(self, self->imp[0], self->mem, n, 0), -ENODEV);
	EXPECT_EQ(state(self, self->imp[0], self->mem, n), -ENODEV);
	EXPECT_EQ(call(self->imp[0], EDU_HMM_MIGRATE, &migrate), bench_odp() ? -ENOTTY : -ENODEV);
	EXPECT_EQ(edu_wait(self->imp[0]), -ENODEV);
	EXPECT_EQ(dma(self->imp[0], self->mem, self->buf, 64, 0), -ENODEV);
	/* The pages of the exporter stay in place, and the exporter still works. */
	if (reachable(self->how[0])) {
		EXPECT_EQ(exp_stats(self->exp[0]).bar_live, n);
		EXPECT_EQ(exp_stats(self->exp[0]).migrated, before.migrated);
	}
	EXPECT_TRUE(imported(self, &imp));
	EXPECT_TRUE(filled(self->mem + PAGE / 2, 0, 64, 2));
	EXPECT_TRUE(filled(self->mem + BUSY_PAGES * PAGE, BUSY_PAGES * PAGE,
			   (NPAGES - BUSY_PAGES) * PAGE, 1));
	/* The notifier of a range whose device has gone. */
	ASSERT_EQ(madvise(self->mem, n * PAGE, MADV_DONTNEED), 0);
	EXPECT_EQ(edu_stats(self->imp[0]).in_flight, 0);
	ASSERT_EQ(close(self->imp[0]), 0);
	/* The test harness would close the file only at exit. */
	if (!unplug)
		close(waiter.fd);
}

TEST_F_TIMEOUT(dma, unbind_exporter, 120)
{
	needs_data(self->how[0]);
	exporter_gone(_metadata, self, false);
	/* Bind the exporter again. */
	ASSERT_TRUE(write_file("/sys/bus/pci/drivers/test_hmm/bind", self->bdf[0]));
	ASSERT_GT(exp_stats(self->exp[0]).bar_pages, 0);
	ASSERT_TRUE(export_pages(self->exp[0], self->mem, 1, 4));
	ASSERT_EQ(dma(self->imp[0], self->mem, self->buf, 64, 0), 0);
	EXPECT_TRUE(filled(self->buf, 0, 64, 4));
	EXPECT_EQ(how(self, self->imp[0], self->mem), self->how[0]);
}

TEST_F_TIMEOUT(dma, unbind_importer, 120)
{
	char bdf[32];

	needs_data(self->how[0]);
	ASSERT_TRUE(importer_bdf(bdf, sizeof(bdf)));
	importer_gone(_metadata, self, false);
	ASSERT_TRUE(write_file("/sys/bus/pci/drivers/edu_hmm/bind", bdf));
	self->imp[0] = open_importer(0);
	ASSERT_GE(self->imp[0], 0);
	ASSERT_GT(reg(self->imp[0], self->mem, NPAGES), 0);
	ASSERT_TRUE(export_pages(self->exp[0], self->mem, 1, 4));
	ASSERT_EQ(dma(self->imp[0], self->mem, self->buf, 64, 0), 0);
	EXPECT_TRUE(filled(self->buf, 0, 64, 4));
}

TEST_F_TIMEOUT(dma, unplug_exporter, 180)
{
	needs_data(self->how[0]);
	exporter_gone(_metadata, self, true);
}

TEST_F_TIMEOUT(dma, unplug_importer, 180)
{
	needs_data(self->how[0]);
	importer_gone(_metadata, self, true);
}

TEST_F_TIMEOUT(dma, concurrent_importers, 300)
{
	struct hmm_dmirror_p2p_stats before, now;
	struct importer imp[IMPORTERS];
	uint64_t dropped = 0;

	needs_data(self->how[0]);
	before = exp_stats(self->exp[0]);
	for (int i = 0; i < IMPORTERS; i++)
		ASSERT_TRUE(start_importer(self, imp + i, i));
	/* Meanwhile the pages migrate, until each has migrated five times. */
	do {
		mirror(self->exp[0], HMM_DMIRROR_MIGRATE_TO_DEV, self->mem, self->buf, BUSY_PAGES);
		usleep(200000);
		for (int p = 0; p < BUSY_PAGES; p++)
			(void)*(volatile char *)(self->mem + p * PAGE);
		now = exp_stats(self->exp[0]);
	} while (now.migrated - before.migrated < 5 * BUSY_PAGES);
	for (int i = 0; i < IMPORTERS; i++) {
		stop_importer(imp + i);
		EXPECT_EQ(imp[i].error, 0) TH_LOG("importer %d after %u rounds", i, imp[i].rounds);
		dropped += edu_stats(imp[i].fd).dropped;
		close(imp[i].fd);
	}
	for (int i = 0; i < IMPORTERS; i++)
		EXPECT_TRUE(imported(self, imp + i));
	EXPECT_GT(dropped, 0);
}

/* Two threads use one file, and a child process that inherits it. */
TEST_F_TIMEOUT(dma, concurrent_calls, 300)
{
	struct importer imp[2];
	int wrong = 0;
	pid_t pid;

	needs_data(self->how[0]);
	ASSERT_TRUE(export_pages(self->exp[0], self->mem, BUSY_PAGES, 0));
	ASSERT_TRUE(start_importer(self, imp, 0));
	imp[1] = (struct importer){ .self = self, .n = 1, .fd = imp[0].fd };
	ASSERT_EQ(pthread_create(&imp[1].thread, NULL, import, imp + 1), 0);
	pid = spawn();
	ASSERT_GE(pid, 0);
	if (!pid) {
		for (int i = 0; i < 20; i++) {
			wrong |= dma(imp[0].fd, self->mem, self->buf, 64, 0) != -EPERM;
			wrong |= fault(self, imp[0].fd, self->mem, 1, 0) != -EPERM;
		}
		_exit(wrong);
	}
	for (int i = 0; i < 20; i++) {
		EXPECT_EQ(fault(self, imp[0].fd, self->mem, NPAGES, i % 2 ? EDU_HMM_WRITE : 0), 0);
		EXPECT_EQ(state(self, imp[0].fd, self->mem, NPAGES), 0);
		EXPECT_EQ(reg(imp[0].fd, self->mem, 1), -EBUSY);
		usleep(50000);
	}
	EXPECT_TRUE(well(pid));
	for (int i = 0; i < 2; i++) {
		stop_importer(imp + i);
		EXPECT_EQ(imp[i].error, 0);
	}
	for (int i = 0; i < 2; i++)
		EXPECT_TRUE(imported(self, imp + i));
	close(imp[0].fd);
}

/*
 * A process is killed during a call. Then the memory of the exporter is free and does not change.
 */
TEST_F_TIMEOUT(dma, concurrent_kill, 300)
{
	size_t size = exp_stats(self->exp[0]).bar_pages * PAGE;
	struct importer imp;
	int *ready;
	pid_t pid;

	needs_data(self->how[0]);
	ready = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(ready, MAP_FAILED);
	for (int round = 0; round < 5; round++) {
		*ready = 0;
		pid = spawn();
		ASSERT_GE(pid, 0);
		if (!pid) {
			self->exp[0] = open_exporter(0);
			if (!export_pages(self->exp[0], self->mem, BUSY_PAGES, 0) ||
			    !start_importer(self, &imp, 0))
				_exit(1);
			__atomic_store_n(ready, 1, __ATOMIC_RELEASE);
			pthread_join(imp.thread, NULL);
			_exit(1);
		}
		while (!__atomic_load_n(ready, __ATOMIC_ACQUIRE) &&
		       waitpid(pid, NULL, WNOHANG) != pid)
			usleep(1000);
		ASSERT_EQ(*ready, 1);
		usleep(round * 23000);
		kill(pid, SIGKILL);
		ASSERT_EQ(waitpid(pid, NULL, 0), pid);
		ASSERT_EQ(exp_stats(self->exp[0]).bar_live, 0);
		if (bench_nouveau())
			continue;
		memset(self->bar[0] + size / 2, 0xee, 2 * BUSY_PAGES * PAGE);
		usleep(LATE_US);
		EXPECT_TRUE(all(self->bar[0] + size / 2, 2 * BUSY_PAGES * PAGE, 0xee));
	}
}

/* The range is unmapped, mapped and filled meanwhile. The device reads the new data, or fails. */
TEST_F_TIMEOUT(dma, concurrent_remap, 300)
{
	struct importer imp = { .self = self, .fd = open_importer(0) };
	long moved;

	needs_data(self->how[0]);
	ASSERT_GE(imp.fd, 0);
	ASSERT_GT(reg(imp.fd, self->mem, NPAGES), 0);
	for (int round = 0; round < 20; round++) {
		ASSERT_EQ(pthread_create(&imp.thread, NULL, import, &imp), 0);
		usleep(50000 + round % 4 * 70000);
		ASSERT_EQ(munmap(self->mem, BUSY_PAGES * PAGE), 0);
		ASSERT_EQ(mmap(self->mem, BUSY_PAGES * PAGE, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), self->mem);
		fill(self->mem, BUSY_PAGES * PAGE, round);
		/* The device may map a page again at once. */
		moved = mirror(self->exp[0], HMM_DMIRROR_MIGRATE_TO_DEV, self->mem, self->buf,
			       BUSY_PAGES);
		EXPECT_TRUE(moved >= 0 || moved == -ENOENT) TH_LOG("%ld", moved);
		stop_importer(&imp);
		imp.stop = false;
		/*
		 * If it was unmapped between a write and its read, there is no page, or other
		 * data.
		 */
		EXPECT_TRUE(!imp.error || imp.error == 1 || imp.error == -EFAULT)
		TH_LOG("errno %d", -imp.error);
		imp.error = 0;
		ASSERT_EQ(dma(imp.fd, self->mem, self->buf, BUSY_PAGES * PAGE, 0), 0);
		for (int p = 0; p < BUSY_PAGES; p++)
			EXPECT_TRUE(filled(self->buf + p * PAGE + SLOT, p * PAGE + SLOT,
					   PAGE - SLOT, round));
	}
	close(imp.fd);
}

/* A cgroup with a limit of 4 MiB. */
#define SMALL_CGROUP \
	"mkdir -p /tmp/cgroup && mount -t cgroup2 none /tmp/cgroup &&" \
	"echo +memory >/tmp/cgroup/cgroup.subtree_control &&" \
	"mkdir /tmp/cgroup/small && echo 4M >/tmp/cgroup/small/memory.max"
#define NO_CGROUP	"rmdir /tmp/cgroup/small && umount /tmp/cgroup"

/* A child prints the line that failed, and exits. */
#define CHILD_FAILS()						\
	do {							\
		printf("# child: line %d\n", __LINE__);		\
		fflush(stdout);					\
		_exit(1);					\
	} while (0)

/* The child of the next test. */
static void swapped(FIXTURE_DATA(dma) *self)
{
	const size_t size = 16 << 20;
	char *ram = anon(size);

	self->exp[0] = open_exporter(0);
	if (!ram || !write_file("/tmp/cgroup/small/cgroup.procs", "0"))
		CHILD_FAILS();
	fill(self->mem, NPAGES * PAGE, 6);
	for (int i = 0; i < NPAGES; i += 2)
		if (mirror(self->exp[0], HMM_DMIRROR_MIGRATE_TO_DEV, self->mem + i * PAGE,
			   self->buf, 1) != 1)
			CHILD_FAILS();
	if (reg(self->imp[0], self->mem, NPAGES) != (int)self->shape)
		CHILD_FAILS();
	for (int round = 0; round < 2; round++) {
		fill(ram, size, round);
		if (fault(self, self->imp[0], self->mem, NPAGES, EDU_HMM_WRITE) ||
		    how(self, self->imp[0], self->mem) != self->how[0])
			CHILD_FAILS();
		if (!filled(ram, 0, size, round))
			CHILD_FAILS();
	}
	if (!filled(self->mem, 0, NPAGES * PAGE, 6))
		CHILD_FAILS();
	_exit(0);
}

/* A cgroup has less RAM than its process uses, beside device memory that is reached by alias. */
TEST_F_TIMEOUT(dma, swap_limit, 300)
{
	char peak[32] = {};
	int fd;
	pid_t pid;

	ASSERT_EQ(system("modprobe zram && echo 64M >/sys/block/zram0/disksize &&"
			 "mkswap /dev/zram0 >/dev/null && swapon /dev/zram0"), 0);
	ASSERT_EQ(system(SMALL_CGROUP), 0);
	pid = spawn();
	ASSERT_GE(pid, 0);
	if (!pid)
		swapped(self);
	EXPECT_TRUE(well(pid));
	fd = open("/tmp/cgroup/small/memory.swap.peak", O_RDONLY);
	EXPECT_GT(read(fd, peak, sizeof(peak) - 1), 0);
	EXPECT_GT(atol(peak), 4 << 20);
	close(fd);
	EXPECT_EQ(exp_stats(self->exp[0]).bar_live, 0);
	EXPECT_EQ(system(NO_CGROUP " && swapoff /dev/zram0 && modprobe -r zram"), 0);
}

/* The child of the next test is killed. */
static void killed(FIXTURE_DATA(dma) *self)
{
	const size_t size = 16 << 20;
	char *ram = anon(size);

	self->exp[0] = open_exporter(0);
	if (!ram || !write_file("/tmp/cgroup/small/cgroup.procs", "0"))
		CHILD_FAILS();
	if (!export_pages(self->exp[0], self->mem, NPAGES, 1) ||
	    reg(self->imp[0], self->mem, NPAGES) != (int)self->shape ||
	    fault(self, self->imp[0], self->mem, NPAGES, EDU_HMM_WRITE) ||
	    how(self, self->imp[0], self->mem) != self->how[0])
		CHILD_FAILS();
	fill(ram, size, 1);
	CHILD_FAILS();
}

/* The cgroup of a process has no memory left: it is killed, while an importer maps its pages. */
TEST_F_TIMEOUT(dma, out_of_memory, 300)
{
	int status;
	pid_t pid;

	ASSERT_EQ(system(SMALL_CGROUP), 0);
	pid = spawn();
	ASSERT_GE(pid, 0);
	if (!pid)
		killed(self);
	ASSERT_EQ(waitpid(pid, &status, 0), pid);
	EXPECT_TRUE(WIFSIGNALED(status));
	EXPECT_EQ(WTERMSIG(status), SIGKILL);
	EXPECT_EQ(exp_stats(self->exp[0]).bar_live, 0);
	EXPECT_EQ(system(NO_CGROUP), 0);
}

/* The child of the next test dumps its memory. */
static void dumped(FIXTURE_DATA(dma) *self)
{
	const struct rlimit unlimited = { RLIM_INFINITY, RLIM_INFINITY };

	self->exp[0] = open_exporter(0);
	if (!export_pages(self->exp[0], self->mem, NPAGES, 8) ||
	    reg(self->imp[0], self->mem, NPAGES) != (int)self->shape ||
	    fault(self, self->imp[0], self->mem, NPAGES, EDU_HMM_WRITE) ||
	    how(self, self->imp[0], self->mem) != self->how[0])
		CHILD_FAILS();
	fill(self->buf, SLOT, 9);
	if (dma(self->imp[0], self->mem + PAGE, self->buf, SLOT, EDU_HMM_WRITE) ||
	    setrlimit(RLIMIT_CORE, &unlimited))
		CHILD_FAILS();
	abort();
}

/* Return: the memory at @addr in a core dump, or NULL. */
static const char *in_core(const char *core, const char *addr)
{
	const Elf64_Ehdr *elf = (const void *)core;
	const Elf64_Phdr *part = (const void *)(core + elf->e_phoff);

	for (int i = 0; i < elf->e_phnum; i++)
		if ((uintptr_t)addr - part[i].p_vaddr < part[i].p_filesz)
			return core + part[i].p_offset + ((uintptr_t)addr - part[i].p_vaddr);
	return NULL;
}

/*
 * A process dumps its memory, while an importer maps its pages of the device. Where the importer
 * reaches nothing, these pages have moved to RAM.
 */
TEST_F_TIMEOUT(dma, core_dump, 300)
{
	const char *core, *mem;
	int status, fd;
	struct stat st;
	pid_t pid;

	needs_data(self->how[0]);
	ASSERT_TRUE(write_file("/proc/sys/kernel/core_pattern", "/tmp/core"));
	pid = spawn();
	ASSERT_GE(pid, 0);
	if (!pid)
		dumped(self);
	ASSERT_EQ(waitpid(pid, &status, 0), pid);
	EXPECT_TRUE(write_file("/proc/sys/kernel/core_pattern", "core"));
	ASSERT_TRUE(WIFSIGNALED(status));
	EXPECT_EQ(WTERMSIG(status), SIGABRT);
	ASSERT_TRUE(WCOREDUMP(status));
	fd = open("/tmp/core", O_RDONLY);
	ASSERT_EQ(fstat(fd, &st), 0);
	core = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	EXPECT_EQ(unlink("/tmp/core"), 0);
	ASSERT_NE(core, MAP_FAILED);
	mem = in_core(core, self->mem);
	ASSERT_NE(mem, NULL);
	EXPECT_TRUE(filled(mem, 0, PAGE, 8));
	EXPECT_TRUE(filled(mem + PAGE, 0, SLOT, 9));
	EXPECT_TRUE(filled(mem + PAGE + SLOT, PAGE + SLOT, (NPAGES - 1) * PAGE - SLOT, 8));
	munmap((void *)core, st.st_size);
	close(fd);
}

TEST_HARNESS_MAIN
