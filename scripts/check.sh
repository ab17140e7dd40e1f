#!/bin/bash
# Run the checks of the series.
set -euo pipefail
. "$(dirname "$0")/common.sh"

usage() {
	cat <<'END'
usage: check.sh [--self] ["NAME ..."]

Runs scripts/checks/*, or those named ("fast": those that scripts/checks/fast
lists), on the patches as they are in build/tree, and prints a line for each.
Before that each is shown the bad inputs in its folder; one that does not reject
them has failed. --self: only that. Details: results/check/NAME.

A check is a folder with
  check  prints one line; exit 0 passed, 250 passed with a warning, else failed
  bad/   inputs that it must reject, for the reason given by a regular
         expression, which is in the line "Expect:" of a patch for the kernel
         (*.patch), or for this project (*.diff), or in the file "expect" of a
         folder in place of patches/

RANGE=A..B in the environment: only these commits of build/tree, for the checks
that compile, and without the bad inputs. In build/tree, for each commit:
  git rebase -x 'RANGE=HEAD^..HEAD ../../scripts/check.sh bisect' base

exit: 0 if nothing failed, 1 if something did.
END
}
self=
case ${1:-} in
--help)
	usage
	exit 0
	;;
--self)
	self=1
	shift
	;;
-*)
	usage >&2
	exit "$EX_USAGE"
	;;
esac

checks=$TOP/scripts/checks
names=()
all=$(cd "$checks" && for d in */; do echo "${d%/}"; done)
for name in ${1:-$all}; do
	if [ "$name" = fast ]; then
		mapfile -t -O ${#names[@]} names < <(sed 's/#.*//; /^$/d' "$checks/fast")
		continue
	fi
	[ -x "$checks/$name/check" ] || die "no check $name; there are: ${all//$'\n'/ }"
	names+=("$name")
done

upstream=${TREE:-$BUILD/tree}
[ -d "$upstream/.git" ] || die "no $upstream: run make tree"
dir=$BUILD/check
work=$dir/tree
# What mbox.sh goes by: verdict, patches, tree.
verdicts=$dir/verdicts
results=$TOP/results/check
mkdir -p "$dir" "$results" "$verdicts"
unset SIGNER
exec 8>"$dir/lock"
flock -n 8 || die "$dir is in use by another check.sh"
scratch "$dir"

# Only what these checks need.
grep -E "# .*\b($(
	IFS='|'
	echo "${names[*]}"
))\b" "$checks/packages" >"$tmp/packages" || true
"$TOP/scripts/deps.sh" "$tmp/packages"

if [ ! -d "$work/.git" ]; then
	step "check: checking out ${work#"$TOP/"}"
	need_space "$BUILD" 6
	kgit "$BUILD" clone -q --template= --no-checkout --shared "$upstream" "$tmp/tree"
	mkdir -p "$tmp/tree/.git/info"
	printf '/out-*/\n' >"$tmp/tree/.git/info/exclude"
	kgit "$tmp/tree" checkout -q --detach
	mv "$tmp/tree" "$work"
fi
range=${RANGE:-base..HEAD}
base=$(kgit "$upstream" rev-parse "${range%%..*}") head=$(kgit "$upstream" rev-parse "${range##*..}")
# A clone that shares the objects of the other sees new ones, too.
kgit "$work" checkout -q --detach -f "$head"
[ -z "$(kgit "$upstream" status --porcelain)" ] || step "check: build/tree has edits that are not committed: left out"

# run NAME OUT FROM TO PATCHES PROJECT: the exit code of the check; its line is in $tmp/line
run() {
	local rc=0
	rm -rf "$2"
	mkdir -p "$2"
	kgit "$work" reset -q --hard
	attend env OUT="$2" FROM="$3" TO="$4" PATCHES="$5" BUILD="$BUILD" "$6/scripts/checks/$1/check" \
		>"$tmp/line" 2>"$2/stderr" || rc=$?
	[ -s "$2/stderr" ] || rm -f "$2/stderr"
	[ "$(wc -l <"$tmp/line")" -eq 1 ] || {
		echo "ended with status $rc and printed $(wc -l <"$tmp/line") lines instead of one: $(tail -n 1 "$2/stderr" 2>/dev/null)" >"$tmp/line"
		return 1
	}
	return "$rc"
}

