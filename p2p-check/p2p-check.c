// SPDX-License-Identifier: GPL-2.0-only
/*
 * Does PCI peer-to-peer DMA work between two devices of this machine, or of one whose
 * "lspci -vvnnxxxx" was saved? The answer is that of the kernel's pci_p2pdma, with its
 * reason. This file is all of it: cc -O2 -o p2p-check p2p-check.c
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <err.h>
#include <libgen.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define SYSFS "/sys/bus/pci/devices"
#define MAX_DEPTH 256 /* buses of a domain */
#define ANY_ID (-1)

enum { OK, NOT_SUPPORTED, USAGE, NOT_KNOWN }; /* exit codes */
enum answer { NO, YES, MAYBE };

/* A verdict is the set of the answers of the kernel that fit what is known. */
enum { BUS = 1, BRIDGE = 2, NONE = 4 };

enum { REQ_SAME_HOST_BRIDGE = 1 };

static const struct host {
	unsigned int vendor;
	int device;
	int flags;
} hosts[] = {
	/* begin of what ./table prints */
	/* checksum of the rules: 656643123 */
	{ 0x8086, 0x3c00, REQ_SAME_HOST_BRIDGE }, { 0x8086, 0x3c01, REQ_SAME_HOST_BRIDGE },
	{ 0x8086, 0x2f00, REQ_SAME_HOST_BRIDGE }, { 0x8086, 0x2f01, REQ_SAME_HOST_BRIDGE },
	{ 0x8086, 0x2030, 0 }, { 0x8086, 0x2031, 0 },
	{ 0x8086, 0x2032, 0 }, { 0x8086, 0x2033, 0 },
	{ 0x8086, 0x2020, 0 }, { 0x8086, 0x09a2, 0 },
	{ 0x8086, 0x0b25, 0 }, { 0x8086, 0x0cfe, 0 },
	{ 0x8086, 0x11fb, 0 }, { 0x8086, 0x1212, 0 },
	{ 0x8086, 0x1216, 0 }, { 0x8086, 0x4940, 0 },
	{ 0x8086, 0x4942, 0 }, { 0x8086, 0x4944, 0 },
	{ 0x8086, 0x4946, 0 }, { 0x8086, 0x4948, 0 },
	{ 0x1ae0, ANY_ID, 0 }, { 0x10de, 0x2f95, 0 },
	{ 0x10de, 0x2f96, 0 }, { 0x10de, 0x2f97, 0 },
	{ 0x10de, 0x2f98, 0 },
	/* end of what ./table prints */
};

/* Root complexes of AMD's Zen and later. The kernel asks the CPU, but a dump does not name it. */
static const unsigned int zen[] = {
	0x1450, 0x1480, 0x14a4, 0x14b5, 0x14d8, 0x14e8, 0x1507,
	0x1122, 0x115b, 0x153a, 0x15d0, 0x1630, 0x1645,
};

/* Vendors of devices that only hypervisors have. */
static const unsigned int virtual[] = { 0x1af4, 0x1b36, 0x15ad, 0x80ee, 0x5853, 0x1414 };

/* Intel's host bridges that hypervisors emulate, on any CPU. */
static const unsigned int emulated[] = { 0x0d57, 0x1237, 0x29c0, 0x7190, 0x7192 };

/* Adapters by their ids. On a live system, others have a folder infiniband. */
static const struct known {
	unsigned int vendor, first, last;
	const char *text;
} rdmas[] = {
	{ 0x15b3, 0x1003, 0x1010, "mlx4" },    { 0x15b3, 0x6340, 0x6778, "mlx4" },
	{ 0x15b3, 0x1011, 0xffff, "mlx5" },    { 0x1dd8, 0x1002, 0x1003, "ionic" },
	{ 0x14e4, 0x16c0, 0x16ff, "bnxt_re" }, { 0x14e4, 0x1750, 0x1819, "bnxt_re" },
	{ 0x8086, 0x1591, 0x159b, "irdma" },   { 0x8086, 0x188a, 0x1898, "irdma" },
	{ 0x8086, 0x12d1, 0x12de, "irdma" },   { 0x8086, 0x37cc, 0x37d3, "irdma" },
	{ 0x8086, 0x24f0, 0x24f1, "hfi1" },    { 0x1425, 0x4000, 0x6fff, "iw_cxgb4" },
	{ 0x1077, 0x1634, 0x1664, "qedr" },    { 0x1077, 0x8070, 0x8090, "qedr" },
	{ 0x1d0f, 0xefa0, 0xefaf, "efa" },     { 0x1ded, 0x107f, 0x107f, "erdma" },
	{ 0x1414, 0x00ba, 0x00ba, "mana_ib" }, { 0x19e5, 0xa222, 0xa22f, "hns" },
};

/* What the exporters of patches/ are, by their ids. */
static const struct known exporters[] = {
	{ 0x8086, 0xe202, 0xe223, "xe with xe.svm_p2p=1 and DRM_XE_PAGEMAP" },
	{ 0x8086, 0x0b69, 0x0be5, "xe with xe.svm_p2p=1 and DRM_XE_PAGEMAP" },
	{ 0x10de, 0x1580, 0x15ff, "nouveau with nouveau.svm_p2p=1" },
	{ 0x10de, 0x1b00, 0x1d7f, "nouveau with nouveau.svm_p2p=1" },
	{ 0x10de, 0x0000, 0xffff,
	  "none, as nouveau has shared virtual memory only on Pascal; for NVIDIA's own driver see "
	  "out-of-tree/nvidia-uvm" },
	{ 0x1002, 0x0000, 0xffff, "none, as amdgpu does not export its device-private pages" },
	{ 0x8086, 0x0000, 0xffff,
	  "none, as xe has shared virtual memory and VRAM only from Battlemage and Ponte Vecchio "
	  "on" },
};

struct dev {
	char name[40];
	char *text, *driver, *iommu;
	unsigned int domain, bus, devfn, vendor, device, class;
	unsigned char config[4096];
	unsigned int len;
	unsigned long long bar; /* MiB of the largest BAR */
	unsigned long long end; /* of the last BAR; 0 in a dump */
	struct dev *up; /* the bridge above, NULL on a root bus */
	long root; /* domain and root bus of the host bridge; -1: not known */
	const char *lost; /* why it is not known what is above, or NULL */
	char kind; /* G: GPU, R: RDMA adapter, D: NVMe drive */
	int number;
	bool drawn;
	int x, y; /* of the middle of its box */
};

