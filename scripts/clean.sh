#!/bin/bash
# Remove what was built.
set -euo pipefail
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/series.sh"

usage() {
	cat <<'END'
usage: clean.sh [--all]

Removes build/ and results/; with --all the cache too (base, ccache). Refuses
while build/tree has work that is not in patches/.
END
}
all=
case ${1:-} in
'') ;;
--all) all=1 ;;
--help)
	usage
	exit 0
	;;
*)
	usage >&2
	exit "$EX_USAGE"
	;;
esac

if [ -f "$record" ]; then
	work=$(tree_work)
	[ -z "$work" ] || die "build/tree has work that is not in patches/ ($work): make export, or remove build/tree yourself"
fi
rm -rf "$BUILD" "$TOP/results"
[ -z "$all" ] || rm -rf "$CACHE"
