// SPDX-License-Identifier: GPL-2.0-only
/*
 * Legal DMA mappings, which dma-debug must not report. Reports go to the kernel log, where the
 * suite dma looks for them.
 */
#include <linux/dma-mapping.h>
#include <linux/module.h>

#include <kunit/device.h>
#include <kunit/test.h>

/* Both mappings have the same address, because no IOMMU translates for this device. */
static void sync_of_two(struct kunit *test)
{
	struct device *dev = kunit_device_register(test, "dma_debug_kunit");
	dma_addr_t first, second;
	void *page;

	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, dev);
	page = kunit_kzalloc(test, PAGE_SIZE, GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, page);
	KUNIT_ASSERT_EQ(test, dma_coerce_mask_and_coherent(dev, DMA_BIT_MASK(64)), 0);

	first = dma_map_single(dev, page, PAGE_SIZE, DMA_TO_DEVICE);
	KUNIT_ASSERT_EQ(test, dma_mapping_error(dev, first), 0);
	second = dma_map_single(dev, page, PAGE_SIZE, DMA_TO_DEVICE);
	KUNIT_ASSERT_EQ(test, dma_mapping_error(dev, second), 0);
	KUNIT_EXPECT_EQ(test, first, second);

	dma_sync_single_for_cpu(dev, first, PAGE_SIZE, DMA_TO_DEVICE);
	dma_sync_single_for_device(dev, first, PAGE_SIZE, DMA_TO_DEVICE);

	dma_unmap_single(dev, second, PAGE_SIZE, DMA_TO_DEVICE);
	dma_unmap_single(dev, first, PAGE_SIZE, DMA_TO_DEVICE);
}

static struct kunit_case dma_debug_cases[] = {
	KUNIT_CASE(sync_of_two),
	{}
};

static struct kunit_suite dma_debug_suite = {
	.name = "dma_debug",
	.test_cases = dma_debug_cases,
};
kunit_test_suite(dma_debug_suite);

MODULE_DESCRIPTION("KUnit tests of what dma-debug reports");
MODULE_LICENSE("GPL");
