// SPDX-License-Identifier: GPL-2.0-only
/*
 * A write of the GPU respects copy-on-write and the permissions of the process, like a write of
 * the CPU. Run with xe on a GPU with VRAM.
 */
#include "kselftest_harness.h"
#include "xe.h"

#define OLD	0x11111111
#define NEW	0x22222222

FIXTURE(cow) {
	struct xe xe;
	char *mem;
};

FIXTURE_VARIANT(cow) {
	bool huge, vram;
};

FIXTURE_VARIANT_ADD(cow, small) { .vram = true };
FIXTURE_VARIANT_ADD(cow, huge) { .vram = true, .huge = true };
FIXTURE_VARIANT_ADD(cow, ram) { };

FIXTURE_SETUP(cow)
{
	ASSERT_TRUE(xe_open(&self->xe));
	self->mem = xe_memory(CHUNK, variant->huge);
	ASSERT_NE(self->mem, NULL);
	memset(self->mem, OLD & 0xff, CHUNK);
	if (variant->vram) {
		ASSERT_EQ(xe_to_vram(&self->xe, self->mem, CHUNK), 0);
		ASSERT_EQ(xe_in_vram(self->mem, CHUNK), CHUNK / PAGE);
	}
}

FIXTURE_TEARDOWN(cow)
{
	munmap(self->mem, CHUNK);
	close(self->xe.fd);
}

/* Fork a child that reports later what it sees at @p. Write to *go, and read from *back. */
static pid_t fork_reader(const char *p, int *go, int *back)
{
	int to[2], from[2];
	uint32_t v;
	char c;
	pid_t pid;

	if (pipe(to) || pipe(from))
		return -1;
	pid = fork();
	if (!pid) {
		if (read(to[0], &c, 1) != 1)
			_exit(1);
		v = xe_word(p);
		_exit(write(from[1], &v, sizeof(v)) != sizeof(v));
	}
	close(to[0]);
	close(from[1]);
	*go = to[1];
	*back = from[0];
	return pid;
}

/* The GPU of the parent writes after fork(). The child must not see it. */
TEST_F_TIMEOUT(cow, fork, 120)
{
	char *p = self->mem + PAGE + 64;
	int go, back;
	uint32_t v = 0;

	ASSERT_GT(fork_reader(p, &go, &back), 0);
	EXPECT_EQ(xe_store(&self->xe, p, NEW), 0);
	ASSERT_EQ(write(go, "", 1), 1);
	ASSERT_EQ(read(back, &v, sizeof(v)), sizeof(v));
	EXPECT_EQ(v, OLD);
	EXPECT_EQ(xe_word(p), NEW);
	EXPECT_EQ(xe_word(p + PAGE), OLD);
	wait(NULL);
}

/* A child writes with the GPU to memory that it shares with its parent. */
TEST_F_TIMEOUT(cow, child_gpu, 120)
{
	char *p = self->mem + PAGE + 64;
	int status;
	pid_t pid;

	pid = fork();
	ASSERT_GE(pid, 0);
	if (!pid) {
		struct xe x;

		_exit(!xe_open(&x) || xe_store(&x, p, NEW) || xe_word(p) != NEW);
	}
	ASSERT_EQ(waitpid(pid, &status, 0), pid);
	EXPECT_EQ(status, 0);
	EXPECT_EQ(xe_word(p), OLD);
	EXPECT_EQ(xe_word(p + PAGE), OLD);
}

/* The GPU of the parent writes again, with an atomic, for which memory has to be in VRAM. */
TEST_F_TIMEOUT(cow, fork_atomic, 120)
{
	char *p = self->mem + PAGE + 64;
	int go, back;
	uint32_t v = 0;

	ASSERT_GT(fork_reader(p, &go, &back), 0);
	xe_set_increment(&self->xe, p);
	EXPECT_EQ(xe_run(&self->xe), 0);
	ASSERT_EQ(write(go, "", 1), 1);
	ASSERT_EQ(read(back, &v, sizeof(v)), sizeof(v));
	EXPECT_EQ(v, OLD);
	EXPECT_EQ(xe_word(p), OLD + 1);
	wait(NULL);
}

/* The child writes with its CPU while the pages are shared. The GPU of the parent sees its own. */
TEST_F_TIMEOUT(cow, child_writes, 120)
{
	volatile uint32_t *p = (void *)(self->mem + PAGE + 64);
	int status;
	pid_t pid;

	pid = fork();
	ASSERT_GE(pid, 0);
	if (!pid) {
		*p = 0x33333333;
		_exit(*p != 0x33333333);
	}
	ASSERT_EQ(waitpid(pid, &status, 0), pid);
	EXPECT_EQ(status, 0);
	EXPECT_EQ(*p, OLD);
	EXPECT_EQ(xe_store(&self->xe, (void *)p, NEW), 0);
	EXPECT_EQ(*p, NEW);
}

/* A part of an SVM range becomes read-only. The GPU may write to the other part, and only there. */
TEST_F_TIMEOUT(cow, read_only_part, 120)
{
	char *rw = self->mem + 64, *ro = self->mem + CHUNK / 2 + 64;

	ASSERT_EQ(mprotect(self->mem + CHUNK / 2, CHUNK / 2, PROT_READ), 0);
	EXPECT_EQ(xe_store(&self->xe, rw, NEW), 0);
	/* No access of the CPU in between: it would make the GPU's mapping invalid. */
	self->xe.seconds = 5;
	EXPECT_NE(xe_store(&self->xe, ro, NEW), 0);
	EXPECT_EQ(xe_word(ro), OLD);
	EXPECT_EQ(xe_word(rw), NEW);
	/* The address space stays usable. The queue does not: its batch has failed. */
	self->xe.seconds = 20;
	ASSERT_TRUE(xe_queue(&self->xe));
	EXPECT_EQ(xe_store(&self->xe, rw + PAGE, NEW), 0);
	EXPECT_EQ(xe_word(rw + PAGE), NEW);
}

/* An atomic on the writable part, for which memory has to be in VRAM. */
TEST_F_TIMEOUT(cow, read_only_part_atomic, 120)
{
	char *rw = self->mem + 64;

	ASSERT_EQ(mprotect(self->mem + CHUNK / 2, CHUNK / 2, PROT_READ), 0);
	xe_set_increment(&self->xe, rw);
	EXPECT_EQ(xe_run(&self->xe), 0);
	EXPECT_EQ(xe_word(rw), OLD + 1);
}

/* mprotect() to read-only and back leaves read-only entries. The GPU may write. */
TEST_F_TIMEOUT(cow, read_only_and_back, 120)
{
	char *p = self->mem + 64;

	ASSERT_EQ(mprotect(self->mem, CHUNK, PROT_READ), 0);
	ASSERT_EQ(mprotect(self->mem, CHUNK, PROT_READ | PROT_WRITE), 0);
	EXPECT_EQ(xe_store(&self->xe, p, NEW), 0);
	EXPECT_EQ(xe_word(p), NEW);
	EXPECT_EQ(xe_word(p + PAGE), OLD);
	/* The memory can go to VRAM again, and stays writable there. */
	EXPECT_EQ(xe_to_vram(&self->xe, self->mem, CHUNK), 0);
	EXPECT_EQ(xe_store(&self->xe, p, OLD), 0);
	EXPECT_EQ(xe_in_vram(self->mem, CHUNK), CHUNK / PAGE);
	EXPECT_EQ(xe_word(p), OLD);
}

TEST_HARNESS_MAIN
