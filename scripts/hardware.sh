#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# On a machine with a GPU or an RDMA adapter: say what is missing for peer-to-peer DMA to device memory, and run the tests.
#
# usage: hardware.sh check [OPTION...]   what is there, what is missing, and what to do
#        hardware.sh run [OPTION...] [STEP...]
#        hardware.sh list                the steps, with their time and what a failure means
#
# run: runs the steps that fit this machine, as root, and writes the report. A step that
# has passed is not repeated unless it is named. At the end it says what to boot for the
# steps that are left.
#
#   --gpu BDF         the GPU, as in lspci -D (default: the first of xe or nouveau that has
#                     memory of its own)
#   --adapter NAME    the RDMA device, as in `rdma link` (default: the first of mlx5, else
#                     the first that is a PCI device)
#   --gid N           index of its GID (default: the first of RoCE v2; InfiniBand: 0)
#   --expect WHERE    where pages must be after the adapter used them: stay (in VRAM),
#                     ram, or any (default: what p2p-check says; any without p2p-check)
#   --tests "NAME..." in steps that run the whole test program, only these tests
#   --repeat N        writes in the step posted (default: 1000)
#   --config FILE     configuration of the running kernel (default: it is searched)
#   --kselftest DIR   the kernel's selftests, installed, with mm/ and rdma/
#   --dir DIR         folder of the results (default: results/hardware)
#
# The report is DIR/hmm-p2p-report.tar. Names of hosts, addresses of networks, GUIDs and
# serial numbers are masked in it. check exits with 1 if something is missing, run if a
# step failed or none fits.
set -euo pipefail
. "$(dirname "$0")/common.sh"

SUITES=$TOP/selftests/suites
steps=$TOP/scripts/hardware.steps
wanted_config=$TOP/kernel-config/hardware.config
out=$TOP/results/hardware
config='' KSELFTEST='' PCI='' RDMA='' GID='' EXPECT='' TESTS='' REPEAT=1000 has_odp=no

# field STEP KEY: the lines of this key
field() {
	awk -v step="$1:" -v key="$2" '/^step / { on = $2 == step } on && $1 == key { sub(/^[a-z]+ ?/, ""); print }' "$steps"
}

# all KIND: the names of all steps, or of all modes
all() { sed -n "s/^$1 \([a-z-]*\):.*/\1/p" "$steps"; }

has_modes() { field "$1" modes | grep -q ''; } # STEP

title() { sed -n "s/^$1 $2: //p" "$steps"; } # KIND NAME

# ---- what is there ----

has_module() { [ -d "/sys/module/${1//-/_}" ] || modinfo "$1" >/dev/null 2>&1; }

# The series gives this parameter to both drivers.
patched() {
	local driver
	for driver in xe nouveau; do
		! modinfo -F parm $driver 2>/dev/null | grep -q '^svm_p2p:' || return 0
	done
	return 1
}

find_config() {
	local file
	for file in "$config" "/boot/config-$(uname -r)" "/lib/modules/$(uname -r)/config" /proc/config.gz; do
		[ ! -r "$file" ] || break
	done
	zcat -f "$file" 2>/dev/null
}

