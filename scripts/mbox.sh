#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Write the mails with which a person submits the series. Sends nothing.
set -euo pipefail
export LC_ALL=C.UTF-8
. "$(dirname "$0")/common.sh"

usage() {
	cat <<'END'
usage: SUBMITTER="Name <mail>" KERNEL_TREE=dir [SERIES=name] [BRANCH=name] [REVISION=n] mbox.sh

Writes results/mail/SERIES.mbox for each series, or only for SERIES, from BRANCH of
your git tree (default: the branch that is checked out). The mails of a series form
one thread. They have a cover letter, From, To and Cc by get_maintainer, base-commit,
the patch-ids of the series before it, and a change-id. REVISION=2 marks them as v2.
Nothing is sent, and your tree is not changed. The script refuses (exit 1), unless

- SUBMITTER has signed off all patches, and each patch names its author, as after
  `make apply` and
    git rebase -x 'git commit -q --amend --no-edit --reset-author --signoff' BASE
- the code of the patches is that of patches/, `make check` has passed on it, and
  the form of the mails is right;
- the first patch is based on a commit in a tag v* or in a remote branch.

MAINTAINERS-notes/sending.md explains each step.
END
}
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

# The packages of scripts/checks/packages that are needed for the mails.
grep -E '# .*\bmail\b' "$TOP/scripts/checks/packages" >"$tmp/packages"
"$TOP/scripts/deps.sh" "$tmp/packages"
b4=$("$TOP/scripts/b4.sh")

# A temporary clone.
work=$tmp/tree
git clone -q --shared --no-checkout --template= "$dir" "$work"

# mail_message FILE: subject, empty line, body
mail_message() {
	kgit "$work" mailinfo -b "$tmp/body" /dev/null <"$1" | sed -n 's/^Subject: //p'
	echo
	cat "$tmp/body"
}

# change_ids: git patch-id of the patches or the log on the standard input, without context. If make apply merged a patch, its
# context is not that of the file in patches/.
change_ids() {
	awk '
		/^@@ -[0-9]/ && !before && !after {
			split($2, old, ","); split($3, new, ",")
			before = 2 in old ? old[2] : 1; after = 2 in new ? new[2] : 1
			lines = ""; minus = plus = 0
			next
		}
		before || after {
			sign = substr($0, 1, 1)
			if (sign != "+" && sign != "\\") before--
			if (sign != "-" && sign != "\\") after--
			if (sign == "-") minus++
			if (sign == "+") plus++
			if (sign == "-" || sign == "+") lines = lines $0 "\n"
			if (!before && !after) printf "@@ -1,%d +1,%d @@\n%s", minus, plus, lines
			next
		}
		{ print }' | kgit "$work" patch-id --stable
}

# Find the commits that are patches, from the tip down to the first commit that is none. A commit is a patch by its code, or at
# least by its subject.
mapfile -t all < <(series_patches)
declare -A path_of=() like=()
for p in "${all[@]}"; do
	[ -f "$PATCHES/$p" ] || die "patches/series lists $p, which is not there"
	id=$(change_ids <"$PATCHES/$p" | cut -d ' ' -f 1)
	path_of[$id]=$p
	like[$(mail_message "$PATCHES/$p" | sed -n 1p)]=$p
done
commits=() paths=()
base=$tip
while read -r id commit; do
	[ "$commit" = "$base" ] || break
	p=${path_of[$id]:-}
	if [ -z "$p" ]; then
		subject=$(kgit "$work" log -1 --format=%s "$commit")
		[ -z "${like[$subject]:-}" ] ||
			die -c "$EX_FAIL" "${commit:0:12} (\"$subject\") is not what is in ${like[$subject]}: only what was tested may be mailed (make export, make check)"
		break
	fi
	commits=("$commit" "${commits[@]}") paths=("$p" "${paths[@]}")
	base=$(kgit "$work" rev-parse -q --verify "$commit^") || die "$dir: there is no commit before the patches"
