#!/bin/bash
# Find a QEMU that is new enough, or fetch one into the cache.
set -euo pipefail
. "$(dirname "$0")/common.sh"

usage() {
	cat <<'END'
usage: qemu.sh VERSION

Prints the path of a qemu-system-x86_64 of this major version or a later one: the
machine's own ($QEMU) if it will do, else that of Debian's trixie-backports with
all it needs, its own libc too, in the cache (HMM_P2P_CACHE, default
~/.cache/hmm-p2p; 40 MB to fetch, 200 MB of disk). The machine's packages and apt
sources are left as they are, and no root is needed.
The file "packages" beside it has the versions fetched.
END
}
case ${1:-} in
--help)
	usage
	exit 0
	;;
'' | *[!0-9]*)
	usage >&2
	exit "$EX_USAGE"
	;;
esac
least=$1 suite=trixie-backports

new_enough() { # QEMU
	local version
	version=$("$1" --version 2>/dev/null | sed -n '1s/.*version \([0-9]*\).*/\1/p') || return 1
	[ "${version:-0}" -ge "$least" ]
}
found() {
	new_enough "$1" || return 0
	command -v "$1"
	exit 0
}
out=$CACHE/qemu-$least
found "${QEMU:-qemu-system-x86_64}"
found "$out/qemu-system-x86_64"

for tool in apt-get dpkg-deb; do
	command -v $tool >/dev/null ||
		die "no $tool to fetch QEMU $least with: set QEMU to a qemu-system-x86_64 of version $least or later"
done
mkdir -p "$CACHE"
exec 8>"$CACHE/qemu.lock"
flock -n 8 || {
	step "qemu: waiting for another run that fetches it"
	flock 8
	found "$out/qemu-system-x86_64"
}
need_space "$CACHE" 1
tmp=$(mktemp -d "$CACHE/qemu.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# apt works on directories of its own and believes that nothing is installed: so it fetches the libraries too. Of the
# machine's configuration only what is said here is undone: it may have a proxy. Its hooks clean the machine's own cache.
apt=$tmp/apt
for keyring in /usr/share/keyrings/debian-archive-keyring.{gpg,pgp} ''; do
	[ ! -e "$keyring" ] || break
done
[ -n "$keyring" ] || die "install debian-archive-keyring: QEMU's packages are verified with it"
mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial"
: >"$apt/status"
for line in "${suite%-backports}" "$suite"; do
	printf 'deb [arch=amd64 signed-by=%s] %s %s main\n' "$keyring" "$(base_field mirror)" "$line"
done >"$apt/sources.list"
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
	apt-get -c "$apt/apt.conf" -q -y "$@" >"$tmp/log" 2>&1 </dev/null || {
		sed -n '/^E:/{p;q}' "$tmp/log" >&2
		die "QEMU $least or later cannot be had from $suite of $(base_field mirror): is there a network? Else set QEMU to a qemu-system-x86_64 of that version"
	}
}
step "qemu: looking for QEMU $least or later in $suite"
get update
step "qemu: downloading it with its libraries (40 MB)"
get install --download-only qemu-system-x86

step "qemu: unpacking"
mkdir "$tmp/qemu"
for deb in "$apt"/cache/archives/*.deb; do
	dpkg-deb -x "$deb" "$tmp/qemu/root"
	dpkg-deb -W "$deb"
done >"$tmp/qemu/packages"
cat >"$tmp/qemu/qemu-system-x86_64" <<'END'
#!/bin/sh
# By its own loader: the libraries of the machine may be older. --inhibit-cache: none of those, not even one that lacks here.
root=$(dirname "$0")/root
lib=$root/usr/lib/x86_64-linux-gnu
QEMU_MODULE_DIR=$lib/qemu exec "$lib/ld-linux-x86-64.so.2" --inhibit-cache --library-path "$lib" \
	"$root/usr/bin/qemu-system-x86_64" -L "$root/usr/share/qemu" -L "$root/usr/share/seabios" -L "$root/usr/lib/ipxe/qemu" "$@"
END
chmod 755 "$tmp/qemu" "$tmp/qemu/qemu-system-x86_64"
new_enough "$tmp/qemu/qemu-system-x86_64" ||
	die "the $(grep '^qemu-system-x86\>' "$tmp/qemu/packages" | tr '\t' ' ') of $suite does not run here or is older than $least"
rm -rf "$out"
mv "$tmp/qemu" "$out"
step "qemu: $(grep '^qemu-system-x86\>' "$out/packages" | tr '\t' ' ')"
echo "$out/qemu-system-x86_64"
