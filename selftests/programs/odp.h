/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the tests of on-demand paging (/dev/edu_odpN of selftests/modules/edu_hmm) have in common.
 */
#ifndef ODP_H
#define ODP_H

#define BENCH		odp
#define BENCH_DEVICE	"edu_odp"
#include "edu-bench.h"

/* The counters of the umem behind @_fd. */
#define EXPECT_COUNTS(_fd, _npages, _p2p_pages, _p2p_fallbacks)			\
	do {									\
		struct edu_hmm_stats _s = edu_stats(_fd);			\
										\
		EXPECT_EQ(_s.npages, _npages);					\
		EXPECT_EQ(_s.p2p_pages, _p2p_pages);				\
		EXPECT_EQ(_s.p2p_fallbacks, _p2p_fallbacks);			\
	} while (0)

static inline int reg_flags(int fd, void *addr, uint64_t npages, unsigned int flags)
{
	struct edu_hmm_register cmd = { .addr = (uintptr_t)addr, .npages = npages, .flags = flags };
	int ret = call(fd, EDU_HMM_REGISTER, &cmd);

	return ret ? ret : (int)cmd.shape;
}

/* Return: how many pages are in the device page table, or an errno. */
static inline long present(FIXTURE_DATA(odp) *self, int fd, void *addr, uint64_t npages)
{
	long n = state(self, fd, addr, npages);

	for (uint64_t i = 0; n >= 0 && i < npages; i++)
		n += self->pages[i].how != EDU_HMM_NONE;
	return n;
}

/* Return: the physical address of a page in the CPU page table, 0 if there is none. */
static inline uint64_t cpu_phys(const void *addr)
{
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	uint64_t entry = 0;

	if (fd < 0 || pread(fd, &entry, 8, (uintptr_t)addr / PAGE * 8) != 8 || !(entry >> 63))
		entry = 0;
	close(fd);
	return (entry & ((1ULL << 55) - 1)) * PAGE;
}

/* Does the device have the page of RAM that the CPU has? */
static inline bool is_ram(const struct edu_hmm_page *p, const void *addr)
{
	return p->how == EDU_HMM_RAM && p->phys == cpu_phys(addr);
}

#endif /* ODP_H */
