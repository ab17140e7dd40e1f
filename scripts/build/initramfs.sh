#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Build the guest's initramfs for build/kernels/KERNEL, and print the path of this cpio archive.
#
# usage: initramfs.sh KERNEL SUITE
#
# The archive contains what the file "manifest" of SUITE (or else of selftests/guest)
# lists. If SUITE has a file "debian", /debian is a Debian root with the packages in that
# file (see debian-root.sh). The archive is named after its content, so the same content
# is built once. It is uncompressed because unpacking takes longer in an emulated guest
# than compression saves on the host.
set -euo pipefail
. "$(dirname "$0")/../common.sh"

arguments 2 2 '' "$@"
kdir=$BUILD/kernels/$1 suite=$TOP/selftests/suites/$2 debian=''
[ -d "$kdir" ] || die "no kernel in $kdir: run 'make' first"
manifest=$suite/manifest
[ -f "$manifest" ] || manifest=$TOP/selftests/guest/manifest
[ ! -f "$suite/debian" ] || debian=$("$TOP/scripts/build/debian-root.sh" "$suite/debian")

out=$BUILD/initramfs
mkdir -p "$out"
scratch "$out"

# The kernel's own tool writes the archive. It needs no staging folder and no root, and its output is reproducible.
gen=$out/gen_init_cpio
src=$BUILD/base/usr/gen_init_cpio.c
[ -f "$src" ] || die "no $src: run 'make tree' first"
[ "$gen" -nt "$src" ] || {
	${HOSTCC:-cc} -O2 -o "$tmp/gen" "$src"
	mv "$tmp/gen" "$gen"
}

list=$tmp/list
file() { # GUEST-PATH HOST-FILE [MODE]
	[ -f "$2" ] || die "$manifest: no $2"
	echo "file $1 $2 ${3:-0755} 0 0" >>"$list"
}

folder() { # GUEST-PATH HOST-FOLDER [MODE]
	find "$2/" -ignore_readdir_race -type f -printf "file $1/%P %p ${3:-0755} 0 0\n" >>"$list"
}

# Without one of its libraries a dynamic program fails in the guest with "not found".
libraries() { # HOST-FILE
	local lib libs
	libs=$(ldd "$1" 2>/dev/null) || return 0 # static, or a script
	! grep -q 'not found' <<<"$libs" || die "$1 needs a library this machine lacks: $(grep 'not found' <<<"$libs")"
	while read -r lib; do
		file "$lib" "$(realpath "$lib")"
	done < <(grep -o '/[^ ]*' <<<"$libs")
}

busybox() {
	local bin
	bin=$(type -P busybox) || die "no busybox: apt-get install busybox-static"
	! ldd "$bin" >/dev/null 2>&1 || die "$bin is not static: apt-get install busybox-static"
	file /bin/busybox "$bin"
	"$bin" --list-full | sed '\,^bin/busybox$,d; s,.*,slink /& /bin/busybox 0755 0 0,' >>"$list"
}

# The guest gets only those lines of modules.dep that are about modules in the archive.
deps=$tmp/modules.dep
module() { # NAME [KERNEL...]
	local dir line pattern
	[ -z "${2:-}" ] || [[ " ${*:2} " == *" ${kdir##*/} "* ]] || return 0
	dir=$(echo "$kdir"/modules/lib/modules/*)
	[ -f "$dir/modules.dep" ] || die "no modules.dep in $dir: run 'make' first"
	pattern=/${1//[-_]/[-_]}.ko
	! grep -q "$pattern" "$dir/modules.builtin" || return 0
	line=$(grep "^[^:]*${pattern}[^:]*:" "$dir/modules.dep") ||
		die "$manifest: kernel ${kdir##*/} has no module $1: run 'make kernel-${kdir##*/}' first"
	for line in ${line/:/}; do
		file "/lib/modules/${dir##*/}/$line" "$dir/$line" 0644
		grep "^$line:" "$dir/modules.dep" >>"$deps"
	done
}

