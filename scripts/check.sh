#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Run all checks in scripts/checks, or the named ones, on the patches as they are in build/tree.
#
# usage: [RANGE=A..B] check.sh [--self] ["NAME ..."]
#
# Prints one line per check. Details are in results/check/NAME. The name "fast" stands
# for all checks in scripts/checks/fast. These run first, JOBS at the same time
# (default: one per processor). --self only runs the checks on their bad inputs.
# RANGE limits checks that compile to these commits of build/tree, and skips the bad
# inputs (scripts/README.md has an example).
#
# A check is a folder with
#   check  the program. Prints one line; exit 0 passed, 250 passed with a warning,
#          other codes failed
#   files  only for fast checks, whose trees have only the files that they read: kernel
#          files (git pathspecs) besides those that the patches and the bad inputs name
# Its bad inputs are in selftests/scripts/checks/NAME. A check that does not reject them
# fails. Each names a regular expression for the reason. It is a patch for the kernel
# (*.patch) or for this project (*.diff), with the expression in its line "Expect:". Or
# it is a folder that replaces patches/, with the expression in its file "expect".
set -euo pipefail
. "$(dirname "$0")/common.sh"
arguments 0 1 --self "$@"
self=$opted
[ -z "$self" ] || shift

checks=$TOP/scripts/checks inputs=$TOP/selftests/scripts/checks
rows() { sed 's/[[:space:]]*#.*//; /^$/d' "$checks/$1"; }
is_fast() { rows fast | grep -xF -e "$1" >/dev/null; }
all=$(cd "$checks" && for d in */; do echo "${d%/}"; done)
mapfile -t names < <(for name in ${1:-fast $all}; do
	if [ "$name" = fast ]; then
		rows fast
	else
		echo "$name"
	fi
done | awk '!seen[$0]++')
slow=
for name in "${names[@]}"; do
	[ -x "$checks/$name/check" ] || die "no check $name; there are: ${all//$'\n'/ }"
	is_fast "$name" || slow=1
done

upstream=${TREE:-$BUILD/tree}
[ -d "$upstream/.git" ] || die "no $upstream: run make tree"
dir=$BUILD/check results=$TOP/results/check
# For mbox.sh, a file for each check: exit code, hash of the patches, tree.
verdicts=$dir/verdicts
mkdir -p "$dir" "$results" "$verdicts"
exec 8>"$dir/lock"
flock -n 8 || die "$dir is in use by another check.sh"
scratch "$dir"

# Only the packages that these checks need.
grep -E -f <(printf '# (.*, )?%s([,:]|$)\n' "${names[@]}") "$checks/packages" >"$tmp/packages" || true
"$TOP/scripts/deps.sh" "$tmp/packages"

range=${RANGE:-base..HEAD}
base=$(kgit "$upstream" rev-parse "${range%%..*}") head=$(kgit "$upstream" rev-parse "${range##*..}")
tree_id=$(kgit "$upstream" rev-parse "$head^{tree}")
[ -z "$(kgit "$upstream" status --porcelain)" ] || step "check: build/tree has edits that are not committed: left out"

if [ -n "$slow" ]; then
	if [ ! -d "$dir/tree/.git" ]; then
		step "check: checking out ${dir#"$TOP/"}/tree"
		need_space "$BUILD" 3
		# Objects are shared, also new ones.
		clone "$upstream" "$tmp/tree" --shared
		kgit "$tmp/tree" checkout -q --detach
		mv "$tmp/tree" "$dir/tree"
	fi
	kgit "$dir/tree" checkout -q --detach -f "$head"
fi

