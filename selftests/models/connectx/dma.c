/*
 * What QEMU maps for the device: guest RAM, and BARs of peers that are RAM. It is the table of an
 * IOMMU: through a vIOMMU it holds IOVAs, else guest physical (that is, bus) addresses. Each file
 * is mapped once, as a whole.
 */
#include "connectx.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* The first region that ends behind iova. */
static size_t find(struct hca *h, u64 iova)
{
	size_t lo = 0, hi = h->nmap;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (h->map[mid].iova + (h->map[mid].size - 1) < iova)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

int dma_map(struct hca *h, u64 iova, u64 size, u64 offset, u32 prot, int fd)
{
	size_t at;
	int file;

	if (!size || iova + (size - 1) < iova)
		return -EINVAL;
	at = find(h, iova);
	if (at < h->nmap && h->map[at].iova <= iova + (size - 1))
		return -EEXIST;
	/*
	 * Memory that is no file is nothing that this process could reach; an access to it is a
	 * fault.
	 */
	if (fd < 0)
		return 0;
	file = file_map(fd, offset, size);
	if (file < 0)
		return -EINVAL;
	if (h->nmap == h->map_room) {
		size_t room = h->map_room ? 2 * h->map_room : 64;
		struct dma_region *map = room > MAX_REGIONS ? NULL :
							      realloc(h->map, room * sizeof(*map));

		if (!map)
			return -ENOMEM;
		h->map = map;
		h->map_room = room;
	}
	memmove(&h->map[at + 1], &h->map[at], (h->nmap - at) * sizeof(h->map[0]));
	h->nmap++;
	/* The first file is RAM: it is there before any device. */
	h->map[at] = (struct dma_region){ iova, size, files[file].ptr + offset,
					  prot & VFIO_DMA_WRITE, file > 0 };
	h->stats.dma_maps++;
	return 0;
}

void dma_unmap(struct hca *h, u64 iova, u64 size)
{
	u64 mtts, last = iova + (size - 1);
	size_t from, to;

	if (!size || last < iova)
		return;
	from = find(h, iova);
	for (to = from; to < h->nmap && h->map[to].iova <= last; to++)
		;
	if (from == to)
		return;
	mtts = mtts_into(h, iova, size);
	if (mtts)
		violation(h, "unmapped [%#lx, %#lx] while %lu MTTs in use lead there", iova, last,
			  mtts);
	memmove(&h->map[from], &h->map[to], (h->nmap - to) * sizeof(h->map[0]));
	h->nmap -= to - from;
}

void dma_unmap_all(struct hca *h)
{
	h->nmap = 0;
}

static const struct dma_region *reach(struct hca *h, u64 iova, bool write)
{
	size_t at = find(h, iova);

	if (at == h->nmap || h->map[at].iova > iova || (write && !h->map[at].write))
		return NULL;
	return &h->map[at];
}

bool dma_reaches(struct hca *h, u64 iova, u64 len, bool write)
{
	while (len) {
		const struct dma_region *r = reach(h, iova, write);
		u64 n;

		if (!r)
			return false;
		n = min(len, r->size - (iova - r->iova));
		iova += n;
		len -= n;
	}
	return true;
}

u8 *dma_ptr(struct hca *h, u64 iova, u64 *len, bool write)
{
	const struct dma_region *r = reach(h, iova, write);

	if (!(h->config[4] & 4))
		violation(h, "DMA while the driver has not made the device bus master");
	if (!r) {
		h->stats.iommu_faults++;
		note(h, "IOMMU fault: %s %#lx", write ? "write to" : "read of", iova);
		return NULL;
	}
	*len = min(*len, r->size - (iova - r->iova));
	return r->ptr + (iova - r->iova);
}

void dma_count(struct hca *h, u64 iova, u64 len, bool write)
{
	const struct dma_region *r = reach(h, iova, write);

	if (r && r->peer)
		*(write ? &h->stats.peer_bytes_written : &h->stats.peer_bytes_read) += len;
	else
		*(write ? &h->stats.bytes_written : &h->stats.bytes_read) += len;
}

bool dma_read(struct hca *h, u64 iova, void *to, u64 len)
{
	while (len) {
		u64 n = len;
		u8 *p = dma_ptr(h, iova, &n, false);

		if (!p)
			return false;
		memcpy(to, p, n);
		to = (u8 *)to + n;
		iova += n;
		len -= n;
	}
	return true;
}

bool dma_write(struct hca *h, u64 iova, const void *from, u64 len)
{
	while (len) {
		u64 n = len;
		u8 *p = dma_ptr(h, iova, &n, true);

		if (!p)
			return false;
		memcpy(p, from, n);
		from = (const u8 *)from + n;
		iova += n;
		len -= n;
	}
	return true;
}

int qbuf_init(struct qbuf *b, const void *pas, size_t pas_bytes, unsigned int page_shift,
	      u32 page_offset, u64 size)
{
	u64 need, i;

	if (page_shift < 12 || page_shift > 40 || size > 1U << 30)
		return -EINVAL;
	/* The offset is in 64ths of a page. */
	b->offset = (u64)page_offset << (page_shift - 6);
	need = (b->offset + size + BIT_ULL(page_shift) - 1) >> page_shift;
	if (need * 8 > pas_bytes)
		return -EINVAL;
	b->pas = calloc(need ? need : 1, 8);
	if (!b->pas)
		return -ENOMEM;
	for (i = 0; i < need; i++)
		b->pas[i] = be64_to_cpu(((const __be64 *)pas)[i]) & ~0xfffULL;
	b->npas = need;
	b->page_shift = page_shift;
	b->size = size;
	return 0;
}

void qbuf_free(struct qbuf *b)
{
	free(b->pas);
	*b = (struct qbuf){ 0 };
}

static u64 qbuf_addr(const struct qbuf *b, u64 off)
{
	off += b->offset;
	return b->pas[off >> b->page_shift] + (off & (BIT_ULL(b->page_shift) - 1));
}

u8 *qbuf_ptr(struct hca *h, const struct qbuf *b, u64 off, u64 len, bool write)
{
	u64 n = len;
	u8 *p;

	if (off > b->size || len > b->size - off)
		return NULL;
	p = dma_ptr(h, qbuf_addr(b, off), &n, write);
	return n == len ? p : NULL;
}

bool qbuf_read(struct hca *h, const struct qbuf *b, u64 off, void *to, u64 len)
{
	while (len) {
		u64 n = min(len, 4096 - ((off + b->offset) & 4095));

		if (off >= b->size)
			return false;
		n = min(n, b->size - off);
		if (!dma_read(h, qbuf_addr(b, off), to, n))
			return false;
		to = (u8 *)to + n;
		off += n;
		len -= n;
	}
	return true;
}
