// SPDX-License-Identifier: GPL-2.0-only
/*
 * Open files: each mirrors a range of user memory and does DMA to it. /dev/edu_hmmN uses HMM.
 *
 * Locks, outermost first: edu_mirror.call, edu.engine, edu.gone_lock, then either edu.mirrors_lock
 * or mmap_lock (taken by HMM and by user copies), edu_mirror.lock. The interval notifier takes only
 * the last one. With it held, it waits for the DMA engine, whose interrupt takes no lock.
 */
#include <linux/dma-mapping.h>
#include <linux/fs.h>
#include <linux/hmm.h>
#include <linux/hmm-dma.h>
#include <linux/memremap.h>
#include <linux/mmu_notifier.h>
#include <linux/pci.h>
#include <linux/pci-p2pdma.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "edu_hmm.h"

/* Pages that are looked up in one walk. */
#define EDU_WALK_PAGES	512UL

/**
 * edu_present - is a page in the device page table?
 * @m: the open file, with its lock held
 * @idx: index of the page in the range
 *
 * Return: true if it is.
 */
bool edu_present(struct edu_mirror *m, unsigned long idx)
{
	return m->map.pfn_list[idx] & HMM_PFN_VALID;
}

static bool edu_writable(struct edu_mirror *m, unsigned long idx)
{
	return m->map.pfn_list[idx] & HMM_PFN_WRITE;
}

/* Drop entries @first to @last - 1, with m->lock held. Return: how many there were. */
static unsigned long edu_drop(struct edu_mirror *m, unsigned long first, unsigned long last)
{
	unsigned long n = 0, i, entry;
	struct page *page;

	for (i = first; i < last; i++) {
		entry = m->map.pfn_list[i];
		if (!edu_present(m, i))
			continue;
		page = hmm_pfn_to_page(entry);
		/* The CPU page table entry may be clean. Then the page could be dropped. */
		if (hmm_dma_unmap_pfn(&m->edu->pdev->dev, &m->map, i) && entry & HMM_PFN_WRITE &&
		    !is_pci_p2pdma_page(page))
			set_page_dirty(compound_head(page));
		m->map.pfn_list[i] = 0;
		m->dma[i] = 0;
		n++;
	}
	return n;
}

static void edu_unmap(struct edu_mirror *m)
{
	guard(mutex)(&m->lock);
	if (!m->mapped)
		return;
	edu_drop(m, 0, m->npages);
	hmm_dma_map_free(&m->edu->pdev->dev, &m->map);
	m->mapped = false;
	m->busy = -1;
}

/* The device goes away: nothing may stay mapped for it. */
void edu_mirrors_unmap(struct edu *edu)
{
	struct edu_mirror *m;

	guard(mutex)(&edu->mirrors_lock);
	list_for_each_entry(m, &edu->mirrors, list)
		m->backend->unmap(m);
}

static bool edu_invalidate(struct mmu_interval_notifier *mni, const struct mmu_notifier_range *inv,
			   unsigned long seq)
{
	struct edu_mirror *m = container_of(mni, struct edu_mirror, notifier);
	unsigned long first =
		PHYS_PFN(max(inv->start, mni->interval_tree.start) - mni->interval_tree.start);
	unsigned long last =
		PHYS_PFN(min(inv->end - 1, mni->interval_tree.last) - mni->interval_tree.start) + 1;

	if (mmu_notifier_range_blockable(inv))
		mutex_lock(&m->lock);
	else if (!mutex_trylock(&m->lock))
		return false;

	if (m->mapped && m->busy >= 0 && in_range(m->busy, first, last - first)) {
		/* The engine cannot be stopped. After this the page may have another owner. */
		if (!mmu_notifier_range_blockable(inv)) {
			mutex_unlock(&m->lock);
			return false;
		}
		m->stats.waits += !completion_done(&m->edu->idle);
		edu_engine_wait(m->edu);
	}
	mmu_interval_set_seq(mni, seq);
	if (m->mapped)
		m->stats.dropped += edu_drop(m, first, last);
	mutex_unlock(&m->lock);
	return true;
}

