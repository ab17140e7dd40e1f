/* SPDX-License-Identifier: GPL-2.0-only */
/* The peer of a GPU: QEMU's edu device, which reads and writes memory of this process by DMA. */
#ifndef PEER_H
#define PEER_H

#include "svm.h"

#include "edu_hmm_uapi.h"

struct peer {
	int edu, reached;		/* enum edu_hmm_how that the topology demands */
	struct edu_hmm_page *pages;
};

/* npages: as many can be looked at */
static inline bool open_peer(struct peer *self, size_t npages)
{
	const char *verdict = getenv("HMM_P2P_VERDICT");

	self->edu = open("/dev/edu_hmm0", O_RDWR);
	self->pages = calloc(npages, sizeof(*self->pages));
	if (self->edu < 0 || !self->pages || !verdict)
		return false;
	self->reached = !strcmp(verdict, "bus")	   ? EDU_HMM_BUS :
			!strcmp(verdict, "bridge") ? EDU_HMM_BRIDGE :
						     EDU_HMM_RAM;
	return true;
}

static inline int edu_register(struct peer *self, void *mem, size_t size)
{
	struct edu_hmm_register r = { .addr = (uintptr_t)mem, .npages = size / PAGE };

	return ioctl(self->edu, EDU_HMM_REGISTER, &r);
}

/* refused: may be NULL */
static inline int edu_fault(struct peer *self, void *mem, size_t size, uint64_t *refused)
{
	struct edu_hmm_fault f = { .addr = (uintptr_t)mem,
				   .npages = size / PAGE,
				   .flags = EDU_HMM_WRITE };
	int rc = ioctl(self->edu, EDU_HMM_FAULT, &f);

	if (refused)
		*refused = f.refused;
	return rc;
}

/* The other end of the copy is @buf; flags: 0 reads memory, EDU_HMM_WRITE writes it. */
static inline int edu_dma(struct peer *self, void *mem, void *buf, size_t len,
			  unsigned int flags)
{
	struct edu_hmm_dma d = {
		.addr = (uintptr_t)mem, .ptr = (uintptr_t)buf, .len = len, .flags = flags
	};

	return ioctl(self->edu, EDU_HMM_DMA, &d);
}

/* Return: how many of these pages the peer has mapped as @how. */
static inline size_t pages_as(struct peer *self, void *mem, size_t n, int how)
{
	struct edu_hmm_state s = { .addr = (uintptr_t)mem,
				   .npages = n,
				   .pages = (uintptr_t)self->pages };
	size_t found = 0;

	if (ioctl(self->edu, EDU_HMM_STATE, &s))
		return ~0UL;
	for (size_t i = 0; i < n; i++)
		found += self->pages[i].how == how;
	return found;
}

/*
 * The peer has mapped this memory, which was filled with seed 5 and moved to VRAM. If the topology
 * allows it, the memory has stayed there, else it is in RAM. The peer reads the data of the process
 * and writes its own. Nothing migrates meanwhile. Then the CPU takes the memory back.
 */
static inline void exchange(struct __test_metadata *_metadata, struct peer *self, char *mem,
			    size_t size)
{
	bool in_place = self->reached != EDU_HMM_RAM;
	size_t n = size / PAGE;
	uint32_t buf[128];

	EXPECT_EQ(pages_as(self, mem, n, self->reached), n);
	EXPECT_EQ(pages_in_vram(mem, n), in_place ? n : 0);
	ASSERT_EQ(edu_dma(self, mem + size - PAGE, buf, sizeof(buf), 0), 0);
	for (size_t i = 0; i < ARRAY_SIZE(buf); i++)
		ASSERT_EQ(buf[i], pattern((size - PAGE) / 4 + i, 5));
	fill(buf, sizeof(buf), 6);
	ASSERT_EQ(edu_dma(self, mem + PAGE, buf, sizeof(buf), EDU_HMM_WRITE), 0);
	EXPECT_EQ(pages_in_vram(mem, n), in_place ? n : 0);
	EXPECT_EQ(wrong(mem + PAGE, sizeof(buf), 6), 0);
	/* The peer has no page in VRAM left. */
	if (in_place)
		EXPECT_EQ(pages_as(self, mem + PAGE, 1, self->reached), 0);
	for (size_t i = 0; i < size / 4; i++)
		if (i < PAGE / 4 || i >= PAGE / 4 + ARRAY_SIZE(buf))
			ASSERT_EQ(((uint32_t *)mem)[i], pattern(i, 5));
}

#endif
