// SPDX-License-Identifier: GPL-2.0-only
/*
 * Time limits of kselftest_harness on a slow machine, and the stacks of a test that reaches its
 * limit: linked with -Wl,--wrap=poll. The harness waits for the end of a test with poll() of a
 * pidfd, and has no option for the limit.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

int __real_poll(struct pollfd *fds, nfds_t nfds, int ms);
int __wrap_poll(struct pollfd *fds, nfds_t nfds, int ms);

/* A test is the leader of a process group. Other files than a pidfd have no line "Pid:". */
static void print_stacks(int pidfd)
{
	char command[400];

	snprintf(command, sizeof(command),
		 "pid=$(sed -n 's/^Pid:\t//p' /proc/$PPID/fdinfo/%d); [ \"$pid\" ] || exit 0;"
		 " for f in $(grep -lE \"^NSpgid:.*\t$pid$\" /proc/[0-9]*/task/*/status); do"
		 " sed \"s|^|# ${f%%/status}: |\" ${f%%status}comm ${f%%status}stack; done 2>&1",
		 pidfd);
	fflush(stdout);
	if (system(command))
		printf("# no stack of the test\n");
}

int __wrap_poll(struct pollfd *fds, nfds_t nfds, int ms)
{
	const char *slowdown = getenv("HMM_P2P_SLOWDOWN");
	int n;

	if (ms > 0 && slowdown)
		ms *= atoi(slowdown);
	n = __real_poll(fds, nfds, ms);
	if (!n && ms > 0 && slowdown)
		print_stacks(fds[0].fd);
	return n;
}
