/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the tests of edu devices (selftests/modules/edu_hmm) have in common: a fixture with all
 * importers and exporters open, named as BENCH says, and a function for each call. Exporters are
 * the mirrors of test_hmm that have a PCI BAR; or, with BENCH_EXPORTER=pagemap_test, the render
 * nodes of this driver (selftests/modules/pagemap_test), which have the same calls; or, with
 * BENCH_EXPORTER=nouveau, the model of a GP100 (selftests/models/pascal) is the only one.
 *
 * The environment:
 *   EDU_DEVICE       edu_hmm or edu_odp: the device nodes of the importers (default: BENCH_DEVICE)
 *   HMM_P2P_VERDICT  the expected verdict for each exporter in this topology: bus, bridge or none
 *   HMM_P2P_MASKED   1: the DMA mask of the importers does not cover the BAR
 *   HMM_P2P_DATA     yes, or no: QEMU does not route these DMA addresses, so no data arrive
 *   HMM_P2P_SHAPE    direct or iova: the kind of DMA addresses
 */
#ifndef EDU_BENCH_H
#define EDU_BENCH_H

#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>

/* It has a fill() of its own. */
#define fill nouveau_fill
#include "nouveau.h"
#undef fill

#include "edu_hmm_uapi.h"
#include "test_hmm_uapi.h"

#include "kselftest_harness.h"

#define BENCH_APPLY(_macro, _name)	_macro(_name)
#define BENCH_FIXTURE(_macro)		BENCH_APPLY(_macro, BENCH)

#define PAGE		4096UL
#define HUGE		(2UL << 20)
#define NPAGES		32
#define EXPORTERS	2
#define IMPORTERS	4

BENCH_FIXTURE(FIXTURE)
{
	int imp[IMPORTERS];
	int nimp;
	int exp[EXPORTERS];
	char bdf[EXPORTERS][BDF_SIZE];
	char *bar[EXPORTERS];
	size_t bar_size[EXPORTERS];
	int how[EXPORTERS];		/* the enum edu_hmm_how that the topology demands */
	int nexp;
	bool data;			/* data arrive */
	unsigned int shape;
	char *mem;			/* NPAGES small pages */
	char *observer;			/* a second mapping of this memory, in some tests */
	char *buf;			/* NPAGES pages: data to and from the device */
	struct edu_hmm_page *pages;	/* result of state() */
	uint64_t refused;		/* result of fault() */
};

static inline void fill(void *to, size_t size, unsigned int seed)
{
	unsigned char *p = to;

	for (size_t i = 0; i < size; i++)
		p[i] = (i * 2654435761U >> 11) + seed * 37;
}

/* Are these the bytes that fill() with @seed writes at @offset? */
static inline bool filled(const void *from, size_t offset, size_t size, unsigned int seed)
{
	const unsigned char *p = from;

	for (size_t i = 0; i < size; i++)
		if (p[i] != (unsigned char)(((i + offset) * 2654435761U >> 11) + seed * 37))
			return false;
	return true;
}

static inline bool all(const void *from, size_t size, unsigned char byte)
{
	const volatile unsigned char *p = from;

	for (size_t i = 0; i < size; i++)
		if (p[i] != byte)
			return false;
	return true;
}

static inline char *anon(size_t size)
{
	char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	madvise(p, size, MADV_NOHUGEPAGE);
	return p;
}

static inline int call(int fd, unsigned long request, void *arg)
{
	return ioctl(fd, request, arg) ? -errno : 0;
}

static inline const char *bench_device(void)
{
	const char *device = getenv("EDU_DEVICE");

	return device ? device : BENCH_DEVICE;
}

/* These devices have no device private memory of their own. */
static inline bool bench_odp(void)
{
	return !strcmp(bench_device(), "edu_odp");
}

static inline int open_importer(int n)
{
	char path[64];

	snprintf(path, sizeof(path), "/dev/%.32s%d", bench_device(), n);
	return open(path, O_RDWR | O_CLOEXEC);
}

/* The GPU, if that is the exporter. */
static struct gpu bench_gpu;

static inline bool bench_exporter(const char *name)
{
	const char *exporter = getenv("BENCH_EXPORTER");

	return !strcmp(exporter ? exporter : "test_hmm", name);
}

static inline bool bench_nouveau(void)
{
	return bench_exporter("nouveau");
}

