#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Break the patches line by line and prove that the tests notice.
set -euo pipefail
. "$(dirname "$0")/common.sh"

usage() {
	cat <<'END'
usage: [FRESH=1] mutants.sh [MUTANT...]

Builds and tests each mutant in selftests/mutants/*.patch, or only the named ones
('odp-*' is a pattern), and prints the test that killed it.

A mutant is a diff that breaks one line. It applies to build/tree, or to this
repository if it breaks a driver of selftests/modules. The first line above the diff
says what is broken. The header lines are
  Patch: SERIES SUBJECT              the patch whose line it breaks, or
  Base: FILE                         the file, if no patch touches the line, or
  Module: NAME                       the driver
  Suite: SUITE                       the suite that must notice (default: hmm)
  Run: KERNEL TOPOLOGY ARGUMENTS     a run to do, as in the suite's file runs; may
                                     be repeated
  Killed-by: TEST...                 one of these must fail, or the guest must crash
  Hangs: WHY                         reaching a time limit in such a test counts, too;
                                     otherwise it does not, because a busy machine
                                     may cause it
  Survives: WHY                      in place of Killed-by: the proof that no test can
                                     notice

The mutants are built in build/mutants, a clone of build/tree with its own kernels.
The unmutated kernel has to pass the same runs first. Results are in
results/mutants/NAME. A run that reaches a time limit is repeated once with double
limits.

You may stop the script at any time. It continues where it stopped, because verdicts
are kept in selftests/mutants/verdicts (commit them: all mutants take many hours). A
mutant is repeated only if it, the files that it breaks, or the folder of its suite
have changed, or with FRESH=1. The last line is "N passed, N failed, N skipped" for
all mutants.

exit: 0 all mutants were killed, or survive as expected; 1 a mutant was not killed,
does not apply or does not build; 2 wrong usage, or tests fail without a mutant.
END
}
case ${1:-} in
--help)
	usage
	exit 0
	;;
-*)
	usage >&2
	exit "$EX_USAGE"
	;;
esac

mutants=$TOP/selftests/mutants
results=$TOP/results/mutants
upstream=$BUILD/tree
# Below here vm.sh and kernel.sh find what they look for in BUILD.
work=$BUILD/mutants
tree=$work/tree

names=()
for pattern in "${@:-*}"; do
	# shellcheck disable=SC2231 # it may be a pattern
	for f in "$mutants"/$pattern.patch; do
		[ -f "$f" ] || die "no mutant $pattern; there are: $(cd "$mutants" && echo *.patch | sed 's/\.patch//g')"
		names+=("$(basename "$f" .patch)")
	done
done
[ -d "$upstream/.git" ] || die "no $upstream: run make tree"
step "mutants: ${#names[@]}, in ${work#"$TOP/"}"

# header NAME KEY: what the lines of this key say
header() { sed -n "/^--- /q; s/^$2: *//p" "$mutants/$1.patch"; }

suite_of() {
	local suite
	suite=$(header "$1" Suite)
	echo "${suite:-hmm}"
}

# All that can be wrong with the data, before anything is built.
subjects=$(kgit "$upstream" log --notes=series --format='%N %s' base..HEAD | awk '
	NF == 1 { series = $1 } NF > 1 { sub(/^ /, ""); print (series == "" ? "?" : series) " " $0; series = "" }')
for name in "${names[@]}"; do
	f=$mutants/$name.patch
	if [ -n "$(header "$name" Module)" ]; then
		[ -d "$TOP/selftests/modules/$(header "$name" Module)" ] || die "$f: no such driver: $(header "$name" Module)"
	elif [ -n "$(header "$name" Base)" ]; then
		[ -f "$upstream/$(header "$name" Base)" ] || die "$f: no such file in build/tree: $(header "$name" Base)"
	else
		grep -qxF "$(header "$name" Patch)" <<<"$subjects" ||
			die "$f: no such patch in build/tree: $(header "$name" Patch)"
	fi
	suite=$(suite_of "$name")
	[ -x "$TOP/selftests/suites/$suite/run" ] || die "$f: no suite $suite that runs in a guest"
	[ -n "$(header "$name" Run)" ] || die "$f: no line Run:"
	case $(header "$name" Killed-by | wc -l),$(header "$name" Survives | wc -l) in
	1,0 | 0,1) ;;
	*) die "$f: one line Killed-by: or one Survives: is needed" ;;
	esac
	while read -r kernel topology _; do
		case $kernel in
		unpatched) die "$f: the kernel unpatched has no patches to break" ;;
		*) grep -q "^${kernel}[[:space:]]" "$TOP/kernel-config/kernels" || die "$f: no kernel $kernel in kernel-config/kernels" ;;
		esac
		[ -f "$TOP/selftests/topologies/$topology" ] || die "$f: no topology $topology"
	done < <(header "$name" Run)
