#include "connectx.h"

#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

static void say(struct hca *h, const char *what, const char *fmt, va_list ap)
{
	fprintf(stderr, "connectx: %s", what);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
}

#define SAY(name, when, what, count) \
	void name(struct hca *h, const char *fmt, ...) \
	{ \
		va_list ap; \
		count; \
		if (!(when)) \
			return; \
		va_start(ap, fmt); \
		say(h, what, fmt, ap); \
		va_end(ap); \
	}

/* A hostile guest could make it print for ever. */
SAY(note, ++h->notes < 10000, "", (void)0)
SAY(debug, h->verbose, "", (void)0)
SAY(violation, h->stats.violations < 1000, "VIOLATION: ", h->stats.violations++)

static const char usage[] =
	"usage: connectx [-m] [-v] SOCKET\n"
	"\n"
	"Waits for QEMU (-device vfio-user-pci) on this Unix socket and is a ConnectX-5 virtual function for it.\n"
	"  -m  has the memory scheme of page faults, too; the driver then selects it\n"
	"  -v  prints each command and each change of the DMA map\n"
	"\n"
	"Ends with its client and prints its counters. exit: 0; 1 if the driver did what it must not (VIOLATION), if the\n"
	"device went where nothing was mapped for it (IOMMU fault), or if a command failed or was not known; 2 usage.\n";

int main(int argc, char **argv)
{
	static struct hca hca = {
		.pd = { .name = "PDs", .first = 1, .n = 16000 },
		.uar = { .name = "UARs", .first = 16, .n = BAR0_SIZE / 4096 - 16 },
		.xrcd = { .name = "XRC domains", .first = 1, .n = 1000 },
		.td = { .name = "transport domains", .first = 1, .n = 1000 },
		.eq = { .name = "EQs", .first = 1, .n = 100 },
		.cq = { .name = "CQs", .first = 0x80, .n = 16000 },
		.mkey = { .name = "mkeys", .first = 0x10, .n = 1 << 18 },
		.qp = { .name = "QPs", .first = 0x40, .n = 16000 },
		.srq = { .name = "SRQs", .first = 1, .n = 16000 },
	};
	struct hca *h = &hca;
	int opt, rc;

	while ((opt = getopt(argc, argv, "mv")) != -1) {
		switch (opt) {
		case 'm':
			h->memory_scheme = true;
			break;
		case 'v':
			h->verbose = true;
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
	for (int i = 0; i < NVEC; i++)
		h->irq[i] = -1;
	pci_init(h);
	caps_init(h);
	rc = serve(h, argv[optind]);
	objects_free(h, false);
#define X(name) printf("%s %lu\n", #name, h->stats.name);
	STATS(X)
#undef X
	return rc ? rc : h->stats.iommu_faults || h->stats.bad_commands || h->stats.violations;
}
