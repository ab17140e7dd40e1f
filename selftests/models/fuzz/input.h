/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * An input of a fuzzer is a byte and a list of records. Each model gives the low bits of the byte a
 * meaning of its own. A record has a kind, an argument, a value, a length, and that many bytes. It
 * is one action of a guest, so the fuzzer can insert, move and replace whole actions. MODEL is the
 * name of the model's structure.
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

/* A kind of record. */
struct kind {
	void (*run)(struct MODEL *m, const struct rec *r);
	u16 (*fill)(struct rec *r, u8 *data);	/* makes a plausible one, returns its length */
};

/* Each fuzzer defines these: */
extern const struct kind kinds[];
extern const unsigned int nkinds;
extern const u64 values[];	/* numbers to try */
extern const unsigned int nvalues;
extern const bool big_endian;	/* of most numbers in data */

/* Shared by all fuzzers of a model. */
void run_write(struct MODEL *m, const struct rec *r);
void run_read(struct MODEL *m, const struct rec *r);
void run_tick(struct MODEL *m, const struct rec *r);

/* input.c */
u32 rnd(u32 n);			/* less than n; for fill() */
/* Reads the next record. Its bytes are copied to data, and zeroes follow them there. */
bool next(const u8 **p, const u8 *end, struct rec *r, u8 *data);

#endif
