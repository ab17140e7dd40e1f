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

# A typo such as SUITE=hmm would run everything.
KNOWN := ACCEL B4 BASE BASE_TARBALL BOOTS BOOT_TIMEOUT BRANCH CC CHECKS CONFIG DEBUG DRY_RUN FAIL_FAST FILES FRESH HMM_P2P_CACHE JOBS KCIDB_ORIGIN KERNELS KERNEL_TREE LIST MUTANTS N \
	NAME NO_DEPS NVIDIA_SOURCE QEMU REVISION SEED SERIES SILENCE_TIMEOUT SLOWDOWN SUBMITTER SUITES TEST_TIMEOUT TOPOLOGIES TOPOLOGY
UNKNOWN := $(filter-out $(KNOWN),$(foreach word,$(MAKEOVERRIDES),$(if $(findstring =,$(word)),$(firstword $(subst =, ,$(word))))))
ifneq ($(strip $(UNKNOWN)),)
$(error $(UNKNOWN): no such variable. There are: $(KNOWN))
endif

.PHONY: all demo test check check-self mutants mutants-sample bench soak soak-runs apply deb mbox refresh refresh-page tree export series-page boot kernels p2p-check topology report check-scripts clean distclean help list names deps base container new-topology new-test new-mutant
.PHONY: kernel-feature kernel-normal kernel-debug kernel-debug-gpu kernel-kcsan kernel-unpatched

all: names kernel-feature ## build the base with 1-hmm-p2p, boot it on six topologies
	@scripts/guest/run.sh

# A wrong name is an error before anything is built.
names:
	@scripts/list.sh --check

demo: names kernel-normal ## GPU and adapter, two GPUs: print what is copied
	@scripts/guest/run.sh demo

# Only the kernels that these tests need.
test: names ## run the tests [SUITES="hmm ..."] [TOPOLOGIES="switch ..."]
	@kernels=$$(scripts/guest/test.sh --kernels "$(SUITES)" "$(TOPOLOGIES)") && $(MAKE) tree $$kernels
	@scripts/guest/test.sh "$(SUITES)" "$(TOPOLOGIES)"

check: names tree ## check the patches [CHECKS="form bisect ..." or CHECKS=fast]
	@scripts/check.sh "$(CHECKS)"

check-self: names tree ## run the checks only on inputs that they must reject
	@scripts/check.sh --self "$(CHECKS)"

mutants: names tree ## break the patches; which test notices? [MUTANTS="..."]
	@scripts/guest/mutants.py $(MUTANTS)

mutants-sample: names ## the same at random: N=40 SEED=1 FILES=mm/hmm.c
	@scripts/guest/mutants-sample.py --check $(or $(N),40) $(or $(SEED),1) $(FILES)
	@$(MAKE) tree
	@scripts/guest/mutants-sample.py $(or $(N),40) $(or $(SEED),1) $(FILES)

bench: kernel-normal kernel-unpatched ## measure in guest instructions what the patches cost
	@scripts/guest/bench.py

# -k: also run the tests if mutants survive.
soak: names ## mutants and long tests; continues [FRESH=1: does not]
	@LIST=soak scripts/guest/test.sh --kernels "$(SUITES)" "$(TOPOLOGIES)" >/dev/null
	@LIST=soak $(MAKE) -k mutants soak-runs

soak-runs: names ## only the long tests of make soak
	@kernels=$$(LIST=soak scripts/guest/test.sh --kernels "$(SUITES)" "$(TOPOLOGIES)") && $(MAKE) tree $$kernels
	@LIST=soak TEST_TIMEOUT=1800 scripts/guest/test.sh "$(SUITES)" "$(TOPOLOGIES)"

boot: names kernel-normal ## start a shell in a guest [TOPOLOGY=switch]
	@scripts/guest/vm.sh boot "$(TOPOLOGY)"

apply: ## patch your git tree: KERNEL_TREE=dir [SERIES=] [BRANCH=]
	@scripts/patches/apply.sh

mbox: ## write mails: SUBMITTER="Name <mail>" KERNEL_TREE=dir
	@scripts/patches/mbox.sh

deb: tree ## build kernel packages [CONFIG=file] [DEBUG=1] [DRY_RUN=1]
	@DEBUG=$(if $(findstring command,$(origin DEBUG)),$(DEBUG)) scripts/build/deb.sh $(if $(DRY_RUN),--dry-run) $(CONFIG)

refresh: ## apply to other kernels: BASE="7.2 v7.1 dir@commit"
	@scripts/patches/refresh.sh $(BASE)

refresh-page: ## write the results of make refresh to its page
	@scripts/patches/refresh.sh --page

tree: base ## make build/tree: the base and a commit for each patch
	@scripts/patches/tree.sh

export: ## write the commits of build/tree back to patches/
	@scripts/patches/export.sh
	@scripts/patches/series-page.py

series-page: ## write table and picture of patches/README.md
	@scripts/patches/series-page.py

kernels: kernel-feature kernel-normal kernel-debug ## build the kernels of make test

# The base and 1-hmm-p2p alone.
kernel-feature: tree
	@scripts/build/kernel.sh build feature

kernel-normal: tree
	@[ -f build/kernels/normal/stamp ] || echo "The first build of this kernel takes 15 to 35 minutes on two cores, because it has all modules." >&2
	@scripts/build/kernel.sh build normal

kernel-debug: tree
	@scripts/build/kernel.sh build debug

# These two are only for soak.
kernel-debug-gpu: tree
	@scripts/build/kernel.sh build debug-gpu

kernel-kcsan: tree
	@scripts/build/kernel.sh build kcsan

kernel-unpatched: base
	@scripts/build/kernel.sh build unpatched

# Any other name: an error before anything is built, unless kernel-config/kernels has it.
kernel-%:
	@KERNELS="$*" scripts/list.sh --check
	@$(MAKE) tree
	@scripts/build/kernel.sh build "$*"

base: deps
	@scripts/build/base.sh

deps:
	@scripts/deps.sh

p2p-check: ## build p2p-check: does peer-to-peer DMA work here?
	@mkdir -p build
	$(CC) -O2 -Wall -Wextra -o build/p2p-check p2p-check/p2p-check.c

topology: ## draw the topologies
	@scripts/guest/topology.py

report: ## write the last results as a page
	@scripts/guest/report.py

check-scripts: ## check scripts, texts and pictures of this project
	@scripts/check-scripts.sh

clean: ## remove build/ and results/, but no work in build/tree
	@scripts/clean.sh

distclean: ## also remove the cache: base, ccache, downloads
	@scripts/clean.sh --all

container: ## start a shell in Debian 13, with podman or docker
	@scripts/container.sh

new-topology: ## write a template of a topology: NAME=...
	@scripts/new.sh topology "$(NAME)"

new-test: ## write a template of a test program: NAME=...
	@scripts/new.sh test "$(NAME)"

new-mutant: ## make a mutant of the edits in build/tree: NAME=...
	@scripts/new.sh mutant "$(NAME)"

list: ## print the names of suites, topologies, kernels, checks
	@scripts/list.sh

help: ## print this list
	@sed -n 's/^\([a-z0-9-]*\):[^#]*## /make \1\t/p' Makefile | expand -t 20
	@echo 'make kernel-NAME    build one kernel (make list prints the names)'
	@echo 'More: --help of scripts/NAME and scripts/*/NAME. If one fails, make prints'
	@echo '"Error N", and exits with 2. N is the exit code of its script'
	@echo '(scripts/README.md, "Exit codes").'
