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
#include <glob.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hmm_bench_uapi.h"
#include "test_hmm_uapi.h"

#include "kselftest.h"

#define PAGE		4096UL
#define HUGE		(2UL << 20)
#define PAGES		(HUGE / PAGE)
/* The first measurements, which fill caches, are left out. */
#define ROUNDS		11
#define WARM_UP		3
/* Large ranges take long, and their counts do not vary. */
#define LARGE		(16 * PAGES)
#define LARGE_ROUNDS	3
/*
 * After a migration test_hmm copies all its pages to a kernel buffer, and from there to the
 * caller.
 */
#define MOVE_PAGES	(16 * PAGES)

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

/* How importers lose their mappings. */
enum how {
	MIGRATE,	/* the pages migrate to RAM */
	MUNMAP,		/* the process unmaps the memory */
	EXIT,		/* the process ends */
	UNBIND,		/* the driver of the exporter is unbound */
	RELEASE,	/* the importers release the MRs */
};

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
	unsigned long k;			/* pages without an alias */
	unsigned int importers;			/* importers that use the memory */
	enum how how;
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

static void migrate(int mirror, unsigned long request, char *addr, unsigned long npages)
{
	void *copy = malloc((npages < MOVE_PAGES ? npages : MOVE_PAGES) * PAGE);

	while (npages) {
		struct hmm_dmirror_cmd cmd = {
			.addr = (uintptr_t)addr,
			.ptr = (uintptr_t)copy,
			.npages = npages < MOVE_PAGES ? npages : MOVE_PAGES,
		};

		if (ioctl(mirrors[mirror], request, &cmd))
			err(1, "HMM_DMIRROR_MIGRATE");
		if (request == HMM_DMIRROR_MIGRATE_TO_DEV && cmd.cpages != cmd.npages)
			errx(1, "HMM_DMIRROR_MIGRATE_TO_DEV: %llu of %llu pages", cmd.cpages,
			     cmd.npages);
		addr += cmd.npages * PAGE;
		npages -= cmd.npages;
	}
	free(copy);
}

static void to_device(int mirror, char *addr, unsigned long npages)
{
	migrate(mirror, HMM_DMIRROR_MIGRATE_TO_DEV, addr, npages);
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
		*(unsigned long *)(p + i) = i + 1;
	move(memory, p, used / PAGE);
	return p;
}

/* Return: the number of pages with wrong data. Pages that are not in RAM migrate there. */
static unsigned long lost(const char *p, unsigned long npages)
{
	unsigned long n = 0;

	for (unsigned long i = 0; i < npages * PAGE; i += PAGE)
		n += *(unsigned long *)(p + i) != i + 1;
	return n;
}

static void release(char *p, unsigned long npages)
{
	unsigned long size = (npages * PAGE + HUGE - 1) & ~(HUGE - 1);

	munmap(p, size);
}

static struct hmm_dmirror_p2p_stats stats(int mirror)
{
	struct hmm_dmirror_p2p_stats s;

	if (ioctl(mirrors[mirror], HMM_DMIRROR_P2P_STATS, &s))
		err(1, "HMM_DMIRROR_P2P_STATS");
	return s;
}

static void print_cost(const char *name, unsigned long npages, const uint64_t *cost, int n)
{
	printf("# cost %s %lu", name, npages);
	for (int i = 0; i < n; i++)
		printf(" %lu", cost[i]);
	printf("\n");
}

static int measure_by(const struct test *test, unsigned int importer, char *addr,
		      struct hmm_bench_cmd *cmd)
{
	*cmd = (struct hmm_bench_cmd) {
		.addr = (uintptr_t)addr,
		.npages = test->npages,
		.what = test->what,
		.flags = test->flags,
		.owner = test->owner == OWNER ? mirrors[0] : -1,
		.importer = importer,
	};
	return ioctl(bench, HMM_BENCH_MEASURE, cmd) ? -errno : 0;
}

