/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef EDU_HMM_H
#define EDU_HMM_H

#include <linux/completion.h>
#include <linux/hmm-dma.h>
#include <linux/irqreturn.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/miscdevice.h>
#include <linux/mmu_notifier.h>
#include <linux/mutex.h>
#include <linux/rwsem.h>
#include <linux/semaphore.h>

#include "edu_hmm_uapi.h"

struct ib_device;
struct ib_umem_odp;
struct page;
struct pci_dev;
struct edu;
struct edu_memory;
struct edu_mirror;

/* Each invalidation in between can wait for several devices. */
#define EDU_TIMEOUT	(60 * HZ)

/**
 * struct edu_backend - how the memory of a range is looked up and DMA mapped
 * @name: name of the device node without its number
 * @map: prepare for a range; from then on its notifier may fire
 * @unmap: unmap everything, because the device goes away or the file is closed; a second call does
 *   nothing
 * @fault: fill the device page table for EDU_HMM_FAULT
 * @ioctl: calls that only this backend has
 *
 * All but @unmap are called with @gone_lock of the device held for reading, and the device is
 * there; @unmap with @gone_lock held. A backend keeps @map.pfn_list and @dma of struct edu_mirror,
 * the device page table, under @lock.
 */
struct edu_backend {
	const char *name;
	int (*map)(struct edu_mirror *m, struct edu_hmm_register *cmd);
	void (*unmap)(struct edu_mirror *m);
	int (*fault)(struct edu_mirror *m, unsigned long first, unsigned long npages, u32 flags,
		     u64 *refused);
	long (*ioctl)(struct edu_mirror *m, unsigned int command, void __user *arg);
};

/**
 * struct edu_node - a device node
 * @misc: /dev/NAME
 * @edu: the device
 * @backend: the backend of its files
 * @name: name of @misc
 */
struct edu_node {
	struct miscdevice misc;
	struct edu *edu;
	const struct edu_backend *backend;
	char name[24];
};

enum { EDU_NODE_HMM, EDU_NODE_ODP, EDU_NODES };

/**
 * struct edu - one edu device
 * @pdev: the PCI device; only to be used with @gone_lock held and @gone false, or by a mirror with
 *   its lock held and something mapped
 * @gone_lock: held for reading by users of the device, for writing by its removal
 * @gone: the device was removed
 * @stuck: a transfer did not end
 * @regs: its registers
 * @staging: one page of coherent memory, for data to and from the buffer of the device
 * @staging_dma: its DMA address
 * @engine: the right to use the DMA engine and @staging. A semaphore, because EDU_HMM_ASYNC keeps
 *   it on return to user space
 * @idle: the DMA engine has finished its last transfer
 * @mirrors: all open files with a range, protected by @mirrors_lock
 * @mirrors_lock: see @mirrors
 * @memory: its device private memory, NULL until first used, set under @memory_lock
 * @memory_lock: see @memory
 * @ibdev: the RDMA device of /dev/edu_odpN, which is not registered
 * @nodes: /dev/edu_hmmN, /dev/edu_odpN
 * @id: N
 * @name: name of the first of @nodes
 * @ref: held by the driver and by each open file
 */
struct edu {
	struct pci_dev *pdev;
	struct rw_semaphore gone_lock;
	bool gone;
	bool stuck;

	void __iomem *regs;
	void *staging;
	dma_addr_t staging_dma;
	struct semaphore engine;
	struct completion idle;

	struct list_head mirrors;
	struct mutex mirrors_lock;

	struct edu_memory *memory;
	struct mutex memory_lock;

	struct ib_device *ibdev;
	struct edu_node nodes[EDU_NODES];
	int id;
	char name[24];
	struct kref ref;
};

/**
 * struct edu_mirror - an open file
 * @edu: the device
 * @backend: backend of the node that was opened
 * @list: entry in @edu->mirrors, once there is a range
 * @call: held by calls that must not run at the same time
 * @mm: the address space of the range
 * @notifier: notifier of the range; a umem has its own
 * @umem: the range of /dev/edu_odpN; NULL when the device is gone
 * @lock: protects the fields below; the interval notifier takes it
 * @start: first address of the range
 * @npages: its length, 0 if there is none
 * @mapped: @map is allocated; false again when the device has gone
 * @map: the pages of the range, and the state of their DMA mapping; with @umem only the entries,
 *   copied when they were mapped
 * @dma: the device page table proper: DMA address of each page of @map that is mapped
 * @busy: the page that the DMA engine accesses, or -1
 * @stats: counters
 * @obstacle: the page that EDU_HMM_OBSTRUCT has mapped, protected by the mutex of @umem
 * @obstacle_idx: index of the page of @umem that it obstructs
 * @async: the transfer that EDU_HMM_WAIT has to finish; @async.len is 0 if there is none.
 *   Protected by @call
 */
struct edu_mirror {
	struct edu *edu;
	const struct edu_backend *backend;
	struct list_head list;
	struct mutex call;
	struct mm_struct *mm;
	struct mmu_interval_notifier notifier;
	struct ib_umem_odp *umem;

	struct mutex lock;
	unsigned long start;
	unsigned long npages;
	bool mapped;
	struct hmm_dma_map map;
	dma_addr_t *dma;
	long busy;
	struct edu_hmm_stats stats;

	struct page *obstacle;
	unsigned long obstacle_idx;

	struct edu_hmm_dma async;
};

/* engine.c */
enum edu_direction { EDU_FROM_MEMORY, EDU_TO_MEMORY };

void edu_engine_start(struct edu *edu, dma_addr_t dma, size_t len, enum edu_direction direction);
int edu_engine_wait(struct edu *edu);
irqreturn_t edu_engine_irq(int irq, void *data);

/* mirror.c */
extern const struct file_operations edu_fops;
extern const struct edu_backend edu_hmm_backend;

void edu_mirrors_unmap(struct edu *edu);
void edu_put(struct edu *edu);
bool edu_present(struct edu_mirror *m, unsigned long idx);
int edu_check_pages(struct edu_mirror *m, u64 addr, u64 npages);
enum edu_hmm_shape edu_shape(struct device *dev, struct hmm_dma_map *map);

/* odp.c */
#if IS_ENABLED(CONFIG_INFINIBAND_ON_DEMAND_PAGING)
extern const struct edu_backend edu_odp_backend;

int edu_odp_create(struct edu *edu);
void edu_odp_destroy(struct edu *edu);
#else
static inline int edu_odp_create(struct edu *edu) { return 0; }
static inline void edu_odp_destroy(struct edu *edu) { }
#endif

/* memory.c */
int edu_memory_migrate(struct edu *edu, unsigned long start, unsigned long end, u64 *moved);
struct page *edu_memory_backing(struct page *page);
void edu_memory_free(struct edu *edu);

#endif /* EDU_HMM_H */
