// SPDX-License-Identifier: GPL-2.0-only
/*
 * On-demand paging by the RDMA core, to memory of this process wherever it is: what the device page
 * table of an edu device (/dev/edu_odpN of selftests/modules/edu_hmm) has, what is counted, and
 * where bytes arrive.
 *
 * ODP_STRESS_SECONDS: how long the stress test takes (20)
 */
#define BENCH		odp
#define BENCH_DEVICE	"edu_odp"
#include "edu-bench.h"

#include <linux/userfaultfd.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/syscall.h>

/* What the umem of a file has counted. */
#define EXPECT_COUNTS(_fd, _npages, _p2p_pages, _p2p_fallbacks)			\
	do {									\
		struct edu_hmm_stats _s = edu_stats(_fd);			\
										\
		EXPECT_EQ(_s.npages, _npages);					\
		EXPECT_EQ(_s.p2p_pages, _p2p_pages);				\
		EXPECT_EQ(_s.p2p_fallbacks, _p2p_fallbacks);			\
	} while (0)

static int reg_flags(int fd, void *addr, uint64_t npages, unsigned int flags)
{
	struct edu_hmm_register cmd = { .addr = (uintptr_t)addr, .npages = npages, .flags = flags };
	int ret = call(fd, EDU_HMM_REGISTER, &cmd);

	return ret ? ret : (int)cmd.shape;
}

/* How many pages the device page table has, or an errno. */
static long present(FIXTURE_DATA(odp) *self, int fd, void *addr, uint64_t npages)
{
	long n = state(self, fd, addr, npages);

	for (uint64_t i = 0; n >= 0 && i < npages; i++)
		n += self->pages[i].how != EDU_HMM_NONE;
	return n;
}

/* Where the CPU has a page, 0 if it has none. */
static uint64_t cpu_phys(const void *addr)
{
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	uint64_t entry = 0;

	if (fd < 0 || pread(fd, &entry, 8, (uintptr_t)addr / PAGE * 8) != 8 || !(entry >> 63))
		entry = 0;
	close(fd);
	return (entry & ((1ULL << 55) - 1)) * PAGE;
}

/* A page of RAM that is where the CPU has it? */
static bool is_ram(const struct edu_hmm_page *p, const void *addr)
{
	return p->how == EDU_HMM_RAM && p->phys == cpu_phys(addr);
}

/*
 * Eight pages in the memory of an exporter that is seen as @want, among others in RAM: each is
 * mapped as it can be reached, and only what cannot be reached migrates.
 */
static void alias(struct __test_metadata *_metadata, FIXTURE_DATA(odp) *self, int want)
{
	const int first = 4, n = 8;
	struct edu_hmm_page seen[NPAGES];
	struct hmm_dmirror_p2p_stats before;
	int fd = self->imp[0], e, p2p;
	char *place = NULL;

	for (e = 0; e < self->nexp && self->how[e] != want; e++)
		;
	if (e == self->nexp)
		SKIP(return, "no exporter of this kind in this topology");
	p2p = reachable(want) ? n : 0;
	fill(self->mem, NPAGES * PAGE, 1);
	ASSERT_TRUE(export_pages(self->exp[e], self->mem + first * PAGE, n, 2));
	before = exp_stats(self->exp[e]);
	ASSERT_EQ(reg(fd, self->mem, NPAGES), self->shape);
	EXPECT_COUNTS(fd, 0, 0, 0);
	ASSERT_EQ(fault(self, fd, self->mem, NPAGES, EDU_HMM_WRITE), 0);
	EXPECT_EQ(self->refused, n - p2p);
	EXPECT_EQ(exp_stats(self->exp[e]).migrated - before.migrated, n - p2p);
	EXPECT_COUNTS(fd, NPAGES, p2p, n - p2p);
	ASSERT_EQ(state(self, fd, self->mem, NPAGES), 0);
	for (int i = 0; i < NPAGES; i++) {
		struct edu_hmm_page *p = self->pages + i;

		EXPECT_EQ(p->write, 1);
		if (i < first || i >= first + n) {
			EXPECT_TRUE(is_ram(p, self->mem + i * PAGE));
			continue;
		}
		EXPECT_EQ(p->how, want);
		if (!p2p) {
			EXPECT_TRUE(is_ram(p, self->mem + i * PAGE));
			continue;
		}
		place = bar_page(self, e, p->phys);
		ASSERT_NE(place, NULL);
		EXPECT_TRUE(filled(place, (i - first) * PAGE, PAGE, 2));
	}
	memcpy(seen, self->pages, sizeof(seen));

	/* Once more: it is all there, and nothing is counted twice. */
	ASSERT_EQ(fault(self, fd, self->mem, NPAGES, EDU_HMM_WRITE), 0);
	ASSERT_EQ(fault(self, fd, self->mem, NPAGES, EDU_HMM_NO_FAULT), 0);
	EXPECT_EQ(self->refused, 0);
	EXPECT_COUNTS(fd, NPAGES, p2p, n - p2p);
	ASSERT_EQ(state(self, fd, self->mem, NPAGES), 0);
	EXPECT_EQ(memcmp(seen, self->pages, sizeof(seen)), 0);

	if (self->data || !p2p) {
		ASSERT_EQ(dma(fd, self->mem + (first + 1) * PAGE, self->buf, 2048,
			      EDU_HMM_NO_FAULT), 0);
		EXPECT_TRUE(filled(self->buf, PAGE, 2048, 2));
		fill(self->buf, 64, 3);
		ASSERT_EQ(dma(fd, self->mem + (first + n - 1) * PAGE, self->buf, 64,
			      EDU_HMM_WRITE | EDU_HMM_NO_FAULT), 0);
		if (p2p)
			EXPECT_TRUE(filled(place, 0, 64, 3));
	}
	EXPECT_EQ(exp_stats(self->exp[e]).migrated - before.migrated, n - p2p);
	EXPECT_EQ(exp_stats(self->exp[e]).bar_live, p2p);

	/* The CPU takes the last one back, and what the device has written is there. */
	if (self->data || !p2p)
		EXPECT_TRUE(filled(self->mem + (first + n - 1) * PAGE, 0, 64, 3));
	EXPECT_TRUE(filled(self->mem + (first + n - 1) * PAGE + 64, (n - 1) * PAGE + 64, PAGE - 64,
			   2));
	EXPECT_COUNTS(fd, NPAGES - !!p2p, p2p, n - p2p);
	EXPECT_EQ(how(self, fd, self->mem + (first + n - 1) * PAGE),
		  p2p ? EDU_HMM_NONE : EDU_HMM_RAM);
	EXPECT_EQ(how(self, fd, self->mem + (first + n - 2) * PAGE), want);
	EXPECT_EQ(exp_stats(self->exp[e]).migrated - before.migrated, n - p2p + !!p2p);
}

TEST_F_TIMEOUT(odp, alias_bus, 120)
{
	alias(_metadata, self, EDU_HMM_BUS);
}

TEST_F_TIMEOUT(odp, alias_bridge, 120)
{
	alias(_metadata, self, EDU_HMM_BRIDGE);
}

TEST_F_TIMEOUT(odp, alias_unreachable, 120)
{
	alias(_metadata, self, EDU_HMM_RAM);
}

/*
 * Page by page in turn in RAM and in the memory of two exporters: exactly what is not reachable
 * migrates.
 */
TEST_F_TIMEOUT(odp, mixed_two_exporters, 300)
{
	struct hmm_dmirror_p2p_stats before[EXPORTERS];
	uint64_t p2p = 0, lost = 0;
	const int n = 30;
	int fd = self->imp[0];

	if (self->nexp < 2)
		SKIP(return, "one exporter");
	fill(self->mem, NPAGES * PAGE, 1);
	for (int i = 0; i < n; i++) {
		if (i % 3 == 2)
			continue;
		ASSERT_EQ(mirror(self->exp[i % 3], HMM_DMIRROR_MIGRATE_TO_DEV, self->mem + i * PAGE,
				 self->buf, 1), 1);
		p2p += reachable(self->how[i % 3]);
		lost += !reachable(self->how[i % 3]);
	}
	for (int e = 0; e < 2; e++)
		before[e] = exp_stats(self->exp[e]);
	ASSERT_GT(reg(fd, self->mem, NPAGES), 0);
	ASSERT_EQ(fault(self, fd, self->mem, n, EDU_HMM_WRITE), 0);
	EXPECT_COUNTS(fd, n, p2p, lost);
	ASSERT_EQ(state(self, fd, self->mem, n), 0);
	for (int i = 0; i < n; i++) {
		EXPECT_EQ(self->pages[i].how, i % 3 == 2 ? EDU_HMM_RAM : self->how[i % 3]) {
			TH_LOG("page %d", i);
		}
	}
	for (int e = 0; e < 2; e++)
		EXPECT_EQ(exp_stats(self->exp[e]).migrated - before[e].migrated,
			  reachable(self->how[e]) ? 0 : n / 3);
	if (!self->data)
		return;
	ASSERT_EQ(dma(fd, self->mem, self->buf, 3 * PAGE, EDU_HMM_NO_FAULT), 0);
	EXPECT_TRUE(filled(self->buf, 0, 3 * PAGE, 1));
	fill(self->buf, 3 * PAGE, 2);
	ASSERT_EQ(dma(fd, self->mem, self->buf, 3 * PAGE, EDU_HMM_WRITE | EDU_HMM_NO_FAULT), 0);
	EXPECT_TRUE(filled(self->mem, 0, 3 * PAGE, 2));
	EXPECT_TRUE(filled(self->mem + 3 * PAGE, 3 * PAGE, (NPAGES - 3) * PAGE, 1));
}

static bool virtio_iommu(void)
{
	char bdf[32], path[96], link[PATH_MAX];
	ssize_t n;

	if (!importer_bdf(bdf, sizeof(bdf)))
		return false;
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/iommu", bdf);
	n = readlink(path, link, sizeof(link) - 1);
	link[n < 0 ? 0 : n] = 0;
	return strstr(link, "virtio");
}

/*
 * The third of eight pages cannot be mapped. Where an alias cannot be mapped, RAM cannot, either:
 * the call fails, nothing migrates, and the entry is as it was before.
 */