struct pair {
	int possible; /* BUS, BRIDGE, NONE */
	struct dev *a, *b, *common;
	struct dev *redirect[2 * MAX_DEPTH];
	int n_redirect;
	struct dev *dark; /* a bridge whose ACS bits are not known */
	struct dev *lost;
};

static struct dev **devs;
static int n_devs;
static const char *dump; /* NULL: this machine */
static bool json, svg, guest;
static enum answer cpu_zen = MAYBE;
static const char *cpu_why;

/* Nothing is freed: the program ends soon. */
__attribute__((format(printf, 1, 2))) static char *text(const char *format, ...)
{
	va_list args;
	char *s;

	va_start(args, format);
	if (vasprintf(&s, format, args) < 0)
		err(USAGE, "memory");
	va_end(args);
	return s;
}

static unsigned int u16(const struct dev *d, unsigned int at)
{
	return d->config[at] | d->config[at + 1] << 8;
}

static uint32_t u32(const struct dev *d, unsigned int at)
{
	return u16(d, at) | (uint32_t)u16(d, at + 2) << 16;
}

/* The offset of a capability; 0: there is none; -1: not known. */
static int capability(const struct dev *d, unsigned int id)
{
	unsigned int at;

	/* A device without power reads as ones. */
	if (d->len < 64 || u16(d, 6) == 0xffff)
		return -1;
	if (!(u16(d, 6) & 0x10))
		return 0;
	at = d->config[(d->config[0xe] & 0x7f) == 2 ? 0x14 : 0x34] & ~3u;
	for (int ttl = 48; at >= 0x40; ttl--) {
		if (!ttl || at + 4 > d->len)
			return -1;
		if (d->config[at] == 0xff)
			return 0;
		if (d->config[at] == id)
			return at;
		at = d->config[at + 1] & ~3u;
	}
	return 0;
}

static int extended(const struct dev *d, unsigned int id)
{
	int express = capability(d, 0x10);
	unsigned int at = 0x100;

	/* Without PCI Express there are none. */
	if (express <= 0)
		return express;
	for (int ttl = 480; at >= 0x100; ttl--) {
		if (!ttl || at + 8 > d->len || u32(d, at) == 0xffffffff)
			return -1;
		if (!u32(d, at))
			return 0;
		if ((u32(d, at) & 0xffff) == id)
			return at;
		at = u32(d, at) >> 20 & 0xffc;
	}
	return 0;
}

/* The type of a PCI Express device or port; -1: not known, or conventional PCI. */
static int express_type(const struct dev *d)
{
	int at = capability(d, 0x10);

	return at > 0 ? (int)(u16(d, at + 2) >> 4 & 15) : -1;
}

enum { ROOT_PORT = 4, UPSTREAM = 5, DOWNSTREAM = 6, TO_PCI = 7, INTEGRATED = 9, COLLECTOR = 10 };

static bool is_bridge(const struct dev *d)
{
	unsigned int type = d->config[0xe] & 0x7f;

	return d->len >= 64 && (type == 1 || type == 2);
}

static enum answer redirects(const struct dev *d)
{
	int at = extended(d, 0xd);

	if (at < 0)
		return MAYBE;
	/* Request redirect, completion redirect, egress control. */
	return at && u16(d, at + 6) & 0x2c ? YES : NO;
}

/* Reading the machine or the dump. */

static struct dev *add(unsigned int domain, unsigned int bus, unsigned int slot,
		       unsigned int function)
{
	struct dev *d = calloc(1, sizeof(*d));

	devs = realloc(devs, (n_devs + 1) * sizeof(*devs));
	if (!d || !devs)
		err(USAGE, "memory");
	devs[n_devs++] = d;
	*d = (struct dev){ .domain = domain, .bus = bus, .root = -1 };
	d->devfn = slot << 3 | function;
	snprintf(d->name, sizeof(d->name), "%04x:%02x:%02x.%x", domain, bus, slot, function);
	return d;
}

/* [DOMAIN:]BUS:SLOT.FUNCTION and a character of @end. Returns what is behind it, or NULL. */
static const char *address(const char *s, const char *end, unsigned int *a)
{
	int n = 0;

	if (!isxdigit((unsigned char)*s))
		return NULL;
	if (sscanf(s, "%8x:%2x:%2x.%1x%n", &a[0], &a[1], &a[2], &a[3], &n) != 4 || !n) {
		a[0] = 0;
		n = 0;
		if (sscanf(s, "%2x:%2x.%1x%n", &a[1], &a[2], &a[3], &n) != 3 || !n)
			return NULL;
	}
	if (a[2] > 31 || a[3] > 7 || !strchr(end, s[n]))
		return NULL;
	return s + n;
}

static struct dev *find(const char *name)
{
	unsigned int a[4];

	if (!address(name, "", a))
		return NULL;
	for (int i = 0; i < n_devs; i++)
		if (devs[i]->domain == a[0] && devs[i]->bus == a[1] &&
		    devs[i]->devfn == (a[2] << 3 | a[3]))
			return devs[i];
	return NULL;
}