# find_gpu: set PCI, GPU (its driver) and NODE
find_gpu() {
	local device
	GPU='' NODE=''
	for device in /sys/bus/pci/drivers/{xe,nouveau}/0*; do
		[ -d "$device/drm" ] || continue
		# Intel's GPUs on bus 0 have no memory of their own.
		[[ -n $PCI || $device != */xe/????:00:* ]] || continue
		[ "${PCI:-${device##*/}}" = "${device##*/}" ] || continue
		PCI=${device##*/} GPU=${device%/*}
		GPU=${GPU##*/} NODE=/dev/dri/$(cd "$device/drm" && echo renderD*)
		return
	done
	return 1
}

# find_adapter: set RDMA, NIC and GID
find_adapter() {
	local devices=/sys/class/infiniband found=$RDMA port
	NIC=''
	# The first of mlx5, because no other driver of adapters has on-demand paging. Else the first that is a PCI device.
	[ -n "$found" ] || found=$({ grep -l '^DRIVER=mlx5_core' $devices/*/device/uevent || ls $devices/*/device/uevent; } 2>/dev/null |
		sed -n "1s,^$devices/\([^/]*\)/.*,\1,p")
	port=$devices/$found/ports/1
	[ -e "$port/../../device" ] || return
	RDMA=$found NIC=$(basename "$(readlink -f "$port/../../device")")
	[ -z "$GID" ] || return 0
	[ "$(cat "$port/link_layer")" != Ethernet ] ||
		GID=$(cd "$port/gid_attrs/types" && grep -sxl 'RoCE v2' [0-9]* | sort -n | sed -n 1p)
	: "${GID:=0}"
}

# odp NAME: whether this RDMA device has on-demand paging
odp() {
	python3 -c 'import sys; from pyverbs.device import Context
sys.exit(not Context(name=sys.argv[1]).query_device_ex().odp_caps.general_caps & 1)' "$1" 2>/dev/null
}

find_p2p_check() { PATH=$TOP/build:$TOP/p2p-check:/programs:$PATH type -P p2p-check; }

iommu_mode() {
	local device=${NIC:-$PCI}
	case $(cat "/sys/bus/pci/devices/${device:-none}/iommu_group/type" 2>/dev/null) in
	'' | identity) echo pt ;;
	DMA) echo strict ;;
	*) echo lazy ;;
	esac
}

# windows: how many huge pages fit into the part of BAR1 that nouveau has reserved for peers
windows() { echo $(($(cat "/sys/bus/pci/devices/$PCI/p2pmem/size" 2>/dev/null || echo 0) >> 21)); }

p2p_is_on() { [ "$(cat "/sys/module/$GPU/parameters/svm_p2p" 2>/dev/null)" = Y ]; }

# has WORD: one of the words of the lines "needs". If it is missing, $why says so.
has() {
	local n
	case $1 in
	rxe) why="no rdma_rxe, dummy, ip or rdma" && has_module rdma_rxe && has_module dummy && type ip rdma >/dev/null 2>&1 ;;
	test_hmm) why="the kernel has no module test_hmm (CONFIG_TEST_HMM)" && has_module test_hmm ;;
	kselftest) why="no --kselftest" && [ -n "$KSELFTEST" ] ;;
	adapter) why="no RDMA adapter with on-demand paging" && [ -n "$NIC" ] && [ "$has_odp" = yes ] ;;
	gpu) why="no GPU of xe or nouveau" && [ -n "$GPU" ] ;;
	xe | nouveau) why="no GPU of $1" && [ "$GPU" = "$1" ] ;;
	patched) why="the kernel has no patches" && patched ;;
	p2p) why="booted without $GPU.svm_p2p=1" && p2p_is_on ;;
	no-p2p) why="booted with $GPU.svm_p2p=1" && ! p2p_is_on ;;
	path) why="the adapter does not reach the GPU: pages migrate to RAM" && [ "$EXPECT" != ram ] ;;
	windows) n=$(windows) && why="BAR1 has room for $n windows" && [ "$n" -gt 0 ] && [ "$n" -lt 1024 ] ;;
	*) die "$steps: not known: needs $1" ;;
	esac
}

# ---- check ----

missing=0
good() { printf 'ok       %s\n' "$*"; }
note() { printf 'note     %s\n' "$*"; }
lacks() { # WHAT TO-DO
	printf 'missing  %s: %s\n' "$1" "$2"
	missing=1
}

# either WHAT TO-DO COMMAND...: if the command fails, this is missing. Without TO-DO, has() says why.
either() {
	local why
	if "${@:3}" 2>/dev/null; then
		good "$1"
	else
		lacks "$1" "${2:-$why}"
	fi
}

check_config() {
	local have line symbol n=0
	have=$(find_config) || {
		note "kernel configuration: not found; say where it is with --config FILE"
		return
	}
	while read -r line; do
		symbol=${line%%=*}
		grep -qE "^$symbol=(y|${line#*=})$" <<<"$have" || {
			lacks "$symbol" "set it to ${line#*=} and build the kernel again"
			n=1
		}
	done < <(grep '^CONFIG_' "$wanted_config")
	[ $n = 1 ] || good "kernel configuration: all of kernel-config/hardware.config"
}

