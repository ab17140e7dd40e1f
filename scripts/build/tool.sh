#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Find a program that is new enough, or fetch one into the cache. Prints its path.
#
# usage: tool.sh b4             0.14 or later, which has `prep --check`
#        tool.sh qemu           qemu-system-x86_64 11 or later
#        tool.sh sparse TREE    one that scripts/checker-valid.sh of the kernel tree
#                               TREE accepts; with an older one C=1 checks nothing
#
# The program is $B4, $QEMU or $SPARSE, or that of this machine, if it is new enough.
# Otherwise the script downloads that of another Debian suite into the cache with
# debian-package.sh (QEMU with all libraries takes 40 MB to download and 200 MB of disk,
# the others at most 3 MB). b4 needs the Python modules on which Debian's package b4
# depends. The file "packages" beside the program lists the versions.
set -euo pipefail
. "$(dirname "$0")/../common.sh"
arguments 1 2 '' "$@"

what=$1 program=$1 package=$1 packages=("$1") out=$CACHE/$1 only=--only
case $#-$what in
1-b4)
	# A stable release, so the version does not change.
	suite=trixie
	good() { [ "$(printf '0.14\n%s\n' "$("$1" --version 2>/dev/null || echo 0)" | sort -V | head -n 1)" = 0.14 ]; }
	# PYTHONPATH would be inherited by the programs that b4 starts.
	wrapper='#!/usr/bin/python3
import os, sys
root = os.path.join(os.path.dirname(os.path.realpath(__file__)), "root/usr/lib/python3/dist-packages")
sys.path.insert(0, root)
from b4.command import cmd
cmd()'
	;;
1-qemu)
	# 11 is the first one with all that the bench uses: devices in other processes (vfio-user), dma-remap of the AMD IOMMU, high
	# BARs. In 7.2 a register access of one processor goes to a wrong address if another one changes the memory map meanwhile,
	# which each boot does (selftests/programs/registers.c).
	suite=trixie-backports
	program=qemu-system-x86_64 package=qemu-system-x86 packages=(qemu-system-x86) out=$CACHE/qemu-11 only=
	good() {
		local version
		version=$("$1" --version 2>/dev/null | sed -n '1s/.*version \([0-9]*\).*/\1/p') && [ "${version:-0}" -ge 11 ]
	}
	# shellcheck disable=SC2016 # for the shell of the script
	wrapper='#!/bin/sh
root=$(dirname "$0")/root
QEMU_MODULE_DIR=$root/usr/lib/x86_64-linux-gnu/qemu exec "$(dirname "$0")/run" qemu-system-x86_64 \
	-L "$root/usr/share/qemu" -L "$root/usr/share/seabios" -L "$root/usr/lib/ipxe/qemu" "$@"'
	;;
2-sparse)
	valid=$2/scripts/checker-valid.sh suite=sid
	[ -f "$valid" ] || die "no $valid"
	# Without its dependencies but the C library. It depends on gcc for a program that is not used here.
	packages+=(libc6)
	good() { [ "$(sh "$valid" "$1" 2>/dev/null)" = 1 ]; }
	# shellcheck disable=SC2016
	wrapper='#!/bin/sh
exec "$(dirname "$0")/run" sparse "$@"'
	;;
*) wrong_usage ;;
esac
variable=${what^^}
found() { # PROGRAM
	if command -v "$1" >/dev/null && good "$1"; then
		command -v "$1"
		exit 0
	fi
}
found "${!variable:-$program}"
[ -z "${!variable:-}" ] || die "$variable=${!variable}: does not run here, or is too old (--help names the versions)"
found "$out/$program"

mkdir -p "$CACHE"
lock 8 "$CACHE/$what.lock" "$what"
found "$out/$program"
need_space "$CACHE" 1
scratch "$CACHE"
"$TOP/scripts/build/debian-package.sh" ${only:+"$only"} "$tmp/out" "$suite" "${packages[@]}" ||
	die "cannot get a $program that is new enough: set $variable to one"
printf '%s\n' "$wrapper" >"$tmp/out/$program"
chmod 755 "$tmp/out/$program"
version=$(grep "^$package\>" "$tmp/out/packages" | tr '\t' ' ')
good "$tmp/out/$program" || die "the $version of Debian $suite does not run here, or is too old: set $variable to one that does (b4 needs the Python modules of the package b4)"
rm -rf "$out"
mv "$tmp/out" "$out"
step "$what: $version"
echo "$out/$program"
