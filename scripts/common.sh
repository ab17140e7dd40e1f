# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# Sourced by every script here: paths, exit codes, messages, and functions that several scripts need.

TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
BUILD=${BUILD:-$TOP/build}
# Downloads, the imported base and ccache. `make clean` keeps them.
# shellcheck disable=SC2034
CACHE=${HMM_P2P_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/hmm-p2p}

# Exit codes, the same in every script; scripts/README.md lists them for users.
# shellcheck disable=SC2034
EX_FAIL=1 EX_USAGE=2 EX_APPLY=3 EX_CONFIG=4 EX_SPLAT=5 EX_PLAN=6 EX_DIED=7 EX_TIMEOUT=124 EX_PANIC=255

# die [-c CODE] MESSAGE: print one line, what is wrong and what to do, and exit.
die() {
	local code=$EX_USAGE
	if [ "$1" = -c ]; then
		code=$2
		shift 2
	fi
	printf '%s: %s\n' "${0##*/}" "$*" >&2
	exit "$code"
}

# usage: print the comment at the beginning of the script, below its licence
usage() { sed -n '3,/^[^#]/s/^# \{0,1\}//p' "$0"; }

wrong_usage() {
	usage >&2
	exit "$EX_USAGE"
}

# arguments LEAST MOST OPTION "$@": end with the usage unless the script got LEAST to MOST arguments. The only options are --help and
# OPTION, which comes first and may be empty. If it was given, $opted is not empty, and the script has to shift.
arguments() {
	local least=$1 most=$2 option=$3
	opted=''
	shift 3
	case ${1:-} in
	--help)
		usage
		exit 0
		;;
	"${option:---help}")
		# shellcheck disable=SC2034 # for the scripts
		opted=yes
		shift
		;;
	esac
	[[ $# -ge $least && $# -le $most && ${1:-} != -* ]] || wrong_usage
}

# When the command began
export STARTED=${STARTED:-$EPOCHSECONDS}

# step MESSAGE: print progress, with the time since then
step() {
	local t=$((EPOCHSECONDS - STARTED))
	printf '[%3d:%02d] %s\n' $((t / 60)) $((t % 60)) "$*" >&2
}

# took [WHAT BEGIN]: record a time for the table at the end of `make test`. The times of an earlier command are dropped.
took() {
	local times=$BUILD/times
	[ "$(head -n 1 "$times" 2>/dev/null)" = "$STARTED" ] || echo "$STARTED" >"$times"
	[ $# -eq 0 ] || printf '%s\t%s\n' $((EPOCHSECONDS - $2)) "$1" >>"$times"
}

# expanded PATH: the path without ~, which some shells leave in VARIABLE=~/dir
expanded() { printf '%s\n' "${1/#~\//$HOME/}"; }
for variable in KERNEL_TREE BASE_TARBALL; do
	[ -z "${!variable:-}" ] || printf -v "$variable" %s "$(expanded "${!variable}")"
done

PATCHES=${PATCHES:-$TOP/patches}
# The series that is the feature: with the base it is a kernel of its own.
# shellcheck disable=SC2034
feature=1-hmm-p2p

# series_patches: the paths that patches/series lists.
series_patches() { sed 's/#.*//; s/[[:space:]]*$//; /^$/d' "$PATCHES/series"; }

# series_names: the series, in the order of patches/series
series_names() { series_patches | cut -d / -f 1 | uniq; }

# with_needs SERIES...: these series and those that they need, in the order of patches/series. A series needs only earlier ones, so
# one pass from the end finds all of them.
with_needs() {
	series_names | tac | awk -F '[ \t]*[|][ \t]*' -v wanted="$*" '
		function want(words, i, n, word) { n = split(words, word, /[ ,]+/); for (i = 1; i <= n; i++) wants[word[i]] }
		BEGIN { want(wanted) }
		FILENAME != "-" { needs[$1] = $2; next }
		$1 in wants { print; want(needs[$1]) }' "$PATCHES/needs" - | tac
}

# base_field KEY: the value of KEY in patches/BASE.
base_field() { sed -n "s/^$1: *//p" "$PATCHES/BASE"; }

# kgit DIR ARG...: git in one of our trees, without the user's configuration, which could change commit ids and patches.
kgit() {
	GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_TERMINAL_PROMPT=0 \
		GIT_AUTHOR_NAME=hmm-p2p GIT_AUTHOR_EMAIL=hmm-p2p@localhost \
		GIT_COMMITTER_NAME=hmm-p2p GIT_COMMITTER_EMAIL=hmm-p2p@localhost \
		git -C "$@"
}

# clone FROM TO [OPTION...]: a git clone with nothing checked out, in which git ignores what is built. It is made with the user's
# configuration, because safe.directory may be needed to read FROM.
clone() {
	git clone -q --template= --no-checkout "${@:3}" "$1" "$2"
	git -C "$2" remote remove origin
	mkdir -p "$2/.git/info"
	printf '/out-*/\n' >"$2/.git/info/exclude"
}

# fetch_tag URL TAG REPO: make the bare repository REPO with this tag alone
fetch_tag() {
	kgit . init -q --bare "$3"
	# git has no time limit for connecting, so a small request comes first.
	timeout 60 git ls-remote -q --exit-code "$1" "refs/tags/$2" >/dev/null 2>&1 &&
		GIT_HTTP_LOW_SPEED_LIMIT=1000 GIT_HTTP_LOW_SPEED_TIME=60 \
			git -C "$3" fetch -q --depth 1 "$1" "refs/tags/$2:refs/tags/$2"
}

# tree_version DIR [COMMIT]: the version of a kernel git tree, such as 7.3-rc7; nothing if it is no such tree.
tree_version() {
	git -C "$1" show "${2:-HEAD}:Makefile" 2>/dev/null | awk '
		$2 == "=" && !($1 in v) { v[$1] = $3 }
		END { if (v["VERSION"] != "") print v["VERSION"] "." v["PATCHLEVEL"] \
			(v["SUBLEVEL"] > 0 ? "." v["SUBLEVEL"] : "") v["EXTRAVERSION"] }'
}

# The compiler. kconfig writes the versions of rustc and pahole into the configuration, although these kernels use neither.
# Then two machines could not share ccache objects.
# shellcheck disable=SC2034
make_tools=(CC="$TOP/scripts/build/ccache-gcc.sh" HOSTCC='ccache gcc' RUSTC=none PAHOLE=none)

# base_release: the release of the base without the number of the stable release: 7.3 for 7.3.4
base_release() { base_field version | grep -o '^[0-9]*[.][0-9]*'; }

# version_does VERSION: is it a release that the patches are for? If the base is 7.3.4, that is 7.3 or any 7.3.N. Trees of
# maintainers have 7.3.
version_does() { [[ $1 == "$(base_release)" || $1 == "$(base_release)".* ]]; }

# check_tree DIR: exit with a message unless DIR is a clean git tree with a version of version_does(), and no rebase, merge or
# the like has begun there.
check_tree() {
	local top version
	[ -d "$1" ] || die "$1: no such directory"
	top=$(git -C "$1" rev-parse --show-toplevel 2>/dev/null) || die "$1: not a git tree (or not yours: git config safe.directory)"
	[ "$top" -ef "$1" ] || die "$1: not the top of a git tree"
	version=$(tree_version "$1")
	[ -n "$version" ] || die "$1: is no kernel tree"
	version_does "$version" ||
		die "$1: is Linux $version, but the series need $(base_release) or a stable release of it. For others: make refresh BASE=$1"
	# Before the look for changes, because a conflict leaves changes.
	for top in rebase-merge rebase-apply MERGE_HEAD CHERRY_PICK_HEAD REVERT_HEAD sequencer BISECT_LOG; do
		[ ! -e "$(git -C "$1" rev-parse --path-format=absolute --git-path "$top")" ] ||
			die "$1: in the middle of a rebase, am, merge, cherry-pick, revert or bisect (git status says which): finish it first"
	done
	# An interrupt could leave a lock of the index.
	[ -z "$(git --no-optional-locks -C "$1" status --porcelain --untracked-files=no)" ] ||
		die "$1: has changes that are not committed: commit or stash them first"
}

# patches_id: a hash of all patches in order, computed like the patchset_hash of KCIDB
patches_id() { series_patches | (cd "$PATCHES" && xargs sha256sum) | cut -c -64 | sha256sum | cut -c -64; }

# code_id: a hash of their code, without the messages
code_id() {
	series_patches | (cd "$PATCHES" && xargs cat) | git patch-id --stable | cut -c -40 | sha256sum | cut -c -64
}

# verdict_kind CHECK: on which of these two its verdict depends. Slow checks look only at the code.
verdict_kind() { grep -qxF -e "$1" "$TOP/scripts/checks/fast" && echo patches_id || echo code_id; }

# verdict_id CHECK: that hash
verdict_id() { "$(verdict_kind "$1")"; }

# need_space DIR GIB: exit unless the disk has so much space
need_space() {
	local free
	free=$(df -Pk "$1" | awk 'NR == 2 { print int($4 / 1048576) }')
	[ "$free" -ge "$2" ] || die "$1: $free GiB free, $2 GiB are needed"
}

# series_id KERNEL: the source of build/kernels/KERNEL, by 12 digits of the id of its git tree.
series_id() {
	awk -v clean="$(sha256sum </dev/null | cut -c 1-16)" '
		$1 == "tree" { id = substr($2, 1, 12) }
		$1 == "edits" && $2 != clean { edits = "-dirty" }
		END { print id edits }' "$BUILD/kernels/$1/stamp"
}

# results_dir KERNEL TOPOLOGY SUITE ARGUMENTS: the folder for the results of this run.
results_dir() { printf '%s\n' "$TOP/results/$(base_field version)-$(series_id "$1")-$1-$2/$3${4:+-${4// /-}}"; }

# attend COMMAND...: run it as a process group of its own, all of which scratch ends at an interrupt
attend() {
	set -m
	"$@" </dev/null &
	set +m
	wait $!
}

# lock FD FILE WHAT: take the lock for WHAT, and hold it until FD is closed
lock() {
	eval "exec $1>\"\$2\""
	flock -n "$1" || {
		step "$3: waiting for another run"
		flock "$1"
	}
}

# scratch DIR: make a temporary folder there, $tmp. At exit it is removed, and background jobs are ended.
scratch() {
	tmp=''
	trap end_scratch EXIT
	trap 'exit 129' HUP
	trap 'exit 130' INT
	trap 'exit 143' TERM
	# An interrupt between mktemp and the assignment would leave the folder behind.
	tmp=$(trap '' HUP INT TERM && mktemp -d "$1/.${0##*/}.XXXXXX")
}

# end_scratch: for scripts whose trap does more than that of scratch
end_scratch() {
	local pid
	trap '' HUP INT TERM
	# Each job is a process group of its own (set -m).
	for pid in $(jobs -p); do kill -- "-$pid" 2>/dev/null || true; done
	wait
	rm -rf "$tmp"
}

# bench_id: a hash of everything in this repository and on this machine that can change the result of a run, except its
# kernel. Lists of runs and some scripts cannot. All suites are included, because suites use files of each other.
bench_id() {
	{
		(cd "$TOP" && find scripts selftests p2p-check kernel-config patches/BASE -type f -print0 | LC_ALL=C sort -z | grep -zvE \
			-e '^scripts/((check|check-scripts|clean|container|deps|list|new)[.]|figures|checks/|patches/)' \
			-e '^scripts/build/((base|deb|tar-to-git)[.]|packages)' -e '^scripts/guest/(bench|mutants|report|run|test|topology)[.]' \
			-e '^selftests/(mutants|pictures|self)/' -e '/(runs|soak|demo)$' -e /__pycache__/ |
			xargs -0 sha256sum)
		gcc --version
		"$("$TOP/scripts/build/tool.sh" qemu)" --version
	} | sha256sum | cut -c -64
}
