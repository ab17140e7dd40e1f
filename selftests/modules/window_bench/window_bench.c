// SPDX-License-Identifier: GPL-2.0
/* /dev/window_bench: see window_bench_uapi.h */
#include <linux/cleanup.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include <asm/msr.h>

#include "nouveau_dmem_window.h"
#include "window_bench_uapi.h"

#define FIRST_PFN	0x1234000UL
#define MAX_BLOCKS	65536

/**
 * struct window_bench - an aperture and the memory behind it
 * @w: the windows
 * @lock: of the free pages
 * @ptl: of the page tables that map those handed out
 * @block: the memory
 * @backing: what each window points at
 * @posted: of each block, whether a peer has written to it and nobody waited for that
 * @live: of each block, whether the one page of it that is ever handed out is
 * @cmd: what is counted
 */
struct window_bench {
	struct nouveau_dmem_windows w;
	spinlock_t lock;
	spinlock_t ptl;
	struct nouveau_dmem_block *block;
	struct nouveau_dmem_block **backing;
	bool *posted;
	bool *live;
	struct window_bench_cmd *cmd;
};

static bool *window_bench_posted(struct window_bench *b, struct nouveau_dmem_block *block)
{
	return b->posted + (block - b->block);
}

static int window_bench_map(struct nouveau_dmem_windows *w, unsigned int slot,
			    struct nouveau_dmem_block *block)
{
	struct window_bench *b = container_of(w, struct window_bench, w);

	b->cmd->errors += !!b->backing[slot];
	b->backing[slot] = block;
	return 0;
}

static void window_bench_unmap(struct nouveau_dmem_windows *w, unsigned int slot)
{
	struct window_bench *b = container_of(w, struct window_bench, w);

	b->cmd->errors += !b->backing[slot] || *window_bench_posted(b, b->backing[slot]);
	b->backing[slot] = NULL;
}

static void window_bench_read_back(struct nouveau_dmem_windows *w, unsigned int slot)
{
	struct window_bench *b = container_of(w, struct window_bench, w);

	*window_bench_posted(b, b->backing[slot]) = false;
}

static const struct nouveau_dmem_window_ops window_bench_ops = {
	.map = window_bench_map,
	.unmap = window_bench_unmap,
	.read_back = window_bench_read_back,
};

/* As nouveau_dmem_page_alloc_locked() does. */
static u64 window_bench_hand_out(struct window_bench *b, unsigned int i)
{
	struct nouveau_dmem_block *block = b->block + i;
	u64 start = rdtsc(), ticks;
	bool secure;

	spin_lock(&b->lock);
	secure = nouveau_dmem_window_get(&b->w, block, 1);
	spin_unlock(&b->lock);
	if (secure)
		nouveau_dmem_window_secure(&b->w, block);
	ticks = rdtsc() - start;

	b->live[i] = true;
	b->cmd->errors += b->posted[i];
	return ticks;
}

static void window_bench_free(struct window_bench *b, unsigned int i)
{
	spin_lock(&b->ptl);
	spin_lock(&b->lock);
	nouveau_dmem_window_put(&b->w, b->block + i, 1);
	spin_unlock(&b->lock);
	spin_unlock(&b->ptl);
	b->live[i] = false;
}

/* A peer asks for the alias of the page, and if there is one, writes to it. */
static void window_bench_peer(struct window_bench *b, unsigned int i)
{
	unsigned long pfn, slot;
	int ret;

	spin_lock(&b->ptl);
	ret = nouveau_dmem_window_pfn(&b->w, b->block + i, 0, &pfn);
	spin_unlock(&b->ptl);
	if (ret) {
		b->cmd->refused++;
		return;
	}
	b->cmd->aliases++;
	slot = (pfn - FIRST_PFN) / NOUVEAU_DMEM_BLOCK_NPAGES;
	if (slot >= b->w.nr || b->backing[slot] != b->block + i)
		b->cmd->errors++;
	else
		b->posted[i] = true;
}

