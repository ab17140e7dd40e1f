/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * /dev/hmm_bench: what it costs to find memory, in ticks of the time stamp counter. With QEMU's -icount shift=0 these are
 * instructions.
 */
#ifndef HMM_BENCH_UAPI_H
#define HMM_BENCH_UAPI_H

#include <linux/ioctl.h>
#include <linux/types.h>

/**
 * enum hmm_bench_what - what is measured
 * @HMM_BENCH_CLOCK: 1001 instructions
 * @HMM_BENCH_COPY: copy a page of RAM, by copy_highpage()
 * @HMM_BENCH_COPY_BAR: copy a page as one of a BAR, by memcpy_fromio()
 * @HMM_BENCH_WALK: hmm_range_fault(), as often as it takes
 * @HMM_BENCH_ODP: ib_umem_odp_map_dma_and_lock() for a new MR of a device that does DMA, and the address of each page for
 *	the table of the device
 * @HMM_BENCH_ODP_VIRT: the same for a device that does none (rxe, siw)
 */
enum hmm_bench_what {
	HMM_BENCH_CLOCK,
	HMM_BENCH_COPY,
	HMM_BENCH_COPY_BAR,
	HMM_BENCH_WALK,
	HMM_BENCH_ODP,
	HMM_BENCH_ODP_VIRT,
};

#define HMM_BENCH_FAULT		(1U << 0)	/* ask for the pages, otherwise only for their state */
#define HMM_BENCH_WRITE		(1U << 1)	/* and for write access */
#define HMM_BENCH_P2P		(1U << 2)	/* HMM_BENCH_WALK: with HMM_PFN_ALLOW_P2P for the first edu device */

/**
 * struct hmm_bench_cmd - HMM_BENCH_MEASURE
 * @addr: (in) address of the range, page aligned
 * @npages: (in) number of pages
 * @what: (in) enum hmm_bench_what
 * @flags: (in) HMM_BENCH_*
 * @owner: (in) HMM_BENCH_WALK: file of the mirror of test_hmm that owns device private pages, or -1
 * @walks: (out) calls of hmm_range_fault()
 * @cost: (out) ticks
 * @unmap: (out) HMM_BENCH_ODP: ticks of ib_umem_odp_unmap_dma_pages()
 * @valid: (out) pages that were found
 * @huge: (out) of these, pages of a PMD
 * @p2p: (out) of these, pages of PCI devices
 * @owned: (out) of these, device private pages
 * @refused: (out) pages whose alias was refused
 */
struct hmm_bench_cmd {
	__u64 addr;
	__u64 npages;
	__u32 what;
	__u32 flags;
	__s32 owner;
	__u32 walks;
	__u64 cost;
	__u64 unmap;
	__u64 valid;
	__u64 huge;
	__u64 p2p;
	__u64 owned;
	__u64 refused;
};

#define HMM_BENCH_MEASURE	_IOWR('B', 0x00, struct hmm_bench_cmd)

#endif /* HMM_BENCH_UAPI_H */
