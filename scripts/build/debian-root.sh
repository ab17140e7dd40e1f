#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Build a Debian root for the guest, or find it in the cache.
#
# usage: debian-root.sh LIST
#
# Prints the path of a cpio archive. Its folder /debian is a small Debian (forky, amd64)
# with the packages of the file LIST, one per line, and their dependencies. Their
# versions are those of the date in patches/BASE if snapshot.debian.org answers, and
# otherwise the newest. mmdebstrap makes the root; it needs no root if users may have
# namespaces. The archive stays in the cache until the list or this script changes
# (60 MB to download, 125 MB of disk). The file .packages beside it lists the versions.
# Manuals, locales and documentation are left out, except tests.
set -euo pipefail
. "$(dirname "$0")/../common.sh"
arguments 1 1 '' "$@"
# Not the suite of the machine, so that all machines test with the same packages. forky is the first suite whose rdma-core
# supports all that rxe can do with on-demand paging: version 56 of trixie has no prefetch.
suite=forky
[ -f "$1" ] || die "no such file: $1"
packages=$(sed 's/#.*//' "$1" | xargs | tr ' ' ,)
[ -n "$packages" ] || die "$1 names no package"

key=$({
	echo "$packages"
	base_field snapshot
	cat "$TOP/scripts/build/debian-root.sh"
} | sha256sum | cut -c 1-16)
dir=$CACHE/debian
out=$dir/$key.cpio
found() {
	[ ! -f "$out" ] || {
		echo "$out"
		exit 0
	}
}
found
command -v mmdebstrap >/dev/null || die "no mmdebstrap: apt-get install mmdebstrap"
mkdir -p "$dir"
lock 8 "$dir/lock" debian
found
need_space "$dir" 1
need_space "${TMPDIR:-/tmp}" 1
scratch "$dir"

# Runs in the new root, $1. Python decides by time stamps whether its compiled files are up to date, and the initramfs does not
# keep time stamps. Without this Python would compile everything at each start.
# shellcheck disable=SC2016 # for the shell of the hook
hook='set -e
exec >&2
cd "$1"
find usr/share/doc ! -type d ! -path "*/tests/*" -delete
find usr/share/doc -name "*.gz" -exec gunzip {} +
[ ! -x usr/bin/python3 ] ||
	chroot . python3 -m compileall -q -f --invalidation-mode unchecked-hash /usr/lib/python3* /usr/share/doc
echo packages:
chroot . dpkg-query -W
echo end
rm -rf usr/share/man usr/share/info usr/share/locale usr/share/i18n usr/share/misc usr/share/perl5 usr/share/zoneinfo \
	usr/share/bash-completion usr/lib/x86_64-linux-gnu/gconv usr/lib/x86_64-linux-gnu/systemd usr/lib/systemd usr/lib/udev \
	usr/lib/python3*/test usr/lib/python3*/pydoc_data var/lib/apt var/lib/dpkg var/cache var/log'

make_root() { # MIRROR
	local proxy
	# The only setting of the machine's apt that is used is the proxy. Snapshots expire after a week.
	proxy=$(apt-config shell proxy Acquire::http::Proxy | sed "s/^proxy='\(.*\)'$/\1/")
	rm -rf "$tmp"/{debian,root.tar}
	mkdir "$tmp/debian"
	: >"$tmp/unpack.log"
	# A process group of its own, because mmdebstrap sends it SIGHUP if it cannot write the archive.
	set -m
	(
		mmdebstrap --variant=essential --include="$packages" --components=main --architectures=amd64 --format=tar \
			--aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Check-Valid-Until "false"' \
			--aptopt='Acquire::Retries "1"' --aptopt='Acquire::http::Timeout "30"' \
			${proxy:+--aptopt="Acquire::http::Proxy \"$proxy\""} --customize-hook="$hook" "$suite" "$tmp/root.tar" "$1" 2>&1 |
			tee "$tmp/log" | while IFS= read -r line; do
			case $line in 'I: '*apt-get* | 'I: '*archives* | 'I: '*packages*) step "debian: ${line#I: }" ;; esac
		done
	) </dev/null &
	set +m
	wait $! && tar -xp --no-same-owner --exclude='./dev/*' -C "$tmp/debian" -f "$tmp/root.tar" 2>"$tmp/unpack.log"
}
step "debian: $suite with $packages"
for mirror in "$(base_field snapshot)" "$(base_field mirror)" ''; do
	[ -n "$mirror" ] || {
		{ grep -E '^(E|mmdebstrap):' "$tmp/log" || tail "$tmp/unpack.log"; } | sed -n 1p >&2
		die "cannot make a Debian $suite with $packages from $(base_field mirror): is there a network?"
	}
	step "debian: from $mirror"
	! make_root "$mirror" || break
done
sed '1,/^packages:$/d; /^end$/,$d' "$tmp/log" >"$dir/$key.packages"
# Without owners, because all programs in a guest run as root, and without /dev, which is mounted there.
(cd "$tmp" && find debian | LC_ALL=C sort | cpio -o -H newc -R 0:0 --quiet) >"$tmp/cpio"
mv "$tmp/cpio" "$out"
step "debian: $(wc -l <"$dir/$key.packages") packages, $(($(stat -c %s "$out") / 1000000)) MB"
echo "$out"
