/* SPDX-License-Identifier: GPL-2.0-only */
/* PAGEMAP_SCAN and modes of userfaultfd that are newer than the headers of Debian 12. */
#ifndef PAGEMAP_SCAN_H
#define PAGEMAP_SCAN_H

#include <linux/fs.h>
#include <linux/userfaultfd.h>
#include <stdint.h>

#ifndef PAGEMAP_SCAN
#define PAGEMAP_SCAN		_IOWR('f', 16, struct pm_scan_arg)
#define PAGE_IS_WRITTEN		(1 << 1)
#define PAGE_IS_PRESENT		(1 << 3)
#define PM_SCAN_WP_MATCHING	(1 << 0)

struct page_region {
	uint64_t start, end, categories;
};

struct pm_scan_arg {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
	uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
#endif
#ifndef UFFD_FEATURE_WP_ASYNC
#define UFFD_FEATURE_WP_UNPOPULATED	(1 << 13)
#define UFFD_FEATURE_WP_ASYNC		(1 << 15)
#endif
#ifndef UFFDIO_RWPROTECT
#define UFFDIO_RWPROTECT		_IOWR(UFFDIO, 9, struct uffdio_writeprotect)
#define UFFD_FEATURE_RWP		(1 << 17)
#define UFFDIO_REGISTER_MODE_RWP	(1 << 3)
#define UFFD_PAGEFAULT_FLAG_RWP		(1 << 3)
#endif

#endif
