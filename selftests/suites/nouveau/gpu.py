# SPDX-License-Identifier: GPL-2.0-only
"""The back door of the model of a GP100: loads and stores of a shader at addresses of this process."""

import ctypes
import fcntl
import mmap
import os
import struct
import time

# Registers of a client, operations and their status: selftests/models/pascal/backdoor.h
CHID, OP, VA, LEN, STATUS, FAIL, COUNTERS, DATA = 0x00, 0x04, 0x08, 0x10, 0x14, 0x118, 0x800, 0x1000
LOAD, STORE = 1, 2
BUSY, DONE = 1, 2
# The first of DOOR_STATS there
NAMES = "register_reads register_writes bar1_reads bar1_writes bar1_queued bar2_accesses interrupts pushes copies copied_bytes".split()
SIZE = 8 * 65536

# struct drm_nouveau_channel_alloc of drm/nouveau_drm.h, and its ioctl
CHANNEL = struct.Struct("<IIiII16II")
CHANNEL_ALLOC = 3 << 30 | CHANNEL.size << 16 | ord("d") << 8 | 0x40 + 2
COPY_ENGINE = 0x30


class Gpu:
    def __init__(self, driver):
        """driver: an open file of nouveau on which this process has called SVM_INIT"""
        number = os.fstat(driver.fileno()).st_rdev
        path = f"/sys/dev/char/{os.major(number)}:{os.minor(number)}/device/resource5"
        if not os.path.exists(path) or os.stat(path).st_size != SIZE:
            raise FileNotFoundError(f"{path}: not the back door of the model of a GP100")
        channel = bytearray(CHANNEL.pack(0xffffffff, COPY_ENGINE, *[0] * 20))
        fcntl.ioctl(driver, CHANNEL_ALLOC, channel)
        with open(path, "r+b", buffering=0) as file:
            self.map = mmap.mmap(file.fileno(), SIZE)
        # Each access must be one of 32 bits.
        self.regs = (ctypes.c_uint32 * (SIZE // 4)).from_buffer(self.map)
        self.regs[CHID // 4] = CHANNEL.unpack(channel)[2]

    def go(self, op, address, size):
        r = self.regs
        r[VA // 4], r[VA // 4 + 1], r[LEN // 4] = address & 0xffffffff, address >> 32, size
        r[OP // 4] = op
        end = time.monotonic() + 30 * int(os.environ["HMM_P2P_SLOWDOWN"]) // 4
        while r[STATUS // 4] == BUSY:
            assert time.monotonic() < end, "still busy"
            time.sleep(0.001)
        assert r[STATUS // 4] == DONE, f"status {r[STATUS // 4]}"

    def store(self, address, data):
        words = struct.unpack(f"<{len(data) // 4}I", data)
        self.regs[DATA // 4:DATA // 4 + len(words)] = words
        self.go(STORE, address, len(data))

    def load(self, address, size):
        self.go(LOAD, address, size)
        return struct.pack(f"<{size // 4}I", *self.regs[DATA // 4:(DATA + size) // 4])

    def fail_copy(self):
        """Let the next copy fail."""
        self.regs[FAIL // 4] = 1

    def counters(self):
        at = COUNTERS // 4
        return {n: self.regs[at + 2 * i] | self.regs[at + 2 * i + 1] << 32 for i, n in enumerate(NAMES)}
