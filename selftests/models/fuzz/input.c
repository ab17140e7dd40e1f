// SPDX-License-Identifier: GPL-2.0-only
/* Inputs of the fuzzers, and how to change them. See input.h. */
#include "input.h"

#include <string.h>

size_t LLVMFuzzerMutate(u8 *data, size_t size, size_t max);

bool next(const u8 **p, const u8 *end, struct rec *r, u8 *data)
{
	const u8 *at = *p;

	if (end - at < RECORD_HEADER)
		return false;
	*r = (struct rec){ at[0], at[1], at[2] | at[3] << 8, at[4] | at[5] << 8, data };
	at += RECORD_HEADER;
	r->len = min(r->len, min(end - at, MAX_DATA));
	memcpy(data, at, r->len);
	memset(data + r->len, 0, MAX_DATA - r->len);
	*p = at + r->len;
	return true;
}

/* A mutation changes a whole record, a number in one, or bytes of one as libFuzzer chooses. */

static u64 seed;

u32 rnd(u32 n)
{
	seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
	return (seed >> 33) % n;
}

struct input {
	unsigned int n;
	struct rec rec[MAX_RECORDS];
	u8 data[MAX_RECORDS][MAX_DATA];
};

static void parse(struct input *in, const u8 *p, size_t size)
{
	const u8 *last = p + size;

	for (in->n = 0; size && in->n < MAX_RECORDS; in->n++)
		if (!next(&p, last, &in->rec[in->n], in->data[in->n]))
			break;
}

static size_t unparse(const struct input *in, u8 *to, size_t max)
{
	size_t at = 0;

	for (unsigned int i = 0; i < in->n; i++) {
		const struct rec *r = &in->rec[i];

		if (max - at < RECORD_HEADER + r->len)
			break;
		memcpy(to + at,
		       (u8[]){ r->kind, r->arg, r->value, r->value >> 8, r->len, r->len >> 8 },
		       RECORD_HEADER);
		memcpy(to + at + RECORD_HEADER, r->data, r->len);
		at += RECORD_HEADER + r->len;
	}
	return at;
}

/* Makes room for record i, which gets a data buffer of its own. */
static void open_gap(struct input *in, unsigned int i)
{
	for (unsigned int j = in->n++; j > i; j--) {
		in->rec[j] = in->rec[j - 1];
		in->rec[j].data = memcpy(in->data[j], in->data[j - 1], MAX_DATA);
	}
	in->rec[i].data = in->data[i];
}

static void put_value(struct rec *r, u8 *data)
{
	u32 width = 1 << rnd(4), at;
	u64 val = values[rnd(nvalues)];

	if (r->len < width)
		return;
	at = rnd(r->len / width) * width;
	if (big_endian && rnd(4))	/* else: for the back door, vfio-user */
		val = __builtin_bswap64(val << (64 - 8 * width));
	memcpy(data + at, &val, width);
}

size_t LLVMFuzzerCustomMutator(u8 *p, size_t size, size_t max, unsigned int with)
{
	static struct input in;
	unsigned int i;
	struct rec *r;
	u8 *data;

	seed = with;
	if (max < 64)
		return LLVMFuzzerMutate(p, size, max);
	if (!size)
		p[0] = 0;
	parse(&in, p + !!size, size ? size - 1 : 0);
	for (int n = 1 + rnd(4); n--;) {
		u32 what = rnd(16);

		if (what < 4 || !in.n) {
			if (in.n == MAX_RECORDS)
				continue;
			i = rnd(in.n + 1);
			open_gap(&in, i);
			r = &in.rec[i];
			*r = (struct rec){ .kind = rnd(nkinds),
					   .arg = rnd(256),
					   .value = rnd(65536),
					   .data = in.data[i] };
			memset(in.data[i], 0, MAX_DATA);
			if (kinds[r->kind].fill)
				r->len = kinds[r->kind].fill(r, in.data[i]);
			r->len = min(r->len, MAX_DATA);
			continue;
		}
		i = rnd(in.n);
		r = &in.rec[i];
		data = in.data[i];
		switch (what) {
		case 4:
			for (in.n--; i < in.n; i++) {
				in.rec[i] = in.rec[i + 1];
				in.rec[i].data = memcpy(in.data[i], in.data[i + 1], MAX_DATA);
			}
			break;
		case 5:
			if (in.n < MAX_RECORDS)
				open_gap(&in, i);
			break;
		case 6:
			r->arg ^= 1 << rnd(8);
			break;
		case 7:
			r->value = rnd(2) ? r->value ^ 1 << rnd(16) : values[rnd(nvalues)];
			break;
		case 8:
			r->len = min(rnd(2) ? r->len + 16 : rnd(r->len + 64), MAX_DATA);
			break;
		case 9:
		case 10:
			r->len = LLVMFuzzerMutate(data, r->len, min(r->len + 64, MAX_DATA));
			break;
		case 11:
			if (rnd(8) == 0)
				p[0] ^= 1;
			break;
		default:
			put_value(r, data);
		}
	}
	return 1 + unparse(&in, p + 1, max - 1);
}

size_t LLVMFuzzerCustomCrossOver(const u8 *a, size_t asize, const u8 *b, size_t bsize, u8 *out,
				 size_t max, unsigned int with)
{
	static struct input in, other;
	unsigned int skip;

	seed = with;
	if (!asize || !bsize || max < 64)
		return 0;
	parse(&in, a + 1, asize - 1);
	parse(&other, b + 1, bsize - 1);
	in.n = rnd(in.n + 1);
	skip = rnd(other.n + 1);
	for (; skip < other.n && in.n < MAX_RECORDS; skip++) {
		in.rec[in.n] = other.rec[skip];
		in.rec[in.n].data = memcpy(in.data[in.n], other.data[skip], MAX_DATA);
		in.n++;
	}
	out[0] = a[0];
	return 1 + unparse(&in, out + 1, max - 1);
}
