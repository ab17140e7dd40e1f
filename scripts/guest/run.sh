#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Boot guests, and print how the importer reached device-private memory on each PCIe topology.
#
# usage: [TOPOLOGIES="..."] run.sh [demo]
#
# Runs the suite "p2p-table" (selftests/suites/p2p-table) on the kernel "feature", which is the
# base and 1-hmm-p2p alone, and prints one line per topology and exporter. With "demo"
# it runs what the files selftests/suites/{e2e,gpus}/demo list, and prints two tables
# (README.md explains all of them). TOPOLOGIES replaces the topologies of the lists.
# Passes if each line is what the file of its topology (selftests/topologies) expects.
set -euo pipefail
. "$(dirname "$0")/../common.sh"
arguments 0 0 demo "$@"
tables=("p2p-table runs p2p-table")
[ -z "$opted" ] || tables=("e2e demo demo-table" "gpus demo gpus-table")

rc=0
TOPOLOGIES=${TOPOLOGIES:-} "$TOP/scripts/list.sh" --check
scratch "${TMPDIR:-/tmp}"
for entry in "${tables[@]}"; do
	read -r suite list table <<<"$entry"
	list=$TOP/selftests/suites/$suite/$list
	[ -z "${TOPOLOGIES:-}" ] || {
		# The runs of the first topology, on each of these
		awk -v names="$TOPOLOGIES" '{ sub(/#.*/, "") } !NF { next } first == "" { first = $2; n = split(names, name, " ") } $2 == first {
			for (i = 1; i <= n; i++) { $2 = name[i]; print } }' "$list" >"$tmp/runs"
		list=$tmp/runs
	}
	LIST=$list attend "$TOP/scripts/guest/test.sh" "$suite" >/dev/null || rc=$?
	[ $rc -le "$EX_FAIL" ] || exit $rc

	mapfile -t dirs < <(sed 's/#.*//; /^$/d' "$list" | while read -r kernel topology args; do
		results_dir "$kernel" "$topology" "$suite" "$args"
	done)
	[ "$entry" = "${tables[0]}" ] || echo
	"$TOP/scripts/guest/results.py" table "$table" "${dirs[@]}" || rc=$EX_FAIL
done
exit $rc