/* A device that was unbound has another number. */
static inline bool render_node(int n, char *name, size_t size)
{
	glob_t found;
	bool good;

	if (glob("/dev/dri/renderD*", 0, NULL, &found))
		return false;
	good = n < (int)found.gl_pathc;
	if (good)
		snprintf(name, size, "%s", strrchr(found.gl_pathv[n], '/') + 1);
	globfree(&found);
	return good;
}

static inline int open_exporter(int n)
{
	char path[64], node[32];

	if (bench_nouveau()) {
		/* A child has the hole of its parent, but the GPU mirrors one process. */
		munmap(HOLE, HOLE_SIZE);
		if (!n && !open_gpu(&bench_gpu))
			return -1;
		return n ? open("/dev/null", O_RDWR | O_CLOEXEC) : bench_gpu.drm;
	}
	if (bench_exporter("pagemap_test")) {
		if (!render_node(n, node, sizeof(node)))
			return open("/dev/null", O_RDWR | O_CLOEXEC);
		snprintf(path, sizeof(path), "/dev/dri/%s", node);
	} else {
		snprintf(path, sizeof(path), "/dev/hmm_dmirror%d", n);
	}
	return open(path, O_RDWR | O_CLOEXEC);
}

static inline int reg(int fd, void *addr, uint64_t npages)
{
	struct edu_hmm_register cmd = { .addr = (uintptr_t)addr,
					.npages = npages,
					.flags = bench_odp() ? EDU_HMM_P2P : 0 };
	int ret = call(fd, EDU_HMM_REGISTER, &cmd);

	return ret ? ret : (int)cmd.shape;
}

static inline int fault(BENCH_FIXTURE(FIXTURE_DATA) * self, int fd, void *addr, uint64_t npages,
			unsigned int flags)
{
	struct edu_hmm_fault cmd = { .addr = (uintptr_t)addr, .npages = npages, .flags = flags };
	int ret = call(fd, EDU_HMM_FAULT, &cmd);

	self->refused = cmd.refused;
	return ret;
}

static inline int state(BENCH_FIXTURE(FIXTURE_DATA) *self, int fd, void *addr, uint64_t npages)
{
	struct edu_hmm_state cmd = { .addr = (uintptr_t)addr,
				     .npages = npages,
				     .pages = (uintptr_t)self->pages };

	memset(self->pages, 0xff, npages * sizeof(*self->pages));
	return call(fd, EDU_HMM_STATE, &cmd);
}

/* Return: the enum edu_hmm_how of a page in the device page table, or an errno. */
static inline int how(BENCH_FIXTURE(FIXTURE_DATA) *self, int fd, void *addr)
{
	int ret = state(self, fd, addr, 1);

	return ret ? ret : (int)self->pages[0].how;
}

static inline int dma(int fd, void *addr, void *buf, size_t len, unsigned int flags)
{
	struct edu_hmm_dma cmd = {
		.addr = (uintptr_t)addr, .ptr = (uintptr_t)buf, .len = len, .flags = flags
	};

	return call(fd, EDU_HMM_DMA, &cmd);
}

static inline struct edu_hmm_stats edu_stats(int fd)
{
	struct edu_hmm_stats s = {};

	call(fd, EDU_HMM_STATS, &s);
	return s;
}

/* BAR 1 that nouveau has reserved for peers; memory of this process in VRAM; what has left it. */
static inline struct hmm_dmirror_p2p_stats nouveau_stats(void)
{
	struct hmm_dmirror_p2p_stats s = {
		.bar_pages = p2pmem("size") / PAGE,
		.migrated = stats(bench_gpu.door).moved_out / PAGE,
		.bound = true,
	};
	FILE *f = fopen("/proc/self/maps", "r");
	unsigned long from, to;
	char line[256];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%lx-%lx rw", &from, &to) == 2 && from < 1UL << 47)
			s.bar_live += pages_in_vram((void *)from, (to - from) / PAGE);
	if (f)
		fclose(f);
	return s;
}

static inline struct hmm_dmirror_p2p_stats exp_stats(int fd)
{
	struct hmm_dmirror_p2p_stats s = {};

	if (bench_nouveau())
		return fd == bench_gpu.drm ? nouveau_stats() : s;
	call(fd, HMM_DMIRROR_P2P_STATS, &s);
	return s;
}

