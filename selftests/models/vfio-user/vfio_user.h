/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The library that makes a model a PCI device of QEMU: the protocol, interrupts, and the memory
 * that the device can reach. It calls a model only by struct vfio_user_ops. See README.md.
 */
#ifndef VFIO_USER_H
#define VFIO_USER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t s64;

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))
#define container_of(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))

/* ---- dma.c: the memory that QEMU maps for the device, like the table of an IOMMU ---- */

struct dma_region {
	u64 iova, size;
	u8 *ptr;
	bool write, peer;	/* peer: not RAM, but the BAR of another device */
};

struct dma {
	struct dma_region *map;		/* sorted */
	size_t nmap, room;
	u64 maps;			/* number of mappings so far */
};

int dma_map(struct dma *d, u64 iova, u64 size, u64 offset, u32 prot, int fd);
/* Returns how many regions overlap [iova, last], and the first one. */
size_t dma_overlap(const struct dma *d, u64 iova, u64 last, size_t *first);
void dma_unmap(struct dma *d, size_t first, size_t n);
/* The region with this address. NULL if there is none, or if it must not be written. */
const struct dma_region *dma_region(const struct dma *d, u64 iova, bool write);

/* ---- vfio_user.c ---- */

enum { VFIO_REGIONS = 9, VFIO_CONFIG = 7, VFIO_VECTORS = 32 };
enum { VFIO_MSI = 1, VFIO_MSIX = 2 };

struct vfio_user;

struct vfio_user_ops {
	/* An access that lies inside of a region. */
	void (*read)(struct vfio_user *v, u32 region, u64 off, void *to, u32 len);
	void (*write)(struct vfio_user *v, u32 region, u64 off, const void *from, u32 len);
	void (*reset)(struct vfio_user *v);
	/* Called every 5 ms while v->ticking. True: call it again. */
	bool (*tick)(struct vfio_user *v);
	/* These two may be NULL. unmap: memory is about to go; heard: a message has arrived. */
	void (*unmap)(struct vfio_user *v, u64 iova, u64 size);
	void (*heard)(struct vfio_user *v, u16 command, bool files, const void *body, u32 len);
	/*
	 * Only with peer_listen(): another model requests an access to this bus address. Returns
	 * how many bytes from there on are in a BAR, or 0. The access is done only if len are.
	 */
	u64 (*peer)(struct vfio_user *v, u64 addr, void *buf, u32 len, bool write);
};

struct vfio_user {
	/* set by the model */
	const struct vfio_user_ops *ops;
	u64 size[VFIO_REGIONS];		/* of BARs 0 to 5, ROM, configuration space */
	/* A part of a region that QEMU may map: accesses to it are faster, but are not seen. */
	struct { int fd; u64 off, size; } map[VFIO_REGIONS];
	u32 irq_index, nvec;		/* VFIO_MSI or VFIO_MSIX */
	bool ticking;
	const char *name;		/* of the model, for the log */
	bool verbose, mute;
	u8 config[4096]; /* the library reads it, the model's function write sets it */
	unsigned long violations, unknown_registers;
	u32 notes;

	struct dma dma;
	int irq[VFIO_VECTORS];
	bool irq_pending[VFIO_VECTORS];
	u64 interrupts;
	int peer;		/* the socket of peer_listen() */
};

void vfio_user_init(struct vfio_user *v);
void vfio_user_free(struct vfio_user *v);
void vfio_user_interrupt(struct vfio_user *v, u32 vec);
void vfio_user_unmap(struct vfio_user *v, u64 iova, u64 size);
bool vfio_user_read(struct vfio_user *v, u32 region, u64 off, void *to, u32 len);
bool vfio_user_write(struct vfio_user *v, u32 region, u64 off, const void *from, u32 len);
/* Handles one message. False: the client has gone, or the message is invalid. */
bool vfio_user_message(struct vfio_user *v, int sock);
/* Waits for QEMU on this socket and serves it until it disconnects. Returns 0, or 2 on failure. */
int vfio_user_serve(struct vfio_user *v, const char *path);
u64 now(void);		/* ms */

/* ---- log.c ---- */

void log_note(struct vfio_user *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void log_debug(struct vfio_user *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void log_violation(struct vfio_user *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same for the structure of a model, whose struct vfio_user is dev. */
#define note(model, ...) log_note(&(model)->dev, __VA_ARGS__)
#define debug(model, ...) log_debug(&(model)->dev, __VA_ARGS__)
/* The driver broke a rule. */
#define violation(model, ...) log_violation(&(model)->dev, __VA_ARGS__)

/* ---- pci.c ---- */

enum { PCI_COMMAND = 4, PCI_MEMORY = 2, PCI_MASTER = 4 };

void pci_put(struct vfio_user *v, u32 at, u32 len, u64 val);
/* id, subsystem: vendor << 16 | device */
void pci_identity(struct vfio_user *v, u32 id, u32 subsystem, u32 class);
/* Power management, MSI with one vector, PCI Express. */
void pci_gpu_capabilities(struct vfio_user *v);
enum { PCI_PMCSR = 0x64, PCI_D3 = 3 };	/* there */
/* Accesses to a region that consists of registers of 32 bits. */
void pci_registers_read(struct vfio_user *v, u32 (*get)(struct vfio_user *v, u32 at), u64 off,
			void *to, u32 len);
void pci_registers_write(struct vfio_user *v, u32 (*get)(struct vfio_user *v, u32 at),
			 void (*set)(struct vfio_user *v, u32 at, u32 val), u64 off,
			 const void *from, u32 len);
/* Zeroes that take memory of the host only where they are written. keep: their file, or NULL. */
void *pci_memory(u64 size, int *keep);

/* ---- registers.c: registers that only hold a value ---- */

enum plain_kind {
	CONSTANT,		/* reads as this value, writes do nothing */
	HOLDS,			/* reads as the value that was written last, at first as this one */
};

struct plain {
	u32 at, n, stride;
	enum plain_kind kind;
	u32 val;
	const char *name;
};

/* The row of the register at this offset. NULL: none has it. */
const struct plain *plain_find(const struct plain *table, size_t n, u32 off);
void plain_init(u32 *regs, const struct plain *table, size_t n);
/* Counts the access, and prints it if it is the first one. how: "read" or "write of". */
void plain_unknown(struct vfio_user *v, u8 *seen, u32 at, const char *how, u32 val);

/* ---- peer.c: DMA from one model to a BAR of another model ---- */

#define PEER_MAX 4096
#define PEER_SECONDS 10

struct peer {
	const char *path;	/* of its socket, set by the model; NULL: there is no such peer */
	int sock;		/* 0: not open yet */
	bool gone;
};

/* Opens a socket for requests of other models. False: this failed. */
bool peer_listen(struct vfio_user *v, const char *path);
void peer_answer(struct vfio_user *v);
/*
 * Requests an access from the peer, and returns what the function peer of its vfio_user_ops
 * returned. If there is no answer, it returns 0, and sends this peer no more requests.
 */
u64 peer_access(struct peer *p, u64 addr, void *buf, u32 len, bool write);
void peer_free(struct peer *p);

#endif
