// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/edu_odpN: the RDMA core looks up and DMA maps the memory, like that of an on-demand paging
 * MR of a ConnectX.
 *
 * The device page table stands for the translation table in the hardware. DMA uses only this
 * table. It is written only where mlx5 writes its table: with the result of hmm_dma_map_pfn()
 * after ib_umem_odp_map_dma_and_lock(), and in the notifier. So DMA uses a stale entry, too.
 *
 * Locks: the umem_mutex of the range lies between mmap_lock and edu_mirror.lock. The interval
 * notifier takes both.
 */
#include <linux/dma-mapping.h>
#include <linux/hmm.h>
#include <linux/hugetlb.h>
#include <linux/pci.h>
#include <linux/pci-p2pdma.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <rdma/ib_umem_odp.h>
#include <rdma/ib_verbs.h>

#include "edu_hmm.h"

/**
 * struct edu_ib - the edu device as an RDMA device
 * @ibdev: not registered; umems only need the device that does the DMA
 */
struct edu_ib {
	struct ib_device ibdev;
};

/*
 * The umem with the counters: for an implicit range the parent, which mlx5 keeps when it drops a
 * child.
 */
static struct ib_umem_odp *edu_odp_counted(struct edu_mirror *m)
{
	return m->umem->parent ?: m->umem;
}

/* Called with the mutex of the umem and the lock of the file held. */
static void edu_odp_count(struct edu_mirror *m)
{
	struct ib_umem_odp *umem = edu_odp_counted(m);

	m->stats.npages = m->umem->npages;
	m->stats.p2p_pages = atomic64_read(&umem->p2p_pages);
	m->stats.p2p_fallbacks = atomic64_read(&umem->p2p_fallbacks);
}

/*
 * DMA map pages @first to @first + @n - 1 and write them to the device page table, with the mutex
 * of the umem held. In whole blocks, as mlx5 does, and up to the first page that cannot be mapped.
 */
static int edu_odp_enter(struct edu_mirror *m, unsigned long first, unsigned long n, u32 flags)
{
	struct ib_umem_odp *umem = m->umem;
	struct device *dev = umem->umem.ibdev->dma_device;
	unsigned int order = umem->page_shift - PAGE_SHIFT;
	unsigned long block = (unsigned long)EDU_HMM_BLOCK << order;
	struct pci_p2pdma_map_state state = {};
	unsigned long i, sub, last, entry, old;
	dma_addr_t dma;
	int ret = 0;

	last = min(round_up(first + n, block), ib_umem_odp_num_pages(umem) << order);
	guard(mutex)(&m->lock);
	for (i = round_down(first, block); i < last; i++) {
		sub = i & ((1UL << order) - 1);
		old = umem->map.pfn_list[i >> order];
		entry = 0;
		dma = 0;
		if (old & HMM_PFN_VALID) {
			dma = hmm_dma_map_pfn(dev, &umem->map, i >> order, &state);
			if (dma_mapping_error(dev, dma)) {
				WARN(umem->map.pfn_list[i >> order] != old,
				     "%s: a mapping of page %lu that failed left a trace\n",
				     m->edu->name, i);
				ret = -EFAULT;
				break;
			}
			umem->npages += !(old & HMM_PFN_DMA_MAPPED);
			entry = umem->map.pfn_list[i >> order] + sub;
			dma += sub << PAGE_SHIFT;
		}
		if (flags & EDU_HMM_DOWNGRADE || !umem->umem.writable)
			entry &= ~HMM_PFN_WRITE;
		/* Pages only change after the notifier, which removes the entry. */
		old = m->map.pfn_list[i];
		WARN(edu_present(m, i) &&
		     (m->dma[i] != dma || hmm_pfn_to_phys(old) != hmm_pfn_to_phys(entry)),
		     "%s: page %lu was not dropped\n", m->edu->name, i);
		m->map.pfn_list[i] = entry;
		m->dma[i] = dma;
	}
	m->stats.faults++;
	edu_odp_count(m);
	return ret;
}

static void edu_odp_remove_obstacle(struct edu_mirror *m)
{
	struct ib_umem_odp *umem = m->umem;

	if (!m->obstacle)
		return;
	dma_iova_unlink(umem->umem.ibdev->dma_device, &umem->map.state,
			m->obstacle_idx << umem->page_shift, umem->map.dma_entry_size,
			DMA_BIDIRECTIONAL, DMA_ATTR_REQUIRE_COHERENT);
	__free_pages(m->obstacle, umem->page_shift - PAGE_SHIFT);
	m->obstacle = NULL;
}

