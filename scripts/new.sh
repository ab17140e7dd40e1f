#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Write a template for a new topology, test or mutant. CONTRIBUTING.md says what comes next.
#
# usage: new.sh topology NAME    selftests/topologies/NAME, its rows in README and in the suite hmm
#        new.sh test NAME        selftests/programs/NAME.c, a program for the guests
#        new.sh mutant NAME      selftests/mutants/NAME.patch, from the edits in build/tree, which it undoes
#
# Files that exist are not replaced.
set -euo pipefail
. "$(dirname "$0")/common.sh"
arguments 2 2 '' "$@"
name=$2
[[ $name =~ ^[a-z0-9]+(-[a-z0-9]+)*$ ]] || die "NAME=$name: small letters, digits and - only, as in: make new-$1 NAME=my-$1"
case $1 in
topology) out=selftests/topologies/$name ;;
test) out=selftests/programs/$name.c ;;
mutant) out=selftests/mutants/$name.patch ;;
*) wrong_usage ;;
esac
cd "$TOP"
[ ! -e "$out" ] || die "$out exists already"
case $1 in
topology)
	sed -e '1i # selftests/topologies/README explains each key.' \
		-e 's/^description=.*/description=one line for readers/' selftests/topologies/root-ports >"$out"
	printf 'normal\t\t%s\t\tnew\n' "$name" >>selftests/suites/hmm/runs
	sed -i "/^| \[\`none\`\](pictures\/none.svg)/i | [\`$name\`](pictures/$name.svg) | through host bridge | one line for readers |" selftests/README.md
	step "$out, selftests/suites/hmm/runs, selftests/README.md: edit them, then make topology, then make TOPOLOGIES=$name"
	;;
test)
	cat >"$out" <<'END'
// SPDX-License-Identifier: GPL-2.0-only
/*
 * What is tested, and on which devices.
 *
 * A suite runs it in the guest as /programs/NAME: add it to the suite's program "run". The output is KTAP.
 */
#include "kselftest_harness.h"

TEST(first)
{
	/* A device that is not there is a skip. List the test in the file may-skip of the suite. */
	if (access("/dev/null", F_OK))
		SKIP(return, "no device");
	/* The first value is what must be, the second what is. */
	ASSERT_EQ(1, 1);
}

TEST_HARNESS_MAIN
END
	sed -i "s/NAME/$name/" "$out"
	step "$out: edit it, and start it in selftests/suites/SUITE/run"
	;;
mutant)
	[ -d "$BUILD/tree/.git" ] || die "no build/tree: make tree"
	kgit "$BUILD/tree" diff --quiet && die "build/tree has no edits: break one line of the patches there first"
	{
		cat <<'END'
One sentence: what is broken.

Patch: SERIES subject of the patch that the mutant breaks
Run: normal switch -t TEST
Killed-by: name of the test that must notice

END
		kgit "$BUILD/tree" diff --no-prefix --src-prefix=a/ --dst-prefix=b/ | grep -v '^\(diff --git\|index \)'
	} >"$out"
	kgit "$BUILD/tree" diff | kgit "$BUILD/tree" apply --reverse
	step "$out: fill in its header (scripts/guest/mutants.py --help), then make mutants MUTANTS=$name"
	;;
esac