# The programs use the ioctls of the patched test_hmm on every kernel.
programs() { # [NAME...]
	local c bin header newest=$BUILD/tree/lib/test_hmm_uapi.h
	for header in "$TOP"/selftests/programs/{*.h,lib/*} "$TOP"/selftests/modules/*/*_uapi.h "$TOP"/selftests/models/{pascal,battlemage}/backdoor.h; do
		[ ! "$header" -nt "$newest" ] || newest=$header
	done
	# shellcheck disable=SC2046 # words
	[ $# -gt 0 ] || set -- $(cd "$TOP/selftests/programs" && basename -s .c ./*.c)
	for c; do
		bin=$out/programs/$c
		c=$TOP/selftests/programs/$c.c
		mkdir -p "$out/programs"
		if [ ! "$bin" -nt "$c" ] || [ ! "$bin" -nt "$newest" ]; then
			${CC:-cc} -static -O2 -Wall -Wextra -Wno-sign-compare -Werror -ffile-prefix-map="$TOP/=" -I"$BUILD/tree/lib" -I"$TOP/selftests/modules/edu_hmm" \
				-I"$TOP/selftests/modules/hmm_bench" -I"$BUILD/tree/tools/testing/selftests" \
				-I"$TOP/selftests/models/pascal" -I"$TOP/selftests/models" -idirafter "$BUILD/tree/include/uapi/drm" -idirafter "$BUILD/tree/include/uapi" \
				-idirafter "$BUILD/tree/include" -idirafter "$BUILD/tree/tools/include" -o "$tmp/program" "$c" "$TOP/selftests/programs/lib/slow.c" -Wl,--wrap=poll -lpthread ||
				die "$c does not compile"
			mv "$tmp/program" "$bin"
		fi
		file "/programs/${bin##*/}" "$bin"
	done
}

copy() { # FROM TO
	if [ -d "$TOP/$1" ]; then
		folder "$2" "$TOP/$1"
	else
		file "$2" "$TOP/$1"
	fi
}

# made PROGRAM TO: add the files that one of our programs writes to the folder that it gets as argument
made() {
	local dir
	dir=$(mktemp -d "$tmp/made.XXXXXX")
	"$TOP/$1" "$dir" || die "$manifest: $1 fails"
	folder "$2" "$dir" 0644
}

while read -r what args; do
	case $what in
	'' | '#'*) continue ;;
	busybox) busybox ;;
	bin)
		file "$args" "$(realpath "$args")"
		libraries "$args"
		;;
	kselftest)
		[ -d "$kdir/kselftest" ] || die "$manifest: no $kdir/kselftest: run 'make' first"
		# The programs are static.
		folder /kselftest "$kdir/kselftest"
		;;
	module | programs)
		# shellcheck disable=SC2086 # words
		$what $args
		;;
	copy | made) $what "${args% *}" "${args#* }" ;;
	*) die "$manifest: not known: $what" ;;
	esac
done <"$manifest"

if [ -f "$deps" ]; then
	sort -u -o "$deps" "$deps"
	file "/lib/modules/$(basename "$kdir"/modules/lib/modules/*)/modules.dep" "$deps" 0644
fi

# Mount points, and the folders of all files. In the archive a folder must come before its contents.
{
	awk '{ p = $2; while (sub("/[^/]*$", "", p) && p != "") print p }' "$list" |
		sort -u - <(printf '%s\n' /dev /proc /sys /tmp /root) | sed 's/.*/dir & 0755 0 0/'
	echo "nod /dev/console 0600 0 0 c 5 1"
	# A program of the host replaces the applet of the same name.
	sort -u "$list" | awk '!seen[$2]++'
} >"$tmp/all"

# The name depends on the entries and on the content of each file, not on paths of this machine.
id=$({
	awk '$1 == "file" { $3 = "" } { print }' "$tmp/all"
	awk '$1 == "file" { print $3 }' "$tmp/all" | xargs sha256sum | cut -c1-64
} | sha256sum | cut -c1-16)

if [ ! -f "$out/$id.cpio" ]; then
	"$gen" -t 0 -o "$tmp/cpio" "$tmp/all"
	mv "$tmp/cpio" "$out/$id.cpio"
fi
[ -n "$debian" ] || {
	echo "$out/$id.cpio"
	exit 0
}

# The kernel unpacks one archive after the other. The archives are large, so old ones are removed.
both=$out/debian-$1-$id-$(basename "$debian")
if [ ! -f "$both" ]; then
	cat "$out/$id.cpio" "$debian" >"$tmp/both"
	mv "$tmp/both" "$both"
fi
touch "$both"
# Another run may remove the same ones, or be about to boot one, so only those that were not asked for in half an hour go.
find "$out/debian-$1"-*.cpio -mmin +30 -delete 2>/dev/null || true
echo "$both"
