// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory of the edu device itself: a few device private pages. The mirror of a process must find
 * these pages and must not DMA map them. They are backed by system memory, and the CPU copies.
 */
#include <linux/memremap.h>
#include <linux/migrate.h>
#include <linux/mm.h>
#include <linux/highmem.h>
#include <linux/slab.h>

#include "edu_hmm.h"

/**
 * struct edu_memory - device private memory
 * @pagemap: its pages, of which only the first EDU_HMM_LOCAL_PAGES are handed out
 * @region: their physical address range
 * @lock: protects @used
 * @used: pages that are handed out
 * @backing: the backing page of each page
 */
struct edu_memory {
	struct dev_pagemap pagemap;
	struct resource *region;
	spinlock_t lock;
	DECLARE_BITMAP(used, EDU_HMM_LOCAL_PAGES);
	struct page *backing[EDU_HMM_LOCAL_PAGES];
};

static struct edu_memory *edu_page_memory(struct page *page)
{
	return container_of(page_pgmap(page), struct edu_memory, pagemap);
}

static unsigned long edu_page_index(struct page *page)
{
	return page_to_pfn(page) - PHYS_PFN(page_pgmap(page)->range.start);
}

/**
 * edu_memory_backing - find the backing page
 * @page: a device private page of an edu device
 *
 * Return: the page of system memory.
 */
struct page *edu_memory_backing(struct page *page)
{
	return edu_page_memory(page)->backing[edu_page_index(page)];
}

static void edu_folio_free(struct folio *folio)
{
	struct edu_memory *memory = edu_page_memory(&folio->page);

	/* Also called with a page table lock held. */
	spin_lock(&memory->lock);
	__clear_bit(edu_page_index(&folio->page), memory->used);
	spin_unlock(&memory->lock);
}

/* Copy migrating pages from the device to system memory. @dst is set for migrate_vma_pages(). */
static void edu_copy_out(const unsigned long *src, unsigned long *dst, unsigned long npages,
			 gfp_t gfp)
{
	struct page *spage, *dpage;
	unsigned long i;

	for (i = 0; i < npages; i++) {
		dst[i] = 0;
		spage = migrate_pfn_to_page(src[i]);
		if (!spage || !(src[i] & MIGRATE_PFN_MIGRATE))
			continue;
		dpage = alloc_page(GFP_HIGHUSER_MOVABLE | gfp);
		if (!dpage)
			continue;
		lock_page(dpage);
		copy_highpage(dpage, edu_memory_backing(spage));
		dst[i] = migrate_pfn(page_to_pfn(dpage));
		if (src[i] & MIGRATE_PFN_WRITE)
			dst[i] |= MIGRATE_PFN_WRITE;
	}
}

static vm_fault_t edu_migrate_to_ram(struct vm_fault *vmf)
{
	unsigned long addr = vmf->address & PAGE_MASK;
	unsigned long src = 0, dst = 0;
	struct migrate_vma args = {
		.vma = vmf->vma,
		.start = addr,
		.end = addr + PAGE_SIZE,
		.src = &src,
		.dst = &dst,
		.pgmap_owner = page_pgmap(vmf->page)->owner,
		.flags = MIGRATE_VMA_SELECT_DEVICE_PRIVATE,
		.fault_page = vmf->page,
	};
	vm_fault_t ret = 0;

	if (migrate_vma_setup(&args))
		return VM_FAULT_SIGBUS;
	edu_copy_out(&src, &dst, 1, 0);
	if (src & MIGRATE_PFN_MIGRATE && !dst)
		ret = VM_FAULT_OOM;
	migrate_vma_pages(&args);
	migrate_vma_finalize(&args);
	return ret;
}

static const struct dev_pagemap_ops edu_pagemap_ops = {
	.folio_free = edu_folio_free,
	.migrate_to_ram = edu_migrate_to_ram,
};

static void edu_free_backing(struct edu_memory *memory)
{
	unsigned int i;

	for (i = 0; i < EDU_HMM_LOCAL_PAGES; i++)
		if (memory->backing[i])
			__free_page(memory->backing[i]);
}

static struct edu_memory *edu_memory_create(struct edu *edu)
{
	struct edu_memory *memory;
	struct resource *region;
	unsigned int i;
	void *addr;

	memory = kzalloc_obj(*memory);
	if (!memory)
		return NULL;
	spin_lock_init(&memory->lock);
	for (i = 0; i < EDU_HMM_LOCAL_PAGES; i++) {
		memory->backing[i] = alloc_page(GFP_KERNEL);
		if (!memory->backing[i])
			goto free_backing;
	}
	region = request_free_mem_region(&iomem_resource, EDU_HMM_LOCAL_PAGES << PAGE_SHIFT,
					 "edu_hmm");
	if (IS_ERR(region))
		goto free_backing;
	memory->region = region;
	memory->pagemap.type = MEMORY_DEVICE_PRIVATE;
	memory->pagemap.range.start = region->start;
	memory->pagemap.range.end = region->end;
	memory->pagemap.nr_range = 1;
	memory->pagemap.ops = &edu_pagemap_ops;
	memory->pagemap.owner = edu;
	addr = memremap_pages(&memory->pagemap, numa_node_id());
	if (IS_ERR(addr))
		goto release;
	return memory;

release:
	release_mem_region(region->start, resource_size(region));
free_backing:
	edu_free_backing(memory);
	kfree(memory);
	return NULL;
}

