#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Try each series on another kernel, together with the series that it needs.
#
# usage: refresh.sh BASE...
#        refresh.sh --page
#
# Prints one word per patch, and writes them to results/refresh/VERSION. --page writes
# these files to MAINTAINERS-notes/refresh.md, as one table. This page explains the words.
#
# BASE is a git tree (dir or dir@commit), a linux-source tarball, or a version: of a Debian
# package linux-source-VERSION (7.2, v7.2, or 7.3@trixie-backports for one suite), or a tag
# of kernel.org (7.4-rc1). patches/ and the git tree do not change.
set -euo pipefail
export LC_ALL=C.UTF-8
. "$(dirname "$0")/../common.sh"
arguments 0 99 --page "$@"
[ $# -gt 0 ] || die "say which kernel: make refresh BASE=7.2, BASE=file.tar.xz or BASE=dir@commit"

words=(clean offset merge already absent conflict)
# page: replace the table in refresh.md. A series that is a fix has a row for each patch.
page() {
	local page=$TOP/MAINTAINERS-notes/refresh.md versions series version word path
	mapfile -t versions < <(cd "$TOP/results/refresh" 2>/dev/null && printf '%s\n' * | sort -V)
	[ -n "${versions[*]}" ] || die "no results/refresh: run make refresh BASE=... first"
	cd "$TOP/results/refresh"
	{
		sed '/^<!-- table/q' "$page"
		echo "| patch |$(printf ' %s |' "${versions[@]}")"
		echo "|---|$(printf -- '---|%.0s' "${versions[@]}")"
		for series in $(series_names); do
			printf '| **%s** |' "$series"
			for version in "${versions[@]}"; do
				printf ' %s |' "$(for word in "${words[@]}"; do
					grep -c "^$word *$series/" "$version" | sed -n "s/[1-9].*/& $word/p"
				done | paste -sd , | sed 's/,/, /g')"
			done
			echo
			grep -q "^$series *|.*| fix *|" "$PATCHES/needs" || continue
			for path in $(series_patches | grep "^$series/"); do
				printf '| [%s](../patches/%s) |' "$(basename -s .patch "$path")" "$path"
				for version in "${versions[@]}"; do
					printf ' %s |' "$(sed -n "s,^\([a-z]*\) *$path.*,\1,p" "$version")"
				done
				echo
			done
		done
		sed -n '/^<!-- end of the table/,$p' "$page"
	} >"$tmp/page"
	cat "$tmp/page" >"$page"
}

[ -z "$opted" ] || {
	mkdir -p "$BUILD"
	scratch "$BUILD"
	page
	exit
}
version_like='^v?([0-9]+\.[0-9]+(\.[0-9]+|-rc[0-9]+)?)(@([a-z-]+))?$'
bases=()
for base; do
	base=$(expanded "$base")
	[ -f "$base" ] || [ -d "${base%@*}" ] || [[ $base =~ $version_like ]] || die "BASE=$base: neither a git tree, nor a tarball, nor a version"
	bases+=("$base")
done
mapfile -t patches < <(series_patches)
[ "${#patches[@]}" -gt 0 ] || die "patches/series lists nothing"
"$TOP/scripts/deps.sh"
"$TOP/scripts/build/base.sh"
"$TOP/scripts/patches/tree.sh"
old=$BUILD/tree
scratch "$BUILD"
work=$tmp/work
(cd "$PATCHES" && sed -n 's,^diff --git a/\(.*\) b/.*,\1,p' "${patches[@]}") | sort -u - <(echo Makefile) >"$tmp/files"

# Get the files that the patches touch, and no others.
from_git() { # DIR COMMIT
	local found
	git -C "$1" rev-parse -q --verify "$2^{commit}" >/dev/null 2>&1 || die "$1: no git tree, or no commit $2 in it"
	mapfile -t found < <(git -C "$1" ls-tree -r --full-tree --name-only "$2" | grep -xFf "$tmp/files")
	[ "${#found[@]}" -gt 0 ] || die "$1: $2 is no kernel"
	git -C "$1" archive --format=tar "$2" -- "${found[@]}" | tar -x -C "$work"
	# What the kernel has already, by the change or by the subject of a commit
	git -C "$1" log -p --no-merges --full-index --no-color --no-ext-diff -n 2000 "$2" -- "${found[@]}" >"$tmp/log"
	kgit "$old" patch-id --stable <"$tmp/log" | cut -d ' ' -f 1 >"$tmp/history"
	git -C "$1" log --no-merges -n 2000 --format=%s "$2" -- "${found[@]}" >>"$tmp/history"
}
from_tarball() { # FILE
	step "refresh: reading $1"
	sed 's,^,*/,' "$tmp/files" >"$tmp/patterns"
	attend tar -x -f "$1" -C "$work" --strip-components=1 --wildcards --no-wildcards-match-slash -T "$tmp/patterns" \
		2>"$tmp/tar.log" || true
	# Files that patches add are usually not in the tarball.
	! grep -v ': Not found in archive$\|: Exiting with failure status' "$tmp/tar.log" >"$tmp/errors" || die "$1: $(head -n 1 "$tmp/errors")"
	[ -f "$work/Makefile" ] || die "$1: no kernel: $(tail -n 1 "$tmp/tar.log")"
}
from_version() { # VERSION [SUITE...]
	local version=$1 suite url
	shift
	need_space "$tmp" 1
	for suite; do
		"$TOP/scripts/build/debian-package.sh" --only "$tmp/package" "$suite" "linux-source-$version" 2>"$tmp/package.log" || continue
		step "refresh: $(tr '\t' ' ' <"$tmp/package/packages") of $suite"
		from_tarball "$tmp"/package/root/usr/src/linux-source-*.tar.xz
		return
	done
	read -r url _ <<<"$(base_field git)"
	step "refresh: no Debian suite has it: fetching v$version from $url"
	fetch_tag "$url" "v$version" "$tmp/fetched.git" ||
		die "Linux $version is neither in Debian ($*) nor at $url, or they do not answer"
	from_git "$tmp/fetched.git" "v$version"
}

