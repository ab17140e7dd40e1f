#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Write the mails with which a person submits the series. Sends nothing, and does not change your tree.
#
# usage: SUBMITTER="Name <mail>" KERNEL_TREE=dir [SERIES=name] [BRANCH=name] [REVISION=n] mbox.sh
#
# Writes results/mail/SERIES.mbox for each series, or only for SERIES, from BRANCH of
# your git tree (default: the branch that is checked out). The mails of a series form
# one thread. They have a cover letter, From, To and Cc by get_maintainer, base-commit,
# the patch-ids of the series before it, and a change-id. REVISION=2 marks them as v2.
# The script refuses, unless
#
# - SUBMITTER has signed off all patches, and each patch names its author, as after
#   `make apply` and
#     git rebase -x 'git commit -q --amend --no-edit --reset-author --signoff' BASE
# - code and messages of the patches are those of patches/, but for tags such as
#   Reviewed-by, and `make check` has passed on them;
# - the first patch is based on a commit in a tag v* or in a remote branch.
#
# MAINTAINERS-notes/sending.md explains each step.
set -euo pipefail
export LC_ALL=C.UTF-8
. "$(dirname "$0")/../common.sh"
arguments 0 0 '' "$@"

submitter=${SUBMITTER:-} dir=${KERNEL_TREE:-} revision=${REVISION:-1} out=${MAILS:-$TOP/results/mail}
[ -n "$submitter" ] || die "say who submits: make mbox SUBMITTER=\"Name <mail>\" KERNEL_TREE=dir"
[[ $submitter =~ ^([^\<\>\"]*[^\<\>\" ])\ \<([^\<\>@\ ]+@[^\<\>@\ ]+\.[^\<\>@\ ]+)\>$ ]] ||
	die "SUBMITTER=$submitter: not of the form \"Name <mail>\""
submitter_name=${BASH_REMATCH[1]} submitter_mail=${BASH_REMATCH[2]}
[[ $revision =~ ^[1-9][0-9]*$ ]] || die "REVISION=$revision: not a number"
[ -n "$dir" ] || die "say where the signed patches are: make mbox KERNEL_TREE=dir"
check_tree "$dir"
dir=$(cd "$dir" && pwd)
tip=$(git -C "$dir" rev-parse -q --verify "${BRANCH:-HEAD}^{commit}") || die "$dir: has no branch $BRANCH"

mkdir -p "$BUILD"
scratch "$BUILD"

command -v perl >/dev/null || die "no perl: get_maintainer.pl needs it"

work=$tmp/tree
git clone -q --shared --no-checkout --template= "$dir" "$work"

# changes: the lines that a diff on the standard input adds and removes. If make apply merged a patch, its context is not that of
# the file in patches/.
changes() { sed -n '/^diff --git /,/^-- $/ { /^-- $/d; /^[-+]/p; /^[a-z]* \(file \)\?mode/p; }' | sha256sum; }
# message: subject and text of a mail on the standard input
message() {
	kgit "$work" mailinfo -b "$tmp/body" /dev/null | sed -n 's/^Subject: //p'
	echo
	cat "$tmp/body"
}
# untagged: a message without its tags, which the submitter may add
untagged() { sed -E '/^([A-Z][a-z]+-(by|off-by|developed-by)|Cc|Closes|Fixes|Link): /d' | kgit "$work" stripspace; }

# Which patch is each commit that nobody else has?
mapfile -t all < <(series_patches)
declare -A path_of=()
for p in "${all[@]}"; do
	[ -f "$PATCHES/$p" ] || die "patches/series lists $p, which is not there"
	path_of[$(changes <"$PATCHES/$p")]=$p
done
mapfile -t commits < <(git -C "$dir" rev-list --reverse -n $((${#all[@]} + 1)) "$tip" --not --tags='v[0-9]*' --remotes)
[ "${#commits[@]}" -gt 0 ] || die -c "$EX_FAIL" "${BRANCH:-what is checked out} has no patches, all of it is in a tag v* or a remote branch: make apply first"
paths=()
declare -A first=() last=()
for commit in "${commits[@]}"; do
	what="${commit:0:12} (\"$(kgit "$work" log -1 --format=%s "$commit")\")"
	p=${path_of[$(kgit "$work" diff-tree -p -M --root "$commit" | changes)]:-}
	[ -n "$p" ] || die -c "$EX_FAIL" "$what is in no tag v* and no remote branch, and its code is that of no patch in patches/: only what was tested may be mailed"
	cmp -s <(message <"$PATCHES/$p" | untagged) <(kgit "$work" log -1 --format=%B "$commit" | untagged) ||
		die -c "$EX_FAIL" "$what has another message than $p: edit it in build/tree, then make export and make check CHECKS=fast"
	series=${p%%/*}
	paths+=("$p") first[$series]=${first[$series]:-$commit} last[$series]=$commit
done
base=$(kgit "$work" rev-parse "${commits[0]}^")
version=$(tree_version "$work" "$base")
version_does "$version" || die "${base:0:12} is Linux ${version:-unknown}, but the series need $(base_release) or a stable release of it"

mapfile -t on_branch < <(printf '%s\n' "${paths[@]}" | cut -d / -f 1 | uniq)
diff <(printf '%s\n' "${paths[@]}") <(printf '%s\n' "${all[@]}" | grep -f <(printf '^%s/\n' "${on_branch[@]}")) >"$tmp/diff" ||
	die -c "$EX_FAIL" "the branch and patches/series differ in number or order: $(grep -m 1 '^[<>]' "$tmp/diff")"
[ -z "${SERIES:-}" ] || [[ " ${on_branch[*]} " == *" $SERIES "* ]] || die "SERIES=$SERIES: the branch has only ${on_branch[*]}"

# Are all patches signed?
unsigned=()
for i in "${!commits[@]}"; do
	[ -z "${SERIES:-}" ] || [ "${paths[i]%%/*}" = "$SERIES" ] || continue
	author=$(kgit "$work" log -1 --format='%an <%ae>' "${commits[i]}")
	[ "$author" != 'hmm-p2p <hmm-p2p@localhost>' ] || {
		unsigned+=("${paths[i]}: nobody's, the author is $author")
		continue
	}
	kgit "$work" log -1 --format='%(trailers:key=Signed-off-by,valueonly)' "${commits[i]}" | sed '/^$/d' >"$tmp/signers"
	if [ "$(tail -n 1 "$tmp/signers")" != "$submitter" ]; then
		unsigned+=("${paths[i]}: not signed off by $submitter (as the last one)")
	elif ! grep -qxF "$author" "$tmp/signers"; then
		unsigned+=("${paths[i]}: not signed off by its author, $author")
	fi
done
[ "${#unsigned[@]}" -eq 0 ] || die -c "$EX_FAIL" "${#unsigned[@]} patches are not signed, the first: ${unsigned[0]}: see --help"

# Have all checks passed, on the patches as they are now?
tree=
declare -A ids=()
for check in "$TOP"/scripts/checks/*/check; do
	check=$(basename "$(dirname "$check")")
	rc=
	[ ! -f "$BUILD/check/verdicts/$check" ] || read -r rc of tree_of <"$BUILD/check/verdicts/$check"
	[ -n "$rc" ] || die -c "$EX_FAIL" "no verdict of the check $check: run make check"
	kind=$(verdict_kind "$check")
	[ "$of $tree_of" = "${ids[$kind]:=$("$kind")} ${tree:=$tree_of}" ] || die -c "$EX_FAIL" "the verdict of the check $check is on other patches: run make check"
	[ "$rc" -eq 0 ] || [ "$rc" -eq 250 ] || die -c "$EX_FAIL" "the check $check failed: run make check CHECKS=$check"
done

# The cover letters are from SUBMITTER.
export GIT_COMMITTER_NAME=$submitter_name GIT_COMMITTER_EMAIL=$submitter_mail GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
# The files that get_maintainer needs
kgit "$work" sparse-checkout set --no-cone '/*' '!/*/' /scripts/ /LICENSES/ /include/ /Documentation/process/ '/*/Kconfig' '/*/Makefile'
mkdir -p "$out"
[ -n "${SERIES:-}" ] || rm -f "$out"/*.mbox
for series in ${SERIES:-"${on_branch[@]}"}; do
	range=${first[$series]}^..$series
	step "mbox: $series"
	cover=$PATCHES/$series/0000-cover-letter.patch
	[ -f "$cover" ] || die -c "$EX_FAIL" "$series: no cover letter"
	kgit "$work" checkout -q -B "$series" "${last[$series]}"
	mapfile -t mails < <(kgit "$work" format-patch -o "$tmp/$series" "$range")
	# One call for all patches, because a series goes to everybody as a whole. The role in the output tells people from lists.
	(cd "$work" && perl scripts/get_maintainer.pl --nogit --nogit-fallback --nogit-chief-penguins --norolestats --roles "${mails[@]}") \
		>"$tmp/recipients" 2>"$tmp/log" || die -c "$EX_FAIL" "$series: get_maintainer does not know for whom: $(tail -n 1 "$tmp/log")"
	mapfile -t recipients < <(sed -E '
		s/^([^@]*@[^ ]*) \((open|moderated|subscriber) list.*/--cc=\1/; t
		s/^([^@]*@[^ ]*) \(.*/--to=\1/' "$tmp/recipients")
	# The change-id connects the revisions of a series. It is made from the name of the series only.
	slug=device-private-${series#*-}
	git -C "$work" config "branch.$series.description" \
		"$(message <"$cover")"$'\n\n'"change-id: 20261120-$slug-$(printf %s "$slug" | sha256sum | cut -c -12)"
	options=(--reroll-count="$revision")
	[ "$revision" -gt 1 ] || options=()
	! grep -q '^Subject: \[RFC PATCH ' "$cover" || options+=(--rfc)
	# --base also names the patches between it and the series: the prerequisites.
	git -C "$work" format-patch -q --stdout --cover-letter --cover-from-description=subject --thread=shallow --from --base="$base" \
		"${options[@]}" "${recipients[@]}" "$range" >"$tmp/raw" || die -c "$EX_FAIL" "$series: git format-patch failed"
	# It encodes neither the names of recipients nor that in a cover letter.
	perl -MEncode -pe '$head = /^From [0-9a-f]{40} / || $head && /./;
		s/^((?:From|To|Cc): | +)"?([^"<]*[^"<\0-\x7f][^"<]*)"? </$1 . encode("MIME-Q", decode("UTF-8", $2)) . " <"/e if $head' \
		"$tmp/raw" >"$tmp/mbox"
	! grep '^From ' "$tmp/mbox" | grep -vE '^From [0-9a-f]{40} Mon Sep 17 00:00:00 2001$' >"$tmp/log" ||
		die -c "$EX_FAIL" "$series: a line begins with \"From \", which an mbox has between mails: $(head -n 1 "$tmp/log")"
	mv "$tmp/mbox" "$out/$series.mbox"
	echo "${out#"$TOP/"}/$series.mbox: $(grep -c '^From ' "$out/$series.mbox") mails"
done
