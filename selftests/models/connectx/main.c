// SPDX-License-Identifier: GPL-2.0-only
#include "connectx.h"

#include <stdlib.h>
#include <unistd.h>

static const char usage[] =
	"usage: connectx [-a] [-m] [-p PEER] [-r DIR] [-s SEED] [-v] SOCKET\n"
	"\n"
	"Waits for QEMU (-device vfio-user-pci) on this Unix socket and is a ConnectX-5 virtual\n"
	"function for it.\n"
	"  -a  has address translation services (ATS)\n"
	"  -m  has the memory scheme of page faults, too; the driver then selects it\n"
	"  -p  the socket of the model of another device, for DMA to addresses that are not RAM\n"
	"  -r  records what the driver and QEMU send in DIR, as seeds for the fuzzers\n"
	"  -s  the seed of its random decisions; it prints the seed that it uses\n"
	"  -v  prints each command and each change of the DMA map\n"
	"\n"
	"Ends with its client and prints its counters. exit: 0; 1 if the driver broke a rule\n"
	"(VIOLATION), if the device accessed an address that was not mapped for it (IOMMU fault),\n"
	"or if a command or a UMR failed; 2 usage.\n";

int main(int argc, char **argv)
{
	static struct hca hca;
	struct hca *h = &hca;
	bool ats = false, memory_scheme = false, verbose = false;
	const char *record = NULL, *peer = NULL;
	u64 seed = now();
	int opt, rc;

	while ((opt = getopt(argc, argv, "amp:r:s:v")) != -1) {
		switch (opt) {
		case 'a':
			ats = true;
			break;
		case 'm':
			memory_scheme = true;
			break;
		case 'p':
			peer = optarg;
			break;
		case 'r':
			record = optarg;
			break;
		case 's':
			seed = strtoull(optarg, NULL, 0);
			break;
		case 'v':
			verbose = true;
			break;
		default:
			fputs(usage, stderr);
			return 2;
		}
	}
	if (optind != argc - 1) {
		fputs(usage, stderr);
		return 2;
	}
	setvbuf(stderr, NULL, _IOLBF, 0);
	hca_init(h, memory_scheme, ats);
	h->dev.verbose = verbose;
	h->record = record;
	h->peer.path = peer;
	h->seed = seed;
	note(h, "seed %lu", seed);
	rc = vfio_user_serve(&h->dev, argv[optind]);
	stats(h);
	hca_free(h);
#define X(name) printf("%s %lu\n", #name, h->stats.name);
	STATS(X)
#undef X
	return rc ? rc :
		    h->stats.iommu_faults || h->stats.bad_commands || h->stats.bad_umrs ||
			       h->stats.violations;
}
