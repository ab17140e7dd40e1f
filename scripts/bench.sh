#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Measure what the patches cost and save, in guest instructions.
set -euo pipefail
. "$(dirname "$0")/common.sh"

usage() {
	cat <<'END'
usage: [BOOTS=n] [JOBS=n] bench.sh [GROUP...]
       bench.sh --compare [FILE]

Runs the groups of selftests/programs/hmm-bench.c on the kernels and topologies that
each group needs. Each combination is booted BOOTS times (default 5), with JOBS
guests at the same time (default: one per processor).

Writes to results/bench: table.md, cover.txt for the cover letter, raw.json with
every sample and the QEMU command of each boot, previous.json (raw.json of the run
before), and runs/ with one folder per boot.

  --compare  compare with previous.json, or with FILE

The counts depend on the compiler, but not on the load or speed of the host.

exit: 0 all budgets are kept (--compare: all counts are equal within 0.1 %); 1 a
budget is exceeded or a count differs; 2 a run could not start or failed.
END
}

# KERNEL TOPOLOGY GROUP
runs=(
	"unpatched none others"
	"normal none others"
	"unpatched switch odp"
	"normal switch odp"
	"unpatched root-ports-iommu odp"
	"normal root-ports-iommu odp"
	"normal switch alias"
	"normal switch pingpong"
)
out=$TOP/results/bench

measure() { # DIR KERNEL TOPOLOGY GROUP
	# One nanosecond is one instruction here. Calibration of the APIC timer would take longer than the rest of the boot, and fail.
	"$TOP/scripts/vm.sh" run -q -a noapictimer -o "$1" "$2" "$3" "/suites/cost/run" "$4"
}

case ${1:-} in
--help)
	usage
	exit 0
	;;
--compare)
	[ -f "$out/raw.json" ] || die "no $out/raw.json: run 'make bench' first"
	[ -f "${2:-$out/previous.json}" ] || die "no ${2:-$out/previous.json}: nothing to compare with"
	"$TOP/scripts/bench.py" compare "${2:-$out/previous.json}" "$out/raw.json"
	exit
	;;
-*)
	usage >&2
	exit "$EX_USAGE"
	;;
esac

todo=()
for ((boot = 1; boot <= ${BOOTS:-5}; boot++)); do
	for run in "${runs[@]}"; do
		[ $# -eq 0 ] || [[ " $* " == *" ${run##* } "* ]] || continue
		todo+=("$boot $run")
	done
done
[ ${#todo[@]} -gt 0 ] || die "nothing to do: no such group"

scratch "${TMPDIR:-/tmp}"
set -m

jobs=${JOBS:-$(nproc)} finished=0
declare -A running=()
finish() {
	local pid rc=0 run
	wait -n -p pid || rc=$?
	run=${running[$pid]}
	unset "running[$pid]"
	finished=$((finished + 1))
	[ "$rc" -eq 0 ] || {
		cat "$tmp/${run// /-}" >&2
		die "could not measure: $run"
	}
	step "$finished/${#todo[@]} $(cat "$out/runs/${run// /-}/conclusion.txt")"
}

step "bench: ${#todo[@]} boots, QEMU with TCG (no KVM), $jobs side by side"
rm -rf "$out/runs"
mkdir -p "$out"
for run in "${todo[@]}"; do
	[ ${#running[@]} -lt "$jobs" ] || finish
	read -r -a words <<<"$run"
	measure "$out/runs/${run// /-}" "${words[@]:1}" >"$tmp/${run// /-}" 2>&1 </dev/null &
	running[$!]=$run
done
while [ ${#running[@]} -gt 0 ]; do
	finish
done

"$TOP/scripts/bench.py" read "$tmp/raw.json" "$out"/runs/*
[ ! -f "$out/raw.json" ] || mv "$out/raw.json" "$out/previous.json"
mv "$tmp/raw.json" "$out/raw.json"
rc=0
"$TOP/scripts/bench.py" report "$out/raw.json" "$out" || rc=$?
[ ! -f "$out/previous.json" ] || "$TOP/scripts/bench.py" compare "$out/previous.json" "$out/raw.json" >"$out/compare.txt" || true
step "bench: ${out#"$TOP/"}"
exit $rc
