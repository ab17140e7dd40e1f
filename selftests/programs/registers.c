// SPDX-License-Identifier: GPL-2.0-only
/*
 * Do register accesses reach the right address while the memory map changes? One thread turns the
 * BARs of a PCI device on and off. The other one writes and reads back registers of an edu device.
 * In QEMU 7.2 some of these accesses go to wrong addresses, and then edu transfers wrong data.
 *
 * registers EDU OTHER             each is a folder of /sys/bus/pci/devices, without a driver
 *
 * Exit status 1, with a reason, if an access went to a wrong address, or if there was an error.
 */
#include <err.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define CHANGES		2000
#define COMMAND		4	/* in the configuration space, and its bit for BARs in memory */
#define COMMAND_MEMORY	2
#define EDU_INVERTED	0x04	/* reads as the complement of what was written */
#define EDU_DMA_SRC	0x80

static bool done;

static int open_file(const char *device, const char *file, int flags)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", device, file);
	fd = open(path, flags);
	if (fd < 0)
		err(1, "%s", path);
	return fd;
}

static void decode(int config, uint16_t command)
{
	if (pwrite(config, &command, sizeof(command), COMMAND) != sizeof(command))
		err(1, "PCI command register");
}

static void *change(void *arg)
{
	int config = *(int *)arg;

	for (int i = 0; i < CHANGES; i++) {
		decode(config, 0);
		decode(config, COMMAND_MEMORY);
		usleep(1000);
	}
	__atomic_store_n(&done, true, __ATOMIC_RELAXED);
	return NULL;
}

int main(int argc, char **argv)
{
	unsigned long n, wrong = 0;
	volatile uint64_t *source;
	volatile uint32_t *inverted;
	pthread_t thread;
	int other;
	char *bar;

	if (argc != 3)
		errx(1, "usage: registers EDU OTHER");
	decode(open_file(argv[1], "config", O_RDWR), COMMAND_MEMORY);
	bar = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED,
		   open_file(argv[1], "resource0", O_RDWR | O_SYNC), 0);
	if (bar == MAP_FAILED)
		err(1, "%s/resource0", argv[1]);
	inverted = (uint32_t *)(bar + EDU_INVERTED);
	source = (uint64_t *)(bar + EDU_DMA_SRC);
	other = open_file(argv[2], "config", O_RDWR);
	if (pthread_create(&thread, NULL, change, &other))
		errx(1, "no thread");
	for (n = 0; !__atomic_load_n(&done, __ATOMIC_RELAXED); n++) {
		uint64_t value = n * 0x9e3779b97f4a7c15;

		*inverted = value;
		wrong += *inverted != (uint32_t)~value;
		*source = value;
		wrong += *source != value;
	}
	pthread_join(thread, NULL);
	if (wrong)
		errx(1, "%lu of %lu registers read back wrong", wrong, 2 * n);
	return 0;
}
