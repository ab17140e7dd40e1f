#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# The main job: boot the patched kernel once per PCIe topology and say how the importer reached device-private memory.
set -euo pipefail
. "$(dirname "$0")/common.sh"

usage() {
	cat <<'EOF'
usage: [TOPOLOGIES="..."] run.sh

Runs the suite "table" (selftests/suites/table) on the kernel "normal" and prints
one line per topology and exporter.

exit: 0 each line is as the file of its topology (selftests/topologies) demands;
otherwise as test.sh.
EOF
}
no_arguments "$@"

rc=0
"$TOP/scripts/test.sh" table "${TOPOLOGIES:-}" >/dev/null || rc=$?
[ $rc -le "$EX_FAIL" ] || exit $rc

format='%-18s  %-20s  %6s  %8s  %-13s  %s\n'
# shellcheck disable=SC2059
printf "$format" TOPOLOGY VERDICT P2P MIGRATED DATA 'AS DEMANDED'
sed 's/#.*//; /^$/d' "$TOP/selftests/suites/table/runs" | while read -r kernel topology; do
	[ -z "${TOPOLOGIES:-}" ] || [[ " $TOPOLOGIES " == *" $topology "* ]] || continue
	dir=$(results_dir "$kernel" "$topology" table "")
	[ -f "$dir/results.json" ] || {
		# shellcheck disable=SC2059
		printf "$format" "$topology" - - - - 'NO, could not run'
		continue
	}
	# A result line follows the line of numbers it judges.
	awk -v topology="$topology" -v format="$format" '
		function row(verdict, p2p, migrated, data, good) {
			printf format, topology, verdict, p2p, migrated, data, good
			topology = ""; rows++
		}
		BEGIN { say["bus"] = "bus address"; say["bridge"] = "through host bridge"; say["none"] = "not supported" }
		/^# p2p-table / { for (i = 3; i <= NF; i++) { split($i, f, "="); v[f[1]] = f[2] } }
		/^# no devices/ { v["verdict"] = "" }
		/^(not )?ok / {
			good = $1 == "ok" ? "yes" : "NO"
			if (v["verdict"] == "") row("no PCI devices: tests skip", "", "", "", good)
			else row(say[v["verdict"]], v["p2p"], v["migrated"], v["verified"] == "yes" ? "verified" : "WRONG", good)
		}
		END { if (!rows) row("-", "-", "-", "-", "NO") }' "$dir/ktap"
	grep -h ' exit ' "$dir/conclusion.txt" || true
done
exit $rc
