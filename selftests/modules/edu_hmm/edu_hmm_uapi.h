/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * /dev/edu_hmmN: the DMA engine of QEMU's edu device works on the virtual addresses of a process,
 * as an RDMA adapter with on-demand paging does.
 *
 * Each open file mirrors one range of one process (EDU_HMM_REGISTER). The driver keeps a device
 * page table for it. A page is entered when it is faulted (EDU_HMM_FAULT, or EDU_HMM_DMA to an
 * absent page), and dropped when the interval notifier of the range fires. Pages in the memory of
 * other devices are entered by their PCI peer-to-peer alias, if there is one that this device can
 * reach. Otherwise they migrate to system memory.
 *
 * /dev/edu_odpN: the same device and the same calls. But the on-demand paging of the RDMA core
 * looks up and DMA maps the memory, for an RDMA device that is not registered. Differences between
 * the two nodes are named below.
 *
 * All calls except EDU_HMM_STATS and EDU_HMM_WAIT have to come from the process that registered
 * the range. Addresses are user virtual addresses. If a page fault is delayed (userfaultfd),
 * removal of the device waits.
 *
 * Errors of all calls: ENODEV, the PCI device is gone; ENXIO, no range is registered; EPERM, the
 * range is of another process, or memory to be written is read-only; EINVAL, an address or length
 * is not page aligned, empty or outside of the range, or a flag is unknown; EFAULT, an argument or
 * the memory cannot be accessed; ENOMEM, no memory; EINTR, a signal is pending; ENOTTY, no such
 * call.
 */
#ifndef EDU_HMM_UAPI_H
#define EDU_HMM_UAPI_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define EDU_HMM_MAX_PAGES	8192	/* of a range */
#define EDU_HMM_LOCAL_PAGES	64	/* of the memory of the device itself */
#define EDU_HMM_ASYNC_BYTES	2048	/* that EDU_HMM_ASYNC moves at most */

/* The kind of DMA addresses, the same for a whole range. */
enum edu_hmm_shape {
	EDU_HMM_DIRECT = 1,	/* a mapping for each page, which need not be undone */
	EDU_HMM_LIST,		/* a mapping for each page, which has to be undone */
	EDU_HMM_IOVA,		/* the range is contiguous behind an IOMMU */
};

/**
 * struct edu_hmm_register - mirror a range of the calling process
 * @addr: (in) page aligned start
 * @npages: (in) length in pages, 1 to EDU_HMM_MAX_PAGES
 * @shape: (out) enum edu_hmm_shape
 * @flags: (in) zero; for /dev/edu_odpN: EDU_HMM_READ_ONLY, EDU_HMM_HUGETLB, EDU_HMM_IMPLICIT,
 *   EDU_HMM_P2P, EDU_HMM_INCAPABLE
 *
 * Errors: EBUSY, the file has a range already; EOPNOTSUPP, the DMA mask of the device does not
 * cover system memory.
 */
struct edu_hmm_register {
	__u64 addr;
	__u64 npages;
	__u32 shape;
	__u32 flags;
};

#define EDU_HMM_READ_ONLY	(1U << 0)	/* the device may not write */
/* The range consists of huge pages, with aligned start and end. Each has one mapping. */
#define EDU_HMM_HUGETLB		(1U << 1)
/* The range is a child of an implicit one; not with EDU_HMM_HUGETLB: EINVAL. */
#define EDU_HMM_IMPLICIT	(1U << 2)
/* Memory of other devices is reached in place. /dev/edu_hmmN does this without a flag. */
#define EDU_HMM_P2P		(1U << 3)
/* The device does not have IB_ODP_SUPPORT_P2P during this call. */
#define EDU_HMM_INCAPABLE	(1U << 4)

#define EDU_HMM_WRITE		(1U << 0)	/* FAULT: for writing. DMA: write to memory */
/* FAULT: only enter pages that are present. DMA: ENOENT instead of a fault. */
#define EDU_HMM_NO_FAULT	(1U << 1)
/* DMA: return when the engine has started to access the memory. */
#define EDU_HMM_ASYNC		(1U << 2)
/* FAULT of /dev/edu_odpN: the device may only read, as after a prefetch of mlx5. */
#define EDU_HMM_DOWNGRADE	(1U << 3)
/*
 * FAULT of /dev/edu_hmmN: request each second page, from the second one on, by its own entry of the
 * array, and no aliases. Other pages are entered if they are present.
 */
#define EDU_HMM_ODD		(1U << 4)
/*
 * DMA: the CPU copies in place of the engine, to or from the page that the device page table has.
 * The bytes lie in one page. Not with EDU_HMM_ASYNC.
 */
#define EDU_HMM_CPU		(1U << 5)

/**
 * struct edu_hmm_fault - enter pages into the device page table
 * @addr: (in) page aligned start
 * @npages: (in) length in pages
 * @flags: (in) EDU_HMM_WRITE, EDU_HMM_NO_FAULT, EDU_HMM_DOWNGRADE, EDU_HMM_ODD
 * @pad: zero
 * @refused: (out) pages in the memory of other devices whose alias was refused, see nr_p2p_refused
 *   in struct hmm_range. For /dev/edu_odpN: the growth of p2p_fallbacks of struct edu_hmm_stats
 *
 * /dev/edu_odpN writes the device page table in blocks of EDU_HMM_BLOCK pages (of huge pages with
 * EDU_HMM_HUGETLB), counted from the start of the range, as a ConnectX does. Pages of the first and
 * the last block that were mapped before are written again.
 *
 * Errors: EIO, a page could not be DMA mapped (/dev/edu_odpN: EFAULT); ETIME, pages were
 * invalidated again and again for a minute; EHWPOISON, the memory is bad. For /dev/edu_odpN: EINVAL
 * also if a page is small in spite of EDU_HMM_HUGETLB.
 */
