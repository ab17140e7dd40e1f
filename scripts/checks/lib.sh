# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# Sourced by the checks. scripts/check.sh gives them
#   WORK      a git tree that nothing else uses at the same time
#   FROM, TO  commits of it: the commits between them are checked
#   PATCHES   the same as patches, with the file series
#   OUT       a folder for details
#   ONLY      files of this project to check; all if empty

. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
set -euo pipefail
export LC_ALL=C

checks=$TOP/scripts/checks
# shellcheck disable=SC2034
here=$checks/$(basename "$(dirname "$0")")
: "${WORK:?run it by scripts/check.sh}" "${FROM:?}" "${TO:?}" "${OUT:?}"
work=$WORK
EX_WARNING=250

# conclude CODE WORD...: print the line of the check, and end
conclude() {
	printf '%s\n' "${*:2}"
	exit "$1"
}
pass() { conclude 0 "$@"; }
warning() { conclude "$EX_WARNING" "$@"; }
fail() { conclude "$EX_FAIL" "$@"; }

# rows FILE: its lines without comments and empty lines
rows() { sed 's/^#.*//; s/[[:space:]]*$//; /^$/d' "$1"; }

# subject FILE: the subject of a mail, unfolded, without [PATCH ...]
subject() {
	awk '/^Subject:/ { s = $0; while ((getline line) > 0 && line ~ /^[ \t]/) s = s line; sub(/^Subject: */, "", s)
		sub(/^\[PATCH[^]]*\] */, "", s); print s; exit }' "$1"
}

# lookup TABLE KEY...: the last word of the first row whose other words are patterns of these keys
lookup() {
	local table=$1 row i
	shift
	while read -r -a row; do
		for ((i = 1; i <= $#; i++)); do
			# shellcheck disable=SC2053 # a pattern
			[[ ${!i} == ${row[i - 1]} ]] || continue 2
		done
		printf '%s\n' "${row[$#]}"
		return
	done < <(rows "$table")
}

# touched [PATHSPEC...]: the files that the patches add or change
touched() { kgit "$work" diff --name-only --no-renames --diff-filter=d "$FROM" "$TO" -- "$@"; }

# at COMMIT: check it out
at() { kgit "$work" checkout -q --detach -f "$1"; }

# new_lines BEFORE AFTER: the lines that occur more often in AFTER than in BEFORE
new_lines() { awk 'FILENAME == ARGV[1] { seen[$0]++; next } seen[$0]-- > 0 { next } { print }' "$1" "$2"; }

# messages: extract messages of compilers and checkers from a log. Line numbers are removed, because other changes move lines.
messages() {
	sed -nE "s#$work/##g"'
		s#(^|[ :])\.{1,2}/(\.\./)*#\1#g
		s#\+0x[0-9a-f]+##
		s#^([A-Za-z0-9_./-]+):[0-9]+:([0-9]+:)? (fatal error|error|warning|WARNING|ERROR|CRITICAL): #\1: \3: #
		s#^(Warning|Error): ([A-Za-z0-9_./-]+):[0-9]+ #\2: warning: #
		/^[A-Za-z0-9_./-]+: (fatal error|error|warning|WARNING|ERROR|CRITICAL): /p'
}

# trim WORDS: remove blanks at both ends
trim() {
	local s=${1#"${1%%[![:space:]]*}"}
	printf '%s' "${s%"${s##*[![:space:]]}"}"
}

# justified FILE KEY...: does FILE have a row "PATTERN | ... | reason" for a finding with these keys? The patterns are those of the
# shell. The row is recorded in $OUT/used.
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

# not_needed FILE: the rows that justified() did not use
not_needed() {
	[ -f "$1" ] || return 0
	touch "$OUT/used"
	rows "$1" | grep -vxFf "$OUT/used" || true
}

# new_messages BEFORE AFTER: the messages of the file AFTER that are new
new_messages() {
	# An old warning of a header appears again for each new file that includes the header.
	touched . >"$OUT/touched"
	new_lines "$1" "$2" | awk -F : -v touched="$OUT/touched" -v before="$1" '
		BEGIN { while ((getline line <touched) > 0) ours[line]; while ((getline line <before) > 0) old[line] }
		$1 in ours || !($0 in old)'
}

# judge_messages WHAT: pass or fail by the sorted messages in $OUT/before and $OUT/after, and the file justified beside the check
judge_messages() {
	new_messages "$OUT/before" "$OUT/after" >"$OUT/new"
	local line
	while IFS= read -r line; do
		justified "$here/justified" "$line" || printf '%s\n' "$line"
	done <"$OUT/new" >"$OUT/open"
	[ ! -s "$OUT/open" ] || fail "$(wc -l <"$OUT/open") new warnings, the first: $(head -n 1 "$OUT/open")"
	line=$(not_needed "$here/justified" | head -n 1)
	[ -z "$line" ] || fail "nothing needs: $line"
	pass "$1: $(wc -l <"$OUT/before") warnings before, $(wc -l <"$OUT/after") after, none new$([ ! -s "$OUT/new" ] || echo " but $(wc -l <"$OUT/new") justified")"
}
