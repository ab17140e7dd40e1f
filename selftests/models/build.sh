# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# Sourced by the programs that start a model for a guest.

# build NAME [VARIABLE=VALUE...]: make the model build/models/NAME. Only one run at a time does this.
build() {
	mkdir -p "$BUILD/models"
	exec 9>"$BUILD/models/lock"
	flock 9
	make -s -C "$TOP/selftests/models/$1" OUT="$BUILD/models" "${@:2}" >&2
	exec 9>&-
}