check_path() {
	local program text rc=0
	program=$(find_p2p_check) || {
		note "p2p-check is not built (make p2p-check): so it is not known whether the two devices reach each other"
		return
	}
	[ -n "$GPU" ] && [ -n "$NIC" ] || return 0
	text=$("$program" "$PCI" "$NIC" 2>&1) || rc=$?
	printf '         %s\n' "${text//$'\n'/$'\n         '}"
	case $rc in
	3) note "p2p-check does not know whether the two devices reach each other" ;;
	0) good "p2p-check: the two devices reach each other" ;;
	1) lacks "a path between the two devices" "see the lines above; pages migrate to RAM instead" ;;
	*) note "p2p-check failed with $rc" ;;
	esac
}

check() {
	local tool
	either "patches in the kernel $(uname -r)" "build and boot one with them (MAINTAINERS-notes/hardware.md); until then only steps without 'patched' run" patched
	for tool in python3 rdma ip modinfo; do
		command -v $tool >/dev/null || lacks $tool "install python3, iproute2 and kmod (the names in Debian)"
	done
	either pyverbs "install python3-pyverbs and ibverbs-providers (the names in Debian)" python3 -W ignore -c 'import pyverbs.mr'
	either rxe '' has rxe
	either test_hmm '' has test_hmm
	if find_gpu; then
		good "GPU $PCI, driver $GPU, $NODE"
		either "$GPU.svm_p2p=1" "boot with it: it lets peers reach device memory" has p2p
		[ "$GPU" != nouveau ] || has windows || note "$why; the steps with 'windows' are left out"
	else
		lacks GPU "none has the driver xe (Arc B580, B570) or nouveau (Pascal); dmesg says if firmware is missing (linux-firmware: xe/, nvidia/)"
	fi
	if find_adapter; then
		good "adapter $RDMA at $NIC, GID $GID, firmware $(cat "/sys/class/infiniband/$RDMA/fw_ver" 2>/dev/null || echo unknown)"
		either "port 1 of $RDMA" "it is not ACTIVE (rdma link); a loopback plug is enough, InfiniBand needs opensm, too" \
			grep -q ACTIVE "/sys/class/infiniband/$RDMA/ports/1/state"
		either "on-demand paging of $RDMA" "mlx5 has it from ConnectX-4 on; pyverbs must be there, too" odp "$RDMA"
	else
		lacks adapter "no RDMA device that is a PCI device (rdma link; for mlx5: modprobe mlx5_ib)"
	fi
	if [ -n "$(ls /sys/class/iommu 2>/dev/null)" ]; then
		good "IOMMU mode $(iommu_mode): $(title mode "$(iommu_mode)")"
	else
		note "no IOMMU is on: only the steps of mode $(iommu_mode) run; turn it on in the BIOS (VT-d, AMD-Vi) for the others"
	fi
	check_config
	! grep -qE '\[(integrity|confidentiality)\]' /sys/kernel/security/lockdown 2>/dev/null ||
		lacks "a kernel that is not locked down" "turn Secure Boot off: debugfs and the step zero need it"
	[ ! -d /sys/module/nvidia ] || [ "$GPU" = xe ] || lacks "a free GPU" "NVIDIA's driver is loaded: unload it, or see out-of-tree/nvidia-uvm"
	check_path
	return $missing
}

# ---- run ----

RXE=''
ours=() # the commands that undo what this script did

begin_rxe() {
	local i gid
	[ -z "$RXE" ] || return 0
	modprobe -a dummy rdma_rxe ib_uverbs && ip link add hmm-net0 mtu 9000 type dummy || return
	ours+=("ip link delete hmm-net0")
	ip address add 192.0.2.1/24 dev hmm-net0 && ip link set hmm-net0 up || return
	ours+=("rdma link delete hmm-rxe0")
	rdma link add hmm-rxe0 type rxe netdev hmm-net0 || return
	# A work queue fills the table. This is 192.0.2.1, mapped to IPv6:
	for ((i = 0; i < 100; i++)); do
		gid=$(cd /sys/class/infiniband/hmm-rxe0/ports/1/gids && grep -sxl 0000:0000:0000:0000:0000:ffff:c000:0201 [0-9]*) && break
		sleep 0.1
	done
	RXE="hmm-rxe0 $gid"
}

