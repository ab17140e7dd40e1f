/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared virtual memory of nouveau, for programs with one GPU (nouveau.h) and with two (gpus.c).
 */
#ifndef NOUVEAU_MIGRATE_H
#define NOUVEAU_MIGRATE_H

#include "svm.h"

#include "nouveau_drm.h"

/* The kernel's own buffers are there. GPFIFO entries have 40 bits for an address. */
#define HOLE		((void *)(64UL << 30))
#define HOLE_SIZE	(4UL << 30)

static inline int nouveau_to_vram(int drm, void *mem, size_t size)
{
	struct drm_nouveau_svm_bind b = {
		.header = (uint64_t)NOUVEAU_SVM_BIND_COMMAND__MIGRATE
				  << NOUVEAU_SVM_BIND_COMMAND_SHIFT |
			  (uint64_t)NOUVEAU_SVM_BIND_TARGET__GPU_VRAM
				  << NOUVEAU_SVM_BIND_TARGET_SHIFT,
		.va_start = (uintptr_t)mem,
		.va_end = (uintptr_t)mem + size,
		.npages = size / PAGE,
	};

	return ioctl(drm, DRM_IOCTL_NOUVEAU_SVM_BIND, &b);
}

struct move {
	int drm;
	char *mem;
	size_t size;
	int ret;
};

/* A thread that moves memory to VRAM. */
static inline void *nouveau_move(void *arg)
{
	struct move *m = arg;

	m->ret = nouveau_to_vram(m->drm, m->mem, m->size);
	return NULL;
}

#endif
