# SPDX-License-Identifier: GPL-2.0-only
# The verbs; the work is in scripts/. `make help` lists them.

# One verb at a time, whatever -j says: the scripts use all processors themselves.
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

CHECKS ?=
SUITES ?=
TOPOLOGIES ?=
TOPOLOGY ?= switch
export KERNEL_TREE BASE_TARBALL SERIES BRANCH SUBMITTER REVISION FRESH
# Of the scripts alone: whoever has such variables means something else.
unexport BUILD PATCHES MAILS
# Progress counts from here.
export STARTED := $(shell date +%s)

.PHONY: all demo test check check-self mutants mutants-sample bench bench-compare soak soak-runs apply mbox refresh tree export boot kernels topology report check-scripts clean distclean help deps base
.PHONY: kernel-core kernel-normal kernel-debug kernel-debug-gpu kernel-kcsan kernel-unpatched

all: kernel-core ## the main job: build, boot each topology, print the table
	@scripts/run.sh

demo: kernel-normal ## a GPU and an adapter, without and with the feature: a table
	@scripts/run.sh demo

test: kernel-normal kernel-debug ## all tests, or SUITES="hmm ..." TOPOLOGIES="switch ..."
	@scripts/test.sh "$(SUITES)" "$(TOPOLOGIES)"

check: tree ## is it ready for review? CHECKS="form gcc ..." or CHECKS=fast
	@scripts/check.sh "$(CHECKS)"

check-self: tree ## do the checks reject what is bad?
	@scripts/check.sh --self "$(CHECKS)"

mutants: tree ## break the patches line by line: which test notices? MUTANTS="..." for a part; goes on where it was stopped
	@scripts/mutants.sh $(MUTANTS)

mutants-sample: tree ## the same by rule, drawn from the lines that the patches add: N=40 SEED=1 FILES=mm/hmm.c
	@scripts/mutants-sample.py $(or $(N),40) $(or $(SEED),1) $(FILES)

bench: kernel-normal kernel-unpatched ## what the patches cost and save, in guest instructions: results/bench (needs gnuplot)
	@scripts/bench.sh

bench-compare: ## the last `make bench` against the one before, or FILE=raw.json
	@scripts/bench.sh --compare $(FILE)

# Though mutants survive.
soak: ## what takes too long for CI; goes on where it was stopped (FRESH=1: from the beginning)
	@$(MAKE) -k mutants soak-runs

soak-runs: kernel-normal kernel-debug kernel-debug-gpu kernel-kcsan kernel-unpatched
	@LIST=soak TEST_TIMEOUT=1800 scripts/test.sh "$(SUITES)" "$(TOPOLOGIES)"

boot: kernel-normal ## a shell in the guest: TOPOLOGY=switch
	@scripts/vm.sh boot "$(TOPOLOGY)"

apply: ## the series on a new branch of your git tree: KERNEL_TREE=dir [SERIES=2-hmm-p2p] [BRANCH=hmm-p2p]
	@scripts/apply.sh

mbox: ## the mails to submit the series with, nothing is sent: SUBMITTER="Name <mail>" KERNEL_TREE=dir [SERIES=...] [REVISION=2]
	@scripts/mbox.sh

refresh: base ## try the series on another base: BASE=7.3@trixie-backports, a tarball, or dir@commit
	@scripts/refresh.sh "$(BASE)"

tree: base ## build/tree: the base with the series, one commit per patch
	@scripts/tree.sh

export: ## the commits of build/tree back to patches/
	@scripts/export.sh

kernels: kernel-normal kernel-debug ## the kernels of make test

# What the table needs of the kernel normal.
kernel-core: tree
	@scripts/kernel.sh core normal

kernel-normal: tree
	@scripts/kernel.sh build normal

kernel-debug: tree
	@scripts/kernel.sh build debug

# Only for soak, both.
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

topology: ## a picture of each topology: results/topology, selftests/pictures (needs graphviz)
	@scripts/topology.py

report: ## the results of the last make, make demo or make test as a page: results/report/index.html
	@scripts/report.py

check-scripts: ## shellcheck, shfmt, sorted fragments, pictures up to date
	@scripts/check-scripts.sh

clean: ## build/ and results/ (build/tree too: refused while it has work that is not in patches/)
	@scripts/clean.sh

distclean: ## also the cache: the base and ccache
	@scripts/clean.sh --all

help: ## this
	@sed -n 's/^\([a-z-]*\):[^#]*## /make \1\t/p' Makefile | expand -t 20
	@echo 'If a verb fails, make prints "Error N", where N is the exit code of its script (scripts/README.md, "Exit codes"),'
	@echo 'and make itself ends with 2, whatever N is. Call the script to get N: scripts/test.sh in place of make test.'
