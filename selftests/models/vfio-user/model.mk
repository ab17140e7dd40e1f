# SPDX-License-Identifier: GPL-2.0-only
# A PCI device in user space: QEMU's vfio-user-pci connects to it. The Makefile of a model sets SRC and HDR, and for ../fuzz/run the
# FUZZERS, what they share (FUZZ_SRC), and FUZZ_FLAGS. The limits there are low, so that inputs take little time.
MODEL = $(notdir $(CURDIR))
OUT ?= ../../../build/models
CFLAGS ?= -O2 -g
override CFLAGS += -std=gnu11 -D_GNU_SOURCE -fno-strict-aliasing -Wall -Wextra -Werror -Wno-sign-compare -Wno-unused-parameter $(INCLUDES)
SRC += $(addprefix ../vfio-user/,vfio_user.c dma.c log.c pci.c peer.c registers.c)
HDR += ../vfio-user/vfio_user.h

$(OUT)/$(MODEL): $(SRC) $(HDR)
	mkdir -p $(OUT)
	$(CC) $(CFLAGS) -o $@ $(SRC)

FUZZ_CC ?= clang-19
FUZZ_CFLAGS ?= -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all
$(OUT)/fuzz-%: fuzz/%.c fuzz/fuzz.c fuzz/fuzz.h $(FUZZ_SRC) $(FUZZ_SRC:.c=.h) $(SRC) $(HDR)
	mkdir -p $(OUT)
	$(FUZZ_CC) $(CFLAGS) $(FUZZ_FLAGS) $(FUZZ_CFLAGS) -o $@ $< fuzz/fuzz.c $(FUZZ_SRC) $(filter-out main.c,$(SRC))

clean:
	rm -f $(OUT)/$(MODEL) $(FUZZERS:%=$(OUT)/fuzz-%)
.PHONY: clean
