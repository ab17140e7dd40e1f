// SPDX-License-Identifier: GPL-2.0-only
/* Fuzzes the command interface: commands, mailboxes, doorbells of the objects that they create. */
#include "fuzz.h"

const struct kind kinds[] = { COMMON_KINDS };
const unsigned int nkinds = ARRAY_SIZE(kinds);

const u64 values[] = {
	0, 1, 2, 3, 4, 8, 12, 16, 22, 31, 32, 0x3f, 0x40, 0x41, 0x80, 0x81, 0xff, 0x100, 0x1000,
	0x1001, 0x1100, 0x10, 0x11, 0x200, CMDQ, BOXES, BOXES + 1024, BOXES_OUT, QUEUES,
	QUEUES + 0x1000, DATA | 3, DATA, READ_ONLY | 3, PEER | 3, RAM_END - 8, 0xffff, 0xffffff,
	0x80000000, 0xffffffff, 1ULL << 63, ~0ULL, ~0ULL - 4095,
};
const unsigned int nvalues = ARRAY_SIZE(values);

void begin(struct hca *h)
{
	map_memory(h);
	vfio_user_write(&h->dev, 7, 4, (u8[]){ 6 }, 1);
	bar_write(h, offsetof(struct mlx5_init_seg, cmdq_addr_h), 0, CMDQ, 2);
	bar_write(h, offsetof(struct mlx5_init_seg, cmdq_addr_l_sz), CMDQ, 0, 1);
}

void end(void)
{
}
