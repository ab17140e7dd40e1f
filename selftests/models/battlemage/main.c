// SPDX-License-Identifier: GPL-2.0-only
#include "battlemage.h"

#include <stdlib.h>
#include <unistd.h>

static const char usage[] =
	"usage: battlemage [-b MIB] [-l SOCKET] [-m MIB] [-p] [-r SOCKET] [-v] SOCKET\n"
	"\n"
	"Waits for QEMU (-device vfio-user-pci) on this Unix socket and is a Battlemage for it.\n"
	"  -b  size of BAR 2 in MiB, a power of two from 256 to 16384 (that of the VRAM)\n"
	"  -l  the model of an adapter may ask for BAR 2 at this socket\n"
	"  -m  size of the VRAM in MiB, a multiple of 1024 up to 16384 (1024)\n"
	"  -p  a peer's writes to BAR 2 are queued until BAR 2 is read. QEMU then passes each\n"
	"      access to BAR 2 to the model, which is slow; else it maps BAR 2\n"
	"  -r  accesses to addresses outside of RAM are requests to the model at this socket\n"
	"  -v  prints each copy, invalidation, fault, and change of the DMA map\n"
	"\n"
	"Ends with its client and prints its counters. exit: 0; 1 if the driver broke a rule\n"
	"(VIOLATION), used a register, command or request that the model does not know, or if the\n"
	"device accessed an address without memory (IOMMU fault, GGTT fault); 2 usage.\n";

static int wrong(void)
{
	fputs(usage, stderr);
	return 2;
}

int main(int argc, char **argv)
{
	struct options o = { .vram = 1ULL << 30 };
	static struct gpu gpu;
	struct gpu *g = &gpu;
	const char *peer = NULL;
	bool verbose = false;
	int opt, rc;

	while ((opt = getopt(argc, argv, "b:l:m:pr:v")) != -1) {
		switch (opt) {
		case 'b':
			o.bar = strtoull(optarg, NULL, 10) << 20;
			if (o.bar < 256ULL << 20 || o.bar > 16ULL << 30 || o.bar & (o.bar - 1))
				return wrong();
			break;
		case 'l':
			peer = optarg;
			break;
		case 'm':
			o.vram = strtoull(optarg, NULL, 10) << 20;
			if (!o.vram || o.vram > 16ULL << 30 || o.vram & ((1ULL << 30) - 1))
				return wrong();
			break;
		case 'p':
			o.posted = true;
			break;
		case 'r':
			o.peer = optarg;
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
	if (!o.bar)
		for (o.bar = 1ULL << 30; o.bar < o.vram; o.bar *= 2)
			;
	setvbuf(stderr, NULL, _IOLBF, 0);
	if (gpu_init(g, &o)) {
		perror("battlemage");
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
