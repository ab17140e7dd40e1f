#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Boot a kernel in QEMU with a PCIe topology and run a command in it.
#
# usage: vm.sh run [-q] [-o DIR] [-a WORDS] KERNEL TOPOLOGY COMMAND...
#        vm.sh boot TOPOLOGY [KERNEL]
#
# run: COMMAND (plain words) prints KTAP.
#   -o DIR    folder of the result (default: below results/; selftests/README.md lists
#             its files)
#   -a WORDS  more words for the kernel command line
#   -q        do not print the first line and the conclusion (used by test.sh)
# boot: starts an interactive shell on the serial console (default kernel: normal).
#
# KERNEL is a folder of build/kernels. TOPOLOGY is a file of selftests/topologies (its
# README describes the format) or, with a slash, the path of such a file.
#
# If COMMAND is /suites/SUITE/run, files in its suite folder change the run. test.sh
# --help lists them. These change how QEMU is called:
#   icount    lists first arguments of COMMAND. Such a run gets one processor and
#             virtual time: 2^SHIFT ns per instruction. SHIFT is the second word of the
#             line (default: 3)
#   importer, exporter
#             programs that replace each importer (edu) or exporter of the topology. A
#             program gets a socket and the arguments of the run. On the socket it must
#             be a PCI device for QEMU (vfio-user). Its output goes to importer0.log
#             and so on. If it fails, the run fails
#
# The guest can send QMP commands to QEMU: it writes "monitor: device_del ID" to
# /dev/kmsg. Answers and events are in monitor.log, one JSON object per line. If a
# command is refused or not answered, the run fails.
#
# Time limits only catch hangs. In seconds, with their defaults:
#   BOOT_TIMEOUT (60)      from exec to the first line of the guest's init
#   TEST_TIMEOUT (1800)    from there to the end
#   SILENCE_TIMEOUT (300)  without a line on the console
# All limits, also those in the guest, are multiplied by SLOWDOWN (default: 1) and by a
# factor for this machine: the number of seconds that the first boot of this kernel took
# here, divided by 4 and rounded up. The factor is 10 before the first boot. Limits of
# single tests are four times those in their source, which were chosen for hardware.
# FAIL_FAST=1 ends the guest at the first test that fails.
set -euo pipefail
. "$(dirname "$0")/../common.sh"

# topology FILE: read the file into variables, and its devices, exporters and importers into qemu_devices.
topology() {
	local key value id backing=ram
	local -A count=([exporter]=0 [importer]=0)
	# Memory that another process can access has to be a file.
	[ -z "$importer$exporter" ] || backing=memfd
	description='' cpu='' memory='' append='' verdict='' data='' shape=direct bar=16M dma_bits=64 masked=no
	qemu_devices=()
	while IFS='=' read -r key value || [ -n "$key" ]; do
		case $key in
		'' | '#'*) ;;
		description | cpu | memory | verdict | data | shape | bar | dma_bits | masked) printf -v "$key" %s "$value" ;;
		append) append+=" $value" ;;
		device)
			# Without caching-mode a device in another process is not told what the IOMMU maps.
			[ -z "$importer$exporter" ] || [[ $value != intel-iommu* ]] || value+=,caching-mode=on
			qemu_devices+=(-device "$value")
			;;
		exporter | importer)
			id=$key$((count[$key]++))
			if [ -n "${!key}" ]; then
				vfio_user "$id" "$value"
			elif [ "$key" = importer ]; then
				qemu_devices+=(-device "edu,dma_mask=0xffffffffffffffff,id=$id,$value")
			else
				qemu_devices+=(-object "memory-backend-$backing,id=$id-bar,size=$bar,share=on")
				qemu_devices+=(-device "ivshmem-plain,memdev=$id-bar,id=$id,$value")
			fi
			;;
		*) die "$1: not known: $key (see selftests/topologies/README)" ;;
		esac
	done <"$1"
	{ [ -n "$cpu" ] && [ -n "$memory" ]; } || die "$1: cpu and memory are needed"
	must_be "$1" verdict "$verdict" '((bus|bridge|none)[, ]?)*'
	must_be "$1" data "$data" 'yes|no: .+'
	must_be "$1" shape "$shape" 'direct|iova'
	must_be "$1" bar "$bar" '[0-9]+[MG]'
	must_be "$1" dma_bits "$dma_bits" '[0-9]+'
	must_be "$1" masked "$masked" 'yes|no'
}

