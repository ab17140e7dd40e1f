#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Build a kernel, its modules and the kernel selftests the guest runs.
set -euo pipefail
. "$(dirname "$0")/common.sh"

usage() {
	cat <<'END'
usage: kernel.sh build KERNEL...     (the kernels of kernel-config/kernels)
       kernel.sh core KERNEL...

build: builds build/kernels/KERNEL/{bzImage,config,modules/,kselftest/,stamp};
nothing when source, configuration and compiler are those of the stamp. The whole
log is in build/kernels/KERNEL.log. `unpatched` is built from build/base, the
others from build/tree as it stands; with the guest's own modules,
selftests/modules.
core: only what `make` boots, bzImage and test_hmm. A later build goes on from there.
END
}

# Programs of tools/testing/selftests/mm that the guest runs, and the files they need.
mm_programs=(hmm-tests)
mm_files=(test_hmm.sh run_vmtests.sh settings ksft_hmm*.sh)
# Folders of tools/testing/selftests whose scripts the guest runs; those of rdma read the helpers in the other one.
script_folders=(rdma kselftest)
# The modules of the core: those of selftests/suites/table/manifest.
core_modules=(lib/test_hmm.ko)

verb=${1:-}
case $verb in
build | core) [ $# -ge 2 ] || {
	usage >&2
	exit "$EX_USAGE"
} ;;
--help)
	usage
	exit 0
	;;
*)
	usage >&2
	exit "$EX_USAGE"
	;;
esac
shift

# DEPEND: what a file includes is learnt from the compiler. To preprocess it twice makes a cold build a sixth longer.
export CCACHE_DIR=$CACHE/ccache CCACHE_NOHASHDIR=1 CCACHE_COMPRESS=1 CCACHE_MAXSIZE=10G CCACHE_DEPEND=1
# The same source is the same kernel, whoever builds it and when.
export KBUILD_BUILD_USER=hmm-p2p KBUILD_BUILD_HOST=localhost KBUILD_BUILD_TIMESTAMP='Thu Jan  1 00:00:00 UTC 1970'
unset KBUILD_OUTPUT O ARCH CROSS_COMPILE KCFLAGS MAKEFLAGS MFLAGS MAKELEVEL
export LC_ALL=C

job=
tmp=
# The build runs as a process group of its own, so that an interrupt leaves nothing of it behind.
stop() {
	trap '' INT TERM
	[ -z "$job" ] || kill -- "-$job" 2>/dev/null || true
	[ -z "$job" ] || wait "$job" 2>/dev/null || true
	[ -z "$tmp" ] || rm -rf "$tmp"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# kmake ARG...: make in $src for $out, into $log; a line of progress now and then.
kmake() {
	local seconds=0 objects rc=0
	set -m
	# No make outlives this script: it would hold the locks. The O= directory is a direct child of the source tree and
	# named relatively: then kbuild itself uses relative paths, and ccache hits from whatever folder.
	setpriv --pdeathsig TERM make -C "$src" O="out-$kernel" -j "$(nproc)" "${make_tools[@]}" LOCALVERSION="-$kernel" "$@" \
		>>"$log" 2>&1 </dev/null &
	job=$!
	set +m
	while kill -0 "$job" 2>/dev/null; do
		sleep 1
		seconds=$((seconds + 1))
		[ $((seconds % 20)) -ne 0 ] || {
			objects=$(grep -cE '^  (CC|AS|LD|AR) ' "$log" || true)
			step "$kernel: $objects objects, $(tail -n 1 "$log" | cut -c 1-60)"
		}
	done
	wait "$job" || rc=$?
	job=
	[ "$rc" -eq 0 ] || {
		grep -E -A 4 'error:|warning:|undefined reference|modpost:|\*\*\* ' "$log" | tail -n 30 >&2
		die -c "$EX_FAIL" "$kernel: the build failed, the whole log is $log"
	}
}

# lock FD FILE: until the descriptor is closed
lock() {
	eval "exec $1>\"\$2\""
	flock -n "$1" || {
		step "$kernel: waiting for another kernel build"
		flock "$1"
	}
}

# What the result depends on. The tree's own id, not its commit's: an amended message builds nothing.
stamp() {
	printf 'tree %s\n' "$(kgit "$src" rev-parse 'HEAD^{tree}')"
	printf 'edits %s\n' "$({
		kgit "$src" diff HEAD
		kgit "$src" ls-files -oz --exclude-standard | (cd "$src" && xargs -0r sha256sum)
	} | sha256sum | cut -c 1-16)"
	printf 'config %s\n' "$(sha256sum "$out/.config" | cut -c 1-16)"
	printf 'compiler %s\n' "$(gcc --version | sed -n 1p)"
	printf 'recipe %s\n' "$(sha256sum "$TOP/scripts/kernel.sh" | cut -c 1-16)"
}

# up_to_date: sets want, too
up_to_date() {
	local have
	"$TOP/scripts/config.sh" "$kernel" "$src" "$out" || exit
	want=$(stamp)
	have=$(cat "$dest/stamp" 2>/dev/null || true)
	case $verb,$have in
	core,"$want"$'\nparts core') ;;
	*,"$want"$'\nparts all') [ "$verb" = core ] || guest_modules ;;
	*) return 1 ;;
	esac
	step "$kernel: up to date"
}