TEST_F_TIMEOUT(odp, map_error, 120)
{
	struct edu_hmm_obstruct obstruct = { .addr = (uintptr_t)self->mem + 2 * PAGE };
	struct hmm_dmirror_p2p_stats before;
	int fd = self->imp[0];
	const int n = 8;

	ASSERT_GT(reg(fd, self->mem, NPAGES), 0);
	ASSERT_TRUE(export_pages(self->exp[0], self->mem, n, 1));
	before = exp_stats(self->exp[0]);
	if (self->how[0] != EDU_HMM_BRIDGE || self->shape != EDU_HMM_IOVA) {
		EXPECT_EQ(call(fd, EDU_HMM_OBSTRUCT, &obstruct),
			  self->shape == EDU_HMM_IOVA ? 0 : -EOPNOTSUPP);
		SKIP(return, "what is only computed does not fail");
	}
	if (virtio_iommu())
		SKIP(return,
		     "a virtio IOMMU drops what is there when it refuses what comes second");
	ASSERT_EQ(call(fd, EDU_HMM_OBSTRUCT, &obstruct), 0);
	EXPECT_EQ(call(fd, EDU_HMM_OBSTRUCT, &obstruct), -EBUSY);

	for (int again = 0; again < 2; again++) {
		ASSERT_EQ(fault(self, fd, self->mem, n, EDU_HMM_WRITE), -EFAULT);
		EXPECT_COUNTS(fd, 2, n, 0);
		EXPECT_EQ(how(self, fd, self->mem + 2 * PAGE), EDU_HMM_NONE);
	}
	EXPECT_EQ(exp_stats(self->exp[0]).migrated, before.migrated);

	/* The page moves, which removes the obstacle. */
	EXPECT_TRUE(filled(self->mem + 2 * PAGE, 2 * PAGE, PAGE, 1));
	ASSERT_EQ(fault(self, fd, self->mem, n, EDU_HMM_WRITE), 0);
	EXPECT_COUNTS(fd, n, n, 0);
	ASSERT_EQ(state(self, fd, self->mem, n), 0);
	for (int i = 0; i < n; i++)
		EXPECT_EQ(self->pages[i].how, i == 2 ? EDU_HMM_RAM : EDU_HMM_BRIDGE);
	EXPECT_TRUE(is_ram(self->pages + 2, self->mem + 2 * PAGE));

	/* A page of RAM. */
	obstruct.addr += n * PAGE;
	ASSERT_EQ(call(fd, EDU_HMM_OBSTRUCT, &obstruct), 0);
	ASSERT_EQ(fault(self, fd, self->mem + n * PAGE, n, EDU_HMM_WRITE), -EFAULT);
	EXPECT_COUNTS(fd, n + 2, n, 0);

	ASSERT_EQ(dma(fd, self->mem + PAGE, self->buf, 3 * PAGE, EDU_HMM_NO_FAULT), 0);
	EXPECT_TRUE(filled(self->buf, PAGE, 3 * PAGE, 1));
	fill(self->buf, 3 * PAGE, 3);
	ASSERT_EQ(dma(fd, self->mem + PAGE, self->buf, 3 * PAGE, EDU_HMM_WRITE | EDU_HMM_NO_FAULT),
		  0);
	EXPECT_TRUE(filled(self->mem, 0, PAGE, 1));
	EXPECT_TRUE(filled(self->mem + PAGE, 0, 3 * PAGE, 3));
	EXPECT_TRUE(filled(self->mem + 4 * PAGE, 4 * PAGE, (n - 4) * PAGE, 1));
}

/* The driver of the device uses a bounce buffer for something else while a range is registered. */
TEST_F_TIMEOUT(odp, bounced, 120)
{
	int fd = self->imp[0], reach = reachable(self->how[0]), shape, ret;
	const int n = 8;

	shape = reg(fd, self->mem, NPAGES);
	ASSERT_GT(shape, 0);
	if (shape != EDU_HMM_DIRECT)
		SKIP(return, "the addresses are kept here");
	fill(self->mem, 2 * n * PAGE, 1);
	ASSERT_TRUE(export_pages(self->exp[0], self->mem, n, 1));
	ASSERT_EQ(fault(self, fd, self->mem + n * PAGE, n, EDU_HMM_WRITE), 0);
	ret = call(fd, EDU_HMM_BOUNCE, NULL);
	if (ret == -ENXIO)
		SKIP(return, "no memory is above 4 GiB");
	ASSERT_EQ(ret, 0);

	/* Mapped before, once more, and for the first time. */
	EXPECT_EQ(fault(self, fd, self->mem + n * PAGE, n, EDU_HMM_WRITE), 0);
	EXPECT_EQ(fault(self, fd, self->mem, n, EDU_HMM_WRITE), 0);
	EXPECT_COUNTS(fd, 2 * n, reach ? n : 0, reach ? 0 : n);
	ASSERT_EQ(madvise(self->mem + n * PAGE, n * PAGE, MADV_DONTNEED), 0);
	EXPECT_COUNTS(fd, n, reach ? n : 0, reach ? 0 : n);
	if (self->data || !reach) {
		ASSERT_EQ(dma(fd, self->mem, self->buf, n * PAGE, EDU_HMM_NO_FAULT), 0);
		EXPECT_TRUE(filled(self->buf, 0, n * PAGE, 1));
	}
	EXPECT_EQ(call(fd, EDU_HMM_NO_BOUNCE, NULL), 0);
}

static bool set_attr(const char *attr, const char *value)
{
	char path[96];

	snprintf(path, sizeof(path), "/sys/kernel/debug/%s", attr);
	return write_file(path, value);
}

/*
 * Let allocation number @n from now on fail, by the file /proc/thread-self/fail-nth: to open it
 * takes allocations. Return: what is left of the number before, 0 if it was reached, or -1.
 */
static int fail_nth(int fd, int n)
{
	char text[16] = "";
	int left;

	if (pread(fd, text, sizeof(text) - 1, 0) < 0 || sscanf(text, "%d", &left) != 1)
		return -1;
	snprintf(text, sizeof(text), "%d", n);
	return write(fd, text, strlen(text)) < 0 ? -1 : left;
}

/* What is done while one allocation after the other fails. */
static const struct nth_call {
	const char *name;
	unsigned int reg;		/* flags of the registration */
	unsigned int fault;		/* and of the fault */
} nth_calls[] = {
	{ "fault", EDU_HMM_P2P, EDU_HMM_WRITE },
	{ "fault of a child", EDU_HMM_P2P | EDU_HMM_IMPLICIT, EDU_HMM_WRITE },
	{ "snapshot", EDU_HMM_P2P, EDU_HMM_NO_FAULT },
	{ "prefetch", EDU_HMM_P2P | EDU_HMM_IMPLICIT, EDU_HMM_DOWNGRADE },
};

/*
 * Register a range, and enter its pages: one allocation after the other fails, until there are none
 * any more. Each time the call fails, or it has done all, and nothing is left of it otherwise: it
 * works the next time.
 */
static void map_error_nth(struct __test_metadata *_metadata, FIXTURE_DATA(odp) *self,
			  const struct nth_call *what, bool atomic)
{
	/*
	 * By the third page of the range the IOMMU needs another page table, if no other range is
	 * in that. More than 32 pages take an array for the walk.
	 */
	const int first = 510, n = 8, size = 1024, pages = 40;
	int failed[2] = {}, nth = 0, fd, ret[2], left[2] = {}, control;
	int rounds = 0, sweeps = self->shape == EDU_HMM_IOVA ? 1 : 2;
	bool fault_in = !(what->fault & EDU_HMM_NO_FAULT), reach = reachable(self->how[0]);
	const char *wait = atomic ? "1" : "0";
	int unmapped = 0;
	struct edu_hmm_stats s;
	char *area = anon(size * PAGE), *mem = area + first * PAGE;

	if (!set_attr("failslab/ignore-gfp-wait", wait))
		SKIP(return, "the kernel has no fault injection");
	ASSERT_TRUE(set_attr("fail_page_alloc/ignore-gfp-wait", wait) &&
		    set_attr("fail_page_alloc/min-order", "0") &&
		    set_attr("failslab/verbose", "0") && set_attr("fail_page_alloc/verbose", "0"));
	ASSERT_NE(area, NULL);
	control = open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);
	ASSERT_GE(control, 0);
	/*
	 * What is in the caches of the allocator is different each time, and so is which one a
	 * number hits: not each sweep hits all.
	 */
	while (sweeps > 0 || (!atomic && !(failed[0] && failed[1]))) {
		nth++;
		rounds++;
		ASSERT_LT(rounds, 2000);
		fill(mem, pages * PAGE, 1);
		ASSERT_TRUE(export_pages(self->exp[0], mem, n, nth));
		fd = open_importer(0);
		ASSERT_GE(fd, 0);

		ASSERT_EQ(fail_nth(control, nth), 0);
		ret[0] = reg_flags(fd, area, size, what->reg);
		left[0] = fail_nth(control, 0);
		ASSERT_GE(left[0], 0);
		EXPECT_TRUE(ret[0] > 0 || (!left[0] && ret[0] == -ENOMEM)) {
			TH_LOG("register, %d: %d", nth, ret[0]);
		}
		if (ret[0] < 0) {
			ASSERT_GT(reg_flags(fd, area, size, what->reg), 0);
		}

		ASSERT_EQ(fail_nth(control, nth), 0);
		ret[1] = fault(self, fd, mem, pages, what->fault);
		left[1] = fail_nth(control, 0);
		ASSERT_GE(left[1], 0);
		/*
		 * -EFAULT: a page could not be mapped, or the exporter could not give it back.
		 */
		EXPECT_TRUE(!ret[1] || (!left[1] && (ret[1] == -ENOMEM || ret[1] == -EFAULT))) {
			TH_LOG("%s, %d: %d", what->name, nth, ret[1]);
		}
		failed[0] += ret[0] < 0;
		failed[1] += ret[1] < 0;
		unmapped += ret[1] == -EFAULT;
		s = edu_stats(fd);
		if (!ret[1]) {
			EXPECT_EQ(s.npages, present(self, fd, area, size));
			EXPECT_EQ(s.p2p_pages, reach ? n : 0);
			EXPECT_EQ(s.p2p_fallbacks, reach ? 0 : n);
			EXPECT_EQ(s.npages, fault_in || reach ? pages : pages - n);
		}
		/* Whatever happened, it works now. */
		ASSERT_EQ(fault(self, fd, mem, pages, EDU_HMM_WRITE), 0);
		EXPECT_EQ(present(self, fd, area, size), pages);
		EXPECT_EQ(edu_stats(fd).npages, pages);
		/* The device has what the process has. */
		for (int i = 0; i < pages && (self->data || !reach); i += pages / 2) {
			ASSERT_EQ(dma(fd, mem + i * PAGE, self->buf, 64, EDU_HMM_NO_FAULT), 0);
			EXPECT_TRUE(filled(self->buf, i * PAGE, 64, i ? 1 : nth)) {
				TH_LOG("%s, %d: page %d", what->name, nth, i);
			}
		}
		EXPECT_TRUE(filled(mem, 0, n * PAGE, nth));
		EXPECT_TRUE(filled(mem + n * PAGE, n * PAGE, (pages - n) * PAGE, 1));
		ASSERT_EQ(madvise(mem, pages * PAGE, MADV_DONTNEED), 0);
		EXPECT_EQ(edu_stats(fd).npages, 0);
		EXPECT_EQ(present(self, fd, area, size), 0);
		/* A file that stays open keeps its IOVAs, and the next one gets others. */
		if (!atomic)
			close(fd);
		if (left[0] && left[1]) {
			nth = 0;
			sweeps--;
		}
	}
	TH_LOG("%s: %d rounds: %d times no range, %d times no pages, %d times not mapped",
	       what->name, rounds, failed[0], failed[1], unmapped);
	if (atomic && self->how[0] == EDU_HMM_BRIDGE && self->shape == EDU_HMM_IOVA)
		EXPECT_GT(unmapped, 0);
	close(control);
	munmap(area, size * PAGE);
}

