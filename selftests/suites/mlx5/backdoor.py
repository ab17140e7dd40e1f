# SPDX-License-Identifier: GPL-2.0-only
"""The back door of the model of a ConnectX, which makes the requests of a remote peer."""

import ctypes
import mmap
import os
import struct
import time

# Registers of a channel: selftests/models/connectx/backdoor.c
RKEY, OP, VA, LEN, STATUS, FAIL, SLOW, SYNDROME, PLAIN, FAIL_STATUS, NAME = 0, 4, 8, 16, 20, 24, 28, 32, 36, 40, 44
COUNTERS, DATA = 0x800, 0x1000
READ, WRITE, WHERE, MKEY = 1, 2, 3, 4
BUSY, DONE, FAILED = 1, 2, 3
# STATS of connectx.h
NAMES = ("commands events interrupts completions umr_wqes page_faults memory_faults resumes resumes_with_error stale_resumes mkeys_enabled bytes_read "
         "bytes_written peer_bytes_read peer_bytes_written translations dma_maps dma_regions injected iommu_faults bad_commands bad_umrs "
         "violations").split()
# Fields of the context of an mkey (mlx5_ifc_mkc_bits): relaxed ordering of writes and of reads, ATS, and the fields that differ
# between mkeys of the same kind. One of these is translations_octword_size: an mkey from a pool may have room for up to twice as
# many translations as needed.
RELAXED_WRITE, RELAXED_READ, ATS, VARIANT = 1 << 511 - 13, 1 << 511 - 473, 1 << 511 - 27, 0xff << 511 - 63 | 0xffffffff << 511 - 447


class Door:
    """A channel of the back door"""

    def __init__(self, device, channel=0):
        path = os.path.realpath(f"/sys/class/infiniband/{device}/device") + "/resource4"
        self.file = open(path, "r+b", buffering=0)
        self.map = mmap.mmap(self.file.fileno(), 65536, offset=channel * 65536)
        # Each access must have 32 bits.
        self.regs = (ctypes.c_uint32 * (65536 // 4)).from_buffer(self.map)

    def counters(self):
        at = COUNTERS // 4
        return {n: self.regs[at + 2 * i] | self.regs[at + 2 * i + 1] << 32 for i, n in enumerate(NAMES)}

    def go(self, op, rkey, va, length):
        r = self.regs
        r[RKEY // 4], r[VA // 4], r[VA // 4 + 1], r[LEN // 4] = rkey, va & 0xffffffff, va >> 32, length
        r[OP // 4] = op

    def end(self):
        end = time.monotonic() + 30 * int(os.environ["HMM_P2P_SLOWDOWN"]) // 4
        while self.regs[STATUS // 4] == BUSY:
            assert time.monotonic() < end, "still busy"
            time.sleep(0.001)
        return self.regs[STATUS // 4]

    def wait(self, want=DONE):
        status = self.end()
        assert status == want, f"status {status}, not {want}"

    def plain(self, yes=True):
        """Turns off random behaviour. The model then reports as few page faults as possible."""
        self.regs[PLAIN // 4] = yes

    def fail(self, opcode, after=1, status=0, more=0):
        """The command number `after` from now fails, and so do `more` later ones."""
        self.regs[FAIL_STATUS // 4] = status | more << 16
        self.regs[FAIL // 4] = opcode | after << 16

    def slow(self, opcode, ms):
        """Each command with this opcode takes `ms` milliseconds; 0: no delay."""
        self.regs[SLOW // 4] = opcode | ms << 16

    def name(self, key):
        """Page faults of the memory scheme name this mkey; 0: the right one."""
        self.regs[NAME // 4] = key

    def write(self, rkey, va, data, want=DONE):
        words = struct.unpack(f"<{len(data) // 4}I", data)
        self.regs[DATA // 4:DATA // 4 + len(words)] = words
        self.go(WRITE, rkey, va, len(data))
        self.wait(want)

    def read(self, rkey, va, length, want=DONE):
        self.go(READ, rkey, va, length)
        self.wait(want)
        return struct.pack(f"<{length // 4}I", *self.regs[DATA // 4:(DATA + length) // 4])

    def late_read(self, other, key, rkey, va, resume):
        """The first page fault of a read by the channel `other` names the mkey `key`, later ones name the right one. `resume` is the
        command by which the driver answers a page fault. Returns how the read ends. A busy channel takes no settings.
        """
        self.name(key)
        self.slow(resume, 100)
        before = self.counters()
        other.go(READ, rkey, va, 64)
        while self.counters()["resumes"] == before["resumes"] and other.regs[STATUS // 4] == BUSY:
            time.sleep(0.01)
        self.name(0)
        self.slow(resume, 0)
        return other.end()

    def where(self, rkey, va):
        """Returns the address that the device would access, or None if it would report a page fault."""
        self.go(WHERE, rkey, va, 1)
        if self.regs[STATUS // 4] == FAILED:
            return None
        return self.regs[DATA // 4] | self.regs[DATA // 4 + 1] << 32

    def key(self, rkey, va):
        """Returns the mkey that translates this address. In an implicit region this is a child."""
        self.go(MKEY, rkey, va, 1)
        assert self.regs[STATUS // 4] == DONE, "no mkey has it"
        return self.regs[DATA // 4 + 16]

    def mkey(self, rkey, va):
        """Returns the context of this mkey."""
        self.key(rkey, va)
        at = DATA // 4
        return int.from_bytes(struct.pack("<16I", *self.regs[at:at + 16]), "big")
