// SPDX-License-Identifier: GPL-2.0-only
/*
 * The memory that QEMU maps for the device: guest RAM, and BARs of peers that are RAM. This is like
 * the table of an IOMMU. With a vIOMMU it holds IOVAs, otherwise guest physical (that is, bus)
 * addresses. Each file is mapped once, as a whole.
 */
#include "vfio_user.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define VFIO_DMA_WRITE 2
#define MAX_REGIONS (1U << 20)

static struct {
	dev_t dev;
	ino_t ino;
	u8 *ptr;
	u64 size;
} files[64];

static int file_map(int fd, u64 offset, u64 size)
{
	struct stat st;
	unsigned int i;
	void *ptr;

	if (fstat(fd, &st) || offset > st.st_size || size > st.st_size - offset)
		return -1;
	for (i = 0; i < ARRAY_SIZE(files) && files[i].ptr; i++)
		if (files[i].dev == st.st_dev && files[i].ino == st.st_ino &&
		    files[i].size == st.st_size)
			return i;
	if (i == ARRAY_SIZE(files))
		return -1;
	ptr = mmap(NULL, st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (ptr == MAP_FAILED)
		return -1;
	files[i].dev = st.st_dev;
	files[i].ino = st.st_ino;
	files[i].size = st.st_size;
	files[i].ptr = ptr;
	return i;
}

/* The first region that ends at iova or behind it. */
static size_t find(const struct dma *d, u64 iova)
{
	size_t lo = 0, hi = d->nmap;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (d->map[mid].iova + (d->map[mid].size - 1) < iova)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

int dma_map(struct dma *d, u64 iova, u64 size, u64 offset, u32 prot, int fd)
{
	size_t at;
	int file;

	if (!size || iova + (size - 1) < iova)
		return -EINVAL;
	at = find(d, iova);
	if (at < d->nmap && d->map[at].iova <= iova + (size - 1))
		return -EEXIST;
	/* Without a file this process cannot reach the memory. An access to it is a fault. */
	if (fd < 0)
		return 0;
	file = file_map(fd, offset, size);
	if (file < 0)
		return -EINVAL;
	if (d->nmap == d->room) {
		size_t room = d->room ? 2 * d->room : 64;
		struct dma_region *map = room > MAX_REGIONS ? NULL :
							      realloc(d->map, room * sizeof(*map));

		if (!map)
			return -ENOMEM;
		d->map = map;
		d->room = room;
	}
	memmove(&d->map[at + 1], &d->map[at], (d->nmap - at) * sizeof(d->map[0]));
	d->nmap++;
	/* The first file is RAM, because RAM exists before any device. */
	d->map[at] = (struct dma_region){ iova, size, files[file].ptr + offset,
					  prot & VFIO_DMA_WRITE, file > 0 };
	d->maps++;
	return 0;
}

size_t dma_overlap(const struct dma *d, u64 iova, u64 last, size_t *first)
{
	size_t to;

	*first = find(d, iova);
	for (to = *first; to < d->nmap && d->map[to].iova <= last; to++)
		;
	return to - *first;
}

void dma_unmap(struct dma *d, size_t first, size_t n)
{
	memmove(&d->map[first], &d->map[first + n], (d->nmap - first - n) * sizeof(d->map[0]));
	d->nmap -= n;
}

const struct dma_region *dma_region(const struct dma *d, u64 iova, bool write)
{
	size_t at = find(d, iova);

	if (at == d->nmap || d->map[at].iova > iova || (write && !d->map[at].write))
		return NULL;
	return &d->map[at];
}
