# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# Sourced instead of lib.sh by checks that compile. They compile only files that the patches touch.

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

export CCACHE_DIR=$CACHE/ccache CCACHE_NOHASHDIR=1 CCACHE_COMPRESS=1 CCACHE_MAXSIZE=10G CCACHE_BASEDIR=$work
export KBUILD_BUILD_USER=hmm-p2p KBUILD_BUILD_HOST=localhost KBUILD_BUILD_TIMESTAMP='Thu Jan  1 00:00:00 UTC 1970'
unset KBUILD_OUTPUT O ARCH CROSS_COMPILE KCFLAGS MAKEFLAGS MFLAGS MAKELEVEL

# kmake OUT ARG...: run make in $work
kmake() { make -C "$work" O="out-$1" -j "$(nproc)" "${make_tools[@]}" "${@:2}" </dev/null; }

# configure OUT: the configuration of the kernel `normal` in $work/out-OUT, plus the touched files that `normal` leaves out
configure() {
	"$TOP/scripts/build/config.sh" normal "$work" "$work/out-$1" "$checks/touched.config" || fail "no configuration"
	"$work/scripts/config" --file "$work/out-$1/.config" -e DMA_API_DEBUG
	kmake "$1" olddefconfig >"$OUT/config.log" 2>&1 || fail "no configuration: $(tail -n 1 "$OUT/config.log")"
	cp "$work/out-$1/.config" "$OUT/config"
}

# at_configured OUT COMMIT: check it out, with the configuration of configure(). Before a patch, its new symbols are lost.
at_configured() {
	at "$2"
	cmp -s "$OUT/config" "$work/out-$1/.config" || cp "$OUT/config" "$work/out-$1/.config"
}

# is_set OUT SYMBOL: is it set in the configuration?
is_set() { grep -qE "^CONFIG_$2=[ym]\$" "$work/out-$1/.config"; }

# list_objects OUT [SYMBOL...]: set $objects to those that this configuration compiles. One may be missing only if one of SYMBOLS is
# not set.
list_objects() {
	local out=$1 f symbols symbol
	shift
	objects=()
	while IFS= read -r f; do
		# A file that a patch adds is not there before.
		[ -f "$work/$f" ] || continue
		symbols=$(lookup "$checks/objects" "$f")
		[ -n "$symbols" ] || fail "${name:+$name: }$f is not compiled: it has no row in scripts/checks/objects"
		for symbol in ${symbols//,/ }; do
			is_set "$out" "$symbol" || {
				[[ " $* " == *" $symbol "* ]] && continue 2
				fail "${name:+$name: }$f is not compiled: $symbol is not set"
			}
		done
		objects+=("${f%.c}.o")
	done < <(touched '*.c' ':!tools' ':!Documentation' ':!samples' | sort -u - <(rows "$checks/users"))
}

# compile OUT LOG ARG...: compile $objects again, because only a compiled file can warn.
compile() {
	(cd "$work/out-$1" && rm -f "${objects[@]}")
	kmake "$1" -k "${@:3}" "${objects[@]}" >"$2" 2>&1
}

# before_after OUT ARG...: compile both commits, with the messages in $OUT/before and $OUT/after
before_after() {
	local when commit
	for when in before after; do
		[ "$when" = before ] && commit=$FROM || commit=$TO
		at_configured "$1" "$commit"
		list_objects "$1"
		compile "$1" "$OUT/$when.log" "${@:2}" ||
			fail "does not compile $when: $(grep -m 1 -E 'error:|\*\*\*' "$OUT/$when.log")"
		messages <"$OUT/$when.log" | sort >"$OUT/$when"
	done
}
