# SPDX-License-Identifier: GPL-2.0-only
"""windows-zero.py PCI-DEVICE: the part of BAR1 that nouveau has reserved for peers reads as zero, and drops writes, as long as no
memory is mapped there. So nothing may have used device memory since nouveau was bound. Not with kernel lockdown.
"""

import mmap
import os
import re
import subprocess
import sys

DEVICE = sys.argv[1]


def main():
    log = subprocess.run(["dmesg"], capture_output=True, text=True, check=True).stdout
    found = list(re.finditer(rf"{DEVICE}: added peer-to-peer DMA memory (0x[0-9a-f]+)-(0x[0-9a-f]+)", log))
    if not found:
        return "the kernel's log does not have the aperture: boot again first"
    if "DMEM: registered" in log[found[-1].end():]:
        return "memory is mapped: boot again first"
    first, last = (int(word, 0) for word in found[-1].groups())
    with open(f"/sys/bus/pci/devices/{DEVICE}/resource") as file:
        bars = [tuple(int(word, 0) for word in line.split()[:2]) for line in file]
    number, start = next((n, start) for n, (start, end) in enumerate(bars) if start <= first < last <= end)
    file = os.open(f"/sys/bus/pci/devices/{DEVICE}/resource{number}", os.O_RDWR | os.O_SYNC)
    memory = mmap.mmap(file, last + 1 - first, offset=first - start)
    # 255 means that no device answered.
    before = set(memory[::4096])
    memory[::2 << 20] = b"\x5a" * len(range(0, len(memory), 2 << 20))
    after = set(memory[::4096])
    print("read", before, "after writing", after)
    return None if before == after == {0} else "not only zeroes"


sys.exit(main())
