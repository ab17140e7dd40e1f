# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# Sourced instead of lib.sh by checks that compile. They compile only files that the patches touch.

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

export CCACHE_DIR=$CACHE/ccache CCACHE_NOHASHDIR=1 CCACHE_COMPRESS=1 CCACHE_MAXSIZE=10G CCACHE_BASEDIR=$work
export KBUILD_BUILD_USER=hmm-p2p KBUILD_BUILD_HOST=localhost KBUILD_BUILD_TIMESTAMP='Thu Jan  1 00:00:00 UTC 1970'
unset KBUILD_OUTPUT O ARCH CROSS_COMPILE KCFLAGS MAKEFLAGS MFLAGS MAKELEVEL

# kmake OUT ARG...: run make in $work
kmake() {
	local out=$1
	shift
	make -C "$work" O="out-$out" -j "$(nproc)" "${make_tools[@]}" "$@" </dev/null
}

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

# symbols_of FILE: the symbols that the table objects lists for it
symbols_of() {
	local pattern symbols
	while read -r pattern symbols; do
		# shellcheck disable=SC2053 # a pattern
		[[ $1 != $pattern ]] || {
			echo "${symbols//,/ }"
			return
		}
	done < <(rows "$checks/objects")
	echo "NO_ROW_OF_scripts/checks/objects"
}

# sources: the C files to compile that exist in this commit
sources() {
	{
		touched '*.c' ':!tools' ':!Documentation' ':!samples'
		rows "$checks/users"
	} | sort -u | while IFS= read -r f; do
		[ ! -f "$work/$f" ] || echo "$f"
	done
}

# list_objects OUT [SYMBOL...]: set $objects to those that this configuration compiles. One may be missing only if one of SYMBOLS is
# not set.
list_objects() {
	local out=$1 f symbol
	shift
	objects=()
	while IFS= read -r f; do
		for symbol in $(symbols_of "$f"); do
			is_set "$out" "$symbol" || {
				[[ " $* " == *" $symbol "* ]] && continue 2
				fail "${name:+$name: }$f is not compiled: $symbol is not set"
			}
		done
		objects+=("${f%.c}.o")
	done < <(sources)
}

# compile OUT LOG ARG...: compile $objects again, because only a compiled file can warn.
compile() {
	local out=$1 log=$2
	shift 2
	(cd "$work/out-$out" && rm -f "${objects[@]}")
	kmake "$out" -k "$@" "${objects[@]}" >"$log" 2>&1
}

# before_after OUT ARG...: compile both commits, with the messages in $OUT/before and $OUT/after
before_after() {
	local out=$1 when commit
	shift
	for when in before after; do
		[ "$when" = before ] && commit=$FROM || commit=$TO
		at_configured "$out" "$commit"
		list_objects "$out"
		compile "$out" "$OUT/$when.log" "$@" ||
			fail "does not compile $when: $(grep -m 1 -E 'error:|\*\*\*' "$OUT/$when.log")"
		messages <"$OUT/$when.log" | sort >"$OUT/$when"
	done
}
