/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * An input of a fuzzer is a byte, of which the model takes the lowest bit as it likes, and records:
 * kind, argument, value, length and as many bytes. So the fuzzer can put whole actions of a guest
 * before, behind and instead of others. MODEL is the name of the model's structure.
 */
#ifndef INPUT_H
#define INPUT_H

#include "../vfio-user/vfio_user.h"

#define MAX_DATA 4096
#define MAX_RECORDS 64
#define RECORD_HEADER 6		/* value and length have 16 bits, little endian */

struct MODEL;

struct rec {
	u8 kind, arg;
	u16 value, len;
	const u8 *data;		/* MAX_DATA bytes can be read: zeroes follow */
};

/* What a record can be. */
struct kind {
	void (*run)(struct MODEL *m, const struct rec *r);
	u16 (*fill)(struct rec *r, u8 *data);	/* makes one that means something; its length */
};

/* Of the fuzzer: */
extern const struct kind kinds[];
extern const unsigned int nkinds;
extern const u64 values[];	/* that mean something where a number is */
extern const unsigned int nvalues;
extern const bool big_endian;	/* most of them are, in data */

/* Of all fuzzers of a model. */
void run_write(struct MODEL *m, const struct rec *r);
void run_read(struct MODEL *m, const struct rec *r);
void run_tick(struct MODEL *m, const struct rec *r);

/* input.c */
u32 rnd(u32 n);			/* less than n; for fill() */
/* The next record; data: where the zeroes shall be behind it. */
bool next(const u8 **p, const u8 *end, struct rec *r, u8 *data);

#endif
