/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Definitions that include/linux/mlx5/{mlx5_ifc,device,qp}.h of the kernel tree need from the rest
 * of the kernel, so that the model is built from the driver's own layouts. The compiler searches
 * this folder before all others, and the tree's include/ after all others (see the Makefile).
 */
#ifndef SHIM_TYPES_H
#define SHIM_TYPES_H

#include <arpa/inet.h>
#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef uint8_t u8, __u8;
typedef uint16_t u16, __u16, __be16, __le16;
typedef uint32_t u32, __u32, __be32, __le32;
typedef uint64_t u64, __u64, __be64, __le64;
typedef int8_t s8, __s8;
typedef int16_t s16, __s16;
typedef int32_t s32, __s32;
typedef int64_t s64, __s64;

/* The kernel defines only one of them, the C library both. */
#undef __BIG_ENDIAN
#undef __LITTLE_ENDIAN
#define __LITTLE_ENDIAN 1234

#define __force
#define __packed __attribute__((packed))
#define __aligned(x) __attribute__((aligned(x)))
#define cpu_to_be16 htobe16
#define cpu_to_be32 htobe32
#define cpu_to_be64 htobe64
#define be16_to_cpu be16toh
#define be32_to_cpu be32toh
#define be64_to_cpu be64toh
#define swab32 __builtin_bswap32
#define BIT(n) (1UL << (n))
#define BIT_ULL(n) (1ULL << (n))
#define GENMASK(h, l) ((~0UL << (l)) & (~0UL >> (63 - (h))))
#define BUILD_BUG_ON(c) ((void)sizeof(char[1 - 2 * !!(c)]))
#define DECLARE_FLEX_ARRAY(type, name) struct { struct { } empty_##name; type name[]; }
#define pr_debug(...) do { } while (0)

#define ETH_ALEN 6
#define PAGE_SHIFT 12
#define PAGE_SIZE 4096UL

struct ib_grh {
	u8 bytes[40];
};

#endif
