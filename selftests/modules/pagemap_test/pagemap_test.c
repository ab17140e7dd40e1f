// SPDX-License-Identifier: GPL-2.0-only
/*
 * A DRM driver for QEMU's ivshmem, whose BAR 2 is its VRAM. drm_pagemap manages this memory and
 * drm_gpusvm finds that of the process, as for xe. The CPU does what a GPU would do. Each render
 * node has some calls of test_hmm (lib/test_hmm_uapi.h): HMM_DMIRROR_READ, HMM_DMIRROR_WRITE,
 * HMM_DMIRROR_MIGRATE_TO_DEV and HMM_DMIRROR_P2P_STATS. They are for the process that opened the
 * node. The driver has no ids, so it is bound by driver_override.
 *
 * QEMU has no posted writes. Therefore the driver warns if drm_pagemap copies or releases memory
 * that a peer may have written to, and has not read back.
 */
#include <linux/dma-direct.h>
#include <linux/iommu.h>
#include <linux/module.h>
#include <linux/pci-p2pdma.h>
#include <linux/sched.h>

#include <drm/drm_drv.h>
#include <drm/drm_file.h>
#include <drm/drm_gpusvm.h>
#include <drm/drm_managed.h>
#include <drm/drm_pagemap.h>

#include "test_hmm_uapi.h"

#define VRAM_BAR	2

/*
 * Values of proto in struct drm_pagemap_addr: an offset in the VRAM of the device itself, a DMA
 * address in that of another one
 */
#define VRAM_LOCAL	DRM_INTERCONNECT_DRIVER
#define VRAM_REMOTE	(DRM_INTERCONNECT_DRIVER + 1)

static unsigned int timeslice_ms;
module_param(timeslice_ms, uint, 0644);
MODULE_PARM_DESC(timeslice_ms, "How long pages stay in VRAM at least.");

static bool p2p = true;
module_param(p2p, bool, 0644);
MODULE_PARM_DESC(p2p, "Peers reach VRAM. Valid for devices that are bound later.");

static ulong visible = ULONG_MAX;
module_param(visible, ulong, 0644);
MODULE_PARM_DESC(visible, "How many pages of VRAM the peers reach (default: all).");

static bool strangers;
module_param(strangers, bool, 0644);
MODULE_PARM_DESC(strangers, "Devices take all pages of VRAM for those of other drivers.");

static uint fail_copies;
module_param(fail_copies, uint, 0644);
MODULE_PARM_DESC(fail_copies, "How many of the next copies to RAM fail.");

/**
 * struct vram - a device
 * @drm: its DRM device
 * @pagemap: its device private pages, one for each page of the BAR
 * @dpagemap: the same for drm_pagemap
 * @ops: functions of @dpagemap
 * @bar: the BAR, as PCI P2PDMA memory
 * @npages: its size
 * @lock: protects @used and @allocations
 * @used: pages that are allocated
 * @exported: pages whose alias was given to a peer since the last read-back
 * @allocations: all struct allocation
 * @op_calls: see struct hmm_dmirror_p2p_stats; likewise @migrated and @flushes
 */
struct vram {
	struct drm_device drm;
	struct dev_pagemap pagemap;
	struct drm_pagemap dpagemap;
	struct drm_pagemap_ops ops;
	void *bar;
	unsigned long npages;
	spinlock_t lock;
	unsigned long *used;
	unsigned long *exported;
	struct list_head allocations;
	atomic_long_t op_calls;
	atomic_long_t migrated;
	atomic_long_t flushes;
};

/**
 * struct allocation - consecutive pages of VRAM
 * @devmem: for drm_pagemap, which holds a reference until the last page is free
 * @vram: the device
 * @first: index of the first page
 * @link: entry of @vram->allocations
 * @ref: reference count
 */
struct allocation {
	struct drm_pagemap_devmem devmem;
	struct vram *vram;
	unsigned long first;
	struct list_head link;
	struct kref ref;
};

/**
 * struct vram_file - an open render node
 * @gpusvm: the address space of the process
 * @vram: the device
 * @lock: held by each call
 */
struct vram_file {
	struct drm_gpusvm gpusvm;
	struct vram *vram;
	struct mutex lock;
};

struct vram_range {
	struct drm_gpusvm_range base;
	struct drm_gpusvm_pages pages;
};

/* All devices use the private pages of each other. */
static char vram_owner;

static struct drm_gpusvm_pages *range_pages(struct drm_gpusvm_range *range)
{
	return &container_of(range, struct vram_range, base)->pages;
}

