#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Find a sparse that understands this kernel, or fetch one into the cache.
set -euo pipefail
. "$(dirname "$0")/common.sh"

usage() {
	cat <<'END'
usage: sparse.sh TREE

Prints the path of a sparse that scripts/checker-valid.sh of the kernel tree TREE
accepts. With an older sparse, C=1 checks nothing. This is $SPARSE or the sparse of
this machine, if it is new enough. Otherwise the script downloads sparse of Debian
sid into the cache (HMM_P2P_CACHE, default ~/.cache/hmm-p2p; 3 MB).
END
}
arguments 1 99 '' "$@"
valid=$1/scripts/checker-valid.sh
[ -x "$valid" ] || [ -f "$valid" ] || die "no $valid"

found() { # SPARSE
	command -v "$1" >/dev/null || return 0
	[ "$(sh "$valid" "$1" 2>/dev/null)" = 1 ] || return 0
	command -v "$1"
	exit 0
}
out=$CACHE/sparse
found "${SPARSE:-sparse}"
found "$out/sparse"
mkdir -p "$CACHE"
exec 8>"$CACHE/sparse.lock"
flock 8
found "$out/sparse"

tmp=$(mktemp -d "$CACHE/sparse.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
# Without its dependencies. It depends on gcc for a program that is not used here.
"$TOP/scripts/debian-package.sh" --only "$tmp/out" sid sparse libc6
# shellcheck disable=SC2016 # for the shell of the script
printf '#!/bin/sh\nexec "$(dirname "$0")/run" sparse "$@"\n' >"$tmp/out/sparse"
chmod 755 "$tmp/out/sparse"
rm -rf "$out"
mv "$tmp/out" "$out"
step "sparse: $(grep '^sparse\>' "$out/packages" | tr '\t' ' ')"
found "$out/sparse"
die "the $(grep '^sparse\>' "$out/packages" | tr '\t' ' ') of Debian sid does not work for $1: set SPARSE to one that does"
