// SPDX-License-Identifier: GPL-2.0-only
/*
 * hmm-bench GROUP [NAME]: measures the cost of finding memory, by /dev/hmm_bench
 * (selftests/modules/hmm_bench). Each case is measured several times in a row, and prints
 *
 *   # cost NAME PAGES COUNT...
 *
 * in instructions for the whole range. Some also print
 *
 *   # count NAME WHAT NUMBER
 *
 * A case fails if the memory is not in the expected state, because a low count would then only mean
 * that less was done. Cases that need the patches are left out on the base.
 */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "hmm_bench_uapi.h"
#include "test_hmm_uapi.h"

#include "kselftest.h"

#define PAGE		4096UL
#define HUGE		(2UL << 20)
#define PAGES		(HUGE / PAGE)
/* The first measurements, which fill caches, are left out. */
#define ROUNDS		11
#define WARM_UP		3

static int bench, mirrors[2];

/* The place of the memory. */
enum memory {
	PTE,		/* RAM, small pages */
	PMD,		/* RAM, a huge page */
	HUGETLB,	/* RAM, of hugetlbfs */
	NO_PTE,		/* nothing, in a page table with other entries */
	NO_PMD,		/* nothing, and no page table */
	DEV_PTE,	/* memory of mirror 0, small pages */
	DEV_PMD,	/* memory of mirror 0, a huge page */
	OTHER_PTE,	/* memory of mirror 1 */
	OTHER_PMD,
};

/* The owner of the memory. */
enum { NOBODY, OWNER };

struct test {
	const char *name;
	enum memory memory;
	unsigned long npages;
	enum hmm_bench_what what;
	unsigned int flags;
	int owner;
	unsigned long valid, huge, p2p, owned;	/* expected numbers of pages */
	/* Afterwards the memory is in RAM, and has to migrate back. */
	bool moves;
	bool (*run)(const struct test *test);	/* in place of measure() */
};

