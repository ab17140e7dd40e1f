/* SPDX-License-Identifier: GPL-2.0-only */
/* Threads that fault pages, fork and exit at the same time. */
#ifndef ODP_WORKERS_H
#define ODP_WORKERS_H

#include <stdatomic.h>

#include "odp.h"

/* A thread that repeats one operation. */
struct worker {
	pthread_t thread;
	void (*work)(struct worker *w);
	FIXTURE_DATA(odp) *self;
	int fd;
	int exp;
	char *mem;
	int npages;
	int keep;		/* how many of these must not lose their data */
	unsigned int seed;
	atomic_bool *stop;
	unsigned int rounds;
	unsigned int late;	/* faults that were tried again */
	char *copy;		/* a buffer of 64 pages */
	int error;
	int line;		/* where the error was, 0 if there was none */
};

#define FAIL(_w, _error)				\
	do {						\
		(_w)->error = (_error);			\
		(_w)->line = __LINE__;			\
		return;					\
	} while (0)

static inline void *worker(void *arg)
{
	struct worker *w = arg;

	while (!*w->stop && !w->line) {
		w->work(w);
		w->rounds++;
	}
	return NULL;
}

static inline unsigned int roll(struct worker *w, unsigned int sides)
{
	w->seed = w->seed * 1103515245 + 12345;
	return (w->seed >> 16) % sides;
}

/* Return: the first page of a random part of the first @of pages. @n: its length */
static inline int some(struct worker *w, int of, int *n)
{
	int first = roll(w, of);

	*n = 1 + roll(w, of - first < 64 ? of - first : 64);
	return first;
}

static inline int quiet_fault(int fd, void *addr, uint64_t npages, unsigned int flags)
{
	struct edu_hmm_fault cmd = { .addr = (uintptr_t)addr, .npages = npages, .flags = flags };

	return call(fd, EDU_HMM_FAULT, &cmd);
}

/*
 * On a busy machine other threads may invalidate pages for a whole second. This is no error. The
 * fault is tried again, as a device does.
 */
static inline bool late(struct worker *w, int ret)
{
	w->late += ret == -ETIME;
	return ret == -ETIME;
}

static inline int patient_fault(struct worker *w, int first, uint64_t npages, unsigned int flags)
{
	int ret;

	do {
		ret = quiet_fault(w->fd, w->mem + first * PAGE, npages, flags);
	} while (late(w, ret));
	return ret;
}

static inline void do_fault(struct worker *w)
{
	int n, first = some(w, w->npages, &n), ret;

	ret = patient_fault(w, first, n, roll(w, 3) ? EDU_HMM_WRITE : 0);
	if (ret)
		FAIL(w, ret);
}

/* The device writes to the last bytes of pages that keep their data. */
#define SLOT	64

static inline bool kept(const char *page, int i)
{
	return filled(page, 0, PAGE - SLOT, i);
}

/* A child reads and writes some pages, then exits or is killed. */
static inline void do_fork(struct worker *w)
{
	int n, first = some(w, w->keep, &n);
	pid_t pid = spawn();
	int status;

	if (pid < 0)
		FAIL(w, -errno);
	if (!pid) {
		for (int i = first; i < first + n; i++) {
			if (!kept(w->mem + i * PAGE, i))
				_exit(1);
			w->mem[i * PAGE] ^= 0xff;
		}
		while (w->rounds % 2)
			pause();
		_exit(0);
	}
	if (w->rounds % 2) {
		usleep(roll(w, 20000));
		kill(pid, SIGKILL);
	}
	if (waitpid(pid, &status, 0) != pid || (w->rounds % 2 ? !WIFSIGNALED(status) : status))
		FAIL(w, 1);
}

/* Start one thread for each of @work. */
static inline bool start_workers(struct worker *workers, const struct worker *like,
				 void (*const *work)(struct worker *w), int n)
{
	for (int i = 0; i < n; i++) {
		workers[i] = *like;
		workers[i].work = work[i];
		workers[i].seed = i + 1;
		workers[i].copy = malloc(64 * PAGE);
		if (!workers[i].copy ||
		    pthread_create(&workers[i].thread, NULL, worker, workers + i))
			return false;
	}
	return true;
}

#endif /* ODP_WORKERS_H */
