#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Build Debian packages of build/tree, the base with all series.
#
# usage: [DEBUG=1] deb.sh [--dry-run] [CONFIG]
#
# The configuration is CONFIG (default: /boot/config of the running kernel) with
# kernel-config/hardware.config on top, without debugging information and without the
# distribution's certificates. With DEBUG=1, kernel-config/debug.config is merged, too.
# The packages go to build/deb. This takes an hour on eight processors, and 25 GiB of
# disk. To build on another distribution: make -C build/tree O=../deb/objects binrpm-pkg.
#
# --dry-run only writes and checks the configuration, and names what the build lacks.
set -euo pipefail
. "$(dirname "$0")/../common.sh"
arguments 0 1 --dry-run "$@"
[ -z "$opted" ] || shift
config=${1:-/boot/config-$(uname -r)}
[ -f "$config" ] || die "no $config: name a configuration, such as the file /boot/config-* of your distribution (make deb CONFIG=file)"
src=$BUILD/tree out=$BUILD/deb/objects wanted=$TOP/kernel-config/hardware.config name=-p2p${DEBUG:+-debug}
[ -f "$src/Kconfig" ] || die "no kernel tree in $src: run 'make tree' first"
mkdir -p "$out"
kmake() { make -s -C "$src" O="$out" LOCALVERSION="$name" KDEB_PKGVERSION="$(base_field version)-p2p" "$@"; }

step "deb: the configuration"
# The certificates of the distribution are not in its configuration. Debugging information is ten times as large as the kernel.
"$src/scripts/kconfig/merge_config.sh" -m -O "$out" "$config" ${DEBUG:+"$TOP/kernel-config/debug.config"} "$wanted" <(
	printf '%s=""\n' CONFIG_SYSTEM_TRUSTED_KEYS CONFIG_SYSTEM_REVOCATION_KEYS
	echo CONFIG_DEBUG_INFO_NONE=y
) >"$out/merge.log" || die -c "$EX_CONFIG" "$(tail -n 1 "$out/merge.log")"
kmake olddefconfig >"$out/config.log" 2>&1 || {
	cat "$out/config.log" >&2
	die -c "$EX_CONFIG" "olddefconfig failed in $src (a tree used without O= before needs: make mrproper)"
}
# kconfig drops silently what it cannot set.
lost=$(grep '^CONFIG_' "$wanted" | while IFS='=' read -r symbol value; do
	grep -qE "^$symbol=(y|$value)$" "$out/.config" || echo "$symbol"
done)
[ -z "$lost" ] || die -c "$EX_CONFIG" "kconfig does not set: $(xargs <<<"$lost")"
# The packages that the kernel's own packaging says it needs.
# shellcheck disable=SC2016 # a variable of mkdebian
needs=$(sed -n '/^Build-Depends:/,/^Homepage:/{/^Homepage:/d; s/^Build-Depends:/ /; s/^Build-Depends-Arch:/,/; s/<[^>]*>//g; s/gcc-${host_gnu}/gcc/; p}' \
	"$src/scripts/package/mkdebian" | xargs)
[ -n "$needs" ] || die "$src/scripts/package/mkdebian names no packages"
command -v dpkg-checkbuilddeps >/dev/null ||
	die "the configuration is $out/.config, but there is no dpkg-checkbuilddeps: apt-get install dpkg-dev, or build it as --help says"
missing=$(dpkg-checkbuilddeps -d "$needs" /dev/null 2>&1 | sed 's/.*: //; s/debhelper-compat ([^)]*)/debhelper/; s/:native//g') || true
if [ -n "$opted" ]; then
	echo "configuration: $out/.config, version $(kmake kernelrelease)"
	echo "missing packages: ${missing:-none}"
	echo "would run: make -C $src O=$out LOCALVERSION=$name -j$(nproc) bindeb-pkg"
	exit
fi
[ -z "$missing" ] || die "missing packages: apt-get install $missing"
need_space "$out" 25
step "deb: building $(kmake kernelrelease)"
kmake -j"$(nproc)" bindeb-pkg >"$out/build.log" 2>&1 || {
	grep -B 2 -A 5 -m 1 -E 'error:|Error ' "$out/build.log" >&2 || tail "$out/build.log" >&2
	die -c "$EX_FAIL" "the build failed: $out/build.log"
}
step "deb: done; to install: dpkg -i $BUILD/deb/linux-image-*.deb"
ls "$BUILD"/deb/*.deb