# rejects NAME CASE: is the bad input rejected, and for the reason that is expected?
rejects() {
	local name=$1 bad=$2 rc=0 from=$head to=$head patches=$tmp/patches project=$TOP expect
	export ONLY=
	rm -rf "$tmp/patches" "$tmp/project"
	case $bad in
	*.patch)
		expect=$(sed -n 's/^Expect: //p' "$bad")
		mkdir -p "$patches/$series"
		cp "$bad" "$patches/$series/0001-${bad##*/}"
		echo "$series/0001-${bad##*/}" >"$patches/series"
		# Not to apply is what some are for.
		kgit "$work" checkout -q --detach -f "$head"
		if kgit "$work" am -q "$bad" >"$tmp/am.log" 2>&1; then
			to=$(kgit "$work" rev-parse HEAD)
		else
			kgit "$work" am --quit
		fi
		;;
	*.diff)
		expect=$(sed -n 's/^Expect: //p' "$bad")
		project=$tmp/project patches=$PATCHES
		git clone -q --shared "$TOP" "$project"
		git -C "$project" apply --index "$bad"
		ONLY=$(git -C "$project" diff --cached --name-only | xargs)
		# Not committed in $TOP, and yet what is checked.
		(cd "$TOP" && git ls-files -co --exclude-standard scripts | tar -cf - -T -) | tar -xf - -C "$project"
		;;
	*)
		expect=$(cat "$bad/expect")
		patches=$bad
		;;
	esac
	run "$name" "$tmp/out" "$from" "$to" "$patches" "$project" || rc=$?
	unset ONLY
	# Said aloud, for want of a tool that nobody can have: neither passed nor failed.
	[ "$rc" -ne 250 ] || [[ $(cat "$tmp/line") != 'not available: '* ]] || return 250
	if [ -z "$expect" ] || [ "$rc" -eq 0 ] || [ "$rc" -eq 250 ] ||
		! find "$tmp/line" "$tmp/out" -maxdepth 1 -type f -exec cat {} + | grep -aE -e "$expect" >/dev/null; then
		echo "does not reject ${bad#"$TOP/"} with '$expect', but says: $(cat "$tmp/line")" >"$tmp/line"
		return 1
	fi
}

# say NAME STATE
say() {
	printf '%-14s %-8s %s\n' "$1" "$2" "$(cat "$tmp/line")" | tee -a "$tmp/summary"
}

series=$(sed -n '1s,/.*,,p' "$PATCHES/series")
declare -i passed=0 warnings=0 failed=0
for name in "${names[@]}"; do
	step "check: $name"
	rc=0 n=0
	for bad in "$checks/$name"/bad/*; do
		[ -z "${RANGE:-}" ] || break
		[ -e "$bad" ] || {
			echo "has no bad input in scripts/checks/$name/bad" >"$tmp/line"
			rc=1
			break
		}
		n=$((n + 1))
		rejects "$name" "$bad" || {
			rc=$?
			break
		}
	done
	if [ "$rc" -eq 0 ] && [ -n "$self" ]; then
		echo "$n bad inputs rejected" >"$tmp/line"
	elif [ "$rc" -eq 0 ]; then
		run "$name" "$results/$name" "$base" "$head" "$PATCHES" "$TOP" || rc=$?
	fi
	# Also of a check that cannot do its work: that one failed, or lacks a tool that nobody can have.
	[ -n "${RANGE:-}" ] || { [ "$rc" -eq 0 ] && [ -n "$self" ]; } ||
		printf '%s %s %s\n' "$rc" "$(verdict_id "$name")" "$(kgit "$upstream" rev-parse "$head^{tree}")" >"$verdicts/$name"
	case $rc in
	0)
		passed+=1
		say "$name" pass
		;;
	250)
		warnings+=1
		say "$name" warning
		;;
	*)
		failed+=1
		say "$name" FAIL
		;;
	esac
done
{
	cat "$tmp/summary"
	echo "$passed passed, $warnings with a warning, $failed failed"
} >"$results/summary.txt"
tail -n 1 "$results/summary.txt"
[ "$failed" -eq 0 ] || exit "$EX_FAIL"
