// SPDX-License-Identifier: GPL-2.0-only
/*
 * Commands of the copy engine. A copy that faults goes on where it stopped (done).
 * Source: xe_migrate.c, instructions/xe_gpu_commands.h.
 */
#include "battlemage.h"

enum { FAST_COPY = 0x42, MEM_COPY = 0x5a, MEM_SET = 0x5b };

#define MATRIX BIT(17)
#define PAGES BIT(19)		/* the width is in units of 256 bytes */

struct area {
	u64 at, pitch;
};

/* The driver's own address space has no number. */
static bool of_driver(struct context *c)
{
	return !c->asid;
}

static bool held(struct gpu *g, struct context *c)
{
	if (!of_driver(c) || !g->hold || c->let)
		return false;
	if (!g->release)
		return true;
	g->release--;
	c->let = true;
	return false;
}

/* src: NULL for a fill */
static enum step move(struct gpu *g, struct context *c, struct area dst, const struct area *src,
		      u8 value, u64 width, u64 rows)
{
	if (width * rows > MAX_COPY) {
		violation(g, "context %u: a copy of %lu times %lu bytes", c->id, rows, width);
		return STOP;
	}
	if (src && held(g, c))
		return WAIT;
	while (c->done < width * rows) {
		u64 row = c->done / width, col = c->done % width, room, n = width - col;
		u8 *to, *from = NULL;

		if (src) {
			from = mmu_memory(g, c, src->at + row * src->pitch + col, READ, &room,
					  &c->fault);
			if (!from)
				return FAULT;
			n = min(n, room);
		}
		to = mmu_memory(g, c, dst.at + row * dst.pitch + col, WRITE, &room, &c->fault);
		if (!to)
			return FAULT;
		n = min(n, room);
		if (of_driver(c)) {
			if (from)
				mmu_copied(g, from, n, READ);
			mmu_copied(g, to, n, WRITE);
		}
		if (from)
			memmove(to, from, n);
		else
			memset(to, value, n);
		memory_written(g, to, n);
		if (from)
			vram_filled(g, to, n);
		c->done += n;
	}
	if (src) {
		g->stats.copies++;
		g->stats.copied_bytes += width * rows;
		debug(g, "context %u: copy %#lx to %#lx, %lu times %lu bytes", c->id, src->at,
		      dst.at, rows, width);
	} else {
		g->stats.fills++;
	}
	return NEXT;
}

static u64 address(const u32 *dw)
{
	return dw[0] | (u64)dw[1] << 32;
}

enum step copy_command(struct gpu *g, struct context *c, const u32 *dw, u32 n)
{
	u64 width = (dw[1] & 0xffffff) + 1, rows = dw[0] & MATRIX ? (dw[2] & 0x3ffff) + 1 : 1;
	struct area dst, src;

	switch (dw[0] >> 22 & 0x7f) {
	case MEM_COPY:
		if (dw[0] & PAGES) {
			width *= 256;
			rows = 1;
		}
		src = (struct area){ address(dw + 5), (dw[3] & 0x3ffff) + 1 };
		dst = (struct area){ address(dw + 7), (dw[4] & 0x3ffff) + 1 };
		return move(g, c, dst, &src, 0, width, rows);
	case MEM_SET:
		dst = (struct area){ address(dw + 4), (dw[3] & 0x3ffff) + 1 };
		return move(g, c, dst, NULL, dw[6] >> 24, width, rows);
	case FAST_COPY:		/* not tiled, 32 bits per pixel */
		dst = (struct area){ address(dw + 4), dw[1] & 0xffff };
		src = (struct area){ address(dw + 8), dw[7] & 0xffff };
		return move(g, c, dst, &src, 0, 4 * (dw[3] & 0xffff), dw[3] >> 16);
	}
	g->stats.unknown_commands++;
	note(g, "context %u: unknown command of the copy engine: %08x", c->id, dw[0]);
	return NEXT;
}
