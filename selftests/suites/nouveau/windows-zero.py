# SPDX-License-Identifier: GPL-2.0-only
"""windows-zero.py PCI-DEVICE: windows of BAR1 without memory read as zero, and drop writes. Writes to the aperture of nouveau, so
nothing may use device memory meanwhile. Not with kernel lockdown.
"""

import mmap
import os
import sys

DEVICE = sys.argv[1]


def main():
    with open(f"/sys/kernel/debug/dri/{DEVICE}/dmem_p2p") as file:
        state = dict(line.rstrip().split(": ") for line in file)
    if state["used"] != "0":
        return f"{state['used']} windows have memory: boot again first"
    first, last = (int(word, 0) for word in state["aperture"].split("-"))
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
