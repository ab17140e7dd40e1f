// SPDX-License-Identifier: GPL-2.0-only
/*
 * On-demand paging by the RDMA core: one call after the other to /dev/edu_odpN. The tests look at
 * the device page table, at the counters, and at the data that the device reads and writes.
 */
#include "odp-workers.h"

#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/syscall.h>

/*
 * Eight pages are in the memory of an exporter with the verdict @want, the others in RAM. Pages
 * that the device can reach are mapped in place. Only the others migrate.
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

	/* The second fault finds all pages mapped, and counts nothing twice. */
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

	/* The CPU faults on the last page, and reads what the device has written. */
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
 * The pages are in RAM and in the memory of two exporters in turn. Only unreachable pages migrate.
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
 * The third of eight pages cannot be mapped. If an alias cannot be mapped there, RAM cannot be
 * mapped either. So the call fails, nothing migrates, and the entry stays as it was.
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

	/* The page migrates, which removes the obstacle. */
	EXPECT_TRUE(filled(self->mem + 2 * PAGE, 2 * PAGE, PAGE, 1));
	ASSERT_EQ(fault(self, fd, self->mem, n, EDU_HMM_WRITE), 0);
	EXPECT_COUNTS(fd, n, n, 0);
	ASSERT_EQ(state(self, fd, self->mem, n), 0);
	for (int i = 0; i < n; i++)
		EXPECT_EQ(self->pages[i].how, i == 2 ? EDU_HMM_RAM : EDU_HMM_BRIDGE);
	EXPECT_TRUE(is_ram(self->pages + 2, self->mem + 2 * PAGE));

	/* The same with a page of RAM. */
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

/* The driver uses a bounce buffer for another mapping while a range is registered. */
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

	/* Pages that are mapped, and pages that are not mapped yet. */
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

/*
 * The table is written in blocks of entries. The entry of a page that is not mapped is not
 * present.
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
	/* All pages are in the CPU page table. */
	ASSERT_EQ(fault(self, fd, mem + 2 * PAGE, 1, EDU_HMM_WRITE), 0);
	EXPECT_EQ(present(self, fd, mem, NPAGES), 1);
	EXPECT_EQ(self->pages[2].how, EDU_HMM_RAM);
	/* A neighbour that was mapped and is not mapped any more. */
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
	 * The same with aliases. The pages beside the requested one are neither mapped nor
	 * migrated.
	 */
	mem += n * PAGE;
	ASSERT_TRUE(export_pages(self->exp[0], mem, n, 2));
	before = exp_stats(self->exp[0]);
	ASSERT_EQ(fault(self, fd, mem + 5 * PAGE, 1, EDU_HMM_WRITE), 0);
	EXPECT_EQ(present(self, fd, mem, n), 1);
	EXPECT_EQ(self->pages[5].how, here);
	EXPECT_EQ(exp_stats(self->exp[0]).migrated - before.migrated, !reachable(here));
	EXPECT_COUNTS(fd, 3, reachable(here), !reachable(here));
	/* The page migrates to RAM, and its neighbour is mapped. */
	EXPECT_TRUE(filled(mem + 5 * PAGE, 5 * PAGE, PAGE, 2));
	ASSERT_EQ(fault(self, fd, mem + 6 * PAGE, 1, 0), 0);
	EXPECT_EQ(present(self, fd, mem, n), 1 + !reachable(here));
	EXPECT_EQ(self->pages[6].how, here);

	/* A page without a VMA. */
	ASSERT_EQ(munmap(mem + 4 * PAGE, PAGE), 0);
	EXPECT_EQ(fault(self, fd, mem + 3 * PAGE, 2, 0), -EFAULT);
	ASSERT_EQ(fault(self, fd, mem + 3 * PAGE, 1, 0), 0);
	EXPECT_EQ(present(self, fd, mem, n), 2 + !reachable(here));
	EXPECT_EQ(self->pages[4].how, EDU_HMM_NONE);
	EXPECT_EQ(edu_stats(fd).npages, 2 + present(self, fd, mem, n));
}

/*
 * A snapshot maps pages that are present, aliases too. It faults in nothing and migrates nothing.
 */
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
		/* A page that is looked up again is counted again, unless it is mapped. */
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
		/* The device does not reach it. */
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

