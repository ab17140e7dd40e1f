// SPDX-License-Identifier: GPL-2.0-only
/*
 * The BAR of an ivshmem device as PCI P2PDMA memory, which programs map by the file
 * p2pmem/allocate of the device.
 */
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/pci-p2pdma.h>

static int p2pmem_test_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	int ret;

	ret = pcim_enable_device(pdev);
	if (ret)
		return ret;
	ret = pci_p2pdma_add_resource(pdev, 2, 0, 0);
	if (ret)
		return ret;
	pci_p2pmem_publish(pdev, true);
	return 0;
}

static const struct pci_device_id p2pmem_test_ids[] = {
	{ PCI_DEVICE(PCI_VENDOR_ID_REDHAT_QUMRANET, 0x1110) },
	{}
};

static struct pci_driver p2pmem_test_driver = {
	.name = "p2pmem_test",
	.id_table = p2pmem_test_ids,
	.probe = p2pmem_test_probe,
};
module_pci_driver(p2pmem_test_driver);

MODULE_DESCRIPTION("PCI P2PDMA memory for programs");
MODULE_LICENSE("GPL");
