/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * /dev/edu_hmmN: the DMA engine of QEMU's edu device works on the virtual addresses of a process,
 * as an RDMA adapter with on-demand paging does.
 *
 * Each open file mirrors one range of one process (EDU_HMM_REGISTER). The driver keeps a device
 * page table for it: a page is entered when it is faulted (EDU_HMM_FAULT, or EDU_HMM_DMA to a page
 * that is not there), and dropped when the interval notifier of the range fires. Pages in the
 * memory of other devices are entered by their PCI peer-to-peer alias if there is one that this
 * device can reach, else they migrate to system memory.
 *
 * /dev/edu_odpN: the same device and the same calls, but the memory is looked up and DMA mapped by
 * the on-demand paging of the RDMA core, for a device that is not registered there. Where the two
 * differ, it is said below.
 *
 * Every call but EDU_HMM_STATS and EDU_HMM_WAIT has to come from the process that registered the
 * range. Addresses are user virtual addresses. Memory that does not answer (userfaultfd) keeps a
 * device that is removed waiting. Errors that all calls have in common:
 *
 * ENODEV	the PCI device is gone
 * ENXIO	no range is registered
 * EPERM	the range is of another process, or memory to be written is read-only
 * EINVAL	not page aligned where that is asked for, empty, not within the range; unknown flags
 * EFAULT	an argument, or the memory, cannot be accessed
 * ENOMEM	no memory
 * EINTR	a signal came
 * ENOTTY	no such call
 */
#ifndef EDU_HMM_UAPI_H
#define EDU_HMM_UAPI_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define EDU_HMM_MAX_PAGES	8192	/* of a range */
#define EDU_HMM_LOCAL_PAGES	64	/* of the memory of the device itself */
#define EDU_HMM_ASYNC_BYTES	2048	/* that EDU_HMM_ASYNC moves at most */

/* How DMA addresses come about, the same for a whole range. */
enum edu_hmm_shape {
	EDU_HMM_DIRECT = 1,	/* one mapping a page, which leaves nothing to undo */
	EDU_HMM_LIST,		/* one mapping a page, each has to be undone */
	EDU_HMM_IOVA,		/* the range is contiguous behind an IOMMU */
};

/**
 * struct edu_hmm_register - mirror a range of the calling process
 * @addr: (in) page aligned start
 * @npages: (in) length in pages, 1 to EDU_HMM_MAX_PAGES
 * @shape: (out) enum edu_hmm_shape
 * @flags: (in) zero; of /dev/edu_odpN: EDU_HMM_READ_ONLY, EDU_HMM_HUGETLB, EDU_HMM_IMPLICIT,
 *   EDU_HMM_P2P
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
/* The range is of huge pages, start and end too: one mapping for each. */
#define EDU_HMM_HUGETLB		(1U << 1)
/* The range is a child of an implicit one; not with EDU_HMM_HUGETLB: EINVAL. */
#define EDU_HMM_IMPLICIT	(1U << 2)
/* Device memory of others is reached where it is, as without flags by /dev/edu_hmmN. */
#define EDU_HMM_P2P		(1U << 3)

#define EDU_HMM_WRITE		(1U << 0)	/* FAULT: for writing. DMA: write to memory */
/* FAULT: only enter what is there. DMA: ENOENT instead of a fault. */
#define EDU_HMM_NO_FAULT	(1U << 1)
/* DMA: return when the engine has started on the memory. */
#define EDU_HMM_ASYNC		(1U << 2)
/* FAULT of /dev/edu_odpN: the device may read only, as when mlx5 prefetches. */
#define EDU_HMM_DOWNGRADE	(1U << 3)
/*
 * FAULT of /dev/edu_hmmN: ask for each second page, from the second on, by its own entry of the
 * array, and for no aliases. Other pages are entered if they are there.
 */
#define EDU_HMM_ODD		(1U << 4)

/**
 * struct edu_hmm_fault - enter pages into the device page table
 * @addr: (in) page aligned start
 * @npages: (in) length in pages
 * @flags: (in) EDU_HMM_WRITE, EDU_HMM_NO_FAULT, EDU_HMM_DOWNGRADE, EDU_HMM_ODD
 * @pad: zero
 * @refused: (out) pages in the memory of other devices whose alias was refused, see nr_p2p_refused
 *   in struct hmm_range. Of /dev/edu_odpN: by how much p2p_fallbacks of struct edu_hmm_stats has
 *   grown meanwhile
 *
 * /dev/edu_odpN writes the device page table in blocks of EDU_HMM_BLOCK pages (of huge pages with
 * EDU_HMM_HUGETLB), counted from the start of the range, as a ConnectX does: pages of the first and
 * the last block that were mapped before are written once more.
 *
 * Errors: EIO, a page could not be DMA mapped (of /dev/edu_odpN: EFAULT); ETIME, invalidated over
 * and over for a minute; EHWPOISON, the memory is bad. Of /dev/edu_odpN: EINVAL also if a page
 * is smaller than EDU_HMM_HUGETLB says.
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
 * @phys: CPU physical address of what is mapped there, 0 likewise
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
 * @ptr: (in) buffer of the caller, where the bytes come from or go to
 * @len: (in) number of bytes
 * @flags: (in) EDU_HMM_WRITE, EDU_HMM_NO_FAULT, EDU_HMM_ASYNC
 * @pad: zero
 *
 * The device takes 100 ms for a transfer of up to 2048 bytes, and it needs one more between its
 * buffer and the driver. With EDU_HMM_ASYNC @addr to @addr + @len may not cross a multiple of
 * EDU_HMM_ASYNC_BYTES; the engine then belongs to this file until EDU_HMM_WAIT, which writes what
 * was read to @ptr, or drops it if another process calls.
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
 * @moved: (out) number of pages that are there now and were not before
 *
 * Only private anonymous memory of a single mapping can move. Not for /dev/edu_odpN: ENOTTY.
 */
struct edu_hmm_migrate {
	__u64 addr;
	__u64 npages;
	__u64 moved;
};

/**
 * struct edu_hmm_obstruct - keep a page from being DMA mapped
 * @addr: (in) page aligned address within the range, where nothing is mapped
 *
 * Puts something else where the page would be mapped, until the notifier fires for the page or the
 * file is closed. Only for /dev/edu_odpN, and only where there are IOVAs: ENOTTY, EOPNOTSUPP.
 * EBUSY: there is one already.
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
 * @npages: pages that are DMA mapped, huge ones with EDU_HMM_HUGETLB. 0 of /dev/edu_hmmN, like the
 *   next two
 * @p2p_pages: see struct ib_umem_odp; in small pages
 * @p2p_fallbacks: likewise
 * @in_flight: 1 while the engine works on a page of the range
 * @again: how often the RDMA core gave up, for pages that were invalidated all the time. 0 of
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
 * Of /dev/edu_odpN without an IOMMU: map memory that takes a bounce buffer, and unmap it. Then
 * dma_need_unmap() is true for the device, until EDU_HMM_NO_BOUNCE.
 */
#define EDU_HMM_BOUNCE		_IO('E', 0x08)
#define EDU_HMM_NO_BOUNCE	_IO('E', 0x09)

#endif /* EDU_HMM_UAPI_H */
