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

All runs of a mutant use the same kernel. After a run that kills the mutant, the others
are left out. A run should name the tests that must notice, because other tests only
take time.

The mutants are built in build/mutants, a clone of build/tree with its own kernels. For
each mutant only the module or the image with the broken files is built, while a guest
tests the mutant before it. First, the unmutated kernel has to pass all tests that the
runs name. Runs on the same topology share a guest. Results are in results/mutants/NAME.
A run that reaches a time limit is repeated once with double limits, unless the mutant
has a line Hangs.

You may stop the script at any time. It continues where it stopped, because verdicts
are kept in selftests/mutants/verdicts (commit them). A mutant is repeated with FRESH=1,
or if one of these has changed: the mutant, the files that it breaks, the program run of
its suite, the programs of the suite and of selftests/programs that its runs name, and
the programs that those start. If only comments, other patches, models or scripts
change, a mutant is not repeated. The last line is "N passed, N failed, N skipped" for all mutants.

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
# From here on vm.sh and kernel.sh use this BUILD.
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

# header NAME KEY: the values of all header lines with this key
header() { sed -n "/^--- /q; s/^$2: *//p" "$mutants/$1.patch"; }

suite_of() {
	local suite
	suite=$(header "$1" Suite)
	echo "${suite:-hmm}"
}

# Check the mutants before anything is built.
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
	[ "$(header "$name" Run | cut -d ' ' -f 1 | sort -u | wc -l)" -eq 1 ] || die "$f: runs of more than one kernel"
	while read -r kernel topology _; do
		case $kernel in
		unpatched) die "$f: the kernel unpatched has no patches to break" ;;
		feature) die "$f: the source of the kernel feature is not build/tree, which mutants break" ;;
		*) grep -q "^${kernel}[[:space:]]" "$TOP/kernel-config/kernels" || die "$f: no kernel $kernel in kernel-config/kernels" ;;
		esac
		[ -f "$TOP/selftests/topologies/$topology" ] || die "$f: no topology $topology"
	done < <(header "$name" Run)
done

# Verdicts outlive build/ and results/. Those of mutants are committed.
verdicts=$mutants/verdicts
unmutated=$CACHE/mutants
touch "$verdicts"
mkdir -p "$work" "$results" "$unmutated"
exec 8>"$work/lock"
flock -n 8 || die "$work is in use by another mutants.sh"
# Leftovers of a script that was killed.
rm -rf "$work"/.mutants.sh.*

scratch "$work"
# shellcheck disable=SC2317 # called by the trap
cleanup() {
	end_scratch
	[ ! -d "$tree/.git" ] || kgit "$tree" reset -q --hard
}
trap cleanup EXIT

# The series as it is committed in build/tree. Unchanged files keep their time stamps, so that make builds only what it must.
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
	# With a new time stamp. Otherwise make would take the object of the mutant for newer.
	cp -r "$TOP/selftests/modules" "$modules"
}
unmutate

# The guests have a BUILD of their own, with one kernel and the headers of the series, because the tree is edited for the next
# mutant meanwhile.
guest=$work/guest
headers=$(kgit "$tree" rev-parse 'HEAD^{tree}')
[ "$headers" = "$(cat "$guest/tree/id" 2>/dev/null)" ] || {
	rm -rf "$guest"
	mkdir -p "$guest/tree" "$guest/kernels"
	kgit "$tree" archive HEAD ':(glob)**/*.h' tools/testing/kunit | tar -C "$guest/tree" -x -m
	ln -s ../../base "$guest/base"
	echo "$headers" >"$guest/tree/id"
}

build() { env BUILD="$work" MODULES="$modules" "$TOP/scripts/kernel.sh" "$@" </dev/null 8>&-; }

# run_tests DIR SUITE KERNEL TOPOLOGY ARGUMENT...
run_tests() {
	local rc=0
	attend env BUILD="$guest" BOOT_TIMEOUT="${BOOT_TIMEOUT:-30}" TEST_TIMEOUT="${TEST_TIMEOUT:-120}" \
		SILENCE_TIMEOUT="${SILENCE_TIMEOUT:-120}" \
		"$TOP/scripts/vm.sh" run -q -o "$1" "$3" "$4" "/suites/$2/run" "${@:5}" >"$tmp/run.log" 2>&1 8>&- || rc=$?
	[ -f "$1/results.json" ] || {
		cat "$tmp/run.log" >&2
		die "could not run: ${*:2}"
	}
	# The header of bzImage, which is not compressed, has the number of the build.
	grep -qaF "$(grep -aom 1 ' #[0-9]* SMP' "$1/console.log" || true)" "$guest/kernels/$3/bzImage" ||
		die "the guest did not run the kernel that was built for it: $1/console.log"
	return "$rc"
}