static void read_dump(void)
{
	FILE *f = strcmp(dump, "-") ? fopen(dump, "r") : stdin;
	unsigned int a[4], at;
	struct dev *d = NULL;
	char *line = NULL;
	size_t size = 0;
	const char *s;
	char unit;
	int n;

	if (!f)
		err(USAGE, "%s", dump);
	while (getline(&line, &size, f) >= 0) {
		line[strcspn(line, "\r\n")] = 0;
		n = 0;
		s = line;
		/* A byte order mark */
		if (!n_devs && !strncmp(s, "\xef\xbb\xbf", 3))
			s += 3;
		s = address(s, " ", a);
		if (s) {
			d = add(a[0], a[1], a[2], a[3]);
			d->text = text("%.100s", s + 1);
		} else if (!n_devs && sscanf(line, "%4x: %2x", &at, &a[0]) == 2) {
			errx(USAGE, "%s: the beginning of the dump is missing", dump);
		} else if (!*line) {
			d = NULL;
		} else if (d && sscanf(line, "%4x:%n", &at, &n) == 1 && n &&
			   isxdigit((unsigned char)*line)) {
			/* A gap ends what is known. */
			for (s = line + n; at == d->len && at < sizeof(d->config); s += 3) {
				if (s[0] != ' ' || !isxdigit((unsigned char)s[1]) ||
				    !isxdigit((unsigned char)s[2]))
					break;
				sscanf(s, "%2hhx", &d->config[at++]);
				d->len = at;
			}
		} else if (d && (s = strstr(line, "Region ")) && (s = strstr(s, "[size=")) &&
			   sscanf(s, "[size=%4u%c", &at, &unit) == 2 && strchr("MGT", unit)) {
			unsigned long long bar = at;

			bar <<= unit == 'M' ? 0 : unit == 'G' ? 10 : 20;
			d->bar = bar > d->bar ? bar : d->bar;
		} else if (d && (s = strstr(line, "Kernel driver in use: ")) && !d->driver) {
			d->driver = text("%.40s", s + strlen("Kernel driver in use: "));
		}
	}
	if (ferror(f))
		err(USAGE, "%s", dump);
	if (f != stdin)
		fclose(f);
	at = 0;
	for (int i = 0; i < n_devs; i++) {
		d = devs[i];
		at += d->len >= 64;
		if (d->len < 64)
			continue;
		d->vendor = u16(d, 0);
		d->device = u16(d, 2);
		d->class = u32(d, 8) >> 8;
	}
	if (!at)
		errx(USAGE,
		     "%s: no configuration space in it: save it with lspci -vvnnxxxx, as root",
		     dump);
}

/* The first line of a file of a device, or an empty string. */
static char *attribute(const struct dev *d, const char *file)
{
	static char line[256];
	FILE *f = fopen(text(SYSFS "/%s/%s", d->name, file), "r");

	*line = 0;
	if (f && fgets(line, sizeof(line), f))
		line[strcspn(line, "\n")] = 0;
	if (f)
		fclose(f);
	return line;
}

static void read_bars(struct dev *d)
{
	FILE *f = fopen(text(SYSFS "/%s/resource", d->name), "r");
	unsigned long long first, last;
	char line[128];

	for (int i = 0; f && i < 6 && fgets(line, sizeof(line), f); i++) {
		if (sscanf(line, "%llx %llx", &first, &last) != 2 || last <= first)
			continue;
		if ((last - first + 1) >> 20 > d->bar)
			d->bar = (last - first + 1) >> 20;
		if (last > d->end)
			d->end = last;
	}
	if (f)
		fclose(f);
}

static void read_live(void)
{
	DIR *dir = opendir(SYSFS);
	unsigned int a[4];
	struct dirent *e;
	struct dev *d;
	FILE *f;

	if (!dir)
		err(USAGE, SYSFS);
	while ((e = readdir(dir))) {
		if (!address(e->d_name, "", a))
			continue;
		d = add(a[0], a[1], a[2], a[3]);
		d->vendor = strtoul(attribute(d, "vendor"), NULL, 16);
		d->device = strtoul(attribute(d, "device"), NULL, 16);
		d->class = strtoul(attribute(d, "class"), NULL, 16);
		d->iommu = text("%s", attribute(d, "iommu_group/type"));
		if (!strncmp(attribute(d, "uevent"), "DRIVER=", 7))
			d->driver = text("%s", attribute(d, "uevent") + 7);
		read_bars(d);
		f = fopen(text(SYSFS "/%s/config", d->name), "r");
		if (f) {
			/* Not more than a user may read. */
			setbuf(f, NULL);
			d->len = fread(d->config, 1, sizeof(d->config), f);
			fclose(f);
		}
	}
	closedir(dir);
}

static int by_address(const void *x, const void *y)
{
	const struct dev *a = *(struct dev *const *)x, *b = *(struct dev *const *)y;

	if (a->domain != b->domain)
		return a->domain < b->domain ? -1 : 1;
	return (int)(a->bus << 8 | a->devfn) - (int)(b->bus << 8 | b->devfn);
}

/* In sysfs the folder of a device is in that of the bridge above, also for virtual functions. */
static void link_live(void)
{
	unsigned int domain, bus;

	for (int i = 0; i < n_devs; i++) {
		struct dev *d = devs[i];
		char *path = realpath(text(SYSFS "/%s", d->name), NULL), *up;

		up = path ? strrchr(dirname(path), '/') : NULL;
		if (up && sscanf(up, "/pci%x:%x", &domain, &bus) == 2)
			d->root = (long)domain << 8 | bus;
		else if (!up || !(d->up = find(up + 1)))
			d->lost = "sysfs does not say what is above it";
	}
}

/* What is on a root bus, and nowhere else. Bus 0 cannot be below a bridge. */
static bool is_root_bus(const struct dev *d)
{
	for (int i = 0; i < n_devs; i++) {
		int type = express_type(devs[i]);

		if (devs[i]->domain == d->domain && devs[i]->bus == d->bus &&
		    (devs[i]->class >> 8 == 0x0600 || type == ROOT_PORT || type == INTEGRATED ||
		     type == COLLECTOR))
			return true;
	}
	return !d->bus;
}

static void link_dump(void)
{
	for (int i = 0; i < n_devs; i++) {
		struct dev *d = devs[i], *up = NULL, *around = NULL;
		int n = 0;

		for (int j = 0; j < n_devs; j++) {
			struct dev *b = devs[j];

			if (b->domain != d->domain || !is_bridge(b) || b == d)
				continue;
			if (b->config[0x19] == d->bus && d->bus) {
				n++;
				up = b;
			}
			if (b->bus < b->config[0x19] && b->config[0x19] < d->bus &&
			    d->bus <= b->config[0x1a] &&
			    (!around || around->config[0x19] < b->config[0x19]))
				around = b;
		}
		if (d->len < 64)
			d->lost = "its configuration space is not in the dump";
		else if (n > 1)
			d->lost = text("%d bridges lead to bus %02x", n, d->bus);
		else if (n && up->bus >= d->bus)
			d->lost = text("%s leads to its own bus or to one above it", up->name);
		else if (n)
			d->up = up;
		else if (around && d->vendor == 0xffff)
			d->up = around; /* a virtual function on a bus of its own */
		else if (around)
			d->lost =
				text("no bridge below %s leads to bus %02x", around->name, d->bus);
		else if (is_root_bus(d))
			d->root = (long)d->domain << 8 | d->bus;
		else
			d->lost = text(
				"no bridge leads to bus %02x, and it does not look like a root bus",
				d->bus);
	}
}

