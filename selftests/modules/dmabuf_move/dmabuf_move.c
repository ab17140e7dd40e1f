// SPDX-License-Identifier: GPL-2.0-only
/*
 * An exporter of dma-bufs that move. Each open file of /dev/dmabuf_move has one buffer.
 * DMABUF_MOVE_EXPORT makes it, with as many pages as the argument says, and returns its file
 * descriptor. DMABUF_MOVE gives it other pages with the same data.
 */
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/dma-resv.h>
#include <linux/highmem.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/slab.h>

#define DMABUF_MOVE_EXPORT	_IO('D', 0xd0)
#define DMABUF_MOVE		_IO('D', 0xd1)

#define MAX_PAGES	4096UL

struct buffer {
	unsigned long npages;
	struct page *pages[];
};

static struct sg_table *buffer_map(struct dma_buf_attachment *attach, enum dma_data_direction dir)
{
	struct buffer *buf = attach->dmabuf->priv;
	struct sg_table *sgt;
	int ret;

	sgt = kzalloc(sizeof(*sgt), GFP_KERNEL);
	if (!sgt)
		return ERR_PTR(-ENOMEM);
	ret = sg_alloc_table_from_pages(sgt, buf->pages, buf->npages, 0,
					buf->npages << PAGE_SHIFT, GFP_KERNEL);
	if (ret)
		goto free;
	ret = dma_map_sgtable(attach->dev, sgt, dir, 0);
	if (ret)
		goto free_table;
	return sgt;

free_table:
	sg_free_table(sgt);
free:
	kfree(sgt);
	return ERR_PTR(ret);
}

static void buffer_unmap(struct dma_buf_attachment *attach, struct sg_table *sgt,
			 enum dma_data_direction dir)
{
	dma_unmap_sgtable(attach->dev, sgt, dir, 0);
	sg_free_table(sgt);
	kfree(sgt);
}

static void buffer_free(struct buffer *buf)
{
	unsigned long i;

	for (i = 0; i < buf->npages; i++)
		if (buf->pages[i])
			__free_page(buf->pages[i]);
	kfree(buf);
}

static void buffer_release(struct dma_buf *dmabuf)
{
	buffer_free(dmabuf->priv);
}

static const struct dma_buf_ops buffer_ops = {
	.map_dma_buf = buffer_map,
	.unmap_dma_buf = buffer_unmap,
	.release = buffer_release,
};

static long buffer_export(struct file *file, unsigned long npages)
{
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct dma_buf *dmabuf;
	struct buffer *buf;
	unsigned long i;
	int fd;

	if (file->private_data || !npages || npages > MAX_PAGES)
		return -EINVAL;
	buf = kzalloc(struct_size(buf, pages, npages), GFP_KERNEL);
	if (!buf)
		return -ENOMEM;
	buf->npages = npages;
	for (i = 0; i < npages; i++) {
		buf->pages[i] = alloc_page(GFP_KERNEL | __GFP_ZERO);
		if (!buf->pages[i]) {
			buffer_free(buf);
			return -ENOMEM;
		}
	}
	info.ops = &buffer_ops;
	info.size = npages << PAGE_SHIFT;
	info.flags = O_RDWR;
	info.priv = buf;
	dmabuf = dma_buf_export(&info);
	if (IS_ERR(dmabuf)) {
		buffer_free(buf);
		return PTR_ERR(dmabuf);
	}
	/* One reference for this file, one for the file descriptor. */
	get_dma_buf(dmabuf);
	fd = dma_buf_fd(dmabuf, O_CLOEXEC);
	if (fd < 0) {
		dma_buf_put(dmabuf);
		dma_buf_put(dmabuf);
		return fd;
	}
	file->private_data = dmabuf;
	return fd;
}

static long buffer_move(struct file *file)
{
	struct dma_buf *dmabuf = file->private_data;
	struct page *page;
	struct buffer *buf;
	unsigned long i;
	int ret = 0;

	if (!dmabuf)
		return -EINVAL;
	buf = dmabuf->priv;
	dma_resv_lock(dmabuf->resv, NULL);
	dma_buf_invalidate_mappings(dmabuf);
	for (i = 0; i < buf->npages; i++) {
		page = alloc_page(GFP_KERNEL);
		if (!page) {
			ret = -ENOMEM;
			break;
		}
		copy_highpage(page, buf->pages[i]);
		swap(page, buf->pages[i]);
		/* An importer that has kept the old page would read this. */
		clear_highpage(page);
		__free_page(page);
	}
	dma_resv_unlock(dmabuf->resv);
	return ret;
}

static long dmabuf_move_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	switch (cmd) {
	case DMABUF_MOVE_EXPORT:
		return buffer_export(file, arg);
	case DMABUF_MOVE:
		return buffer_move(file);
	}
	return -ENOTTY;
}

static int dmabuf_move_open(struct inode *inode, struct file *file)
{
	/* Without this, the misc device is here. */
	file->private_data = NULL;
	return 0;
}

static int dmabuf_move_release(struct inode *inode, struct file *file)
{
	if (file->private_data)
		dma_buf_put(file->private_data);
	return 0;
}

static const struct file_operations dmabuf_move_fops = {
	.owner = THIS_MODULE,
	.open = dmabuf_move_open,
	.release = dmabuf_move_release,
	.unlocked_ioctl = dmabuf_move_ioctl,
};

static struct miscdevice dmabuf_move = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "dmabuf_move",
	.fops = &dmabuf_move_fops,
};
module_misc_device(dmabuf_move);

MODULE_DESCRIPTION("dma-bufs that move");
MODULE_LICENSE("GPL");
MODULE_IMPORT_NS("DMA_BUF");
