#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Unpack packages of another Debian suite (amd64), without installing them.
#
# usage: debian-package.sh [--only] DIR SUITE PACKAGE...
#        debian-package.sh --source DIR SUITE PACKAGE
#
# Unpacks them to DIR/root, with all packages that they depend on, including the C
# library. With --only, only the named packages are unpacked. DIR/packages lists the
# versions. DIR/run PROGRAM ARGUMENT... runs a program from DIR/root with its own loader
# and libraries. --source unpacks the source of PACKAGE to DIR, without Debian's changes.
#
# PACKAGE may be NAME=VERSION. SUITE may be "snapshot": that is the first suite of
# patches/BASE, on the day that its line "snapshot" names.
#
# apt verifies the downloads. The packages and apt sources of this machine do not
# change, and root is not needed.
set -euo pipefail
. "$(dirname "$0")/../common.sh"
fetch=(install --download-only) type=deb
case ${1:-} in
--only)
	fetch=(download)
	shift
	;;
--source)
	fetch=(source --download-only) type=deb-src
	shift
	;;
esac
arguments 3 99 '' "$@"
dir=$1 suite=$2 package=${3%=*} mirror=$(base_field mirror) old=
[ "$suite" != snapshot ] || {
	read -r suite _ <<<"$(base_field suites)"
	mirror=$(base_field snapshot) old=' check-valid-until=no'
}
shift 2
[ ! -e "$dir" ] || die "$dir exists"
for tool in apt-get dpkg-deb; do
	command -v $tool >/dev/null || die "no $tool: it is needed to fetch $package of Debian $suite"
done
for keyring in /usr/share/keyrings/debian-archive-keyring.{gpg,pgp} ''; do
	[ ! -e "$keyring" ] || break
done
[ -n "$keyring" ] || die "install debian-archive-keyring: packages are verified with it"
scratch "$(dirname "$dir")"

# apt uses directories of its own in which nothing is installed, so it downloads the libraries, too. The machine's
# configuration stays in use, because it may name a proxy. Its hooks are cleared: they would clean the machine's own cache.
apt=$tmp/apt
mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial"
: >"$apt/status"
printf '%s\n' "${suite%%-*}" "$suite" | uniq | xargs -I SUITE echo "$type [arch=amd64 signed-by=$keyring$old] $mirror SUITE main" >"$apt/sources.list"
cat >"$apt/apt.conf" <<END
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear APT::Architectures;
APT::Architecture "amd64";
APT::Sandbox::User "root";
APT::Install-Recommends "false";
APT::Install-Suggests "false";
APT::Default-Release "$suite";
APT::Update::Error-Mode "any";
Acquire::Languages "none";
Acquire::Retries "1";
Acquire::http::Timeout "30";
Dir::State "$apt/state";
Dir::State::status "$apt/status";
Dir::Cache "$apt/cache";
Dir::Cache::archives "archives";
Dir::Etc::SourceList "$apt/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
END
get() {
	(cd "$apt/cache/archives" && apt-get -c "$apt/apt.conf" -q -y "$@") >"$tmp/log" 2>&1 </dev/null || {
		sed -n '/^E:/{p;q}' "$tmp/log" >&2
		die "cannot get $package from $suite of $mirror: it is not there, or there is no network"
	}
}
step "$package: looking for it in Debian $suite"
get update
if [ $type = deb-src ]; then
	step "$package: downloading its sources"
	# A mirror may lack the Debian part of older source packages.
	(get "${fetch[@]}" "$@") 2>/dev/null || true
	mkdir "$tmp/out"
	tar -xf "$apt"/cache/archives/*.orig.tar.* -C "$tmp/out" --strip-components=1 2>"$tmp/log" ||
		die "cannot get the source of $package from $suite of $mirror: is there a network?"
	mv "$tmp/out" "$dir"
	exit
fi
step "$package: downloading it with its libraries"
get "${fetch[@]}" "$@"

step "$package: unpacking"
mkdir "$tmp/out"
for deb in "$apt"/cache/archives/*.deb; do
	dpkg-deb -x "$deb" "$tmp/out/root"
	dpkg-deb -W "$deb"
done >"$tmp/out/packages"
cat >"$tmp/out/run" <<'END'
#!/bin/sh
# With its own loader, because the libraries of the machine may be older. --inhibit-cache: never use a library of the machine.
root=$(dirname "$0")/root
lib=$root/usr/lib/x86_64-linux-gnu
program=$root/usr/bin/$1
shift
exec "$lib/ld-linux-x86-64.so.2" --inhibit-cache --library-path "$lib" "$program" "$@"
END
chmod 755 "$tmp/out" "$tmp/out/run"
mv "$tmp/out" "$dir"