static bool in(unsigned int id, const unsigned int *list, size_t n)
{
	while (n--)
		if (list[n] == id)
			return true;
	return false;
}

/* The kernel trusts all host bridges of AMD's Zen and later. */
static void look_at_cpu(void)
{
	FILE *f = dump ? NULL : fopen("/proc/cpuinfo", "r");
	int family = 0, amd = 0;
	struct dev *d = devs[0];
	char line[4096];

	for (int i = 0; i < n_devs; i++)
		guest |= in(devs[i]->vendor, virtual, ARRAY_SIZE(virtual)) ||
			 (devs[i]->vendor == 0x8086 &&
			  in(devs[i]->device, emulated, ARRAY_SIZE(emulated)));
	while (f && fgets(line, sizeof(line), f)) {
		amd |= !strncmp(line, "vendor_id", 9) && strstr(line, ": AuthenticAMD");
		guest |= !strncmp(line, "flags", 5) && strstr(line, " hypervisor");
		sscanf(line, "cpu family : %d", &family);
	}
	if (cpu_why)
		return;
	if (f) {
		fclose(f);
		cpu_zen = amd && family >= 0x17 ? YES : NO;
		cpu_why = cpu_zen ? "AMD Zen or later" : amd ? "AMD, older than Zen" : "not AMD";
	} else if (guest || d->domain || d->bus || d->devfn || d->len < 64 ||
		   (d->vendor == 0x1022 && !in(d->device, zen, ARRAY_SIZE(zen)))) {
		/* In a guest the host bridge does not tell the CPU. */
		cpu_why = "not known";
	} else {
		cpu_zen = d->vendor == 0x1022 ? YES : NO;
		cpu_why = cpu_zen ? "AMD Zen or later, by the device 00:00.0" :
				    "not AMD, by the device 00:00.0";
	}
}

static bool known(const struct dev *d, const struct known *k)
{
	return d->vendor == k->vendor && k->first <= d->device && d->device <= k->last;
}

static const char *kind(const struct dev *d)
{
	return d->kind == 'G' ? "GPU" :
	       d->kind == 'R' ? "RDMA adapter" :
	       d->kind == 'D' ? "NVMe drive" :
				"";
}

static void classify(void)
{
	/* Of management controllers and of hypervisors. */
	static const unsigned int displays[] = { 0x1a03, 0x102b, 0x1234, 0x1013, 0x19e5 };
	int number[128] = { 0 };

	for (int i = 0; i < n_devs; i++) {
		struct dev *d = devs[i];
		unsigned int class = d->class >> 8;

		if (class >> 8 == 3 || class == 0x1200) {
			/* Intel's GPUs on the root bus have no memory of their own. */
			if (!in(d->vendor, displays, ARRAY_SIZE(displays)) &&
			    !in(d->vendor, virtual, ARRAY_SIZE(virtual)) &&
			    (d->vendor != 0x8086 || d->bus))
				d->kind = 'G';
		} else if (class == 0x0108) {
			d->kind = 'D';
		} else if (!dump && !access(text(SYSFS "/%s/infiniband", d->name), F_OK)) {
			d->kind = 'R';
		} else if (class >> 8 == 2) {
			for (size_t j = 0; j < ARRAY_SIZE(rdmas); j++)
				if (known(d, &rdmas[j]))
					d->kind = 'R';
		}
		d->number = number[(int)d->kind]++;
	}
}

/* The rules of drivers/pci/p2pdma.c */

/* pci_host_bridge_dev(): the device by which the kernel knows a host bridge. */
static struct dev *first_on(long root)
{
	for (int i = 0; i < n_devs; i++)
		if (devs[i]->root == root && devs[i]->bus == (root & 0xff))
			return devs[i];
	return NULL;
}

/* __host_bridge_whitelist() */
static enum answer listed(long root, bool same)
{
	struct dev *d = root < 0 ? NULL : first_on(root);

	if (!d)
		return root < 0 ? MAYBE : NO;
	if (d->devfn && express_type(d) != ROOT_PORT)
		/* A dump may lack the device 00.0. */
		return dump || capability(d, 0x10) < 0 ? MAYBE : NO;
	for (size_t i = 0; i < ARRAY_SIZE(hosts); i++)
		if (hosts[i].vendor == d->vendor &&
		    (hosts[i].device == ANY_ID || hosts[i].device == (int)d->device))
			return same || !(hosts[i].flags & REQ_SAME_HOST_BRIDGE) ? YES : NO;
	return dump && d->devfn ? MAYBE : NO;
}

static struct dev *top(struct dev *d)
{
	while (d->up)
		d = d->up;
	return d;
}

/* host_bridge_whitelist() */
static enum answer trusted(const struct pair *p)
{
	long a = top(p->a)->root, b = top(p->b)->root;
	enum answer first, second;

	if (a == b)
		return a < 0 ? MAYBE : listed(a, true);
	first = listed(a, false);
	second = listed(b, false);
	if (first == NO || second == NO)
		/* If one host bridge is not known, it may be the same as the other. */
		return a < 0 || b < 0 ? MAYBE : NO;
	return first == YES && second == YES ? YES : MAYBE;
}

static void look(struct pair *p, struct dev *d)
{
	enum answer r = redirects(d);

	if (r == YES)
		p->redirect[p->n_redirect++] = d;
	if (r == MAYBE && !p->dark)
		p->dark = d;
}

/* calc_map_type_and_dist() */
static struct pair judge(struct dev *provider, struct dev *client)
{
	struct pair p = { .a = provider, .b = client };
	enum answer host;
	struct dev *a, *b;

