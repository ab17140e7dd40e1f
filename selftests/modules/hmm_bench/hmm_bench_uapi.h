/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * /dev/hmm_bench: measures the cost of finding memory, in ticks of the time stamp counter. With
 * -icount shift=0 of QEMU these are instructions.
 */
#ifndef HMM_BENCH_UAPI_H
#define HMM_BENCH_UAPI_H

#include <linux/ioctl.h>
#include <linux/types.h>

/**
 * enum hmm_bench_what - what is measured
 * @HMM_BENCH_CLOCK: 1001 instructions
 * @HMM_BENCH_COPY: copy a page of RAM, by copy_highpage()
 * @HMM_BENCH_COPY_BAR: copy a page of a BAR, by memcpy_fromio()
 * @HMM_BENCH_WALK: hmm_range_fault(), repeated while it returns -EBUSY
 * @HMM_BENCH_ODP: ib_umem_odp_map_dma_and_lock() for a new MR of a device that does DMA, and
 *   hmm_dma_map_pfn() for each page
 * @HMM_BENCH_ODP_VIRT: the same for a device without DMA (rxe, siw)
 */
enum hmm_bench_what {
	HMM_BENCH_CLOCK,
	HMM_BENCH_COPY,
	HMM_BENCH_COPY_BAR,
	HMM_BENCH_WALK,
	HMM_BENCH_ODP,
	HMM_BENCH_ODP_VIRT,
};

/* Fault in the pages. Without it only their state is looked up. */
#define HMM_BENCH_FAULT		(1U << 0)
#define HMM_BENCH_WRITE		(1U << 1)	/* fault for write access */
/* HMM_BENCH_WALK: with HMM_PFN_ALLOW_P2P for the edu device; MRs: with IB_ACCESS_ODP_P2P */
#define HMM_BENCH_P2P		(1U << 2)
/**
 * struct hmm_bench_cmd - HMM_BENCH_MEASURE
 * @addr: (in) address of the range, page aligned
 * @npages: (in) number of pages
 * @what: (in) enum hmm_bench_what
 * @flags: (in) HMM_BENCH_*
 * @owner: (in) HMM_BENCH_WALK: file of the mirror of test_hmm that owns device private pages, or -1
 * @pad: 0
 * @cost: (out) ticks
 * @unmap: (out) HMM_BENCH_ODP: ticks of ib_umem_odp_unmap_dma_pages()
 * @valid: (out) pages that were found
 * @huge: (out) of these, pages of a PMD
 * @p2p: (out) of these, pages of PCI devices
 * @owned: (out) of these, device private pages
 */
struct hmm_bench_cmd {
	__u64 addr;
	__u64 npages;
	__u32 what;
	__u32 flags;
	__s32 owner;
	__u32 pad;
	__u64 cost;
	__u64 unmap;
	__u64 valid;
	__u64 huge;
	__u64 p2p;
	__u64 owned;
};

#define HMM_BENCH_MEASURE	_IOWR('B', 0x00, struct hmm_bench_cmd)

#endif /* HMM_BENCH_UAPI_H */
