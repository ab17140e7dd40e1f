// SPDX-License-Identifier: GPL-2.0-only
/* On-demand paging by the RDMA core while one memory allocation after the other fails. */
#include "odp.h"

static bool set_attr(const char *attr, const char *value)
{
	char path[96];

	snprintf(path, sizeof(path), "/sys/kernel/debug/%s", attr);
	return write_file(path, value);
}

/*
 * Let allocation number @n from now on fail. @fd: /proc/thread-self/fail-nth. The caller has opened
 * it, because that allocates memory. Return: what is left of the previous number, 0 if that
 * allocation has failed, or -1.
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

/* The calls in which one allocation after the other fails. */
static const struct nth_call {
	const char *name;
	unsigned int reg;		/* flags of the registration */
	unsigned int fault;		/* flags of the fault */
} nth_calls[] = {
	{ "fault", EDU_HMM_P2P, EDU_HMM_WRITE },
	{ "fault of a child", EDU_HMM_P2P | EDU_HMM_IMPLICIT, EDU_HMM_WRITE },
	{ "snapshot", EDU_HMM_P2P, EDU_HMM_NO_FAULT },
	{ "prefetch", EDU_HMM_P2P | EDU_HMM_IMPLICIT, EDU_HMM_DOWNGRADE },
};

/*
 * Register a range and fault in its pages, while the first allocation fails, then the second, and
 * so on until a call has no more allocations. Each time the call either succeeds, or it fails and
 * leaves nothing behind, so that it succeeds the next time.
 */
static void map_error_nth(struct __test_metadata *_metadata, FIXTURE_DATA(odp) *self,
			  const struct nth_call *what, bool atomic)
{
	/*
	 * From the third page on, the IOMMU needs another page table, unless another range has
	 * allocated it. With more than 32 pages the walk allocates an array.
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
	 * The caches of the allocator differ each time, so the same number may be another
	 * allocation. One sweep does not reach all of them.
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
		/* -EFAULT: a page could not be mapped, or could not be migrated to RAM. */
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
		/* Without failing allocations the call succeeds. */
		ASSERT_EQ(fault(self, fd, mem, pages, EDU_HMM_WRITE), 0);
		EXPECT_EQ(present(self, fd, area, size), pages);
		EXPECT_EQ(edu_stats(fd).npages, pages);
		/* The device reads the data of the process. */
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
		/* A file that stays open keeps its IOVAs, so the next one gets other IOVAs. */
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

/* The time limit is in virtual time, see selftests/suites/rdma/icount. */
TEST_F_TIMEOUT(odp, map_error_nth_any, 3600)
{
	for (unsigned int i = 0; i < sizeof(nth_calls) / sizeof(*nth_calls); i++)
		map_error_nth(_metadata, self, nth_calls + i, false);
}

TEST_HARNESS_MAIN
