#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Find a b4 that has `prep --check`, or fetch one into the cache.
set -euo pipefail
. "$(dirname "$0")/common.sh"

usage() {
	cat <<'END'
usage: b4.sh

Prints the path of b4 0.14 or later, which is needed for `prep --check`. This is $B4
or the b4 of this machine, if it is new enough. Otherwise the script downloads b4 of
Debian trixie into the cache (HMM_P2P_CACHE, default ~/.cache/hmm-p2p; 1 MB). It
needs the Python modules on which Debian's package b4 depends.
END
}
arguments 0 0 '' "$@"
# A stable release, so the version does not change.
suite=trixie

found() { # B4
	local version
	command -v "$1" >/dev/null || return 0
	version=$("$1" --version 2>/dev/null) || return 0
	[ "$(printf '0.14\n%s\n' "$version" | sort -V | head -n 1)" = 0.14 ] || return 0
	command -v "$1"
	exit 0
}
out=$CACHE/b4
found "${B4:-b4}"
found "$out/b4"
mkdir -p "$CACHE"
exec 8>"$CACHE/b4.lock"
flock 8
found "$out/b4"

tmp=$(mktemp -d "$CACHE/b4.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
"$TOP/scripts/debian-package.sh" --only "$tmp/out" $suite b4 ||
	die "cannot get b4 0.14 or later: set B4 to one"
# PYTHONPATH would be inherited by the programs that b4 starts.
cat >"$tmp/out/b4" <<'END'
#!/usr/bin/python3
import os, sys
root = os.path.join(os.path.dirname(os.path.realpath(__file__)), "root/usr/lib/python3/dist-packages")
sys.path.insert(0, root)
from b4.command import cmd
cmd()
END
chmod 755 "$tmp/out/b4"
rm -rf "$out"
mv "$tmp/out" "$out"
step "b4: $(grep '^b4\>' "$out/packages" | tr '\t' ' ')"
found "$out/b4"
die "the $(grep '^b4\>' "$out/packages" | tr '\t' ' ') of Debian $suite does not run here: install the package b4, whose Python modules it needs, or set B4"
