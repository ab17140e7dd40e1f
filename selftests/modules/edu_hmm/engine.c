// SPDX-License-Identifier: GPL-2.0-only
/*
 * The PCI side of QEMU's edu device (docs/specs/edu in its source): registers, interrupt, DMA
 * engine.
 *
 * The engine only moves bytes between a bus address and a buffer inside the device which the CPU
 * cannot see, so that data of the caller go through a page of coherent memory: two transfers for
 * each piece.
 */
#include <linux/dma-mapping.h>
#include <linux/idr.h>
#include <linux/interrupt.h>
#include <linux/module.h>
#include <linux/pci.h>

#include "edu_hmm.h"

#define EDU_IRQ_STATUS		0x24
#define EDU_IRQ_ACK		0x64
#define EDU_DMA_SRC		0x80
#define EDU_DMA_DST		0x88
#define EDU_DMA_COUNT		0x90
#define EDU_DMA_CMD		0x98
#define EDU_DMA_CMD_START	BIT(0)
#define EDU_DMA_CMD_TO_MEMORY	BIT(1)
#define EDU_DMA_CMD_IRQ		BIT(2)
/* Of 4 KiB, of which QEMU 7.2 does not let the last byte be used. */
#define EDU_BUFFER		0x40000

static unsigned int dma_bits = 64;
module_param(dma_bits, uint, 0444);
MODULE_PARM_DESC(dma_bits, "Width of the DMA mask (default 64).");

static DEFINE_IDA(edu_ids);

static irqreturn_t edu_irq(int irq, void *data)
{
	struct edu *edu = data;
	u32 status = readl(edu->regs + EDU_IRQ_STATUS);

	if (!status)
		return IRQ_NONE;
	writel(status, edu->regs + EDU_IRQ_ACK);
	complete_all(&edu->idle);
	return IRQ_HANDLED;
}

/**
 * edu_engine_start - let the DMA engine go
 * @edu: the device
 * @dma: DMA address of the memory
 * @len: number of bytes, at most EDU_HMM_ASYNC_BYTES
 * @direction: whether the memory is read or written
 *
 * The other side is the start of the buffer in the device. The caller has the engine,
 * @edu->gone_lock is held, and nothing is in flight.
 */
void edu_engine_start(struct edu *edu, dma_addr_t dma, size_t len, enum edu_direction direction)
{
	u32 cmd = EDU_DMA_CMD_START | EDU_DMA_CMD_IRQ;

	reinit_completion(&edu->idle);
	if (direction == EDU_TO_MEMORY) {
		cmd |= EDU_DMA_CMD_TO_MEMORY;
		writeq(EDU_BUFFER, edu->regs + EDU_DMA_SRC);
		writeq(dma, edu->regs + EDU_DMA_DST);
	} else {
		writeq(dma, edu->regs + EDU_DMA_SRC);
		writeq(EDU_BUFFER, edu->regs + EDU_DMA_DST);
	}
	writeq(len, edu->regs + EDU_DMA_COUNT);
	writeq(cmd, edu->regs + EDU_DMA_CMD);
}

/**
 * edu_engine_wait - wait for the end of what edu_engine_start() began
 * @edu: the device, under the same locks as for edu_engine_start(), or that of a mirror with
 *   something mapped
 *
 * Return: 0, or -EIO if the device does not answer. It then cannot do any DMA any more.
 */
int edu_engine_wait(struct edu *edu)
{
	if (wait_for_completion_timeout(&edu->idle, 60 * HZ))
		return 0;
	WARN(1, "%s: no interrupt at the end of a transfer\n", edu->name);
	pci_clear_master(edu->pdev);
	edu->stuck = true;
	complete_all(&edu->idle);
	return -EIO;
}

void edu_free(struct kref *ref)
{
	struct edu *edu = container_of(ref, struct edu, ref);

	ida_free(&edu_ids, edu->id);
	kfree(edu);
}

static int edu_node_add(struct edu *edu, struct edu_node *node, const struct edu_backend *backend)
{
	int ret;

	snprintf(node->name, sizeof(node->name), "%s%d", backend->name, edu->id);
	node->edu = edu;
	node->backend = backend;
	node->misc.minor = MISC_DYNAMIC_MINOR;
	node->misc.name = node->name;
	node->misc.fops = &edu_fops;
	node->misc.parent = &edu->pdev->dev;
	ret = misc_register(&node->misc);
	if (ret)
		node->edu = NULL;
	return ret;
}