	for (a = provider; a; a = a->up) {
		for (b = client; b && a != b; b = b->up)
			;
		/* The port where the paths meet counts, too. */
		look(&p, a);
		if (b)
			break;
	}
	p.common = a;
	for (b = client; a && b != a; b = b->up)
		look(&p, b);

	if (!a && top(provider)->lost)
		p.lost = top(provider);
	else if (!a && top(client)->lost)
		p.lost = top(client);
	if (a && !p.n_redirect) {
		p.possible = BUS;
		if (!p.dark)
			return p;
	}
	if (p.lost && !p.n_redirect)
		p.possible = BUS;
	host = trusted(&p);
	if (cpu_zen != YES && host != YES)
		p.possible |= NONE;
	if (cpu_zen != NO || host != NO)
		p.possible |= BRIDGE;
	return p;
}

static const char *verdict(const struct pair *p)
{
	static const char *const names[] = {
		[BUS] = "bus",
		[BRIDGE] = "bridge",
		[NONE] = "none",
		[BUS | BRIDGE] = "bus or bridge",
	};

	return p->possible < (int)ARRAY_SIZE(names) && names[p->possible] ? names[p->possible] :
									    "not known";
}

static const char *long_verdict(const struct pair *p)
{
	return p->possible == BUS    ? "bus address" :
	       p->possible == BRIDGE ? "through host bridge" :
	       p->possible == NONE   ? "not supported" :
				       verdict(p);
}

static int code(const struct pair *p)
{
	return p->possible == NONE ? NOT_SUPPORTED : p->possible & NONE ? NOT_KNOWN : OK;
}

/* Printing */

/* A dump may contain anything, so only what is printable is printed. */
static void put(const char *s)
{
	for (; s && *s; s++) {
		if (json && strchr("\"\\", *s))
			putchar('\\');
		putchar(isprint((unsigned char)*s) ? *s : '?');
	}
}

static const char *list; /* the name of a list that has no line yet, or NULL */

static void begin(const char *name)
{
	list = name;
	if (json)
		printf(", \"%s\": [", name);
}

#define say(...) say_line(text(__VA_ARGS__))
static void say_line(const char *s)
{
	if (json)
		printf(list ? "\"" : ", \"");
	else
		printf("%s  ", list && !strcmp(list, "what_to_do") ? "What to do:\n" : "");
	put(s);
	printf(json ? "\"" : "\n");
	list = NULL;
}

static char *names(struct dev *const *list, int n, const char *between)
{
	char *s = "";

	for (int i = 0; i < n; i++)
		s = text("%s%s%s", s, i ? between : "", list[i]->name);
	return s;
}

static const char *const types[16] = { [ROOT_PORT] = "root port",
				       [UPSTREAM] = "switch",
				       [DOWNSTREAM] = "switch port",
				       [TO_PCI] = "to PCI" };

static void say_above(struct dev *d)
{
	char *s = text("Above %s:", d->name);

	for (; d->up; d = d->up) {
		int type = express_type(d->up);

		s = text(type > ROOT_PORT && types[type] ? "%s %s (%s)," : "%s %s,", s,
			 d->up->name, types[type > 0 ? type : 0]);
	}
	if (d->root >= 0)
		say("%s root bus %04lx:%02lx", s, d->root >> 8, d->root & 0xff);
	else
		say("%s not known: %s", s, d->lost);
}

static void say_host(long root, bool same)
{
	struct dev *d = root < 0 ? NULL : first_on(root);
	const char *why =
		listed(root, same) == YES ?
			"it is in the kernel's list" :
		listed(root, true) == YES ?
			"the kernel's list has it only for two devices below the same host bridge" :
			"it is not in the kernel's list";

	if (d && d->devfn && express_type(d) != ROOT_PORT)
		say("The kernel does not know the host bridge of root bus %04lx:%02lx: "
		    "its first device, %s, is neither 00.0 nor a root port.",
		    root >> 8, root & 0xff, d->name);
	else if (d)
		say("The kernel knows the host bridge of root bus %04lx:%02lx by %s, %04x:%04x: "
		    "%s.",
		    root >> 8, root & 0xff, d->name, d->vendor, d->device, why);
	if (d && d->devfn && dump && listed(root, same) == MAYBE)
		say("But the dump may lack the device %04lx:%02lx:00.0, by which the kernel "
		    "would know it. If the dump has all devices of this bus, the verdict is: "
		    "not supported.",
		    root >> 8, root & 0xff);
}

/* On this machine: does the DMA mask of @client cover the BARs of @provider? */
static void say_mask(const struct dev *provider, const struct dev *client)
{
	int bits = atoi(attribute(client, "dma_mask_bits"));

	if (client->driver && bits && bits < 64 && provider->end >> bits)
		say("The DMA mask of %s has %d bits, and a BAR of %s ends at 0x%llx, which is "
		    "above it: addresses there are refused.",
		    client->name, bits, provider->name, provider->end);
}

static void reasons(const struct pair *p)
{
	long a = top(p->a)->root, b = top(p->b)->root;

	say_above(p->a);
	say_above(p->b);
	if (!p->common && !p->lost)
		say("No bridge is above both.");
	else if (p->common && p->a != p->b)
		say("The paths meet at %s.", p->common->name);
	if (p->common && p->n_redirect)
		say("ACS redirects to the root complex at %s.",
		    names(p->redirect, p->n_redirect, ", "));
	else if (p->common && !p->dark)
		say("No port between them redirects (ACS).");
	if (p->dark && !p->n_redirect && (p->common || p->lost))
		say("The ACS bits of %s are not known: %s.", p->dark->name,
		    dump ? "they need lspci -xxxx, as root" : "only root can read them");
	if (!dump) {
		say_mask(p->a, p->b);
		say_mask(p->b, p->a);
	}
	if (p->possible == BUS)
		return;
	say("CPU: %s%s.", cpu_why, cpu_zen == YES ? ", so the kernel trusts all host bridges" : "");
	if (cpu_zen == YES)
		return;
	say_host(a, a == b);
	if (a != b)
		say_host(b, false);
}