# vfio_user ID VALUE: add a device that is a process of its own
vfio_user() {
	local value=\"${2//=/\":\"}\"
	sockets+=("$socket_dir/$1")
	# QEMU takes a socket only in JSON, so all options have to be JSON: bus=b,addr=a becomes "bus":"b","addr":"a".
	value=${value//,/\",\"},\"id\":\"$1\"
	value+=",\"socket\":{\"type\":\"unix\",\"path\":\"${sockets[-1]}\"}"
	qemu_devices+=(-device "{\"driver\":\"vfio-user-pci\",$value}")
}

must_be() { # FILE KEY VALUE PATTERN
	[[ $3 =~ ^($4)$ ]] || die "$1: $2=$3: must be of the form $4 (see selftests/topologies/README)"
}

# qemu_command: set qemu=(...). The command of the guest comes last on the kernel command line, after "--".
qemu_command() {
	local machine=q35 cmdline processors=(-smp 2)
	# For slow devices: edu takes 100 ms for a transfer. With sleep=off the clock of an idle guest jumps to the next timer.
	[ -z "$icount" ] || processors=(-smp 1 -icount "shift=$icount,sleep=off")
	# The console is scanned, so no message may be filtered (ignore_loglevel, printk.devkmsg) or lost (log_buf_len).
	# After an oops the state of the guest is unknown, so it stops.
	cmdline="console=ttyS0 ignore_loglevel printk.devkmsg=on log_buf_len=4M panic=-1 oops=panic"
	# On a busy host the guest may miss the ticks by which it checks its timer. It would panic.
	cmdline+=" no_timer_check"
	# While the first clock is still jiffies, Linux 7.3's clocksource watchdog can wait for ever: MAINTAINERS-notes/ci.md.
	cmdline+=" tsc=nowatchdog"
	# A guest on a busy host may look stuck. The first two limits have a maximum.
	cmdline+=" watchdog_thresh=60 rcupdate.rcu_cpu_stall_timeout=300"
	cmdline+=" sysctl.kernel.hung_task_timeout_secs=$((120 * slowdown)) kunit.timeout=$((300 * slowdown))"
	cmdline+="$append $append_more HMM_P2P_DMA_BITS=$dma_bits HMM_P2P_DATA=${data%%:*} HMM_P2P_SHAPE=$shape"
	[ -z "$verdict" ] || cmdline+=" \"HMM_P2P_VERDICT=$verdict\""
	[ "$masked" != yes ] || cmdline+=" HMM_P2P_MASKED=1"
	# The time limits of single tests are made for hardware.
	cmdline+=" HMM_P2P_SLOWDOWN=$((4 * slowdown)) -- $*"
	if [ ${#sockets[@]} -gt 0 ]; then
		machine+=,memory-backend=ram
		qemu_devices=(-object "memory-backend-memfd,id=ram,size=$memory,share=on" "${qemu_devices[@]}")
	fi
	qemu=(
		"$qemu_binary" -machine "$machine" -accel "$accel" -cpu "$cpu" "${processors[@]}" -m "$memory"
		-nodefaults -no-user-config -display none -no-reboot
		-device "isa-debug-exit,iobase=0x501,iosize=1"
		"${qemu_devices[@]}"
		-kernel "$kdir/bzImage" -initrd "$initrd" -append "$cmdline"
	)
}

# qemu_script ARGUMENT...: print the QEMU command as a script. Paths of this machine are defaults of variables there.
qemu_script() {
	local word start='exec '
	cat <<EOF
#!/bin/sh
# The QEMU of this run. Ctrl-A X ends it. Ctrl-A C switches to the monitor: type there what the guest requests in lines
# "monitor: ...". To run it on another machine, copy the files of KERNEL and INITRD, too, and name the copies:
#   QEMU=qemu-system-x86_64 KERNEL=./bzImage INITRD=./initramfs.cpio ./qemu.sh
: "\${QEMU:=$qemu_binary}" # was $qemu_version
: "\${KERNEL:=$kdir/bzImage}"
: "\${INITRD:=$initrd}"
missing() { # VARIABLE VALUE
	echo "qemu.sh: no \$2: say on the command line where it is here, \$1=..." >&2
	exit 2
}
command -v "\$QEMU" >/dev/null || missing QEMU "\$QEMU"
[ -f "\$KERNEL" ] || missing KERNEL "\$KERNEL"
[ -f "\$INITRD" ] || missing INITRD "\$INITRD"
EOF
	[ ${#sockets[@]} -eq 0 ] || {
		start=
		cat <<EOF
# Devices that are processes: the programs "importer" and "exporter" of this suite, in a clone with its build/tree.
: "\${SUITE:=$TOP/selftests/suites/$suite}"
sockets=\$(mktemp -d /tmp/hmm-p2p.XXXXXX)
pids=
trap 'kill \$pids 2>/dev/null; rm -rf "\$sockets"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
for socket in ${sockets[*]##*/}; do
	program=\$SUITE/\${socket%%[0-9]*}
	[ -x "\$program" ] || missing SUITE "\$program"
	"\$program" "\$sockets/\$socket" $* &
	pids="\$pids \$!"
	while [ ! -S "\$sockets/\$socket" ]; do
		kill -0 \$! 2>/dev/null || { echo "qemu.sh: \$program ended without a socket" >&2; exit 2; }
		sleep 0.1
	done
done
EOF
	}
	printf %s "$start"
	for word in "${qemu[@]}" -serial mon:stdio; do
		case $word in
		"$qemu_binary") printf '"$%s"' QEMU ;;
		"$kdir/bzImage") printf ' "$%s"' KERNEL ;;
		"$initrd") printf ' "$%s"' INITRD ;;
		-*) printf ' \\\n\t%s' "$word" ;;
		*)
			word=${word@Q}
			[ -z "$socket_dir" ] || word=${word//"$socket_dir"/"'\"\$sockets\"'"}
			printf ' %s' "$word"
			;;
		esac
	done
	echo
}

setup() { # KERNEL TOPOLOGY [COMMAND ARGUMENT...]
	local file=$TOP/selftests/topologies/$2 list=$TOP/selftests/suites/$suite/icount tenths=400
	kernel=$1 topology_name=${2##*/}
	kdir=$BUILD/kernels/$kernel
	[ -f "$kdir/bzImage" ] || {
		KERNELS=$kernel "$TOP/scripts/list.sh" --check || exit
		die "no kernel $kernel in $BUILD/kernels: run 'make kernel-$kernel' first"
	}
	[[ $2 != */* ]] || file=$2
	{ [ -f "$file" ] && [ "$topology_name" != README ]; } ||
		die "no topology $2; there are: $(cd "$TOP/selftests/topologies" && echo [!R]*)"
	importer=$TOP/selftests/suites/$suite/importer exporter=$TOP/selftests/suites/$suite/exporter
	[ -x "$importer" ] || importer=''
	[ -x "$exporter" ] || exporter=''
	# A short path, because the path of a socket has at most 107 characters.
	[ -z "$importer$exporter" ] || socket_dir=$(mktemp -d /tmp/hmm-p2p.XXXXXX)
	topology "$file"
	icount='' accel=${ACCEL:-tcg} accel_words='TCG (no KVM)'
	[ ! -f "$list" ] || icount=$(awk -v run="${4:-}" '{ sub(/#.*/, "") } NF && $1 == run { print(NF > 1 ? $2 : 3) }' "$list")
	# Virtual time exists only with TCG.
	[ -z "$icount" ] || accel=tcg
	case $accel in
	tcg) ;;
	kvm)
		[ -w /dev/kvm ] || die "ACCEL=kvm: /dev/kvm is missing, or not yours to write"
		accel_words='KVM (the tests were never run with it)'
		;;
	*) die "ACCEL=$accel: must be tcg or kvm" ;;
	esac
	qemu_binary=$("$TOP/scripts/build/tool.sh" qemu)
	qemu_version=$("$qemu_binary" --version | sed -n '1s/.*version \([^ ]*\).*/\1/p')
	initrd=$("$TOP/scripts/build/initramfs.sh" "$kernel" "$suite")
	[ ! -f "$kdir/boot" ] || tenths=$(cat "$kdir/boot")
	slowdown=$((slowdown * ((tenths + 39) / 40)))
	boot_timeout=$((${BOOT_TIMEOUT:-60} * slowdown))
	test_timeout=$((${TEST_TIMEOUT:-1800} * slowdown))
	silence_timeout=$((${SILENCE_TIMEOUT:-300} * slowdown))
}