# apply_one PATCH: apply it in $work; sets state, and where for a conflict
apply_one() {
	local path=$PATCHES/$1 before files lacks
	where=''
	[ -z "${already[$1]:-}" ] || {
		state=already
		return
	}
	if kgit "$work" apply --check -v "$path" >"$tmp/apply" 2>&1; then
		state=clean
		! grep -q offset "$tmp/apply" || state=offset
		kgit "$work" "${am[@]}" --no-3way "$path" >"$tmp/am" 2>&1 </dev/null || die "$1: git am: $(grep -m 1 . "$tmp/am")"
		return
	fi
	before=$(kgit "$work" rev-parse HEAD)
	if kgit "$work" "${am[@]}" --3way "$path" >"$tmp/am" 2>&1 </dev/null; then
		state=merge
		[ "$(kgit "$work" rev-parse HEAD)" != "$before" ] || state=already
		return
	fi
	# Files that another patch adds are no code of the kernel. After a merge that failed, a file may be there that is in no commit.
	files=$(sed -n 's,^--- a/,,p' "$path" | grep -vxFf "$tmp/added") || true
	lacks=$(while read -r f; do kgit "$work" cat-file -e "HEAD:$f" 2>/dev/null || echo "$f"; done <<<"$files")
	state=absent where=$(xargs <<<"$lacks")
	[[ -n $files && $lacks = "$files" ]] || {
		state=conflict
		where=$({
			kgit "$work" diff --name-only --diff-filter=U
			sed -n 's/^error: patch failed: \(.*\):[0-9]*$/\1/p; s/^error: \(.*\): \(does not exist\|already exists\).*/\1/p' "$tmp/apply"
		} | sort -u | xargs)
	}
	kgit "$work" am --quit 2>/dev/null || true
	kgit "$work" reset -q --hard
	kgit "$work" clean -qfd
}

try() { # BASE
	local base=$1 version series p state where
	rm -rf "$work" "$tmp/package" "$tmp/fetched.git"
	# Three-way merges need the files that the patches were made for.
	clone "$old" "$work" --shared
	: >"$tmp/history"
	if [ -f "$base" ]; then
		from_tarball "$base"
	elif [ -d "${base%@*}" ]; then
		[[ $base == *@* ]] || base+=@HEAD
		from_git "${base%@*}" "${base##*@}"
	elif [[ $base =~ $version_like ]]; then
		# shellcheck disable=SC2046,SC2086 # words
		from_version "${BASH_REMATCH[1]}" ${BASH_REMATCH[4]:-$(base_field suites)}
	fi
	kgit "$work" add -A -f
	kgit "$work" commit -q -m base
	kgit "$work" tag start
	version=$(tree_version "$work")
	step "refresh: ${#patches[@]} patches, made for $(base_field version), on $version"

	# A later patch can change the lines of an earlier one, so they are reverted from the last one on.
	declare -A already=() count=()
	for ((i = ${#patches[@]} - 1; i >= 0; i--)); do
		p=${patches[i]}
		if grep -qxF -e "$(kgit "$work" patch-id --stable <"$PATCHES/$p" | cut -d ' ' -f 1)" \
			-e "$(sed -n 's/^Subject: \[PATCH[^]]*\] //p' "$PATCHES/$p")" "$tmp/history" ||
			kgit "$work" apply --reverse --check "$PATCHES/$p" 2>/dev/null; then
			already[$p]=yes
			kgit "$work" apply --reverse "$PATCHES/$p" 2>/dev/null || true
		fi
	done
	(cd "$PATCHES" && grep -h -A 1 '^--- /dev/null' "${patches[@]}") | sed -n 's,^+++ b/,,p' >"$tmp/added"

	: >"$tmp/table"
	for series in $(series_names); do
		kgit "$work" checkout -q -f --detach start
		for p in $(series_patches | grep -f <(with_needs "$series" | sed 's,.*,^&/,')); do
			apply_one "$p"
			[ "${p%%/*}" = "$series" ] || continue
			count[$state]=$((${count[$state]:-0} + 1))
			printf '%-9s %s%s\n' "$state" "$p" "${where:+: $where}" | tee -a "$tmp/table"
		done
	done
	for state in "${words[@]}"; do
		[ -z "${count[$state]:-}" ] || printf '%s %s, ' "${count[$state]}" "$state"
	done | tee -a "$tmp/table"
	echo "of ${#patches[@]} on $version" | tee -a "$tmp/table"
	mkdir -p "$TOP/results/refresh"
	mv "$tmp/table" "$TOP/results/refresh/$version"
	[ -z "${count[conflict]:-}" ] || conflicts=yes
}

am=(-c core.hooksPath=/dev/null am -q --keep-non-patch --no-scissors --no-keep-cr)
conflicts=
for base in "${bases[@]}"; do try "$base"; done
[ -z "$conflicts" ] || exit "$EX_APPLY"
