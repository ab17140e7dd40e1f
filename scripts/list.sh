#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Print all suites, topologies, kernels, checks and series.
#
# usage: list.sh
#        [SUITES="..."] [TOPOLOGIES="..."] [...] list.sh --check
#
# --check fails if a name in SUITES, TOPOLOGIES, TOPOLOGY, KERNELS, CHECKS, SERIES or
# MUTANTS does not exist. make calls it before it builds anything.
set -euo pipefail
. "$(dirname "$0")/common.sh"
arguments 0 0 --check "$@"

names() { # VARIABLE
	cd "$TOP"
	case $1 in
	SUITES) basename -a selftests/suites/*/ ;;
	TOPOLOG*) basename -a selftests/topologies/[!R]* ;;
	KERNELS) sed 's/[[:space:]#].*//; /^$/d' kernel-config/kernels ;;
	CHECKS) basename -a fast scripts/checks/*/ ;;
	SERIES) series_names ;;
	MUTANTS) basename -s .patch -a selftests/mutants/*.patch ;;
	esac
}

if [ -n "$opted" ]; then
	declare -A kind=([SUITES]=suite [TOPOLOGIES]=topology [TOPOLOGY]=topology [KERNELS]=kernel [CHECKS]=check [SERIES]=series [MUTANTS]=mutant)
	for variable in "${!kind[@]}"; do
		read -r -a words <<<"${!variable:-}"
		for word in "${words[@]}"; do
			known=$(names "$variable")
			while read -r name; do
				# shellcheck disable=SC2053 # MUTANTS may have patterns
				[[ $name != $word ]] || continue 2
			done <<<"$known"
			[ "$variable" != MUTANTS ] || die "no mutant $word in selftests/mutants"
			die "no ${kind[$variable]} $word; there are: ${known//$'\n'/ }"
		done
	done
	exit
fi
for variable in SUITES TOPOLOGIES KERNELS CHECKS SERIES; do
	printf '%s\n' "$(names "$variable" | xargs)" | fold -s -w 100 | sed "1s/^/$(printf '%-12s' "$variable")/; 2,\$s/^/            /"
done
echo "MUTANTS     $(names MUTANTS | wc -l) files in selftests/mutants, also patterns such as \"odp-*\""
