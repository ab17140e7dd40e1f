// SPDX-License-Identifier: GPL-2.0-only
/*
 * The GPU falls off the bus while it has memory of processes, on the model of a GP100
 * (selftests/models/pascal).
 */
#include "nouveau.h"

FIXTURE(gone)
{
	struct gpu gpu;
};

FIXTURE_SETUP(gone)
{
	ASSERT_TRUE(open_gpu(&self->gpu));
}

FIXTURE_TEARDOWN(gone)
{
	close_gpu(_metadata, &self->gpu);
}

/*
 * A process that needs data in VRAM gets SIGBUS. Data in RAM are as they were. The driver can be
 * unbound, and after a reset of the GPU it works again.
 */
TEST_F_TIMEOUT(gone, with_pages, 600)
{
	char *huge = map(HUGE, MADV_HUGEPAGE), *ram = map(NPAGES * PAGE, MADV_NOHUGEPAGE);
	char bdf[BDF_SIZE], path[64];
	struct gpu *g = &self->gpu;
	int status;
	pid_t child;

	ASSERT_TRUE(gpu_bdf(bdf));
	ASSERT_NE(huge, MAP_FAILED);
	ASSERT_NE(ram, MAP_FAILED);
	fill(huge, HUGE, 2);
	fill(ram, NPAGES * PAGE, 3);
	ASSERT_EQ(nouveau_to_vram(g->drm, g->mem, NPAGES * PAGE), 0);
	ASSERT_EQ(nouveau_to_vram(g->drm, huge, HUGE), 0);
	ASSERT_EQ(pages_in_vram(huge, 512), 512);
	put(g->door, DOOR_GONE, 1);

	child = fork();
	ASSERT_GE(child, 0);
	if (!child)
		_exit(*(volatile uint32_t *)g->mem == pattern(0, 1));
	ASSERT_EQ(waitpid(child, &status, 0), child);
	EXPECT_TRUE(WIFSIGNALED(status));
	EXPECT_EQ(WTERMSIG(status), SIGBUS);
	nouveau_to_vram(g->drm, ram, NPAGES * PAGE);
	EXPECT_EQ(pages_in_vram(ram, NPAGES), 0);
	EXPECT_EQ(wrong(ram, NPAGES * PAGE, 3), 0);

	close(g->drm);
	ASSERT_TRUE(write_file("/sys/bus/pci/drivers/nouveau/unbind", bdf));
	EXPECT_EQ(pages_in_vram(g->mem, NPAGES), 0);
	EXPECT_EQ(pages_in_vram(huge, 512), 0);
	/* What was there is lost. No other data came in its place. */
	EXPECT_EQ(*(uint32_t *)g->mem, 0);
	EXPECT_EQ(*(uint32_t *)huge, 0);

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/reset", bdf);
	ASSERT_TRUE(write_file(path, "1"));
	ASSERT_TRUE(write_file("/sys/bus/pci/drivers/nouveau/bind", bdf));
	munmap(HOLE, HOLE_SIZE);
	ASSERT_TRUE(open_gpu(g));
	ASSERT_EQ(nouveau_to_vram(g->drm, g->mem, NPAGES * PAGE), 0);
	EXPECT_EQ(pages_in_vram(g->mem, NPAGES), NPAGES);
	EXPECT_EQ(wrong(g->mem, NPAGES * PAGE, 1), 0);
}

TEST_HARNESS_MAIN
