// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/hmm_bench: measures hmm_range_fault() and the on-demand paging of the RDMA core, on kernels
 * with and without the patches. The calling program prepares the memory. Only the call itself is
 * measured.
 */
#include <linux/cleanup.h>
#include <linux/file.h>
#include <linux/highmem.h>
#include <linux/hmm.h>
#include <linux/hmm-dma.h>
#include <linux/io.h>
#include <linux/memremap.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/pci-p2pdma.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <rdma/ib_umem_odp.h>
#include <rdma/ib_verbs.h>

#include <asm/msr.h>

#include "hmm_bench_uapi.h"

/* The edu device of QEMU, which needs no driver here */
#define EDU_VENDOR	0x1234
#define EDU_DEVICE	0x11e8

/**
 * struct hmm_bench_ib - an RDMA device that is not registered
 * @ibdev: umems only need the device that does the DMA, if there is one
 */
struct hmm_bench_ib {
	struct ib_device ibdev;
};

static struct pci_dev *hmm_bench_edu;
static struct ib_device *hmm_bench_dma, *hmm_bench_virt;

/**
 * struct hmm_bench - an open file
 * @notifier: covers the whole address space of the process that opened the file
 * @lock: taken by @notifier
 */
struct hmm_bench {
	struct mmu_interval_notifier notifier;
	struct mutex lock;
};

static bool hmm_bench_invalidate(struct mmu_interval_notifier *mni,
				 const struct mmu_notifier_range *inv, unsigned long seq)
{
	struct hmm_bench *bench = container_of(mni, struct hmm_bench, notifier);

	if (!mmu_notifier_range_blockable(inv))
		return false;
	guard(mutex)(&bench->lock);
	mmu_interval_set_seq(mni, seq);
	return true;
}

static const struct mmu_interval_notifier_ops hmm_bench_notifier_ops = {
	.invalidate = hmm_bench_invalidate,
};

static bool hmm_bench_odp_invalidate(struct mmu_interval_notifier *mni,
				     const struct mmu_notifier_range *inv, unsigned long seq)
{
	struct ib_umem_odp *umem = container_of(mni, struct ib_umem_odp, notifier);

	if (!mmu_notifier_range_blockable(inv))
		return false;
	guard(mutex)(&umem->umem_mutex);
	mmu_interval_set_seq(mni, seq);
	ib_umem_odp_unmap_dma_pages(umem, max(ib_umem_start(umem), inv->start),
				    min(ib_umem_end(umem), inv->end));
	return true;
}

static const struct mmu_interval_notifier_ops hmm_bench_odp_notifier_ops = {
	.invalidate = hmm_bench_odp_invalidate,
};

/* rdtsc() is volatile, so the compiler does not move calls across it. */
static u64 hmm_bench_since(u64 start)
{
	return rdtsc() - start;
}

static void hmm_bench_clock(struct hmm_bench_cmd *cmd)
{
	unsigned int n = 500;
	u64 start = rdtsc();

	asm volatile("1: dec %0\n\tjnz 1b" : "+r" (n));
	cmd->cost = hmm_bench_since(start);
}

static int hmm_bench_copy(struct hmm_bench_cmd *cmd)
{
	struct page *from = alloc_page(GFP_KERNEL | __GFP_ZERO);
	struct page *to = alloc_page(GFP_KERNEL);
	int ret = -ENOMEM;
	u64 start;

	if (!from || !to)
		goto free;
	start = rdtsc();
	if (cmd->what == HMM_BENCH_COPY)
		copy_highpage(to, from);
	else
		memcpy_fromio(page_address(to), (void __iomem __force *)page_address(from),
			      PAGE_SIZE);
	cmd->cost = hmm_bench_since(start);
	ret = 0;
free:
	if (to)
		__free_page(to);
	if (from)
		__free_page(from);
	return ret;
}

static void hmm_bench_count(struct hmm_bench_cmd *cmd, const unsigned long *pfns, unsigned long n)
{
	for (unsigned long i = 0; i < n; i++) {
		if (!(pfns[i] & HMM_PFN_VALID))
			continue;
		cmd->valid++;
		cmd->huge += hmm_pfn_to_map_order(pfns[i]) == PMD_SHIFT - PAGE_SHIFT;
		cmd->p2p += is_pci_p2pdma_page(hmm_pfn_to_page(pfns[i]));
		cmd->owned += is_device_private_page(hmm_pfn_to_page(pfns[i]));
	}
}

/*
 * Not inlined, so that the instructions around the call do not depend on how the rest is compiled.
 */
static noinline int hmm_bench_range_fault(struct hmm_range *range, u64 *cost)
{
	u64 start = rdtsc();
	int ret = hmm_range_fault(range);

	*cost += hmm_bench_since(start);
	return ret;
}