static const struct mmu_interval_notifier_ops edu_notifier_ops = {
	.invalidate = edu_invalidate,
};

/* Enter the result of a walk, with m->lock held. */
static int edu_enter(struct edu_mirror *m, unsigned long first, unsigned long n,
		     const unsigned long *pfns)
{
	struct device *dev = &m->edu->pdev->dev;
	struct pci_p2pdma_map_state state = {};
	unsigned long i, idx;
	dma_addr_t dma;

	for (i = 0; i < n; i++) {
		idx = first + i;
		if (!(pfns[i] & HMM_PFN_VALID))
			continue;
		/*
		 * Nothing was invalidated, so it is the same page. But it may have become
		 * writable.
		 */
		if (edu_present(m, idx)) {
			m->map.pfn_list[idx] |= pfns[i] & HMM_PFN_WRITE;
			continue;
		}
		m->map.pfn_list[idx] = pfns[i];
		/* Memory of the device itself is not mapped. */
		if (is_device_private_page(hmm_pfn_to_page(pfns[i])))
			continue;
		dma = hmm_dma_map_pfn(dev, &m->map, idx, &state);
		if (dma_mapping_error(dev, dma)) {
			/*
			 * A real importer would walk again without HMM_PFN_ALLOW_P2P. A test needs
			 * to see the error.
			 */
			m->map.pfn_list[idx] = 0;
			return -EIO;
		}
		m->dma[idx] = dma;
	}
	return 0;
}

/* One walk of at most EDU_WALK_PAGES, into @pfns. */
static int edu_walk(struct edu_mirror *m, unsigned long first, unsigned long n, u32 flags,
		    unsigned long *pfns, u64 *refused)
{
	struct hmm_range range = {
		.notifier = &m->notifier,
		.start = m->start + (first << PAGE_SHIFT),
		.end = m->start + ((first + n) << PAGE_SHIFT),
		.hmm_pfns = pfns,
		.default_flags = HMM_PFN_ALLOW_P2P,
		.dev_private_owner = m->edu,
		.dma_dev = &m->edu->pdev->dev,
	};
	unsigned long deadline = jiffies + EDU_TIMEOUT;
	unsigned long ask = 0, i;
	int ret;

	if (!(flags & EDU_HMM_NO_FAULT))
		ask = HMM_PFN_REQ_FAULT | (flags & EDU_HMM_WRITE ? HMM_PFN_REQ_WRITE : 0);
	if (flags & EDU_HMM_ODD) {
		range.default_flags = 0;
		range.pfn_flags_mask = ask;
	} else {
		range.default_flags |= ask;
	}
	for (;;) {
		range.nr_p2p_refused = 0;
		for (i = 0; i < n && range.pfn_flags_mask; i++)
			pfns[i] = i & 1 ? ask : 0;
		ret = hmm_range_fault_unlocked_timeout(&range, EDU_TIMEOUT);
		if (ret)
			return ret == -EBUSY ? -ETIME : ret;
		mutex_lock(&m->lock);
		if (!mmu_interval_read_retry(&m->notifier, range.notifier_seq))
			break;
		mutex_unlock(&m->lock);
		if (time_after(jiffies, deadline))
			return -ETIME;
	}
	m->stats.faults++;
	*refused += range.nr_p2p_refused;
	ret = edu_enter(m, first, n, pfns);
	mutex_unlock(&m->lock);
	return ret;
}

static int edu_fault(struct edu_mirror *m, unsigned long first, unsigned long npages, u32 flags,
		     u64 *refused)
{
	unsigned long *pfns, n;
	int ret = 0;

	if (flags & EDU_HMM_DOWNGRADE)
		return -EINVAL;
	pfns = kvcalloc(min(npages, EDU_WALK_PAGES), sizeof(*pfns), GFP_KERNEL);
	if (!pfns)
		return -ENOMEM;
	for (; npages && !ret; first += n, npages -= n) {
		n = min(npages, EDU_WALK_PAGES);
		ret = edu_walk(m, first, n, flags, pfns, refused);
	}
	kvfree(pfns);
	return ret;
}

