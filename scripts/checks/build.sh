# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# Sourced instead of lib.sh by the checks that compile. What they compile is only what the patches touch.

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

export CCACHE_DIR=$CACHE/ccache CCACHE_NOHASHDIR=1 CCACHE_COMPRESS=1 CCACHE_MAXSIZE=10G CCACHE_BASEDIR=$work
export KBUILD_BUILD_USER=hmm-p2p KBUILD_BUILD_HOST=localhost KBUILD_BUILD_TIMESTAMP='Thu Jan  1 00:00:00 UTC 1970'
unset KBUILD_OUTPUT O ARCH CROSS_COMPILE KCFLAGS MAKEFLAGS MFLAGS MAKELEVEL

# kmake OUT ARG...: make in $work
kmake() {
	local out=$1
	shift
	make -C "$work" O="out-$out" -j "$(nproc)" "${make_tools[@]}" "$@" </dev/null
}

# configure OUT: that of the kernel `normal`, with the one touched file that it leaves out, in $work/out-OUT
configure() {
	"$TOP/scripts/config.sh" normal "$work" "$work/out-$1" || fail "no configuration"
	"$work/scripts/config" --file "$work/out-$1/.config" -e DMA_API_DEBUG
	kmake "$1" olddefconfig >"$OUT/config.log" 2>&1 || fail "no configuration: $(tail -n 1 "$OUT/config.log")"
	cp "$work/out-$1/.config" "$OUT/config"
}

# at_configured OUT COMMIT: check it out, with what configure made; a symbol that comes with a patch is lost in what is before it.
at_configured() {
	at "$2"
	cp "$OUT/config" "$work/out-$1/.config"
}

# is_set OUT SYMBOL
is_set() { grep -qE "^CONFIG_$2=[ym]\$" "$work/out-$1/.config"; }

# symbols_of FILE
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

# sources: C files to compile that are there now
sources() {
	{
		touched '*.c' ':!tools' ':!Documentation' ':!samples'
		rows "$checks/users"
	} | sort -u | while IFS= read -r f; do
		[ ! -f "$work/$f" ] || echo "$f"
	done
}

# objects OUT [SYMBOL...]: what of it the configuration compiles; what it does not must be for want of one of SYMBOLS
objects() {
	local out=$1 f symbol
	shift
	sources | while IFS= read -r f; do
		for symbol in $(symbols_of "$f"); do
			is_set "$out" "$symbol" || {
				[[ " $* " == *" $symbol "* ]] && continue 2
				echo "$f is not compiled: $symbol is not set" >&2
				exit 1
			}
		done
		echo "${f%.c}.o"
	done
}

# compile OUT LOG ARG...: the objects anew, for only what is compiled can warn. Wants $objects.
compile() {
	local out=$1 log=$2
	shift 2
	(cd "$work/out-$out" && rm -f "${objects[@]}")
	kmake "$out" -k "$@" "${objects[@]}" >"$log" 2>&1
}

# before_after OUT ARG...: the messages of both as $OUT/before and $OUT/after
before_after() {
	local out=$1 when commit
	shift
	for when in before after; do
		[ "$when" = before ] && commit=$FROM || commit=$TO
		at_configured "$out" "$commit"
		objects "$out" >"$OUT/objects" 2>"$OUT/objects.log" || fail "$(cat "$OUT/objects.log")"
		mapfile -t objects <"$OUT/objects"
		compile "$out" "$OUT/$when.log" "$@" ||
			fail "does not compile $when: $(grep -m 1 -E 'error:|\*\*\*' "$OUT/$when.log")"
		messages <"$OUT/$when.log" | sort >"$OUT/$when"
	done
}