static int hmm_bench_walk(struct hmm_bench *bench, struct hmm_bench_cmd *cmd)
{
	unsigned long *pfns __free(kvfree) = kvcalloc(cmd->npages, sizeof(*pfns), GFP_KERNEL);
	struct file *mirror __free(fput) = NULL;
	struct hmm_range range = {
		.notifier = &bench->notifier,
		.start = cmd->addr,
		.end = cmd->addr + (cmd->npages << PAGE_SHIFT),
		.hmm_pfns = pfns,
	};
	int ret;

	if (!pfns)
		return -ENOMEM;
	if (cmd->owner >= 0) {
		mirror = fget(cmd->owner);
		if (!mirror)
			return -EBADF;
		/* The owner is the device, which is the first field of the file of test_hmm. */
		range.dev_private_owner = *(void **)mirror->private_data;
	}
	if (cmd->flags & HMM_BENCH_FAULT)
		range.default_flags |= HMM_PFN_REQ_FAULT;
	if (cmd->flags & HMM_BENCH_WRITE)
		range.default_flags |= HMM_PFN_REQ_WRITE;
	if (cmd->flags & HMM_BENCH_P2P) {
#ifdef HMM_P2P_PATCHED
		if (!hmm_bench_edu)
			return -ENODEV;
		range.default_flags |= HMM_PFN_ALLOW_P2P;
		range.dma_dev = &hmm_bench_edu->dev;
#else
		return -EOPNOTSUPP;
#endif
	}

	do {
		cond_resched();
		range.notifier_seq = mmu_interval_read_begin(range.notifier);
		mmap_read_lock(current->mm);
		ret = hmm_bench_range_fault(&range, &cmd->cost);
		mmap_read_unlock(current->mm);
	} while (ret == -EBUSY && !fatal_signal_pending(current));
	if (ret)
		return ret;
	hmm_bench_count(cmd, pfns, cmd->npages);
	return 0;
}

/* The same as populate_mtt() of mlx5. */
static int hmm_bench_table(struct ib_umem_odp *umem, __be64 *table, size_t n)
{
	struct pci_p2pdma_map_state state = {};
	dma_addr_t dma;
	size_t i;

	for (i = 0; i < n; i++) {
		unsigned long pfn = umem->map.pfn_list[i];

		if (!(pfn & HMM_PFN_VALID)) {
			table[i] = 0;
			continue;
		}
		dma = hmm_dma_map_pfn(umem->umem.ibdev->dma_device, &umem->map, i, &state);
		if (ib_dma_mapping_error(umem->umem.ibdev, dma))
			return -EFAULT;
		umem->npages++;
		dma |= 1;
		if (pfn & HMM_PFN_WRITE)
			dma |= 2;
		table[i] = cpu_to_be64(dma);
	}
	return 0;
}

/*
 * Map all pages of an MR and fill the table of the device. Returns with umem_mutex held, unless it
 * fails.
 */
static int hmm_bench_map(struct ib_umem_odp *umem, struct hmm_bench_cmd *cmd, __be64 *table)
{
	u64 start = rdtsc();
	int ret;

	ret = ib_umem_odp_map_dma_and_lock(umem, cmd->addr, cmd->npages << PAGE_SHIFT,
					   cmd->flags & HMM_BENCH_WRITE ? HMM_PFN_WRITE : 0,
					   cmd->flags & HMM_BENCH_FAULT);
	if (ret < 0)
		return ret;
	ret = cmd->what == HMM_BENCH_ODP_VIRT ? 0 : hmm_bench_table(umem, table, cmd->npages);
	mutex_unlock(&umem->umem_mutex);
	cmd->cost = hmm_bench_since(start);
	if (!ret)
		mutex_lock(&umem->umem_mutex);
	return ret;
}

static int hmm_bench_odp(struct hmm_bench_cmd *cmd)
{
	struct ib_device *ibdev = cmd->what == HMM_BENCH_ODP_VIRT ? hmm_bench_virt : hmm_bench_dma;
	__be64 *table __free(kvfree) = kvcalloc(cmd->npages, sizeof(*table), GFP_KERNEL);
	int access = IB_ACCESS_ON_DEMAND | IB_ACCESS_LOCAL_WRITE;
	u64 size = cmd->npages << PAGE_SHIFT;
	struct ib_umem_odp *umem;
	u64 start;
	int ret;

	if (!ibdev)
		return -ENODEV;
	if (!table)
		return -ENOMEM;
#ifdef HMM_P2P_PATCHED
	if (cmd->flags & HMM_BENCH_P2P)
		access |= IB_ACCESS_ODP_P2P;
#endif
	umem = ib_umem_odp_get(ibdev, cmd->addr, size, access, &hmm_bench_odp_notifier_ops);
	if (IS_ERR(umem))
		return PTR_ERR(umem);

	ret = hmm_bench_map(umem, cmd, table);
	if (ret < 0)
		goto release;
	hmm_bench_count(cmd, umem->map.pfn_list, cmd->npages);
	start = rdtsc();
	ib_umem_odp_unmap_dma_pages(umem, cmd->addr, cmd->addr + size);
	cmd->unmap = hmm_bench_since(start);
	mutex_unlock(&umem->umem_mutex);
release:
	ib_umem_odp_release(umem);
	return ret;
}

