#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Build a kernel, its modules, and the kernel selftests that the guest runs.
#
# usage: kernel.sh build KERNEL     (one of kernel-config/kernels)
#        kernel.sh again KERNEL DIR FILE...
#
# build: builds build/kernels/KERNEL/{bzImage,config,modules/,kselftest/,stamp}, with
# the drivers of selftests/modules. It builds nothing if source, configuration and
# compiler are the same as in the file stamp. The log is build/kernels/KERNEL.log. The
# source of the kernel "unpatched" is build/base. The source of "feature" is
# build/feature, a clone of build/tree at the tag series/1-hmm-p2p; of its modules only
# test_hmm is built. The source of the others is build/tree, uncommitted changes included.
# again: for mutants.py. The FILEs of the source tree (none: selftests/modules) were
# edited after the last build. DIR becomes a copy of build/kernels/KERNEL in which only
# the parts that depend on the FILEs are built again: modules, bzImage or the selftests.
set -euo pipefail
. "$(dirname "$0")/../common.sh"

arguments 2 999 '' "$@"
verb=$1 kernel=$2 src=$BUILD/tree
[ "$verb-$#" = build-2 ] || { [ "$verb" = again ] && [ $# -ge 3 ]; } || wrong_usage
case $kernel in
unpatched) src=$BUILD/base ;;
feature) src=$BUILD/feature ;;
esac
out=$src/out-$kernel dest=$BUILD/kernels/$kernel log=$BUILD/kernels/$kernel.log
[ -d "$src/.git" ] || [ "$kernel" = feature ] || die "no $src: run make tree"

# DEPEND: ccache learns from the compiler which files are included (see also ccache-gcc.sh). Preprocessing twice makes a cold build
# a sixth longer.
export CCACHE_DIR=$CACHE/ccache CCACHE_BASEDIR=$src CCACHE_NOHASHDIR=1 CCACHE_COMPRESS=1 CCACHE_MAXSIZE=10G CCACHE_DEPEND=1
# The same source gives the same kernel on each machine and at each time.
export KBUILD_BUILD_USER=hmm-p2p KBUILD_BUILD_HOST=localhost KBUILD_BUILD_TIMESTAMP='Thu Jan  1 00:00:00 UTC 1970'
unset KBUILD_OUTPUT O ARCH CROSS_COMPILE KCFLAGS MAKEFLAGS MFLAGS MAKELEVEL
export LC_ALL=C

# objects: how many were built
objects() { grep -cE '^  (CC|AS|LD|AR) ' "$log" || true; }

# kmake ARG...: run make in $src for $out. The output goes to $log, and a line of progress is printed now and then.
kmake() {
	local seconds=0 rc=0 make
	set -m
	# --pdeathsig: a make that outlives this script would hold the locks. O= is a relative path, a child of the source tree.
	# kbuild then uses relative paths, and ccache hits in whatever folder the tree is.
	# CONFIG_DRM_GPUSVM: drm_pagemap, which only xe selects. CONFIG_DRM_NOUVEAU_KUNIT_TEST: not in a fragment, because only the patches
	# have it. ccache finds the objects of "feature" for "normal" only if both have the same autoconf.h. Without nouveau it does nothing.
	setpriv --pdeathsig TERM make -C "$src" O="out-$kernel" -j "$(nproc)" "${make_tools[@]}" LOCALVERSION="-$kernel" \
		CONFIG_DRM_GPUSVM=m CONFIG_DRM_NOUVEAU_KUNIT_TEST=m "$@" \
		>>"$log" 2>&1 </dev/null &
	make=$!
	set +m
	while kill -0 "$make" 2>/dev/null; do
		sleep 1
		seconds=$((seconds + 1))
		[ $((seconds % 20)) -ne 0 ] ||
			step "$kernel: $(objects)${total:+ of about $total} objects, $(tail -n 1 "$log" | cut -c 1-60)"
	done
	wait "$make" || rc=$?
	[ "$rc" -eq 0 ] || {
		grep -E -A 4 'error:|warning:|undefined reference|modpost:|\*\*\* ' "$log" | tail -n 30 >&2
		die -c "$EX_FAIL" "$kernel: the build failed, the whole log is $log"
	}
}

# Everything that the result depends on. It has the id of the tree, not of the commit, so a new commit message builds nothing.
stamp() {
	printf 'tree %s\n' "$(kgit "$src" rev-parse 'HEAD^{tree}')"
	printf 'edits %s\n' "$({
		kgit "$src" diff HEAD
		kgit "$src" ls-files -oz --exclude-standard | (cd "$src" && xargs -0r sha256sum)
	} | sha256sum | cut -c 1-16)"
	printf 'config %s\n' "$(sha256sum "$out/.config" | cut -c 1-16)"
	printf 'compiler %s\n' "$(gcc --version | sed -n 1p)"
	printf 'recipe %s\n' "$(cat "$TOP"/scripts/build/{kernel,ccache-gcc}.sh "$TOP/selftests/programs/lib/slow.c" | sha256sum | cut -c 1-16)"
}