begin_test_hmm() {
	[ ! -d /sys/module/test_hmm ] || return 0
	modprobe test_hmm && ours+=("modprobe -r test_hmm")
}

undo() {
	local command
	for command in "${ours[@]}"; do $command >/dev/null 2>&1 || true; done
	ours=() RXE=''
}

# variables: for the lines "run"
variables() {
	T="python3 -B $SUITES/rxe/device-memory.py"
	patched || T+=" --unpatched"
	ADAPTER="$RDMA $GID" MEMORY="--$GPU $NODE" PAGES=$(($(windows) * 768))
	export T SUITES PCI ADAPTER MEMORY PAGES KSELFTEST EXPECT RXE TESTS REPEAT
}

# folder STEP [MODE]: where its results are. A step without "modes" needs to pass in one mode only.
folder() {
	if has_modes "$1"; then
		echo "$out/$(uname -r)/${2:-$mode}/$1"
	else
		echo "$out/$(uname -r)/$1"
	fi
}

state() { cat "$(folder "$@")/state" 2>/dev/null || true; } # STEP [MODE]

# lacking STEP [WORD...]: print the first of its needs that is missing. The words do not count.
lacking() {
	local word why
	for word in $(field "$1" needs); do
		[[ " ${*:2} " != *" $word "* ]] || continue
		has "$word" || {
			echo "$why"
			return
		}
	done
}

run_step() { # STEP
	local dir line rc=0 why began=$SECONDS minutes mark
	dir=$(folder "$1")
	why=$(lacking "$1")
	[ -z "$why" ] || {
		echo "$1: left out: $why"
		return 0
	}
	[ "$named" = 1 ] || [[ $(state "$1") != passed* ]] || {
		echo "$1: has passed before"
		fits=1
		return 0
	}
	minutes=$(field "$1" minutes) fits=1
	echo "$1: about $minutes min: $(title step "$1")"
	rm -rf "$dir"
	mkdir -p "$dir"
	mark="hmm-p2p: step $1 begins $(date +%s)"
	echo "$mark" >/dev/kmsg
	exec {output}>"$dir/output.txt"
	for line in $(field "$1" needs); do
		case $line in rxe | test_hmm) "begin_$line" >&"$output" 2>&1 || rc=$? ;; esac
	done
	variables
	printf '%s\n' "T='$T'" "ADAPTER='$ADAPTER'" "MEMORY='$MEMORY'" "GPU=$PCI" "EXPECT=$EXPECT" >&"$output"
	while [ $rc -eq 0 ] && read -r line <&3; do
		echo "$line" >&"$output"
		attend timeout -k 30 $((minutes * 600 * ${HMM_P2P_SLOWDOWN:-1})) bash -c "$line" >&"$output" 2>&1 || rc=$?
	done 3< <(field "$1" run)
	exec {output}>&-
	# The newest messages of the kernel. Other programs write to the log, too.
	dmesg -x | awk -v mark="$mark" 'index($0, mark) { on = 1; next } on && /^kern/ { sub(/^[^[]*/, ""); print }' >"$dir/dmesg.txt"
	[ ! -s "$dir/dmesg.txt" ] || "$TOP/scripts/guest/splats.sh" "$dir/dmesg.txt" >"$dir/splats.txt" || {
		[ $rc -ne 0 ] || rc=splat
		sed 's/^/    the log has: /' "$dir/splats.txt"
	}
	line=passed
	[ "$rc" = 0 ] || line=failed
	# Where pages were expected tells whether the adapter used them in place.
	echo "$line$([[ " $(field "$1" needs) " != *" adapter gpu "* ]] || echo ", pages: $EXPECT")" >"$dir/state"
	printf '%s: %s (%d:%02d)\n' "$1" "$line" $(((SECONDS - began) / 60)) $(((SECONDS - began) % 60))
	[ "$line" = passed ] || {
		grep -B 3 -E '^ *not ok' "$dir/output.txt" | grep -E '^ *(#|not ok)' | tail -n 12 | sed 's/^/    /' || tail -n 5 "$dir/output.txt" | sed 's/^/    /'
		echo "    $(field "$1" fails)"
		failed=1
	}
}