struct edu_hmm_fault {
	__u64 addr;
	__u64 npages;
	__u32 flags;
	__u32 pad;
	__u64 refused;
};

#define EDU_HMM_BLOCK	8

enum edu_hmm_how {
	EDU_HMM_NONE,		/* not present */
	EDU_HMM_RAM,		/* DMA mapped system memory */
	EDU_HMM_LOCAL,		/* memory of the device itself, not DMA mapped */
	EDU_HMM_BUS,		/* alias, by PCI bus address */
	EDU_HMM_BRIDGE,		/* alias, through the host bridge */
};

/**
 * struct edu_hmm_page - an entry of the device page table
 * @dma: DMA address, 0 for EDU_HMM_NONE and EDU_HMM_LOCAL
 * @phys: CPU physical address of the page, 0 likewise
 * @how: enum edu_hmm_how
 * @write: 1 if the device may write
 */
struct edu_hmm_page {
	__u64 dma;
	__u64 phys;
	__u32 how;
	__u32 write;
};

/**
 * struct edu_hmm_state - read the device page table
 * @addr: (in) page aligned start
 * @npages: (in) length in pages
 * @pages: (in) address of an array of @npages struct edu_hmm_page
 */
struct edu_hmm_state {
	__u64 addr;
	__u64 npages;
	__u64 pages;
};

/**
 * struct edu_hmm_dma - move bytes by the DMA engine of the device
 * @addr: (in) address within the range
 * @ptr: (in) buffer of the caller, source or destination of the bytes
 * @len: (in) number of bytes
 * @flags: (in) EDU_HMM_WRITE, EDU_HMM_NO_FAULT, EDU_HMM_ASYNC, EDU_HMM_CPU
 * @pad: zero
 *
 * The device takes 100 ms for a transfer of up to 2048 bytes. Each access takes two transfers, the
 * other one between its buffer and the driver. With EDU_HMM_ASYNC, @addr to @addr + @len may not
 * cross a multiple of EDU_HMM_ASYNC_BYTES. The engine then belongs to this file until EDU_HMM_WAIT,
 * which writes the data that were read to @ptr, or drops them if another process calls it.
 *
 * Errors: ENOENT, a page is not present or not writable, and EDU_HMM_NO_FAULT; EBUSY, EDU_HMM_WAIT
 * is due; EIO also if the device does not answer; ETIME and EHWPOISON as in struct edu_hmm_fault.
 */
struct edu_hmm_dma {
	__u64 addr;
	__u64 ptr;
	__u64 len;
	__u32 flags;
	__u32 pad;
};

/**
 * struct edu_hmm_migrate - move pages into the memory of the device itself
 * @addr: (in) page aligned start
 * @npages: (in) length in pages, at most EDU_HMM_LOCAL_PAGES
 * @moved: (out) number of pages that have migrated
 *
 * Only private anonymous memory of a single mapping can migrate. /dev/edu_odpN: ENOTTY.
 */
struct edu_hmm_migrate {
	__u64 addr;
	__u64 npages;
	__u64 moved;
};

/**
 * struct edu_hmm_obstruct - keep a page from being DMA mapped
 * @addr: (in) page aligned address within the range; the page is not mapped
 *
 * Maps another page at the IOVA of this page, until the notifier fires for the page or the file is
 * closed. Only for /dev/edu_odpN (ENOTTY), and only with IOVAs (EOPNOTSUPP). EBUSY: there is an
 * obstacle already.
 */
struct edu_hmm_obstruct {
	__u64 addr;
};

/**
 * struct edu_hmm_stats - counters of the open file
 * @transfers: transfers between the device and the memory of the range
 * @faults: walks that filled the device page table
 * @dropped: entries dropped because the notifier fired
 * @waits: invalidations that had to wait for the DMA engine
 * @npages: pages that are DMA mapped, huge ones with EDU_HMM_HUGETLB. For /dev/edu_hmmN this and
 *   the next two are 0
 * @p2p_pages: see struct ib_umem_odp; in small pages
 * @p2p_fallbacks: likewise
 * @in_flight: 1 while the engine works on a page of the range
 * @again: how often the RDMA core gave up because pages were invalidated all the time. 0 for
 *   /dev/edu_hmmN
 */
struct edu_hmm_stats {
	__u64 transfers;
	__u64 faults;
	__u64 dropped;
	__u64 waits;
	__u64 npages;
	__u64 p2p_pages;
	__u64 p2p_fallbacks;
	__u32 in_flight;
	__u32 again;
};

#define EDU_HMM_REGISTER	_IOWR('E', 0x00, struct edu_hmm_register)
#define EDU_HMM_FAULT		_IOWR('E', 0x01, struct edu_hmm_fault)
#define EDU_HMM_STATE		_IOW('E', 0x02, struct edu_hmm_state)
#define EDU_HMM_DMA		_IOW('E', 0x03, struct edu_hmm_dma)
#define EDU_HMM_WAIT		_IO('E', 0x04)
#define EDU_HMM_MIGRATE		_IOWR('E', 0x05, struct edu_hmm_migrate)
#define EDU_HMM_STATS		_IOR('E', 0x06, struct edu_hmm_stats)
#define EDU_HMM_OBSTRUCT	_IOW('E', 0x07, struct edu_hmm_obstruct)
/*
 * /dev/edu_odpN without an IOMMU: map memory that needs a bounce buffer, and unmap it. Afterwards
 * dma_need_unmap() returns true for the device, until EDU_HMM_NO_BOUNCE.
 */
#define EDU_HMM_BOUNCE		_IO('E', 0x08)
#define EDU_HMM_NO_BOUNCE	_IO('E', 0x09)

#endif /* EDU_HMM_UAPI_H */