TEST_F_TIMEOUT(odp, map_error_nth_atomic, 300)
{
	map_error_nth(_metadata, self, nth_calls, true);
}

/* Of virtual time, see selftests/suites/rdma/icount. */
TEST_F_TIMEOUT(odp, map_error_nth_any, 3600)
{
	for (unsigned int i = 0; i < sizeof(nth_calls) / sizeof(*nth_calls); i++)
		map_error_nth(_metadata, self, nth_calls + i, false);
}

/*
 * The table is written in blocks: what is not mapped is not present there, whatever it was before.
 */
TEST_F_TIMEOUT(odp, neighbour_unmapped, 120)
{
	struct hmm_dmirror_p2p_stats before;
	int fd = self->imp[0];
	const int n = EDU_HMM_BLOCK;
	char *mem = self->mem;
	int here = self->how[0];

	fill(mem, NPAGES * PAGE, 1);
	ASSERT_GT(reg(fd, mem, NPAGES), 0);
	/* The CPU has all of them. */
	ASSERT_EQ(fault(self, fd, mem + 2 * PAGE, 1, EDU_HMM_WRITE), 0);
	EXPECT_EQ(present(self, fd, mem, NPAGES), 1);
	EXPECT_EQ(self->pages[2].how, EDU_HMM_RAM);
	/* A neighbour that was there, and is not any more. */
	ASSERT_EQ(fault(self, fd, mem + 3 * PAGE, 1, EDU_HMM_WRITE), 0);
	EXPECT_EQ(present(self, fd, mem, NPAGES), 2);
	ASSERT_EQ(madvise(mem + 2 * PAGE, PAGE, MADV_DONTNEED), 0);
	ASSERT_EQ(fault(self, fd, mem + 4 * PAGE, 1, EDU_HMM_WRITE), 0);
	EXPECT_EQ(present(self, fd, mem, NPAGES), 2);
	EXPECT_EQ(self->pages[2].how, EDU_HMM_NONE);
	EXPECT_TRUE(is_ram(self->pages + 3, mem + 3 * PAGE));
	EXPECT_TRUE(is_ram(self->pages + 4, mem + 4 * PAGE));
	EXPECT_COUNTS(fd, 2, 0, 0);
	EXPECT_EQ(dma(fd, mem + 2 * PAGE, self->buf, 64, EDU_HMM_NO_FAULT), -ENOENT);

	/*
	 * The same with aliases: nobody asked for those beside it, so they are neither mapped nor
	 * moved.
	 */
	mem += n * PAGE;
	ASSERT_TRUE(export_pages(self->exp[0], mem, n, 2));
	before = exp_stats(self->exp[0]);
	ASSERT_EQ(fault(self, fd, mem + 5 * PAGE, 1, EDU_HMM_WRITE), 0);
	EXPECT_EQ(present(self, fd, mem, n), 1);
	EXPECT_EQ(self->pages[5].how, here);
	EXPECT_EQ(exp_stats(self->exp[0]).migrated - before.migrated, !reachable(here));
	EXPECT_COUNTS(fd, 3, reachable(here), !reachable(here));
	/* It goes back to RAM, and its neighbour is mapped. */
	EXPECT_TRUE(filled(mem + 5 * PAGE, 5 * PAGE, PAGE, 2));
	ASSERT_EQ(fault(self, fd, mem + 6 * PAGE, 1, 0), 0);
	EXPECT_EQ(present(self, fd, mem, n), 1 + !reachable(here));
	EXPECT_EQ(self->pages[6].how, here);

	/* Not a mapping at all. */
	ASSERT_EQ(munmap(mem + 4 * PAGE, PAGE), 0);
	EXPECT_EQ(fault(self, fd, mem + 3 * PAGE, 2, 0), -EFAULT);
	ASSERT_EQ(fault(self, fd, mem + 3 * PAGE, 1, 0), 0);
	EXPECT_EQ(present(self, fd, mem, n), 2 + !reachable(here));
	EXPECT_EQ(self->pages[4].how, EDU_HMM_NONE);
	EXPECT_EQ(edu_stats(fd).npages, 2 + present(self, fd, mem, n));
}

/* What is there is entered, aliases too; nothing is faulted in, nothing moves. */
static void snapshot(struct __test_metadata *_metadata, FIXTURE_DATA(odp) *self, bool reach)
{
	struct hmm_dmirror_p2p_stats before;
	int fd = self->imp[0], e;
	const int n = 8;

	for (e = 0; e < self->nexp && reachable(self->how[e]) != reach; e++)
		;
	if (e == self->nexp)
		SKIP(return, "no exporter of this kind in this topology");
	/* RAM, aliases, nothing, RAM. */
	fill(self->mem, n * PAGE, 1);
	fill(self->mem + 3 * n * PAGE, n * PAGE, 3);
	ASSERT_TRUE(export_pages(self->exp[e], self->mem + n * PAGE, n, 2));
	before = exp_stats(self->exp[e]);
	ASSERT_GT(reg(fd, self->mem, NPAGES), 0);
	for (int round = 1; round <= 2; round++) {
		ASSERT_EQ(fault(self, fd, self->mem, NPAGES, EDU_HMM_NO_FAULT), 0);
		/* A page that is looked up again counts again, unless it is mapped. */
		EXPECT_EQ(self->refused, reach ? 0 : n);
		EXPECT_COUNTS(fd, reach ? 3 * n : 2 * n, reach ? n : 0, reach ? 0 : round * n);
		EXPECT_EQ(present(self, fd, self->mem, NPAGES), reach ? 3 * n : 2 * n);
		for (int i = 0; i < n; i++) {
			EXPECT_TRUE(is_ram(self->pages + i, self->mem + i * PAGE));
			EXPECT_EQ(self->pages[n + i].how, reach ? self->how[e] : EDU_HMM_NONE);
			EXPECT_EQ(self->pages[2 * n + i].how, EDU_HMM_NONE);
			EXPECT_TRUE(is_ram(self->pages + 3 * n + i,
					   self->mem + (3 * n + i) * PAGE));
		}
		EXPECT_EQ(exp_stats(self->exp[e]).migrated, before.migrated);
		EXPECT_EQ(exp_stats(self->exp[e]).bar_live, n);
		/* Indeed not. */
		EXPECT_EQ(cpu_phys(self->mem + 2 * n * PAGE), 0);
	}
}

TEST_F_TIMEOUT(odp, snapshot_alias, 120)
{
	snapshot(_metadata, self, true);
}

TEST_F_TIMEOUT(odp, snapshot_unreachable, 120)
{
	snapshot(_metadata, self, false);
}

/* Prefetched for reading, then written to: the same mapping, now to be written. */
TEST_F_TIMEOUT(odp, prefetch_ro_then_write, 300)
{
	int fd = self->imp[0], p2p = reachable(self->how[0]) ? 8 : 0;
	struct hmm_dmirror_p2p_stats before;
	struct edu_hmm_page seen[16];

	fill(self->mem, 16 * PAGE, 1);
	ASSERT_TRUE(export_pages(self->exp[0], self->mem + 8 * PAGE, 8, 2));
	before = exp_stats(self->exp[0]);
	ASSERT_GT(reg(fd, self->mem, NPAGES), 0);
	EXPECT_EQ(fault(self, fd, self->mem, 16, EDU_HMM_DOWNGRADE | EDU_HMM_WRITE), -EINVAL);
	ASSERT_EQ(fault(self, fd, self->mem, 16, EDU_HMM_DOWNGRADE), 0);
	EXPECT_COUNTS(fd, 16, p2p, 8 - p2p);
	ASSERT_EQ(state(self, fd, self->mem, 16), 0);
	memcpy(seen, self->pages, sizeof(seen));
	for (int i = 0; i < 16; i++) {
		EXPECT_EQ(seen[i].how, i < 8 ? EDU_HMM_RAM : self->how[0]);
		EXPECT_EQ(seen[i].write, 0);
	}
	EXPECT_EQ(dma(fd, self->mem + 8 * PAGE, self->buf, 64, EDU_HMM_WRITE | EDU_HMM_NO_FAULT),
		  -ENOENT);

	/* It faults, and finds the mapping. */
	for (int i = 0; i < 16; i += 8) {
		fill(self->buf, 64, 3);
		if (self->data || !p2p) {
			ASSERT_EQ(dma(fd, self->mem + i * PAGE, self->buf, 64, EDU_HMM_WRITE), 0);
		} else {
			ASSERT_EQ(fault(self, fd, self->mem + i * PAGE, 1, EDU_HMM_WRITE), 0);
		}
	}
	EXPECT_COUNTS(fd, 16, p2p, 8 - p2p);
	EXPECT_EQ(exp_stats(self->exp[0]).migrated - before.migrated, 8 - p2p);
	ASSERT_EQ(state(self, fd, self->mem, 16), 0);
	for (int i = 0; i < 16; i++) {
		EXPECT_EQ(self->pages[i].dma, seen[i].dma);
		EXPECT_EQ(self->pages[i].phys, seen[i].phys);
		/* They share a block with the one that was written to. */
		EXPECT_EQ(self->pages[i].write, 1);
	}
	/* Prefetched again. */
	ASSERT_EQ(fault(self, fd, self->mem, 16, EDU_HMM_DOWNGRADE), 0);
	EXPECT_COUNTS(fd, 16, p2p, 8 - p2p);
	ASSERT_EQ(state(self, fd, self->mem, 16), 0);
	EXPECT_EQ(memcmp(self->pages, seen, sizeof(seen)), 0);
	if (!self->data && p2p)
		return;
	for (int i = 0; i < 16; i += 8) {
		EXPECT_TRUE(filled(self->mem + i * PAGE, 0, 64, 3));
		EXPECT_TRUE(filled(self->mem + i * PAGE + 64, 64, 8 * PAGE - 64, 1 + i / 8));
	}
}

