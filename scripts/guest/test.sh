#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Run all suites in selftests/suites, or the named ones.
#
# usage: [KERNELS="..."] [JOBS=n] [LIST=soak|demo [FRESH=1]] test.sh [--kernels] ["SUITE ..." ["TOPOLOGY ..."]]
#
# TOPOLOGY and KERNELS limit the guest runs to these topologies and kernels. They do not
# limit runs on the host. JOBS guests run at the same time (default: one per processor).
# --kernels runs nothing, and prints the targets of make for the kernels that are needed.
# Results are in results/latest. vm.sh --help explains time limits, selftests/README.md
# which runs are repeated, and what is a flake.
#
# LIST=soak does the runs of the files "soak" in place of those of the files "runs". It
# continues where it was stopped, except with FRESH=1 (selftests/README.md).
#
# A suite is a folder with
#   runs      one guest run per line: KERNEL TOPOLOGY ARGUMENTS
#   run       the program that the guest runs with these arguments; prints KTAP
#   soak      for LIST=soak: runs that take too long for runs; a line
#             "host ARGUMENTS" runs the program host
#   demo      for LIST=demo: the runs of "make demo". LIST may also be the path of such a file
#   host      a program that prints KTAP on the host
#   may-skip  tests that may skip; for the format see this file of the suite hmm
#   same-results
#             pairs of runs, on two kernels, in which each test must have the same
#             result; see this file of the suite hmm
#   debian    packages of the Debian root of its guests, one per line
#   manifest  contents of its guests, in place of selftests/guest/manifest
#   icount, importer, exporter
#             how QEMU is called for its guests; see vm.sh --help
#   flaky     known flakes: KERNEL/TOPOLOGY TEST FAILURE REASON. The first three are
#             regular expressions. FAILURE must match the message in junit.xml
set -euo pipefail
. "$(dirname "$0")/../common.sh"
arguments 0 2 --kernels "$@"
kernels_only=$opted
[ -z "$kernels_only" ] || shift
suites_wanted=${1:-} topologies_wanted=${2:-}

# Check this now, not after an hour of tests.
[[ ${KCIDB_ORIGIN:-hmm_p2p} =~ ^[a-z0-9_]+$ ]] || die "KCIDB_ORIGIN=$KCIDB_ORIGIN: small letters, digits and _ only"
suites=$TOP/selftests/suites jobs=${JOBS:-$(nproc)} list=${LIST:-runs}
[ -n "$kernels_only" ] || took

# wanted VALUE LIST: is LIST empty, or does it contain VALUE?
wanted() { [ -z "$2" ] || [[ " $2 " == *" $1 "* ]]; }
SUITES=$suites_wanted TOPOLOGIES=$topologies_wanted "$TOP/scripts/list.sh" --check

# rows FILE: its lines without comments, each with single spaces
rows() { [ ! -f "$1" ] || sed 's/#.*//; s/[[:space:]]\{1,\}/ /g; s/^ //; s/ $//; /^$/d' "$1"; }

