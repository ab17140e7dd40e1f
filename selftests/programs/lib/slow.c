// SPDX-License-Identifier: GPL-2.0-only
/*
 * Time limits of kselftest_harness on a slow machine: linked with -Wl,--wrap=poll. The harness
 * waits for the end of a test with poll() and has no option for the limit.
 */
#include <poll.h>
#include <stdlib.h>

int __real_poll(struct pollfd *fds, nfds_t nfds, int ms);
int __wrap_poll(struct pollfd *fds, nfds_t nfds, int ms);

int __wrap_poll(struct pollfd *fds, nfds_t nfds, int ms)
{
	const char *slowdown = getenv("HMM_P2P_SLOWDOWN");

	if (ms > 0 && slowdown)
		ms *= atoi(slowdown);
	return __real_poll(fds, nfds, ms);
}