# left: what to boot for the steps that are left. A step with "modes" first appears in the modes other than this one.
left() {
	local other step todo
	for other in $(all mode); do
		todo=
		# Without an IOMMU there are no modes.
		for step in $([ -z "$(ls /sys/class/iommu 2>/dev/null)" ] || all step); do
			[ "$other" = "$mode" ] || ! has_modes "$step" || [ -n "$(lacking "$step" p2p)" ] || [[ $(state "$step" "$other") == passed* ]] || todo+=" $step"
		done
		[ -z "$todo" ] || echo "left:$todo: boot with $(title mode "$other") $GPU.svm_p2p=1"
	done
	for other in p2p no-p2p; do
		todo=
		for step in $(all step); do
			[ -z "$(lacking "$step")" ] || [ -n "$(lacking "$step" "$other")" ] || [[ $(state "$step") == passed* ]] || todo+=" $step"
		done
		[ -z "$todo" ] || echo "left:$todo: boot $([ $other = p2p ] && echo with || echo without) $GPU.svm_p2p=1"
	done
}

# ---- the report ----

# mask: what identifies a machine. Addresses on the PCI bus and numbers of devices stay.
mask() {
	local host
	host=$(uname -n | sed 's/[][\.*^$/]/\\&/g')
	[ "$host" != '(none)' ] || host='^$'
	sed -E \
		-e 's/(.*([Ss]erial ?([Nn]umber|[Nn]o)|\[SN\]|\[V[0-9A-Z]\])[^:=]*[:= ]).*/\1 MASKED/' \
		-e 's/\b([0-9a-fA-F]{2}:){5,}[0-9a-fA-F]{2}\b/MAC/g' \
		-e 's/\b(0x)?[0-9a-fA-F]{4}(:[0-9a-fA-F]{4}){3,7}\b/GUID/g' \
		-e 's/\b[0-9a-fA-F]{1,4}(:[0-9a-fA-F]{1,4})*::([0-9a-fA-F]{1,4}(:[0-9a-fA-F]{1,4})*)?(:[0-9.]+)?/IP/g' \
		-e 's/\b([0-9]{1,3}\.){3}[0-9]{1,3}\b/IP/g' \
		-e 's/\benx[0-9a-f]{12}\b/enxMAC/g' \
		-e 's/[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}/UUID/g' \
		-e 's/[A-Za-z0-9._-]+@[A-Za-z0-9._-]+/USER@HOST/g' \
		-e "s/\b$host\b/HOST/g; s/\b${host%%\\.*}\b/HOST/g"
}

try() { ! command -v "$2" >/dev/null || "${@:2}" >"$files/$1" 2>&1 || true; } # FILE COMMAND...

machine() {
	echo "repository: $(git -c safe.directory='*' -C "$TOP" rev-parse HEAD 2>/dev/null || echo unknown)"
	uname -srvm
	cat /proc/cmdline
	grep -m 1 'model name' /proc/cpuinfo
	grep -s . /sys/class/dmi/id/{sys_vendor,product_name,board_vendor,board_name,bios_version,bios_date} \
		/sys/module/{xe,nouveau}/parameters/svm_p2p || true
}

table() {
	local step other
	for step in $(all step); do
		for other in $(has_modes "$step" && all mode || echo -); do
			printf '%-10s %-7s %s\n' "$step" "$other" "$(state "$step" "$other" | grep . || echo "not run")"
		done
	done
}

