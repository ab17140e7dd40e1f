// SPDX-License-Identifier: GPL-2.0-only
/* Shared by the fuzzers of GPUs: RAM of the guest, accesses to BARs, the loop over the records. */
#include "gpu.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

const bool big_endian = false;

u8 *ram;
int ram_fd;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	ram_fd = memfd_create("ram", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (ram_fd < 0 || ftruncate(ram_fd, RAM_SIZE) ||
	    fcntl(ram_fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK)) {
		perror("ram");
		exit(2);
	}
	ram = mmap(NULL, RAM_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, ram_fd, 0);
	if (ram == MAP_FAILED) {
		perror("ram");
		exit(2);
	}
	return 0;
}

/* argument: the region; value: the offset, in words */
void run_write(struct MODEL *m, const struct rec *r)
{
	vfio_user_write(device(m), r->arg & 15, r->value * 4, r->data, r->len);
}

void run_read(struct MODEL *m, const struct rec *r)
{
	u8 data[MAX_DATA];

	vfio_user_read(device(m), r->arg & 15, r->value * 4, data, min(r->len, sizeof(data)));
}

void run_records(struct MODEL *m, const u8 *p, const u8 *last)
{
	static u8 data[MAX_DATA];
	struct rec r;

	for (int n = 0; n < MAX_RECORDS && next(&p, last, &r, data); n++)
		kinds[r.kind % nkinds].run(m, &r);
}
