#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Boot the base with the feature on each PCIe topology and print how the importer reached device-private memory.
set -euo pipefail
. "$(dirname "$0")/common.sh"

usage() {
	cat <<'EOF'
usage: [TOPOLOGIES="..."] run.sh [demo]

Runs the suite "table" (selftests/suites/table) on the kernel "feature", which is the
base and 1-hmm-p2p alone, and prints one line per topology and exporter. With "demo"
it runs what the file selftests/suites/e2e/demo lists: a GPU and an adapter take turns
at the same pages. One line per topology and access flag says how many pages and
bytes were moved. TOPOLOGIES replaces the topologies of the list.

exit: 0 each line is what the file of its topology (selftests/topologies) expects;
otherwise as test.sh.
EOF
}
case ${1:-} in
demo)
	shift
	suite=e2e list=demo tests='^    (not )?ok ' nothing='-|-|-|-|-|-|-|-'
	heading='TOPOLOGY|P2P FLAG|TURNS|RDMA OPS|P2P BYTES|IN VRAM|MIGRATED|BYTES COPIED|DATA|EXPECTED'
	format='%-17s  %-8s  %5s  %8s  %9s  %7s  %8s  %12s  %-8s  %s\n'
	cells='function cells() {
		if (v["flag"] == "") return nothing
		return v["flag"] "|" v["turns"] "|" v["ops"] "|" v["p2p"] "|" v["vram"] "/" v["pages"] "|" v["migrated"] "|" v["copied"] "|" v["data"]
	}'
	;;
*)
	suite=table list=runs tests='^(not )?ok ' nothing='-|-|-|-'
	heading='TOPOLOGY|VERDICT|P2P|MIGRATED|DATA|EXPECTED'
	format='%-18s  %-20s  %6s  %8s  %-13s  %s\n'
	cells='function cells() {
		say["bus"] = "bus address"; say["bridge"] = "through host bridge"; say["none"] = "not supported"
		if (v["verdict"] == "") return "no PCI devices: tests skip|||"
		return say[v["verdict"]] "|" v["p2p"] "|" v["migrated"] "|" (v["verified"] == "yes" ? "verified" : "WRONG")
	}'
	;;
esac
arguments 0 0 '' "$@"

rc=0
list=$TOP/selftests/suites/$suite/$list
TOPOLOGIES=${TOPOLOGIES:-} "$TOP/scripts/list.sh" --check
scratch "${TMPDIR:-/tmp}"
[ -z "${TOPOLOGIES:-}" ] || {
	# The runs of the first topology, on each of these
	awk -v names="$TOPOLOGIES" '{ sub(/#.*/, "") } !NF { next } first == "" { first = $2; n = split(names, name, " ") } $2 == first {
		for (i = 1; i <= n; i++) { $2 = name[i]; print } }' "$list" >"$tmp/runs"
	list=$tmp/runs
}
LIST=$list attend "$TOP/scripts/test.sh" "$suite" >/dev/null || rc=$?
[ $rc -le "$EX_FAIL" ] || exit $rc

line() { # CELLS, with | between them
	local words
	IFS='|' read -r -a words <<<"$1"
	# shellcheck disable=SC2059
	printf "$format" "${words[@]}"
}
line "$heading"
table=$(sed 's/#.*//; /^$/d' "$list" | while read -r kernel topology args; do
	dir=$(results_dir "$kernel" "$topology" "$suite" "$args")
	[ -f "$dir/results.json" ] || {
		line "$topology|$nothing|NO, could not run"
		continue
	}
	# The result line of a test follows its line of numbers.
	awk -v topology="$topology" -v nothing="$nothing" -v tests="$tests" "$cells"'
		function row(said, good) {
			print topology "|" said "|" good
			split("", v); rows++
		}
		$1 == "#" && $2 ~ /-table$/ { for (i = 3; i <= NF; i++) { split($i, f, "="); v[f[1]] = f[2] } }
		$0 ~ tests { row(cells(), $1 == "ok" && cells() != nothing ? "yes" : "NO") }
		END { if (!rows) row(nothing, "NO") }' "$dir/ktap" | while IFS= read -r row; do line "$row"; done
	grep -h ' exit ' "$dir/conclusion.txt" || true
done)
echo "$table"
# A test that passes without numbers is an error, too.
[ $rc -ne 0 ] || [[ $table != *' NO'* ]] || rc=$EX_FAIL
exit $rc