# up_to_date: is the kernel as it should be? Also sets want.
up_to_date() {
	"$TOP/scripts/build/config.sh" "$kernel" "$src" "$out" || exit
	want=$(stamp)
	[ "$(cat "$dest/stamp" 2>/dev/null)" = "$want" ] || return 1
	guest_modules
	step "$kernel: up to date"
}

# update_source: make build/feature what its tag in build/tree is now. Files that do not change keep their time stamps.
update_source() {
	[ "$kernel" = feature ] || return 0
	local tree=$BUILD/tree commit
	commit=$(kgit "$tree" rev-parse -q --verify "series/$feature^{commit}" 2>/dev/null) || die "build/tree has no series $feature: run make tree"
	if [ ! -d "$src/.git" ]; then
		step "$kernel: checking out build/feature"
		need_space "$BUILD" 4
		clone "$tree" "$tmp/feature" --shared
		kgit "$tmp/feature" checkout -q --detach "$commit"
		mv "$tmp/feature" "$src"
	fi
	[ -z "$(kgit "$src" status --porcelain)" ] ||
		die "build/feature has edits: make them in build/tree, commit them to $feature, and run make export"
	# The clone shares the objects of build/tree.
	[ "$(kgit "$src" rev-parse HEAD)" = "$commit" ] || kgit "$src" checkout -q --detach "$commit"
}

# make_kernel: build it, unless it is up to date
make_kernel() {
	# If nothing has to be built, do not wait for the build of another kernel.
	lock 7 "$BUILD/kernels/.$kernel.lock" "$kernel"
	update_source
	! up_to_date || return 0
	exec 7>&-
	lock 9 "$CACHE/kernel.lock" "$kernel"
	lock 7 "$BUILD/kernels/.$kernel.lock" "$kernel"
	! up_to_date || return 0

	need_space "$BUILD" 1
	local begin=$EPOCHSECONDS total='' record=/dev/null
	# The number of objects is known from the last build that began with none.
	[ -d "$out/kernel" ] || {
		record=$CACHE/objects-$kernel
		total=$(cat "$record" 2>/dev/null) || true
	}
	step "$kernel: building with $(nproc) processors, log in ${log#"$TOP/"}"
	: >"$log"
	if [ "$kernel" = feature ]; then
		# The only module, the same as in selftests/suites/{p2p-table,hmm}/manifest. modules_install reads modules.order.
		kmake bzImage
		kmake lib/test_hmm.ko
		echo lib/test_hmm.o >"$out/modules.order"
	else
		kmake bzImage modules
	fi

	objects >"$record"
	step "$kernel: installing"
	new=$tmp/new
	mkdir "$new"
	kmake INSTALL_MOD_PATH="$new/modules" INSTALL_MOD_STRIP=1 modules_install
	rm -f "$new"/modules/lib/modules/*/build
	cp "$out/arch/x86/boot/bzImage" "$new/bzImage"
	cp "$out/.config" "$new/config"
	selftests
	printf '%s\n' "$want" >"$new/stamp"
	rm -rf "$dest"
	mv "$new" "$dest"
	guest_modules
	took "kernel $kernel" "$begin"
	grep -E 'warning:' "$log" >&2 || true
	step "$kernel: done, $(grep -c 'warning:' "$log" || true) warnings"
}

# modules_of OBJECT: the modules that contain it. An object of no module is part of bzImage.
modules_of() {
	local dir=$1
	while [[ $dir == */* ]]; do
		dir=${dir%/*}
		(cd "$out" && grep -lxF -e "$1" "$dir"/*.mod 2>/dev/null | sed 's/[.]mod$/.ko/') || true
	done
}

# again DIR FILE...: see above. Only files that make builds now are copied. Files that it built for an earlier edit are not.
again() {
	local to=$1 file found ko whole='' image='' programs='' modules=()
	shift
	{ [ -f "$out/Module.symvers" ] && [ -f "$dest/stamp" ]; } || die "$kernel: kernel.sh build comes first"
	lock 7 "$BUILD/kernels/.$kernel.lock" "$kernel"
	: >"$log"
	rm -rf "$to"
	mkdir -p "${to%/*}"
	new=$tmp/new
	cp -r "$dest" "$new"
	for file; do
		case $file in
		tools/testing/selftests/*) programs=yes ;;
		*.c)
			mapfile -t found < <(modules_of "${file%.c}.o")
			[ ${#found[@]} -gt 0 ] || image=yes
			modules+=("${found[@]}")
			;;
		*) whole=yes ;;
		esac
	done
	touch "$tmp/begin"
	if [ -n "$whole" ]; then
		kmake bzImage modules
		rm -f "$new/guest-modules.stamp"
	else
		[ -z "$image" ] || kmake bzImage
		if [ ${#modules[@]} -gt 0 ]; then
			# make writes these two files for the named modules only. Restore those for all modules.
			cp -p "$out/modules.order" "$out/Module.symvers" "$tmp"
			kmake KBUILD_MODPOST_WARN=1 "${modules[@]}"
			mv "$tmp/modules.order" "$tmp/Module.symvers" "$out"
		fi
	fi
	[ ! "$out/arch/x86/boot/bzImage" -nt "$tmp/begin" ] || cp "$out/arch/x86/boot/bzImage" "$new/bzImage"
	while read -r ko; do
		strip --strip-debug -o "$tmp/module" "$out/$ko"
		mv "$tmp/module" "$(echo "$new"/modules/lib/modules/*/kernel)/$ko"
	done < <(find "$out" -name '*.ko' -newer "$tmp/begin" -printf '%P\n')
	[ -z "$programs" ] || {
		rm -rf "$new/kselftest"
		selftests
	}
	if [ $# -eq 0 ] || [ -n "$whole" ]; then
		dest=$new
		guest_modules
	fi
	mv "$new" "$to"
}

