# SPDX-License-Identifier: GPL-2.0-only
# The commands. The work is in scripts/. `make help` lists the commands.

# One command at a time, even with -j, because the scripts use all processors themselves.
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

TOPOLOGY ?= switch
export KERNEL_TREE BASE_TARBALL SERIES BRANCH SUBMITTER REVISION FRESH TOPOLOGY NO_DEPS ACCEL
# Variables of the scripts. In the environment of the user they mean something else.
unexport BUILD PATCHES MAILS
# Progress is printed with the time since this moment.
export STARTED := $(shell date +%s)

.PHONY: all demo test check check-self mutants mutants-sample bench bench-compare soak soak-runs apply deb mbox refresh refresh-page tree export series-page boot kernels p2p-check topology report check-scripts clean distclean help list names deps base container new-topology new-test new-mutant
.PHONY: kernel-feature kernel-normal kernel-debug kernel-debug-gpu kernel-kcsan kernel-unpatched

all: names kernel-feature ## build the base with 1-hmm-p2p, boot six topologies or TOPOLOGIES="...", print how device memory was reached
	@scripts/run.sh

# A wrong name is an error before anything is built.
names:
	@scripts/list.sh --check

demo: names kernel-normal ## let GPU and adapter take turns, without and with the P2P flag, and print what is copied
	@scripts/run.sh demo

# Only the kernels that these tests need.
test: names ## run all tests, or those of SUITES="hmm ..." TOPOLOGIES="switch ..."
	@kernels=$$(scripts/test.sh --kernels "$(SUITES)" "$(TOPOLOGIES)") && $(MAKE) tree $$kernels
	@scripts/test.sh "$(SUITES)" "$(TOPOLOGIES)"

check: names tree ## check the patches: all checks, or CHECKS="form gcc ...", or CHECKS=fast
	@scripts/check.sh "$(CHECKS)"

check-self: names tree ## run the checks only on inputs that they must reject
	@scripts/check.sh --self "$(CHECKS)"

mutants: names tree ## break the patches at one place after the other, and print which test notices: all mutants, or MUTANTS="..."; continues where it stopped
	@scripts/mutants.py $(MUTANTS)

mutants-sample: tree ## the same as mutants, for N random places in lines that the patches add: N=40 SEED=1 FILES=mm/hmm.c
	@scripts/mutants-sample.py $(or $(N),40) $(or $(SEED),1) $(FILES)

bench: kernel-normal kernel-unpatched ## measure what the patches cost and save, in guest instructions
	@scripts/bench.py

bench-compare: ## compare the last `make bench` with the one before, or with FILE=raw.json
	@scripts/bench.py compare $(FILE)

# -k: also run the tests if mutants survive.
soak: names ## run the mutants, and the tests that take too long for make test; continues where it stopped (FRESH=1: from the beginning)
	@$(MAKE) -k mutants soak-runs

soak-runs: names
	@kernels=$$(LIST=soak scripts/test.sh --kernels "$(SUITES)" "$(TOPOLOGIES)") && $(MAKE) tree $$kernels
	@LIST=soak TEST_TIMEOUT=1800 scripts/test.sh "$(SUITES)" "$(TOPOLOGIES)"

boot: names kernel-normal ## start a shell in a guest: TOPOLOGY=switch
	@scripts/vm.sh boot "$(TOPOLOGY)"

apply: ## put the series on a new branch of your git tree: KERNEL_TREE=dir [SERIES="1-hmm-p2p 1-rdma-fixes"] [BRANCH=hmm-p2p]
	@scripts/apply.sh

mbox: ## write the mails of the series, without sending them: SUBMITTER="Name <mail>" KERNEL_TREE=dir [SERIES=...] [REVISION=2]
	@scripts/mbox.sh

deb: tree ## build Debian packages of the patched kernel: [CONFIG=file of a distribution] [DRY_RUN=1]
	@scripts/deb.sh $(if $(DRY_RUN),--dry-run) $(CONFIG)

refresh: ## try to apply the series to other kernels: BASE="7.2 7.3@trixie-backports", a tarball, or dir@commit
	@scripts/refresh.sh $(BASE)

refresh-page: ## write the results of make refresh to MAINTAINERS-notes/refresh.md
	@scripts/refresh.sh --page

tree: base ## make build/tree: the base with the series, one commit per patch
	@scripts/tree.sh

export: ## write the commits of build/tree back to patches/
	@scripts/export.sh
	@scripts/series-page.py

series-page: ## write the table and the picture of patches/README.md (needs graphviz)
	@scripts/series-page.py

kernels: kernel-feature kernel-normal kernel-debug ## build the kernels of make test

# The base and 1-hmm-p2p alone.
kernel-feature: tree
	@scripts/kernel.sh build feature

kernel-normal: tree
	@[ -f build/kernels/normal/stamp ] || echo "The first build of this kernel takes 15 to 35 minutes on two cores, because it has all modules." >&2
	@scripts/kernel.sh build normal

kernel-debug: tree
	@scripts/kernel.sh build debug

# These two are only for soak.
kernel-debug-gpu: tree
	@scripts/kernel.sh build debug-gpu

kernel-kcsan: tree
	@scripts/kernel.sh build kcsan

kernel-unpatched: base
	@scripts/kernel.sh build unpatched

base: deps
	@scripts/base.sh

deps:
	@scripts/deps.sh

p2p-check: ## build p2p-check, which says whether peer-to-peer DMA works on a machine: build/p2p-check --help
	@mkdir -p build
	$(CC) -O2 -Wall -Wextra -o build/p2p-check p2p-check/p2p-check.c

topology: ## draw the topologies: results/topology, selftests/pictures (needs graphviz)
	@scripts/topology.py

report: ## write the last results as a page: results/report/index.html
	@scripts/report.py

check-scripts: ## check our own files: shellcheck, shfmt, licences, pictures, dead references in the documentation
	@scripts/check-scripts.sh

clean: ## remove build/ and results/ (refused while build/tree has work that is not in patches/)
	@scripts/clean.sh

distclean: ## like clean, and also remove the cache: the base, ccache, QEMU 11 and other downloads
	@scripts/clean.sh --all

container: ## build a container image of Debian 13, and start a shell there: for machines without Debian (podman or docker)
	@scripts/container.sh

new-topology: ## write a commented template to selftests/topologies: NAME=...
	@scripts/new.sh topology "$(NAME)"

new-test: ## write a commented template to selftests/programs: NAME=...
	@scripts/new.sh test "$(NAME)"

new-mutant: ## write the edits in build/tree as a mutant to selftests/mutants, and undo them: NAME=...
	@scripts/new.sh mutant "$(NAME)"

list: ## print the names of suites, topologies, kernels, checks and series
	@scripts/list.sh

help: ## print this list
	@sed -n 's/^\([a-z0-9-]*\):[^#]*## /make \1\t/p' Makefile | expand -t 20
	@echo 'If a command fails, make prints "Error N", where N is the exit code of its script (scripts/README.md, "Exit codes"),'
	@echo 'and make itself exits with 2, whatever N is. To get N, call the script itself: scripts/test.sh instead of make test.'