done

# They outlive build/ and results/, and those of mutants this machine.
verdicts=$mutants/verdicts
unmutated=$CACHE/mutants
touch "$verdicts"
mkdir -p "$work" "$results" "$unmutated"
exec 8>"$work/lock"
flock -n 8 || die "$work is in use by another mutants.sh"
# What one that was killed had no time to remove.
rm -rf "$work"/.mutants.sh.*

scratch "$work"
# shellcheck disable=SC2317 # called by the trap
cleanup() {
	end_scratch
	[ ! -d "$tree/.git" ] || kgit "$tree" reset -q --hard
}
trap cleanup EXIT

# The series as it is committed in build/tree. Files that stay the same keep their time, so make builds no more than it must.
if [ ! -d "$tree/.git" ]; then
	need_space "$BUILD" 4
	kgit "$BUILD" clone -q --template= --no-checkout --shared "$upstream" "$tmp/tree"
	mkdir -p "$tmp/tree/.git/info"
	printf '/out-*/\n' >"$tmp/tree/.git/info/exclude"
	kgit "$tmp/tree" checkout -q --detach
	mv "$tmp/tree" "$tree"
fi
kgit "$tree" fetch -q "$upstream" HEAD
kgit "$tree" reset -q --hard FETCH_HEAD
kgit "$tree" clean -q -f -d
[ -z "$(kgit "$upstream" status --porcelain)" ] || step "mutants: build/tree has edits that are not committed: left out"
ln -sfn ../base "$work/base"
modules=$work/selftests/modules

unmutate() {
	kgit "$tree" reset -q --hard
	rm -rf "$modules"
	mkdir -p "${modules%/*}"
	# With a new time: make would take what was built of a mutant for newer.
	cp -r "$TOP/selftests/modules" "$modules"
}
unmutate

# build KERNEL...: limits of time go by the boot of the unmutated one, or each mutant would get those of a kernel that never booted
build() {
	local kernel
	attend env BUILD="$work" MODULES="$modules" "$TOP/scripts/kernel.sh" build "$@" 8>&- || return
	for kernel; do
		[ ! -f "$work/boot-$kernel" ] || cp "$work/boot-$kernel" "$work/kernels/$kernel/boot"
	done
}

# run_tests DIR SUITE KERNEL TOPOLOGY ARGUMENT...
run_tests() {
	local rc=0
	attend env BUILD="$work" BOOT_TIMEOUT="${BOOT_TIMEOUT:-30}" TEST_TIMEOUT="${TEST_TIMEOUT:-120}" \
		SILENCE_TIMEOUT="${SILENCE_TIMEOUT:-120}" \
		"$TOP/scripts/vm.sh" run -q -o "$1" "$3" "$4" "/suites/$2/run" "${@:5}" >"$tmp/run.log" 2>&1 8>&- || rc=$?
	[ -f "$1/results.json" ] || {
		cat "$tmp/run.log" >&2
		die "could not run: ${*:2}"
	}
	return "$rc"
}