/*
 * May the caller use @len bytes of the range from @addr on? All calls begin with this check, with
 * gone_lock held. Return: 0, or an errno.
 */
static int edu_check(struct edu_mirror *m, u64 addr, u64 len)
{
	/* Pairs with smp_store_release() in edu_ioctl_register(). */
	unsigned long npages = smp_load_acquire(&m->npages);
	u64 size = (u64)npages << PAGE_SHIFT;

	if (m->edu->gone)
		return -ENODEV;
	if (!npages)
		return -ENXIO;
	if (current->mm != m->mm)
		return -EPERM;
	if (!len || addr < m->start || addr - m->start >= size || len > size - (addr - m->start))
		return -EINVAL;
	return 0;
}

/**
 * edu_check_pages - may the caller use pages of the range?
 * @m: the open file, with gone_lock of the device held
 * @addr: page aligned address of the first page
 * @npages: number of pages
 *
 * Return: 0, or an errno.
 */
int edu_check_pages(struct edu_mirror *m, u64 addr, u64 npages)
{
	int ret;

	/* Before the conversion to bytes, which could overflow. */
	if (npages > EDU_HMM_MAX_PAGES)
		npages = EDU_HMM_MAX_PAGES + 1;
	ret = edu_check(m, addr, npages << PAGE_SHIFT);
	if (!ret && !PAGE_ALIGNED(addr))
		ret = -EINVAL;
	return ret;
}

/**
 * edu_shape - which kind of DMA addresses a range has
 * @dev: the device that does the DMA
 * @map: the map of the range
 *
 * Return: the value for EDU_HMM_REGISTER.
 */
enum edu_hmm_shape edu_shape(struct device *dev, struct hmm_dma_map *map)
{
	if (dma_use_iova(&map->state))
		return EDU_HMM_IOVA;
	return dma_need_unmap(dev) ? EDU_HMM_LIST : EDU_HMM_DIRECT;
}

static int edu_map(struct edu_mirror *m, struct edu_hmm_register *cmd)
{
	struct device *dev = &m->edu->pdev->dev;
	int ret;

	if (cmd->flags)
		return -EINVAL;
	m->dma = kvcalloc(cmd->npages, sizeof(*m->dma), GFP_KERNEL);
	if (!m->dma)
		return -ENOMEM;
	ret = hmm_dma_map_alloc(dev, &m->map, cmd->npages, PAGE_SIZE);
	if (ret)
		goto free_dma;
	cmd->shape = edu_shape(dev, &m->map);
	m->mapped = true;
	ret = mmu_interval_notifier_insert(&m->notifier, current->mm, cmd->addr,
					   cmd->npages << PAGE_SHIFT, &edu_notifier_ops);
	if (ret)
		goto free_map;
	return 0;

free_map:
	m->mapped = false;
	hmm_dma_map_free(dev, &m->map);
free_dma:
	kvfree(m->dma);
	return ret;
}

/* Undo edu_ioctl_register(), with gone_lock held. */
static void edu_unregister(struct edu_mirror *m)
{
	/* As long as the notifier is there, no mapped page is freed. */
	m->backend->unmap(m);
	/* A umem has a notifier of its own. */
	if (m->notifier.mm)
		mmu_interval_notifier_remove(&m->notifier);
	kvfree(m->dma);
	mmdrop(m->mm);
}