static unsigned long range_npages(struct drm_gpusvm_range *range)
{
	return PHYS_PFN(drm_gpusvm_range_size(range));
}

/* ---- the memory ---- */

static struct vram *page_vram(struct page *page)
{
	return container_of(page_pgmap(page), struct vram, pagemap);
}

static unsigned long page_index(struct page *page)
{
	return page_to_pfn(page) - PHYS_PFN(page_pgmap(page)->range.start);
}

static void __iomem *vram_addr(struct vram *vram, unsigned long index)
{
	return (void __iomem *)vram->bar + (index << PAGE_SHIFT);
}

/* The device sees DMA addresses, the CPU that works in its place does not. */
static void *ram_addr(struct device *dev, dma_addr_t addr)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(dev);

	return phys_to_virt(domain ? iommu_iova_to_phys(domain, addr) : dma_to_phys(dev, addr));
}

/* Copy 2^order pages between the memory at a DMA address and VRAM. */
static void copy(struct vram *vram, dma_addr_t addr, unsigned int order, unsigned long index,
		 bool to_ram)
{
	unsigned long i;

	for (i = 0; i < 1UL << order; i++, index++, addr += PAGE_SIZE) {
		void *ram = ram_addr(vram->drm.dev, addr);

		WARN_ON(to_ram && test_bit(index, vram->exported));
		if (to_ram)
			memcpy_fromio(ram, vram_addr(vram, index), PAGE_SIZE);
		else
			memcpy_toio(vram_addr(vram, index), ram, PAGE_SIZE);
	}
	if (to_ram)
		atomic_long_add(1L << order, &vram->migrated);
}

static int vram_copy(struct page **pages, struct drm_pagemap_addr *addr, unsigned long npages,
		     bool to_ram)
{
	unsigned long i;

	for (i = 0; i < npages; i++)
		if (pages[i] && addr[i].addr)
			copy(page_vram(pages[i]), addr[i].addr, addr[i].order, page_index(pages[i]),
			     to_ram);
	return 0;
}

static int vram_copy_to_devmem(struct page **pages, struct drm_pagemap_addr *addr,
			       unsigned long npages, struct dma_fence *fence)
{
	return vram_copy(pages, addr, npages, false);
}

static int vram_copy_to_ram(struct page **pages, struct drm_pagemap_addr *addr,
			    unsigned long npages, struct dma_fence *fence)
{
	if (fail_copies) {
		fail_copies--;
		return -EIO;
	}
	return vram_copy(pages, addr, npages, true);
}

static int vram_populate_devmem_pfn(struct drm_pagemap_devmem *devmem, unsigned long npages,
				    unsigned long *pfn)
{
	struct allocation *a = container_of(devmem, struct allocation, devmem);
	unsigned long i;

	for (i = 0; i < npages; i++)
		pfn[i] = PHYS_PFN(a->vram->pagemap.range.start) + a->first + i;
	return 0;
}

static void allocation_free(struct kref *ref)
{
	kfree(container_of(ref, struct allocation, ref));
}

/* Also called with a page table lock held. */
static void vram_devmem_release(struct drm_pagemap_devmem *devmem)
{
	struct allocation *a = container_of(devmem, struct allocation, devmem);
	unsigned long end = a->first + PHYS_PFN(devmem->size), flags;

	WARN_ON(find_next_bit(a->vram->exported, end, a->first) < end);
	spin_lock_irqsave(&a->vram->lock, flags);
	bitmap_clear(a->vram->used, a->first, PHYS_PFN(devmem->size));
	list_del(&a->link);
	spin_unlock_irqrestore(&a->vram->lock, flags);
	kref_put(&a->ref, allocation_free);
}

static const struct drm_pagemap_devmem_ops vram_devmem_ops = {
	.devmem_release = vram_devmem_release,
	.populate_devmem_pfn = vram_populate_devmem_pfn,
	.copy_to_devmem = vram_copy_to_devmem,
	.copy_to_ram = vram_copy_to_ram,
};

/* All pages of [start, end) migrate, or none. */
static int vram_populate_mm(struct drm_pagemap *dpagemap, unsigned long start, unsigned long end,
			    struct mm_struct *mm, unsigned long timeslice)
{
	struct vram *vram = container_of(dpagemap, struct vram, dpagemap);
	struct drm_pagemap_migrate_details details = { .timeslice_ms = timeslice };
	unsigned long npages = PHYS_PFN(end - start);
	struct allocation *a;