/* The CPU lets a page be written to that it did not before. It is the same page: nobody is told. */
TEST_F_TIMEOUT(odp, write_upgrade, 120)
{
	struct edu_hmm_page seen[4];
	int fd = self->imp[0];
	uint64_t dropped;
	pid_t pid;

	fill(self->mem, 4 * PAGE, 1);
	pid = spawn();
	ASSERT_GE(pid, 0);
	if (!pid)
		_exit(0);
	EXPECT_TRUE(well(pid));
	ASSERT_GT(reg(fd, self->mem, NPAGES), 0);
	ASSERT_EQ(fault(self, fd, self->mem, 4, 0), 0);
	ASSERT_EQ(state(self, fd, self->mem, 4), 0);
	for (int i = 0; i < 4; i++)
		EXPECT_EQ(self->pages[i].write, 0);
	memcpy(seen, self->pages, sizeof(seen));
	dropped = edu_stats(fd).dropped;
	fill(self->buf, 64, 2);
	ASSERT_EQ(dma(fd, self->mem, self->buf, 64, EDU_HMM_WRITE), 0);
	ASSERT_EQ(fault(self, fd, self->mem, 4, EDU_HMM_WRITE), 0);
	ASSERT_EQ(state(self, fd, self->mem, 4), 0);
	for (int i = 0; i < 4; i++) {
		EXPECT_EQ(self->pages[i].write, 1);
		EXPECT_EQ(self->pages[i].dma, seen[i].dma);
	}
	EXPECT_EQ(edu_stats(fd).dropped, dropped);
	EXPECT_COUNTS(fd, 4, 0, 0);
	EXPECT_TRUE(filled(self->mem, 0, 64, 2));
	EXPECT_TRUE(filled(self->mem + 64, 64, 4 * PAGE - 64, 1));
}

/*
 * Memory is freed lazily, and then the device writes to two pages, reads one, and leaves one alone:
 * reclaim takes the latter two. The CPU has written to none of them since.
 */
TEST_F_TIMEOUT(odp, written_is_dirty, 120)
{
	int fd = self->imp[0];
	char *mem = anon(4 * PAGE);

	ASSERT_NE(mem, NULL);
	fill(mem, 4 * PAGE, 1);
	fill(self->buf, 2 * PAGE, 2);
	ASSERT_GT(reg(fd, mem, 4), 0);
	ASSERT_EQ(madvise(mem, 4 * PAGE, MADV_FREE), 0);
	ASSERT_EQ(mprotect(mem + 2 * PAGE, PAGE, PROT_READ), 0);
	ASSERT_EQ(dma(fd, mem, self->buf, 2 * PAGE, EDU_HMM_WRITE), 0);
	ASSERT_EQ(fault(self, fd, mem + 2 * PAGE, 1, 0), 0);
	EXPECT_COUNTS(fd, 3, 0, 0);
	ASSERT_EQ(madvise(mem, 4 * PAGE, MADV_PAGEOUT), 0);
	EXPECT_COUNTS(fd, 0, 0, 0);
	EXPECT_TRUE(filled(mem, 0, 2 * PAGE, 2));
	EXPECT_TRUE(all(mem + 2 * PAGE, 2 * PAGE, 0));
	munmap(mem, 4 * PAGE);
}

/* A range that the device may only read. */
TEST_F_TIMEOUT(odp, read_only_range, 120)
{
	int fd = self->imp[0];

	needs_data(self->how[0]);
	fill(self->mem, 8 * PAGE, 1);
	ASSERT_TRUE(export_pages(self->exp[0], self->mem + 4 * PAGE, 4, 2));
	ASSERT_EQ(reg_flags(fd, self->mem, NPAGES, EDU_HMM_P2P | EDU_HMM_READ_ONLY), self->shape);
	EXPECT_EQ(fault(self, fd, self->mem, 8, EDU_HMM_WRITE), -EPERM);
	EXPECT_EQ(dma(fd, self->mem, self->buf, 64, EDU_HMM_WRITE), -EPERM);
	ASSERT_EQ(fault(self, fd, self->mem, 8, 0), 0);
	ASSERT_EQ(state(self, fd, self->mem, 8), 0);
	for (int i = 0; i < 8; i++) {
		EXPECT_EQ(self->pages[i].how, i < 4 ? EDU_HMM_RAM : self->how[0]);
		EXPECT_EQ(self->pages[i].write, 0);
	}
	EXPECT_EQ(dma(fd, self->mem, self->buf, 64, EDU_HMM_WRITE), -EPERM);
	EXPECT_EQ(dma(fd, self->mem, self->buf, 64, EDU_HMM_WRITE | EDU_HMM_NO_FAULT), -ENOENT);
	ASSERT_EQ(dma(fd, self->mem + 4 * PAGE, self->buf, 64, EDU_HMM_NO_FAULT), 0);
	EXPECT_TRUE(filled(self->buf, 0, 64, 2));
	EXPECT_TRUE(filled(self->mem, 0, 4 * PAGE, 1));
}

/*
 * An alias that is shared with a child can be read where it is. To be written to it has to move,
 * once.
 */
TEST_F_TIMEOUT(odp, cow_readonly_alias, 120)
{
	struct hmm_dmirror_p2p_stats before;
	int fd = self->imp[0], go[2];
	bool reach = reachable(self->how[0]);
	const int n = 4;
	pid_t pid;
	char byte;

	needs_data(self->how[0]);
	ASSERT_EQ(pipe(go), 0);
	ASSERT_TRUE(export_pages(self->exp[0], self->mem, n, 1));
	pid = spawn();
	ASSERT_GE(pid, 0);
	if (!pid)
		_exit(read(go[0], &byte, 1) != 1 || !filled(self->mem, 0, n * PAGE, 1));

	before = exp_stats(self->exp[0]);
	ASSERT_GT(reg(fd, self->mem, NPAGES), 0);
	ASSERT_EQ(dma(fd, self->mem, self->buf, 64, 0), 0);
	EXPECT_TRUE(filled(self->buf, 0, 64, 1));
	ASSERT_EQ(fault(self, fd, self->mem, n, 0), 0);
	ASSERT_EQ(state(self, fd, self->mem, n), 0);
	for (int i = 0; i < n; i++) {
		EXPECT_EQ(self->pages[i].how, self->how[0]);
		if (reach)
			EXPECT_EQ(self->pages[i].write, 0);
	}
	EXPECT_EQ(exp_stats(self->exp[0]).migrated - before.migrated, reach ? 0 : n);
	EXPECT_COUNTS(fd, n, reach ? n : 0, reach ? 0 : n);

	fill(self->buf, 64, 2);
	ASSERT_EQ(dma(fd, self->mem, self->buf, 64, EDU_HMM_WRITE), 0);
	EXPECT_EQ(exp_stats(self->exp[0]).migrated - before.migrated, reach ? 1 : n);
	ASSERT_EQ(state(self, fd, self->mem, n), 0);
	EXPECT_TRUE(is_ram(self->pages, self->mem));
	EXPECT_EQ(self->pages[0].write, 1);
	for (int i = 1; i < n; i++)
		EXPECT_EQ(self->pages[i].how, self->how[0]);
	EXPECT_EQ(edu_stats(fd).npages, n);
	/* It was not for want of an alias. */
	EXPECT_EQ(edu_stats(fd).p2p_fallbacks, reach ? 0 : n);

	ASSERT_EQ(write(go[1], "", 1), 1);
	EXPECT_TRUE(well(pid));
	EXPECT_TRUE(filled(self->mem, 0, 64, 2));
	EXPECT_TRUE(filled(self->mem + 64, 64, n * PAGE - 64, 1));
}