static int edu_ioctl_register(struct edu_mirror *m, void __user *arg)
{
	struct edu *edu = m->edu;
	struct edu_hmm_register cmd;
	int ret;

	if (copy_from_user(&cmd, arg, sizeof(cmd)))
		return -EFAULT;
	if (!cmd.npages || cmd.npages > EDU_HMM_MAX_PAGES || !PAGE_ALIGNED(cmd.addr) ||
	    cmd.addr + (cmd.npages << PAGE_SHIFT) < cmd.addr)
		return -EINVAL;

	ACQUIRE(mutex_intr, call)(&m->call);
	ret = ACQUIRE_ERR(mutex_intr, &call);
	if (ret)
		return ret;
	guard(rwsem_read)(&edu->gone_lock);
	if (edu->gone)
		return -ENODEV;
	if (m->npages)
		return -EBUSY;

	m->start = cmd.addr;
	ret = m->backend->map(m, &cmd);
	if (ret)
		goto reset;
	m->mm = current->mm;
	mmgrab(m->mm);
	if (copy_to_user(arg, &cmd, sizeof(cmd))) {
		ret = -EFAULT;
		edu_unregister(m);
		goto reset;
	}
	mutex_lock(&edu->mirrors_lock);
	list_add(&m->list, &edu->mirrors);
	mutex_unlock(&edu->mirrors_lock);
	smp_store_release(&m->npages, cmd.npages);
	return 0;

reset:
	m->dma = NULL;
	memset(&m->map, 0, sizeof(m->map));
	memset(&m->notifier, 0, sizeof(m->notifier));
	return ret;
}

static int edu_ioctl_fault(struct edu_mirror *m, void __user *arg)
{
	struct edu_hmm_fault cmd;
	int ret;

	if (copy_from_user(&cmd, arg, sizeof(cmd)))
		return -EFAULT;
	if (cmd.flags & ~(EDU_HMM_WRITE | EDU_HMM_NO_FAULT | EDU_HMM_DOWNGRADE | EDU_HMM_ODD) ||
	    cmd.pad)
		return -EINVAL;

	guard(rwsem_read)(&m->edu->gone_lock);
	ret = edu_check_pages(m, cmd.addr, cmd.npages);
	if (ret)
		return ret;
	cmd.refused = 0;
	ret = m->backend->fault(m, PHYS_PFN(cmd.addr - m->start), cmd.npages, cmd.flags,
				&cmd.refused);
	if (ret)
		return ret;
	return copy_to_user(arg, &cmd, sizeof(cmd)) ? -EFAULT : 0;
}

static void edu_describe(struct edu_mirror *m, unsigned long idx, struct edu_hmm_page *out)
{
	unsigned long entry = m->map.pfn_list[idx];

	if (!edu_present(m, idx))
		return;
	out->write = edu_writable(m, idx);
	if (!(entry & HMM_PFN_DMA_MAPPED)) {
		out->how = EDU_HMM_LOCAL;
		return;
	}
	out->dma = m->dma[idx];
	out->phys = hmm_pfn_to_phys(entry);
	if (!is_pci_p2pdma_page(hmm_pfn_to_page(entry)))
		out->how = EDU_HMM_RAM;
	else
		out->how = entry & HMM_PFN_P2PDMA_BUS ? EDU_HMM_BUS : EDU_HMM_BRIDGE;
}

static int edu_ioctl_state(struct edu_mirror *m, void __user *arg)
{
	struct edu_hmm_page *pages;
	struct edu_hmm_state cmd;
	unsigned long i;
	int ret;

	if (copy_from_user(&cmd, arg, sizeof(cmd)))
		return -EFAULT;

	guard(rwsem_read)(&m->edu->gone_lock);
	ret = edu_check_pages(m, cmd.addr, cmd.npages);
	if (ret)
		return ret;
	pages = kvcalloc(cmd.npages, sizeof(*pages), GFP_KERNEL);
	if (!pages)
		return -ENOMEM;
	mutex_lock(&m->lock);
	for (i = 0; i < cmd.npages; i++)
		edu_describe(m, PHYS_PFN(cmd.addr - m->start) + i, pages + i);
	mutex_unlock(&m->lock);
	ret = copy_to_user(u64_to_user_ptr(cmd.pages), pages, cmd.npages * sizeof(*pages)) ?
		      -EFAULT :
		      0;
	kvfree(pages);
	return ret;
}

/* A complete transfer between the staging page and the buffer of the device. */
static int edu_stage(struct edu *edu, size_t len, enum edu_direction direction)
{
	edu_engine_start(edu, edu->staging_dma, len, direction);
	return edu_engine_wait(edu);
}

/*
 * Start a transfer between the buffer and the memory. Memory of the device itself is copied at
 * once. m->lock is held, and the page is present.
 */