report() {
	local file program
	mkdir "$files"
	machine >"$files/machine.txt"
	find_config >"$files/config.txt" || rm "$files/config.txt"
	table >"$files/steps.txt"
	check >"$files/check.txt" 2>&1 || true
	try lspci-tree.txt lspci -tv
	try lspci.txt lspci -vvnn
	if program=$(find_p2p_check); then
		try p2p-check.json "$program" --json
		[ -z "$PCI" ] || [ -z "$NIC" ] || try p2p-check.svg "$program" --svg "$PCI" "$NIC"
	fi
	try ibv_devinfo.txt ibv_devinfo -v
	try rdma.txt rdma link
	dmesg -x | grep '^kern' >"$files/dmesg.txt" || true
	cp -r "$out/$(uname -r)" "$files/steps"
	find "$files" -type f | while IFS= read -r file; do
		mask <"$file" >"$tmp/masked"
		mv "$tmp/masked" "$file"
	done
	tar -C "$tmp" --owner=0 --group=0 --numeric-owner -cf "$out/hmm-p2p-report.tar" hmm-p2p-report
	echo "report: $out/hmm-p2p-report.tar (look into it before you send it)"
}

run() {
	local step program rc=0
	[ "$(id -u)" = 0 ] || die "run needs root"
	mkdir -p "$out/$(uname -r)"
	exec {lock}>"$out/lock"
	flock -n "$lock" || die "another one runs in $out"
	scratch "$out"
	trap 'end_scratch; undo' EXIT
	files=$tmp/hmm-p2p-report
	find_gpu || true
	# Asked once, because Python takes seconds to start on a slow machine.
	! find_adapter || ! odp "$RDMA" || has_odp=yes
	mode=$(iommu_mode) failed=0 fits=0 named=$(($# > 0))
	if [ -z "$EXPECT" ]; then
		EXPECT=any
		! program=$(find_p2p_check) || [ -z "$GPU" ] || [ -z "$NIC" ] || {
			"$program" "$PCI" "$NIC" >/dev/null 2>&1 || rc=$?
			case $rc in 0) EXPECT=stay ;; 1) EXPECT=ram ;; esac
		}
	fi
	echo "GPU ${PCI:-none} ($GPU), adapter ${RDMA:-none}, IOMMU mode $mode, pages are expected: $EXPECT"
	for step in $(all step); do
		[ $# -eq 0 ] || [[ " $* " == *" $step "* ]] || continue
		run_step "$step"
	done
	undo
	left
	report
	[ $fits = 1 ] || die -c "$EX_FAIL" "no step fits this machine: see hardware.sh check"
	return $failed
}

list() {
	local step
	for step in $(all step); do
		printf '%s: %s (%s min%s)\n    needs: %s\n    a failure: %s\n' "$step" "$(title step "$step")" "$(field "$step" minutes)" \
			"$(! has_modes "$step" || echo ' in each mode')" "$(field "$step" needs)" "$(field "$step" fails)"
	done
	for step in $(all mode); do echo "mode $step: $(title mode "$step")"; done
}

[[ " $* " != *" --help "* ]] || set -- --help
arguments 1 99 '' "$@"
verb=$1
shift
[[ $verb =~ ^(check|run|list)$ ]] || die "not known: $verb (see --help)"
while [ $# -gt 0 ]; do
	[[ $1 != --* ]] || [ $# -ge 2 ] || die "$1 needs a value"
	case $1 in
	--gpu) PCI=$2 ;;
	--adapter) RDMA=$2 ;;
	--gid) GID=$2 ;;
	--expect) EXPECT=$2 ;;
	--config) config=$2 ;;
	--tests) TESTS=$2 ;;
	--repeat) REPEAT=$2 ;;
	--kselftest) KSELFTEST=$2 ;;
	--dir) out=$2 ;;
	--*) die "not known: $1 (see --help)" ;;
	*)
		[ "$verb" = run ] || die "$verb takes no $1"
		for step; do
			grep -qx -e "$step" < <(all step) || die "no step $step (hardware.sh list)"
		done
		break
		;;
	esac
	shift 2
done
case $EXPECT in '' | stay | ram | any) ;; *) die "--expect $EXPECT: stay, ram or any" ;; esac
[ -z "$config" ] || [ -r "$config" ] || die "no $config"
out=$(realpath -m -- "$out")
"$verb" "$@"