/* A huge page in the memory of the exporter. */
TEST_F_TIMEOUT(odp, thp_private_pmd, 300)
{
	int fd = self->imp[0], reach = reachable(self->how[0]);
	struct hmm_dmirror_p2p_stats before;
	char *map = anon(3 * HUGE), *mem;
	uint64_t first;

	ASSERT_NE(map, NULL);
	mem = (char *)(((uintptr_t)map + HUGE - 1) & ~(HUGE - 1));
	madvise(mem, HUGE, MADV_HUGEPAGE);
	ASSERT_TRUE(export_pages(self->exp[0], mem, 512, 1));
	fill(mem + HUGE, 16 * PAGE, 2);
	before = exp_stats(self->exp[0]);
	/* Not aligned: the walks of the umem end in the middle of the page. */
	ASSERT_GT(reg(fd, mem + 7 * PAGE, 512), 0);
	ASSERT_EQ(fault(self, fd, mem + 7 * PAGE, 512, EDU_HMM_WRITE), 0);
	if (reach)
		EXPECT_EQ(exp_stats(self->exp[0]).op_calls - before.op_calls, 1);
	EXPECT_EQ(exp_stats(self->exp[0]).migrated - before.migrated, reach ? 0 : 512);
	EXPECT_EQ(edu_stats(fd).npages, 512);
	EXPECT_EQ(edu_stats(fd).p2p_pages, reach ? 505 : 0);
	EXPECT_EQ(!edu_stats(fd).p2p_fallbacks, reach);
	ASSERT_EQ(state(self, fd, mem + 7 * PAGE, 512), 0);
	first = self->pages[0].phys;
	for (int i = 0; i < 505; i++) {
		ASSERT_EQ(self->pages[i].how, self->how[0]);
		if (reach) {
			ASSERT_EQ(self->pages[i].phys, first + i * PAGE);
		} else {
			ASSERT_TRUE(is_ram(self->pages + i, mem + (7 + i) * PAGE));
		}
	}
	for (int i = 505; i < 512; i++)
		EXPECT_TRUE(is_ram(self->pages + i, mem + (7 + i) * PAGE));
	if (self->data || !reach) {
		ASSERT_EQ(dma(fd, mem + 511 * PAGE, self->buf, 2 * PAGE, EDU_HMM_NO_FAULT), 0);
		EXPECT_TRUE(filled(self->buf, 511 * PAGE, PAGE, 1));
		EXPECT_TRUE(filled(self->buf + PAGE, 0, PAGE, 2));
		fill(self->buf, 64, 3);
		ASSERT_EQ(dma(fd, mem + 300 * PAGE, self->buf, 64,
			      EDU_HMM_WRITE | EDU_HMM_NO_FAULT), 0);
	}
	EXPECT_EQ(exp_stats(self->exp[0]).migrated - before.migrated, reach ? 0 : 512);
	/* The CPU touches it. Whatever moves then, the table has no more than what is mapped. */
	if (self->data || !reach)
		EXPECT_TRUE(filled(mem + 300 * PAGE, 0, 64, 3));
	EXPECT_TRUE(filled(mem + 300 * PAGE + 64, 300 * PAGE + 64, PAGE - 64, 1));
	EXPECT_EQ(present(self, fd, mem + 7 * PAGE, 512), edu_stats(fd).npages);
	if (reach)
		EXPECT_EQ(self->pages[293].how, EDU_HMM_NONE);
	munmap(map, 3 * HUGE);
	EXPECT_EQ(edu_stats(fd).npages, 0);
}