static void edu_start(struct edu_mirror *m, const struct edu_hmm_dma *piece)
{
	unsigned long idx = PHYS_PFN(piece->addr - m->start);
	struct edu *edu = m->edu;
	void *local;

	m->stats.transfers++;
	if (m->map.pfn_list[idx] & HMM_PFN_DMA_MAPPED) {
		m->busy = idx;
		edu_engine_start(edu, m->dma[idx] + offset_in_page(piece->addr), piece->len,
				 piece->flags & EDU_HMM_WRITE ? EDU_TO_MEMORY : EDU_FROM_MEMORY);
		return;
	}
	local = page_address(edu_memory_backing(hmm_pfn_to_page(m->map.pfn_list[idx]))) +
		offset_in_page(piece->addr);
	if (piece->flags & EDU_HMM_WRITE)
		memcpy(local, edu->staging, piece->len);
	else
		memcpy(edu->staging, local, piece->len);
}

/* Fault until the page of @piece is in the device page table. Then m->lock is held. */
static int edu_lock_page(struct edu_mirror *m, const struct edu_hmm_dma *piece)
{
	bool write = piece->flags & EDU_HMM_WRITE;
	unsigned long idx = PHYS_PFN(piece->addr - m->start);
	unsigned long deadline = jiffies + EDU_TIMEOUT;
	u64 refused = 0;
	int ret;

	for (;;) {
		mutex_lock(&m->lock);
		if (edu_present(m, idx) && (!write || edu_writable(m, idx)))
			return 0;
		mutex_unlock(&m->lock);
		if (piece->flags & EDU_HMM_NO_FAULT)
			return -ENOENT;
		if (time_after(jiffies, deadline))
			return -ETIME;
		ret = m->backend->fault(m, idx, 1, piece->flags & EDU_HMM_WRITE, &refused);
		if (ret)
			return ret;
	}
}

/* Start the memory's part of a transfer. The piece lies in one page and fits into the buffer. */
static int edu_begin(struct edu_mirror *m, const struct edu_hmm_dma *piece)
{
	int ret;

	if (m->edu->stuck)
		return -EIO;
	if (piece->flags & EDU_HMM_WRITE) {
		if (copy_from_user(m->edu->staging, u64_to_user_ptr(piece->ptr), piece->len))
			return -EFAULT;
		ret = edu_stage(m->edu, piece->len, EDU_FROM_MEMORY);
		if (ret)
			return ret;
	}
	ret = edu_lock_page(m, piece);
	if (ret)
		return ret;
	edu_start(m, piece);
	mutex_unlock(&m->lock);
	return 0;
}

static int edu_end(struct edu_mirror *m, const struct edu_hmm_dma *piece)
{
	bool bus;
	int ret;

	ret = edu_engine_wait(m->edu);
	mutex_lock(&m->lock);
	bus = m->busy >= 0;
	m->busy = -1;
	mutex_unlock(&m->lock);
	if (ret || piece->flags & EDU_HMM_WRITE)
		return ret;
	if (bus)
		ret = edu_stage(m->edu, piece->len, EDU_TO_MEMORY);
	if (!ret && copy_to_user(u64_to_user_ptr(piece->ptr), m->edu->staging, piece->len))
		ret = -EFAULT;
	return ret;
}

/* EDU_HMM_CPU. Invalidation waits for m->lock, as it waits for the engine. */
static int edu_copy(struct edu_mirror *m, const struct edu_hmm_dma *cmd)
{
	unsigned long idx = PHYS_PFN(cmd->addr - m->start);
	bool write = cmd->flags & EDU_HMM_WRITE;
	void *buf __free(kfree) = NULL;
	struct page *page;
	void *at;
	int ret;

	if (cmd->len > PAGE_SIZE - offset_in_page(cmd->addr) || cmd->flags & EDU_HMM_ASYNC)
		return -EINVAL;
	buf = kmalloc(PAGE_SIZE, GFP_KERNEL);
	if (!buf)
		return -ENOMEM;
	guard(rwsem_read)(&m->edu->gone_lock);
	ret = edu_check(m, cmd->addr, cmd->len);
	if (ret)
		return ret;
	if (write && copy_from_user(buf, u64_to_user_ptr(cmd->ptr), cmd->len))
		return -EFAULT;
	ret = edu_lock_page(m, cmd);
	if (ret)
		return ret;
	m->stats.transfers++;
	page = hmm_pfn_to_page(m->map.pfn_list[idx]);
	if (!(m->map.pfn_list[idx] & HMM_PFN_DMA_MAPPED))
		page = edu_memory_backing(page);
	at = page_address(page) + offset_in_page(cmd->addr);
	if (write)
		memcpy(at, buf, cmd->len);
	else
		memcpy(buf, at, cmd->len);
	mutex_unlock(&m->lock);
	if (!write && copy_to_user(u64_to_user_ptr(cmd->ptr), buf, cmd->len))
		return -EFAULT;
	return 0;
}

