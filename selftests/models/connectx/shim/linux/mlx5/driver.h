/* SPDX-License-Identifier: GPL-2.0-only */
/* Definitions that qp.h and cq.h need from the driver's own header. */
#ifndef SHIM_DRIVER_H
#define SHIM_DRIVER_H

#include <linux/types.h>

struct ib_ah {
	int unused;
};
struct completion {
	int unused;
};
typedef struct {
	int unused;
} refcount_t;
struct mlx5_core_rsc_common {
	int unused;
};
struct mlx5_hca_cap {
	u32 cur[1024], max[1024];
};
struct mlx5_core_dev {
	struct {
		struct mlx5_hca_cap *hca[64];
	} caps;
};

static inline bool mlx5_get_roce_state(struct mlx5_core_dev *dev)
{
	(void)dev;
	return false;
}

struct list_head {
	struct list_head *next, *prev;
};

/* cq.h arms CQs: the model is what is armed. */
#define __iomem
#define MLX5_CQ_DOORBELL 0x20
#define wmb() do { } while (0)
#define mlx5_write64(val, dest) ((void)(val), (void)(dest))
#define refcount_inc(r) ((void)(r))
#define refcount_dec_and_test(r) ((void)(r), 0)
#define complete(c) ((void)(c))
#define KERN_WARNING ""
#define DUMP_PREFIX_OFFSET 0
#define print_hex_dump(...) do { } while (0)

#define container_of(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))
#define struct_group(NAME, ...) union { struct { __VA_ARGS__ }; struct { __VA_ARGS__ } NAME; }

#endif