# make_kernel KERNEL: all of it, or the core (see usage).
make_kernel() {
	kernel=$1
	src=$BUILD/tree
	[ "$kernel" != unpatched ] || src=$BUILD/base
	out=$src/out-$kernel
	dest=$BUILD/kernels/$kernel
	log=$BUILD/kernels/$kernel.log
	[ -d "$src/.git" ] || die "no $src: run make tree"
	export CCACHE_BASEDIR=$src

	# Who needs no build does not wait for that of another kernel, nor for one that waits for it.
	lock 7 "$BUILD/kernels/.$kernel.lock"
	! up_to_date || return 0
	exec 7>&-
	lock 9 "$CACHE/kernel.lock"
	lock 7 "$BUILD/kernels/.$kernel.lock"
	! up_to_date || return 0

	need_space "$BUILD" 3
	local begin
	begin=$(date +%s)
	step "$kernel: building with $(nproc) processors, log in ${log#"$TOP/"}"
	: >"$log"
	if [ "$verb" = core ]; then
		kmake bzImage
		kmake "${core_modules[@]}"
		# What modules_install goes by.
		printf '%s\n' "${core_modules[@]/%.ko/.o}" >"$out/modules.order"
	else
		kmake bzImage modules
	fi

	step "$kernel: installing"
	[ -z "$tmp" ] || rm -rf "$tmp"
	tmp=$(mktemp -d "$BUILD/kernels/.$kernel.XXXXXX")
	chmod 755 "$tmp"
	kmake INSTALL_MOD_PATH="$tmp/modules" INSTALL_MOD_STRIP=1 modules_install
	rm -f "$tmp"/modules/lib/modules/*/build
	# Or the rest of the build, later, would take these for its own.
	[ "$verb" != core ] || rm "$out/modules.order" "$out/Module.symvers"
	cp "$out/arch/x86/boot/bzImage" "$tmp/bzImage"
	cp "$out/.config" "$tmp/config"
	if [ "$verb" = core ]; then
		printf '%s\nparts core\n' "$want" >"$tmp/stamp"
	else
		selftests
		printf '%s\nparts all\n' "$want" >"$tmp/stamp"
	fi
	rm -rf "$dest"
	mv "$tmp" "$dest"
	tmp=
	[ "$verb" = core ] || guest_modules
	took "kernel $kernel" "$begin"
	exec 9>&-

	grep -E 'warning:' "$log" >&2 || true
	step "$kernel: done, $(grep -c 'warning:' "$log" || true) warnings"
}

# Drivers that only the guests use.
guest_modules() {
	local sources=${MODULES:-$TOP/selftests/modules} id
	id=$({
		cat "$dest/stamp"
		cd "$sources" && find . -type f | LC_ALL=C sort | xargs sha256sum
	} | sha256sum | cut -c 1-16)
	[ "$id" != "$(cat "$dest/guest-modules.stamp" 2>/dev/null)" ] || return 0
	step "$kernel: building selftests/modules"
	# Out of the tree, kbuild does not notice another configuration.
	rm -rf "$BUILD/modules/$kernel"
	kmake M="$sources" MO="$BUILD/modules/$kernel" modules
	kmake M="$sources" MO="$BUILD/modules/$kernel" INSTALL_MOD_PATH="$dest/modules" INSTALL_MOD_STRIP=1 modules_install
	echo "$id" >"$dest/guest-modules.stamp"
}

# Static, for the guest has no C library. The programs are always built anew: their rules do not know every header.
selftests() {
	local mm=$src/tools/testing/selftests/mm work=$out/kselftest-mm p
	# The harness ends a test after 30 s, on any machine.
	local harness="-Wl,--wrap=poll $TOP/selftests/programs/lib/slow.c"
	kmake headers
	rm -rf "$work"
	mkdir -p "$work" "$tmp/kselftest/mm"
	for p in "${mm_programs[@]}"; do
		make -C "$mm" OUTPUT="$work" CC='ccache gcc' EXTRA_CFLAGS="-static $harness" KHDR_INCLUDES="-isystem $out/usr/include" \
			"$work/$p" >>"$log" 2>&1 </dev/null || {
			tail -n 20 "$log" >&2
			die -c "$EX_FAIL" "$kernel: selftests/mm/$p does not build, the whole log is $log"
		}
		install -s "$work/$p" "$tmp/kselftest/mm/$p"
	done
	# shellcheck disable=SC2068 # patterns
	(cd "$mm" && install ${mm_files[@]} "$tmp/kselftest/mm")
	# For run_kselftest.sh: of the list that an installation has, the tests that are here.
	{
		make -s --no-print-directory -C "$mm" OUTPUT="$work" COLLECTION=mm emit_tests >"$work/list" 2>>"$log" </dev/null &&
			(cd "$tmp/kselftest/mm" && printf 'mm:%s\n' *.sh) | grep -xFf - "$work/list" >"$tmp/kselftest/kselftest-list.txt"
	} || die -c "$EX_FAIL" "$kernel: selftests/mm lists no test, the whole log is $log"
	install "$src/tools/testing/selftests/run_kselftest.sh" "$tmp/kselftest"
	for p in "${script_folders[@]}"; do
		mkdir "$tmp/kselftest/$p"
		install "$src/tools/testing/selftests/$p"/*.sh "$tmp/kselftest/$p"
	done
}

mkdir -p "$BUILD/kernels" "$CACHE"
for k; do
	make_kernel "$k"
done