	a = kzalloc_obj(*a);
	if (!a)
		return -ENOMEM;
	a->vram = vram;
	kref_init(&a->ref);
	drm_pagemap_devmem_init(&a->devmem, vram->drm.dev, &vram_devmem_ops, dpagemap, end - start,
				NULL);
	spin_lock_irq(&vram->lock);
	a->first = bitmap_find_next_zero_area(vram->used, vram->npages, 0, npages,
					      npages == HPAGE_PMD_NR ? npages - 1 : 0);
	if (a->first < vram->npages) {
		bitmap_set(vram->used, a->first, npages);
		list_add(&a->link, &vram->allocations);
	}
	spin_unlock_irq(&vram->lock);
	if (a->first >= vram->npages) {
		kfree(a);
		return -ENOSPC;
	}
	/* Holes of the process are not copied. */
	memset_io(vram_addr(vram, a->first), 0, end - start);
	return drm_pagemap_migrate_to_devmem(&a->devmem, mm, start, end, &details);
}

static struct drm_pagemap_addr vram_device_map(struct drm_pagemap *dpagemap, struct device *dev,
					       struct page *page, unsigned int order,
					       enum dma_data_direction dir)
{
	dma_addr_t offset = page_index(page) << PAGE_SHIFT;

	if (dev == dpagemap->drm->dev)
		return drm_pagemap_addr_encode(offset, VRAM_LOCAL, order, dir);
	offset += pci_resource_start(to_pci_dev(dpagemap->drm->dev), VRAM_BAR);
	return drm_pagemap_addr_encode(dma_map_resource(dev, offset, PAGE_SIZE << order, dir,
							DMA_ATTR_SKIP_CPU_SYNC),
				       VRAM_REMOTE, order, dir);
}

static void vram_device_unmap(struct drm_pagemap *dpagemap, struct device *dev,
			      const struct drm_pagemap_addr *addr)
{
	if (addr->proto == VRAM_REMOTE)
		dma_unmap_resource(dev, addr->addr, PAGE_SIZE << addr->order, addr->dir,
				   DMA_ATTR_SKIP_CPU_SYNC);
}

static int vram_p2p_pfn(struct drm_pagemap *dpagemap, struct page *page, unsigned long *pfn)
{
	struct vram *vram = container_of(dpagemap, struct vram, dpagemap);
	struct folio *folio = page_folio(page);
	unsigned long first = page_index(&folio->page), end = first + folio_nr_pages(folio), i;

	atomic_long_inc(&vram->op_calls);
	if (end > visible)
		return -ENXIO;
	for (i = first; i < end; i++)
		set_bit(i, vram->exported);
	*pfn = page_to_pfn(virt_to_page(vram->bar)) + page_index(page);
	return 0;
}

static void vram_p2p_read_back(struct drm_pagemap *dpagemap)
{
	struct vram *vram = container_of(dpagemap, struct vram, dpagemap);
	unsigned long i;

	readl(vram_addr(vram, 0));
	for_each_set_bit(i, vram->exported, vram->npages)
		clear_bit(i, vram->exported);
	atomic_long_inc(&vram->flushes);
}

/* It is a part of struct vram. */
static void vram_pagemap_destroy(struct drm_pagemap *dpagemap, bool is_atomic_or_reclaim)
{
}

static const struct drm_pagemap_ops vram_pagemap_ops = {
	.device_map = vram_device_map,
	.device_unmap = vram_device_unmap,
	.populate_mm = vram_populate_mm,
	.destroy = vram_pagemap_destroy,
	.p2p_pfn = vram_p2p_pfn,
	.p2p_read_back = vram_p2p_read_back,
};

static void vram_evict(struct vram *vram)
{
	struct allocation *a;

	while (true) {
		spin_lock_irq(&vram->lock);
		a = list_first_entry_or_null(&vram->allocations, struct allocation, link);
		if (a)
			kref_get(&a->ref);
		spin_unlock_irq(&vram->lock);
		if (!a)
			break;
		/* A page that is being faulted cannot be migrated now. Try again. */
		if (drm_pagemap_evict_to_ram(&a->devmem))
			schedule_timeout_uninterruptible(1);
		kref_put(&a->ref, allocation_free);
	}
}

/* ---- the address space ---- */

static struct drm_gpusvm_range *vram_range_alloc(struct drm_gpusvm *gpusvm)
{
	struct vram_file *f = container_of(gpusvm, struct vram_file, gpusvm);
	struct vram_range *range = kzalloc_obj(*range);

