#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Merge the fragments of a kernel over allnoconfig, and check that the result has what they ask for.
#
# usage: config.sh KERNEL SRCTREE OUTDIR [FRAGMENT...]
#
# Writes OUTDIR/.config from the fragments that kernel-config/kernels lists for KERNEL,
# and the given FRAGMENT files. kconfig silently drops symbols that it cannot set. If a
# symbol differs, the script lists it, and does not change OUTDIR/.config.
set -euo pipefail
. "$(dirname "$0")/../common.sh"

arguments 3 99 '' "$@"
kernel=$1 src=$2 out=$3
shift 3

dir=$TOP/kernel-config
mapfile -t fragments < <(awk -v k="$kernel" -v dir="$dir" '$1 == k { for (i = 2; i <= NF; i++) print dir "/" $i ".config" }' "$dir/kernels")
[ ${#fragments[@]} -gt 0 ] || die "no kernel '$kernel' in kernel-config/kernels"
[ -f "$src/Kconfig" ] || die "$src is not a kernel tree"
fragments+=("$@")
for f in "${fragments[@]}"; do [ -f "$f" ] || die "no fragment $f"; done

mkdir -p "$out"
out=$(cd "$out" && pwd)
scratch "$out"

# The lines of all fragments as SYMBOL VALUE FRAGMENT. No symbol may occur twice, because the order of fragments would decide.
awk '
	/^CONFIG_[A-Za-z0-9_]+=/ { s = $0; sub(/=.*/, "", s); v = substr($0, length(s) + 2) }
	/^# CONFIG_[A-Za-z0-9_]+ is not set$/ { s = $2; v = "n" }
	/^(CONFIG_|# CONFIG_[A-Za-z0-9_]+ is not set$)/ {
		f = FILENAME; sub(/.*\//, "", f)
		if (s in seen) { printf "%s is set by %s and by %s\n", s, seen[s], f > "/dev/stderr"; bad = 1 }
		seen[s] = f
		printf "%s\t%s\t%s\n", s, v, f
		next
	}
	/^#/ || /^$/ { next }
	{ printf "%s:%d: not a config line: %s\n", FILENAME, FNR, $0 > "/dev/stderr"; bad = 1 }
	END { exit bad }' "${fragments[@]}" >"$tmp/wanted" ||
	die -c "$EX_CONFIG" "fix the fragments named above"

cat "${fragments[@]}" >"$tmp/all"
make -s -C "$src" O="$out" KCONFIG_CONFIG="$tmp/config" KCONFIG_ALLCONFIG="$tmp/all" "${make_tools[@]}" allnoconfig >"$tmp/log" 2>&1 || {
	cat "$tmp/log" >&2
	die -c "$EX_CONFIG" "allnoconfig failed in $src (a tree used without O= before needs: make mrproper)"
}

awk -F '\t' '
	NR == FNR { if (match($0, /^CONFIG_[^=]*/)) got[substr($0, 1, RLENGTH)] = substr($0, RLENGTH + 2); next }
	{ g = ($1 in got) ? got[$1] : "n" }
	g != $2 { printf "%s: asked for %s by %s, kconfig made it %s\n", $1, $2, $3, g; bad = 1 }
	END { exit bad }' "$tmp/config" "$tmp/wanted" >&2 ||
	die -c "$EX_CONFIG" "$kernel: the symbols above cannot be set: give each what it depends on, or drop it"

# An unchanged .config is not replaced, because a newer one costs a syncconfig.
cmp -s "$tmp/config" "$out/.config" || mv "$tmp/config" "$out/.config"
