// SPDX-License-Identifier: GPL-2.0-only
/* The log of the model. */
#include "pascal.h"

#include <stdarg.h>

static void say(const char *what, const char *fmt, va_list ap)
{
	fprintf(stderr, "pascal: %lu %s", now() % 1000000, what);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
}

#define SAY(name, when, what, count) \
	void name(struct gpu *g, const char *fmt, ...) \
	{ \
		va_list ap; \
		count; \
		if (!(when)) \
			return; \
		va_start(ap, fmt); \
		say(what, fmt, ap); \
		va_end(ap); \
	}

/* The limits are needed because a hostile guest could make the model print for ever. */
SAY(note, ++g->notes < 10000, "", (void)0)
SAY(debug, g->opt.verbose, "", (void)0)
SAY(violation, g->stats.violations < 1000, "VIOLATION: ", g->stats.violations++)