static void edu_nodes_remove(struct edu *edu)
{
	unsigned int i;

	for (i = 0; i < EDU_NODES; i++)
		if (edu->nodes[i].edu)
			misc_deregister(&edu->nodes[i].misc);
}

static void edu_remove(struct pci_dev *pdev)
{
	struct edu *edu = pci_get_drvdata(pdev);

	edu_nodes_remove(edu);
	/* From here on only who opened a file before is left, and after this he finds nothing. */
	down_write(&edu->gone_lock);
	edu->gone = true;
	edu_engine_wait(edu);
	edu_mirrors_unmap(edu);
	up_write(&edu->gone_lock);
	/* Who waits for the engine finds that the device is gone, and lets in the next one. */
	up(&edu->engine);

	edu_memory_free(edu);
	pci_free_irq(pdev, 0, edu);
	pci_free_irq_vectors(pdev);
	edu_odp_destroy(edu);
	pci_clear_master(pdev);
	kref_put(&edu->ref, edu_free);
}

static int edu_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct edu *edu;
	int ret;

	if (!dma_bits || dma_bits > 64)
		return -EINVAL;

	edu = kzalloc_obj(*edu);
	if (!edu)
		return -ENOMEM;
	kref_init(&edu->ref);
	init_rwsem(&edu->gone_lock);
	sema_init(&edu->engine, 1);
	init_completion(&edu->idle);
	complete_all(&edu->idle);
	INIT_LIST_HEAD(&edu->mirrors);
	mutex_init(&edu->mirrors_lock);
	mutex_init(&edu->memory_lock);
	edu->pdev = pdev;
	edu->id = ida_alloc(&edu_ids, GFP_KERNEL);
	if (edu->id < 0) {
		ret = edu->id;
		kfree(edu);
		return ret;
	}
	snprintf(edu->name, sizeof(edu->name), "edu_hmm%d", edu->id);

	ret = pcim_enable_device(pdev);
	if (ret)
		goto put;
	edu->regs = pcim_iomap_region(pdev, 0, edu->name);
	if (IS_ERR(edu->regs)) {
		ret = PTR_ERR(edu->regs);
		goto put;
	}
	ret = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(dma_bits));
	if (ret)
		goto put;
	pci_set_master(pdev);
	edu->staging = dmam_alloc_coherent(&pdev->dev, PAGE_SIZE, &edu->staging_dma, GFP_KERNEL);
	if (!edu->staging) {
		ret = -ENOMEM;
		goto put;
	}
	ret = pci_alloc_irq_vectors(pdev, 1, 1, PCI_IRQ_MSI | PCI_IRQ_INTX);
	if (ret < 0)
		goto put;
	ret = pci_request_irq(pdev, 0, edu_irq, NULL, edu, "%s", edu->name);
	if (ret)
		goto free_vectors;

	ret = edu_odp_create(edu);
	if (ret)
		goto free_irq;
	pci_set_drvdata(pdev, edu);
	ret = edu_node_add(edu, &edu->nodes[EDU_NODE_HMM], &edu_hmm_backend);
	if (ret)
		goto destroy_odp;
#if IS_ENABLED(CONFIG_INFINIBAND_ON_DEMAND_PAGING)
	ret = edu_node_add(edu, &edu->nodes[EDU_NODE_ODP], &edu_odp_backend);
	/* The first may be open already. */
	if (ret)
		edu_remove(pdev);
#endif
	return ret;

destroy_odp:
	edu_odp_destroy(edu);
free_irq:
	pci_free_irq(pdev, 0, edu);
free_vectors:
	pci_free_irq_vectors(pdev);
put:
	kref_put(&edu->ref, edu_free);
	return ret;
}

static const struct pci_device_id edu_ids_table[] = {
	{ PCI_DEVICE(0x1234, 0x11e8) },
	{ }
};
MODULE_DEVICE_TABLE(pci, edu_ids_table);

static struct pci_driver edu_driver = {
	.name = "edu_hmm",
	.id_table = edu_ids_table,
	.probe = edu_probe,
	.remove = edu_remove,
};
module_pci_driver(edu_driver);

MODULE_DESCRIPTION("DMA of QEMU's edu device to the memory of processes, by HMM");
MODULE_LICENSE("GPL");
