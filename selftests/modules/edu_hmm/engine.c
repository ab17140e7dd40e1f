// SPDX-License-Identifier: GPL-2.0-only
/*
 * The DMA engine and the interrupt of QEMU's edu device (docs/specs/edu in its source).
 *
 * The engine only moves bytes between a bus address and a buffer inside the device. The CPU cannot
 * access this buffer, so data of the caller take two transfers, by way of a page of coherent
 * memory.
 */
#include <linux/interrupt.h>
#include <linux/io.h>
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
/* The buffer has 4 KiB. QEMU 7.2 does not let a transfer use the last byte. */
#define EDU_BUFFER		0x40000

/**
 * edu_engine_irq - interrupt handler: a transfer has ended
 * @irq: number of the interrupt
 * @data: the device
 *
 * Return: whether the interrupt came from this device.
 */
irqreturn_t edu_engine_irq(int irq, void *data)
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
 * edu_engine_start - start a transfer of the DMA engine
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
 * edu_engine_wait - wait for the end of the transfer that edu_engine_start() began
 * @edu: the device, with the locks of edu_engine_start(), or with the lock of a mirror that has
 *   pages mapped
 *
 * Return: 0, or -EIO if the device does not answer. The device can then do no more DMA.
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