/* The same by nouveau. A shader reads and writes words. */
static inline long nouveau_mirror(unsigned long request, char *addr, char *buf, uint64_t npages)
{
	uint32_t *words = (uint32_t *)buf;

	if (request == HMM_DMIRROR_MIGRATE_TO_DEV) {
		if (nouveau_to_vram(bench_gpu.drm, addr, npages * PAGE))
			return -errno;
		if (npages == 1)
			nouveau_mirror(HMM_DMIRROR_READ, addr, buf, 1);
		return pages_in_vram(addr, npages);
	}
	for (uint64_t p = 0; p < npages; p++, addr += PAGE, words += PAGE / 4) {
		bool store = request == HMM_DMIRROR_WRITE;

		for (size_t k = 0; store && k < PAGE / 4; k++)
			put(bench_gpu.door, DOOR_DATA + 4 * k, words[k]);
		if (gpu(&bench_gpu, store ? DOOR_STORE : DOOR_LOAD, addr, PAGE) != DOOR_DONE)
			return -EFAULT;
		for (size_t k = 0; !store && k < PAGE / 4; k++)
			words[k] = door_word(&bench_gpu, k);
	}
	return npages;
}

/* A command of test_hmm. Return: the number of pages that it processed, or an errno. */
static inline long mirror(int fd, unsigned long request, void *addr, void *buf, uint64_t npages)
{
	if (bench_nouveau())
		return nouveau_mirror(request, addr, buf, npages);

	struct hmm_dmirror_cmd cmd = { .addr = (uintptr_t)addr,
				       .ptr = (uintptr_t)buf,
				       .npages = npages };
	int ret;

	do
		ret = call(fd, request, &cmd);
	while (ret == -EINTR);
	return ret ? ret : (long)cmd.cpages;
}

/* Fill pages and migrate them to the memory of an exporter. */
static inline bool export_pages(int fd, void *addr, size_t npages, unsigned int seed)
{
	char *copy = malloc(npages * PAGE);
	long ret;

	fill(addr, npages * PAGE, seed);
	ret = mirror(fd, HMM_DMIRROR_MIGRATE_TO_DEV, addr, copy, npages);
	free(copy);
	return ret == (long)npages;
}

/* Return: the verdict of the topology for exporter @n, as an enum edu_hmm_how, or -1. */
static inline int verdict(int n)
{
	const char *words = getenv("HMM_P2P_VERDICT"), *masked = getenv("HMM_P2P_MASKED");
	char word[EXPORTERS][16];

	if (!words || sscanf(words, "%15s %15s", word[0], word[1]) <= n)
		return -1;
	if (masked && !strcmp(masked, "1"))
		return EDU_HMM_RAM;
	if (!strcmp(word[n], "bus"))
		return EDU_HMM_BUS;
	if (!strcmp(word[n], "bridge"))
		return EDU_HMM_BRIDGE;
	return strcmp(word[n], "none") ? -1 : EDU_HMM_RAM;
}

static inline bool reachable(int how)
{
	return how == EDU_HMM_BUS || how == EDU_HMM_BRIDGE;
}

static inline bool map_bar(BENCH_FIXTURE(FIXTURE_DATA) *self, int n)
{
	char path[128];
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/resource%d", self->bdf[n],
		 bench_nouveau() ? 1 : 2);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st))
		return false;
	self->bar_size[n] = st.st_size;
	self->bar[n] = mmap(NULL, st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return self->bar[n] != MAP_FAILED;
}

/* Find the bus address of exporter @n, and map its BAR without its driver. */
static inline bool find_bar(BENCH_FIXTURE(FIXTURE_DATA) *self, int n)
{
	char names[128] = "", node[32], path[64];
	char *name = names;
	ssize_t len;
	FILE *f;

	if (bench_nouveau())
		return gpu_bdf(self->bdf[n]) && map_bar(self, n);
	if (bench_exporter("pagemap_test")) {
		if (!render_node(n, node, sizeof(node)))
			return false;
		snprintf(path, sizeof(path), "/sys/class/drm/%s/device", node);
		len = readlink(path, names, sizeof(names) - 1);
		name = len < 0 ? NULL : strrchr(names, '/');
		if (!name)
			return false;
		snprintf(self->bdf[n], BDF_SIZE, "%.*s", BDF_SIZE - 1, name + 1);
		return map_bar(self, n);
	}
	f = fopen("/sys/module/test_hmm/parameters/p2p_exporter", "r");
	if (!f || !fgets(names, sizeof(names), f))
		return false;
	fclose(f);
	for (int i = 0; i < n && name; i++)
		name = strchr(name, ',') ? strchr(name, ',') + 1 : NULL;
	if (!name || sscanf(name, "%31[^/]", self->bdf[n]) != 1)
		return false;
	return map_bar(self, n);
}

