#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Look for kernel splats in a console log.
#
# usage: splats.sh [-d DENY] [-a ALLOW] CONSOLE
#
# Prints one line per splat in the log CONSOLE: line number, name of the running test
# (or "-"), and message, separated by tabs. A splat is a message that matches a regular
# expression in DENY (default: selftests/guest/splats.deny) and none in ALLOW
# (splats.allow). The expressions see the message without the kernel's time stamp. For
# those in ALLOW, the name of the running test follows the message, in brackets. A stack
# trace belongs to the report above it; a stack trace without a report counts as a
# splat. KCSAN reports races of the whole kernel; a report counts only if one of its
# functions is in selftests/guest/kcsan.functions.
set -euo pipefail
. "$(dirname "$0")/../common.sh"

deny=$TOP/selftests/guest/splats.deny allow=$TOP/selftests/guest/splats.allow
functions=$TOP/selftests/guest/kcsan.functions
while [ $# -ge 2 ]; do
	case $1 in
	-d) deny=$2 ;;
	-a) allow=$2 ;;
	*) break ;;
	esac
	shift 2
done
arguments 1 1 '' "$@"
for f in "$1" "$deny" "$allow" "$functions"; do
	[ -r "$f" ] || die "cannot scan: no $f"
done
[ -s "$1" ] || die "cannot scan: $1 is empty"

# Remove comments and blank lines, because an empty pattern would match every line.
patterns() { sed '/^[[:space:]]*#/d; /^[[:space:]]*$/d' "$1"; }
# Each exception needs a comment directly above it, with the reason.
awk '/^[[:space:]]*#/ { reason = 1; next } /^[[:space:]]*$/ { reason = 0; next }
	!reason { print FILENAME ":" FNR ": no reason given for: " $0 > "/dev/stderr"; bad = 1 } { reason = 0 } END { exit bad }' "$allow" ||
	die "cannot scan: each entry of $allow needs a comment above it that says why"

# Print NUMBER<tab>TEST<tab>MESSAGE for each kernel message; lines that tests print are none. A message belongs to the test whose
# result comes next or, at the end of the log, to the test that was announced last.
messages() {
	tr -d '\r\000' <"$1" | FUNCTIONS=$(patterns "$functions" | paste -sd '|') awk -v OFS='\t' '
		function flush(test, i) { for (i = 1; i <= n; i++) print num[i], test, msg[i]; n = 0 }
		function ours(report, f, i, n, yes) {
			sub(/^BUG: KCSAN: .* in /, "", report)
			gsub(/\+0x[0-9a-f]+\/0x[0-9a-f]+/, "", report)
			# clones of a function by the compiler
			gsub(/\.(constprop|isra|part|cold)(\.[0-9]+)?/, "", report)
			n = split(report, f, " / ")
			for (i = 1; i <= n; i++) yes = yes || f[i] ~ "^(" ENVIRON["FUNCTIONS"] ")$"
			return yes
		}
		# Only the first brackets are removed, because reports of lockdep begin with brackets.
		{ sub(/^(<[0-9]+>)?(\[ *[0-9]+\.[0-9]+\] ?)?(\[ *[TC][0-9]+\] ?)?/, "") }
		/^(ktap:)? *(not )?ok [0-9]+ / {
			# KUnit prints its results to the log itself. The copy that a suite prints comes later.
			copied = sub(/^ktap: */, ""); sub(/^ */, "")
			if (copied && ($0 in results)) next
			if (!copied) results[$0]
			sub(/^(not )?ok [0-9]+ (- )?/, ""); sub(/ +#.*/, "")
			flush($0); running = ""
			next
		}
		/^ktap: / {
			sub(/^ktap: */, "")
			if ($0 ~ /^# +RUN +/) { running = $3 }
			next
		}
		/^BUG: KCSAN: / && !ours($0) { next }
		/^kmemleak: / { sub(/^kmemleak: /, "") }
		# mutants.py doubles functions: NAME__m0
		{ gsub(/__m[0-9]+\+/, "+") }
		{ num[++n] = NR; msg[n] = $0 }
		END { flush(running == "" ? "-" : running) }'
}

scratch "${TMPDIR:-/tmp}"
patterns "$deny" >"$tmp/deny"
patterns "$allow" >"$tmp/allow"
[ -s "$tmp/deny" ] || die "cannot scan: no pattern in $deny"
messages "$1" >"$tmp/messages"
cut -f3- "$tmp/messages" >"$tmp/text"

# grep returns 0 for a match and 1 for none. Any other code is an error, which must not look like a clean log.
matches() {
	local rc=0
	grep -nE -f "$2" "$1" | cut -d: -f1 || rc=${PIPESTATUS[0]}
	[ "$rc" -le 1 ] || die "cannot scan: grep failed on the patterns of $3"
}
matches "$tmp/text" "$tmp/deny" "$deny" >"$tmp/denied"
sed -E 's/^[^\t]*\t([^\t]*)\t(.*)/\2 [\1]/' "$tmp/messages" >"$tmp/named"
matches "$tmp/named" "$tmp/allow" "$allow" >"$tmp/allowed"

# A stack trace that belongs to a report, even to an allowed one, is no splat of its own. There are few lines between the head of
# a report and its stack trace.
splats=$(awk -F '\t' 'FILENAME == ARGV[1] { ok[$1]; next } FILENAME == ARGV[2] { bad[$1]; next } !(FNR in bad) { next }
	$3 == "Call Trace:" { if (head && FNR - head <= 50) next } { head = FNR } !(FNR in ok)' \
	"$tmp/allowed" "$tmp/denied" "$tmp/messages")
[ -n "$splats" ] || exit 0
printf '%s\n' "$splats"
exit "$EX_SPLAT"
