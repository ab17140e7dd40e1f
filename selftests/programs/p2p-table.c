// SPDX-License-Identifier: GPL-2.0-only
/*
 * How a PCI device reaches the device private memory of others. Migrates pages to
 * the memory of each exporter of test_hmm, lets the first importer read and write
 * them, and prints for each exporter
 *
 *   p2p-table exporter=N verdict=bus|bridge|none pages=N p2p=N migrated=N verified=yes|no
 *
 * or "no devices". With the argument "verdicts" it prints only, for each exporter and
 * each importer, their numbers and the verdict. Exit status 1, with a reason, if there
 * was an error.
 */
#include <err.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "test_hmm_uapi.h"

#define NPAGES		256
#define IMPORTER	4	/* minor of the first importer */
#define IMPORTERS	4
#define EXPORTERS	2

static int open_minor(int minor)
{
	char path[32];

	snprintf(path, sizeof(path), "/dev/hmm_dmirror%d", minor);
	return open(path, O_RDWR);
}

static struct hmm_dmirror_p2p_stats stats(int fd)
{
	struct hmm_dmirror_p2p_stats s;

	if (ioctl(fd, HMM_DMIRROR_P2P_STATS, &s))
		err(1, "HMM_DMIRROR_P2P_STATS");
	return s;
}

static void command(int fd, unsigned long request, const char *name, void *addr,
		    void *data)
{
	struct hmm_dmirror_cmd cmd = {
		.addr = (uintptr_t)addr,
		.ptr = (uintptr_t)data,
		.npages = NPAGES,
	};

	if (ioctl(fd, request, &cmd))
		err(1, "%s", name);
	if (cmd.cpages != NPAGES)
		errx(1, "%s: %llu of %d pages", name, cmd.cpages, NPAGES);
}

static void fill(unsigned int *p, size_t size, unsigned int seed)
{
	for (size_t i = 0; i < size / sizeof(*p); i++)
		p[i] = (unsigned int)i * 2654435761U + seed;
}

/* The verdict is the way in which the kernel reached the pages, the same for all of them. */
static const char *verdict(int importer, void *addr, uint64_t *n_p2p)
{
	struct hmm_dmirror_p2p_page pages[NPAGES];
	struct hmm_dmirror_p2p_map map = {
		.addr = (uintptr_t)addr,
		.ptr = (uintptr_t)pages,
		.npages = NPAGES,
		.flags = HMM_DMIRROR_P2P_FLAG_WRITE,
	};

	if (ioctl(importer, HMM_DMIRROR_P2P_MAP, &map))
		err(1, "HMM_DMIRROR_P2P_MAP");
	*n_p2p = map.n_p2p;
	for (int i = 1; i < NPAGES; i++)
		if (pages[i].how != pages[0].how)
			return "mixed";
	switch (pages[0].how) {
	case HMM_DMIRROR_P2P_BUS:
		return "bus";
	case HMM_DMIRROR_P2P_BRIDGE:
		return "bridge";
	case HMM_DMIRROR_P2P_RAM:
		return "none";
	default:
		return "error";
	}
}

/* Memory that was filled and migrated to the exporter. */
static void *export(int exporter, size_t size, void *got, void *want)
{
	void *addr;

	addr = mmap(NULL, size, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (addr == MAP_FAILED || !got || !want)
		err(1, "memory");
	/* A page that khugepaged holds does not migrate. */
	if (madvise(addr, size, MADV_NOHUGEPAGE))
		err(1, "MADV_NOHUGEPAGE");

	fill(want, size, 1);
	memcpy(addr, want, size);
	command(exporter, HMM_DMIRROR_MIGRATE_TO_DEV, "HMM_DMIRROR_MIGRATE_TO_DEV",
		addr, got);
	return addr;
}

static void print_verdicts(int nr, int exporter)
{
	size_t size = (size_t)NPAGES * sysconf(_SC_PAGESIZE);
	void *got = malloc(size), *want = malloc(size), *addr;
	uint64_t n_p2p;

	for (int i = 0; i < IMPORTERS; i++) {
		int importer = open_minor(IMPORTER + i);

		if (importer < 0 || !stats(importer).bound)
			break;
		addr = export(exporter, size, got, want);
		printf("%d %d %s\n", nr, i, verdict(importer, addr, &n_p2p));
		munmap(addr, size);
		close(importer);
	}
	free(got);
	free(want);
}

static void report(int nr, int exporter, int importer)
{
	size_t size = (size_t)NPAGES * sysconf(_SC_PAGESIZE);
	struct hmm_dmirror_p2p_stats before, after;
	void *got = malloc(size), *want = malloc(size), *addr;
	const char *how;
	uint64_t n_p2p;
	bool good;

	addr = export(exporter, size, got, want);
	before = stats(exporter);

	how = verdict(importer, addr, &n_p2p);
	memset(got, 0, size);
	command(importer, HMM_DMIRROR_READ, "HMM_DMIRROR_READ", addr, got);
	good = !memcmp(got, want, size);

	fill(want, size, 2);
	command(importer, HMM_DMIRROR_WRITE, "HMM_DMIRROR_WRITE", addr, want);
	after = stats(exporter);

	/* The exporter reads the data that the importer wrote, and then the CPU does. */
	memset(got, 0, size);
	command(exporter, HMM_DMIRROR_READ, "HMM_DMIRROR_READ", addr, got);
	good &= !memcmp(got, want, size);
	good &= !memcmp(addr, want, size);

	printf("p2p-table exporter=%d verdict=%s pages=%d p2p=%llu migrated=%llu verified=%s\n",
	       nr, how, NPAGES, (unsigned long long)n_p2p,
	       (unsigned long long)(after.migrated - before.migrated),
	       good ? "yes" : "no");
	munmap(addr, size);
	free(got);
	free(want);
}

int main(int argc, char **argv)
{
	bool only_verdicts = argc == 2 && !strcmp(argv[1], "verdicts");
	int importer = open_minor(IMPORTER);
	int found = 0;

	for (int i = 0; importer >= 0 && i < EXPORTERS; i++) {
		int exporter = open_minor(i);

		if (exporter < 0)
			break;
		if (stats(exporter).bar_pages) {
			if (only_verdicts)
				print_verdicts(i, exporter);
			else
				report(i, exporter, importer);
			found++;
		}
		close(exporter);
	}
	if (!found)
		puts("no devices");
	return 0;
}