/* Return: the place in the mapped BAR that an alias stands for. */
static inline char *bar_page(BENCH_FIXTURE(FIXTURE_DATA) *self, int n, uint64_t phys)
{
	char path[128];
	unsigned long long start = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/resource", self->bdf[n]);
	f = fopen(path, "r");
	if (f && !bench_nouveau())
		fscanf(f, "%*x %*x %*x");
	if (!f || fscanf(f, "%*x %*x %*x %llx", &start) != 1)
		return NULL;
	fclose(f);
	if (phys < start || phys - start >= self->bar_size[n])
		return NULL;
	return self->bar[n] + (phys - start);
}

static inline pid_t spawn(void)
{
	pid_t pid = fork();

	if (!pid)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pid;
}

/* Did the child exit with status 0? */
static inline bool well(pid_t pid)
{
	int status;

	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status);
}

/* The BDF of importer 0. */
static inline bool importer_bdf(char *bdf, size_t size)
{
	char link[64], path[PATH_MAX], *p;
	ssize_t n;

	snprintf(link, sizeof(link), "/sys/class/misc/%.32s0", bench_device());
	n = readlink(link, path, sizeof(path) - 1);
	if (n < 0)
		return false;
	path[n] = 0;
	p = strstr(path, "/misc/edu_");
	if (!p)
		return false;
	*p = 0;
	snprintf(bdf, size, "%s", strrchr(path, '/') + 1);
	return true;
}

/* Unbind a device, or unplug it. */
static inline bool take_away(const char *bdf, const char *id, bool unplug)
{
	char path[128], line[64];

	if (!unplug) {
		snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/driver/unbind", bdf);
		return write_file(path, bdf);
	}
	/* scripts/guest/vm.sh reads this on the console and passes it to the monitor of QEMU. */
	snprintf(line, sizeof(line), "monitor: device_del %s\n", id);
	if (!write_file("/dev/kmsg", line))
		return false;
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s", bdf);
	for (int i = 0; i < 600 && !access(path, F_OK); i++)
		usleep(100000);
	return access(path, F_OK);
}

BENCH_FIXTURE(FIXTURE_SETUP)
{
	const char *shape = getenv("HMM_P2P_SHAPE"), *data = getenv("HMM_P2P_DATA");

	/* A child that outlives its test would keep pages of the BAR. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (self->nimp = 0; self->nimp < IMPORTERS; self->nimp++) {
		self->imp[self->nimp] = open_importer(self->nimp);
		if (self->imp[self->nimp] < 0)
			break;
	}
	for (self->nexp = 0; self->nexp < EXPORTERS; self->nexp++) {
		self->exp[self->nexp] = open_exporter(self->nexp);
		ASSERT_GE(self->exp[self->nexp], 0);
		if (!exp_stats(self->exp[self->nexp]).bar_pages) {
			close(self->exp[self->nexp]);
			break;
		}
		self->how[self->nexp] = verdict(self->nexp);
		ASSERT_NE(self->how[self->nexp], -1)
		TH_LOG("HMM_P2P_VERDICT=%s", getenv("HMM_P2P_VERDICT"));
		ASSERT_TRUE(find_bar(self, self->nexp));
		ASSERT_EQ(exp_stats(self->exp[self->nexp]).bar_live, 0);
	}
	ASSERT_GT(self->nimp, 0);
	ASSERT_GT(self->nexp, 0);

	ASSERT_NE(data, NULL);
	self->data = !strcmp(data, "yes");
	ASSERT_NE(shape, NULL);
	/* With DMA_API_DEBUG each mapping has to be unmapped. */
	self->shape = !strcmp(shape, "iova") ? EDU_HMM_IOVA :
		access("/sys/kernel/debug/dma-api", F_OK) ? EDU_HMM_DIRECT : EDU_HMM_LIST;

	self->pages = calloc(EDU_HMM_MAX_PAGES, sizeof(*self->pages));
	self->mem = anon(NPAGES * PAGE);
	self->buf = anon(NPAGES * PAGE);
	ASSERT_TRUE(self->pages && self->mem && self->buf);
}

BENCH_FIXTURE(FIXTURE_TEARDOWN)
{
	munmap(self->mem, NPAGES * PAGE);
	for (int i = 0; i < self->nexp; i++)
		EXPECT_EQ(exp_stats(self->exp[i]).bar_live, 0);
}

/* Skip a test of data on topologies where QEMU does not route them. */
#define needs_data(_how)								\
	do {										\
		if (reachable(_how) && !self->data)					\
			SKIP(return, "QEMU does not route these, see the topology");	\
	} while (0)

#endif /* EDU_BENCH_H */
