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

# gpu MODEL SECONDS: check and fuzz the model of a GPU, then exit.
gpu() {
	local out=$BUILD/models/sanitized
	mkdir -p "$out"
	# Fuzzed commands ask for large copies. The limits of channels and copies per turn are smaller here than for a driver.
	make -s -C "$TOP/selftests/models/$1" OUT="$out" \
		CFLAGS="-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -DTURN=4096 -DMAX_COPY=0x100000" >&2
	printf 'KTAP version 1\n1..%s\n' $((2 + ($2 > 60)))
	part check "$TOP/selftests/models/$1/check.py" "$out/$1" "$RANDOM" 5
	fuzz "$1" "$2"
}
