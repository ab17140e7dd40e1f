#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Write base..HEAD of build/tree to patches/SERIES/NNNN-subject.patch, and list the patches in patches/series.
#
# usage: export.sh
#
# A git note on each commit names its series. The note survives rebase and amend. A new
# commit joins the series of the commit before it, unless you name another series:
#   git -C build/tree notes --ref=series add -f -m SERIES COMMIT
# The series have the order of the commits. The commits of one series must not have
# one of another series between them.
# Cover letters (0000-cover-letter.patch) do not change.
set -euo pipefail
export LC_ALL=C
. "$(dirname "$0")/../common.sh"
. "$(dirname "$0")/series.sh"
arguments 0 0 '' "$@"

[ -d "$tree/.git" ] || die "no build/tree: run make tree"
[ -z "$(kgit "$tree" status --porcelain)" ] || die "build/tree has changes that are not committed: commit them (--amend, --fixup), or git clean"
for d in rebase-merge rebase-apply; do
	[ ! -e "$tree/.git/$d" ] || die "build/tree is in the middle of a rebase or am: finish it"
done
[ -z "$(kgit "$tree" rev-list --merges base..HEAD)" ] || die "build/tree has merges: a series is a line of commits"
kgit "$tree" merge-base --is-ancestor base HEAD || die "build/tree is not on top of its base"

scratch "$PATCHES"

kgit "$tree" rev-parse base >"$tmp/record"
: >"$tmp/list"
series='' n=0
for commit in $(kgit "$tree" rev-list --reverse base..HEAD); do
	s=$(kgit "$tree" notes --ref=series show "$commit" 2>/dev/null || echo "$series")
	[ -n "$s" ] || s=$(series_names | sed '1!d')
	{ [ -n "$s" ] && [ -d "$PATCHES/$s" ]; } || die "commit ${commit:0:12} belongs to series '$s', but there is no patches/$s"
	if [ "$s" != "$series" ]; then
		! grep -q "^$s/" "$tmp/list" ||
			die "commit ${commit:0:12} of series $s comes after one of $series, but $s began before it: reorder (git rebase -i), or give it another note, see --help"
		series=$s n=0
	fi
	n=$((n + 1))
	mkdir -p "$tmp/$s"
	# These options make the output independent of git's version and configuration, and of the rest of the repository.
	file=$(kgit "$tree" -c core.abbrev=12 -c diff.algorithm=myers -c format.pretty= format-patch -1 --start-number "$n" -o "$tmp/$s" \
		--no-numbered --zero-commit --signature=2.39 --abbrev=12 --subject-prefix=PATCH --suffix=.patch \
		--filename-max-length=64 --no-thread --no-attach --no-base --no-notes --no-cover-letter --no-ext-diff \
		--no-textconv --no-color --no-relative "$commit")
	path=$s/${file##*/}
	printf '%s\n' "$path" >>"$tmp/list"
	printf '%s %s  %s\n' "$commit" "$(sha256sum <"$file" | cut -d ' ' -f 1)" "$path" >>"$tmp/record"
	kgit "$tree" notes --ref=series add -f -m "$s" "$commit" 2>&1 | { grep -v '^Overwriting' || true; }
done

[ -s "$tmp/list" ] || [ ! -s "$PATCHES/series" ] ||
	die "build/tree has no commits, but patches/ has patches: run make tree first, or remove them yourself"

# The patches that are in patches/ now, without cover letters.
(cd "$PATCHES" && find . -mindepth 2 -maxdepth 2 -name '[0-9]*.patch' ! -path './.*/*' ! -name '0000-*' | sed 's,^\./,,' | sort) >"$tmp/present"

# A file that will be overwritten or removed must not be lost: build/tree was made from it, or it is the same as the new one,
# or it is committed here.
while IFS= read -r p; do
	cmp -s "$tmp/$p" "$PATCHES/$p" || grep -qF " $(sha256sum <"$PATCHES/$p" | cut -d ' ' -f 1)  $p" "$record" ||
		{ git -C "$PATCHES" ls-files --error-unmatch "$p" && git -C "$PATCHES" diff --quiet HEAD -- "$p"; } >/dev/null 2>&1 ||
		die "patches/$p is neither committed nor the file that build/tree was made from: commit it, or run make tree first"
done <"$tmp/present"

# Write only files that differ, and remove patches that are no longer exported.
while IFS= read -r p; do
	cmp -s "$tmp/$p" "$PATCHES/$p" || {
		mv -f "$tmp/$p" "$PATCHES/$p"
		step "export: wrote $p"
	}
done <"$tmp/list"
while IFS= read -r p; do
	rm "$PATCHES/$p"
	step "export: removed $p"
done < <(grep -vxFf "$tmp/list" "$tmp/present")
cmp -s "$tmp/list" "$PATCHES/series" || cp "$tmp/list" "$PATCHES/series"
mv "$tmp/record" "$record"
tag_series
step "export: $(wc -l <"$PATCHES/series") patches"