static long hmm_bench_ioctl(struct file *file, unsigned int command, unsigned long arg)
{
	struct hmm_bench *bench = file->private_data;
	struct hmm_bench_cmd cmd;
	int ret = 0;

	if (command != HMM_BENCH_MEASURE)
		return -ENOTTY;
	if (copy_from_user(&cmd, (void __user *)arg, sizeof(cmd)))
		return -EFAULT;
	if (bench->notifier.mm != current->mm || !PAGE_ALIGNED(cmd.addr))
		return -EINVAL;
	cmd = (struct hmm_bench_cmd) {
		.addr = cmd.addr,
		.npages = cmd.npages,
		.what = cmd.what,
		.flags = cmd.flags,
		.owner = cmd.owner,
	};
	switch (cmd.what) {
	case HMM_BENCH_CLOCK:
		hmm_bench_clock(&cmd);
		break;
	case HMM_BENCH_COPY:
	case HMM_BENCH_COPY_BAR:
		ret = hmm_bench_copy(&cmd);
		break;
	case HMM_BENCH_WALK:
		ret = hmm_bench_walk(bench, &cmd);
		break;
	case HMM_BENCH_ODP:
	case HMM_BENCH_ODP_VIRT:
		ret = hmm_bench_odp(&cmd);
		break;
	default:
		ret = -EINVAL;
	}
	if (!ret && copy_to_user((void __user *)arg, &cmd, sizeof(cmd)))
		ret = -EFAULT;
	return ret;
}

static int hmm_bench_open(struct inode *inode, struct file *file)
{
	struct hmm_bench *bench = kzalloc_obj(*bench);
	int ret;

	if (!bench)
		return -ENOMEM;
	mutex_init(&bench->lock);
	ret = mmu_interval_notifier_insert(&bench->notifier, current->mm, 0,
					   ULONG_MAX & PAGE_MASK, &hmm_bench_notifier_ops);
	if (ret) {
		kfree(bench);
		return ret;
	}
	file->private_data = bench;
	return 0;
}

static int hmm_bench_release(struct inode *inode, struct file *file)
{
	struct hmm_bench *bench = file->private_data;

	mmu_interval_notifier_remove(&bench->notifier);
	kfree(bench);
	return 0;
}

static const struct file_operations hmm_bench_fops = {
	.owner = THIS_MODULE,
	.open = hmm_bench_open,
	.release = hmm_bench_release,
	.unlocked_ioctl = hmm_bench_ioctl,
};

static struct miscdevice hmm_bench_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "hmm_bench",
	.fops = &hmm_bench_fops,
};

static struct ib_device *hmm_bench_ib(struct device *dma_device)
{
	struct hmm_bench_ib *ib = ib_alloc_device(hmm_bench_ib, ibdev);

	if (!ib)
		return NULL;
	ib->ibdev.dma_device = dma_device;
#ifdef HMM_P2P_PATCHED
	ib->ibdev.attrs.odp_caps.general_caps = IB_ODP_SUPPORT_P2P;
#endif
	return &ib->ibdev;
}

static void hmm_bench_free(void)
{
	if (hmm_bench_virt)
		ib_dealloc_device(hmm_bench_virt);
	if (hmm_bench_dma)
		ib_dealloc_device(hmm_bench_dma);
	pci_dev_put(hmm_bench_edu);
}

static int __init hmm_bench_init(void)
{
	int ret = -ENOMEM;

	hmm_bench_virt = hmm_bench_ib(NULL);
	if (!hmm_bench_virt)
		goto free;
	/* Groups that need no device run without one. */
	hmm_bench_edu = pci_get_device(EDU_VENDOR, EDU_DEVICE, NULL);
	if (hmm_bench_edu) {
		ret = dma_set_mask_and_coherent(&hmm_bench_edu->dev, DMA_BIT_MASK(64));
		if (ret)
			goto free;
		ret = -ENOMEM;
		hmm_bench_dma = hmm_bench_ib(&hmm_bench_edu->dev);
		if (!hmm_bench_dma)
			goto free;
	}
	ret = misc_register(&hmm_bench_misc);
	if (!ret)
		return 0;

free:
	hmm_bench_free();
	return ret;
}

static void __exit hmm_bench_exit(void)
{
	misc_deregister(&hmm_bench_misc);
	hmm_bench_free();
}

module_init(hmm_bench_init);
module_exit(hmm_bench_exit);
MODULE_DESCRIPTION("Cost of hmm_range_fault() and of on-demand paging");
MODULE_LICENSE("GPL");