/* A page is prefetched for reading, then written to. The mapping stays and becomes writable. */
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

	/* The write faults, and finds the mapping. */
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
		/* These pages share a block of entries with the page that was written to. */
		EXPECT_EQ(self->pages[i].write, 1);
	}
	/* Prefetch again. */
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

/*
 * A read-only page becomes writable in the CPU page table. No notifier fires, as it is the same
 * page.
 */
TEST_F_TIMEOUT(odp, write_upgrade, 120)
{
	struct edu_hmm_page seen[4];
	int fd = self->imp[0];
	uint64_t dropped;
	pid_t pid;

	fill(self->mem, 4 * PAGE, 1);
	/* This drains the LRU batches of all processors. A page in a batch would be copied. */
	ASSERT_TRUE(write_file("/proc/sys/vm/drop_caches", "1"));
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
 * After MADV_FREE the device writes to two pages, reads one, and does not access the fourth.
 * Reclaim frees the last two only. The CPU writes to none of them.
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

/* After MADV_FREE, pages migrate to the exporter and the device writes to them. They are kept. */
TEST_F_TIMEOUT(odp, written_in_place_is_dirty, 120)
{
	char *mem = anon(2 * PAGE);
	int fd = self->imp[0];

	needs_data(self->how[0]);
	ASSERT_NE(mem, NULL);
	fill(mem, 2 * PAGE, 1);
	ASSERT_EQ(madvise(mem, 2 * PAGE, MADV_FREE), 0);
	ASSERT_EQ(mirror(self->exp[0], HMM_DMIRROR_MIGRATE_TO_DEV, mem, self->buf, 2), 2);
	fill(self->buf, 2 * PAGE, 2);
	ASSERT_GT(reg(fd, mem, 2), 0);
	ASSERT_EQ(dma(fd, mem, self->buf, 2 * PAGE, EDU_HMM_WRITE), 0);
	EXPECT_TRUE(filled(mem, 0, 2 * PAGE, 2));
	ASSERT_EQ(madvise(mem, 2 * PAGE, MADV_PAGEOUT), 0);
	EXPECT_TRUE(filled(mem, 0, 2 * PAGE, 2));
	munmap(mem, 2 * PAGE);
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

/* A page that is shared with a child can be read in place. Before a write it migrates, once. */
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
	/* The page did not migrate because it had no alias. */
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
	/* The range is not aligned, so a walk of the umem ends in the middle of the huge page. */
	ASSERT_GT(reg(fd, mem + 7 * PAGE, 512), 0);
	ASSERT_EQ(fault(self, fd, mem + 7 * PAGE, 512, EDU_HMM_WRITE), 0);
	if (reach && !bench_nouveau())
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
	/* The CPU faults on it. However much migrates, the table has only pages that are mapped. */
	if (self->data || !reach)
		EXPECT_TRUE(filled(mem + 300 * PAGE, 0, 64, 3));
	EXPECT_TRUE(filled(mem + 300 * PAGE + 64, 300 * PAGE + 64, PAGE - 64, 1));
	EXPECT_EQ(present(self, fd, mem + 7 * PAGE, 512), edu_stats(fd).npages);
	if (reach)
		EXPECT_EQ(self->pages[293].how, EDU_HMM_NONE);
	munmap(map, 3 * HUGE);
	EXPECT_EQ(edu_stats(fd).npages, 0);
}

/* The umem has units of huge pages. Each huge page is mapped at its own address, as a whole. */
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

	/* Fault in the second huge page alone, by a page in its middle. */
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
	/* Drop the third huge page: all of it is unmapped, and nothing else. */
	ASSERT_EQ(madvise(mem + 2 * HUGE, HUGE, MADV_DONTNEED), 0);
	EXPECT_COUNTS(fd, 2, 0, 0);
	EXPECT_EQ(present(self, fd, mem, 3 * 512), 2 * 512);
	EXPECT_EQ(self->pages[2 * 512].how, EDU_HMM_NONE);
	EXPECT_EQ(self->pages[3 * 512 - 1].how, EDU_HMM_NONE);
	/* A hole is no small page. */
	ASSERT_EQ(munmap(mem + 2 * HUGE, HUGE), 0);
	ASSERT_EQ(fault(self, fd, mem, 3 * 512, EDU_HMM_NO_FAULT), 0);
	EXPECT_COUNTS(fd, 2, 0, 0);
	for (int i = 0; i < 2; i++) {
		EXPECT_TRUE(filled(mem + i * HUGE, 0, 5 * PAGE, i));
		EXPECT_TRUE(filled(mem + i * HUGE + 5 * PAGE, 0, PAGE, i + 10));
		EXPECT_TRUE(filled(mem + i * HUGE + 6 * PAGE, 6 * PAGE, HUGE - 6 * PAGE, i));
	}
	ASSERT_EQ(munmap(mem, 3 * HUGE), 0);
	EXPECT_COUNTS(fd, 0, 0, 0);
	ASSERT_TRUE(write_file("/proc/sys/vm/nr_hugepages", "0"));
}