# Drivers that only the guests use.
guest_modules() {
	# The drivers need more patches than "feature" has.
	[ "$kernel" != feature ] || {
		: >"$dest/guest-modules.stamp"
		return 0
	}
	local sources=${MODULES:-$TOP/selftests/modules} id
	id=$({
		cat "$dest/stamp"
		cd "$sources" && find . -type f | LC_ALL=C sort | xargs sha256sum
	} | sha256sum | cut -c 1-16)
	[ "$id" != "$(cat "$dest/guest-modules.stamp" 2>/dev/null)" ] || return 0
	step "$kernel: building selftests/modules"
	# For modules outside the tree, kbuild does not notice a changed configuration.
	rm -rf "$BUILD/modules/$kernel"
	kmake M="$sources" MO="$BUILD/modules/$kernel" modules
	kmake M="$sources" MO="$BUILD/modules/$kernel" INSTALL_MOD_PATH="$dest/modules" INSTALL_MOD_STRIP=1 modules_install
	echo "$id" >"$dest/guest-modules.stamp"
}

# Linked statically, because the guest has no C library. Always built anew, because their make rules do not list all headers.
selftests() {
	local mm=$src/tools/testing/selftests/mm work=$out/kselftest-mm p
	# The harness ends a test after 30 s, also on a slow machine. slow.c multiplies this limit.
	local harness="-Wl,--wrap=poll $TOP/selftests/programs/lib/slow.c"
	kmake headers
	rm -rf "$work"
	mkdir -p "$work" "$new/kselftest/mm"
	make -C "$mm" OUTPUT="$work" CC='ccache gcc' EXTRA_CFLAGS="-static $harness" KHDR_INCLUDES="-isystem $out/usr/include" \
		"$work/hmm-tests" >>"$log" 2>&1 </dev/null || {
		tail -n 20 "$log" >&2
		die -c "$EX_FAIL" "$kernel: selftests/mm/hmm-tests does not build, the whole log is $log"
	}
	install -s "$work/hmm-tests" "$new/kselftest/mm"
	(cd "$mm" && install test_hmm.sh run_vmtests.sh settings ksft_hmm*.sh "$new/kselftest/mm")
	# The list for run_kselftest.sh, with only those tests that are installed here.
	{
		make -s --no-print-directory -C "$mm" OUTPUT="$work" COLLECTION=mm emit_tests >"$work/list" 2>>"$log" </dev/null &&
			(cd "$new/kselftest/mm" && printf 'mm:%s\n' *.sh) | grep -xFf - "$work/list" >"$new/kselftest/kselftest-list.txt"
	} || die -c "$EX_FAIL" "$kernel: selftests/mm lists no test, the whole log is $log"
	install "$src/tools/testing/selftests/run_kselftest.sh" "$new/kselftest"
	# The scripts of rdma source the helpers of the other one.
	for p in rdma kselftest; do
		mkdir "$new/kselftest/$p"
		install "$src/tools/testing/selftests/$p"/*.sh "$new/kselftest/$p"
	done
}

mkdir -p "$BUILD/kernels" "$CACHE"
scratch "$BUILD/kernels"
if [ "$verb" = again ]; then
	again "${@:3}"
else
	make_kernel
fi
