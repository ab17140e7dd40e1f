// SPDX-License-Identifier: GPL-2.0-only
/*
 * Two GPUs of xe, on two models of a Battlemage (selftests/models/battlemage). Memory of this
 * process is in VRAM of the owner. The other GPU maps it in the BAR of the owner if they can do
 * P2P and both BARs show all of VRAM. If not, the memory migrates to VRAM of the other GPU.
 */
#include "xe.h"

#define SEED 5

FIXTURE(pair)
{
	struct gpu gpu[2], *owner, *other;
	char *mem, *huge, *ram;
	size_t size;
	bool shared;
};

FIXTURE_VARIANT(pair)
{
	int owner;
};

FIXTURE_VARIANT_ADD(pair, first)
{
	.owner = 0,
};

FIXTURE_VARIANT_ADD(pair, second)
{
	.owner = 1,
};

/* Return: 0, or -ENOLINK if the other GPU does not reach all of the VRAM of the owner. */
static int prefer_owner(FIXTURE_DATA(pair) *self, void *mem, size_t size)
{
	struct drm_xe_madvise m = {
		.start = (uintptr_t)mem,
		.range = size,
		.vm_id = self->other->vm,
		.type = DRM_XE_MEM_RANGE_ATTR_PREFERRED_LOC,
		.preferred_mem_loc = { .devmem_fd = self->owner->drm,
				       .region_instance = self->owner->region },
	};

	return ioctl(self->other->drm, DRM_IOCTL_XE_MADVISE, &m) ? -errno : 0;
}

FIXTURE_SETUP(pair)
{
	const char *verdict = getenv("HMM_P2P_VERDICT");
	char bdf[BDF_SIZE];

	self->owner = &self->gpu[variant->owner];
	self->other = &self->gpu[!variant->owner];
	self->gpu[1].which = 1;
	for (int i = 0; i < 2; i++)
		ASSERT_TRUE(open_gpu(&self->gpu[i]));
	ASSERT_TRUE(gpu_bdf(self->owner->which, bdf));
	ASSERT_TRUE(find_bar(bdf, 2, &self->other->peer, &self->other->peer_end));
	self->shared = verdict && strcmp(verdict, "none") && !self->gpu[0].hidden &&
		       !self->gpu[1].hidden;
	self->mem = self->owner->mem;
	self->size = NPAGES * PAGE;
	self->huge = map(HUGE, MADV_HUGEPAGE);
	self->ram = mmap(NULL, HUGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(self->huge, MAP_FAILED);
	ASSERT_NE(self->ram, MAP_FAILED);
	ASSERT_EQ(prefer_owner(self, self->mem, self->size), self->shared ? 0 : -ENOLINK);
	ASSERT_EQ(prefer_owner(self, self->huge, HUGE), self->shared ? 0 : -ENOLINK);
}

FIXTURE_TEARDOWN(pair)
{
	for (int i = 0; i < 2; i++)
		close_gpu(_metadata, &self->gpu[i]);
}

/* How many of these pages has this GPU mapped: in its own VRAM, or in the BAR of its peer? */
static size_t mapped(struct gpu *g, const char *mem, size_t n, bool local)
{
	size_t found = 0;
	uint64_t addr;

	for (size_t i = 0; i < n; i++, mem += PAGE) {
		uint32_t flags = walk(g, mem, &addr);

		if (flags & DOOR_LOCAL)
			found += local;
		else if (flags & DOOR_VALID)
			found += !local && addr >= g->peer && addr < g->peer_end;
	}
	return found;
}

/* The other GPU reads and writes all of it. Then the CPU takes it back. */
static void read_write(struct __test_metadata *_metadata, FIXTURE_DATA(pair) *self, char *mem,
		       size_t size)
{
	struct stats before = stats(self->other->door), after;
	size_t n = size / PAGE;

	fill(mem, size, SEED);
	ASSERT_EQ(to_vram(self->owner, mem, size), 0);
	ASSERT_EQ(pages_in_vram(mem, n), n);
	ASSERT_EQ(gpu_copy(self->other, self->ram, mem, size), 0);
	EXPECT_EQ(wrong(self->ram, size, SEED), 0);
	fill(self->ram, size, SEED + 1);
	ASSERT_EQ(gpu_copy(self->other, mem, self->ram, size), 0);
	after = stats(self->other->door);
	EXPECT_EQ(after.peer_bytes_written - before.peer_bytes_written, self->shared ? size : 0);
	EXPECT_EQ(after.peer_bytes_read > before.peer_bytes_read, self->shared);
	EXPECT_EQ(mapped(self->other, mem, n, !self->shared), n);
	EXPECT_EQ(pages_in_vram(mem, n), n);
	EXPECT_EQ(compare(self->other), 0);
	EXPECT_EQ(wrong(mem, size, SEED + 1), 0);
	EXPECT_EQ(mapped(self->other, mem, n, false) + mapped(self->other, mem, n, true), 0);
}

TEST_F(pair, small_pages)
{
	read_write(_metadata, self, self->mem, self->size);
}

TEST_F(pair, huge_page)
{
	read_write(_metadata, self, self->huge, HUGE);
}

/* Memory moves from VRAM of one GPU to VRAM of the other one and back, at once or through RAM. */
static void change_owner(struct __test_metadata *_metadata, FIXTURE_DATA(pair) *self, char *mem,
			 size_t size)
{
	size_t n = size / PAGE;

	fill(mem, size, SEED);
	ASSERT_EQ(to_vram(self->owner, mem, size), 0);
	for (int i = 0; i < 2; i++) {
		struct gpu *g = i ? self->owner : self->other;

		ASSERT_EQ(to_vram(g, mem, size), 0);
		ASSERT_EQ(gpu_store(g, mem + PAGE * i, pattern(PAGE * i / 4, SEED)), 0);
		EXPECT_EQ(pages_in_vram(mem, n), n);
		EXPECT_EQ(mapped(g, mem, n, true), n);
	}
	EXPECT_EQ(wrong(mem, size, SEED), 0);
}

TEST_F(pair, change_owner)
{
	change_owner(_metadata, self, self->mem, self->size);
}

TEST_F(pair, change_owner_huge)
{
	change_owner(_metadata, self, self->huge, HUGE);
}

/* The driver of the owner is unbound while the other GPU has mapped its memory. */
TEST_F_TIMEOUT(pair, unbind, 60)
{
	char bdf[BDF_SIZE];

	ASSERT_TRUE(gpu_bdf(self->owner->which, bdf));
	fill(self->mem, self->size, SEED);
	ASSERT_EQ(to_vram(self->owner, self->mem, self->size), 0);
	ASSERT_EQ(gpu_store(self->other, self->mem + PAGE, 1), 0);
	ASSERT_TRUE(write_file("/sys/bus/pci/drivers/xe/unbind", bdf));
	EXPECT_EQ(wrong(self->mem, self->size, SEED), 1);
	EXPECT_EQ(*(uint32_t *)(self->mem + PAGE), 1);
	EXPECT_EQ(mapped(self->other, self->mem, NPAGES, false), 0);
	close(self->owner->drm);
	self->owner->drm = -1;
	ASSERT_TRUE(write_file("/sys/bus/pci/drivers/xe/bind", bdf));
}

TEST_HARNESS_MAIN
