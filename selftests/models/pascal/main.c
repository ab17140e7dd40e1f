// SPDX-License-Identifier: GPL-2.0-only
#include "pascal.h"

#include <stdlib.h>
#include <unistd.h>

static const char usage[] =
	"usage: pascal [-1] [-b MIB] [-l PEER] [-m MIB] [-p WHAT] [-v] SOCKET\n"
	"\n"
	"Waits for QEMU (-device vfio-user-pci) on this Unix socket and is a GP100 for it.\n"
	"  -1  has all engines on one runlist\n"
	"  -b  size of BAR 1 in MiB, a power of two from 16 to 4096 (256)\n"
	"  -l  also listens on this socket, for the model of a device that accesses BAR 1\n"
	"  -m  size of the video memory in MiB, from 512 to 2048 (2048)\n"
	"  -p  what flushes posted writes to BAR 1: \"flush\" (a read of BAR 1, or 0x070000),\n"
	"      \"read\" (only a read of BAR 1), \"no\" (writes are not posted) (flush)\n"
	"  -v  prints each copy, invalidation, fault, and change of the DMA map\n"
	"\n"
	"Ends with its client and prints its counters. exit: 0; 1 if the driver broke a rule\n"
	"(VIOLATION), used a register or method that the model does not know, or if the device\n"
	"accessed an address that was not mapped for it (IOMMU fault, BAR fault); 2 usage.\n";

static int wrong(void)
{
	fputs(usage, stderr);
	return 2;
}

int main(int argc, char **argv)
{
	static struct gpu gpu;
	static const char *const posted[] = { "no", "flush", "read" };
	struct options o = { .vram = 2ULL << 30, .bar1 = 256ULL << 20, .posted = POSTED_FLUSH };
	const char *peer = NULL;
	struct gpu *g = &gpu;
	bool verbose = false;
	int opt, rc;

	while ((opt = getopt(argc, argv, "1b:l:m:p:v")) != -1) {
		switch (opt) {
		case '1':
			o.one_runlist = true;
			break;
		case 'b':
			o.bar1 = strtoull(optarg, NULL, 10) << 20;
			if (o.bar1 < 16ULL << 20 || o.bar1 > 4ULL << 30 || o.bar1 & (o.bar1 - 1))
				return wrong();
			break;
		case 'l':
			peer = optarg;
			break;
		case 'm':
			o.vram = strtoull(optarg, NULL, 10) << 20;
			if (o.vram < 512ULL << 20 || o.vram > 2ULL << 30)
				return wrong();
			break;
		case 'p':
			for (o.posted = 0; strcmp(posted[o.posted], optarg);)
				if (++o.posted == ARRAY_SIZE(posted))
					return wrong();
			break;
		case 'v':
			verbose = true;
			break;
		default:
			return wrong();
		}
	}
	if (optind != argc - 1)
		return wrong();
	setvbuf(stderr, NULL, _IOLBF, 0);
	if (gpu_init(g, &o)) {
		perror("pascal");
		return 2;
	}
	g->dev.verbose = verbose;
	if (peer && !peer_listen(&g->dev, peer)) {
		perror(peer);
		return 2;
	}
	rc = vfio_user_serve(&g->dev, argv[optind]);
	stats(g);
	gpu_free(g);
#define X(name) printf("%s %lu\n", #name, g->stats.name);
	DOOR_STATS(X)
	DOOR_FAILURES(X)
#undef X
#define X(name) rc = rc ? rc : !!g->stats.name;
	DOOR_FAILURES(X)
#undef X
	return rc;
}