/* Say that @other fits below a switch above @d, if a port of it is free. */
static void say_slot(struct dev *d, const struct dev *other)
{
	const char *name = d->name;

	for (; d; d = d->up)
		for (int i = 0; express_type(d) == UPSTREAM && i < n_devs; i++) {
			bool used = devs[i]->up != d || express_type(devs[i]) != DOWNSTREAM;

			for (int j = 0; j < n_devs && !used; j++)
				used = devs[j]->up == devs[i];
			if (!used) {
				say("Another slot: nothing is below the switch port %s. "
				    "There %s would be below one switch with %s.",
				    devs[i]->name, other->name, name);
				return;
			}
		}
}

/* Say that @other may be below the host bridge of @d, if the list has it for such pairs. */
static bool say_same(struct dev *d, const struct dev *other)
{
	long root = top(d)->root;

	if (listed(root, true) != YES)
		return false;
	say("Another slot: below root bus %04lx:%02lx, %s would be below the same host bridge "
	    "as %s, for the verdict through host bridge.",
	    root >> 8, root & 0xff, other->name, d->name);
	return true;
}

static bool has_switch(void)
{
	for (int i = 0; i < n_devs; i++)
		if (express_type(devs[i]) == UPSTREAM)
			return true;
	return false;
}

static void advice(const struct pair *p)
{
	bool helps;

	if (p->common && p->n_redirect) {
		say("Boot with pci=disable_acs_redir=%s for the verdict bus address%s. "
		    "Then no IOMMU separates these devices.",
		    names(p->redirect, p->n_redirect, ";"),
		    p->dark ? ", unless a port that is not known redirects, too" : "");
		if (p->n_redirect > 1)
			say("In the configuration of GRUB write \\; because ; ends a command "
			    "there.");
		say("The kernel sets ACS if an IOMMU is on, also with iommu=pt. "
		    "A BIOS can have a setting for it, too.");
	} else if (!p->common && !p->lost) {
		say_slot(p->a, p->b);
		say_slot(p->b, p->a);
		if (p->possible == NONE) {
			helps = say_same(p->a, p->b);
			if (!say_same(p->b, p->a) && !helps)
				say(has_switch() ? "Only slots below one switch help." :
						   "This machine has no switch that both could be "
						   "below, so only another machine helps.");
		}
	}
	if (p->possible & BRIDGE && p->a->iommu && !strncmp(p->a->iommu, "DMA", 3))
		say("The IOMMU translates. If transfers are slow or fail, try iommu=pt.");
	if (cpu_zen == MAYBE && p->possible & NONE)
		say("Run again with --cpu zen if the CPU is an AMD Zen or later, else with "
		    "--cpu other.");
	if (guest)
		say("This is a virtual machine. Run p2p-check on its host, too.");
}

static const char *bytes(int mib_log2)
{
	return text("%d %ciB", 1 << mib_log2 % 10, "MGTP"[mib_log2 / 10]);
}

static void describe(const struct dev *d)
{
	int at = extended(d, 0x15), bars = 0;
	unsigned long long vram;

	for (size_t i = 0; d->kind == 'G' && i < ARRAY_SIZE(exporters); i++)
		if (known(d, &exporters[i])) {
			say("Driver that lets peers reach its private memory with these patches: "
			    "%s.",
			    exporters[i].text);
			break;
		}
	/* Resizable BAR */
	if (d->kind == 'G' && at > 0 && at + 12 <= (int)d->len)
		bars = u32(d, at + 8) >> 5 & 7;
	for (; bars > 0 && at + 12 <= (int)d->len; bars--, at += 8) {
		int size, most = 0;

		size = u32(d, at + 8) >> 8 & 0x1f;
		for (int i = 0; i < 28; i++)
			if (u32(d, at + 4) >> (i + 4) & 1)
				most = i;
		say("BAR %d has %s and can have %s%s", u32(d, at + 8) & 7, bytes(size), bytes(most),
		    size < most ? ": turn on Resizable BAR and Above 4G Decoding in the BIOS." :
				  ".");
	}
	if (d->kind == 'G' && (d->bar || !dump)) {
		vram = dump ? 0 : strtoull(attribute(d, "mem_info_vram_total"), NULL, 0);
		say("Its largest BAR has %llu MiB%s. Peers reach what the BAR shows.", d->bar,
		    vram ? text(", its VRAM %llu MiB", vram >> 20) : "");
	}
	for (size_t i = 0; d->kind == 'R' && i < ARRAY_SIZE(rdmas); i++)
		if (known(d, &rdmas[i]))
			say("RDMA driver: %s. On-demand paging: %s.", rdmas[i].text,
			    strcmp(rdmas[i].text, "mlx5") ? "not in this driver" :
							    "see odp_caps in ibv_devinfo -v");
	if (d->kind != 'D' && (at = extended(d, 0xf)) > 0)
		say("ATS is %s.", u16(d, at + 6) & 0x8000 ? "on" : "off");
	if (d->driver)
		say("Bound to %s.", d->driver);
	if (d->iommu)
		say("IOMMU: %s.", !*d->iommu			? "none for this device" :
				  !strcmp(d->iommu, "identity") ? "passthrough" :
				  !strcmp(d->iommu, "DMA")	? "translates, strict" :
				  !strcmp(d->iommu, "DMA-FQ")	? "translates, lazy" :
								  d->iommu);
}

static void put_device(const struct dev *d)
{
	if (json)
		printf("{\"address\": \"%s\", \"id\": \"%04x:%04x\", \"kind\": \"%s\", "
		       "\"name\": \"",
		       d->name, d->vendor, d->device, kind(d));
	else if (d->kind)
		printf("%c%-3d %s  %04x:%04x  %s  ", d->kind, d->number, d->name, d->vendor,
		       d->device, kind(d));
	else
		printf("%s  %04x:%04x  ", d->name, d->vendor, d->device);
	put(d->text);
	printf(json ? "\"" : "\n");
	begin("notes");
	describe(d);
	if (json)
		printf("]}");
}

static void put_pair(const struct pair *p)
{
	if (json)
		printf("{\"a\": \"%s\", \"b\": \"%s\", \"verdict\": \"%s\"", p->a->name, p->b->name,
		       verdict(p));
	else
		puts(long_verdict(p));
	begin("why");
	reasons(p);
	if (json)
		printf("]");
	begin("what_to_do");
	advice(p);
	if (json)
		printf("]}");
}

