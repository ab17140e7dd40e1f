// SPDX-License-Identifier: GPL-2.0-only
/*
 * Records what the driver and QEMU send, as seeds for the fuzzers (../fuzz/input.h). The files are
 * DIR/FUZZER/NUMBER, with RECORDS records each. Only the beginning of a run is kept, because the
 * rest is much the same.
 */
#include "connectx.h"
#include "../fuzz/input.h"

#include <stdlib.h>
#include <sys/stat.h>

#define RECORDS 24		/* of one file */
#define SEED_SIZE 6000
#define FILES 400

void record(struct hca *h, const char *fuzzer, u8 kind, u8 arg, u16 value, const void *data,
	    size_t len)
{
	static struct {
		const char *fuzzer;
		unsigned int files, records;
		FILE *f;
	} all[3];
	typeof(all[0]) *r = all;
	u8 header[RECORD_HEADER] = { kind, arg, value, value >> 8, len, len >> 8 };
	char path[4096];

	if (!h->record || len > SEED_SIZE)
		return;
	while (r->fuzzer && strcmp(r->fuzzer, fuzzer))
		r++;
	r->fuzzer = fuzzer;
	if (r->f && (r->records == RECORDS || ftell(r->f) + len > SEED_SIZE)) {
		fclose(r->f);
		r->f = NULL;
	}
	if (!r->f) {
		if (r->files == FILES)
			return;
		snprintf(path, sizeof(path), "%s/%s", h->record, fuzzer);
		mkdir(path, 0777);
		snprintf(path, sizeof(path), "%s/%s/%03u", h->record, fuzzer, r->files++);
		r->f = fopen(path, "w");
		if (!r->f) {
			perror(path);
			exit(2);
		}
		r->records = 0;
		fputc(h->memory_scheme, r->f);
	}
	fwrite(header, sizeof(header), 1, r->f);
	fwrite(data, 1, len, r->f);
	r->records++;
}