static struct page *edu_page_alloc(struct edu_memory *memory)
{
	struct page *page;
	unsigned long n;

	spin_lock(&memory->lock);
	n = find_first_zero_bit(memory->used, EDU_HMM_LOCAL_PAGES);
	if (n < EDU_HMM_LOCAL_PAGES)
		__set_bit(n, memory->used);
	spin_unlock(&memory->lock);
	if (n == EDU_HMM_LOCAL_PAGES)
		return NULL;
	page = pfn_to_page(PHYS_PFN(memory->pagemap.range.start) + n);
	zone_device_folio_init(page_folio(page), &memory->pagemap, 0);
	return page;
}

/**
 * edu_memory_migrate - move pages of the calling process into the memory of the device
 * @edu: the device, whose gone_lock is held
 * @start: first address, page aligned
 * @end: end, at most EDU_HMM_LOCAL_PAGES further
 * @moved: out: number of pages that moved
 *
 * Return: 0, -EFAULT if there is no such memory, -EINVAL if it cannot move, -ENOMEM.
 */
int edu_memory_migrate(struct edu *edu, unsigned long start, unsigned long end, u64 *moved)
{
	unsigned long src[EDU_HMM_LOCAL_PAGES] = {}, dst[EDU_HMM_LOCAL_PAGES] = {};
	unsigned long npages = PHYS_PFN(end - start), i;
	struct migrate_vma args = {
		.start = start,
		.end = end,
		.src = src,
		.dst = dst,
		.pgmap_owner = edu,
		.flags = MIGRATE_VMA_SELECT_SYSTEM,
	};
	struct page *spage, *dpage;
	int ret;

	*moved = 0;
	scoped_guard(mutex, &edu->memory_lock) {
		if (!edu->memory)
			edu->memory = edu_memory_create(edu);
		if (!edu->memory)
			return -ENOMEM;
	}

	mmap_read_lock(current->mm);
	args.vma = vma_lookup(current->mm, start);
	ret = -EFAULT;
	if (!args.vma || end > args.vma->vm_end)
		goto unlock;
	ret = migrate_vma_setup(&args);
	if (ret)
		goto unlock;
	for (i = 0; i < npages; i++) {
		if (!(src[i] & MIGRATE_PFN_MIGRATE))
			continue;
		dpage = edu_page_alloc(edu->memory);
		if (!dpage)
			continue;
		spage = migrate_pfn_to_page(src[i]);
		if (spage)
			copy_highpage(edu_memory_backing(dpage), spage);
		else
			clear_highpage(edu_memory_backing(dpage));
		dst[i] = migrate_pfn(page_to_pfn(dpage));
		if (src[i] & MIGRATE_PFN_WRITE)
			dst[i] |= MIGRATE_PFN_WRITE;
	}
	migrate_vma_pages(&args);
	for (i = 0; i < npages; i++)
		*moved += dst[i] && src[i] & MIGRATE_PFN_MIGRATE;
	migrate_vma_finalize(&args);
unlock:
	mmap_read_unlock(current->mm);
	return ret;
}

/**
 * edu_memory_free - free the memory of the device
 * @edu: the device, to which no page can migrate any more
 *
 * Pages that are in use migrate to system memory first. Sleeps until that is done.
 */
void edu_memory_free(struct edu *edu)
{
	unsigned long src[EDU_HMM_LOCAL_PAGES], dst[EDU_HMM_LOCAL_PAGES];
	struct edu_memory *memory = edu->memory;

	if (!memory)
		return;
	/* A page that is being faulted cannot be migrated now. Try again. */
	while (!bitmap_empty(memory->used, EDU_HMM_LOCAL_PAGES)) {
		migrate_device_range(src, PHYS_PFN(memory->pagemap.range.start),
				     EDU_HMM_LOCAL_PAGES);
		edu_copy_out(src, dst, EDU_HMM_LOCAL_PAGES, __GFP_NOFAIL);
		migrate_device_pages(src, dst, EDU_HMM_LOCAL_PAGES);
		migrate_device_finalize(src, dst, EDU_HMM_LOCAL_PAGES);
		cond_resched();
	}
	memunmap_pages(&memory->pagemap);
	release_mem_region(memory->region->start, resource_size(memory->region));
	edu_free_backing(memory);
	kfree(memory);
	edu->memory = NULL;
}