for suite in $suites_wanted; do
	[[ $list == */* ]] || [ -f "$suites/$suite/$list" ] || { [ "$list" = runs ] && [ -x "$suites/$suite/host" ]; } ||
		die "no file selftests/suites/$suite/$list, so there is nothing to run (the suite bench is only for make bench)"
done

# All runs: suite, and either "host" or kernel, topology and arguments.
todo=()
for dir in "$suites"/*/; do
	suite=$(basename "$dir")
	wanted "$suite" "$suites_wanted" || continue
	[ "$list" != runs ] || [ ! -x "$dir/host" ] || todo+=("$suite host")
	while read -r kernel topology args; do
		if [ "$kernel" = host ]; then
			todo+=("$suite host $topology $args")
			continue
		fi
		wanted "$kernel" "${KERNELS:-}" || continue
		wanted "$topology" "$topologies_wanted" || continue
		[ -n "$kernels_only" ] || [ -f "$BUILD/kernels/$kernel/stamp" ] || die "no kernel $kernel in $BUILD/kernels: run 'make kernel-$kernel' first"
		todo+=("$suite $kernel $topology $args")
	done < <(if [[ $list == */* ]]; then rows "$list"; else rows "$dir/$list"; fi)
done
[ ${#todo[@]} -gt 0 ] || die "nothing to do: no run of these suites has these topologies and kernels"
# Slow runs come first, so that no processor is idle at the end.
mapfile -t todo < <(printf '%s\n' "${todo[@]}" | awk '{ print ($2 == "host" ? 0 : $2 == "debug" ? 1 : 2) "\t" $0 }' | sort -s -k 1,1 | cut -f 2-)
for name in $topologies_wanted; do
	printf '%s\n' "${todo[@]}" | awk -v name="$name" '$2 != "host" && $3 == name { found = 1 } END { exit !found }' ||
		die "no run of these suites has the topology $name"
done

[ -z "$kernels_only" ] || {
	printf '%s\n' "${todo[@]}" | awk '$2 != "host" { print "kernel-" $2 }' | sort -u
	exit
}

# Download QEMU and the Debian root of a suite now. If that fails, it fails before an hour of tests.
"$TOP/scripts/build/tool.sh" qemu >/dev/null
while read -r suite; do
	[ ! -f "$suites/$suite/debian" ] || "$TOP/scripts/build/debian-root.sh" "$suites/$suite/debian" >/dev/null
done < <(printf '%s\n' "${todo[@]}" | awk '$2 != "host" { print $1 }' | sort -u)

scratch "${TMPDIR:-/tmp}"
# Each job is a process group (set -m), so that all of it ends with this script.
set -m

# The folder for the summary and for programs that run on the host. Its name has the id of the kernel under test.
for kernel in normal feature unpatched; do
	[ ! -f "$BUILD/kernels/$kernel/stamp" ] || break
done
summary=$TOP/results/$(base_field version)
[ ! -f "$BUILD/kernels/$kernel/stamp" ] || summary+=-$(series_id "$kernel")

folder() { # SUITE (host | KERNEL TOPOLOGY ARGUMENT...)
	case $2 in
	host) echo "$summary/$1" ;;
	*) results_dir "$2" "$3" "$1" "${*:4}" ;;
	esac
}

# judge_host DIR SUITE COMMAND...: run a command on the host and record the results that it prints
judge_host() {
	local dir=$1 suite=$2 rc=0 start=${EPOCHREALTIME/[.,]/} tenths repeat
	shift 2
	repeat=${*#"$TOP/"}
	[ "$suite" != checks ] || repeat='make test'
	rm -rf "$dir.part"
	mkdir -p "$dir.part"
	"$@" >"$dir.part/ktap" || rc=$?
	tenths=$(((${EPOCHREALTIME/[.,]/} - start) / 100000))
	"$TOP/scripts/guest/results.py" run "$dir.part" code=0 why= guest_status="$rc" suite="$suite" kernel=host topology= command= \
		start="$(date -u -d "@$((start / 1000000))" -Is)" seconds="$((tenths / 10)).$((tenths % 10))" folder="${dir#"$TOP/"}" \
		repeat="$repeat" >/dev/null
	rm -rf "$dir"
	mv "$dir.part" "$dir"
}

# lost DIR WHY SUITE KERNEL [TOPOLOGY [ARGUMENT...]]: record that a run could not start, as a failure
lost() {
	rm -rf "$1"
	mkdir -p "$1"
	: >"$1/ktap"
	[ "$4" != host ] || set -- "${@:1:4}"
	"$TOP/scripts/guest/results.py" run "$1" code="$EX_USAGE" why="could not run: $2" guest_status=0 suite="$3" kernel="$4" topology="${5:-}" \
		command="${5:+/suites/$3/run ${*:6}}" start="$(date -u -Is)" folder="${1#"$TOP/"}" >/dev/null
}

# A run that fails is repeated once. If everything is broken, repeating all runs would double the time.
most_repeated=5

# inputs_id WORD...: a hash of this line of todo and of everything on which its result depends
inputs_id() {
	{
		bench_id
		cat "$TOP/scripts/guest/test.sh"
		echo "$*" "${summary##*/}"
		[ "$2" = host ] || cat "$BUILD/kernels/$2/stamp" "$BUILD/kernels/$2/guest-modules.stamp"
	} | sha256sum | cut -c -64
}

job() { # SUITE (host | KERNEL TOPOLOGY ARGUMENT...)
	local suite=$1 dir rc=0 n
	dir=$(folder "$@")
	if [ "$2" = host ]; then
		judge_host "$dir" "$suite" "$suites/$suite/host" "${@:3}"
		return
	fi
	rm -rf "$dir" "$dir.first"
	"$TOP/scripts/guest/vm.sh" run -q -o "$dir" "$2" "$3" "/suites/$suite/run" "${@:4}" || rc=$?
	# A run that passed, or could not start, is not repeated.
	[ "$rc" -ne 0 ] && [ "$rc" -ne "$EX_USAGE" ] && [ -f "$dir/results.json" ] || return "$rc"
	: >"$tmp/failed.$BASHPID"
	n=$(find "$tmp" -name 'failed.*' | wc -l)
	[ "$n" -le "$most_repeated" ] || {
		echo "    not repeated: $most_repeated runs failed already"
		return "$rc"
	}
	echo "    once more:"
	mv "$dir" "$dir.first"
	"$TOP/scripts/guest/vm.sh" run -q -o "$dir" "$2" "$3" "/suites/$suite/run" "${@:4}" || true
	[ -f "$dir/results.json" ] || {
		mv "$dir.first" "$dir"
		return "$rc"
	}
	rc=$("$TOP/scripts/guest/results.py" repeated "$dir" "$dir.first") || {
		# Without results the run counts as one that could not start. The results of the second run alone must not count.
		rm "$dir/results.json"
		return "$EX_USAGE"
	}
	return "$rc"
}

folders=() finished=0 broken=0 ids=() before=() since=$EPOCHSECONDS
declare -A running=() began=()
finish() {
	local pid rc=0 n dir line words left=''
	wait -n -p pid || rc=$?
	n=${running[$pid]}
	unset "running[$pid]"
	finished=$((finished + 1))
	took "run ${todo[n]}" "${began[$n]}"
	dir=${folders[n]}
	read -r -a words <<<"${todo[n]}"
	if [ -f "$dir/results.json" ]; then
		line=$(cat "$dir/conclusion.txt")
		# Record it only if nothing that it depends on was edited meanwhile.
		[ -z "${ids[n]:-}" ] || [ "${ids[n]}" != "$(inputs_id "${words[@]}")" ] || echo "${ids[n]}" >"$dir/verdict"
	else
		broken=1
		line="${todo[n]}: could not run"
		lost "$dir" "$(tail -n 1 "$tmp/$n.out")" "${words[@]}"
	fi
	[ "$list" != soak ] ||
		left=", about $(((EPOCHSECONDS - since) * (${#todo[@]} - finished) / (finished - ${#before[@]}) / 60)) min left:"
	step "$finished/${#todo[@]}$left $line"
	[ "$rc" -eq 0 ] || cat "$tmp/$n.out" >&2
}

for n in "${!todo[@]}"; do
	read -r -a words <<<"${todo[n]}"
	dir=$(folder "${words[@]}")
	folders[n]=$dir
	[ "$list" = soak ] || continue
	ids[n]=$(inputs_id "${words[@]}")
	[ -z "${FRESH:-}" ] || rm -f "$dir/verdict"
	[ "${ids[n]}" = "$(cat "$dir/verdict" 2>/dev/null)" ] || continue
	before[n]=yes
	finished=$((finished + 1))
	step "$finished/${#todo[@]}, before: $(cat "$dir/conclusion.txt")"
done

already=
[ "$list" != soak ] || already=", ${#before[@]} of them done before"
step "${#todo[@]} runs$already, QEMU with ${ACCEL:-TCG (no KVM)}, $jobs side by side"
for n in "${!todo[@]}"; do
	[ -z "${before[n]:-}" ] || continue
	[ ${#running[@]} -lt "$jobs" ] || finish
	read -r -a words <<<"${todo[n]}"
	# With few runs, the first result takes a while.
	[ ${#todo[@]} -gt 12 ] || step "started: ${todo[n]}"
	job "${words[@]}" >"$tmp/$n.out" 2>&1 </dev/null &
	running[$!]=$n
	began[$n]=$EPOCHSECONDS
done
while [ ${#running[@]} -gt 0 ]; do finish; done

# Compare results of several runs, by the files "same-results" of the suites. The results are KTAP.
mkdir -p "$summary"
rm -f "$summary"/same-result-*.txt
n=0 compared=''
for suite in $(printf '%s\n' "${todo[@]}" | cut -d ' ' -f 1 | sort -u); do
	while IFS='|' read -r old new; do
		read -r -a words <<<"$old"
		read -r -a others <<<"$new"
		{ [ -f "$BUILD/kernels/${words[0]}/stamp" ] && [ -f "$BUILD/kernels/${others[0]}/stamp" ]; } || continue
		old=$(folder "$suite" "${words[@]}") new=$(folder "$suite" "${others[@]}")
		# Compare only runs of this call.
		if wanted "$old" "${folders[*]}" && wanted "$new" "${folders[*]}"; then
			result=ok
			seen=$("$TOP/scripts/guest/results.py" compare "$old" "$new" "$summary/same-result-$suite.txt") || result='not ok'
			n=$((n + 1))
			compared+="# $seen"$'\n'"$result $n same-result.$suite"$'\n'
			echo "    $seen" >&2
		fi
	done < <(rows "$suites/$suite/same-results")
done
rm -rf "$summary/checks"
if [ $n -gt 0 ]; then
	judge_host "$summary/checks" checks printf 'KTAP version 1\n1..%s\n%s' "$n" "$compared"
	folders+=("$summary/checks")
fi

rc=0
"$TOP/scripts/guest/results.py" summary "$summary" "${folders[@]}" >"$tmp/summary" || rc=$?
ln -sfn "$(basename "$summary")" "$TOP/results/latest"
sed 1d "$BUILD/times" | sort -k 1,1nr >"$summary/times.txt"
step "what took longest, in seconds (all: results/latest/times.txt)"
head -n 10 "$summary/times.txt" | sed 's/^/    /' | expand -t 12 >&2
[ $broken -eq 0 ] || rc=$EX_USAGE
page=$("$TOP/scripts/guest/report.py") || rc=$EX_USAGE
[ -z "$page" ] || step "as a page: $page"
[ $rc -eq 0 ] || step "exit $rc (make itself: 2). What failed: results/latest/results.json names the folders"
cat "$tmp/summary"
exit "$rc"
