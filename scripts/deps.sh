#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Install the Debian packages of scripts/packages that are missing.
set -euo pipefail
. "$(dirname "$0")/common.sh"

usage() {
	cat <<'END'
usage: deps.sh [--check] [LIST]

Installs missing packages with apt-get, as root or with sudo. The file LIST, by
default scripts/packages, names the packages. --check installs nothing and fails if
a package is missing.
END
}
check=
case ${1:-} in
--check)
	check=1
	shift
	;;
--help)
	usage
	exit 0
	;;
-*)
	usage >&2
	exit "$EX_USAGE"
	;;
esac

list=${1:-$TOP/scripts/packages}
[ -f "$list" ] || die "no file $list"

[ "$(uname -m)" = x86_64 ] || die "the guest kernel is built natively: an x86_64 machine is needed, this is $(uname -m)"
command -v dpkg-query >/dev/null || die "not a Debian system: install the equivalents of these packages yourself: $(sed 's/[[:space:]]*#.*//; /^$/d' "$list" | xargs)"

mapfile -t packages < <(sed 's/[[:space:]]*#.*//; /^$/d' "$list")
[ "${#packages[@]}" -gt 0 ] || exit 0
mapfile -t missing < <(
	comm -23 <(printf '%s\n' "${packages[@]}" | LC_ALL=C sort) \
		<(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${packages[@]}" 2>/dev/null | sed -n 's/^installed //p' | LC_ALL=C sort -u)
)
[ "${#missing[@]}" -gt 0 ] || exit 0
[ -z "$check" ] || die "missing packages: ${missing[*]} (make installs them)"

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
