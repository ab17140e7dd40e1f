# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# Sourced by the checks. scripts/check.sh gives them
#   WORK      a git tree in which nothing else checks out and builds
#   FROM, TO  commits of it: what lies between them is checked
#   PATCHES   the same as patches, with `series`
#   OUT       a folder for details
#   ONLY      files of this project to look at, all if empty
# and scripts/mbox.sh, which has them look at some of the patches as they are mailed:
#   SIGNER    who has signed them
# A check prints one line; exit 0 passed, 250 passed with a warning, else failed.

. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
set -euo pipefail
export LC_ALL=C

checks=$TOP/scripts/checks
# shellcheck disable=SC2034
here=$checks/$(basename "$(dirname "$0")")
: "${WORK:?run it by scripts/check.sh}" "${FROM:?}" "${TO:?}" "${OUT:?}"
work=$WORK
EX_WARNING=250

pass() {
	printf '%s\n' "$*"
	exit 0
}
warning() {
	printf '%s\n' "$*"
	exit "$EX_WARNING"
}
fail() {
	printf '%s\n' "$*"
	exit "$EX_FAIL"
}

# rows FILE: its lines, without comments and empty ones
rows() { sed 's/^#.*//; s/[[:space:]]*$//; /^$/d' "$1"; }

# patches: what the file series lists, below $PATCHES
patches() { series_patches; }

# subject FILE: of a mail, unfolded, without [PATCH ...]
subject() {
	awk '/^Subject:/ { s = $0; while ((getline line) > 0 && line ~ /^[ \t]/) s = s line; sub(/^Subject: */, "", s)
		sub(/^\[PATCH[^]]*\] */, "", s); print s; exit }' "$1"
}

# tree_of PATCH: who takes it, by the table in trees
tree_of() {
	local s series prefix tree
	s=$(subject "$PATCHES/$1")
	while read -r series prefix tree; do
		# shellcheck disable=SC2053 # patterns
		[[ ${1%%/*} == $series && ${s%%:*} == $prefix ]] || continue
		echo "$tree"
		return
	done < <(rows "$checks/trees")
}

# touched [PATHSPEC...]: files that the patches change and do not remove
touched() { kgit "$work" diff --name-only --no-renames --diff-filter=d "$FROM" "$TO" -- "$@"; }

# at COMMIT: check it out
at() { kgit "$work" checkout -q --detach -f "$1"; }

# new_lines BEFORE AFTER: the lines of AFTER that BEFORE has not as often
new_lines() {
	awk 'FILENAME == ARGV[1] { seen[$0]++; next } seen[$0]-- > 0 { next } { print }' "$1" "$2"
}

# messages: of compilers and checkers, from a log, without the numbers of lines, which other changes move
messages() {
	sed -nE "s#$work/##g"'
		s#(^|[ :])\.{1,2}/(\.\./)*#\1#g
		s#\+0x[0-9a-f]+##
		s#^([A-Za-z0-9_./-]+):[0-9]+:([0-9]+:)? (fatal error|error|warning|WARNING|ERROR|CRITICAL): #\1: \3: #
		s#^(Warning|Error): ([A-Za-z0-9_./-]+):[0-9]+ #\2: warning: #
		/^[A-Za-z0-9_./-]+: (fatal error|error|warning|WARNING|ERROR|CRITICAL): /p'
}

# trim WORDS: without blanks around
trim() {
	local s=${1#"${1%%[![:space:]]*}"}
	printf '%s' "${s%"${s##*[![:space:]]}"}"
}

# justified FILE KEY...: has FILE a row "PATTERN | ... | reason" for a finding with these keys? Patterns of the shell.
# The row is noted in $OUT/used.
justified() {
	local file=$1 row i fields
	shift
	[ -f "$file" ] || return 1
	while IFS= read -r row; do
		IFS='|' read -r -a fields <<<"$row"
		[ "${#fields[@]}" -eq $(($# + 1)) ] || die "$file: not $# patterns and a reason: $row"
		for ((i = 1; i <= $#; i++)); do
			# shellcheck disable=SC2053 # a pattern
			[[ ${!i} == $(trim "${fields[i - 1]}") ]] || continue 2
		done
		printf '%s\n' "$row" >>"$OUT/used"
		return 0
	done < <(rows "$file")
	return 1
}

# not_needed FILE: the rows that justified() has had no use for
not_needed() {
	[ -f "$1" ] && [ -z "${SIGNER:-}" ] || return 0
	touch "$OUT/used"
	rows "$1" | grep -vxFf "$OUT/used" || true
}

# judge_messages WHAT: by $OUT/before and $OUT/after, which hold the sorted messages
judge_messages() {
	# What a header has always had comes once more with each new file that includes it.
	touched . >"$OUT/touched"
	new_lines "$OUT/before" "$OUT/after" | awk -F : -v touched="$OUT/touched" -v before="$OUT/before" '
		BEGIN { while ((getline line <touched) > 0) ours[line]; while ((getline line <before) > 0) old[line] }
		$1 in ours || !($0 in old)' >"$OUT/new"
	[ ! -s "$OUT/new" ] || fail "$(wc -l <"$OUT/new") new warnings, the first: $(head -n 1 "$OUT/new")"
	pass "$1: $(wc -l <"$OUT/before") warnings before, $(wc -l <"$OUT/after") after, none new"
}