	if (!range)
		return NULL;
	drm_gpusvm_init_pages(&range->pages, &f->vram->drm);
	return &range->base;
}

static void vram_range_free(struct drm_gpusvm_range *range)
{
	drm_gpusvm_free_pages(range->gpusvm, range_pages(range), range_npages(range));
	kfree(container_of(range, struct vram_range, base));
}

static void vram_invalidate(struct drm_gpusvm *gpusvm, struct drm_gpusvm_notifier *notifier,
			    const struct mmu_notifier_range *event)
{
	unsigned long start = max(event->start, drm_gpusvm_notifier_start(notifier));
	unsigned long end = min(event->end, drm_gpusvm_notifier_end(notifier));
	struct drm_gpusvm_ctx ctx = { .in_notifier = true };
	struct drm_gpusvm_range *range = NULL;

	drm_gpusvm_for_each_range(range, notifier, start, end) {
		drm_gpusvm_unmap_pages(gpusvm, range_pages(range), range_npages(range), &ctx);
		if (event->event == MMU_NOTIFY_UNMAP)
			drm_gpusvm_range_set_unmapped(range, range_pages(range), 1, event);
	}
}

static const struct drm_gpusvm_ops vram_gpusvm_ops = {
	.range_alloc = vram_range_alloc,
	.range_free = vram_range_free,
	.invalidate = vram_invalidate,
};

static const unsigned long chunk_sizes[] = { SZ_2M, SZ_64K, SZ_4K };

/*
 * Read or write the memory of a range by its DMA addresses, wherever it is. Return: how many
 * pages are in VRAM, or an errno.
 */
static long vram_access(struct vram_file *f, struct drm_gpusvm_range *range,
			const struct drm_gpusvm_ctx *ctx, void *buf)
{
	struct drm_gpusvm_pages *pages = range_pages(range);
	unsigned long npages = range_npages(range), i, j, k;
	long local = 0;
	int ret;

	do {
		ret = drm_gpusvm_get_pages(&f->gpusvm, pages, f->gpusvm.mm,
					   &range->notifier->notifier,
					   drm_gpusvm_range_start(range),
					   drm_gpusvm_range_end(range), ctx);
		if (ret)
			return ret;
		drm_gpusvm_notifier_lock(&f->gpusvm);
		if (drm_gpusvm_pages_valid(&f->gpusvm, pages))
			break;
		drm_gpusvm_notifier_unlock(&f->gpusvm);
	} while (true);

	for (i = 0, j = 0; i < npages; j++) {
		struct drm_pagemap_addr *addr = pages->dma_addr + j;

		for (k = 0; k < 1UL << addr->order; k++, i++, buf += PAGE_SIZE) {
			dma_addr_t dma = addr->addr + (k << PAGE_SHIFT);

			if (addr->proto != VRAM_LOCAL) {
				/* In QEMU a bus address is physical. No IOMMU sees it. */
				void *ram = addr->proto == DRM_INTERCONNECT_P2P_BUS ?
						    phys_to_virt(dma) :
						    ram_addr(f->vram->drm.dev, dma);

				memcpy(ctx->read_only ? buf : ram, ctx->read_only ? ram : buf,
				       PAGE_SIZE);
				continue;
			}
			local++;
			if (ctx->read_only)
				memcpy_fromio(buf, vram_addr(f->vram, PHYS_PFN(dma)), PAGE_SIZE);
			else
				memcpy_toio(vram_addr(f->vram, PHYS_PFN(dma)), buf, PAGE_SIZE);
		}
	}
	drm_gpusvm_notifier_unlock(&f->gpusvm);
	return local;
}

static long vram_range_command(struct vram_file *f, struct drm_gpusvm_range *range,
			       const struct drm_gpusvm_ctx *ctx, unsigned int command,
			       void __user *user)
{
	size_t size = drm_gpusvm_range_size(range);
	void *buf = kvmalloc(size, GFP_KERNEL);
	long ret;

	if (!buf)
		return -ENOMEM;
	/* As xe does: if a part of the range is in VRAM already, begin anew. */
	if (command == HMM_DMIRROR_MIGRATE_TO_DEV &&
	    drm_pagemap_populate_mm(&f->vram->dpagemap, drm_gpusvm_range_start(range),
				    drm_gpusvm_range_end(range), f->gpusvm.mm,
				    ctx->timeslice_ms) == -EBUSY &&
	    !drm_gpusvm_range_evict(&f->gpusvm, range))
		drm_pagemap_populate_mm(&f->vram->dpagemap, drm_gpusvm_range_start(range),
					drm_gpusvm_range_end(range), f->gpusvm.mm,
					ctx->timeslice_ms);
	ret = -EFAULT;
	if (command == HMM_DMIRROR_WRITE && copy_from_user(buf, user, size))
		goto out;
	ret = vram_access(f, range, ctx, buf);
	if (ret >= 0 && command != HMM_DMIRROR_WRITE && copy_to_user(user, buf, size))
		ret = -EFAULT;
	if (ret >= 0 && command != HMM_DMIRROR_MIGRATE_TO_DEV)
		ret = size >> PAGE_SHIFT;
out:
	kvfree(buf);
	return ret;
}