/* The umem has units of huge pages, but the memory consists of small pages. */
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

/* An umem with units of huge pages gets no aliases. A huge page of the exporter migrates. */
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

/* A range that takes three walks, with holes at other places in each. */
TEST_F_TIMEOUT(odp, xlt_two_chunks, 300)
{
	int fd = self->imp[0], reach = reachable(self->how[0]);
	const int n = 1200, first = 508, exported = 8;
	struct hmm_dmirror_p2p_stats before;
	uint64_t there = 0;
	char *mem;

	mem = anon(n * PAGE);
	ASSERT_NE(mem, NULL);
	/*
	 * Present are: in walk 1 each third page, in walk 2 the two others of three, in walk 3
	 * all.
	 */
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
	/* Aliases on both sides of the border of two walks. Some of these pages were mapped. */
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
	/* Two walks that begin inside the range. */
	ASSERT_EQ(madvise(mem + 1030 * PAGE, PAGE, MADV_DONTNEED), 0);
	ASSERT_EQ(fault(self, fd, mem + 600 * PAGE, n - 600, EDU_HMM_WRITE), 0);
	EXPECT_COUNTS(fd, n, reach ? exported : 0, reach ? 0 : exported);
	EXPECT_EQ(edu_stats(fd).again, 0);
	munmap(mem, n * PAGE);
	EXPECT_COUNTS(fd, 0, reach ? exported : 0, reach ? 0 : exported);
}

/* After each call as many pages are counted as are mapped, and none at the end. */
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
		/* Drop one page of RAM, one of the exporter (twice), then the rest. */
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

/* Children of an implicit umem. Their parent, which has the counters, is released last. */
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

/* A child of a read-only implicit umem is read-only. */
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

/*
 * Without the P2P flag a umem gets no aliases. A fault migrates the pages, a snapshot leaves them
 * out, and nothing is counted.
 */
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

/* A device without the capability gets no aliases, even if the MR asks for them. */
TEST_F_TIMEOUT(odp, incapable, 120)
{
	not_asked(_metadata, self, EDU_HMM_P2P | EDU_HMM_INCAPABLE);
}

/* A mapped page migrates. The device then accesses the new place, and not the old one. */
TEST_F_TIMEOUT(odp, migrate_while_mapped, 300)
{
	int fd = self->imp[0], reach = reachable(self->how[0]);
	struct hmm_dmirror_p2p_stats before;
	char *place = NULL;

	needs_data(self->how[0]);
	ASSERT_GT(reg(fd, self->mem, NPAGES), 0);
	for (int round = 0; round < 4; round++) {
		/* From RAM to the exporter. */
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

/* The driver of the exporter is unbound. Its pages are unmapped, and are then found in RAM. */
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
	/* The driver is bound again. */
	ASSERT_TRUE(write_file("/sys/bus/pci/drivers/test_hmm/bind", self->bdf[0]));
	ASSERT_TRUE(export_pages(self->exp[0], self->mem, n, 3));
	ASSERT_EQ(fault(self, fd, self->mem, NPAGES, EDU_HMM_WRITE), 0);
	EXPECT_EQ(how(self, fd, self->mem), self->how[0]);
	EXPECT_COUNTS(fd, NPAGES, reach ? 2 * n : 0, reach ? 0 : 2 * n);
}

/* Device private pages of a driver without the op migrate and are counted. */
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
	EXPECT_COUNTS(fd, NPAGES, 0, 2 * 8);
	EXPECT_EQ(how(self, other, self->mem), EDU_HMM_NONE);
	ASSERT_EQ(state(self, fd, self->mem, NPAGES), 0);
	for (int i = 0; i < NPAGES; i++)
		EXPECT_TRUE(is_ram(self->pages + i, self->mem + i * PAGE));
	EXPECT_TRUE(filled(self->mem, 0, NPAGES * PAGE, 1));
	close(other);
}

