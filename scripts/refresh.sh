#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Try the series on another base.
set -euo pipefail
export LC_ALL=C.UTF-8
. "$(dirname "$0")/common.sh"

usage() {
	cat <<'END'
usage: refresh.sh BASE

Applies the patches in order to another kernel, and prints one word per patch:
  clean     applies exactly
  offset    applies at another line of its files
  merge     applies only by a three-way merge; review it and export it again
  there     the kernel seems to have it already (later patches can hide this)
  conflict  does not apply, with the list of files; it is left out, so patches that
            need it conflict, too
BASE is a git tree (dir or dir@commit), a linux-source tarball, or a version. A
version is a Debian package linux-source-VERSION (7.2, or 7.3@trixie-backports for
one suite) or a tag of kernel.org (7.4-rc1). patches/ and the git tree do not change.
The table is also written to results/refresh.

exit: 0 all patches apply, 3 there are conflicts.
END
}
needs_argument "$@"
base=$1
old=$BUILD/base
[ -d "$old/.git" ] || die "no build/base: run make base"
scratch "$BUILD"

mapfile -t patches < <(series_patches)
[ "${#patches[@]}" -gt 0 ] || die "patches/series lists nothing"
work=$tmp/work
mkdir "$work"
{
	echo Makefile
	(cd "$PATCHES" && sed -n 's,^diff --git a/\(.*\) b/.*,\1,p' "${patches[@]}")
} | sort -u >"$tmp/files"

# Get the files that the patches touch, and no others.
from_git() { # DIR COMMIT
	local found
	git -C "$1" rev-parse -q --verify "$2^{commit}" >/dev/null 2>&1 || die "$1: no git tree, or no commit $2 in it"
	mapfile -t found < <(git -C "$1" ls-tree -r --full-tree --name-only "$2" | grep -xFf "$tmp/files")
	[ "${#found[@]}" -gt 0 ] || die "$1: $2 is no kernel"
	git -C "$1" archive --format=tar "$2" -- "${found[@]}" | tar -x -C "$work"
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
		"$TOP/scripts/debian-package.sh" --only "$tmp/package" "$suite" "linux-source-$version" 2>"$tmp/package.log" || continue
		step "refresh: $(tr '\t' ' ' <"$tmp/package/packages") of $suite"
		from_tarball "$tmp"/package/root/usr/src/linux-source-*.tar.xz
		return
	done
	read -r url _ <<<"$(base_field git)"
	step "refresh: no Debian suite has it: fetching v$version from $url"
	kgit "$tmp" init -q --bare fetched.git
	{ timeout 60 git ls-remote -q --exit-code "$url" "refs/tags/v$version" >/dev/null 2>&1 &&
		git -C "$tmp/fetched.git" fetch -q --depth 1 "$url" "refs/tags/v$version:refs/tags/v$version"; } ||
		die "Linux $version is neither in Debian ($*) nor at $url, or they do not answer"
	from_git "$tmp/fetched.git" "v$version"
}
if [ -f "$base" ]; then
	from_tarball "$base"
elif [ -d "${base%@*}" ]; then
	commit=HEAD
	[[ $base != *@* ]] || commit=${base##*@}
	from_git "${base%@*}" "$commit"
elif [[ $base =~ ^([0-9]+\.[0-9]+(\.[0-9]+|-rc[0-9]+)?)(@([a-z-]+))?$ ]]; then
	# shellcheck disable=SC2046,SC2086 # words
	from_version "${BASH_REMATCH[1]}" ${BASH_REMATCH[4]:-$(base_field suites)}
else
	die "$base: neither a git tree, nor a tarball, nor a version"
fi

kgit "$work" init -q
# The files of the old base, for three-way merges.
kgit "$old" rev-parse --path-format=absolute --git-path objects >"$work/.git/objects/info/alternates"
[ ! -f "$old/.git/objects/info/alternates" ] || cat "$old/.git/objects/info/alternates" >>"$work/.git/objects/info/alternates"
kgit "$work" add -A -f
kgit "$work" commit -q -m base
version=$(tree_version "$work")

out=$TOP/results/refresh/$version
mkdir -p "$out"
step "refresh: ${#patches[@]} patches, made for $(base_field version), on $version"
declare -A count=()
am=(-c core.hooksPath=/dev/null am -q --keep-non-patch --no-scissors --no-keep-cr)
for p in "${patches[@]}"; do
	rc=0 where=
	before=$(kgit "$work" rev-parse HEAD)
	# Test this first, because some patches apply twice.
	if kgit "$work" apply --check --reverse "$PATCHES/$p" 2>/dev/null; then
		state='there'
	elif kgit "$work" apply --check -v "$PATCHES/$p" >"$tmp/apply" 2>&1; then
		state=clean
		! grep -q offset "$tmp/apply" || state=offset
		kgit "$work" "${am[@]}" --no-3way "$PATCHES/$p" >"$tmp/am" 2>&1 </dev/null || rc=$?
	else
		state=merge
		kgit "$work" "${am[@]}" --3way "$PATCHES/$p" >"$tmp/am" 2>&1 </dev/null || rc=$?
		if [ "$rc" -eq 0 ]; then
			[ "$(kgit "$work" rev-parse HEAD)" != "$before" ] || state='there'
		else
			where=$({
				kgit "$work" diff --name-only --diff-filter=U
				sed -n 's/^error: patch failed: \(.*\):[0-9]*$/\1/p; s/^error: \(.*\): \(does not exist\|already exists\).*/\1/p' "$tmp/apply"
			} | sort -u | xargs)
			state=conflict rc=0
			kgit "$work" am --quit 2>/dev/null || true
			kgit "$work" reset -q --hard
			kgit "$work" clean -qfd
		fi
	fi
	[ "$rc" -eq 0 ] || die "$p: git am: $(grep -m 1 . "$tmp/am")"
	count[$state]=$((${count[$state]:-0} + 1))
	printf '%-9s %s%s\n' "$state" "$p" "${where:+: $where}" | tee -a "$tmp/table"
done
{
	for state in clean offset merge 'there' conflict; do
		[ -z "${count[$state]:-}" ] || printf '%s %s, ' "${count[$state]}" "$state"
	done
	echo "of ${#patches[@]} on $version"
} | tee -a "$tmp/table"
mv "$tmp/table" "$out/table"
[ -z "${count[conflict]:-}" ] || exit "$EX_APPLY"
