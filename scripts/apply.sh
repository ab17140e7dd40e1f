#!/bin/bash
# Apply the series on a new branch of the user's own kernel tree.
set -euo pipefail
. "$(dirname "$0")/common.sh"

usage() {
	cat <<'END'
usage: KERNEL_TREE=dir [SERIES=name] [BRANCH=hmm-p2p] apply.sh

Applies all series, or the one SERIES names (2-hmm-p2p), with git am on a new
branch of your git tree, from its HEAD. The tree must be clean and of the base's
version. Nothing else of it changes; when a patch does not apply (exit 3) you are
back on the branch you were on, and the new one is gone.
END
}
no_arguments "$@"

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

patches=()
while IFS= read -r p; do
	[ -z "${SERIES:-}" ] || [ "${p%%/*}" = "$SERIES" ] || continue
	[ -f "$PATCHES/$p" ] || die "patches/series lists $p, which is not there"
	patches+=("$PATCHES/$p")
done < <(series_patches)
[ "${#patches[@]}" -gt 0 ] || die "SERIES=${SERIES:-}: no such series; there are: $(cut -d / -f 1 "$PATCHES/series" | uniq | xargs)"

log=$(mktemp)
was=$(git -C "$dir" symbolic-ref -q --short HEAD || git -C "$dir" rev-parse HEAD)
start=$(git -C "$dir" rev-parse HEAD)
undo() {
	trap '' INT TERM
	git -C "$dir" am --abort >/dev/null 2>&1 || true
	if [ "$was" = "$start" ]; then
		git -C "$dir" checkout -q --detach "$start"
	else
		git -C "$dir" checkout -q "$was"
	fi
	git -C "$dir" branch -q -D "$branch" 2>/dev/null || true
	rm -f "$log"
}
trap undo EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

git -C "$dir" checkout -q -b "$branch"
step "applying ${#patches[@]} patches on branch $branch of $dir"
git -C "$dir" am -q --no-3way --keep-non-patch --no-scissors --no-keep-cr "${patches[@]}" >"$log" 2>&1 </dev/null || {
	n=$(cat "$(git -C "$dir" rev-parse --path-format=absolute --git-path rebase-apply/next)" 2>/dev/null || echo 1)
	grep -v '^hint:' "$log" >&2 || true
	p=${patches[n - 1]}
	die -c "$EX_APPLY" "${p#"$PATCHES/"} does not apply to $dir, which is as it was before"
}
trap - EXIT
rm -f "$log"
step "done: ${#patches[@]} commits on branch $branch"