# small NAME COMMIT [PARENT]: a commit in $work with only those files of COMMIT that the check reads. git then takes a tenth of
# the time.
mapfile -t named < <({
	kgit "$upstream" diff --name-only --no-renames "$base" "$head"
	series_patches | (cd "$PATCHES" && xargs cat) | cat - "$inputs"/*/*.patch "$inputs"/*/*/*/*.patch |
		sed -n 's,^diff --git a/\(.*\) b/.*,\1,p'
} | sort -u | sed 's/^/:(literal)/')
small() {
	local files=("${named[@]}")
	[ ! -f "$checks/$1/files" ] || mapfile -t -O ${#files[@]} files < <(rows "$1/files")
	rm -f "$tmp"/{all,few}
	GIT_INDEX_FILE=$tmp/all kgit "$work" read-tree "$2"
	GIT_INDEX_FILE=$tmp/all kgit "$work" ls-files -s -- "${files[@]}" |
		GIT_INDEX_FILE=$tmp/few kgit "$work" update-index --index-info
	kgit "$work" commit-tree -m "${2:0:12}" ${3:+-p "$3"} "$(GIT_INDEX_FILE=$tmp/few kgit "$work" write-tree)"
}

# run NAME OUT FROM TO PATCHES PROJECT: run the check. Returns its exit code; its line is in $tmp/line.
run() {
	local rc=0
	rm -rf "$2"
	mkdir -p "$2"
	# A check that fails leaves another commit behind.
	kgit "$work" checkout -q --detach -f "$4"
	env OUT="$2" FROM="$3" TO="$4" PATCHES="$5" BUILD="$BUILD" WORK="$work" "$6/scripts/checks/$1/check" \
		>"$tmp/line" 2>"$2/stderr" </dev/null || rc=$?
	[ -s "$2/stderr" ] || rm -f "$2/stderr"
	[ "$(wc -l <"$tmp/line")" -eq 1 ] || {
		echo "ended with status $rc and printed $(wc -l <"$tmp/line") lines instead of one: $(tail -n 1 "$2/stderr" 2>/dev/null)" >"$tmp/line"
		return 1
	}
	return "$rc"
}

# rejects NAME CASE: does the check reject this bad input, for the expected reason?
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
		# Some bad inputs do not apply, or have no diff.
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
		# What is checked may not be committed in $TOP yet.
		(cd "$TOP" && git ls-files -co --exclude-standard scripts | grep -vxF -e "${ONLY// /$'\n'}" | tar -cf - -T -) |
			tar -xf - -C "$project"
		;;
	*)
		expect=$(cat "$bad/expect")
		patches=$bad
		;;
	esac
	run "$name" "$tmp/out" "$from" "$to" "$patches" "$project" || rc=$?
	unset ONLY
	# A check without its tool, which Debian does not package, has neither passed nor failed.
	[ "$rc" -ne 250 ] || [[ $(cat "$tmp/line") != 'not available: '* ]] || return 250
	if [ -z "$expect" ] || [ "$rc" -eq 0 ] || [ "$rc" -eq 250 ] ||
		! find "$tmp/line" "$tmp/out" -maxdepth 1 -type f -exec cat {} + | grep -aE -e "$expect" >/dev/null; then
		echo "does not reject ${bad#"$TOP/"} with '$expect', but says: $(cat "$tmp/line")" >"$tmp/line"
		return 1
	fi
}

# one NAME: run the check on its bad inputs, then on the patches. Returns the exit code; the line is in $tmp/NAME/line.
one() {
	local name=$1 rc=0 n=0 bad base=$base head=$head work=$dir/tree tmp=$tmp/$1
	mkdir "$tmp"
	if is_fast "$name"; then
		work=$tmp/tree
		clone "$upstream" "$work" --shared
		base=$(small "$name" "$base")
		head=$(small "$name" "$head" "$base")
		kgit "$work" checkout -q --detach "$head"
	fi
	for bad in "$inputs/$name"/*; do
		[ -z "${RANGE:-}" ] || break
		[ -e "$bad" ] || {
			echo "has no bad input in selftests/scripts/checks/$name" >"$tmp/line"
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
	# A verdict is also written for a check that accepts a bad input, or has no tool.
	[ -n "${RANGE:-}" ] || { [ "$rc" -eq 0 ] && [ -n "$self" ]; } ||
		printf '%s %s %s\n' "$rc" "$(verdict_id "$name")" "$tree_id" >"$verdicts/$name"
	rm -rf "$tmp/tree"
	return "$rc"
}

series=$(sed -n '1s,/.*,,p' "$PATCHES/series")
declare -i passed=0 warnings=0 failed=0
declare -A running=()
# finish: wait for one check, and print its line
finish() {
	local pid rc=0 name state
	wait -n -p pid || rc=$?
	name=${running[$pid]}
	unset "running[$pid]"
	case $rc in
	0) passed+=1 state=pass ;;
	250) warnings+=1 state=warning ;;
	*) failed+=1 state=FAIL ;;
	esac
	[ -s "$tmp/$name/line" ] || echo "check.sh itself failed, with status $rc" >"$tmp/$name/line"
	printf '%-14s %-8s %s\n' "$name" "$state" "$(cat "$tmp/$name/line")" | tee -a "$tmp/summary"
}

# Each check is a process group, so that all of it ends with this script.
set -m
for name in "${names[@]}"; do
	# Checks that compile use all processors and the same tree.
	jobs=1
	! is_fast "$name" || jobs=${JOBS:-$(nproc)}
	while [ ${#running[@]} -ge "$jobs" ]; do finish; done
	step "check: $name"
	one "$name" &
	running[$!]=$name
done
while [ ${#running[@]} -gt 0 ]; do finish; done
echo "$passed passed, $warnings with a warning, $failed failed" | tee -a "$tmp/summary"
mv "$tmp/summary" "$results/summary.txt"
[ "$failed" -eq 0 ] || exit "$EX_FAIL"
