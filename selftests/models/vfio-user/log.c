// SPDX-License-Identifier: GPL-2.0-only
/* The log of a model. */
#include "vfio_user.h"

#include <stdarg.h>

static void say(const struct vfio_user *v, const char *what, const char *fmt, va_list ap)
{
	fprintf(stderr, "%s: %lu %s", v->name, now() % 1000000, what);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
}

#define SAY(function, when, what, count) \
	void function(struct vfio_user *v, const char *fmt, ...) \
	{ \
		va_list ap; \
		count; \
		if (!(when)) \
			return; \
		va_start(ap, fmt); \
		say(v, what, fmt, ap); \
		va_end(ap); \
	}

/* The limits are needed because a hostile guest could make the model print for ever. */
SAY(log_note, !v->mute && ++v->notes < 10000, "", (void)0)
SAY(log_debug, v->verbose, "", (void)0)
SAY(log_violation, !v->mute && v->violations < 1000, "VIOLATION: ", v->violations++)
