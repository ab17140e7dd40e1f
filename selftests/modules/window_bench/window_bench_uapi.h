/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * /dev/window_bench: what nouveau's windows to device private memory cost, in ticks of the time
 * stamp counter, when there are fewer of them than memory. The aperture is an array that says what
 * each window points at: what a GPU takes to map something is not counted.
 */
#ifndef WINDOW_BENCH_UAPI_H
#define WINDOW_BENCH_UAPI_H

#include <linux/ioctl.h>
#include <linux/types.h>

/**
 * enum window_bench_what - what is measured, @rounds times
 * @WINDOW_BENCH_KEPT: a page of a block that still has its window is handed out
 * @WINDOW_BENCH_RECYCLE: a page is handed out, and its block gets the window that has been idle for
 *   longest; peers had written to what it showed
 * @WINDOW_BENCH_STEAL: there is no idle one, but of what they show nothing is exported
 * @WINDOW_BENCH_NONE: all show what is exported, so the block has no alias
 * @WINDOW_BENCH_MIX: blocks drawn by lot get and lose pages, and peers use those that have an
 *   alias; the ticks are without those of pages for which windows were stolen
 */
enum window_bench_what {
	WINDOW_BENCH_KEPT,
	WINDOW_BENCH_RECYCLE,
	WINDOW_BENCH_STEAL,
	WINDOW_BENCH_NONE,
	WINDOW_BENCH_MIX,
};

/**
 * struct window_bench_cmd - WINDOW_BENCH_MEASURE
 * @what: (in) enum window_bench_what
 * @windows: (in) size of the aperture in windows of 2 MiB
 * @blocks: (in) size of the memory in blocks of 2 MiB, more than @windows
 * @rounds: (in) pages that are handed out
 * @cost: (out) ticks that handing them out took
 * @aliases: (out) times that a peer got one; WINDOW_BENCH_MIX tries for each page
 * @refused: (out) times that it did not
 * @recycles: (out) windows that were recycled
 * @steals: (out) windows that were taken from what is not exported
 * @no_space: (out) times that a block looked for a window in vain
 * @read_backs: (out) times that peers' writes were waited for
 * @errors: (out) aliases that led to another block, pages handed out or windows moved with writes
 *   of peers under way, or windows lost
 */
struct window_bench_cmd {
	__u32 what;
	__u32 windows;
	__u32 blocks;
	__u32 rounds;
	__u64 cost;
	__u64 aliases;
	__u64 refused;
	__u64 recycles;
	__u64 steals;
	__u64 no_space;
	__u64 read_backs;
	__u64 errors;
};

#define WINDOW_BENCH_MEASURE	_IOWR('B', 0x01, struct window_bench_cmd)

#endif /* WINDOW_BENCH_UAPI_H */
