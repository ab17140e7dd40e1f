#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Check our own files.
#
# usage: check-scripts.sh [FILE...]
#
# Runs shellcheck and shfmt on all shell scripts of this repository, or on the named
# files, and looks for all else that the check "scripts" finds (scripts/README.md), but
# not for errors in Python and C.
set -euo pipefail
. "$(dirname "$0")/common.sh"
arguments 0 9999 '' "$@"
for t in shellcheck shfmt; do
	command -v "$t" >/dev/null || die "no $t: apt-get install $t"
done
cd "$TOP"
rc=0
# wrong: note that something is wrong. What comes on the standard input says what.
wrong() { ! grep . >&2 || rc=$EX_FAIL; }
mapfile -t scripts < <(git ls-files -- "$@" | grep -v '^patches/' | xargs -r -d '\n' shfmt -f)
if [ "${#scripts[@]}" -gt 0 ]; then
	shellcheck "${scripts[@]}" || rc=$EX_FAIL
	shfmt -d "${scripts[@]}" || rc=$EX_FAIL
fi
scripts/guest/topology.py --check || rc=$EX_FAIL
scripts/patches/series-page.py --check || rc=$EX_FAIL
# The licence line of each script and source.
wrong < <(git ls-files -- "$@" | grep -vE '^(patches|rdma-core)/' | xargs -d '\n' awk '
	FNR == 1 && (/^#!/ || FILENAME ~ /\.(sh|py|js|c|h)$|(^|\/)(Makefile|Kbuild)$/) { print FILENAME }' |
	xargs -r -d '\n' grep -LE '^(#|//|/\*) SPDX-License-Identifier: GPL-2\.0-only( WITH Linux-syscall-note)?( \*/)?$' |
	sed 's/$/ has no line "SPDX-License-Identifier: GPL-2.0-only"/')
mapfile -t texts < <(git ls-files '*.md')
# The documentation: names in commands, then links.
while IFS='= ' read -r -a words; do
	case ${words[0]} in
	CHECKS) where=scripts/checks/ suffix='' ;;
	MUTANTS) where=selftests/mutants/ suffix=.patch ;;
	SUITES) where=selftests/suites/ suffix='' ;;
	*) where=selftests/topologies/ suffix='' ;;
	esac
	for word in "${words[@]:1}"; do
		[ "$word" = ... ] || compgen -G "$where$word$suffix" >/dev/null ||
			wrong <<<"the texts say ${words[0]}=$word, and there is no $where$word$suffix"
	done
done < <(grep -ohE '(CHECKS|MUTANTS|SUITES|TOPOLOGIES|TOPOLOGY)=("[^"]*"|[a-z0-9*-]+)' "${texts[@]}" | tr -d '"')
wrong < <(for text in "${texts[@]}"; do
	{ grep -oE '\]\([^):]*\)|src="[^":]*"' "$text" || true; } | sed 's/^src=//' | tr -d ']()"' | while read -r link; do
		[ -e "$(dirname "$text")/$link" ] || echo "$text links to $link, which is not there"
	done
done)
# Paths of scripts that have moved
wrong < <(git grep -ohE 'scripts/[a-z/-]+\.(sh|py)' -- ':!patches/*/*' ':!selftests/scripts/checks' | sort -u | while read -r path; do
	[ -e "$path" ] || [ -z "$(find scripts -name "${path##*/}")" ] || echo "a file names $path, which has moved"
done)
# Numbers: those that a command prints, the tables that make prints, and the patches that notes name by their number.
declare -i figures=0
while IFS=$'\t' read -r file pattern command; do
	[[ $file != '#'* ]] || continue
	said=$(grep -ohP -e "$pattern" "$file" || true) is=$(eval "$command")
	figures+=1
	[ "$said" = "$is" ] || wrong <<<"$file says '${said//$'\n'/ }' where $command says $is"
done <scripts/figures
wrong < <(grep -E '^    [a-z-]+ .* (yes|verified) ' README.md | grep -vxFf MAINTAINERS-notes/sample-report.md |
	sed 's/^/README.md has a line that sample-report.md has not:/')
wrong < <(for text in MAINTAINERS-notes/*.md; do
	# Sentences may continue on the next line.
	# shellcheck disable=SC2016 # the marks of code in these texts
	tr '\n' ' ' <"$text" | tr -s ' ' | grep -oE '(`[^`]+` \()?[Pp]atch [0-9]+ of `[0-9]-[a-z0-9-]+`' | while IFS= read -r said; do
		n=${said##*atch } n=${n%% *} series=${said% *} series=${said##* } series=${series//\`/}
		patch=$(compgen -G "patches/$series/$(printf %04d "$n")-*.patch") || {
			echo "$text: there is no patch $n of $series"
			continue
		}
		[[ $said =~ ^\`([^\`]*)\` ]] || continue
		tr '\n' ' ' <"$patch" | tr -s ' ' | grep -qF -e "${BASH_REMATCH[1]}" || echo "$text: $patch has another subject: $said"
	done || true
done)
# The line "Patch:" of a mutant has the series and subject of a patch.
wrong < <(grep -hs '^Patch: ' selftests/mutants/*.patch | sort -u | grep -vxFf <(awk 'sub(/^Subject: \[PATCH\] /, "Patch: ") {
		sub(/ /, " " substr(FILENAME, 9, index(substr(FILENAME, 9), "/") - 1) " ")
		printf "%s", $0
		while (getline > 0 && /^ /) printf "%s", $0
		print ""
	}' patches/*/*.patch) | sed 's/$/: a line in selftests\/mutants that names no patch/')
# Each topology has a row in the documentation, and in the runs of a suite.
for topology in selftests/topologies/[!R]*; do
	topology=${topology##*/}
	grep -qF "[\`$topology\`](pictures/$topology.svg)" selftests/README.md ||
		wrong <<<"selftests/README.md has no row for the topology $topology"
	awk -v topology="$topology" '$2 == topology { found = 1 } END { exit !found }' selftests/suites/hmm/runs ||
		wrong <<<"selftests/suites/hmm/runs has no run on the topology $topology"
done
[ "$rc" -ne 0 ] || echo "check-scripts: ${#scripts[@]} shell scripts, $(git ls-files -- "$@" | wc -l) files, ${#texts[@]} texts, $(basename -a selftests/topologies/[!R]* | wc -l) topologies, $figures numbers: nothing wrong"
exit "$rc"
