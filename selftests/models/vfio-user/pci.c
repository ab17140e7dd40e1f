// SPDX-License-Identifier: GPL-2.0-only
/* What the BARs and configuration spaces of the models have in common. */
#include "vfio_user.h"

#include <sys/mman.h>
#include <unistd.h>

void pci_put(struct vfio_user *v, u32 at, u32 len, u64 val)
{
	for (u32 i = 0; i < len; i++)
		v->config[at + i] = val >> (8 * i);
}

void pci_identity(struct vfio_user *v, u32 id, u32 subsystem, u32 class)
{
	pci_put(v, 0x00, 2, id >> 16);
	pci_put(v, 0x02, 2, id);
	pci_put(v, 0x06, 2, 0x10);		/* has capabilities */
	pci_put(v, 0x09, 3, class);
	pci_put(v, 0x2c, 2, subsystem >> 16);
	pci_put(v, 0x2e, 2, subsystem);
}

void pci_gpu_capabilities(struct vfio_user *v)
{
	pci_put(v, 0x34, 1, 0x60);
	pci_put(v, 0x3d, 1, 1);
	pci_put(v, 0x60, 2, 0x6801);		/* power management, next: 0x68 */
	pci_put(v, 0x62, 2, 0x0003);		/* version 3 */
	pci_put(v, 0x68, 2, 0x7805);		/* MSI, next: 0x78 */
	pci_put(v, 0x6a, 2, 0x0080);		/* 64-bit addresses, one vector */
	pci_put(v, 0x78, 2, 0x0010);		/* PCI Express */
	pci_put(v, 0x7a, 2, 0x0002);		/* version 2, endpoint */
	pci_put(v, 0x7c, 4, 0x00008fc1);	/* 256 bytes */
	pci_put(v, 0x84, 4, 0x00000103);	/* 8 GT/s, x16 */
	pci_put(v, 0x8a, 2, 0x0103);
}

void pci_registers_read(struct vfio_user *v, u32 (*get)(struct vfio_user *v, u32 at), u64 off,
			void *to, u32 len)
{
	for (u32 i = 0, n; i < len; i += n) {
		u32 at = (off + i) & ~3U, skip = (off + i) & 3, val = get(v, at);

		n = min(len - i, 4 - skip);
		memcpy((u8 *)to + i, (u8 *)&val + skip, n);
	}
}

void pci_registers_write(struct vfio_user *v, u32 (*get)(struct vfio_user *v, u32 at),
			 void (*set)(struct vfio_user *v, u32 at, u32 val), u64 off,
			 const void *from, u32 len)
{
	for (u32 i = 0, n; i < len; i += n) {
		u32 at = (off + i) & ~3U, skip = (off + i) & 3, val;

		n = min(len - i, 4 - skip);
		val = n < 4 ? get(v, at) : 0;
		memcpy((u8 *)&val + skip, (const u8 *)from + i, n);
		set(v, at, val);
	}
}

void *pci_memory(u64 size, int *keep)
{
	int fd = memfd_create("bar", MFD_CLOEXEC);
	void *p = MAP_FAILED;

	if (fd < 0)
		return NULL;
	if (!ftruncate(fd, size))
		p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (keep && p != MAP_FAILED)
		*keep = fd;
	else
		close(fd);
	return p == MAP_FAILED ? NULL : p;
}