/* Drop pages @first to @last - 1 when the device has finished with them, with the mutex held. */
static void edu_odp_zap(struct edu_mirror *m, unsigned long first, unsigned long last)
{
	unsigned int order = m->umem->page_shift - PAGE_SHIFT;
	unsigned long i;

	if (m->obstacle && in_range(m->obstacle_idx << order, first, last - first))
		edu_odp_remove_obstacle(m);
	guard(mutex)(&m->lock);
	if (m->busy >= 0 && in_range(m->busy, first, last - first)) {
		m->stats.waits += !completion_done(&m->edu->idle);
		edu_engine_wait(m->edu);
	}
	for (i = first; i < last; i++) {
		m->stats.dropped += edu_present(m, i);
		m->map.pfn_list[i] = 0;
		m->dma[i] = 0;
	}
}

/* Is it a mapped page of a peer? */
static struct page *edu_odp_peer(struct ib_umem_odp *umem, unsigned long start, unsigned long end)
{
	unsigned long *entry = umem->map.pfn_list;
	unsigned long i, first = (start - ib_umem_start(umem)) >> umem->page_shift;

	for (i = 0; i < (end - start) >> umem->page_shift; i++)
		if (entry[first + i] & HMM_PFN_DMA_MAPPED &&
		    is_pci_p2pdma_page(hmm_pfn_to_page(entry[first + i])))
			return hmm_pfn_to_page(entry[first + i]);
	return NULL;
}

static bool edu_odp_invalidate(struct mmu_interval_notifier *mni,
			       const struct mmu_notifier_range *inv, unsigned long seq)
{
	struct ib_umem_odp *umem = container_of(mni, struct ib_umem_odp, notifier);
	unsigned long page = 1UL << umem->page_shift;
	unsigned long start, end;
	struct edu_mirror *m;
	struct page *peer;

	if (!mmu_notifier_range_blockable(inv))
		return false;

	guard(mutex)(&umem->umem_mutex);
	mmu_interval_set_seq(mni, seq);
	/* Clip before rounding: an end at ULONG_MAX would overflow. */
	start = ALIGN_DOWN(max(ib_umem_start(umem), inv->start), page);
	end = ALIGN(min(ib_umem_end(umem), inv->end), page);
	/* NULL before edu_odp_map() and after edu_odp_unmap(). Then nothing is mapped. */
	m = umem->private;
	if (m)
		edu_odp_zap(m, PHYS_PFN(start - m->start), PHYS_PFN(end - m->start));
	peer = edu_odp_peer(umem, start, end);
	ib_umem_odp_unmap_dma_pages(umem, start, end);
	/* A page of a peer is never written back. */
	WARN(peer && PageDirty(peer), "%s: a page of a peer is dirty\n",
	     dev_name(umem->umem.ibdev->dma_device));
	if (m) {
		guard(mutex)(&m->lock);
		edu_odp_count(m);
	}
	return true;
}

static const struct mmu_interval_notifier_ops edu_odp_notifier_ops = {
	.invalidate = edu_odp_invalidate,
};

static int edu_odp_fault(struct edu_mirror *m, unsigned long first, unsigned long npages, u32 flags,
			 u64 *refused)
{
	struct ib_umem_odp *umem = m->umem;
	u64 access = flags & EDU_HMM_WRITE ? HMM_PFN_WRITE : 0;
	u64 fallbacks = atomic64_read(&edu_odp_counted(m)->p2p_fallbacks);
	unsigned int order = umem->page_shift - PAGE_SHIFT;
	unsigned long deadline = jiffies + EDU_TIMEOUT;
	unsigned long want;
	int ret;

	if ((access && flags & EDU_HMM_DOWNGRADE) || flags & EDU_HMM_ODD)
		return -EINVAL;
	if (access && !umem->umem.writable)
		return -EPERM;
	while (true) {
		ret = ib_umem_odp_map_dma_and_lock(umem, m->start + (first << PAGE_SHIFT),
						   npages << PAGE_SHIFT, access,
						   !(flags & EDU_HMM_NO_FAULT));
		if (ret != -EAGAIN)
			break;
		scoped_guard(mutex, &m->lock)
			m->stats.again++;
		if (time_after_eq(jiffies, deadline) || fatal_signal_pending(current))
			break;
	}
	if (ret >= 0) {
		want = DIV_ROUND_UP(first + npages, 1UL << order) - (first >> order);
		WARN(ret != want, "%s: %d pages of %lu\n", m->edu->name, ret, want);
		ret = edu_odp_enter(m, first, npages, flags);
	} else {
		/* Some pages may have been mapped. */
		mutex_lock(&umem->umem_mutex);
		scoped_guard(mutex, &m->lock)
			edu_odp_count(m);
	}
	mutex_unlock(&umem->umem_mutex);
	*refused += atomic64_read(&edu_odp_counted(m)->p2p_fallbacks) - fallbacks;
	if (ret < 0)
		return ret == -EAGAIN ? -ETIME : ret;
	return 0;
}

