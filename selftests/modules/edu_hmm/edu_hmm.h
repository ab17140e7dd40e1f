/* SPDX-License-Identifier: GPL-2.0 */
#ifndef EDU_HMM_H
#define EDU_HMM_H

#include <linux/completion.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/miscdevice.h>
#include <linux/mutex.h>
#include <linux/rwsem.h>
#include <linux/semaphore.h>

#include "edu_hmm_uapi.h"

struct pci_dev;
struct edu_memory;

/**
 * struct edu - one edu device
 * @pdev: the PCI device; only to be used with @gone_lock held and @gone false, or by a mirror with its lock held and
 *	something mapped
 * @gone_lock: held for reading by whoever uses the device, for writing to take it away
 * @gone: the device was taken away
 * @stuck: a transfer did not end
 * @regs: its registers
 * @staging: one page of coherent memory, on the way to and from the buffer of the device
 * @staging_dma: its DMA address
 * @engine: the right to use the DMA engine and @staging. A semaphore, because EDU_HMM_ASYNC keeps it on return to user space
 * @idle: the DMA engine has finished what it was told last
 * @mirrors: all open files with a range, protected by @mirrors_lock
 * @mirrors_lock: see @mirrors
 * @memory: its device private memory, NULL until first used, set under @memory_lock
 * @memory_lock: see @memory
 * @misc: /dev/edu_hmmN
 * @id: N
 * @name: of @misc
 * @ref: one of the driver, one of each open file
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

	struct miscdevice misc;
	int id;
	char name[24];
	struct kref ref;
};

/* engine.c */
enum edu_direction { EDU_FROM_MEMORY, EDU_TO_MEMORY };

void edu_engine_start(struct edu *edu, dma_addr_t dma, size_t len, enum edu_direction direction);
int edu_engine_wait(struct edu *edu);
void edu_free(struct kref *ref);

/* mirror.c */
extern const struct file_operations edu_fops;

void edu_mirrors_unmap(struct edu *edu);

/* memory.c */
int edu_memory_migrate(struct edu *edu, unsigned long start, unsigned long end, u64 *moved);
struct page *edu_memory_backing(struct page *page);
void edu_memory_free(struct edu *edu);

#endif /* EDU_HMM_H */