/* The picture: the tree of what is above the shown devices, the root buses at the top. */

enum { WIDTH = 180, HEIGHT = 52, STEP_X = 200, STEP_Y = 90 };

static void place(struct dev *d, int y, int *columns, int *height)
{
	int first = -1, last = -1;

	for (int i = 0; i < n_devs; i++)
		if (devs[i]->drawn && devs[i]->up == d) {
			place(devs[i], y + STEP_Y, columns, height);
			last = devs[i]->x;
			first = first < 0 ? last : first;
		}
	d->x = first < 0 ? STEP_X * (*columns)++ + STEP_X / 2 : (first + last) / 2;
	d->y = y;
	if (y > *height)
		*height = y;
}

static void draw_line(int x, int y, int to_x, int to_y, const char *style)
{
	/* Root buses are side by side. The line goes around what is between them. */
	printf("<path d=\"M%d %d Q%d %d %d %d\" fill=\"none\" %s/>\n", x, y, (x + to_x) / 2,
	       y == to_y ? y - 110 : (y + to_y) / 2, to_x, to_y, style);
}

static void draw_box(const struct dev *d, const char *title, const char *more, bool bad,
		     const char *fill)
{
	printf("<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"4\" fill=\"%s\" "
	       "stroke=\"#8c959f\"/>\n",
	       d->x - WIDTH / 2, d->y - HEIGHT / 2, WIDTH, HEIGHT, fill);
	printf("<text text-anchor=\"middle\" y=\"%d\"><tspan x=\"%d\" font-weight=\"bold\">%s"
	       "</tspan><tspan x=\"%d\" dy=\"15\">%s</tspan><tspan x=\"%d\" dy=\"15\" %s>%s"
	       "</tspan></text>\n",
	       d->y - 11, d->x, title, d->x, d->name, d->x,
	       bad ? "fill=\"#cf222e\"" : "", more);
}

static void draw(struct dev **shown, int n, const struct pair *p)
{
	static const char *const styles[] = { "stroke=\"#8c959f\"",
					      "stroke=\"#1a7f37\" stroke-width=\"4\"",
					      "stroke=\"#0969da\" stroke-width=\"4\"",
					      "stroke=\"#cf222e\" stroke-width=\"3\" "
					      "stroke-dasharray=\"6\"" };
	int n_tops = 0, columns = 0, height = 0, style = 0;
	struct dev *tops[n], *d;

	for (int i = 0; i < n; i++)
		for (d = shown[i]; d && !d->drawn; d = d->up) {
			d->drawn = true;
			if (!d->up)
				tops[n_tops++] = d;
		}
	/* In the order of the addresses, a box above those that have a root bus in common. */
	qsort(tops, n_tops, sizeof(*tops), by_address);
	for (int i = 0; i < n_tops; i++) {
		d = i && tops[i]->root >= 0 && tops[i]->root == tops[i - 1]->root ?
			    tops[i - 1]->up :
			    calloc(1, sizeof(*d));
		if (!d)
			err(USAGE, "memory");
		*d = (struct dev){ .root = tops[i]->root };
		if (d->root >= 0)
			snprintf(d->name, sizeof(d->name), "root bus %04lx:%02lx", d->root >> 8,
				 d->root & 0xff);
		tops[i]->up = d;
	}
	for (int i = 0; i < n_tops; i++)
		if (!i || tops[i]->up != tops[i - 1]->up)
			place(tops[i]->up, 90, &columns, &height);

	printf("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
	       "font-family=\"Verdana,DejaVu Sans,sans-serif\" font-size=\"12\">\n"
	       "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
	       columns * STEP_X < 400 ? 400 : columns * STEP_X, height + 80);
	if (p)
		style = p->possible == BUS    ? 1 :
			p->possible == BRIDGE ? 2 :
			p->possible == NONE   ? 3 :
						0;
	if (style > 1 && top(p->a) != top(p->b))
		draw_line(top(p->a)->x, 90, top(p->b)->x, 90, styles[style]);
	for (int i = 0; i < n_devs; i++) {
		bool on = false;

		if (!devs[i]->drawn)
			continue;
		for (int k = 0; p && k < 2; k++)
			for (d = k ? p->a : p->b; d && (style > 1 || d != p->common); d = d->up)
				on |= d == devs[i];
		draw_line(devs[i]->x, devs[i]->y, devs[i]->up->x, devs[i]->up->y,
			  styles[on ? style : 0]);
	}
	for (int i = 0; i < n_devs; i++) {
		int type = express_type(devs[i]);

		d = devs[i];
		if (d->drawn)
			draw_box(d,
				 d->kind	  ? kind(d) :
				 !is_bridge(d)	  ? "device" :
				 type >= 0 && types[type] ? types[type] :
						    "bridge",
				 redirects(d) == YES ? "ACS redirects" :
						       text("%04x:%04x", d->vendor, d->device),
				 redirects(d) == YES,
				 d->kind ? "#ddf4ff" : "#f6f8fa");
	}
	for (int i = 0; i < n_tops; i++) {
		enum answer yes = cpu_zen == YES ? YES : listed(tops[i]->root, true);

		if (i && tops[i]->up == tops[i - 1]->up)
			continue;
		draw_box(tops[i]->up, "host bridge",
			 yes == YES	   ? "trusted by the kernel" :
			 cpu_zen == MAYBE || yes == MAYBE ? "trusted: not known" :
					     "not trusted by the kernel",
			 yes != YES,
			 "#eaeef2");
	}
	if (p)
		printf("<text x=\"10\" y=\"%d\" font-weight=\"bold\">%s and %s: %s</text>\n",
		       height + 65, p->a->name, p->b->name, long_verdict(p));
	puts("</svg>");
}