static struct ib_umem_odp *edu_odp_get(struct edu *edu, const struct edu_hmm_register *cmd,
				       int access)
{
	u64 size = cmd->npages << PAGE_SHIFT;
	struct ib_umem_odp *root, *umem;

	if (!(cmd->flags & EDU_HMM_IMPLICIT))
		return ib_umem_odp_get(edu->ibdev, cmd->addr, size, access, &edu_odp_notifier_ops);
	root = ib_umem_odp_alloc_implicit(edu->ibdev, access);
	if (IS_ERR(root))
		return root;
	umem = ib_umem_odp_alloc_child(root, cmd->addr, size, &edu_odp_notifier_ops);
	if (IS_ERR(umem))
		ib_umem_odp_release(root);
	return umem;
}

static int edu_odp_map(struct edu_mirror *m, struct edu_hmm_register *cmd)
{
	u64 size = cmd->npages << PAGE_SHIFT;
	int access = IB_ACCESS_ON_DEMAND;
	struct ib_umem_odp *umem;
	int ret = -ENOMEM;

	if (cmd->flags & ~(EDU_HMM_READ_ONLY | EDU_HMM_HUGETLB | EDU_HMM_IMPLICIT | EDU_HMM_P2P |
			   EDU_HMM_INCAPABLE))
		return -EINVAL;
	if (!(cmd->flags & EDU_HMM_READ_ONLY))
		access |= IB_ACCESS_LOCAL_WRITE;
	if (cmd->flags & EDU_HMM_P2P)
		access |= IB_ACCESS_ODP_P2P;
	if (cmd->flags & EDU_HMM_HUGETLB) {
		if (!IS_ALIGNED(cmd->addr | size, HPAGE_SIZE))
			return -EINVAL;
		access |= IB_ACCESS_HUGETLB;
	}

	m->map.pfn_list = kvcalloc(cmd->npages, sizeof(*m->map.pfn_list), GFP_KERNEL);
	m->dma = kvcalloc(cmd->npages, sizeof(*m->dma), GFP_KERNEL);
	if (!m->map.pfn_list || !m->dma)
		goto free;
	m->edu->ibdev->attrs.odp_caps.general_caps =
		cmd->flags & EDU_HMM_INCAPABLE ? 0 : IB_ODP_SUPPORT_P2P;
	umem = edu_odp_get(m->edu, cmd, access);
	if (IS_ERR(umem)) {
		ret = PTR_ERR(umem);
		goto free;
	}
	m->umem = umem;
	m->mapped = true;
	scoped_guard(mutex, &umem->umem_mutex)
		umem->private = m;
	cmd->shape = edu_shape(&m->edu->pdev->dev, &umem->map);
	return 0;

free:
	kvfree(m->map.pfn_list);
	kvfree(m->dma);
	return ret;
}

static void edu_odp_unmap(struct edu_mirror *m)
{
	struct ib_umem_odp *umem = m->umem, *root;

	if (!umem)
		return;
	root = umem->parent;
	scoped_guard(mutex, &umem->umem_mutex) {
		edu_odp_zap(m, 0, ib_umem_odp_num_pages(umem) << (umem->page_shift - PAGE_SHIFT));
		edu_odp_remove_obstacle(m);
		umem->private = NULL;
	}
	scoped_guard(mutex, &m->lock) {
		m->mapped = false;
		m->busy = -1;
	}
	/* This also unmaps all pages. */
	ib_umem_odp_release(umem);
	if (root)
		ib_umem_odp_release(root);
	m->umem = NULL;
	kvfree(m->map.pfn_list);
}

