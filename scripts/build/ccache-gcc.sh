#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# The compiler of kernels: gcc with ccache, but without it for assembly. In depend mode ccache does not see `.incbin`. For
# piggy.S, which includes the compressed kernel, it returned that of an earlier build if both had the same length.
case ${*: -1} in
*.S) exec gcc "$@" ;;
esac
exec ccache gcc "$@"