static int edu_ioctl_dma(struct edu_mirror *m, void __user *arg)
{
	struct edu *edu = m->edu;
	struct edu_hmm_dma cmd, piece;
	u64 done;
	int ret;

	if (copy_from_user(&cmd, arg, sizeof(cmd)))
		return -EFAULT;
	if (cmd.flags & ~(EDU_HMM_WRITE | EDU_HMM_NO_FAULT | EDU_HMM_ASYNC | EDU_HMM_CPU) ||
	    cmd.pad)
		return -EINVAL;
	if (cmd.flags & EDU_HMM_CPU)
		return edu_copy(m, &cmd);

	ACQUIRE(mutex_intr, call)(&m->call);
	ret = ACQUIRE_ERR(mutex_intr, &call);
	if (ret)
		return ret;
	scoped_guard(rwsem_read, &edu->gone_lock)
		ret = edu_check(m, cmd.addr, cmd.len);
	if (ret)
		return ret;
	if (m->async.len)
		return -EBUSY;
	if (cmd.flags & EDU_HMM_ASYNC &&
	    cmd.len > EDU_HMM_ASYNC_BYTES - cmd.addr % EDU_HMM_ASYNC_BYTES)
		return -EINVAL;
	/*
	 * Do not hold gone_lock while waiting for the engine: its user needs gone_lock to continue.
	 */
	if (down_interruptible(&edu->engine))
		return -EINTR;
	piece = cmd;
	for (done = 0; !ret && done < cmd.len; done += piece.len) {
		piece.addr = cmd.addr + done;
		piece.ptr = cmd.ptr + done;
		piece.len =
			min(cmd.len - done, EDU_HMM_ASYNC_BYTES - piece.addr % EDU_HMM_ASYNC_BYTES);
		/* Removal of the device waits no longer than for one piece. */
		guard(rwsem_read)(&edu->gone_lock);
		ret = edu->gone ? -ENODEV : edu_begin(m, &piece);
		if (!ret && !(cmd.flags & EDU_HMM_ASYNC))
			ret = edu_end(m, &piece);
		if (!ret && fatal_signal_pending(current))
			ret = -EINTR;
	}
	if (!ret && cmd.flags & EDU_HMM_ASYNC)
		m->async = cmd;
	else
		up(&edu->engine);
	return ret;
}

static int edu_wait(struct edu_mirror *m)
{
	struct edu *edu = m->edu;
	int ret;

	/*
	 * The data belong to the process that requested them. Here another process ends the
	 * transfer, or the file is closed.
	 */
	if (current->mm != m->mm)
		m->async.flags |= EDU_HMM_WRITE;
	down_read(&edu->gone_lock);
	ret = edu->gone ? -ENODEV : edu_end(m, &m->async);
	up_read(&edu->gone_lock);
	m->async.len = 0;
	up(&edu->engine);
	return ret;
}

static int edu_ioctl_wait(struct edu_mirror *m)
{
	int ret;

	ACQUIRE(mutex_intr, call)(&m->call);
	ret = ACQUIRE_ERR(mutex_intr, &call);
	if (ret)
		return ret;
	return m->async.len ? edu_wait(m) : -EINVAL;
}