static int edu_odp_obstruct(struct edu_mirror *m, void __user *arg)
{
	struct edu_hmm_obstruct cmd;
	struct ib_umem_odp *umem;
	struct page *page;
	size_t offset;
	int ret;

	if (copy_from_user(&cmd, arg, sizeof(cmd)))
		return -EFAULT;
	guard(rwsem_read)(&m->edu->gone_lock);
	ret = edu_check_pages(m, cmd.addr, 1);
	if (ret)
		return ret;
	umem = m->umem;
	if (!dma_use_iova(&umem->map.state))
		return -EOPNOTSUPP;
	page = alloc_pages(GFP_KERNEL | __GFP_ZERO, umem->page_shift - PAGE_SHIFT);
	if (!page)
		return -ENOMEM;

	guard(mutex)(&umem->umem_mutex);
	ret = -EBUSY;
	if (m->obstacle)
		goto free;
	m->obstacle_idx = (cmd.addr - m->start) >> umem->page_shift;
	offset = m->obstacle_idx << umem->page_shift;
	ret = dma_iova_link(umem->umem.ibdev->dma_device, &umem->map.state, page_to_phys(page),
			    offset, umem->map.dma_entry_size, DMA_BIDIRECTIONAL,
			    DMA_ATTR_REQUIRE_COHERENT);
	if (ret)
		goto free;
	m->obstacle = page;
	ret = dma_iova_sync(umem->umem.ibdev->dma_device, &umem->map.state, offset,
			    umem->map.dma_entry_size);
	if (ret)
		edu_odp_remove_obstacle(m);
	return ret;

free:
	__free_pages(page, umem->page_shift - PAGE_SHIFT);
	return ret;
}

/* With a DMA mask of 32 bits, memory above 4 GiB needs a bounce buffer. */
static int edu_odp_bounce(struct edu_mirror *m)
{
	struct device *dev = &m->edu->pdev->dev;
	u64 mask = dma_get_mask(dev);
	struct page *page;
	dma_addr_t dma;
	int ret = -ENXIO;

	guard(rwsem_read)(&m->edu->gone_lock);
	if (m->edu->gone)
		return -ENODEV;
	page = alloc_page(GFP_KERNEL);
	if (!page)
		return -ENOMEM;
	/* Not dma_set_mask(), because it resets dma_need_unmap(). */
	*dev->dma_mask = DMA_BIT_MASK(32);
	if (page_to_phys(page) > DMA_BIT_MASK(32)) {
		dma = dma_map_page(dev, page, 0, PAGE_SIZE, DMA_TO_DEVICE);
		ret = dma_mapping_error(dev, dma);
		if (!ret)
			dma_unmap_page(dev, dma, PAGE_SIZE, DMA_TO_DEVICE);
	}
	*dev->dma_mask = mask;
	__free_page(page);
	if (!ret && !dma_need_unmap(dev))
		ret = -EINVAL;
	return ret;
}

static long edu_odp_ioctl(struct edu_mirror *m, unsigned int command, void __user *arg)
{
	struct device *dev = &m->edu->pdev->dev;

	switch (command) {
	case EDU_HMM_OBSTRUCT:
		return edu_odp_obstruct(m, arg);
	case EDU_HMM_BOUNCE:
		return edu_odp_bounce(m);
	case EDU_HMM_NO_BOUNCE:
		return dma_set_mask(dev, dma_get_mask(dev));
	}
	return -ENOTTY;
}

const struct edu_backend edu_odp_backend = {
	.name = "edu_odp",
	.map = edu_odp_map,
	.unmap = edu_odp_unmap,
	.fault = edu_odp_fault,
	.ioctl = edu_odp_ioctl,
};

/**
 * edu_odp_create - create the RDMA device
 * @edu: the device
 *
 * Return: 0, or -ENOMEM.
 */
int edu_odp_create(struct edu *edu)
{
	struct edu_ib *ib = ib_alloc_device(edu_ib, ibdev);

	if (!ib)
		return -ENOMEM;
	ib->ibdev.dev.parent = &edu->pdev->dev;
	ib->ibdev.dma_device = &edu->pdev->dev;
	edu->ibdev = &ib->ibdev;
	return 0;
}

/**
 * edu_odp_destroy - undo edu_odp_create()
 * @edu: the device, for which no page is mapped any more
 */
void edu_odp_destroy(struct edu *edu)
{
	ib_dealloc_device(edu->ibdev);
}
