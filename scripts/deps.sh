#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Install missing Debian packages with apt-get, as root or with sudo.
#
# usage: [NO_DEPS=1] deps.sh [LIST]
#
# The file LIST, by default scripts/build/packages, names the packages. With NO_DEPS=1,
# packages do not matter: it installs nothing, and fails if a program or header in the
# comments of LIST is missing, or if gcc cannot link a static program, or busybox is not
# static.
set -euo pipefail
. "$(dirname "$0")/common.sh"
arguments 0 1 '' "$@"
list=${1:-$TOP/scripts/build/packages}
[ -f "$list" ] || die "no file $list"

[ "$(uname -m)" = x86_64 ] || die "the guest kernel is built natively: an x86_64 machine is needed, this is $(uname -m)"
if [ -n "${NO_DEPS:-}" ]; then
	# Other lists are those of single checks, which say themselves what is missing.
	[ "$list" = "$TOP/scripts/build/packages" ] || exit 0
	missing=()
	while read -r package programs; do
		for program in $programs; do
			[ -e "$program" ] || PATH=$PATH:/usr/sbin:/sbin command -v "$program" >/dev/null || missing+=("$program ($package)")
		done
	done < <(sed -n 's/^\([^#[:space:]]*\)[[:space:]]*#.*: \(.*\)$/\1 \2/p' "$list")
	# The programs of the guests are static, and so is its busybox.
	gcc -static -x c -o /dev/null - <<<'int main(void) { return 0; }' 2>/dev/null || missing+=("static C library for gcc -static (libc6-dev)")
	! ldd "$(PATH=$PATH:/usr/sbin:/sbin type -P busybox)" >/dev/null 2>&1 || missing+=("busybox that is static (busybox-static)")
	[ "${#missing[@]}" -eq 0 ] || die "missing (in brackets: the package of Debian): $(printf '%s, ' "${missing[@]}" | sed 's/, $//')"
	exit 0
fi
command -v dpkg-query >/dev/null ||
	die "not a Debian system: use make container, or install what it needs yourself and set NO_DEPS=1, which names what is missing"

mapfile -t packages < <(sed 's/[[:space:]]*#.*//; /^$/d' "$list")
[ "${#packages[@]}" -gt 0 ] || exit 0
installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${packages[@]}" 2>/dev/null | sed -n 's/^installed //p') || true
mapfile -t missing < <(printf '%s\n' "${packages[@]}" | grep -vxF -e "$installed")
[ "${#missing[@]}" -gt 0 ] || exit 0

as_root=()
[ "$(id -u)" = 0 ] || as_root=(sudo)
[ "$(id -u)" = 0 ] || command -v sudo >/dev/null || die "missing packages, and neither root nor sudo to install them: ${missing[*]}"
step "deps: installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() {
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 "$@" >"$log" 2>&1 </dev/null
}
# Old package lists name files that the mirror no longer has. Update the lists and try once more.
apt install --no-install-recommends "${missing[@]}" ||
	{ apt update && apt install --no-install-recommends "${missing[@]}"; } || {
	grep -E '^(E|W|Err):?' "$log" >&2 || tail -n 5 "$log" >&2
	die "apt-get could not install: ${missing[*]}"
}
