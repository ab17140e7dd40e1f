#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Remove build/ and results/.
#
# usage: clean.sh [--all]
#
# With --all it also removes the cache (the base, ccache, QEMU 11 and other downloads).
# The cache may be a folder with other files of the user: they stay.
# Refuses if build/tree has work that is not in patches/, a stash, or another branch.
set -euo pipefail
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/patches/series.sh"
arguments 0 0 --all "$@"

if [ -f "$record" ]; then
	work=$(tree_work)
	[ -z "$work" ] || die "build/tree has work that is not in patches/ ($work): make export, or remove build/tree yourself"
	work=$(kgit "$tree" for-each-ref --format='%(refname:short)' --no-merged HEAD refs/heads refs/stash | xargs)
	[ -z "$work" ] || die "build/tree has commits that are not in patches/ ($work): remove them, or build/tree, yourself"
fi
rm -rf "$BUILD" "$TOP/results"
if [ -n "$opted" ] && [ -d "$CACHE" ]; then
	rm -rf "$CACHE"/{*.git,b4,ccache,debian,linux-*,mutants,objects-*,perftest-*,qemu-*,rdma-core-*,sparse,*.lock}
	rmdir "$CACHE" 2>/dev/null || step "clean: left in $CACHE: $(cd "$CACHE" && echo *)"
fi
