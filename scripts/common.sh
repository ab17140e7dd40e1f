# shellcheck shell=bash
# Sourced by every script here: where things are, how errors and progress are said.

TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
BUILD=${BUILD:-$TOP/build}
# Downloads, the imported base and ccache: survives `make clean`.
CACHE=${HMM_P2P_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/hmm-p2p}

# Exit codes, the same in every script; README.md lists them for users.
# shellcheck disable=SC2034
EX_FAIL=1 EX_USAGE=2 EX_APPLY=3 EX_CONFIG=4 EX_SPLAT=5 EX_PLAN=6 EX_DIED=7 EX_TIMEOUT=124 EX_PANIC=255

# die [-c CODE] MESSAGE: one line that says what is wrong and what to do.
die() {
	local code=$EX_USAGE
	if [ "$1" = -c ]; then
		code=$2
		shift 2
	fi
	printf '%s: %s\n' "${0##*/}" "$*" >&2
	exit "$code"
}

# step MESSAGE: progress, with the time since the command began.
step() {
	: "${STARTED:=$(date +%s)}"
	export STARTED
	local t=$(($(date +%s) - STARTED))
	printf '[%3d:%02d] %s\n' $((t / 60)) $((t % 60)) "$*" >&2
}
