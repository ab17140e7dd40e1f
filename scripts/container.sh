#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Run a command in a container with Debian 13.
#
# usage: container.sh [COMMAND...]
#
# Builds an image from Containerfile with podman or docker, and runs COMMAND (default: a
# shell) in it, with this repository as the working folder and the cache mounted. In the
# container "make", "make test" and "make check" work as on Debian. KERNEL_TREE=dir is
# mounted, too. /dev/kvm is not.
set -euo pipefail
. "$(dirname "$0")/common.sh"
arguments 0 99 '' "$@"
engine=$(command -v podman || command -v docker) || die "neither podman nor docker is installed"
step "container: building the image hmm-p2p with $engine (the first time it installs about 2 GB)"
"$engine" build -q -t hmm-p2p -f "$TOP/Containerfile" "$TOP" >/dev/null || die "$engine could not build the image"
mkdir -p "$CACHE"
run=(run --rm --security-opt label=disable -v "$TOP:/hmm-p2p" -v "$CACHE:/cache" -e HMM_P2P_CACHE=/cache)
[ -z "${KERNEL_TREE:-}" ] || run+=(-v "$(realpath "$KERNEL_TREE"):/kernel-tree" -e KERNEL_TREE=/kernel-tree)
[ ! -t 0 ] || run+=(-it)
exec "$engine" "${run[@]}" hmm-p2p "${@:-bash}"