# within TENTHS COMMAND...: wait until the command succeeds, at most this time
within() {
	local i
	for ((i = 0; i < $1; i++)); do
		! "${@:2}" || return 0
		sleep 0.1
	done
	return 1
}

# start_devices ARGUMENT...: devices that are processes start before QEMU. They end when QEMU ends.
start_devices() {
	local socket program
	devices=()
	for socket in "${sockets[@]}"; do
		program=$importer
		[[ $socket != */exporter* ]] || program=$exporter
		setpriv --pdeathsig KILL "$program" "$socket" "$@" >"$part/${socket##*/}.log" 2>&1 </dev/null &
		devices+=($!)
		within 600 test -S "$socket" || die "$program has no socket: $(tail -n 1 "$part/${socket##*/}.log")"
	done
}

# end_devices: say in $device_why if one has failed
end_devices() {
	local i rc name
	device_why=''
	for i in "${!devices[@]}"; do
		# A device to which QEMU never connected would wait for ever.
		within 100 test ! -d "/proc/${devices[i]}" || kill -KILL "${devices[i]}" 2>/dev/null || true
		rc=0
		wait "${devices[i]}" || rc=$?
		name=${sockets[i]##*/}
		[ $rc -eq 0 ] || device_why="$name ended with $rc: $(grep -m 1 -E 'VIOLATION|IOMMU fault|status|unknown' "$part/$name.log" || tail -n 1 "$part/$name.log")"
	done
}

# QEMU reads MONITOR.in and writes MONITOR.out, which may be a file. The FIFO is opened for reading, too, so that opening does
# not wait for QEMU, and writing does not fail after its end.
start_monitor() {
	monitor=$part/monitor asked=0 monitor_why=''
	mkfifo "$monitor.in"
	: >"$monitor.out"
	exec {to_monitor}<>"$monitor.in"
	# QEMU requires this command before all others.
	qmp qmp_capabilities
}

# qmp COMMAND [ARGUMENTS]: send a command to the monitor
qmp() {
	printf '{"execute":"%s","arguments":{%s}}\n' "$1" "${2:-}" >&"$to_monitor"
	asked=$((asked + 1))
}

# ask_monitor COMMAND: a request of the guest. Only device_del is allowed, because the monitor can access files of the host.
ask_monitor() {
	if [[ $1 =~ ^device_del\ ([A-Za-z0-9_-]+)$ ]]; then
		qmp device_del "\"id\":\"${BASH_REMATCH[1]}\""
	else
		monitor_why="the guest may not ask this of the monitor: $1"
	fi
}

# end_monitor: say in $monitor_why what was refused or not answered
end_monitor() {
	local refused
	exec {to_monitor}>&-
	tr -d '\r' <"$monitor.out" >"$monitor.log"
	rm "$monitor.in" "$monitor.out"
	if refused=$(grep -m 1 '^{"error":' "$monitor.log"); then
		refused=${refused#*'"desc": "'}
		monitor_why="QEMU's monitor refused: ${refused%%'"}'*}"
	elif [ "$(grep -c '^{"return":' "$monitor.log")" -lt "$asked" ]; then
		: "${monitor_why:="QEMU's monitor did not answer: see monitor.log"}"
	fi
}

# run_qemu: copy the console to $console until QEMU has ended with $qemu_status. Times are tenths of a second since its start.
run_qemu() {
	local stage=boot limit=$boot_timeout since=0 pid left wait rc line
	up='' first_test='' why='' failed='' panic='' now=0
	exec {log}>"$console"
	# The output of QEMU is a pipe, so its end is noticed at once, and each read has a time limit.
	start=${EPOCHREALTIME/[.,]/}
	exec {serial}< <(exec setpriv --pdeathsig KILL "${qemu[@]}" -serial stdio \
		-chardev "pipe,id=monitor,path=${monitor//,/,,}" -mon monitor,mode=control </dev/null 2>"$part/qemu.err")
	pid=$!
	while :; do
		left=$((limit - (now - since) / 10))
		[ $left -gt 0 ] || {
			why="$stage took longer than $limit s"
			break
		}
		wait=$((left < silence_timeout ? left : silence_timeout))
		rc=0
		IFS= read -r -t "$wait" -u "$serial" line || rc=$?
		now=$(((${EPOCHREALTIME/[.,]/} - start) / 100000))
		line=${line%$'\r'}
		# At the end, or at a time limit, the line may be incomplete.
		[ $rc -ne 0 ] && [ -z "$line" ] || printf '%s\n' "$line" >&"$log"
		case $line in
		*'] guest: up'*)
			[ -n "$up" ] || {
				up=$now
				stage='the test' limit=$test_timeout since=$now
				# A boot in virtual time tells nothing about this machine.
				[ -f "$kdir/boot" ] || [ -n "$icount" ] || echo "$up" >"$kdir/boot"
			}
			;;
		*'] ktap: '*'TAP version '*) [ -n "$first_test" ] || first_test=$now ;;
		*'] monitor: '*) ask_monitor "${line#*'] monitor: '}" ;;
		*'] Kernel panic - not syncing'*)
			# panic=-1 ends QEMU after the call trace. A panic before the command line is parsed would hang.
			panic=${line#*] } stage='the end after the panic' limit=10 since=$now
			;;
		esac
		if [ "${FAIL_FAST:-}" = 1 ] && [[ $line =~ \]\ ktap:\ +not\ ok && ! $line =~ \#\ (SKIP|TODO) ]]; then
			failed=${line#*] ktap: }
			kill -KILL "$pid" 2>/dev/null || true
			break
		fi
		[ $rc -ne 1 ] || break
		if [ $rc -gt 128 ] && [ "$wait" -lt "$left" ]; then
			why="no line on the console for $wait s ($stage)"
			break
		fi
	done
	[ -z "$why" ] || {
		# Ask where the processors of a hanging guest are.
		qmp human-monitor-command '"command-line":"info registers -a"' 2>/dev/null
		within 50 grep -q 'RIP=' "$monitor.out" || true
		why+=" ($(grep -o 'RIP=[0-9a-f]*' "$monitor.out" | xargs || true))"
		kill -KILL "$pid" 2>/dev/null || true
	}
	qemu_status=0
	wait "$pid" || qemu_status=$?
	exec {serial}<&- {log}>&-
}

# judge: set code, why and guest_status
judge() {
	guest_status=''
	if [ -n "$panic" ]; then
		code=$EX_PANIC why=$panic
	elif [ -n "$failed" ]; then
		code=$EX_FAIL why="ended at the first failure: $failed"
	elif [ -n "$why" ]; then
		code=$EX_TIMEOUT
	elif [ $((qemu_status % 2)) -eq 1 ] && [ $qemu_status -ge 33 ] && [ $qemu_status -le 113 ]; then
		# The code of isa-debug-exit: see leave() in selftests/guest/init.
		code=0 guest_status=$(((qemu_status - 33) / 2))
		why=${device_why:-$monitor_why}
		[ -z "$why" ] || code=$EX_FAIL
	elif [ ! -s "$console" ]; then
		code=$EX_USAGE why="QEMU did not start (status $qemu_status): $(tail -n 1 "$part/qemu.err")"
	else
		code=$EX_DIED why="the guest ended without a word (QEMU status $qemu_status) after: $(tail -n 1 "$console")"
	fi
	local rc=0
	"$TOP/scripts/guest/splats.sh" "$console" >"$part/splats" 2>"$part/splats.err" || rc=$?
	if [ $code -eq 0 ] && [ $rc -ne 0 ] && [ $rc -ne "$EX_SPLAT" ]; then
		code=$EX_USAGE why=$(cat "$part/splats.err")
	fi
}

slowdown=${SLOWDOWN:-1}
case $slowdown in '' | *[!0-9]* | 0) die "SLOWDOWN=$slowdown: a whole number, 1 or more" ;; esac

arguments 1 999 '' "$@"
verb=$1
shift
append_more='' quiet='' suite=run dir='' part='' socket_dir='' sockets=()
case $verb in
boot)
	{ [ $# -ge 1 ] && [ $# -le 2 ]; } || die "usage: vm.sh boot TOPOLOGY [KERNEL]"
	setup "${2:-normal}" "$1"
	qemu_command shell
	echo "QEMU $qemu_version, $accel_words, kernel $kernel, topology $topology_name: $description. Ctrl-A X ends it."
	"${qemu[@]}" -serial mon:stdio && exit 0
	# The init of the guest ends QEMU with 33; see selftests/guest/init.
	[ $? -eq 33 ]
	exit
	;;
run) ;;
*) wrong_usage ;;
esac