static int vram_command(struct vram_file *f, unsigned int command, struct hmm_dmirror_cmd *cmd)
{
	unsigned long addr = cmd->addr, end = addr + (cmd->npages << PAGE_SHIFT);
	struct drm_gpusvm_ctx ctx = {
		.device_private_page_owner = READ_ONCE(strangers) ? NULL : &vram_owner,
		.allow_p2p = READ_ONCE(strangers),
		.timeslice_ms = READ_ONCE(timeslice_ms),
		.read_only = command != HMM_DMIRROR_WRITE,
		.devmem_possible = true,
		.allow_mixed = true,
	};
	struct drm_gpusvm_range *range;
	long n;

	if (!PAGE_ALIGNED(addr) || end <= addr || cmd->npages > f->vram->npages)
		return -EINVAL;
	cmd->cpages = 0;
	while (addr < end) {
		range = drm_gpusvm_range_find_or_insert(&f->gpusvm, addr, cmd->addr, end, &ctx);
		if (IS_ERR(range))
			return PTR_ERR(range);
		n = vram_range_command(f, range, &ctx, command,
				       u64_to_user_ptr(cmd->ptr + addr - cmd->addr));
		addr = drm_gpusvm_range_end(range);
		/* Nothing stays mapped between two calls. */
		drm_gpusvm_range_remove(&f->gpusvm, range);
		if (n < 0)
			return n;
		cmd->cpages += n;
	}
	return 0;
}

static int vram_stats(struct vram *vram, void __user *arg)
{
	bool bound = !drm_dev_is_unplugged(&vram->drm);
	struct hmm_dmirror_p2p_stats stats = {
		.bound = bound,
		.bar_pages = bound ? vram->npages : 0,
		.bar_live = bitmap_weight(vram->used, vram->npages),
		.op_calls = atomic_long_read(&vram->op_calls),
		.migrated = atomic_long_read(&vram->migrated),
		.flushes = atomic_long_read(&vram->flushes),
	};

	return copy_to_user(arg, &stats, sizeof(stats)) ? -EFAULT : 0;
}

static long vram_ioctl(struct file *filp, unsigned int command, unsigned long arg)
{
	struct drm_file *drm_file = filp->private_data;
	struct vram_file *f = drm_file->driver_priv;
	void __user *user = (void __user *)arg;
	struct hmm_dmirror_cmd cmd;
	int ret, idx;

	switch (command) {
	case HMM_DMIRROR_P2P_STATS:
		return vram_stats(f->vram, user);
	case HMM_DMIRROR_READ:
	case HMM_DMIRROR_WRITE:
	case HMM_DMIRROR_MIGRATE_TO_DEV:
		break;
	default:
		return -ENOTTY;
	}
	if (copy_from_user(&cmd, user, sizeof(cmd)))
		return -EFAULT;
	if (!drm_dev_enter(&f->vram->drm, &idx))
		return -ENODEV;
	mutex_lock(&f->lock);
	ret = vram_command(f, command, &cmd);
	mutex_unlock(&f->lock);
	drm_dev_exit(idx);
	if (!ret && copy_to_user(user, &cmd, sizeof(cmd)))
		ret = -EFAULT;
	return ret;
}

/* ---- the device ---- */

static int vram_open(struct drm_device *drm, struct drm_file *drm_file)
{
	struct vram_file *f = kzalloc_obj(*f);
	int ret;

	if (!f)
		return -ENOMEM;
	f->vram = container_of(drm, struct vram, drm);
	mutex_init(&f->lock);
	ret = drm_gpusvm_init(&f->gpusvm, "pagemap_test", current->mm, 0, TASK_SIZE, SZ_512M,
			      &vram_gpusvm_ops, chunk_sizes, ARRAY_SIZE(chunk_sizes));
	if (ret) {
		kfree(f);
		return ret;
	}
	drm_gpusvm_driver_set_lock(&f->gpusvm, &f->lock);
	drm_file->driver_priv = f;
	return 0;
}

