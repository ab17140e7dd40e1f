// SPDX-License-Identifier: GPL-2.0-only
/*
 * The GPU is unbound while a process has an address space that mirrors it, and then the process
 * unmaps its memory, or exits. The kernel must not warn.
 */
#include <dirent.h>

#include "kselftest_harness.h"
#include "xe.h"

#define DRIVER	"/sys/bus/pci/drivers/xe"

FIXTURE(unbind) {
	struct xe xe;
	char bdf[32];
	char *mem;
	unsigned long tainted;
};

FIXTURE_VARIANT(unbind) {
	bool vram;
};

FIXTURE_VARIANT_ADD(unbind, ram) { };
FIXTURE_VARIANT_ADD(unbind, vram) { .vram = true };

static bool sysfs(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);
	bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return ok;
}

FIXTURE_SETUP(unbind)
{
	DIR *d = opendir(DRIVER);
	struct dirent *e;

	ASSERT_NE(d, NULL);
	while ((e = readdir(d)))
		if (strchr(e->d_name, ':'))
			snprintf(self->bdf, sizeof(self->bdf), "%.31s", e->d_name);
	closedir(d);
	ASSERT_TRUE(self->bdf[0]);
	self->tainted = xe_tainted();
	ASSERT_TRUE(xe_open(&self->xe));
	self->mem = xe_memory(2 * CHUNK, false);
	ASSERT_NE(self->mem, NULL);
	memset(self->mem, 1, 2 * CHUNK);
	if (variant->vram)
		ASSERT_EQ(xe_to_vram(&self->xe, self->mem, 2 * CHUNK), 0);
	for (size_t i = 0; i < 2 * CHUNK; i += CHUNK)
		ASSERT_EQ(xe_store(&self->xe, self->mem + i, 0x22222222), 0);
	ASSERT_TRUE(sysfs(DRIVER "/unbind", self->bdf));
}

FIXTURE_TEARDOWN(unbind)
{
	EXPECT_TRUE(sysfs(DRIVER "/bind", self->bdf));
}

TEST_F_TIMEOUT(unbind, munmap, 120)
{
	EXPECT_EQ(munmap(self->mem, CHUNK / 2), 0);
	EXPECT_EQ(munmap(self->mem + CHUNK / 2, CHUNK / 2), 0);
	EXPECT_EQ(xe_word(self->mem + CHUNK), 0x22222222);
	EXPECT_EQ(close(self->xe.fd), 0);
	EXPECT_EQ(xe_tainted(), self->tainted);
}

/* A process that mirrors itself exits. Its mappings go before its files. */
TEST_F_TIMEOUT(unbind, exit, 120)
{
	int status, ready[2], go[2];
	char c = 0;
	pid_t pid;

	/* This test needs a bound GPU. */
	close(self->xe.fd);
	ASSERT_TRUE(sysfs(DRIVER "/bind", self->bdf));
	ASSERT_EQ(pipe(ready), 0);
	ASSERT_EQ(pipe(go), 0);
	pid = fork();
	ASSERT_GE(pid, 0);
	if (!pid) {
		struct xe x;

		c = xe_open(&x) && (!variant->vram || !xe_to_vram(&x, self->mem, 2 * CHUNK)) &&
		    !xe_store(&x, self->mem, 0x33333333);
		if (write(ready[1], &c, 1) != 1 || read(go[0], &c, 1) != 1)
			_exit(2);
		_exit(0);
	}
	ASSERT_EQ(read(ready[0], &c, 1), 1);
	EXPECT_EQ(c, 1);
	ASSERT_TRUE(sysfs(DRIVER "/unbind", self->bdf));
	ASSERT_EQ(write(go[1], "", 1), 1);
	ASSERT_EQ(waitpid(pid, &status, 0), pid);
	EXPECT_EQ(status, 0);
	EXPECT_EQ(xe_tainted(), self->tainted);
}

/* The same with a userptr, which has a notifier of its own. */
TEST_F_TIMEOUT(unbind, userptr, 120)
{
	char *at = xe_memory(CHUNK, false);

	close(self->xe.fd);
	ASSERT_TRUE(sysfs(DRIVER "/bind", self->bdf));
	ASSERT_NE(at, NULL);
	ASSERT_TRUE(xe_open(&self->xe));
	ASSERT_EQ(xe_bind_to(&self->xe, DRM_XE_VM_BIND_OP_MAP_USERPTR,
			     DRM_XE_VM_BIND_FLAG_IMMEDIATE, at, CHUNK, self->mem), 0);
	ASSERT_EQ(xe_store(&self->xe, at + 64, 0x55555555), 0);
	EXPECT_EQ(xe_word(self->mem + 64), 0x55555555);
	ASSERT_TRUE(sysfs(DRIVER "/unbind", self->bdf));
	EXPECT_EQ(munmap(self->mem, CHUNK), 0);
	EXPECT_EQ(close(self->xe.fd), 0);
	EXPECT_EQ(xe_tainted(), self->tainted);
}

/* The GPU is unbound while a process maps memory, uses it from the GPU, and unmaps it. */
TEST_F_TIMEOUT(unbind, race, 120)
{
	int status, ready[2];
	char c = 0;
	pid_t pid;

	close(self->xe.fd);
	ASSERT_TRUE(sysfs(DRIVER "/bind", self->bdf));
	ASSERT_EQ(pipe(ready), 0);
	pid = fork();
	ASSERT_GE(pid, 0);
	if (!pid) {
		struct xe x;

		if (!xe_open(&x))
			_exit(2);
		x.seconds = 5;
		for (int i = 0; ; i++) {
			char *p = xe_memory(CHUNK, false);

			if (!p)
				_exit(3);
			memset(p, i, CHUNK);
			if ((variant->vram && xe_to_vram(&x, p, CHUNK)) ||
			    xe_store(&x, p + PAGE, 0x44444444))
				break;
			munmap(p + CHUNK / 2, CHUNK / 2);
			munmap(p, CHUNK / 2);
			if (i == 3 && write(ready[1], "", 1) != 1)
				_exit(4);
		}
		_exit(0);
	}
	ASSERT_EQ(read(ready[0], &c, 1), 1);
	usleep(30000);
	ASSERT_TRUE(sysfs(DRIVER "/unbind", self->bdf));
	ASSERT_EQ(waitpid(pid, &status, 0), pid);
	EXPECT_EQ(status, 0);
	EXPECT_EQ(xe_tainted(), self->tainted);
}

TEST_HARNESS_MAIN
