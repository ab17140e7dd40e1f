// SPDX-License-Identifier: GPL-2.0-only
/* The PCI driver of QEMU's edu device: probe, removal, device nodes. */
#include <linux/dma-mapping.h>
#include <linux/idr.h>
#include <linux/interrupt.h>
#include <linux/module.h>
#include <linux/pci.h>

#include "edu_hmm.h"

static unsigned int dma_bits = 64;
module_param(dma_bits, uint, 0444);
MODULE_PARM_DESC(dma_bits, "Width of the DMA mask (default 64).");

static DEFINE_IDA(edu_ids);

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
	/* No file can be opened any more. From here on calls on open files find no device. */
	down_write(&edu->gone_lock);
	edu->gone = true;
	edu_engine_wait(edu);
	edu_mirrors_unmap(edu);
	up_write(&edu->gone_lock);
	/* A caller that waits for the engine finds no device, and wakes the next one. */
	up(&edu->engine);

	edu_memory_free(edu);
	pci_free_irq(pdev, 0, edu);
	pci_free_irq_vectors(pdev);
	edu_odp_destroy(edu);
	pci_clear_master(pdev);
	ida_free(&edu_ids, edu->id);
	edu_put(edu);
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
	ret = pci_request_irq(pdev, 0, edu_engine_irq, NULL, edu, "%s", edu->name);
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
	ida_free(&edu_ids, edu->id);
	edu_put(edu);
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
