# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# Sourced by the programs "host" of the suites that have a model.

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

# fuzz MODEL SECONDS: fuzz the model as the next subtest, then exit. With more than a minute, one more subtest checks that the
# fuzzers find the bugs of fuzz/mutants.
fuzz() {
	part fuzz "$TOP/selftests/models/fuzz/run" "$1" "$2"
	[ "$2" -le 60 ] || part fuzz-mutants "$TOP/selftests/models/fuzz/run" "$1" --mutants 60
	exit $status
}
