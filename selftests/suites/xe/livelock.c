// SPDX-License-Identifier: GPL-2.0-only
/*
 * The GPU accesses a part of an SVM range of 2 MiB while another part of the range cannot be
 * mapped. The access succeeds, and VM_BIND of other memory does not wait for long.
 */
#include <pthread.h>

#include "kselftest_harness.h"
#include "xe.h"

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL	102
#define MADV_GUARD_REMOVE	103
#endif
#define VALUE	0x22222222

enum hole { NONE, READ_ONLY, GUARD };

FIXTURE(livelock) {
	struct xe xe;
	char *mem, *other, *bad;
	size_t size;		/* of the part that cannot be mapped */
	int bind;
	double took;
};

FIXTURE_VARIANT(livelock) {
	enum hole hole;
	bool vram, small;	/* small: a single page cannot be mapped */
};

FIXTURE_VARIANT_ADD(livelock, none) { .hole = NONE };
FIXTURE_VARIANT_ADD(livelock, none_vram) { .hole = NONE, .vram = true };
FIXTURE_VARIANT_ADD(livelock, none_page) { .hole = NONE, .small = true };
FIXTURE_VARIANT_ADD(livelock, read_only) { .hole = READ_ONLY };
FIXTURE_VARIANT_ADD(livelock, guard_page) { .hole = GUARD, .small = true };

FIXTURE_SETUP(livelock)
{
	ASSERT_TRUE(xe_open(&self->xe));
	self->mem = xe_memory(CHUNK, false);
	self->other = xe_memory(CHUNK, false);
	ASSERT_NE(self->mem, NULL);
	ASSERT_NE(self->other, NULL);
	memset(self->mem, 7, CHUNK);
	memset(self->other, 7, CHUNK);
	/* The range exists, and has 2 MiB. */
	if (variant->vram)
		ASSERT_EQ(xe_to_vram(&self->xe, self->mem, CHUNK), 0);
	ASSERT_EQ(xe_store(&self->xe, self->mem, VALUE), 0);
	self->size = variant->small ? PAGE : CHUNK / 2;
	self->bad = self->mem + CHUNK / 2;
	switch (variant->hole) {
	case NONE:
		ASSERT_EQ(mprotect(self->bad, self->size, PROT_NONE), 0);
		break;
	case READ_ONLY:
		ASSERT_EQ(mprotect(self->bad, self->size, PROT_READ), 0);
		break;
	case GUARD:
		if (madvise(self->bad, self->size, MADV_GUARD_INSTALL))
			SKIP(return, "no guard regions");
	}
}

/* Undo it, so that a worker that still retries ends. */
FIXTURE_TEARDOWN(livelock)
{
	if (variant->hole == GUARD)
		madvise(self->bad, self->size, MADV_GUARD_REMOVE);
	else
		mprotect(self->bad, self->size, PROT_READ | PROT_WRITE);
	close(self->xe.fd);
}

static void *bind_other(void *arg)
{
	FIXTURE_DATA(livelock) *self = arg;
	double begin = xe_clock();

	self->bind = xe_to_vram(&self->xe, self->other, 64 << 10);
	self->took = xe_clock() - begin;
	return NULL;
}

/* A store next to the part that cannot be mapped, and another one far from it. */
TEST_F_TIMEOUT(livelock, store, 120)
{
	char *near = self->bad - PAGE, *far = self->mem + PAGE;
	bool done = false;
	pthread_t t;
	double end;

	xe_set_store(&self->xe, near, VALUE);
	ASSERT_EQ(xe_start(&self->xe), 0);
	usleep(200000);
	ASSERT_EQ(pthread_create(&t, NULL, bind_other, self), 0);
	/* No ioctl here: it may have to wait for the worker. */
	for (end = xe_clock() + 10; !done && xe_clock() < end; usleep(10000))
		done = *self->xe.done == DONE;
	EXPECT_TRUE(done);
	EXPECT_EQ(xe_word(near), VALUE);
	if (!done) {
		mprotect(self->bad, self->size, PROT_READ | PROT_WRITE);
		madvise(self->bad, self->size, MADV_GUARD_REMOVE);
	}
	ASSERT_EQ(pthread_join(t, NULL), 0);
	EXPECT_EQ(self->bind, 0);
	EXPECT_LT(self->took, 5);
	ASSERT_TRUE(done);

	EXPECT_EQ(xe_store(&self->xe, far, VALUE), 0);
	EXPECT_EQ(xe_word(far), VALUE);
	if (variant->small) {
		EXPECT_EQ(xe_store(&self->xe, self->mem + CHUNK - PAGE, VALUE), 0);
		EXPECT_EQ(xe_word(self->mem + CHUNK - PAGE), VALUE);
	}
}

/* A store to the part itself fails. It does not hang, and the address space stays usable. */
TEST_F_TIMEOUT(livelock, denied, 120)
{
	double begin;

	self->xe.seconds = 5;
	EXPECT_NE(xe_store(&self->xe, self->bad, VALUE), 0);
	self->xe.seconds = 20;
	begin = xe_clock();
	EXPECT_EQ(xe_to_vram(&self->xe, self->other, 64 << 10), 0);
	EXPECT_LT(xe_clock() - begin, 5);
	ASSERT_TRUE(xe_queue(&self->xe));
	EXPECT_EQ(xe_store(&self->xe, self->mem + PAGE, VALUE), 0);
	EXPECT_EQ(xe_word(self->mem + PAGE), VALUE);
}

TEST_HARNESS_MAIN