static void vram_postclose(struct drm_device *drm, struct drm_file *drm_file)
{
	struct vram_file *f = drm_file->driver_priv;

	mutex_lock(&f->lock);
	drm_gpusvm_fini(&f->gpusvm);
	mutex_unlock(&f->lock);
	kfree(f);
}

static const struct file_operations vram_fops = {
	.owner = THIS_MODULE,
	.open = drm_open,
	.release = drm_release,
	.unlocked_ioctl = vram_ioctl,
	.fop_flags = FOP_UNSIGNED_OFFSET,
};

static const struct drm_driver vram_driver = {
	.driver_features = DRIVER_RENDER,
	.open = vram_open,
	.postclose = vram_postclose,
	.fops = &vram_fops,
	.name = "pagemap_test",
	.desc = "device memory in the BAR of ivshmem",
	.major = 1,
};

static void vram_free_bar(void *arg)
{
	struct vram *vram = arg;

	pci_free_p2pmem(to_pci_dev(vram->drm.dev), vram->bar, vram->npages << PAGE_SHIFT);
}

/* The PCI P2PDMA memory comes first, and goes last. */
static int vram_add_memory(struct vram *vram, struct pci_dev *pdev)
{
	size_t size = pci_resource_len(pdev, VRAM_BAR);
	struct resource *region;
	void *addr;
	int ret;

	ret = pci_p2pdma_add_resource(pdev, VRAM_BAR, size, 0);
	if (ret)
		return ret;
	vram->bar = pci_alloc_p2pmem(pdev, size);
	if (!vram->bar)
		return -EBUSY;
	vram->npages = PHYS_PFN(size);
	ret = devm_add_action_or_reset(&pdev->dev, vram_free_bar, vram);
	if (ret)
		return ret;
	vram->used =
		drmm_kcalloc(&vram->drm, BITS_TO_LONGS(vram->npages), sizeof(long), GFP_KERNEL);
	vram->exported =
		drmm_kcalloc(&vram->drm, BITS_TO_LONGS(vram->npages), sizeof(long), GFP_KERNEL);
	if (!vram->used || !vram->exported)
		return -ENOMEM;

	region = devm_request_free_mem_region(&pdev->dev, &iomem_resource, size);
	if (IS_ERR(region))
		return PTR_ERR(region);
	vram->pagemap.type = MEMORY_DEVICE_PRIVATE;
	vram->pagemap.range.start = region->start;
	vram->pagemap.range.end = region->end;
	vram->pagemap.nr_range = 1;
	vram->pagemap.owner = &vram_owner;
	vram->pagemap.ops = drm_pagemap_pagemap_ops_get();
	addr = devm_memremap_pages(&pdev->dev, &vram->pagemap);
	return PTR_ERR_OR_ZERO(addr);
}

static int vram_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct vram *vram;
	int ret;

	vram = devm_drm_dev_alloc(&pdev->dev, &vram_driver, struct vram, drm);
	if (IS_ERR(vram))
		return PTR_ERR(vram);
	spin_lock_init(&vram->lock);
	INIT_LIST_HEAD(&vram->allocations);
	pci_set_drvdata(pdev, vram);
	ret = pcim_enable_device(pdev);
	if (ret)
		return ret;
	ret = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (ret)
		return ret;
	ret = vram_add_memory(vram, pdev);
	if (ret)
		return ret;
	vram->ops = vram_pagemap_ops;
	if (!p2p)
		vram->ops.p2p_pfn = NULL;
	ret = drm_pagemap_init(&vram->dpagemap, &vram->pagemap, &vram->drm, &vram->ops);
	if (ret)
		return ret;
	ret = drm_dev_register(&vram->drm, 0);
	if (ret)
		drm_pagemap_put(&vram->dpagemap);
	return ret;
}

static void vram_remove(struct pci_dev *pdev)
{
	struct vram *vram = pci_get_drvdata(pdev);

	drm_dev_unplug(&vram->drm);
	vram_evict(vram);
	drm_pagemap_put(&vram->dpagemap);
}

static struct pci_driver vram_pci_driver = {
	.name = "pagemap_test",
	.probe = vram_probe,
	.remove = vram_remove,
};
module_pci_driver(vram_pci_driver);

MODULE_DESCRIPTION("DRM driver with drm_pagemap for QEMU's ivshmem");
MODULE_LICENSE("GPL");
