#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Find a QEMU that is new enough, or fetch one into the cache.
set -euo pipefail
. "$(dirname "$0")/common.sh"

usage() {
	cat <<'END'
usage: qemu.sh VERSION

Prints the path of a qemu-system-x86_64 of major version VERSION or later. This is
$QEMU or the QEMU of this machine, if it is new enough. Otherwise the script
downloads QEMU of Debian's trixie-backports, with all libraries, into the cache
(HMM_P2P_CACHE, default ~/.cache/hmm-p2p; 40 MB to download, 200 MB of disk). The
file "packages" beside it lists the versions. The packages and apt sources of this
machine do not change, and root is not needed.
END
}
arguments 1 1 '' "$@"
[[ $1 =~ ^[0-9]+$ ]] || die "$1: not a number"
least=$1 suite=trixie-backports

new_enough() { # QEMU
	local version
	version=$("$1" --version 2>/dev/null | sed -n '1s/.*version \([0-9]*\).*/\1/p') || return 1
	[ "${version:-0}" -ge "$least" ]
}
found() {
	new_enough "$1" || return 0
	command -v "$1"
	exit 0
}
out=$CACHE/qemu-$least
found "${QEMU:-qemu-system-x86_64}"
found "$out/qemu-system-x86_64"

mkdir -p "$CACHE"
exec 8>"$CACHE/qemu.lock"
flock -n 8 || {
	step "qemu: waiting for another run that fetches it"
	flock 8
	found "$out/qemu-system-x86_64"
}
need_space "$CACHE" 1
tmp=$(mktemp -d "$CACHE/qemu.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

"$TOP/scripts/debian-package.sh" "$tmp/qemu" "$suite" qemu-system-x86 ||
	die "cannot get QEMU $least or later: set QEMU to a qemu-system-x86_64 of that version"
cat >"$tmp/qemu/qemu-system-x86_64" <<'END'
#!/bin/sh
root=$(dirname "$0")/root
QEMU_MODULE_DIR=$root/usr/lib/x86_64-linux-gnu/qemu exec "$(dirname "$0")/run" qemu-system-x86_64 \
	-L "$root/usr/share/qemu" -L "$root/usr/share/seabios" -L "$root/usr/lib/ipxe/qemu" "$@"
END
chmod 755 "$tmp/qemu/qemu-system-x86_64"
new_enough "$tmp/qemu/qemu-system-x86_64" ||
	die "the $(grep '^qemu-system-x86\>' "$tmp/qemu/packages" | tr '\t' ' ') of $suite does not run here or is older than $least"
rm -rf "$out"
mv "$tmp/qemu" "$out"
step "qemu: $(grep '^qemu-system-x86\>' "$out/packages" | tr '\t' ' ')"
echo "$out/qemu-system-x86_64"