run_dir() { echo "$1/${*:2}" | tr ' ' -; }

# inputs_id SUITE: of what the verdict on the standard input, a mutant or a run, depends on. For a mutant these are the files that
# it breaks and the suite: the rest of the series, the programs and scripts/ are worked on meanwhile.
inputs_id() {
	local input file paths=("selftests/suites/$1")
	input=$(cat)
	{
		echo "$input"
		if [[ $input == *$'\n+++ b/'* ]]; then
			while read -r file; do
				git -C "$tree" rev-parse -q --verify "HEAD:$file" || paths+=("$file")
			done < <(sed -n 's,^+++ b/,,p' <<<"$input")
		else
			git -C "$tree" rev-parse 'HEAD^{tree}'
			paths+=(selftests/{guest,modules,programs} kernel-config)
		fi
		(cd "$TOP" && find "${paths[@]}" -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum)
	} | sha256sum | cut -c -16
}

# keep NAME ID SUITE VERDICT: on the mutant on the standard input, unless somebody edited what ID stands for
keep() {
	[ "$(inputs_id "$3")" = "$2" ] || return 0
	{
		grep -v "^$1 " "$verdicts" || true
		echo "$1 $2 $4"
	} | LC_ALL=C sort >"$tmp/verdicts"
	cp "$tmp/verdicts" "$verdicts"
}

# kept NAME ID: that verdict, if there is one and it need not be made again
kept() { [ -z "${FRESH:-}" ] && sed -n "s/^$1 $2 //p" "$verdicts" | grep .; }

declare -A before=()
todo=()
for name in "${names[@]}"; do
	if verdict=$(kept "$name" "$(inputs_id "$(suite_of "$name")" <"$mutants/$name.patch")"); then
		before[$name]=$verdict
	else
		todo+=("$name")
	fi
done
step "mutants: ${#before[@]} done before, ${#todo[@]} to do"

