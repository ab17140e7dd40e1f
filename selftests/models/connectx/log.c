// SPDX-License-Identifier: GPL-2.0-only
/* The log of the model. */
#include "connectx.h"

#include <stdarg.h>

static void say(struct hca *h, const char *what, const char *fmt, va_list ap)
{
	fprintf(stderr, "connectx: %s", what);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
}

#define SAY(name, when, what, count) \
	void name(struct hca *h, const char *fmt, ...) \
	{ \
		va_list ap; \
		count; \
		if (!(when)) \
			return; \
		va_start(ap, fmt); \
		say(h, what, fmt, ap); \
		va_end(ap); \
	}

/* The limits are needed because a hostile guest could make the model print for ever. */
SAY(note, ++h->notes < 10000, "", (void)0)
SAY(debug, h->verbose, "", (void)0)
SAY(violation, h->stats.violations < 1000, "VIOLATION: ", h->stats.violations++)