/* A seed that is always the same. */
static u32 window_bench_random(u32 *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

static void window_bench_run(struct window_bench *b)
{
	struct window_bench_cmd *cmd = b->cmd;
	unsigned int i, n = cmd->windows;
	u32 random = 1;

	/* All windows are in use, and a peer has asked for something. */
	for (i = 0; i < n; i++)
		window_bench_hand_out(b, i);
	b->w.asked = true;

	switch (cmd->what) {
	case WINDOW_BENCH_KEPT:
		for (i = 0; i < cmd->rounds; i++) {
			window_bench_free(b, i % n);
			cmd->cost += window_bench_hand_out(b, i % n);
			cond_resched();
		}
		break;
	case WINDOW_BENCH_RECYCLE:
		for (i = 0; i < n; i++) {
			window_bench_peer(b, i);
			window_bench_free(b, i);
		}
		for (i = 0; i < cmd->rounds; i++) {
			unsigned int next = (n + i) % cmd->blocks;

			cmd->cost += window_bench_hand_out(b, next);
			window_bench_peer(b, next);
			window_bench_free(b, next);
			cond_resched();
		}
		break;
	case WINDOW_BENCH_STEAL:
		for (i = 0; i < cmd->rounds; i++) {
			unsigned int next = (n + i) % cmd->blocks;

			if (b->live[next])
				window_bench_free(b, next);
			cmd->cost += window_bench_hand_out(b, next);
			cond_resched();
		}
		break;
	case WINDOW_BENCH_NONE:
		for (i = 0; i < n; i++)
			window_bench_peer(b, i);
		for (i = 0; i < cmd->rounds; i++) {
			unsigned int next = n + i % (cmd->blocks - n);

			cmd->cost += window_bench_hand_out(b, next);
			window_bench_peer(b, next);
			window_bench_free(b, next);
			cond_resched();
		}
		break;
	case WINDOW_BENCH_MIX:
		for (i = 0; i < cmd->rounds; i++) {
			u64 steals = b->w.stat.steals, ticks;
			unsigned int next;

			next = window_bench_random(&random) % cmd->blocks;
			if (b->live[next])
				window_bench_free(b, next);
			ticks = window_bench_hand_out(b, next);
			/* A grace period does not always take the same. */
			if (b->w.stat.steals == steals)
				cmd->cost += ticks;
			if (window_bench_random(&random) % 4)
				window_bench_peer(b, next);
			/*
			 * With four pages handed out for one freed, four of five blocks have one:
			 * more than windows.
			 */
			next = window_bench_random(&random) % cmd->blocks;
			if (window_bench_random(&random) % 4 == 0 && b->live[next])
				window_bench_free(b, next);
			cond_resched();
		}
		break;
	}
	for (i = 0; i < cmd->blocks; i++)
		if (b->live[i])
			window_bench_free(b, i);
}

static int window_bench_measure(struct window_bench_cmd *cmd)
{
	struct window_bench *b __free(kvfree) = kvzalloc_obj(*b);
	struct nouveau_dmem_block *block __free(kvfree) =
		kvcalloc(cmd->blocks, sizeof(*block), GFP_KERNEL);
	struct nouveau_dmem_block **backing __free(kvfree) =
		kvcalloc(cmd->windows, sizeof(*backing), GFP_KERNEL);
	bool *posted __free(kvfree) = kvcalloc(cmd->blocks, sizeof(*posted), GFP_KERNEL);
	bool *live __free(kvfree) = kvcalloc(cmd->blocks, sizeof(*live), GFP_KERNEL);
	struct nouveau_dmem_window_stat stat;
	int ret;

	if (!b || !block || !backing || !posted || !live)
		return -ENOMEM;
	spin_lock_init(&b->lock);
	spin_lock_init(&b->ptl);
	b->block = block;
	b->backing = backing;
	b->posted = posted;
	b->live = live;
	b->cmd = cmd;
	ret = nouveau_dmem_windows_init(&b->w, &window_bench_ops, &b->lock, FIRST_PFN,
					cmd->windows);
	if (ret)
		return ret;

	window_bench_run(b);

	nouveau_dmem_windows_stat(&b->w, &stat);
	cmd->recycles = stat.recycles;
	cmd->steals = stat.steals;
	cmd->no_space = stat.no_space;
	cmd->read_backs = stat.read_backs;
	cmd->errors += stat.used + (stat.idle + stat.free != cmd->windows);

	nouveau_dmem_windows_stop(&b->w);
	cmd->errors += !!nouveau_dmem_windows_unmap_all(&b->w);
	for (unsigned int i = 0; i < cmd->windows; i++)
		cmd->errors += !!backing[i];
	for (unsigned int i = 0; i < cmd->blocks; i++)
		cmd->errors += posted[i];
	nouveau_dmem_windows_fini(&b->w);
	return 0;
}

static long window_bench_ioctl(struct file *file, unsigned int command, unsigned long arg)
{
	struct window_bench_cmd cmd;
	int ret;

	if (command != WINDOW_BENCH_MEASURE)
		return -ENOTTY;
	if (copy_from_user(&cmd, (void __user *)arg, sizeof(cmd)))
		return -EFAULT;
	if (cmd.what > WINDOW_BENCH_MIX || !cmd.windows || cmd.blocks <= cmd.windows ||
	    cmd.blocks > MAX_BLOCKS)
		return -EINVAL;
	cmd = (struct window_bench_cmd) {
		.what = cmd.what,
		.windows = cmd.windows,
		.blocks = cmd.blocks,
		.rounds = cmd.rounds,
	};
	ret = window_bench_measure(&cmd);
	if (!ret && copy_to_user((void __user *)arg, &cmd, sizeof(cmd)))
		ret = -EFAULT;
	return ret;
}

static const struct file_operations window_bench_fops = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = window_bench_ioctl,
};

static struct miscdevice window_bench_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "window_bench",
	.fops = &window_bench_fops,
};
module_misc_device(window_bench_misc);

MODULE_DESCRIPTION("Cost of nouveau's windows to device private memory");
MODULE_LICENSE("GPL");
MODULE_IMPORT_NS("EXPORTED_FOR_KUNIT_TESTING");
