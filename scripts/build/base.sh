#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Make build/base a clean git checkout of the base that patches/BASE names.
#
# usage: base.sh
#
# It uses the first of these sources that is available:
#   KERNEL_TREE=dir    your git tree; its HEAD is cloned, and the tree is not changed
#   BASE_TARBALL=file  linux-source-*.tar.xz with the checksum of patches/BASE
#   the cache          (HMM_P2P_CACHE, default ~/.cache/hmm-p2p)
#   Debian's linux-source package, from its mirror, then from snapshot.debian.org
#   git.kernel.org
set -euo pipefail
. "$(dirname "$0")/../common.sh"
arguments 0 0 '' "$@"

base=$BUILD/base
version=$(base_field version) commit=$(base_field commit) sha256=$(base_field sha256)
read -r package package_version <<<"$(base_field package)"
mkdir -p "$BUILD" "$CACHE"

# Two clones of this project may share the cache. One fills it, and the other one waits.
lock 8 "$CACHE/base.lock" base
scratch "$CACHE"

# import TARBALL: unpack it in the cache. The result appears there when it is complete.
import() {
	local sum
	step "base: checking and importing $1 (about a minute)"
	sum=$(sha256sum "$1" | cut -d ' ' -f 1)
	[ "$sum" = "$sha256" ] ||
		die "$1: its checksum is $sum, but patches/BASE has $sha256: remove the file, or name the right one"
	kgit "$tmp" init -q --bare import.git
	"$TOP/scripts/build/tar-to-git.py" "$1" "$version" |
		kgit "$tmp/import.git" fast-import --quiet
	[ "$(kgit "$tmp/import.git" rev-parse base)" = "$commit" ] ||
		die "the import of $1 is not commit $commit of patches/BASE"
	mv "$tmp/import.git" "$CACHE/$commit.git"
}

fetch() {
	local suite url tag
	need_space "$CACHE" 2
	# The snapshot has the version when the mirror has dropped it. The checksum in patches/BASE decides whether the package is right.
	for suite in $(base_field suites) snapshot; do
		"$TOP/scripts/build/debian-package.sh" --only "$tmp/package" "$suite" "$package=$package_version" || continue
		import "$tmp"/package/root/usr/src/linux-source-*.tar.xz
		return
	done
	read -r url tag <<<"$(base_field git)"
	step "base: fetching $tag from $url"
	rm -rf "$tmp/import.git"
	fetch_tag "$url" "$tag" "$tmp/import.git" ||
		die "cannot get the base from any source: is there a network? Without one, set BASE_TARBALL=file ($package $package_version) or KERNEL_TREE=dir (git tree of v$version)"
	kgit "$tmp/import.git" update-ref refs/heads/base "$tag^{commit}"
	mv "$tmp/import.git" "$CACHE/v$version.git"
}

# The repository, and its commit.
if [ -n "${KERNEL_TREE:-}" ]; then
	check_tree "$KERNEL_TREE"
	repo=$(cd "$KERNEL_TREE" && pwd)
	commit=$(git -C "$repo" rev-parse HEAD)
elif kgit "$base" rev-parse -q --verify "$commit^{commit}" >/dev/null 2>&1; then
	repo=$base
else
	if [ ! -d "$CACHE/$commit.git" ] && [ -n "${BASE_TARBALL:-}" ]; then
		[ -f "$BASE_TARBALL" ] || die "BASE_TARBALL: no file $BASE_TARBALL"
		need_space "$BUILD" 8
		import "$BASE_TARBALL"
	fi
	[ -d "$CACHE/$commit.git" ] || [ -d "$CACHE/v$version.git" ] || {
		need_space "$BUILD" 8
		fetch
	}
	repo=$CACHE/$commit.git
	[ -d "$repo" ] || repo=$CACHE/v$version.git
	commit=$(kgit "$repo" rev-parse base)
fi

if [ -d "$base/.git" ]; then
	[ -z "$(kgit "$base" status --porcelain --untracked-files=no)" ] ||
		die "build/base has edits, but it must stay the unpatched kernel: undo them (git -C build/base checkout -f)"
	if [ "$(kgit "$base" rev-parse HEAD)" != "$commit" ]; then
		step "base: checking out $commit in build/base"
		[ "$repo" = "$base" ] || kgit "$base" fetch -q "$repo" "$commit"
		kgit "$base" checkout -q --detach "$commit"
	fi
else
	step "base: checking out build/base"
	need_space "$BUILD" 8
	rm -rf "$tmp"
	scratch "$BUILD"
	clone "$repo" "$tmp/base" --no-tags
	kgit "$tmp/base" checkout -q --detach "$commit"
	kgit "$tmp/base" for-each-ref --format='%(refname)' refs/heads | xargs -r -n 1 git -C "$tmp/base" update-ref -d
	mv "$tmp/base" "$base"
fi
kgit "$base" tag -f base "$commit" >/dev/null