while getopts qo:a: opt; do
	case $opt in
	q) quiet=yes ;;
	o) dir=$(realpath -m -- "$OPTARG") ;;
	a) append_more=$OPTARG ;;
	*) wrong_usage ;;
	esac
done
shift $((OPTIND - 1))
[ $# -ge 3 ] || wrong_usage
case "$*" in *[!A-Za-z0-9_./,:=\ +@%-]*) die "the guest command must be plain words: $*" ;; esac

# --pdeathsig: QEMU and the devices end with this script, however the script ends.
trap 'rm -rf "$part" "$socket_dir"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
[[ $3 != /suites/*/* ]] || suite=$(basename "$(dirname "$3")")
setup "$@"
repeat=$*
shift 2
[ -n "$dir" ] || dir=$(results_dir "$kernel" "$topology_name" "$suite" "${*:2}")
qemu_command "$@"
[ -n "$quiet" ] || echo "QEMU $qemu_version, $accel_words, kernel $kernel, topology $topology_name: $description"

# Results are written to a temporary folder, which is renamed at the end.
[ ! -d "$dir" ] || [ -f "$dir/results.json" ] || rmdir "$dir" 2>/dev/null || die "-o $dir: contains other files than results"
mkdir -p "$(dirname "$dir")"
part=$(mktemp -d "$dir.part.XXXXXX")
console=$part/console.log

qemu_script "${@:2}" >"$part/qemu.sh"
chmod +x "$part/qemu.sh"
cp "$kdir/config" "$part/config"
start_monitor
start_devices "${@:2}"
run_qemu
end_monitor
end_devices
judge

# tenths N: in seconds
tenths() { [ -z "$1" ] || echo $(($1 / 10)).$(($1 % 10)); }
sed -n 's/^\(\[[^]]*\]\)* ktap: //p' "$console" >"$part/ktap"
code=$("$TOP/scripts/guest/results.py" run "$part" code="$code" why="$why" guest_status="$guest_status" \
	suite="$suite" kernel="$kernel" topology="$topology_name" command="$*" \
	start="$(date -u -d "@$((start / 1000000))" -Is)" folder="${dir#"$TOP/"}" \
	repeat="scripts/guest/vm.sh run ${append_more:+-a ${append_more@Q} }$repeat" \
	base="$(base_field version)" series="$(series_id "$kernel")" accelerator="$accel" qemu="$qemu_version" \
	seconds="$(tenths "$now")" boot_seconds="$(tenths "$up")" first_test_seconds="$(tenths "$first_test")") || exit "$EX_USAGE"

rm -rf "$dir"
chmod 755 "$part"
mv "$part" "$dir"
if [ "$code" -ne 0 ]; then
	tail -n 20 "$dir/console.log" | sed 's/^/    /'
	echo "    $dir"
fi
[ -n "$quiet" ] || cat "$dir/conclusion.txt"
exit "$code"
