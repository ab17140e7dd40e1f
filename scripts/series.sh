# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# Sourced by tree.sh and export.sh: which commit of build/tree is which patch of patches/.
#
# The record, build/tree/.git/series: the base commit, then for each patch applied or exported a line of commit,
# sha256sum, path below patches/. The series of a commit is also a note on it, which git carries through rebase and
# amend; that is how export knows where an edited commit belongs.

tree=$BUILD/tree
record=$tree/.git/series

# tree_work: what build/tree has that the record has not, in words; nothing when it has nothing.
tree_work() {
	local d commits edits
	for d in rebase-merge rebase-apply MERGE_HEAD CHERRY_PICK_HEAD; do
		[ ! -e "$tree/.git/$d" ] || {
			echo "a $d not finished"
			return
		}
	done
	commits=$(diff <(sed 1d "$record" | cut -d ' ' -f 1) <(kgit "$tree" rev-list --reverse base..HEAD) | grep -c '^[<>]' || true)
	edits=$(kgit "$tree" status --porcelain | wc -l)
	[ "$commits" -eq 0 ] || printf '%s commits added or gone' "$commits"
	[ "$commits" -eq 0 ] || [ "$edits" -eq 0 ] || printf ', '
	[ "$edits" -eq 0 ] || printf '%s files edited' "$edits"
}

# tag_series: series/NAME at the last commit of each series.
tag_series() {
	local commit path
	kgit "$tree" tag -l 'series/*' | xargs -r git -C "$tree" tag -d >/dev/null
	while read -r commit _ path; do
		[ -n "$path" ] || continue
		kgit "$tree" tag -f "series/${path%%/*}" "$commit" >/dev/null
	done <"$record"
}