static int measure(const struct test *test, char *addr, struct hmm_bench_cmd *cmd)
{
	return measure_by(test, 0, addr, cmd);
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

/* A separate measurement, because counting takes instructions. */
static bool count_calls(const struct test *test, char *p)
{
	struct test counted = *test;
	struct hmm_bench_cmd cmd;
	int ret;

	counted.flags |= HMM_BENCH_COUNT;
	ret = measure(&counted, p, &cmd);
	if (ret) {
		ksft_print_msg("counting: %s\n", strerror(-ret));
		return false;
	}
	if (test->moves)
		move(test->memory, p, is_huge(test->memory) ? PAGES : test->npages);
	printf("# count %s dma %llu\n", test->name, cmd.mapped);
	printf("# count %s iommu-map %llu\n", test->name, cmd.maps);
	printf("# count %s iommu-unmap %llu\n", test->name, cmd.unmaps);
	printf("# count %s iommu-flush %llu\n", test->name, cmd.flushes);
	return found(test, &cmd);
}

static bool run_measure(const struct test *test)
{
	uint64_t cost[WARM_UP + ROUNDS], unmap[WARM_UP + ROUNDS];
	int rounds = test->npages > LARGE ? LARGE_ROUNDS : ROUNDS;
	char *p = test->npages ? prepare(test->memory, test->npages) : NULL;
	struct hmm_bench_cmd cmd;
	char name[64];
	int ret;

	for (int i = 0; i < WARM_UP + rounds; i++) {
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
	if (test->what == HMM_BENCH_ODP && !count_calls(test, p))
		return false;
	if (p)
		release(p, test->npages);
	print_cost(test->name, test->npages ? test->npages : 1, cost + WARM_UP, rounds);
	if (test->what == HMM_BENCH_ODP || test->what == HMM_BENCH_ODP_VIRT) {
		snprintf(name, sizeof(name), "%s.unmap", test->name);
		print_cost(name, test->npages, unmap + WARM_UP, rounds);
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
	uint64_t cost[WARM_UP + ROUNDS], migrated = stats(0).migrated, back = 0;
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
	migrated = stats(0).migrated - migrated;
	print_cost(test->name, test->npages, cost + WARM_UP, ROUNDS);
	printf("# count %s to-ram %lu\n", test->name, migrated / (WARM_UP + ROUNDS));
	printf("# count %s to-device %lu\n", test->name, back / (WARM_UP + ROUNDS));
	release(p, test->npages);
	return true;
}

/* @k pages, spread evenly, have no alias. */
static bool run_partial(const struct test *test)
{
	unsigned long most = is_huge(test->memory) && test->k ? test->npages : test->k;
	uint64_t cost[WARM_UP + ROUNDS], migrated = 0, calls = 0;
	char *p = prepare(test->memory, test->npages);
	struct hmm_dmirror_p2p_stats before, after;
	struct hmm_bench_cmd cmd;
	int ret;

	for (int i = 0; i < WARM_UP + ROUNDS; i++) {
		for (unsigned long n = 0; n < test->k; n++) {
			struct hmm_dmirror_p2p_inject inject = {
				.addr = (uintptr_t)p + n * test->npages / test->k * PAGE,
				.npages = 1,
				.error = ENOSPC,
			};

			if (ioctl(mirrors[0], HMM_DMIRROR_P2P_INJECT, &inject))
				err(1, "HMM_DMIRROR_P2P_INJECT");
		}
		before = stats(0);
		ret = measure(test, p, &cmd);
		after = stats(0);
		if (ret) {
			ksft_print_msg("%s\n", strerror(-ret));
			return false;
		}
		if (!found(test, &cmd))
			return false;
		cost[i] = cmd.cost;
		migrated = after.migrated - before.migrated;
		calls = after.op_calls - before.op_calls;
		if (migrated != most) {
			ksft_print_msg("%lu pages migrated, not %lu\n", migrated, most);
			return false;
		}
		for (unsigned long n = 0; n < test->k; n++)
			if (!is_huge(test->memory))
				to_device(0, p + n * test->npages / test->k * PAGE, 1);
		if (is_huge(test->memory) && test->k)
			to_device(0, p, test->npages);
	}
	print_cost(test->name, test->npages, cost + WARM_UP, ROUNDS);
	printf("# count %s migrated %lu\n", test->name, migrated);
	printf("# count %s looked-up %lu\n", test->name, calls);
	printf("# count %s walks %u\n", test->name, cmd.walks);
	release(p, test->npages);
	return true;
}

static void held(struct hmm_bench_cmd *cmd, enum hmm_bench_what what)
{
	*cmd = (struct hmm_bench_cmd) { .what = what };
	if (ioctl(bench, HMM_BENCH_MEASURE, cmd))
		err(1, "HMM_BENCH_MEASURE");
}

/* The importers map the memory one after the other and keep their mappings. @cost is the sum. */
static bool hold(const struct test *test, char *p, uint64_t *cost)
{
	struct hmm_bench_cmd cmd;

	*cost = 0;
	for (unsigned int i = 0; i < test->importers; i++) {
		int ret = measure_by(test, i, p, &cmd);

		if (ret) {
			ksft_print_msg("importer %u: %s\n", i, strerror(-ret));
			return false;
		}
		if (!found(test, &cmd))
			return false;
		*cost += cmd.cost;
	}
	return true;
}

/* B4: the pages migrate for the first importer. The later ones find them in RAM. */
static bool run_importers(const struct test *test)
{
	int mirror = test->memory == OTHER_PTE || test->memory == OTHER_PMD;
	struct test first = *test, later = *test;
	uint64_t cost[WARM_UP + ROUNDS], more, migrated[2] = {}, before;
	char *p = prepare(test->memory, test->npages);
	struct hmm_bench_cmd cmd;

	first.importers = 1;
	for (int i = 0; i < WARM_UP + ROUNDS; i++) {
		before = stats(mirror).migrated;
		if (!hold(&first, p, cost + i))
			return false;
		migrated[0] += stats(mirror).migrated - before;
		before = stats(mirror).migrated;
		for (later.importers = 1; later.importers < test->importers; later.importers++) {
			int ret = measure_by(test, later.importers, p, &cmd);

			if (ret) {
				ksft_print_msg("importer %u: %s\n", later.importers,
					       strerror(-ret));
				return false;
			}
			if (!found(test, &cmd))
				return false;
			more = cmd.cost;
			cost[i] += more;
		}
		migrated[1] += stats(mirror).migrated - before;
		held(&cmd, HMM_BENCH_DROP);
		if (test->moves)
			move(test->memory, p, test->npages);
	}
	print_cost(test->name, test->npages, cost + WARM_UP, ROUNDS);
	printf("# count %s migrated-first %lu\n", test->name, migrated[0] / (WARM_UP + ROUNDS));
	printf("# count %s migrated-later %lu\n", test->name, migrated[1] / (WARM_UP + ROUNDS));
	release(p, test->npages);
	return true;
}

static void write_file(const char *path, const char *word)
{
	int fd = open(path, O_WRONLY);

	if (fd < 0 || write(fd, word, strlen(word)) < 0)
		err(1, "%s", path);
	close(fd);
}

/* The only exporter is mirror 0. */
static void rebind(bool bind)
{
	static char bdf[32];
	glob_t found;

	if (!bdf[0]) {
		if (glob("/sys/bus/pci/drivers/test_hmm/*/resource2", 0, NULL, &found) ||
		    found.gl_pathc != 1)
			errx(1, "there is not one exporter");
		sscanf(found.gl_pathv[0], "/sys/bus/pci/drivers/test_hmm/%31[^/]", bdf);
		globfree(&found);
	}
	write_file(bind ? "/sys/bus/pci/drivers/test_hmm/bind" :
			  "/sys/bus/pci/drivers/test_hmm/unbind",
		   bdf);
}

static void open_devices(void);

/* A child process has the memory and the mappings, and exits. */
static bool exit_child(const struct test *test, uint64_t *cost)
{
	uint64_t *shared =
		mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint64_t ignored;
	int status;
	pid_t pid;

	if (shared == MAP_FAILED)
		err(1, "mmap");
	fflush(stdout);
	pid = fork();
	if (pid < 0)
		err(1, "fork");
	if (!pid) {
		open_devices();
		if (!hold(test, prepare(test->memory, test->npages), &ignored)) {
			fflush(stdout);
			_exit(1);
		}
		/* Measure from here on. */
		ioctl(bench, HMM_BENCH_MEASURE, &(struct hmm_bench_cmd) { .what = HMM_BENCH_HELD });
		*shared = __builtin_ia32_rdtsc();
		_exit(0);
	}
	if (waitpid(pid, &status, 0) != pid)
		err(1, "waitpid");
	*cost = __builtin_ia32_rdtsc() - *shared;
	munmap(shared, PAGE);
	return status == 0;
}

/* B6: importers lose their mappings. */
static bool run_revoke(const struct test *test)
{
	unsigned long mapped = test->how == RELEASE ? 0 : test->importers * test->npages, calls = 0,
		      wrong = 0, migrated = 0;
	uint64_t cost[WARM_UP + ROUNDS], zap[WARM_UP + ROUNDS], ignored;
	bool keeps = test->how == MIGRATE || test->how == UNBIND;
	struct hmm_dmirror_p2p_stats before;
	struct hmm_bench_cmd cmd;
	char name[64];

	for (int i = 0; i < WARM_UP + ROUNDS; i++) {
		char *p = NULL;

		if (test->how != EXIT) {
			p = prepare(test->memory, test->npages);
			if (!hold(test, p, &ignored))
				return false;
		}
		held(&cmd, HMM_BENCH_HELD);
		before = stats(0);
		cost[i] = __builtin_ia32_rdtsc();
		switch (test->how) {
		case MIGRATE:
			migrate(0, HMM_DMIRROR_MIGRATE_TO_SYS, p, test->npages);
			break;
		case MUNMAP:
			release(p, test->npages);
			break;
		case UNBIND:
			rebind(false);
			break;
		case EXIT:
			if (!exit_child(test, cost + i))
				return false;
			break;
		case RELEASE:
			held(&cmd, HMM_BENCH_DROP);
			break;
		}
		if (test->how != EXIT)
			cost[i] = __builtin_ia32_rdtsc() - cost[i];
		held(&cmd, HMM_BENCH_HELD);
		zap[i] = cmd.unmap;
		calls = cmd.calls;
		if (cmd.zapped != mapped) {
			ksft_print_msg("%llu pages were unmapped, not %lu\n", cmd.zapped, mapped);
			return false;
		}
		migrated = stats(0).migrated - before.migrated;
		if (migrated != (keeps ? test->npages : 0)) {
			ksft_print_msg("%lu pages migrated\n", migrated);
			return false;
		}
		if (stats(0).bar_live !=
		    (test->how == RELEASE && before.bar_live ? test->npages : 0)) {
			ksft_print_msg("%llu pages of the BAR are in use\n", stats(0).bar_live);
			return false;
		}
		if (test->how == UNBIND)
			rebind(true);
		held(&cmd, HMM_BENCH_DROP);
		if (keeps)
			wrong += lost(p, test->npages);
		if (p && test->how != MUNMAP)
			release(p, test->npages);
	}
	print_cost(test->name, test->npages, cost + WARM_UP, ROUNDS);
	if (mapped) {
		snprintf(name, sizeof(name), "%s.zap", test->name);
		print_cost(name, test->npages, zap + WARM_UP, ROUNDS);
	}
	printf("# count %s calls %lu\n", test->name, calls);
	printf("# count %s zapped %lu\n", test->name, mapped);
	printf("# count %s migrated %lu\n", test->name, migrated);
	printf("# count %s lost %lu\n", test->name, wrong);
	return wrong == 0;
}

/*
 * B5: more memory than BAR. The first time pages without an alias migrate to RAM. After that
 * nothing migrates.
 */
static bool run_small(const struct test *test)
{
	unsigned long fits = stats(0).bar_pages / 2, wrong;
	struct test again = *test;
	struct hmm_bench_cmd cmd;
	uint64_t cost = 0;
	char *p;
	int ret;

	again.p2p = fits;
	p = prepare(test->memory, test->npages);
	for (int i = 0; i < 2; i++) {
		uint64_t before = stats(0).migrated, migrated;

		ret = measure(&again, p, &cmd);
		if (ret) {
			ksft_print_msg("%s\n", strerror(-ret));
			return false;
		}
		if (!found(&again, &cmd))
			return false;
		migrated = stats(0).migrated - before;
		if (migrated != (i ? 0 : test->npages - fits)) {
			ksft_print_msg("%lu pages migrated\n", migrated);
			return false;
		}
		if (!i) {
			printf("# count %s aliases %lu\n", test->name, fits);
			printf("# count %s migrated %lu\n", test->name, migrated);
			printf("# count %s walks %u\n", test->name, cmd.walks);
			cost = cmd.cost;
		}
	}
	wrong = lost(p, test->npages);
	print_cost(test->name, test->npages, &cost, 1);
	printf("# count %s errors %lu\n", test->name, wrong);
	release(p, test->npages);
	return wrong == 0;
}

/* B7: mapping a folio in one call */
static bool run_link(const struct test *test)
{
	uint64_t cost[WARM_UP + ROUNDS], unmap[WARM_UP + ROUNDS];
	struct hmm_bench_cmd cmd;
	char name[64];

	for (int i = 0; i < WARM_UP + ROUNDS; i++) {
		held(&cmd, test->what);
		cost[i] = cmd.cost;
		unmap[i] = cmd.unmap;
	}
	print_cost(test->name, PAGES, cost + WARM_UP, ROUNDS);
	snprintf(name, sizeof(name), "%s.unmap", test->name);
	print_cost(name, PAGES, unmap + WARM_UP, ROUNDS);
	if (test->what == HMM_BENCH_LINK_FOLIO)
		printf("# count %s lost-by-one %llu\n", test->name, cmd.zapped);
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

/* B0: the cost for callers that do not ask for aliases. */
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

/* B1: device memory, by alias and by migration. Mirror 0 has a BAR, mirror 1 has none. */
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

/* B8: pages that are present are found without faults. */
static const struct test prefetch[] = {
	CLOCK,
	{ "prefetch.alias.pte.512", DEV_PTE, 512, HMM_BENCH_WALK, P2P, .valid = 512, .p2p = 512 },
	{ "prefetch.alias.pmd.512", DEV_PMD, 512, HMM_BENCH_WALK, P2P, .valid = 512, .huge = 512,
	  .p2p = 512 },
	{ "odp.prefetch.alias.pte.512", DEV_PTE, 512, HMM_BENCH_ODP, P2P, .valid = 512,
	  .p2p = 512 },
	{ "odp.prefetch.alias.pmd.512", DEV_PMD, 512, HMM_BENCH_ODP, P2P, .valid = 512,
	  .huge = 512, .p2p = 512 },
};

#define PINGPONG(_name, _memory, _flags, _huge, _p2p)                                 \
	{                                                                             \
		"pingpong." _name, _memory, 512, HMM_BENCH_WALK, WRITE | _flags,      \
			.valid = 512, .huge = _huge, .p2p = _p2p, .run = run_pingpong \
	}

/* B2 */
static const struct test pingpong[] = {
	CLOCK,
	PINGPONG("alias.pte.512", DEV_PTE, P2P, 0, 512),
	PINGPONG("migrate.pte.512", DEV_PTE, 0, 0, 0),
	PINGPONG("alias.pmd.512", DEV_PMD, P2P, 512, 512),
	PINGPONG("migrate.pmd.512", DEV_PMD, 0, 512, 0),
};

#define PARTIAL(_name, _k)                                                         \
	{                                                                          \
		"partial.pte." _name, DEV_PTE, 512, HMM_BENCH_WALK, WRITE | P2P,   \
			.valid = 512, .p2p = 512 - _k, .run = run_partial, .k = _k \
	}

/* B3 */
static const struct test partial[] = {
	CLOCK,
	PARTIAL("0", 0),
	PARTIAL("1", 1),
	PARTIAL("51", 51),
	PARTIAL("256", 256),
	PARTIAL("512", 512),
	{ "partial.pmd.0", DEV_PMD, 512, HMM_BENCH_WALK, WRITE | P2P, .valid = 512, .huge = 512,
	  .p2p = 512, .run = run_partial },
	{ "partial.pmd.1", DEV_PMD, 512, HMM_BENCH_WALK, WRITE | P2P, .valid = 512, .huge = 512,
	  .run = run_partial, .k = 1 },
};

#define GROW(_n) \
	RAM("grow.pte." #_n, PTE, _n, WRITE, _n, 0), \
	{ "grow.odp.pte." #_n, PTE, _n, HMM_BENCH_ODP, WRITE, .valid = _n }
#define GROW_PMD(_n) \
	RAM("grow.pmd." #_n, PMD, _n, WRITE, _n, _n), \
	{ "grow.odp.pmd." #_n, PMD, _n, HMM_BENCH_ODP, WRITE, .valid = _n, .huge = _n }
#define GROW_ALIAS(_n)                                                                     \
	{                                                                                  \
		"grow.alias.pte." #_n, DEV_PTE,	    _n,	      HMM_BENCH_WALK,              \
		WRITE | P2P,	       .valid = _n, .p2p = _n                              \
	},                                                                                 \
	{                                                                                  \
		"grow.odp.alias.pte." #_n, DEV_PTE, _n, HMM_BENCH_ODP, WRITE | P2P,        \
			.valid = _n, .p2p = _n                                             \
	}
#define GROW_ALIAS_PMD(_n)                                                    \
	{ "grow.alias.pmd." #_n, DEV_PMD,     _n,	  HMM_BENCH_WALK,     \
	  WRITE | P2P,		 .valid = _n, .huge = _n, .p2p = _n },        \
	{                                                                     \
		"grow.odp.alias.pmd." #_n, DEV_PMD, _n, HMM_BENCH_ODP,        \
		WRITE | P2P, .valid = _n, .huge = _n, .p2p = _n               \
	}

/* From 4 KiB to 1 GiB */
static const struct test grow[] = {
	CLOCK,
	GROW(1), GROW(8), GROW(64), GROW(512), GROW(4096), GROW(32768), GROW(262144),
	GROW_PMD(512), GROW_PMD(4096), GROW_PMD(32768), GROW_PMD(262144),
};

/* As much as fits into a BAR of 2 GiB. */
static const struct test grow_alias[] = {
	CLOCK,
	GROW_ALIAS(1),
	GROW_ALIAS(8),
	GROW_ALIAS(64),
	GROW_ALIAS(512),
	GROW_ALIAS(4096),
	GROW_ALIAS(32768),
	GROW_ALIAS(262144),
	GROW_ALIAS_PMD(512),
	GROW_ALIAS_PMD(4096),
	GROW_ALIAS_PMD(32768),
	GROW_ALIAS_PMD(262144),
};

#define IMPORTERS(_kind, _dev, _other, _n, _huge)                                         \
	{ "importers.alias." _kind "." #_n,                                               \
	  _dev,                                                                           \
	  512,                                                                            \
	  HMM_BENCH_HOLD,                                                                 \
	  WRITE | P2P,                                                                    \
	  .valid = 512,                                                                   \
	  .huge = _huge,                                                                  \
	  .p2p = 512,                                                                     \
	  .run = run_importers,                                                           \
	  .importers = _n },                                                              \
	{                                                                                 \
		"importers.fallback." _kind "." #_n, _other, 512, HMM_BENCH_HOLD,         \
			WRITE | P2P, .valid = 512, .huge = _huge, .moves = true,          \
			.run = run_importers, .importers = _n                             \
	}
#define IMPORTERS_BOTH(_n) \
	IMPORTERS("pte", DEV_PTE, OTHER_PTE, _n, 0), IMPORTERS("pmd", DEV_PMD, OTHER_PMD, _n, 512)

/* B4: importers one after the other, with and without aliases. */
static const struct test importers[] = {
	CLOCK,
	IMPORTERS_BOTH(1), IMPORTERS_BOTH(2), IMPORTERS_BOTH(3), IMPORTERS_BOTH(4),
};

#define REVOKE(_name, _memory, _how, _n, _huge, _p2p)                                \
	{                                                                            \
		"revoke." _name "." #_n, _memory, 512, HMM_BENCH_HOLD,               \
			WRITE | ((_p2p) ? P2P : 0), .valid = 512, .huge = _huge,     \
			.p2p = _p2p, .run = run_revoke, .importers = _n, .how = _how \
	}
#define REVOKE_ALL(_name, _memory, _how, _huge, _p2p)         \
	REVOKE(_name, _memory, _how, 0, _huge, _p2p),         \
		REVOKE(_name, _memory, _how, 1, _huge, _p2p), \
		REVOKE(_name, _memory, _how, 2, _huge, _p2p), \
		REVOKE(_name, _memory, _how, 3, _huge, _p2p), \
		REVOKE(_name, _memory, _how, 4, _huge, _p2p)

/* B6 */
static const struct test revocation[] = {
	CLOCK,
	REVOKE_ALL("migrate.alias.pte", DEV_PTE, MIGRATE, 0, 512),
	REVOKE_ALL("migrate.alias.pmd", DEV_PMD, MIGRATE, 512, 512),
	REVOKE_ALL("munmap.ram.pte", PTE, MUNMAP, 0, 0),
	REVOKE_ALL("munmap.alias.pte", DEV_PTE, MUNMAP, 0, 512),
	REVOKE_ALL("munmap.ram.pmd", PMD, MUNMAP, 512, 0),
	REVOKE_ALL("munmap.alias.pmd", DEV_PMD, MUNMAP, 512, 512),
	REVOKE("release.ram.pte", PTE, RELEASE, 4, 0, 0),
	REVOKE("release.alias.pte", DEV_PTE, RELEASE, 4, 0, 512),
	REVOKE("exit.ram.pte", PTE, EXIT, 4, 0, 0),
	REVOKE("exit.alias.pte", DEV_PTE, EXIT, 4, 0, 512),
	REVOKE("unbind.alias.pte", DEV_PTE, UNBIND, 4, 0, 512),
	REVOKE("unbind.alias.pmd", DEV_PMD, UNBIND, 4, 512, 512),
};

/* B5: more memory than BAR */
static const struct test small[] = {
	CLOCK,
	{ "small.pte.4096", DEV_PTE, 4096, HMM_BENCH_WALK, WRITE | P2P, .valid = 4096,
	  .run = run_small },
};

/* B7: behind an IOMMU that translates */
static const struct test maps[] = {
	CLOCK,
	ODP_P2P("pte.512", DEV_PTE, 512, 0),
	ODP_P2P("pmd.512", DEV_PMD, 512, 512),
	{ "odp.hugetlb.512", HUGETLB, 512, HMM_BENCH_ODP, WRITE | HMM_BENCH_HUGETLB, .valid = 1,
	  .huge = 1 },
	{ "link.page", .what = HMM_BENCH_LINK, .run = run_link },
	{ "link.range", .what = HMM_BENCH_LINK_RANGE, .run = run_link },
	{ "link.folio", .what = HMM_BENCH_LINK_FOLIO, .run = run_link },
};

static const struct {
	const char *name;
	const struct test *tests;
	unsigned int n;
} groups[] = {
	{ "others", others, ARRAY_SIZE(others) },
	{ "odp", odp, ARRAY_SIZE(odp) },
	{ "alias", alias, ARRAY_SIZE(alias) },
	{ "prefetch", prefetch, ARRAY_SIZE(prefetch) },
	{ "pingpong", pingpong, ARRAY_SIZE(pingpong) },
	{ "partial", partial, ARRAY_SIZE(partial) },
	{ "grow", grow, ARRAY_SIZE(grow) },
	{ "grow-alias", grow_alias, ARRAY_SIZE(grow_alias) },
	{ "importers", importers, ARRAY_SIZE(importers) },
	{ "small", small, ARRAY_SIZE(small) },
	{ "revoke", revocation, ARRAY_SIZE(revocation) },
	{ "maps", maps, ARRAY_SIZE(maps) },
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
		errx(2, "usage: hmm-bench others|odp|alias|prefetch|pingpong|partial|grow|"
			"grow-alias|importers|small|revoke|maps [NAME]");

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