static void *once(void *arg)
{
	struct worker *w = arg;

	w->work(w);
	return NULL;
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

/*
 * While a fault waits for the page of @zero, another page goes. Unless @back is -1, it comes back
 * by a fault with these flags. Return: how often the exporter was asked for an alias
 */
static uint64_t lose_page(struct __test_metadata *_metadata, FIXTURE_DATA(odp) *self,
			  struct worker *w, int uffd, struct uffdio_zeropage *zero, char *page,
			  int back)
{
	uint64_t before = exp_stats(self->exp[0]).op_calls;
	struct uffd_msg msg;

	EXPECT_EQ(madvise((void *)zero->range.start, PAGE, MADV_DONTNEED), 0);
	EXPECT_EQ(pthread_create(&w->thread, NULL, once, w), 0);
	EXPECT_EQ(read(uffd, &msg, sizeof(msg)), sizeof(msg));
	EXPECT_EQ(madvise(page, PAGE, MADV_DONTNEED), 0);
	if (back >= 0)
		EXPECT_EQ(quiet_fault(w->fd, page, 1, back), 0);
	EXPECT_EQ(call(uffd, UFFDIO_ZEROPAGE, zero), 0);
	pthread_join(w->thread, NULL);
	EXPECT_EQ(w->error, 0);
	return exp_stats(self->exp[0]).op_calls - before;
}

/*
 * The fault waits for one of the last pages. Meanwhile one of the first pages is dropped, and
 * another one migrates. When the fault returns, all pages are mapped.
 */
TEST_F_TIMEOUT(odp, invalidated_while_faulting, 120)
{
	const int n = 600, slow = 580, exported = 4, back[] = { -1, EDU_HMM_WRITE, 0 };
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
	 * The first walk has come to an end, and 512 pages are in the list. Three of them go, with
	 * the first one, where a walk begins that goes on behind it.
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

	/* Pages before the first one that went are not looked up again. The range begins inside. */
	w.mem += 4 * PAGE;
	w.npages -= 4;
	for (int i = 0; i < ARRAY_SIZE(back); i++) {
		EXPECT_EQ(lose_page(_metadata, self, &w, uffd, &zero, mem + 20 * PAGE, back[i]),
			  reachable(self->how[0]) ? exported - 1 : 0);
		EXPECT_EQ(edu_stats(w.fd).npages, n);
		EXPECT_EQ(present(self, w.fd, mem, n), n);
		EXPECT_EQ(self->pages[20].write, 1);
	}
	close(uffd);
	munmap(mem, n * PAGE);
}

/* Unreclaimable slab memory in KiB */
static long slab(void)
{
	FILE *f = fopen("/proc/meminfo", "r");
	char line[128];
	long n = -1;

	while (f && n < 0 && fgets(line, sizeof(line), f))
		sscanf(line, "SUnreclaim: %ld", &n);
	if (f)
		fclose(f);
	return n;
}

/* Each look-up frees its array, which is on the stack for up to 32 pages. */
TEST_F_TIMEOUT(odp, no_leak, 120)
{
	static const struct {
		int npages, times;
	} some[] = { { 32, 8000 }, { 33, 8000 }, { 600, 500 } };
	const int n = 600;
	char *mem = anon(n * PAGE);

	if (!system("grep -q kasan_quarantine_put /proc/kallsyms"))
		SKIP(return, "KASAN keeps freed memory");
	ASSERT_NE(mem, NULL);
	ASSERT_GT(reg(self->imp[0], mem, n), 0);
	for (int i = 0; i < ARRAY_SIZE(some); i++) {
		long before;

		ASSERT_EQ(quiet_fault(self->imp[0], mem, some[i].npages, EDU_HMM_WRITE), 0);
		before = slab();
		ASSERT_GT(before, 0);
		for (int k = 0; k < some[i].times; k++)
			ASSERT_EQ(quiet_fault(self->imp[0], mem, some[i].npages, EDU_HMM_WRITE), 0);
		EXPECT_LT(slab() - before, 1024);
	}
	munmap(mem, n * PAGE);
}

/*
 * Two pages are in different parts of a range. Whenever one of them arrives, the other one is
 * dropped. The call gives up, but not at once. Without the disturbance the next call maps all
 * pages.
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

		/* If the fault has failed, no page fault arrives any more. */
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

/* Of a huge page, the pages that are looked up are counted. */
TEST_F_TIMEOUT(odp, counted, 120)
{
	int fd = self->imp[0], reach = reachable(self->how[0]);
	char *map = anon(2 * HUGE), *mem;
	const int first = 7;

	ASSERT_NE(map, NULL);
	mem = (char *)(((uintptr_t)map + HUGE - 1) & ~(HUGE - 1));
	madvise(mem, HUGE, MADV_HUGEPAGE);
	ASSERT_TRUE(export_pages(self->exp[0], mem, 512, 1));
	ASSERT_GT(reg(fd, mem + first * PAGE, 512 - first), 0);
	ASSERT_EQ(fault(self, fd, mem + first * PAGE, 512 - first, EDU_HMM_NO_FAULT), 0);
	EXPECT_COUNTS(fd, reach ? 512 - first : 0, reach ? 512 - first : 0,
		      reach ? 0 : 512 - first);
	munmap(map, 2 * HUGE);
}

/* Secret memory is never mapped. RAM on both sides of it is. */
TEST_F_TIMEOUT(odp, secret, 120)
{
	int fd = self->imp[0], secret = syscall(SYS_memfd_secret, O_CLOEXEC);
	const int n = 4;
	char *mem = self->mem + n * PAGE;

	if (secret < 0 && errno == ENOSYS)
		SKIP(return, "no secret memory in this kernel");
	ASSERT_GE(secret, 0);
	ASSERT_EQ(ftruncate(secret, n * PAGE), 0);
	fill(self->mem, 3 * n * PAGE, 1);
	ASSERT_EQ(mmap(mem, n * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, secret, 0),
		  mem);
	fill(mem, n * PAGE, 2);
	ASSERT_GT(reg(fd, self->mem, NPAGES), 0);

	EXPECT_EQ(fault(self, fd, mem, n, 0), -EFAULT);
	EXPECT_EQ(fault(self, fd, mem, n, EDU_HMM_WRITE), -EFAULT);
	EXPECT_EQ(fault(self, fd, mem - PAGE, 2, 0), -EFAULT);
	EXPECT_EQ(dma(fd, mem, self->buf, 64, 0), -EFAULT);
	EXPECT_EQ(present(self, fd, mem, n), 0);

	/* A snapshot leaves it out. */
	ASSERT_EQ(fault(self, fd, self->mem, 3 * n, EDU_HMM_NO_FAULT), 0);
	EXPECT_EQ(present(self, fd, self->mem, 3 * n), 2 * n);
	EXPECT_EQ(present(self, fd, mem, n), 0);
	EXPECT_EQ(dma(fd, mem, self->buf, 64, EDU_HMM_NO_FAULT), -ENOENT);

	for (int i = 0; i <= 2 * n; i += 2 * n) {
		ASSERT_EQ(fault(self, fd, self->mem + i * PAGE, n, EDU_HMM_WRITE), 0);
		ASSERT_EQ(dma(fd, self->mem + i * PAGE, self->buf, n * PAGE, EDU_HMM_NO_FAULT), 0);
		EXPECT_TRUE(filled(self->buf, i * PAGE, n * PAGE, 1));
	}
	EXPECT_COUNTS(fd, 2 * n, 0, 0);
	EXPECT_TRUE(filled(mem, 0, n * PAGE, 2));
	close(secret);
}

/* Processes fork and exit while pages are faulted in. Some of them have ranges of their own. */
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
			/* A child with a range of its own, over its own memory of the exporter. */
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

TEST_HARNESS_MAIN
