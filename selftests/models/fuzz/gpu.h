/* SPDX-License-Identifier: GPL-2.0-only */
/* Shared by the fuzzers of GPUs. */
#ifndef FUZZ_GPU_H
#define FUZZ_GPU_H

#include "input.h"

#define RAM_SIZE (4U << 20)

extern u8 *ram;
extern int ram_fd;

/* The part of the model that the library knows. */
struct vfio_user *device(struct MODEL *m);
/* Does what the records say. */
void run_records(struct MODEL *m, const u8 *p, const u8 *last);

#endif
