#!/bin/bash
# Run shellcheck and shfmt over every shell script, or those named; check the order of what has one, and the pictures.
set -euo pipefail
. "$(dirname "$0")/common.sh"
[ "${1:-}" != --help ] || {
	echo "usage: check-scripts.sh [FILE...]   (needs shellcheck and shfmt)"
	exit 0
}
for t in shellcheck shfmt; do
	command -v "$t" >/dev/null || die "no $t: apt-get install $t"
done
cd "$TOP"
rc=0
mapfile -t scripts < <(git ls-files -- "$@" | grep -v '^patches/' | while IFS= read -r f; do
	case $f in
	*.sh) echo "$f" ;;
	*) [ ! -f "$f" ] || ! head -n 1 "$f" | grep -E '^#!.*[/ ](ba|busybox )?sh( |$)' >/dev/null || echo "$f" ;;
	esac
done)
if [ "${#scripts[@]}" -gt 0 ]; then
	shellcheck "${scripts[@]}" || rc=$EX_FAIL
	shfmt -d "${scripts[@]}" || rc=$EX_FAIL
fi
for f in kernel-config/*.config; do
	sed -nE 's/^(# )?(CONFIG_[A-Za-z0-9_]+)(=.*| is not set)$/\2/p' "$f" | LC_ALL=C sort -c || {
		echo "$f is not sorted" >&2
		rc=$EX_FAIL
	}
done
sed 's/[[:space:]]*#.*//; /^$/d' scripts/packages | LC_ALL=C sort -c || rc=$EX_FAIL
scripts/topology.py --check || rc=$EX_FAIL
exit "$rc"