# What these are compared with: an id and a run a line.
mapfile -t runs < <(for name in "${todo[@]}"; do
	header "$name" Run | sed "s/^/$(suite_of "$name") /"
done | sort -u | while read -r run; do
	id=$(inputs_id "${run%% *}" <<<"$run")
	[ -z "${FRESH:-}" ] && [ -f "$unmutated/$id" ] || echo "$id $run"
done)
if [ ${#runs[@]} -gt 0 ]; then
	mapfile -t kernels < <(printf '%s\n' "${runs[@]}" | cut -d ' ' -f 3 | sort -u)
	step "mutants: building what they are compared with: ${kernels[*]}"
	rm -f "${kernels[@]/#/"$work/boot-"}"
	build "${kernels[@]}" || die "the unmutated kernel does not build"
fi
n=0 began=$(date +%s)
for run in "${runs[@]}"; do
	read -r id run <<<"$run"
	read -r -a words <<<"$run"
	n=$((n + 1))
	dir=$(run_dir "$results/unmutated" "${words[@]}")
	run_tests "$dir" "${words[@]}" || die "the unmutated kernel fails, mend that first: $(cat "$dir/conclusion.txt") ($dir)"
	touch "$unmutated/$id"
	[ ! -f "$work/kernels/${words[1]}/boot" ] || cp "$work/kernels/${words[1]}/boot" "$work/boot-${words[1]}"
	step "unmutated $n/${#runs[@]}, $(time_left "$began" "$n" "${#runs[@]}"): $(cat "$dir/conclusion.txt")"
done

# some WORD...: the first few of many
some() {
	printf '%s' "$1"
	shift
	[ $# -le 2 ] || set -- "$1" "and $(($# - 1)) more"
	[ $# -eq 0 ] || printf ', %s' "$@"
}

# test_mutant NAME: sets verdict, and result to ok or not ok
test_mutant() {
	local name=$1 expected test seen='' by='' rest='' run dir suite where=$tree id rc kernels
	result='not ok' verdict=''
	id=$(inputs_id "$(suite_of "$name")" <"$mutants/$name.patch")
	unmutate
	expected=$(header "$name" Killed-by)
	suite=$(suite_of "$name")
	[ -z "$(header "$name" Module)" ] || where=$work
	mapfile -t kernels < <(header "$name" Run | cut -d ' ' -f 1 | sort -u)
	# The ceiling: what is not in build/mutants/tree is in no git tree.
	if ! GIT_CEILING_DIRECTORIES=$BUILD kgit "$where" apply "$mutants/$name.patch" >"$tmp/build.log" 2>&1; then
		verdict="DOES NOT APPLY to ${where#"$TOP/"}"
	elif ! build "${kernels[@]}" >"$tmp/build.log" 2>&1; then
		verdict="DOES NOT BUILD"
	fi
	[ -z "$verdict" ] || {
		cat "$tmp/build.log" >&2
		return 0
	}
	rm -rf "$tmp/out"
	mkdir "$tmp/out"
	cp "$mutants/$name.patch" "$tmp/out/"
	while read -r -u 7 run; do
		run="$suite $run"
		dir=$(run_dir "$tmp/out" "$run")
		rc=0
		# shellcheck disable=SC2086
		run_tests "$dir" $run || rc=$?
		if [ $rc -eq "$EX_TIMEOUT" ]; then
			# A busy machine reaches a limit, too.
			rc=0
			# shellcheck disable=SC2086
			SLOWDOWN=$((2 * ${SLOWDOWN:-1})) run_tests "$dir" $run || rc=$?
		fi
		[ $rc -eq 0 ] || seen+=" $("$TOP/scripts/killers.py" "$dir" "$(header "$name" Hangs)")"
	done 7< <(header "$name" Run)

	for test in $seen; do
		if [[ " $expected " == *" $test "* ]]; then
			by+=" $test"
		else
			rest+=" $test"
		fi
	done
	# shellcheck disable=SC2086 # one test a word
	if [ -n "$by" ]; then
		result=ok verdict="killed by $(some $by $rest)"
	elif [ -n "$expected" ] && [ -n "$seen" ]; then
		verdict="killed by $(some $seen), but not by $expected"
	elif [ -n "$expected" ]; then
		verdict="SURVIVES, not seen by $expected"
	elif [ -n "$seen" ]; then
		verdict="killed by $(some $seen), but said to survive"
	else
		result=ok verdict="survives: $(header "$name" Survives)"
	fi
	printf '%s\n' "$verdict" >"$tmp/out/conclusion.txt"
	keep "$name" "$id" "$suite" "$result: $verdict" <"$mutants/$name.patch"
	rm -rf "${results:?}/$name"
	mv "$tmp/out" "$results/$name"
}

n=0 tested=0 began=$(date +%s)
for name in "${names[@]}"; do
	n=$((n + 1))
	if [ -n "${before[$name]:-}" ]; then
		result=${before[$name]%%: *}
		[ "$result" = ok ] || step "$n/${#names[@]}, before: $name: ${before[$name]#*: }"
	else
		test_mutant "$name"
		tested=$((tested + 1))
		step "$n/${#names[@]}, $(time_left "$began" "$tested" "${#todo[@]}"): $name: $verdict"
	fi
	printf '%s %s %s\n' "$result" "$n" "$name" >>"$tmp/ktap"
done

{
	printf 'KTAP version 1\n1..%s\n' "$n"
	cat "$tmp/ktap"
} >"$results/ktap"
rc=$("$TOP/scripts/results.py" run "$results" code=0 why= guest_status=0 suite=mutants kernel=host topology= command=)
sed 's/.*: \([0-9]* passed, [0-9]* failed, [0-9]* skipped\).*/\1/' "$results/conclusion.txt"
exit "$rc"
