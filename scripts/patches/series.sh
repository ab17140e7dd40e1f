# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# Sourced by tree.sh and export.sh: the record of which commit of build/tree is which file of patches/.
#
# The record is build/tree/.git/series. It has the base commit, and for each patch a line with its commit, its sha256sum and its
# path below patches/. A git note on each commit names its series. git keeps notes through rebase and amend, so export.sh knows
# the series of an edited commit.

tree=$BUILD/tree
record=$tree/.git/series

# tree_work: describe the work in build/tree that is not in the record, if there is any
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

# tag_series: set the tag series/NAME to the last commit of each series
tag_series() {
	kgit "$tree" for-each-ref --format='delete %(refname)' refs/tags/series/ | kgit "$tree" update-ref --stdin
	sed 1d "$record" | awk '{ sub(/\/.*/, "", $3); last[$3] = $1 } END { for (s in last) print "create refs/tags/series/" s, last[s] }' |
		kgit "$tree" update-ref --stdin
}
