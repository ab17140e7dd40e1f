#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Make build/tree: the base with all series applied.
#
# usage: tree.sh
#
# The git tree has build/base, and one commit for each patch that patches/series lists,
# on the branch hmm-p2p. A tag series/NAME marks the end of each series. Only patches
# that changed are applied again. Work in build/tree that is not in patches/ is never
# discarded. If a patch does not apply, the tree has the patches before it.
set -euo pipefail
. "$(dirname "$0")/../common.sh"
. "$(dirname "$0")/series.sh"
arguments 0 0 '' "$@"

base=$BUILD/base
[ -d "$base/.git" ] || die "no build/base: run make tree, which first runs scripts/build/base.sh"
[ -f "$PATCHES/series" ] || die "no $PATCHES/series"
base_commit=$(kgit "$base" rev-parse HEAD)

lock 7 "$BUILD/tree.lock" tree
scratch "$BUILD"
keep=
cleanup() {
	[ -z "$keep" ] || {
		kgit "$tree" am --quit 2>/dev/null || true
		kgit "$tree" reset -q --hard "$keep"
	}
	end_scratch
}
trap cleanup EXIT

if [ ! -d "$tree/.git" ]; then
	step "tree: checking out build/tree"
	need_space "$BUILD" 5
	clone "$base" "$tmp/tree"
	kgit "$tmp/tree" config notes.rewriteRef refs/notes/series
	kgit "$tmp/tree" config notes.rewriteMode overwrite
	kgit "$tmp/tree" checkout -q -B hmm-p2p "$base_commit"
	kgit "$tmp/tree" tag -f base "$base_commit" >/dev/null
	printf '%s\n' "$base_commit" >"$tmp/tree/.git/series"
	mv "$tmp/tree" "$tree"
fi

while IFS= read -r p; do
	[ -f "$PATCHES/$p" ] || die "patches/series lists $p, which is not there"
done < <(series_patches)
mapfile -t wanted < <(series_patches | (cd "$PATCHES" && xargs -r -d '\n' sha256sum))
mapfile -t commits < <(cut -d ' ' -f 1 "$record")
mapfile -t applied < <(sed 1d "$record" | cut -d ' ' -f 2-)

# Keep the patches up to the first one that differs.
same=0
if [ "${commits[0]}" = "$base_commit" ]; then
	while [ "$same" -lt "${#applied[@]}" ] && [ "${applied[same]}" = "${wanted[same]:-}" ]; do
		same=$((same + 1))
	done
	start=${commits[same]}
else
	kgit "$tree" fetch -q "$base" "$base_commit"
	start=$base_commit
fi
last=${commits[-1]}

work=$(tree_work)
if [ "$start" = "$last" ] && [ "$same" -eq "${#wanted[@]}" ]; then
	if [ -n "$work" ]; then
		step "tree: $same patches, and work that is not in patches/, kept ($work): make export writes it there"
	else
		step "tree: up to date, $same patches"
	fi
	exit 0
fi
[ -z "$work" ] ||
	die "build/tree has work that is not in patches/ ($work) and would be lost: make export, or drop it with git -C build/tree reset --hard ${last:0:12}"

# Time stamps decide what the next build compiles. Remember the files that are removed now and may come back unchanged.
mkdir "$tmp/old"
kgit "$tree" diff --name-only -z --no-renames --diff-filter=d "$start" HEAD |
	(cd "$tree" && xargs -0r cp -p --parents -t "$tmp/old")

keep=$start
kgit "$tree" checkout -q -B hmm-p2p
kgit "$tree" reset -q --hard "$start"
kgit "$tree" tag -f base "$base_commit" >/dev/null
sed -i "1s/.*/$base_commit/; $((same + 1))q" "$record"

rc=0
: >"$tmp/new"
todo=("${wanted[@]:same}")
if [ "${#todo[@]}" -gt 0 ]; then
	step "tree: $same of ${#wanted[@]} patches in place, applying ${#todo[@]}"
	# No fuzz and no three-way merge: a patch for this base has to apply with plain git am.
	kgit "$tree" am -q --no-3way --keep-non-patch --no-scissors --no-keep-cr --committer-date-is-author-date \
		"${todo[@]/#*  /"$PATCHES/"}" >"$tmp/am.log" 2>&1 </dev/null || rc=$?
	mapfile -t new < <(kgit "$tree" rev-list --reverse "$start..HEAD")
	for i in "${!new[@]}"; do
		printf '%s %s\n' "${new[i]}" "${todo[i]}" >>"$tmp/new"
		path=${todo[i]#*  }
		kgit "$tree" notes --ref=series add -f -m "${path%%/*}" "${new[i]}" 2>&1 | { grep -v '^Overwriting' || true; }
	done
	[ "$rc" -eq 0 ] || {
		kgit "$tree" am --quit
		kgit "$tree" reset -q --hard
	}
fi
cat "$tmp/new" >>"$record"
keep=
tag_series

(cd "$tmp/old" && find . -type f -print0) | while IFS= read -r -d '' f; do
	! cmp -s "$tmp/old/$f" "$tree/$f" || touch -r "$tmp/old/$f" "$tree/$f"
done

[ "$rc" -eq 0 ] || {
	grep -v '^hint:' "$tmp/am.log" >&2 || true
	patch=${todo[${#new[@]}]#*  }
	die -c "$EX_APPLY" "$patch does not apply; build/tree has the $((same + ${#new[@]})) patches before it"
}
step "tree: ${#wanted[@]} patches applied"
