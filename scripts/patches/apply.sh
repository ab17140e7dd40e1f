#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Apply the series on a new branch of the user's own kernel tree.
#
# usage: KERNEL_TREE=dir [SERIES="name ..."] [BRANCH=hmm-p2p] apply.sh
#
# Applies all series, or only SERIES and the series that it needs (patches/needs),
# with git am to a new branch of your git tree. The branch starts at HEAD. The tree
# must be clean. It must be the release of the base (patches/BASE) or any stable
# release of it: if the base is 7.3.4, then 7.3, 7.3.1 and so on. All series together
# need the base or a later release; each cover letter names the release of its series.
#
# git am runs in a temporary worktree. At the end the new branch is checked out in
# your tree, in one step that an interrupt does not stop. Nothing else changes there, and
# none of your git hooks runs. The commits are signed if your git configuration says so.
# After kill -9 the worktree may remain: "git worktree list" shows it, and
# "git worktree remove --force PATH" removes it.
set -euo pipefail
. "$(dirname "$0")/../common.sh"
arguments 0 0 '' "$@"

dir=${KERNEL_TREE:-}
branch=${BRANCH:-hmm-p2p}
[ -n "$dir" ] || die "say where: make apply KERNEL_TREE=dir"
check_tree "$dir"
dir=$(cd "$dir" && pwd)
git check-ref-format --branch "$branch" >/dev/null 2>&1 || die "BRANCH=$branch: not a name for a branch"
! git -C "$dir" rev-parse -q --verify "refs/heads/$branch" >/dev/null ||
	die "$dir: has a branch $branch already: remove it (git branch -D $branch) or choose another with BRANCH="
git -C "$dir" var GIT_COMMITTER_IDENT >/dev/null 2>&1 ||
	die "$dir: git does not know who you are: set user.name and user.email"

names=$(series_names | xargs)
for s in ${SERIES:-}; do
	[[ " $names " == *" $s "* ]] || die "SERIES=$SERIES: no series $s; there are: $names"
done
[ -z "${SERIES:-}" ] || names=$(with_needs "$SERIES" | xargs)
patches=() all=()
while IFS= read -r p; do
	[ -f "$PATCHES/$p" ] || die "patches/series lists $p, which is not there"
	all+=("$PATCHES/$p")
	[[ " $names " != *" ${p%%/*} "* ]] || patches+=("$PATCHES/$p")
done < <(series_patches)
[ "${#patches[@]}" -gt 0 ] || die "patches/series lists nothing"

# undisturbed ARG...: git in a tree of the user, without hooks and without background processes. It runs in a session of its
# own, because an interrupt could leave a lock file behind.
undisturbed() {
	setsid git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c maintenance.auto=false -C "$@" </dev/null &
	wait "$!"
}
# die_unchanged CODE MESSAGE: say why git failed, and that the tree is unchanged
die_unchanged() {
	grep -v '^hint:' "$tmp/log" | sed '/^Patch failed at /,$d' >&2
	die -c "$1" "$2; $dir is as it was before"
}

scratch "${TMPDIR:-/tmp}"
worktree=$tmp/hmm-p2p-apply
# shellcheck disable=SC2317 # called by the trap
cleanup() {
	trap '' HUP INT TERM
	[ -z "$(jobs -pr)" ] || step "interrupted: waiting for git to end"
	wait
	undisturbed "$dir" worktree remove --force "$worktree" 2>/dev/null || true
	end_scratch
}
trap cleanup EXIT

start=$(git -C "$dir" rev-parse HEAD)
step "applying ${#patches[@]} patches on branch $branch of $dir: $names"
# No files are checked out. git am takes those that it needs from the index.
{
	undisturbed "$dir" worktree add -q --detach --no-checkout "$worktree" "$start" && undisturbed "$worktree" read-tree HEAD
} >"$tmp/log" 2>&1 || die_unchanged "$EX_USAGE" "git cannot make a temporary worktree"
merge=--no-3way
[ "${#patches[@]}" -eq "${#all[@]}" ] || {
	# The context of a patch may have changes of a series that is left out. A merge needs the files that the patches were made for.
	# They become objects of the tree when all patches are applied. It also needs the present files in the worktree.
	undisturbed "$worktree" apply --cached "${all[@]}" 2>/dev/null || true
	undisturbed "$worktree" read-tree HEAD
	mapfile -d '' files < <(git -C "$worktree" apply --numstat -z "${patches[@]}" | cut -z -f 3)
	undisturbed "$worktree" checkout-index -q -u -- "${files[@]}" 2>/dev/null || true
	merge=--3way
}
# LC_ALL: die_unchanged looks for English messages.
LC_ALL=C undisturbed "$worktree" am -q $merge --keep-non-patch --no-scissors --no-keep-cr "${patches[@]}" >"$tmp/log" 2>&1 || {
	n=$(cat "$(git -C "$worktree" rev-parse --git-path rebase-apply/next)" 2>/dev/null || echo 1)
	p=${patches[n - 1]}
	# Even if the patch applies, the commit can fail: the key does not sign, the disk is full.
	undisturbed "$worktree" read-tree HEAD
	! undisturbed "$worktree" apply --cached --check "$p" 2>/dev/null ||
		die_unchanged "$EX_USAGE" "git cannot commit ${p#"$PATCHES/"}, which does apply"
	die_unchanged "$EX_APPLY" "${p#"$PATCHES/"} does not apply"
}
commit=$(git -C "$worktree" rev-parse HEAD)

# The user may have worked in the tree meanwhile.
check_tree "$dir"
[ "$(git -C "$dir" rev-parse HEAD)" = "$start" ] || die "$dir: is on another commit than at the beginning: run this again"
git -C "$dir" diff --name-only --no-renames --diff-filter=A -z "$start" "$commit" >"$tmp/added"
while IFS= read -r -d '' f; do
	[ ! -e "$dir/$f" ] || die "$dir: has a file $f that git does not track and that the series add: move it away first"
done <"$tmp/added"

trap '' HUP INT TERM
undisturbed "$dir" checkout -q --no-track -b "$branch" "$commit" 2>"$tmp/log" || {
	# If the disk is full, only some files were written.
	(cd "$dir" && xargs -0 rm -f) <"$tmp/added"
	undisturbed "$dir" reset -q --hard 2>/dev/null ||
		die "$dir: git can write neither branch $branch nor what was there before ($(tail -n 1 "$tmp/log")): fix that, then git reset --hard"
	die_unchanged "$EX_USAGE" "git cannot check out branch $branch"
}
step "done: ${#patches[@]} commits on branch $branch"