done < <(kgit "$work" -c log.showRoot=false log -p --full-index --no-color --no-ext-diff --no-textconv -n $((${#all[@]} + 1)) "$tip" |
	change_ids)
subject=$(kgit "$work" log -1 --format=%s "$base")
[ "${#commits[@]}" -gt 0 ] || die -c "$EX_FAIL" "${base:0:12} (\"$subject\"), at the end of ${BRANCH:-what is checked out}, is no patch of patches/: make apply first"
version=$(tree_version "$work" "$base")
version_does "$version" || die "${base:0:12} is Linux ${version:-unknown}, the series need $(base_release) or a stable release of it"
[ -n "$(git -C "$dir" for-each-ref --count=1 --contains "$base" 'refs/tags/v[0-9]*' refs/remotes)" ] ||
	die -c "$EX_FAIL" "${base:0:12} (\"$subject\"), on which the patches are, is in no tag v* and no remote branch: nobody else has it"

mapfile -t on_branch < <(printf '%s\n' "${paths[@]}" | cut -d / -f 1 | uniq)
diff <(printf '%s\n' "${paths[@]}") <(printf '%s\n' "${all[@]}" | grep -E "^($(
	IFS='|'
	echo "${on_branch[*]}"
))/") >"$tmp/diff" || die -c "$EX_FAIL" "the branch and patches/series differ in number or order: $(grep -m 1 '^[<>]' "$tmp/diff")"
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

# The files that checkpatch and get_maintainer need.
kgit "$work" sparse-checkout set --no-cone '/*' '!/*/' /scripts/ /LICENSES/ /include/ /Documentation/process/ '/*/Kconfig' '/*/Makefile'
kgit "$work" checkout -q --detach "$tip"

# Repeat the checks of messages, because the messages of the mails may differ from those in patches/.
mkdir "$tmp/patches"
n=0 series=
for i in "${!commits[@]}"; do
	[ -z "${SERIES:-}" ] || [ "${paths[i]%%/*}" = "$SERIES" ] || continue
	[ "$series" = "${paths[i]%%/*}" ] || {
		series=${paths[i]%%/*} n=0
		mkdir "$tmp/patches/$series"
		cp "$PATCHES/$series/0000-cover-letter.patch" "$tmp/patches/$series/" 2>/dev/null || die -c "$EX_FAIL" "$series: no cover letter"
	}
	n=$((n + 1))
	f=$(kgit "$work" format-patch -1 --start-number "$n" --no-numbered -o "$tmp/patches/$series" "${commits[i]}")
	printf '%s\n' "${f#"$tmp/patches/"}" >>"$tmp/patches/series"
	cmp -s <(mail_message "$PATCHES/${paths[i]}" | kgit "$work" stripspace) \
		<(kgit "$work" log -1 --format=%B "${commits[i]}" | sed '/^Signed-off-by: /d' | kgit "$work" stripspace) ||
		printf '%s\n' "${f#"$tmp/patches/"}" >>"$tmp/edited"
done
verdict() { # CHECK
	local rc=0
	step "mbox: $1 of $(wc -l <"$tmp/patches/series") patches"
	mkdir "$tmp/$1"
	attend env SIGNER="$submitter" OUT="$tmp/$1" FROM="$base" TO="$tip" PATCHES="$tmp/patches" WORK="$work" \
		"$TOP/scripts/checks/$1/check" >"$tmp/line" 2>"$tmp/errors" || rc=$?
	[ "$rc" -eq 0 ] || {
		cat "$tmp/errors" >&2
		die -c "$EX_FAIL" "$1: $(cat "$tmp/line")"
	}
}
cp "$tmp/patches/series" "$tmp/sent"
verdict form
[ ! -f "$tmp/edited" ] || {
	mv "$tmp/edited" "$tmp/patches/series"
	verdict checkpatch
}

# b4 reads the cover letter and the data of a series from the configuration of the branch. No mail server is configured.
run_b4() {
	(cd "$work" && attend env -u EMAIL "${no_identity[@]}" HOME="$tmp/home" XDG_CACHE_HOME="$tmp/home" XDG_DATA_HOME="$tmp/home" \
		GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 "$b4" "$@") >"$tmp/b4.log" 2>&1 ||
		die -c "$EX_FAIL" "b4 $1: $(tail -n 1 "$tmp/b4.log")"
}
# Like --auto-to-cc of b4, but with one call for all patches. The role in the output tells people from lists.
maintainers() {
	(cd "$work" && perl scripts/get_maintainer.pl --nogit --nogit-fallback --nogit-chief-penguins --norolestats --roles \
		"${mails[@]/#/"$tmp/patches/"}") 2>"$tmp/maintainers.log" ||
		die -c "$EX_FAIL" "$series: get_maintainer does not know for whom: $(tail -n 1 "$tmp/maintainers.log")"
}
# b4 looks up the commits of Fixes: tags.
unknown() {
	sed -n "s/^fatal: ambiguous argument '\([0-9a-f]*\)'.*/\1/p; s/^fatal: bad object \([0-9a-f]*\).*/\1/p" "$tmp/maintainers.log" | sort -u | xargs
}
no_identity=()
for v in "${!GIT_AUTHOR_@}" "${!GIT_COMMITTER_@}"; do
	no_identity+=(-u "$v")
done
mkdir "$tmp/home"
kgit "$work" config user.name "$submitter_name"
kgit "$work" config user.email "$submitter_mail"
kgit "$work" config sendemail.smtpserver /bin/false
mkdir -p "$out"
[ -n "${SERIES:-}" ] || rm -f "$out"/*.mbox
start=$base prerequisites=
for series in "${on_branch[@]}"; do
	end=
	for i in "${!commits[@]}"; do
		[ "${paths[i]%%/*}" != "$series" ] || end=${commits[i]}
	done
	[ -z "${SERIES:-}" ] || [ "$series" = "$SERIES" ] || {
		start=$end
		continue
	}
	step "mbox: $series"
	# The prerequisites: all patches from the base on.
	prerequisites=$(kgit "$work" log -p --reverse --full-index --no-color "$base..$start" | kgit "$work" patch-id --stable |
		sed 's/\(.*\) .*/, "patch-id: \1"/' | tr -d '\n')
	kgit "$work" branch -q -f start "$start"
	kgit "$work" checkout -q -B "$series" "$end"
	mapfile -t mails < <(grep "^$series/" "$tmp/sent")
	maintainers >"$tmp/recipients"
	missing=$(unknown)
	[ -z "$missing" ] || step "mbox: $series: $dir does not have the commits $missing, whose authors would get a copy: is it shallow?"
	is_list='/ \((open|moderated|subscriber) list/' address='s/^([^@]*@[^ ]*) \(.*/\1/'
	sed -nE "$is_list!{ $address; s/^/To: /p }" "$tmp/recipients" >"$tmp/to"
	sed -nE "$is_list { $address; s/^/Cc: /p }" "$tmp/recipients" >"$tmp/cc"
	kgit "$work" config "branch.$series.description" \
		"$(mail_message "$tmp/patches/$series/0000-cover-letter.patch")"$'\n\n'"$(cat "$tmp/to" "$tmp/cc")"
	kgit "$work" config "branch.$series.b4-prep-cover-strategy" branch-description
	# The change-id connects the revisions of a series. It is made from the name of the series only.
	slug=device-private-${series#*-}
	prefix=$(sed -n 's/^Subject: \[RFC PATCH .*/"RFC"/p' "$tmp/patches/$series/0000-cover-letter.patch")
	kgit "$work" config "branch.$series.b4-tracking" "$(printf \
		'{"series": {"revision": %s, "change-id": "20261120-%s-%s", "prefixes": [%s], "base-branch": "start", "prerequisites": ["base-commit: %s"%s]}}' \
		"$revision" "$slug" "$(printf %s "$slug" | sha256sum | cut -c -12)" "$prefix" "$base" "$prerequisites")"
	rm -rf "$tmp/mails"
	run_b4 send --no-sign -o "$tmp/mails"
	! grep -q '^From ' "$tmp"/mails/* || die -c "$EX_FAIL" "$series: a line begins with \"From \", which an mbox has between mails: $(grep -hm 1 '^From ' "$tmp"/mails/*)"
	for f in "$tmp"/mails/*; do
		printf 'From %s Thu Jan  1 00:00:00 1970\n' "$submitter_mail"
		cat "$f"
		echo
	done >"$tmp/mbox"
	mv "$tmp/mbox" "$out/$series.mbox"
	echo "${out#"$TOP/"}/$series.mbox: $(find "$tmp/mails" -type f | wc -l) mails"
	start=$end
done
