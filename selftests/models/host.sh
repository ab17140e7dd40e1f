# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# What the programs "host" of suites with a model have in common. Sourced.

n=0 status=0
# part NAME COMMAND...: one subtest.
part() {
	n=$((n + 1))
	printf '    KTAP version 1\n    # Subtest: %s\n' "$1"
	"${@:2}" | sed '/^KTAP version/d; s/^/    /' || {
		status=1
		printf 'not '
	}
	echo "ok $n $1"
}

# fuzz MODEL SECONDS: as the part behind the first one, and the last; if that is more than a minute, bugs that must be found, too.
fuzz() {
	part fuzz "$TOP/selftests/models/fuzz/run" "$1" "$2"
	[ "$2" -le 60 ] || part fuzz-mutants "$TOP/selftests/models/fuzz/run" "$1" --mutants 60
	exit $status
}
