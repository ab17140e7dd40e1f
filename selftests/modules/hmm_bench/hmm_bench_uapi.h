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
 * @HMM_BENCH_HOLD: HMM_BENCH_ODP, but the MR stays, and its pages stay mapped until they are
 *   invalidated
 * @HMM_BENCH_HELD: what happened to the MRs of HMM_BENCH_HOLD since the last such call
 * @HMM_BENCH_DROP: ib_umem_odp_release() for each of them, the latest first
 * @HMM_BENCH_LINK: map and unmap 512 contiguous pages for an IOMMU one by one, as hmm_dma_map_pfn()
 *   does
 * @HMM_BENCH_LINK_RANGE: the same, but unmap them in one call
 * @HMM_BENCH_LINK_FOLIO: map them in one call, too. Then count what remains of such a mapping when
 *   its first page is unmapped
 */
enum hmm_bench_what {
	HMM_BENCH_CLOCK,
	HMM_BENCH_COPY,
	HMM_BENCH_COPY_BAR,
	HMM_BENCH_WALK,
	HMM_BENCH_ODP,
	HMM_BENCH_ODP_VIRT,
	HMM_BENCH_HOLD,
	HMM_BENCH_HELD,
	HMM_BENCH_DROP,
	HMM_BENCH_LINK,
	HMM_BENCH_LINK_RANGE,
	HMM_BENCH_LINK_FOLIO,
};

/* Fault in the pages. Without it only their state is looked up. */
#define HMM_BENCH_FAULT		(1U << 0)
#define HMM_BENCH_WRITE		(1U << 1)	/* fault for write access */
/* HMM_BENCH_WALK: with HMM_PFN_ALLOW_P2P for the first edu device; MRs: with IB_ACCESS_ODP_P2P */
#define HMM_BENCH_P2P		(1U << 2)
/* HMM_BENCH_ODP: count calls of the IOMMU. Counting costs instructions itself. */
#define HMM_BENCH_COUNT		(1U << 3)
/* HMM_BENCH_ODP: an MR of huge pages. Huge pages are counted. */
#define HMM_BENCH_HUGETLB	(1U << 4)

/* edu devices, and MRs that one file can hold */
#define HMM_BENCH_IMPORTERS	4

/**
 * struct hmm_bench_cmd - HMM_BENCH_MEASURE
 * @addr: (in) address of the range, page aligned
 * @npages: (in) number of pages
 * @what: (in) enum hmm_bench_what
 * @flags: (in) HMM_BENCH_*
 * @owner: (in) HMM_BENCH_WALK: file of the mirror of test_hmm that owns device private pages, or -1
 * @importer: (in) HMM_BENCH_ODP, HMM_BENCH_HOLD: number of the edu device, in the order of the bus
 * @pad: 0
 * @walks: (out) calls of hmm_range_fault()
 * @cost: (out) ticks
 * @unmap: (out) HMM_BENCH_ODP: ticks of ib_umem_odp_unmap_dma_pages(); HMM_BENCH_HELD: of the same
 *   in the notifiers
 * @valid: (out) pages that were found
 * @huge: (out) of these, pages of a PMD
 * @p2p: (out) of these, pages of PCI devices
 * @owned: (out) of these, device private pages
 * @refused: (out) pages whose alias was refused
 * @mapped: (out) HMM_BENCH_ODP: pages that were mapped by dma_map_phys() or dma_iova_link(): all
 *   but bus addresses
 * @maps: (out) HMM_BENCH_COUNT: calls that map something in the IOMMU
 * @unmaps: (out) HMM_BENCH_COUNT: calls that unmap something there
 * @flushes: (out) HMM_BENCH_COUNT: invalidations of its cache
 * @calls: (out) HMM_BENCH_HELD: calls of the notifiers of MRs
 * @zapped: (out) HMM_BENCH_HELD: pages that these unmapped; HMM_BENCH_LINK_FOLIO: pages without a
 *   mapping after one was unmapped
 */
struct hmm_bench_cmd {
	__u64 addr;
	__u64 npages;
	__u32 what;
	__u32 flags;
	__s32 owner;
	__u32 importer;
	__u32 pad;
	__u32 walks;
	__u64 cost;
	__u64 unmap;
	__u64 valid;
	__u64 huge;
	__u64 p2p;
	__u64 owned;
	__u64 refused;
	__u64 mapped;
	__u64 maps;
	__u64 unmaps;
	__u64 flushes;
	__u64 calls;
	__u64 zapped;
};

#define HMM_BENCH_MEASURE	_IOWR('B', 0x00, struct hmm_bench_cmd)

#endif /* HMM_BENCH_UAPI_H */