/* Mapped in units of huge pages: each at its own place, and all of it. */
TEST_F_TIMEOUT(odp, hugetlb_second_page, 300)
{
	int fd = self->imp[0];
	char *mem;

	ASSERT_TRUE(write_file("/proc/sys/vm/nr_hugepages", "3"));
	mem = mmap(NULL, 3 * HUGE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	ASSERT_NE(mem, MAP_FAILED);
	for (int i = 0; i < 3; i++)
		fill(mem + i * HUGE, HUGE, i);
	EXPECT_EQ(reg_flags(fd, mem + PAGE, 512, EDU_HMM_HUGETLB), -EINVAL);
	EXPECT_EQ(reg_flags(fd, mem, 511, EDU_HMM_HUGETLB), -EINVAL);
	ASSERT_EQ(reg_flags(fd, mem, 3 * 512, EDU_HMM_P2P | EDU_HMM_HUGETLB), self->shape);

	/* The second one alone, by a page in its middle. */
	ASSERT_EQ(fault(self, fd, mem + HUGE + 77 * PAGE, 1, EDU_HMM_WRITE), 0);
	EXPECT_COUNTS(fd, 1, 0, 0);
	EXPECT_EQ(present(self, fd, mem, 3 * 512), 512);
	for (int i = 512; i < 2 * 512; i++) {
		ASSERT_TRUE(is_ram(self->pages + i, mem + i * PAGE)) TH_LOG("page %d", i);
	}

	ASSERT_EQ(fault(self, fd, mem, 3 * 512, EDU_HMM_WRITE), 0);
	EXPECT_COUNTS(fd, 3, 0, 0);
	ASSERT_EQ(state(self, fd, mem, 3 * 512), 0);
	for (int i = 0; i < 3 * 512; i++) {
		ASSERT_TRUE(is_ram(self->pages + i, mem + i * PAGE)) TH_LOG("page %d", i);
		ASSERT_EQ(self->pages[i].dma,
			  self->shape == EDU_HMM_IOVA ? self->pages[0].dma + i * PAGE :
						       self->pages[i].phys);
	}
	for (int i = 0; i < 3; i++) {
		ASSERT_EQ(dma(fd, mem + i * HUGE + HUGE / 2, self->buf, PAGE, EDU_HMM_NO_FAULT), 0);
		EXPECT_TRUE(filled(self->buf, HUGE / 2, PAGE, i));
		fill(self->buf, PAGE, i + 10);
		ASSERT_EQ(dma(fd, mem + i * HUGE + 5 * PAGE, self->buf, PAGE,
			      EDU_HMM_WRITE | EDU_HMM_NO_FAULT), 0);
	}
	/* The third goes, all of it and nothing else. */
	ASSERT_EQ(madvise(mem + 2 * HUGE, HUGE, MADV_DONTNEED), 0);
	EXPECT_COUNTS(fd, 2, 0, 0);
	EXPECT_EQ(present(self, fd, mem, 3 * 512), 2 * 512);
	EXPECT_EQ(self->pages[2 * 512].how, EDU_HMM_NONE);
	EXPECT_EQ(self->pages[3 * 512 - 1].how, EDU_HMM_NONE);
	for (int i = 0; i < 2; i++) {
		EXPECT_TRUE(filled(mem + i * HUGE, 0, 5 * PAGE, i));
		EXPECT_TRUE(filled(mem + i * HUGE + 5 * PAGE, 0, PAGE, i + 10));
		EXPECT_TRUE(filled(mem + i * HUGE + 6 * PAGE, 6 * PAGE, HUGE - 6 * PAGE, i));
	}
	ASSERT_EQ(munmap(mem, 3 * HUGE), 0);
	EXPECT_COUNTS(fd, 0, 0, 0);
	ASSERT_TRUE(write_file("/proc/sys/vm/nr_hugepages", "0"));
}

/* Small pages where huge ones were said to be. */
TEST_F_TIMEOUT(odp, hugetlb_small_pages, 120)
{
	char *map = anon(2 * HUGE), *mem;
	int fd = self->imp[0];

	ASSERT_NE(map, NULL);
	mem = (char *)(((uintptr_t)map + HUGE - 1) & ~(HUGE - 1));
	fill(mem, 4 * PAGE, 1);
	ASSERT_GT(reg_flags(fd, mem, 512, EDU_HMM_P2P | EDU_HMM_HUGETLB), 0);
	EXPECT_EQ(fault(self, fd, mem, 1, EDU_HMM_WRITE), -EINVAL);
	EXPECT_EQ(present(self, fd, mem, 512), 0);
	EXPECT_COUNTS(fd, 0, 0, 0);
	munmap(map, 2 * HUGE);
}

/* A range of huge pages has no aliases: a huge page in the memory of the exporter moves. */
TEST_F_TIMEOUT(odp, hugetlb_no_alias, 120)
{
	struct hmm_dmirror_p2p_stats before;
	int fd = self->imp[0];
	char *map = anon(2 * HUGE), *mem;

	ASSERT_NE(map, NULL);
	mem = (char *)(((uintptr_t)map + HUGE - 1) & ~(HUGE - 1));
	madvise(mem, HUGE, MADV_HUGEPAGE);
	ASSERT_TRUE(export_pages(self->exp[0], mem, 512, 1));
	before = exp_stats(self->exp[0]);
	ASSERT_EQ(reg_flags(fd, mem, 512, EDU_HMM_P2P | EDU_HMM_HUGETLB), self->shape);
	ASSERT_EQ(fault(self, fd, mem + 100 * PAGE, 1, EDU_HMM_WRITE), 0);
	EXPECT_COUNTS(fd, 1, 0, 0);
	EXPECT_EQ(exp_stats(self->exp[0]).migrated - before.migrated, 512);
	EXPECT_EQ(exp_stats(self->exp[0]).op_calls, before.op_calls);
	EXPECT_EQ(present(self, fd, mem, 512), 512);
	for (int i = 0; i < 512; i++) {
		ASSERT_EQ(self->pages[i].how, EDU_HMM_RAM);
		ASSERT_EQ(self->pages[i].phys, self->pages[0].phys + i * PAGE);
		ASSERT_EQ(self->pages[i].dma, self->pages[0].dma + i * PAGE);
	}
	ASSERT_EQ(dma(fd, mem + 300 * PAGE, self->buf, PAGE, EDU_HMM_NO_FAULT), 0);
	EXPECT_TRUE(filled(self->buf, 300 * PAGE, PAGE, 1));
	EXPECT_TRUE(filled(mem, 0, HUGE, 1));
	munmap(map, 2 * HUGE);
	EXPECT_EQ(edu_stats(fd).npages, 0);
}

/* More than one walk, and holes that are at other places in each. */
TEST_F_TIMEOUT(odp, xlt_two_chunks, 300)
{
	int fd = self->imp[0], reach = reachable(self->how[0]);
	const int n = 1200, first = 508, exported = 8;
	struct hmm_dmirror_p2p_stats before;
	uint64_t there = 0;
	char *mem;

	mem = anon(n * PAGE);
	ASSERT_NE(mem, NULL);
	/* Walk 1 has every third page, walk 2 none that walk 1 has, walk 3 all. */
#define HAS(_i) ((_i) < 512 ? (_i) % 3 == 0 : (_i) < 1024 ? ((_i) - 512) % 3 != 0 : true)
	for (int i = 0; i < n; i++) {
		if (HAS(i))
			fill(mem + i * PAGE, PAGE, i);
		there += HAS(i);
	}
	ASSERT_GT(reg(fd, mem, n), 0);
	ASSERT_EQ(fault(self, fd, mem, n, EDU_HMM_NO_FAULT), 0);
	EXPECT_COUNTS(fd, there, 0, 0);
	EXPECT_EQ(present(self, fd, mem, n), there);
	for (int i = 0; i < n; i++) {
		if (HAS(i)) {
			ASSERT_TRUE(is_ram(self->pages + i, mem + i * PAGE)) TH_LOG("page %d", i);
		} else {
			ASSERT_EQ(self->pages[i].how, EDU_HMM_NONE) TH_LOG("page %d", i);
		}
	}
	/* Aliases on both sides of the border. Two of these pages were there. */
	ASSERT_EQ(mirror(self->exp[0], HMM_DMIRROR_MIGRATE_TO_DEV, mem + first * PAGE, self->buf,
			 exported), exported);
	for (int i = first; i < first + exported; i++)
		there -= HAS(i);
	EXPECT_COUNTS(fd, there, 0, 0);
	before = exp_stats(self->exp[0]);
	ASSERT_EQ(fault(self, fd, mem, n, EDU_HMM_WRITE), 0);
	EXPECT_COUNTS(fd, n, reach ? exported : 0, reach ? 0 : exported);
	EXPECT_EQ(exp_stats(self->exp[0]).migrated - before.migrated, reach ? 0 : exported);
	ASSERT_EQ(state(self, fd, mem, n), 0);
	for (int i = 0; i < n; i++) {
		if (reach && i >= first && i < first + exported) {
			ASSERT_EQ(self->pages[i].how, self->how[0]) TH_LOG("page %d", i);
		} else {
			ASSERT_TRUE(is_ram(self->pages + i, mem + i * PAGE)) TH_LOG("page %d", i);
		}
	}
	ASSERT_EQ(dma(fd, mem + 1025 * PAGE, self->buf, PAGE, EDU_HMM_NO_FAULT), 0);
	EXPECT_TRUE(filled(self->buf, 0, PAGE, 1025));
	ASSERT_EQ(dma(fd, mem + 1 * PAGE, self->buf, PAGE, EDU_HMM_NO_FAULT), 0);
	EXPECT_TRUE(all(self->buf, PAGE, 0));
	munmap(mem, n * PAGE);
	EXPECT_COUNTS(fd, 0, reach ? exported : 0, reach ? 0 : exported);
}

/* As many as are mapped are counted, whatever happened, and none at the end. */
TEST_F_TIMEOUT(odp, npages_zero, 120)
{
	int fd = self->imp[0], reach = reachable(self->how[0]);
	static const struct {
		int first;
		int n;
		unsigned int flags;
	} faults[] = {
		{ 3, 1, EDU_HMM_WRITE },
		{ 0, 16, EDU_HMM_NO_FAULT },
		{ 0, 16, EDU_HMM_DOWNGRADE },
		{ 5, 9, EDU_HMM_WRITE },
		{ 0, 16, EDU_HMM_WRITE },
		{ 0, 24, 0 },
		{ 7, 2, EDU_HMM_DOWNGRADE },
		{ 0, 24, EDU_HMM_NO_FAULT },
	};
	uint64_t n;

	ASSERT_GT(reg(fd, self->mem, NPAGES), 0);
	for (int round = 0; round < 3; round++) {
		fill(self->mem, 8 * PAGE, 1);
		ASSERT_TRUE(export_pages(self->exp[0], self->mem + 8 * PAGE, 8, 2));
		for (unsigned int i = 0; i < sizeof(faults) / sizeof(*faults); i++) {
			ASSERT_EQ(fault(self, fd, self->mem + faults[i].first * PAGE, faults[i].n,
					faults[i].flags), 0);
			EXPECT_EQ(edu_stats(fd).npages, present(self, fd, self->mem, NPAGES)) {
				TH_LOG("fault %d", i);
			}
		}
		EXPECT_EQ(edu_stats(fd).npages, 24);
		EXPECT_EQ(edu_stats(fd).p2p_pages, reach ? 8 * (round + 1) : 0);
		/* One of each kind, then those that are left and others. */
		ASSERT_EQ(madvise(self->mem + PAGE, PAGE, MADV_DONTNEED), 0);
		EXPECT_EQ(edu_stats(fd).npages, 23);
		ASSERT_EQ(madvise(self->mem + 9 * PAGE, PAGE, MADV_DONTNEED), 0);
		EXPECT_EQ(edu_stats(fd).npages, 22);
		ASSERT_EQ(madvise(self->mem + 9 * PAGE, PAGE, MADV_DONTNEED), 0);
		EXPECT_EQ(edu_stats(fd).npages, 22);
		n = present(self, fd, self->mem, NPAGES);
		EXPECT_EQ(n, 22);
		ASSERT_EQ(madvise(self->mem + 20 * PAGE, 12 * PAGE, MADV_DONTNEED), 0);
		EXPECT_EQ(edu_stats(fd).npages, 18);
		ASSERT_EQ(madvise(self->mem, NPAGES * PAGE, MADV_DONTNEED), 0);
		EXPECT_EQ(edu_stats(fd).npages, 0);
		EXPECT_EQ(present(self, fd, self->mem, NPAGES), 0);
		EXPECT_EQ(exp_stats(self->exp[0]).bar_live, 0);
	}
}

/* Children come and go. Their parent, which counts for them, stays: here it goes last. */
TEST_F_TIMEOUT(odp, implicit_child, 120)
{
	int fd = self->imp[0], reach = reachable(self->how[0]);
	const int n = 8;

	EXPECT_EQ(reg_flags(fd, self->mem, NPAGES, EDU_HMM_IMPLICIT | EDU_HMM_HUGETLB), -EINVAL);
	fill(self->mem, NPAGES * PAGE, 1);
	ASSERT_TRUE(export_pages(self->exp[0], self->mem, n, 2));
	ASSERT_EQ(reg_flags(fd, self->mem, NPAGES, EDU_HMM_P2P | EDU_HMM_IMPLICIT), self->shape);
	ASSERT_EQ(fault(self, fd, self->mem, NPAGES, EDU_HMM_WRITE), 0);
	EXPECT_EQ(self->refused, reach ? 0 : n);
	EXPECT_COUNTS(fd, NPAGES, reach ? n : 0, reach ? 0 : n);
	ASSERT_EQ(state(self, fd, self->mem, NPAGES), 0);
	for (int i = 0; i < NPAGES; i++)
		EXPECT_EQ(self->pages[i].how, i < n ? self->how[0] : EDU_HMM_RAM);
	if (self->data || !reach) {
		ASSERT_EQ(dma(fd, self->mem + (n - 1) * PAGE, self->buf, 2 * PAGE,
			      EDU_HMM_NO_FAULT), 0);
		EXPECT_TRUE(filled(self->buf, (n - 1) * PAGE, PAGE, 2));
		EXPECT_TRUE(filled(self->buf + PAGE, n * PAGE, PAGE, 1));
	}
	ASSERT_EQ(madvise(self->mem, NPAGES * PAGE, MADV_DONTNEED), 0);
	EXPECT_COUNTS(fd, 0, reach ? n : 0, reach ? 0 : n);
}

/*
 * Who does not ask for device memory gets none of it: what is faulted migrates, what is only looked
 * at is not there, and nothing is counted.
 */
/* A child may not write where its parent may not. */
TEST_F_TIMEOUT(odp, implicit_read_only, 120)
{
	int fd = self->imp[0];

	fill(self->mem, PAGE, 1);
	ASSERT_GT(reg_flags(fd, self->mem, NPAGES, EDU_HMM_IMPLICIT | EDU_HMM_READ_ONLY), 0);
	EXPECT_EQ(fault(self, fd, self->mem, 1, EDU_HMM_WRITE), -EPERM);
	EXPECT_EQ(dma(fd, self->mem, self->buf, 64, EDU_HMM_WRITE), -EPERM);
	ASSERT_EQ(fault(self, fd, self->mem, 1, 0), 0);
	ASSERT_EQ(state(self, fd, self->mem, 1), 0);
	EXPECT_EQ(self->pages[0].write, 0);
	EXPECT_TRUE(filled(self->mem, 0, PAGE, 1));
}

static void not_asked(struct __test_metadata *_metadata, FIXTURE_DATA(odp) *self,
		      unsigned int flags)
{
	struct hmm_dmirror_p2p_stats before;
	int fd = self->imp[0];
	const int n = 8;

	ASSERT_TRUE(export_pages(self->exp[0], self->mem, n, 1));
	before = exp_stats(self->exp[0]);
	ASSERT_EQ(reg_flags(fd, self->mem, NPAGES, flags), self->shape);
	ASSERT_EQ(fault(self, fd, self->mem, n, EDU_HMM_NO_FAULT), 0);
	EXPECT_EQ(present(self, fd, self->mem, n), 0);
	EXPECT_EQ(exp_stats(self->exp[0]).migrated, before.migrated);

	ASSERT_EQ(fault(self, fd, self->mem, n / 2, EDU_HMM_DOWNGRADE), 0);
	EXPECT_EQ(exp_stats(self->exp[0]).migrated - before.migrated, n / 2);
	ASSERT_EQ(fault(self, fd, self->mem, n, EDU_HMM_WRITE), 0);
	EXPECT_EQ(exp_stats(self->exp[0]).migrated - before.migrated, n);
	EXPECT_EQ(exp_stats(self->exp[0]).op_calls, before.op_calls);
	EXPECT_EQ(self->refused, 0);
	EXPECT_COUNTS(fd, n, 0, 0);
	ASSERT_EQ(state(self, fd, self->mem, n), 0);
	for (int i = 0; i < n; i++)
		EXPECT_TRUE(is_ram(self->pages + i, self->mem + i * PAGE));
	ASSERT_EQ(dma(fd, self->mem, self->buf, n * PAGE, EDU_HMM_NO_FAULT), 0);
	EXPECT_TRUE(filled(self->buf, 0, n * PAGE, 1));
}

TEST_F_TIMEOUT(odp, not_asked, 120)
{
	not_asked(_metadata, self, 0);
}

TEST_F_TIMEOUT(odp, not_asked_implicit, 120)
{
	not_asked(_metadata, self, EDU_HMM_IMPLICIT);
}

/*
 * A page moves while it is mapped: the device goes where it is now, and leaves alone where it was.
 */
TEST_F_TIMEOUT(odp, migrate_while_mapped, 300)
{
	int fd = self->imp[0], reach = reachable(self->how[0]);
	struct hmm_dmirror_p2p_stats before;
	char *place = NULL;

	needs_data(self->how[0]);
	ASSERT_GT(reg(fd, self->mem, NPAGES), 0);
	for (int round = 0; round < 4; round++) {
		/* From RAM to the device. */
		fill(self->mem, PAGE, 1);
		ASSERT_EQ(fault(self, fd, self->mem, 1, EDU_HMM_WRITE), 0);
		EXPECT_EQ(how(self, fd, self->mem), EDU_HMM_RAM);
		ASSERT_TRUE(export_pages(self->exp[0], self->mem, 1, 2));
		before = exp_stats(self->exp[0]);
		EXPECT_EQ(how(self, fd, self->mem), EDU_HMM_NONE);
		EXPECT_EQ(dma(fd, self->mem, self->buf, 64, EDU_HMM_WRITE | EDU_HMM_NO_FAULT),
			  -ENOENT);
		fill(self->buf, 64, 3);
		ASSERT_EQ(dma(fd, self->mem, self->buf, 64, EDU_HMM_WRITE), 0);
		EXPECT_EQ(how(self, fd, self->mem), self->how[0]);
		if (reach) {
			place = bar_page(self, 0, self->pages[0].phys);
			ASSERT_NE(place, NULL);
			EXPECT_TRUE(filled(place, 0, 64, 3));
			EXPECT_TRUE(filled(place + 64, 64, PAGE - 64, 2));
		}
		EXPECT_EQ(exp_stats(self->exp[0]).migrated - before.migrated, !reach);
		/* And back. */
		EXPECT_TRUE(filled(self->mem, 0, 64, 3));
		if (reach) {
			ASSERT_EQ(exp_stats(self->exp[0]).bar_live, 0);
			memset(place, 0xee, PAGE);
			EXPECT_EQ(how(self, fd, self->mem), EDU_HMM_NONE);
			EXPECT_EQ(dma(fd, self->mem, self->buf, 64,
				      EDU_HMM_WRITE | EDU_HMM_NO_FAULT), -ENOENT);
		}
		fill(self->buf, 64, 4);
		ASSERT_EQ(dma(fd, self->mem, self->buf, 64, EDU_HMM_WRITE), 0);
		EXPECT_TRUE(filled(self->mem, 0, 64, 4));
		EXPECT_TRUE(filled(self->mem + 64, 64, PAGE - 64, 2));
		if (reach)
			EXPECT_TRUE(all(place, PAGE, 0xee));
		EXPECT_COUNTS(fd, 1, reach ? round + 1 : 0, reach ? 0 : round + 1);
	}
}

/* The driver of the exporter goes: all that is mapped of it is dropped, and found in RAM. */
TEST_F_TIMEOUT(odp, exporter_unbind, 120)
{
	int fd = self->imp[0], reach = reachable(self->how[0]);
	struct hmm_dmirror_p2p_stats before;
	const int n = 16;

	ASSERT_EQ(munmap(self->bar[0], exp_stats(self->exp[0]).bar_pages * PAGE), 0);
	fill(self->mem, NPAGES * PAGE, 1);
	ASSERT_TRUE(export_pages(self->exp[0], self->mem, n, 2));
	before = exp_stats(self->exp[0]);
	ASSERT_GT(reg(fd, self->mem, NPAGES), 0);
	ASSERT_EQ(fault(self, fd, self->mem, NPAGES, EDU_HMM_WRITE), 0);
	EXPECT_EQ(edu_stats(fd).npages, NPAGES);
	ASSERT_TRUE(take_away(self->bdf[0], "exporter0", false));
	EXPECT_EQ(exp_stats(self->exp[0]).migrated - before.migrated, n);
	EXPECT_COUNTS(fd, reach ? NPAGES - n : NPAGES, reach ? n : 0, reach ? 0 : n);
	EXPECT_EQ(present(self, fd, self->mem, NPAGES), reach ? NPAGES - n : NPAGES);
	ASSERT_EQ(fault(self, fd, self->mem, NPAGES, EDU_HMM_WRITE), 0);
	EXPECT_EQ(self->refused, 0);
	ASSERT_EQ(state(self, fd, self->mem, NPAGES), 0);
	for (int i = 0; i < NPAGES; i++)
		EXPECT_TRUE(is_ram(self->pages + i, self->mem + i * PAGE));
	ASSERT_EQ(dma(fd, self->mem + n * PAGE - 64, self->buf, 128, EDU_HMM_NO_FAULT), 0);
	EXPECT_TRUE(filled(self->buf, n * PAGE - 64, 64, 2));
	EXPECT_TRUE(filled(self->mem, 0, n * PAGE, 2));
	/* And back again. */
	ASSERT_TRUE(write_file("/sys/bus/pci/drivers/test_hmm/bind", self->bdf[0]));
	ASSERT_TRUE(export_pages(self->exp[0], self->mem, n, 3));
	ASSERT_EQ(fault(self, fd, self->mem, NPAGES, EDU_HMM_WRITE), 0);
	EXPECT_EQ(how(self, fd, self->mem), self->how[0]);
	EXPECT_COUNTS(fd, NPAGES, reach ? 2 * n : 0, reach ? 0 : 2 * n);
}

/*
 * Device private memory of somebody who has no aliases to offer is what it was without them:
 * faulted in.
 */
TEST_F_TIMEOUT(odp, no_exporter, 120)
{
	struct edu_hmm_migrate migrate = { .addr = (uintptr_t)self->mem, .npages = 8 };
	int fd = self->imp[0], other = open("/dev/edu_hmm0", O_RDWR | O_CLOEXEC);

	ASSERT_GE(other, 0);
	fill(self->mem, NPAGES * PAGE, 1);
	ASSERT_GT(reg_flags(other, self->mem, NPAGES, 0), 0);
	ASSERT_GT(reg(fd, self->mem, NPAGES), 0);
	ASSERT_EQ(call(other, EDU_HMM_MIGRATE, &migrate), 0);
	ASSERT_EQ(migrate.moved, 8);
	ASSERT_EQ(fault(self, other, self->mem, 8, EDU_HMM_WRITE), 0);
	EXPECT_EQ(how(self, other, self->mem), EDU_HMM_LOCAL);
	ASSERT_EQ(fault(self, fd, self->mem, NPAGES, EDU_HMM_NO_FAULT), 0);
	EXPECT_EQ(present(self, fd, self->mem, NPAGES), NPAGES - 8);
	EXPECT_EQ(how(self, other, self->mem), EDU_HMM_LOCAL);
	ASSERT_EQ(fault(self, fd, self->mem, NPAGES, EDU_HMM_WRITE), 0);
	EXPECT_COUNTS(fd, NPAGES, 0, 0);
	EXPECT_EQ(how(self, other, self->mem), EDU_HMM_NONE);
	ASSERT_EQ(state(self, fd, self->mem, NPAGES), 0);
	for (int i = 0; i < NPAGES; i++)
		EXPECT_TRUE(is_ram(self->pages + i, self->mem + i * PAGE));
	EXPECT_TRUE(filled(self->mem, 0, NPAGES * PAGE, 1));
	close(other);
}

/* A thread that does the same thing over and over. */
struct worker {
	pthread_t thread;
	void (*work)(struct worker *w);
	FIXTURE_DATA(odp) *self;
	int fd;
	int exp;
	char *mem;
	int npages;
	int keep;		/* of these, how many must not lose what is in them */
	unsigned int seed;
	atomic_bool *stop;
	unsigned int rounds;
	unsigned int late;	/* faults that were asked for again */
	char *copy;		/* as many pages */
	int error;
	int line;		/* where that was */
};

#define FAIL(_w, _error)				\
	do {						\
		(_w)->error = (_error);			\
		(_w)->line = __LINE__;			\
		return;					\
	} while (0)

static void *worker(void *arg)
{
	struct worker *w = arg;

	while (!*w->stop && !w->line) {
		w->work(w);
		w->rounds++;
	}
	return NULL;
}

static void *once(void *arg)
{
	struct worker *w = arg;

	w->work(w);
	return NULL;
}

static unsigned int roll(struct worker *w, unsigned int sides)
{
	w->seed = w->seed * 1103515245 + 12345;
	return (w->seed >> 16) % sides;
}

/* Some pages out of the first @of. */
static int some(struct worker *w, int of, int *n)
{
	int first = roll(w, of);

	*n = 1 + roll(w, of - first < 64 ? of - first : 64);
	return first;
}

static int quiet_fault(int fd, void *addr, uint64_t npages, unsigned int flags)
{
	struct edu_hmm_fault cmd = { .addr = (uintptr_t)addr, .npages = npages, .flags = flags };

	return call(fd, EDU_HMM_FAULT, &cmd);
}

/*
 * On a busy machine the others may invalidate pages for a whole second. That is no error: a device
 * asks again.
 */
static bool late(struct worker *w, int ret)
{
	w->late += ret == -ETIME;
	return ret == -ETIME;
}

static int patient_fault(struct worker *w, int first, uint64_t npages, unsigned int flags)
{
	int ret;

	do {
		ret = quiet_fault(w->fd, w->mem + first * PAGE, npages, flags);
	} while (late(w, ret));
	return ret;
}

static void do_fault(struct worker *w)
{
	int n, first = some(w, w->npages, &n), ret;

	ret = patient_fault(w, first, n, roll(w, 3) ? EDU_HMM_WRITE : 0);
	if (ret)
		FAIL(w, ret);
}

static void do_fault_all(struct worker *w)
{
	int ret = quiet_fault(w->fd, w->mem, w->npages, EDU_HMM_WRITE);

	if (ret)
		FAIL(w, ret);
}

static void do_fault_patiently(struct worker *w)
{
	int ret = patient_fault(w, 0, w->npages, EDU_HMM_WRITE);

	if (ret)
		FAIL(w, ret);
}

static void do_prefetch(struct worker *w)
{
	int n, first = some(w, w->npages, &n), ret;

	ret = patient_fault(w, first, n, roll(w, 2) ? EDU_HMM_NO_FAULT : EDU_HMM_DOWNGRADE);
	if (ret)
		FAIL(w, ret);
}

/* Of a page that is kept the last bytes are the device's. */
#define SLOT	64

static bool kept(const char *page, int i)
{
	return filled(page, 0, PAGE - SLOT, i);
}

/* Into the memory of the exporter, or back. */
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

/* Throw away, and sometimes put something there again. */
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

/* A child that looks at some pages, writes to some, and leaves or is killed. */
static void do_fork(struct worker *w)
{
	int n, first = some(w, w->keep, &n);
	pid_t pid = spawn();
	int status;

	if (pid < 0)
		FAIL(w, -errno);
	if (!pid) {
		for (int i = first; i < first + n; i++) {
			if (!kept(w->mem + i * PAGE, i))
				_exit(1);
			w->mem[i * PAGE] ^= 0xff;
		}
		while (w->rounds % 2)
			pause();
		_exit(0);
	}
	if (w->rounds % 2) {
		usleep(roll(w, 20000));
		kill(pid, SIGKILL);
	}
	if (waitpid(pid, &status, 0) != pid || (w->rounds % 2 ? !WIFSIGNALED(status) : status))
		FAIL(w, 1);
}

/* The device writes to pages that are kept, and reads what it has written. */
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

/* Start one for each of @work. */
static bool start_workers(struct worker *workers, const struct worker *like,
			  void (*const *work)(struct worker *w), int n)
{
	for (int i = 0; i < n; i++) {
		workers[i] = *like;
		workers[i].work = work[i];
		workers[i].seed = i + 1;
		workers[i].copy = malloc(64 * PAGE);
		if (!workers[i].copy ||
		    pthread_create(&workers[i].thread, NULL, worker, workers + i))
			return false;
	}
	return true;
}

/*
 * The last page makes the fault wait, and meanwhile the first ones go, or move. When it returns all
 * are there.
 */
TEST_F_TIMEOUT(odp, invalidated_while_faulting, 120)
{
	const int n = 600, slow = 580, exported = 4;
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct uffdio_zeropage zero = {};
	struct worker w = { .work = do_fault_all, .fd = self->imp[0], .npages = n };
	char *mem = w.mem = anon(n * PAGE);
	struct uffd_msg msg;
	int uffd;

	ASSERT_NE(mem, NULL);
	fill(mem, slow * PAGE, 1);
	ASSERT_TRUE(export_pages(self->exp[0], mem + 8 * PAGE, exported, 2));
	uffd = syscall(SYS_userfaultfd, O_CLOEXEC);
	ASSERT_GE(uffd, 0);
	ASSERT_EQ(call(uffd, UFFDIO_API, &api), 0);
	range.range.start = (uintptr_t)mem + slow * PAGE;
	range.range.len = PAGE;
	ASSERT_EQ(call(uffd, UFFDIO_REGISTER, &range), 0);
	ASSERT_GT(reg(w.fd, mem, n), 0);
	ASSERT_EQ(pthread_create(&w.thread, NULL, once, &w), 0);
	ASSERT_EQ(read(uffd, &msg, sizeof(msg)), sizeof(msg));
	ASSERT_EQ(msg.event, UFFD_EVENT_PAGEFAULT);

	/*
	 * The first walk has come to an end, and 512 pages are in the list. Three of them go, with the
	 * first one, where a walk begins that goes on behind it.
	 */
	ASSERT_EQ(madvise(mem, PAGE, MADV_DONTNEED), 0);
	ASSERT_EQ(madvise(mem + 3 * PAGE, PAGE, MADV_DONTNEED), 0);
	EXPECT_TRUE(filled(mem + 8 * PAGE, 0, PAGE, 2));
	EXPECT_EQ(edu_stats(w.fd).npages, 0);

	zero.range = range.range;
	ASSERT_EQ(call(uffd, UFFDIO_ZEROPAGE, &zero), 0);
	pthread_join(w.thread, NULL);
	EXPECT_EQ(w.error, 0);
	EXPECT_EQ(present(self, w.fd, mem, n), n);
	EXPECT_EQ(edu_stats(w.fd).npages, n);
	EXPECT_TRUE(is_ram(self->pages, mem));
	EXPECT_TRUE(is_ram(self->pages + 3, mem + 3 * PAGE));
	EXPECT_TRUE(is_ram(self->pages + 8, mem + 8 * PAGE));
	EXPECT_EQ(self->pages[9].how, self->how[0]);
	EXPECT_TRUE(all(mem + 3 * PAGE, PAGE, 0));
	close(uffd);
	munmap(mem, n * PAGE);
}

/*
 * Of two pages in different parts of a range the one goes whenever the other arrives. That comes to
 * an end, but not at once, and all is there when it is asked for once more, in peace.
 */
TEST_F_TIMEOUT(odp, give_up, 120)
{
	const int n = 600, pages[2] = { 3, 599 };
	struct uffdio_api api = { .api = UFFD_API };
	struct worker w = { .work = do_fault_patiently, .fd = self->imp[0], .npages = n };
	struct uffdio_register range[2];
	int uffd, arrived, rounds = 0;
	struct uffd_msg msg;
	bool peace = false;

	w.mem = anon(n * PAGE);
	ASSERT_NE(w.mem, NULL);
	fill(w.mem, n * PAGE, 1);
	fill(self->buf, PAGE, 2);
	uffd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	ASSERT_GE(uffd, 0);
	ASSERT_EQ(call(uffd, UFFDIO_API, &api), 0);
	for (int i = 0; i < 2; i++) {
		range[i] = (struct uffdio_register){
			.range = { (uintptr_t)w.mem + pages[i] * PAGE, PAGE },
			.mode = UFFDIO_REGISTER_MODE_MISSING,
		};
		ASSERT_EQ(call(uffd, UFFDIO_REGISTER, range + i), 0);
	}
	ASSERT_EQ(madvise(w.mem + pages[0] * PAGE, PAGE, MADV_DONTNEED), 0);
	ASSERT_GT(reg(w.fd, w.mem, n), 0);
	ASSERT_EQ(pthread_create(&w.thread, NULL, once, &w), 0);
	while (!peace) {
		struct pollfd fds = { .fd = uffd, .events = POLLIN };
		struct uffdio_copy copy;

		/* Nobody asks for a page any more if the fault has failed. */
		if (poll(&fds, 1, 20000) != 1)
			break;
		ASSERT_EQ(read(uffd, &msg, sizeof(msg)), sizeof(msg));
		ASSERT_EQ(msg.event, UFFD_EVENT_PAGEFAULT);
		arrived = msg.arg.pagefault.address != range[0].range.start;
		peace = edu_stats(w.fd).again || ++rounds == 20000;
		if (!peace)
			ASSERT_EQ(madvise(w.mem + pages[!arrived] * PAGE, PAGE, MADV_DONTNEED), 0);
		copy = (struct uffdio_copy){
			.dst = range[arrived].range.start,
			.src = (uintptr_t)self->buf,
			.len = PAGE,
		};
		ASSERT_EQ(call(uffd, UFFDIO_COPY, &copy), 0);
	}
	for (int i = 0; i < 2; i++)
		call(uffd, UFFDIO_UNREGISTER, &range[i].range);
	pthread_join(w.thread, NULL);
	EXPECT_EQ(w.error, 0);
	EXPECT_EQ(edu_stats(w.fd).again, 1);
	EXPECT_GT(rounds, 100);
	EXPECT_EQ(present(self, w.fd, w.mem, n), n);
	EXPECT_TRUE(filled(w.mem, 0, pages[0] * PAGE, 1));
	for (int i = 0; i < 2; i++)
		EXPECT_TRUE(filled(w.mem + pages[i] * PAGE, 0, PAGE, 2));
	close(uffd);
	munmap(w.mem, n * PAGE);
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

/* So few pages that all meet on each: what is mapped is known, whoever looks it up meanwhile. */
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
	EXPECT_EQ(edu_stats(like.fd).npages, present(self, like.fd, self->mem, npages));
	for (int i = 0; i < npages; i++)
		EXPECT_TRUE(self->pages[i].how == EDU_HMM_NONE ||
			    is_ram(self->pages + i, self->mem + i * PAGE));
	ASSERT_EQ(madvise(self->mem, npages * PAGE, MADV_DONTNEED), 0);
	EXPECT_COUNTS(like.fd, 0, 0, 0);
}

/*
 * Processes come and go while the device is given pages, those of the range and some with ranges of
 * their own.
 */
TEST_F_TIMEOUT(odp, fork_exit_while_fault, 300)
{
	static void (*const work[])(struct worker *w) = { do_fault, do_fault, do_fork };
	atomic_bool stop = false;
	struct worker workers[3], like = {
		.self = self, .fd = self->imp[0], .exp = self->exp[0], .mem = self->mem,
		.npages = NPAGES, .keep = NPAGES,
		.stop = &stop,
	};
	int live;

	for (int i = 0; i < NPAGES; i++)
		fill(self->mem + i * PAGE, PAGE, i);
	ASSERT_EQ(mirror(self->exp[0], HMM_DMIRROR_MIGRATE_TO_DEV, self->mem, self->buf,
			 NPAGES / 2), NPAGES / 2);
	ASSERT_GT(reg(self->imp[0], self->mem, NPAGES), 0);
	ASSERT_TRUE(start_workers(workers, &like, work, 3));
	for (int round = 0; round < 20; round++) {
		pid_t pid = spawn();

		ASSERT_GE(pid, 0);
		if (!pid) {
			/*
			 * A child with a range of its own, over memory of the exporter that only it
			 * has.
			 */
			int fd = open_importer(0), exp = open_exporter(0);
			char *mem = anon(NPAGES * PAGE);

			if (fd < 0 || exp < 0 || !mem || !export_pages(exp, mem, NPAGES / 2, 1) ||
			    reg(fd, mem, NPAGES) < 0)
				_exit(1);
			for (;;)
				if (quiet_fault(fd, mem, NPAGES, EDU_HMM_WRITE) ||
				    madvise(mem + NPAGES / 4 * PAGE, NPAGES / 4 * PAGE,
					    MADV_DONTNEED))
					_exit(2);
		}
		usleep(20000 + round * 7000);
		kill(pid, SIGKILL);
		ASSERT_EQ(waitpid(pid, &live, 0), pid);
		EXPECT_TRUE(WIFSIGNALED(live)) TH_LOG("child: %x", live);
	}
	stop = true;
	for (int i = 0; i < 3; i++) {
		pthread_join(workers[i].thread, NULL);
		EXPECT_EQ(workers[i].line, 0) {
			TH_LOG("worker %d, line %d after %u rounds: %d", i, workers[i].line,
			       workers[i].rounds, workers[i].error);
		}
		EXPECT_GT(workers[i].rounds, 0);
	}
	for (int i = 0; i < NPAGES; i++)
		EXPECT_TRUE(filled(self->mem + i * PAGE, 0, PAGE, i));
	ASSERT_EQ(fault(self, self->imp[0], self->mem, NPAGES, EDU_HMM_WRITE), 0);
	EXPECT_EQ(edu_stats(self->imp[0]).npages, NPAGES);
	EXPECT_EQ(exp_stats(self->exp[0]).bar_live, 0);
}

/* All at once on one range. */
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

	/* All is there again, once and where it is. */
	ASSERT_EQ(fault(self, fd, like.mem, npages, EDU_HMM_WRITE), 0);
	EXPECT_EQ(edu_stats(fd).npages, npages);
	for (int i = 0; i < keep; i++) {
		EXPECT_TRUE(kept(like.mem + i * PAGE, i)) TH_LOG("page %d", i);
		/* The last round of the device that was for this page. */
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