static int edu_ioctl_migrate(struct edu_mirror *m, void __user *arg)
{
	struct edu_hmm_migrate cmd;
	int ret;

	if (copy_from_user(&cmd, arg, sizeof(cmd)))
		return -EFAULT;

	guard(rwsem_read)(&m->edu->gone_lock);
	ret = edu_check_pages(m, cmd.addr, cmd.npages);
	if (!ret && cmd.npages > EDU_HMM_LOCAL_PAGES)
		ret = -EINVAL;
	if (!ret)
		ret = edu_memory_migrate(m->edu, cmd.addr, cmd.addr + (cmd.npages << PAGE_SHIFT),
					 &cmd.moved);
	if (ret)
		return ret;
	return copy_to_user(arg, &cmd, sizeof(cmd)) ? -EFAULT : 0;
}

static long edu_ioctl_hmm(struct edu_mirror *m, unsigned int command, void __user *arg)
{
	return command == EDU_HMM_MIGRATE ? edu_ioctl_migrate(m, arg) : -ENOTTY;
}

const struct edu_backend edu_hmm_backend = {
	.name = "edu_hmm",
	.map = edu_map,
	.unmap = edu_unmap,
	.fault = edu_fault,
	.ioctl = edu_ioctl_hmm,
};

static int edu_ioctl_stats(struct edu_mirror *m, void __user *arg)
{
	struct edu_hmm_stats stats;

	mutex_lock(&m->lock);
	stats = m->stats;
	stats.in_flight = m->busy >= 0 && !completion_done(&m->edu->idle);
	mutex_unlock(&m->lock);
	return copy_to_user(arg, &stats, sizeof(stats)) ? -EFAULT : 0;
}

static long edu_ioctl(struct file *file, unsigned int command, unsigned long arg)
{
	struct edu_mirror *m = file->private_data;
	void __user *uarg = (void __user *)arg;

	switch (command) {
	case EDU_HMM_REGISTER:
		return edu_ioctl_register(m, uarg);
	case EDU_HMM_FAULT:
		return edu_ioctl_fault(m, uarg);
	case EDU_HMM_STATE:
		return edu_ioctl_state(m, uarg);
	case EDU_HMM_DMA:
		return edu_ioctl_dma(m, uarg);
	case EDU_HMM_WAIT:
		return edu_ioctl_wait(m);
	case EDU_HMM_STATS:
		return edu_ioctl_stats(m, uarg);
	}
	return m->backend->ioctl(m, command, uarg);
}

static void edu_free(struct kref *ref)
{
	kfree(container_of(ref, struct edu, ref));
}

/**
 * edu_put - drop a reference: that of the driver, or that of an open file
 * @edu: the device
 */
void edu_put(struct edu *edu)
{
	kref_put(&edu->ref, edu_free);
}

static int edu_open(struct inode *inode, struct file *file)
{
	struct edu_node *node = container_of(file->private_data, struct edu_node, misc);
	struct edu *edu = node->edu;
	struct edu_mirror *m;

	m = kzalloc_obj(*m);
	if (!m)
		return -ENOMEM;
	/* misc_deregister() waits for open(), and the driver keeps its reference until then. */
	kref_get(&edu->ref);
	m->edu = edu;
	m->backend = node->backend;
	m->busy = -1;
	mutex_init(&m->call);
	mutex_init(&m->lock);
	file->private_data = m;
	return 0;
}

static int edu_release(struct inode *inode, struct file *file)
{
	struct edu_mirror *m = file->private_data;
	struct edu *edu = m->edu;

	if (m->async.len) {
		/* No process is left that could get the data. */
		m->async.flags |= EDU_HMM_WRITE;
		edu_wait(m);
	}
	if (m->npages) {
		down_read(&edu->gone_lock);
		edu_unregister(m);
		mutex_lock(&edu->mirrors_lock);
		list_del(&m->list);
		mutex_unlock(&edu->mirrors_lock);
		up_read(&edu->gone_lock);
	}
	kfree(m);
	edu_put(edu);
	return 0;
}

const struct file_operations edu_fops = {
	.owner = THIS_MODULE,
	.open = edu_open,
	.release = edu_release,
	.unlocked_ioctl = edu_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};