static char *map_at(unsigned long size, unsigned long align, int flags)
{
	char *p = mmap(NULL, size + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		err(1, "mmap");
	p = (char *)(((uintptr_t)p + align - 1) & ~(align - 1));
	p = mmap(p, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | flags,
		 -1, 0);
	if (p == MAP_FAILED)
		err(1, "mmap of %lu bytes", size);
	return p;
}

static void to_device(int mirror, char *addr, unsigned long npages)
{
	/* test_hmm copies the migrated pages there. */
	void *copy = malloc(npages * PAGE);
	struct hmm_dmirror_cmd cmd = {
		.addr = (uintptr_t)addr,
		.ptr = (uintptr_t)copy,
		.npages = npages,
	};

	if (ioctl(mirrors[mirror], HMM_DMIRROR_MIGRATE_TO_DEV, &cmd))
		err(1, "HMM_DMIRROR_MIGRATE_TO_DEV");
	if (cmd.cpages != npages)
		errx(1, "HMM_DMIRROR_MIGRATE_TO_DEV: %llu of %lu pages", cmd.cpages, npages);
	free(copy);
}

static bool is_huge(enum memory memory)
{
	return memory == PMD || memory == HUGETLB || memory == DEV_PMD || memory == OTHER_PMD;
}

/* Migrate the memory from RAM to its place. */
static void move(enum memory memory, char *addr, unsigned long npages)
{
	switch (memory) {
	case DEV_PTE:
	case DEV_PMD:
		to_device(0, addr, npages);
		break;
	case OTHER_PTE:
	case OTHER_PMD:
		to_device(1, addr, npages);
		break;
	case NO_PTE:
		if (madvise(addr, npages * PAGE, MADV_DONTNEED))
			err(1, "madvise");
		break;
	default:
		break;
	}
}

static char *prepare(enum memory memory, unsigned long npages)
{
	unsigned long size = (npages * PAGE + HUGE - 1) & ~(HUGE - 1);
	char *p = map_at(size, HUGE, memory == HUGETLB ? MAP_HUGETLB : 0);
	unsigned long used = is_huge(memory) ? size : npages * PAGE;

	if (memory == NO_PMD)
		return p;
	if (memory != HUGETLB &&
	    madvise(p, size, is_huge(memory) ? MADV_HUGEPAGE : MADV_NOHUGEPAGE))
		err(1, "madvise");
	if (memory == NO_PTE) {
		for (unsigned long i = 0; i < size; i += HUGE)
			p[i] = 1;
		move(memory, p, size / PAGE);
		return p;
	}
	for (unsigned long i = 0; i < used; i += PAGE)
		p[i] = 1;
	move(memory, p, used / PAGE);
	return p;
}

static void release(char *p, unsigned long npages)
{
	unsigned long size = (npages * PAGE + HUGE - 1) & ~(HUGE - 1);

	munmap(p, size);
}

/* Return: how many pages have migrated from mirror 0 to RAM. */
static uint64_t migrated(void)
{
	struct hmm_dmirror_p2p_stats s;

	if (ioctl(mirrors[0], HMM_DMIRROR_P2P_STATS, &s))
		err(1, "HMM_DMIRROR_P2P_STATS");
	return s.migrated;
}

static void print_cost(const char *name, unsigned long npages, const uint64_t *cost)
{
	printf("# cost %s %lu", name, npages);
	for (int i = WARM_UP; i < WARM_UP + ROUNDS; i++)
		printf(" %lu", cost[i]);
	printf("\n");
}

static int measure(const struct test *test, char *addr, struct hmm_bench_cmd *cmd)
{
	*cmd = (struct hmm_bench_cmd) {
		.addr = (uintptr_t)addr,
		.npages = test->npages,
		.what = test->what,
		.flags = test->flags,
		.owner = test->owner == OWNER ? mirrors[0] : -1,
	};
	return ioctl(bench, HMM_BENCH_MEASURE, cmd) ? -errno : 0;
}

static bool found(const struct test *test, const struct hmm_bench_cmd *cmd)
{
	if (cmd->valid == test->valid && cmd->huge == test->huge && cmd->p2p == test->p2p &&
	    cmd->owned == test->owned)
		return true;
	ksft_print_msg(
		"found %llu pages, huge %llu, p2p %llu, owned %llu; not %lu, %lu, %lu, %lu\n",
		cmd->valid, cmd->huge, cmd->p2p, cmd->owned, test->valid, test->huge, test->p2p,
		test->owned);
	return false;
}

static bool run_measure(const struct test *test)
{
	uint64_t cost[WARM_UP + ROUNDS], unmap[WARM_UP + ROUNDS];
	char *p = test->npages ? prepare(test->memory, test->npages) : NULL;
	struct hmm_bench_cmd cmd;
	char name[64];
	int ret;

	for (int i = 0; i < WARM_UP + ROUNDS; i++) {
		ret = measure(test, p, &cmd);
		if (ret) {
			ksft_print_msg("%s\n", strerror(-ret));
			return false;
		}
		if (!found(test, &cmd))
			return false;
		cost[i] = cmd.cost;
		unmap[i] = cmd.unmap;
		/* A huge page migrates as a whole, whatever part was requested. */
		if (test->moves)
			move(test->memory, p, is_huge(test->memory) ? PAGES : test->npages);
	}
	if (p)
		release(p, test->npages);
	print_cost(test->name, test->npages ? test->npages : 1, cost);
	if (test->what == HMM_BENCH_ODP || test->what == HMM_BENCH_ODP_VIRT) {
		snprintf(name, sizeof(name), "%s.unmap", test->name);
		print_cost(name, test->npages, unmap);
	}
	/* 1000 instructions, and those that read the counter. */
	if (test->what == HMM_BENCH_CLOCK && (cost[WARM_UP] < 1000 || cost[WARM_UP] > 1010)) {
		ksft_print_msg("the time stamp counter does not count instructions\n");
		return false;
	}
	return true;
}

/*
 * The peer reads, the device writes: it looks where its memory is, and migrates what is not there.
 */
static bool run_pingpong(const struct test *test)
{
	const struct test look = { .npages = test->npages, .what = HMM_BENCH_WALK, .owner = OWNER };
	uint64_t cost[WARM_UP + ROUNDS], to_ram = migrated(), back = 0;
	char *p = prepare(test->memory, test->npages);
	struct hmm_bench_cmd cmd, own;
	int ret;

	for (int i = 0; i < WARM_UP + ROUNDS; i++) {
		uint64_t start = __builtin_ia32_rdtsc();

		ret = measure(test, p, &cmd);
		if (!ret)
			ret = measure(&look, p, &own);
		if (ret) {
			ksft_print_msg("%s\n", strerror(-ret));
			return false;
		}
		if (own.owned != test->npages) {
			to_device(0, p, test->npages);
			back += test->npages - own.owned;
		}
		cost[i] = __builtin_ia32_rdtsc() - start;
		if (!found(test, &cmd))
			return false;
	}
	to_ram = migrated() - to_ram;
	print_cost(test->name, test->npages, cost);
	printf("# count %s to-ram %lu\n", test->name, to_ram / (WARM_UP + ROUNDS));
	printf("# count %s to-device %lu\n", test->name, back / (WARM_UP + ROUNDS));
	release(p, test->npages);
	return true;
}

static void run(const struct test *test)
{
	bool good = (test->run ?: run_measure)(test);

	ksft_test_result(good, "%s\n", test->name);
}

#define READ	HMM_BENCH_FAULT
#define WRITE	(HMM_BENCH_FAULT | HMM_BENCH_WRITE)
#define P2P	HMM_BENCH_P2P

#define CLOCK { "clock", .what = HMM_BENCH_CLOCK }
/* NAME, place, pages, flags, pages found, pages of PMDs */
#define RAM(_name, _memory, _n, _flags, _valid, _huge) \
	{ _name, _memory, _n, HMM_BENCH_WALK, _flags, .valid = _valid, .huge = _huge }
#define OWN(_name, _memory, _n, _flags, _huge)                                                 \
	{                                                                                      \
		_name, _memory, _n, HMM_BENCH_WALK, _flags, OWNER, .valid = _n, .huge = _huge, \
								   .owned = _n                 \
	}

/* The cost for callers that do not ask for aliases. */
static const struct test others[] = {
	CLOCK,
	RAM("pte.look", PTE, 512, 0, 512, 0),
	RAM("pte.read", PTE, 512, READ, 512, 0),
	RAM("pte.write", PTE, 512, WRITE, 512, 0),
	RAM("pte.16.write", PTE, 16, WRITE, 16, 0),
	RAM("pte.1.look", PTE, 1, 0, 1, 0),
	RAM("pte.1.write", PTE, 1, WRITE, 1, 0),
	RAM("pmd.look", PMD, 512, 0, 512, 512),
	RAM("pmd.write", PMD, 512, WRITE, 512, 512),
	RAM("pmd.1.write", PMD, 1, WRITE, 1, 1),
	RAM("hugetlb.write", HUGETLB, 512, WRITE, 512, 512),
	OWN("own.pte.look", DEV_PTE, 512, 0, 0),
	OWN("own.pte.write", DEV_PTE, 512, WRITE, 0),
	OWN("own.pte.1.write", DEV_PTE, 1, WRITE, 0),
	OWN("own.pmd.look", DEV_PMD, 512, 0, 512),
	OWN("own.pmd.write", DEV_PMD, 512, WRITE, 512),
	OWN("own.pmd.1.write", DEV_PMD, 1, WRITE, 1),
	RAM("hole.pte.look", NO_PTE, 512, 0, 0, 0),
	RAM("hole.pmd.look", NO_PMD, 512, 0, 0, 0),
	RAM("other.pte.look", DEV_PTE, 512, 0, 0, 0),
	RAM("other.pte.1.look", DEV_PTE, 1, 0, 0, 0),
	RAM("other.pmd.look", DEV_PMD, 512, 0, 0, 0),
	{ "other.pte.write", DEV_PTE, 512, HMM_BENCH_WALK, WRITE, .valid = 512, .moves = true },
	{ "other.pte.1.write", DEV_PTE, 1, HMM_BENCH_WALK, WRITE, .valid = 1, .moves = true },
};

#define ODP(_name, _memory, _n, _huge) \
	{ "odp." _name, _memory, _n, HMM_BENCH_ODP, WRITE, .valid = _n, .huge = _huge }
#define VIRT(_name, _memory, _n, _huge) \
	{ "odp.virt." _name, _memory, _n, HMM_BENCH_ODP_VIRT, WRITE, .valid = _n, .huge = _huge }

/* On-demand paging of RAM. */
static const struct test odp[] = {
	CLOCK,
	ODP("pte.1", PTE, 1, 0),
	ODP("pte.16", PTE, 16, 0),
	ODP("pte.512", PTE, 512, 0),
	ODP("pte.4096", PTE, 4096, 0),
	/* Pages that the CPU has never touched are allocated and cleared first. */
	{ "odp.none.1", NO_PTE, 1, HMM_BENCH_ODP, WRITE, .valid = 1, .moves = true },
	{ "odp.none.512", NO_PTE, 512, HMM_BENCH_ODP, WRITE, .valid = 512, .moves = true },
	ODP("pmd.1", PMD, 1, 1),
	ODP("pmd.512", PMD, 512, 512),
	VIRT("pte.1", PTE, 1, 0),
	VIRT("pte.16", PTE, 16, 0),
	VIRT("pte.512", PTE, 512, 0),
	VIRT("pmd.512", PMD, 512, 512),
};

#define ALIAS(_name, _memory, _n, _huge)                                                      \
	{ "alias." _name, _memory,	 _n,	   HMM_BENCH_WALK, WRITE | P2P,               \
	  .valid = _n,	  .huge = _huge, .p2p = _n },                                         \
	{                                                                                     \
		"migrate." _name, _memory, _n, HMM_BENCH_WALK, WRITE, .valid = _n, .huge = 0, \
								      .moves = true           \
	}
#define ODP_P2P(_name, _memory, _n, _huge)                                                         \
	{                                                                                          \
		"odp.alias." _name, _memory, _n, HMM_BENCH_ODP, WRITE | P2P,                       \
			.valid = _n, .huge = _huge, .p2p = _n                                      \
	}
#define ODP_MOVE(_name, _memory, _n, _huge)                                     \
	{                                                                       \
		"odp.fallback." _name, _memory, _n, HMM_BENCH_ODP, WRITE | P2P, \
			.valid = _n, .huge = _huge, .moves = true               \
	}

/* Device memory, by alias and by migration. Mirror 0 has a BAR, mirror 1 has none. */
static const struct test alias[] = {
	CLOCK,
	{ "copy", .what = HMM_BENCH_COPY },
	{ "copy.bar", .what = HMM_BENCH_COPY_BAR },
	ALIAS("pte.1", DEV_PTE, 1, 0),
	ALIAS("pte.16", DEV_PTE, 16, 0),
	ALIAS("pte.512", DEV_PTE, 512, 0),
	{ "alias.pmd.512", DEV_PMD, 512, HMM_BENCH_WALK, WRITE | P2P, .valid = 512, .huge = 512,
	  .p2p = 512 },
	{ "migrate.pmd.512", DEV_PMD, 512, HMM_BENCH_WALK, WRITE, .valid = 512, .huge = 512,
	  .moves = true },
	ODP_P2P("pte.1", DEV_PTE, 1, 0),
	ODP_P2P("pte.512", DEV_PTE, 512, 0),
	ODP_P2P("pmd.512", DEV_PMD, 512, 512),
	ODP_MOVE("pte.1", OTHER_PTE, 1, 0),
	ODP_MOVE("pte.512", OTHER_PTE, 512, 0),
	ODP_MOVE("pmd.512", OTHER_PMD, 512, 512),
};

#define PINGPONG(_name, _memory, _flags, _huge, _p2p)                                 \
	{                                                                             \
		"pingpong." _name, _memory, 512, HMM_BENCH_WALK, WRITE | _flags,      \
			.valid = 512, .huge = _huge, .p2p = _p2p, .run = run_pingpong \
	}

/* A device and its peer take turns. */
static const struct test pingpong[] = {
	CLOCK,
	PINGPONG("alias.pte.512", DEV_PTE, P2P, 0, 512),
	PINGPONG("migrate.pte.512", DEV_PTE, 0, 0, 0),
	PINGPONG("alias.pmd.512", DEV_PMD, P2P, 512, 512),
	PINGPONG("migrate.pmd.512", DEV_PMD, 0, 512, 0),
};

static const struct {
	const char *name;
	const struct test *tests;
	unsigned int n;
} groups[] = {
	{ "others", others, ARRAY_SIZE(others) },
	{ "odp", odp, ARRAY_SIZE(odp) },
	{ "alias", alias, ARRAY_SIZE(alias) },
	{ "pingpong", pingpong, ARRAY_SIZE(pingpong) },
};

static void open_devices(void)
{
	bench = open("/dev/hmm_bench", O_RDWR);
	if (bench < 0)
		err(1, "/dev/hmm_bench");
	for (int i = 0; i < 2; i++) {
		char path[32];

		snprintf(path, sizeof(path), "/dev/hmm_dmirror%d", i);
		mirrors[i] = open(path, O_RDWR);
		if (mirrors[i] < 0)
			err(1, "%s", path);
	}
}

int main(int argc, char **argv)
{
	unsigned int g, planned = 0;

	for (g = 0; g < ARRAY_SIZE(groups); g++)
		if (argc >= 2 && argc <= 3 && !strcmp(argv[1], groups[g].name))
			break;
	if (g == ARRAY_SIZE(groups))
		errx(2, "usage: hmm-bench others|odp|alias|pingpong [NAME]");

	open_devices();
	ksft_print_header();
	for (unsigned int i = 0; i < groups[g].n; i++)
		planned += argc == 2 || !strcmp(argv[2], groups[g].tests[i].name);
	ksft_set_plan(planned);
	for (unsigned int i = 0; i < groups[g].n; i++)
		if (argc == 2 || !strcmp(argv[2], groups[g].tests[i].name))
			run(&groups[g].tests[i]);
	ksft_finished();
}
