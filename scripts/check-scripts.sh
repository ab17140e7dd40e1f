#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Check our own files: shell scripts, licences, sorted lists, pictures, and names in the documentation.
set -euo pipefail
. "$(dirname "$0")/common.sh"
[ "${1:-}" != --help ] || {
	cat <<'END'
usage: check-scripts.sh [FILE...]

Runs shellcheck and shfmt on all shell scripts of this repository, or on the named
files. Then checks that each script and source has its licence line, that kernel
configuration fragments and package lists are sorted, that the pictures of the
topologies and the page of the series (patches/README.md) are up to date, and that the
documentation names no check, suite, mutant, topology or file that does not exist.
END
	exit 0
}
for t in shellcheck shfmt; do
	command -v "$t" >/dev/null || die "no $t: apt-get install $t"
done
cd "$TOP"
rc=0
mapfile -t scripts < <(git ls-files -- "$@" | grep -v '^patches/' | while IFS= read -r f; do
	case $f in
	*.sh) echo "$f" ;;
	*) [ ! -f "$f" ] || ! head -n 1 "$f" | grep -E '^#!.*[/ ](ba|busybox )?sh( |$)' >/dev/null || echo "$f" ;;
	esac
done)
if [ "${#scripts[@]}" -gt 0 ]; then
	shellcheck "${scripts[@]}" || rc=$EX_FAIL
	shfmt -d "${scripts[@]}" || rc=$EX_FAIL
fi
for f in kernel-config/*.config; do
	sed -nE 's/^(# )?(CONFIG_[A-Za-z0-9_]+)(=.*| is not set)$/\2/p' "$f" | LC_ALL=C sort -c || {
		echo "$f is not sorted" >&2
		rc=$EX_FAIL
	}
done
sed 's/[[:space:]]*#.*//; /^$/d' scripts/packages | LC_ALL=C sort -c || rc=$EX_FAIL
scripts/topology.py --check || rc=$EX_FAIL
scripts/series-page.py --check || rc=$EX_FAIL
# The licence line of each script and source.
git ls-files -- "$@" | grep -vE '^(patches|rdma-core)/' | xargs -d '\n' awk '
	FNR == 1 && (/^#!/ || FILENAME ~ /\.(sh|py|js|c|h)$|(^|\/)(Makefile|Kbuild)$/) { print FILENAME }' |
	xargs -r -d '\n' grep -LE '^(#|//|/\*) SPDX-License-Identifier: GPL-2\.0-only( WITH Linux-syscall-note)?( \*/)?$' |
	sed 's/$/ has no line "SPDX-License-Identifier: GPL-2.0-only"/' | { ! grep . >&2; } || rc=$EX_FAIL
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
		[ "$word" = ... ] || compgen -G "$where$word$suffix" >/dev/null || {
			echo "the texts say ${words[0]}=$word, and there is no $where$word$suffix" >&2
			rc=$EX_FAIL
		}
	done
done < <(grep -ohE '(CHECKS|MUTANTS|SUITES|TOPOLOGIES|TOPOLOGY)=("[^"]*"|[a-z0-9*-]+)' "${texts[@]}" | tr -d '"')
for text in "${texts[@]}"; do
	{ grep -oE '\]\([^):]*\)|src="[^":]*"' "$text" || true; } | sed 's/^src=//' | tr -d ']()"' | while read -r link; do
		[ -e "$(dirname "$text")/$link" ] || echo "$text links to $link, which is not there"
	done
done | { ! grep . >&2; } || rc=$EX_FAIL
exit "$rc"