run_dir() { echo "$1/${*:2}" | tr ' ' -; }

# tests_of SUITE ARGUMENT...: list the programs that these arguments name, and the programs that those start as
# /suites/SUITE/NAME, /programs/NAME, /kselftest/mm/NAME or by /guest/kunit. Files of the kernel tree begin with tree/.
tests_of() {
	local dir=selftests/suites/$1 name file n=0 names=() found=("selftests/suites/$1/run")
	mapfile -t names < <(tr -s ' :,' '\n' <<<"${*:2}" | sed "s,.*,$dir/&\nselftests/programs/&,")
	while [ ${#names[@]} -gt 0 ] || [ $n -lt ${#found[@]} ]; do
		for name in "${names[@]}"; do
			for file in "$name" "$name.c" "$name.py"; do
				[[ " ${found[*]} " != *" $file "* ]] && [ -f "${file/#tree/$tree}" ] && found+=("$file")
			done
		done
		names=()
		[ $n -eq ${#found[@]} ] || mapfile -t names < <({
			grep -ohE '(^|[^a-z])/(suites|programs|kselftest/mm)/[A-Za-z0-9_./-]+' "${found[n]/#tree/$tree}" |
				sed 's,^[^/]*/,selftests/,; s,^selftests/kselftest,tree/tools/testing/selftests,'
			grep -ohE '/guest/kunit [a-z_]+' "${found[n]/#tree/$tree}" | sed 's,.* \(.*\),\*/\1.c,' |
				xargs -r git -C "$tree" ls-files -- | sed 's,^,tree/,'
		} | sort -u)
		n=$((n + 1))
	done
	printf '%s\n' "${found[@]}"
}

# contents FILE: a file of the series or of this repository, C without its comments
contents() {
	local strip=(cat)
	# shellcheck disable=SC2016 # Perl expands it
	[[ $1 != *.[ch] ]] || strip=(perl -0777 -pe 's{("(?:\\.|[^"\\])*")|/\*.*?\*/|//[^\n]*}{$1 // ""}gse; s/\s+/ /g')
	if git -C "$tree" cat-file -e "HEAD:${1#tree/}" 2>/dev/null; then
		git -C "$tree" show "HEAD:${1#tree/}"
	else # a file that is not in the kernel tree
		cat "$TOP/${1#tree/}"
	fi | "${strip[@]}"
}

# inputs_id SUITE: a hash of everything on which a verdict depends (see usage). The standard input is a mutant, or a line
# "KERNEL TOPOLOGY ARGUMENTS" for the unmutated kernel. Its verdict depends on the whole series and the whole guest.
inputs_id() {
	local input file paths=() words=()
	input=$(cat)
	{
		if [[ $input == *$'\n+++ b/'* ]]; then
			# Its description, the places of its hunks, and comments beside them do not count.
			grep -E '^(Suite|Run|Killed-by|Survives|Hangs):|^[-+ ]' <<<"$input" | grep -vE '^ [[:space:]]*(/?\*|//)'
			read -r -a words < <(sed -n '/^--- /q; s/^Run: *[^ ]* *[^ ]*//p' <<<"$input" | paste -sd ' ')
			mapfile -t paths < <({
				sed -n 's,^+++ b/,tree/,p' <<<"$input"
				cd "$TOP" && tests_of "$1" "${words[@]}"
			} | sort -u)
			for file in "${paths[@]}"; do
				contents "$file"
			done
		else
			echo "$input"
			git -C "$tree" rev-parse 'HEAD^{tree}'
			cd "$TOP" && find selftests/{guest,modules,programs} kernel-config "selftests/suites/$1" -type f -print0 |
				LC_ALL=C sort -z | xargs -0 sha256sum
		fi
	} | sha256sum | cut -c -16
}

# keep NAME ID SUITE VERDICT: record the verdict on the mutant on the standard input, unless the inputs of ID changed meanwhile
keep() {
	[ "$(inputs_id "$3")" = "$2" ] || return 0
	{
		grep -v "^$1 " "$verdicts" || true
		echo "$1 $2 $4"
	} | LC_ALL=C sort >"$tmp/verdicts"
	cp "$tmp/verdicts" "$verdicts"
}

# kept NAME ID: that verdict, if there is one and FRESH is not set
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

kernel_of() { header "$1" Run | sed 's/ .*//; q'; }

# join_runs: join lines SUITE KERNEL TOPOLOGY ARGUMENTS that differ only in the tests that they name (-t TEST or PART:TEST,...)
# to one line with all of these tests
join_runs() {
	awk '{
		key = $1; tests = ""; part = ""
		for (i = 2; i <= NF; i++) {
			if ($i == "-t") tests = tests " -t " $++i
			else if (i == NF && split($i, word, ":") == 2) { part = word[1] ":"; tests = word[2]; key = key " " part }
			else key = key " " $i
		}
		if (!(key in all)) order[++n] = key
		count = split(tests, test, part ? "," : " -t ")
		for (i = 1; i <= count; i++)
			if (test[i] != "" && !((key, test[i]) in seen)) {
				seen[key, test[i]]
				all[key] = all[key] (part ? (all[key] == "" ? "" : ",") : " -t ") test[i]
			}
		all[key] = all[key]
	} END {
		# The kernel takes at most 32 arguments for init, so at most ten times -t.
		for (i = 1; i <= n; i++) {
			count = split(all[order[i]], test, " -t ")
			if (count < 2) print order[i] all[order[i]]
			for (j = 2; j <= count; j += 10) {
				line = order[i]
				for (k = j; k < j + 10 && k <= count; k++) line = line " -t " test[k]
				print line
			}
		}
	}'
}

# unmutated_passes KERNEL: build the kernel without mutants. It has to pass all runs of its mutants.
unmutated_passes() {
	local run id words n=0 dir began runs=()
	mapfile -t runs < <(for name in "${todo[@]}"; do
		[ "$(kernel_of "$name")" != "$1" ] || header "$name" Run | sed "s/^/$(suite_of "$name") /"
	done | sort -u | join_runs | while read -r run; do
		id=$(inputs_id "${run%% *}" <<<"$run")
		[ -z "${FRESH:-}" ] && [ -f "$unmutated/$id" ] || echo "$id $run"
	done)
	step "mutants: building what they are compared with: $1"
	unmutate
	attend build build "$1" || die "the unmutated kernel does not build"
	rm -rf "$guest/kernels/$1"
	cp -r "$work/kernels/$1" "$guest/kernels/$1"
	began=$(date +%s)
	for run in "${runs[@]}"; do
		read -r id run <<<"$run"
		read -r -a words <<<"$run"
		n=$((n + 1))
		dir=$(run_dir "$results/unmutated" "${words[@]:0:3}" "$n")
		run_tests "$dir" "${words[@]}" || die "the unmutated kernel fails, fix that first: $(cat "$dir/conclusion.txt") ($dir)"
		touch "$unmutated/$id"
		step "unmutated $1 $n/${#runs[@]}, $(time_left "$began" "$n" "${#runs[@]}"): $(cat "$dir/conclusion.txt")"
	done
	# Time limits depend on the boot time, which mutants take from this kernel.
	[ ! -f "$guest/kernels/$1/boot" ] || cp "$guest/kernels/$1/boot" "$work/kernels/$1/boot"
}

# some WORD...: only the first few
some() {
	printf '%s' "$1"
	shift
	[ $# -le 2 ] || set -- "$1" "and $(($# - 1)) more"
	[ $# -eq 0 ] || printf ', %s' "$@"
}

# build_mutant NAME: build its kernel to $work/next. If that fails, the reason is in $work/wrong.
build_mutant() {
	local where=$tree files=()
	rm -rf "$work/next" "$work/wrong"
	unmutate
	if [ -n "$(header "$1" Module)" ]; then
		where=$work
	else
		mapfile -t files < <(sed -n 's,^+++ b/,,p' "$mutants/$1.patch")
	fi
	# The ceiling: git must not find another repository above build/mutants/tree.
	if ! GIT_CEILING_DIRECTORIES=$BUILD kgit "$where" apply "$mutants/$1.patch"; then
		echo "DOES NOT APPLY to ${where#"$TOP/"}" >"$work/wrong"
	elif ! build again "$(kernel_of "$1")" "$work/next" "${files[@]}"; then
		echo "DOES NOT BUILD" >"$work/wrong"
	fi
}

# begin_build NAME: start the build in the background, while another mutant is tested
declare -A ids=()
begin_build() {
	ids[$1]=$(inputs_id "$(suite_of "$1")" <"$mutants/$1.patch")
	set -m
	build_mutant "$1" >"$tmp/build.log" 2>&1 </dev/null 8>&- &
	builder=$!
	set +m
}

# test_mutant NAME NEXT: start the build of NEXT, then test NAME. Sets verdict, and result to ok or not ok.
test_mutant() {
	local name=$1 expected test seen='' by='' rest='' run dir suite id rc hangs
	result='not ok' verdict=''
	wait "$builder" || true
	verdict=$(cat "$work/wrong" 2>/dev/null || true)
	[ -z "$verdict" ] || cat "$tmp/build.log" >&2
	[ -n "$verdict" ] || {
		rm -rf "$guest/kernels/$(kernel_of "$name")"
		mv "$work/next" "$guest/kernels/$(kernel_of "$name")"
		# Each archive is as large as the modules of its kernel.
		rm -f "$guest"/initramfs/*.cpio
	}
	[ -z "$2" ] || begin_build "$2"
	[ -z "$verdict" ] || return 0
	id=${ids[$name]}
	expected=$(header "$name" Killed-by)
	hangs=$(header "$name" Hangs)
	suite=$(suite_of "$name")
	rm -rf "$tmp/out"
	mkdir "$tmp/out"
	cp "$mutants/$name.patch" "$tmp/out/"
	while read -r -u 7 run; do
		run="$suite $run"
		dir=$(run_dir "$tmp/out" "$run")
		rc=0
		# shellcheck disable=SC2086
		run_tests "$dir" $run || rc=$?
		if [ $rc -eq "$EX_TIMEOUT" ] && [ -z "$hangs" ]; then
			# A busy machine reaches time limits, too.
			rc=0
			# shellcheck disable=SC2086
			SLOWDOWN=$((2 * ${SLOWDOWN:-1})) run_tests "$dir" $run || rc=$?
		fi
		[ $rc -ne 0 ] || continue
		seen+=" $("$TOP/scripts/killers.py" "$dir" "$hangs")"
		by='' rest=''
		for test in $seen; do
			if [[ " $expected " == *" $test "* ]]; then
				by+=" $test"
			else
				rest+=" $test"
			fi
		done
		[ -z "$by" ] || break
	done 7< <(header "$name" Run)

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

report() { # NAME
	n=$((n + 1))
	printf '%s %s %s\n' "$result" "$n" "$1" >>"$tmp/ktap"
}
n=0 tested=0
for name in "${names[@]}"; do
	[ -n "${before[$name]:-}" ] || continue
	result=${before[$name]%%: *}
	report "$name"
	[ "$result" = ok ] || step "$n/${#names[@]}, before: $name: ${before[$name]#*: }"
done
# One kernel after the other. Most mutants use the first one.
began=$(date +%s)
while read -r kernel; do
	batch=()
	for name in "${todo[@]}"; do
		[ "$(kernel_of "$name")" != "$kernel" ] || batch+=("$name")
	done
	[ ${#batch[@]} -gt 0 ] || continue
	unmutated_passes "$kernel"
	begin_build "${batch[0]}"
	for i in "${!batch[@]}"; do
		test_mutant "${batch[i]}" "${batch[i + 1]:-}"
		tested=$((tested + 1))
		report "${batch[i]}"
		step "$n/${#names[@]}, $(time_left "$began" "$tested" "${#todo[@]}"): ${batch[i]}: $verdict"
	done
done < <(sed 's/[[:space:]].*//; /^#/d; /^$/d' "$TOP/kernel-config/kernels")

{
	printf 'KTAP version 1\n1..%s\n' "$n"
	cat "$tmp/ktap"
} >"$results/ktap"
rc=$("$TOP/scripts/results.py" run "$results" code=0 why= guest_status=0 suite=mutants kernel=host topology= command=)
sed 's/.*: \([0-9]* passed, [0-9]* failed, [0-9]* skipped\).*/\1/' "$results/conclusion.txt"
exit "$rc"