/* All devices of the three kinds, or only these two. */
static int report(struct dev *x, struct dev *y)
{
	struct dev *shown[2 + n_devs];
	int n = 0, pairs = 0, counted = 0, worst = OK, explained = 0, n_first = 0;
	/* The pairs that count: a GPU and an RDMA adapter, or all if there is none. */
	char other = 0;
	struct pair p, first[8]; /* the first pair of each verdict, to explain it */

	for (const char *k = x ? "" : "GRD"; *k; k++)
		for (int i = 0; i < n_devs; i++)
			if (devs[i]->kind == *k)
				shown[n++] = devs[i];
	if (x) {
		shown[n++] = x;
		shown[n++] = y;
	}
	for (int i = 0; i < n && !x; i++)
		if (shown[i]->kind == 'R')
			other = 'R';
	if (svg) {
		if (!n)
			errx(USAGE, "no GPU, RDMA adapter or NVMe drive");
		p = judge(shown[0], shown[n > 1]);
		draw(shown, n, x ? &p : NULL);
		return x ? code(&p) : OK;
	}
	if (json)
		printf("{\"version\": 1");
	begin("machine");
	say("%s: %d PCI devices; CPU: %s.", dump ? dump : "this machine", n_devs, cpu_why);
	if (guest)
		say("This is a virtual machine: the verdict says nothing about its host.");
	if (!dump && geteuid())
		say("Only root can read the ACS bits.");
	if (json)
		printf("],\n\"devices\": [");
	for (int i = 0; i < n; i++) {
		if (json)
			printf(i ? ",\n" : "\n");
		put_device(shown[i]);
	}
	if (json)
		printf("],\n\"pairs\": [");
	else if (!x)
		printf("\n    ");
	for (int i = 0; i < n && !x && !json; i++)
		printf(" %c%-6d", shown[i]->kind, shown[i]->number);
	for (int i = 0; i < n && (x ? !i : shown[i]->kind == 'G'); i++) {
		if (!x && !json)
			printf("\nG%-3d", i);
		for (int j = 0; j < n; j++) {
			if (i == j && !x && !json)
				printf(" %-7s", "-");
			if (i == j)
				continue;
			p = judge(shown[i], shown[j]);
			if (json)
				printf(pairs ? ",\n" : "\n");
			if (json || x)
				put_pair(&p);
			else
				printf(" %-7s", strlen(verdict(&p)) > 7 ? "?" : verdict(&p));
			pairs++;
			if (other && shown[j]->kind != other)
				continue;
			counted++;
			if (!(explained >> p.possible & 1))
				first[n_first++] = p;
			explained |= 1 << p.possible;
			if (worst != NOT_SUPPORTED && code(&p))
				worst = code(&p);
		}
	}
	if (json)
		printf("]}\n");
	else if (!x && pairs)
		puts("\n\nbus: by bus address; bridge: through the host bridge; "
		     "none: not supported;\n"
		     "?: not known, or supported, but not known in which way.\n"
		     "The verdict is about the path, not about drivers.\n"
		     "p2p-check DEVICE DEVICE says why, for example p2p-check G0 R0.");
	for (int i = 0; i < n_first && !x && !json; i++) {
		printf("\n%c%d and %c%d: ", first[i].a->kind, first[i].a->number, first[i].b->kind,
		       first[i].b->number);
		put_pair(&first[i]);
	}
	if (!counted)
		warnx("no pair of a GPU and another device");
	return counted ? worst : USAGE;
}

static void usage(FILE *f)
{
	fputs("usage: p2p-check [-F FILE] [--cpu zen|other] [--json|--svg] [DEVICE DEVICE]\n\n"
	      "Says by the rules of Linux whether PCI peer-to-peer DMA works between GPUs, RDMA\n"
	      "adapters and NVMe drives, or why it does not work between two devices.\n\n"
	      "DEVICE is an address, or a name such as G0 or R1 in the table of all pairs.\n\n"
	      "  -F FILE  another machine: the output of lspci -vvnnxxxx, as root (-: stdin)\n"
	      "  --cpu    an AMD Zen or later, or another CPU; a dump does not always tell\n"
	      "  --json   for programs\n"
	      "  --svg    a picture of the devices, the bridges above them, and the path\n\n"
	      "Verdicts: bus (by bus address; a switch forwards), bridge (through the host\n"
	      "bridge), none (not supported). If not all is known: \"bus or bridge\" or\n"
	      "\"not known\".\n\n"
	      "exit: 0 supported (all pairs of a GPU and an RDMA adapter; without an adapter,\n"
	      "all pairs of a GPU), 1 not supported, 2 wrong usage, cannot read, or no such\n"
	      "devices, 3 not known\n",
	      f);
}

int main(int argc, char **argv)
{
	struct dev *pair[2] = { NULL };
	const char *which[2];
	int n = 0;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--help")) {
			usage(stdout);
			return OK;
		} else if (!strcmp(argv[i], "--json")) {
			json = true;
		} else if (!strcmp(argv[i], "--svg")) {
			svg = true;
		} else if (!strcmp(argv[i], "-F") && i + 1 < argc) {
			dump = argv[++i];
		} else if (!strcmp(argv[i], "--cpu") && i + 1 < argc &&
			   (!strcmp(argv[i + 1], "zen") || !strcmp(argv[i + 1], "other"))) {
			cpu_zen = strcmp(argv[++i], "zen") ? NO : YES;
			cpu_why = cpu_zen ? "AMD Zen or later, as --cpu says" :
					    "not AMD Zen or later, as --cpu says";
		} else if (*argv[i] != '-' && n < 2) {
			which[n++] = argv[i];
		} else {
			usage(stderr);
			return USAGE;
		}
	}
	if (n == 1 || (json && svg)) {
		usage(stderr);
		return USAGE;
	}
	if (dump)
		read_dump();
	else
		read_live();
	if (!n_devs)
		errx(USAGE, "no PCI devices");
	qsort(devs, n_devs, sizeof(*devs), by_address);
	for (int i = 1; i < n_devs; i++)
		if (!by_address(&devs[i - 1], &devs[i]))
			errx(USAGE, "two devices have the address %s", devs[i]->name);
	if (dump)
		link_dump();
	else
		link_live();
	look_at_cpu();
	classify();
	for (int i = 0; i < n; i++) {
		pair[i] = find(which[i]);
		for (int j = 0; j < n_devs && *which[i] && strchr("GRD", *which[i]); j++)
			if (devs[j]->kind == *which[i] && devs[j]->number == atoi(which[i] + 1))
				pair[i] = devs[j];
		if (!pair[i])
			errx(USAGE, "no device %s", which[i]);
	}
	return report(pair[0], pair[1]);
}
