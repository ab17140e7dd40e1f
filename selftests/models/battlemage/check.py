#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""check.py MODEL [SEED [SECONDS]]: is the model fit to judge a driver? Prints KTAP. See client.py."""

import os
import struct
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "vfio-user"))
sys.dont_write_bytecode = True
import client
from client import CONFIG, SIZE

BAR0, VRAM, DOOR = 0, 2, 4
GGTT = 8 << 20
VRAM_END = 1 << 30

# The layout of VRAM, which the GGTT maps from 0 on
H2G, G2H, DESC, IMAGES, RINGS, TABLES, DATA = 0x10000, 0x14000, 0x18000, 0x20000, 0x30000, 0x40000, 0x80000
WORDS = 1024                # of H2G and G2H
VA = 0x7F12400000           # of the process; 2 MiB aligned
BATCH = VA + 0x1FF000       # batches are there
NOWHERE = 0x40000000

P, W, AE, DM, NULL, PS, COMPACT = 1, 2, 1 << 10, 1 << 11, 1 << 9, 1 << 7, 1 << 6
STATUS, SELECT, IDENTITY = 0x190018, 0x190070, 0x190060

K, FAILURES = client.constants(os.path.join(HERE, "backdoor.h"))
COUNTERS = 0x800
READY = 2 << 30 | 0xF0 << 8 | 0x76 << 1
END = 0xA << 23


def store(va, *values):
    return (0x20 << 23 | 1 + len(values), va & 0xffffffff, va >> 32, *values)


def copy(dst, src, size):
    return (2 << 29 | 0x5A << 22 | 8, size - 1, 0, 0, 0, src & 0xffffffff, src >> 32, dst & 0xffffffff, dst >> 32, 0)


def clear(dst, size):
    return (2 << 29 | 0x5B << 22 | 5, size - 1, 0, 0, dst & 0xffffffff, dst >> 32, 0)


def batch_start(va):
    return (0x31 << 23 | 1 << 8 | 1, va & 0xffffffff, va >> 32)


class Driver(client.Client):
    def __init__(self, model, *options, bus_master=True, setup=True):
        super().__init__([model, *options], bus_master)
        self.msi()
        self.h2g = self.g2h = 0
        self.tail = {}
        if setup:
            self.setup()

    def rd(self, at):
        return struct.unpack("<I", self.read(BAR0, at))[0]

    def wr(self, at, *values):
        for i, val in enumerate(values):
            self.write(BAR0, at + 4 * i, struct.pack("<I", val & 0xffffffff))

    def vram(self, at, *words):
        self.write(VRAM, at, struct.pack(f"<{len(words)}I", *words))

    def word(self, at):
        return struct.unpack("<I", self.read(VRAM, at))[0]

    # ---- page tables: a page for each level of an address space ----

    def space(self, asid, base):
        tables = TABLES + asid * 0x10000
        for level in range(4):
            self.write(VRAM, tables + level * 0x1000 + (base >> 48 - 9 * level & 511) * 8, struct.pack("<Q", tables + (level + 1) * 0x1000 | P | W))

    def pte(self, va, pte, asid=1, level=0):
        self.write(VRAM, TABLES + asid * 0x10000 + (4 - level) * 0x1000 + (va >> 12 + 9 * level & 511) * 8, struct.pack("<Q", pte))

    # ---- firmware ----

    def setup(self):
        """Maps VRAM in the GGTT, starts the firmware, and makes contexts: 0 of the driver, 1 of a process"""
        for i in range(0x100):
            self.write(BAR0, GGTT + 8 * i, struct.pack("<Q", i << 12 | 3))
        self.wr(0x190008, 1 << 31)
        self.wr(0xC314, 0x110011)
        assert self.rd(0xC000) == READY
        for key, value in (0x902, H2G), (0x903, DESC), (0x904, WORDS * 4), (0x905, G2H), (0x906, DESC + 64), (0x907, WORDS * 4):
            assert self.early(0x508, key << 16 | 1, value) & 0xfffffff == 1
        self.early(0x4509, 1)
        for asid in 0, 1:
            self.space(asid, VA)
            self.pte(BATCH, DATA + 0xF000 + asid * 0x1000 | P | W | DM, asid)
            self.context(asid, asid)
        self.irqs()

    def early(self, action, *data):
        self.wr(0x190240, action, *data, *[0] * (3 - len(data)))
        self.wr(0x1901F0, 1)
        return self.rd(0x190240)

    def request(self, action, *data, kind=2):
        """Sends a message to the firmware. Returns its events"""
        words = (1 + len(data), kind << 28 | action, *data)
        for word in words:
            self.vram(H2G + 4 * self.h2g, word)
            self.h2g = (self.h2g + 1) % WORDS
        self.vram(DESC + 4, self.h2g)
        self.wr(0x1901F0, 1)
        return self.events()

    def events(self):
        """What the firmware has sent: (action, data...)"""
        out = []
        while self.g2h != self.word(DESC + 68):
            n = self.word(G2H + 4 * self.g2h) & 0xffff
            message = [self.word(G2H + 4 * ((self.g2h + 1 + i) % WORDS)) for i in range(n)]
            out.append((message[0] & 0xffff, *message[1:]))
            self.g2h = (self.g2h + 1 + n) % WORDS
        self.vram(DESC + 64, self.g2h)
        return out

    def context(self, n, asid):
        image = IMAGES + n * 0x2000
        root = TABLES + asid * 0x10000
        for dw, val in (5, 0), (7, 0), (9, RINGS + n * 0x1000), (0xB, 1), (0x2F, asid), (0x31, 0), (0x33, root):
            self.vram(image + 0x1000 + 4 * dw, val)
        self.tail[n] = 0
        self.request(0x4502, 0, n, 3, 1, 0, 0, 0, 0, 0, image, 0)
        assert self.request(0x1001, n, 1) == [(0x1002, n, 1)]

    def run(self, n, *words):
        """Runs a batch in a context. Returns the events of the firmware"""
        self.vram(DATA + 0xF000 + n * 0x1000, *words, END)
        self.ring(n, *batch_start(BATCH), 0)
        return self.request(0x1000, n)

    def ring(self, n, *words):
        for word in words:
            self.vram(RINGS + n * 0x1000 + self.tail[n], word)
            self.tail[n] = (self.tail[n] + 4) % 0x1000
        self.vram(IMAGES + n * 0x2000 + 0x1000 + 4 * 7, self.tail[n])

    def answer(self, fault, good=True):
        """Answers a page fault. Returns the events that follow"""
        pdata = fault[1] >> 28 | (fault[2] & 0xfff) << 4
        return self.request(0x6003, 1 | (0 if good else 2) | fault[2] >> 12 << 12, pdata << 16, 0)

    def invalidate(self, va, pages=0, asid=1):
        return self.request(0x7000, 99, 1, asid, va & 0xffffffff, va >> 32, pages)

    def idle(self, n):
        return self.word(IMAGES + n * 0x2000 + 0x1000 + 4 * 5) == self.tail[n]

    # ---- the back door ----

    def knob(self, name, val):
        self.write(DOOR, K["DOOR_" + name], struct.pack("<I", val))

    def door(self, op, va):
        self.write(DOOR, K["DOOR_VA"], struct.pack("<Q", va))
        self.knob("OP", K["DOOR_" + op])
        return struct.unpack("<I", self.read(DOOR, K["DOOR_STATUS"]))[0] == K["DOOR_DONE"]


def verdict(driver, code=0, **counters):
    client.verdict(driver, code, FAILURES, **counters)


def case_identity(new, random):
    """The identity of the device, and registers that hold their values"""
    d = new(setup=False)
    assert d.read(CONFIG, 0, 4) == bytes.fromhex("86800be2")
    assert d.rd(0xD8C) >> 22 == 20 and d.rd(0x380D8C) == 0
    d.wr(0xA188, 0x10001)
    assert d.rd(0xDFC) == 1
    d.wr(0xA188, 0x10000)
    assert d.rd(0xDFC) == 0
    assert d.rd(0x1083A0) == 1 << 8
    verdict(d)


def case_unknown_register(new, random):
    d = new(setup=False)
    d.rd(0x3FFFF0)
    d.wr(0x3FFFF4, 1)
    verdict(d, 1, unknown_registers=2)


def case_unknown_request(new, random):
    d = new()
    d.request(0x9999)
    d.run(0, 0x3F << 23, 0)
    verdict(d, 1, unknown_requests=1, unknown_commands=1)


def case_ggtt(new, random):
    d = new()
    d.write(BAR0, GGTT + 8 * (H2G >> 12), struct.pack("<Q", 0))
    d.wr(0x1901F0, 1)
    d.request(0x1000, 0)
    rc, seen, err = d.end()
    assert rc == 1 and seen["ggtt_faults"], err


def case_interrupt(new, random):
    """An event raises the interrupt once; its identity says that it is the firmware's"""
    d = new()
    d.invalidate(VA)
    d.wr(0x190008, 0)
    d.wr(0x190008, 1 << 31)
    d.irqs()
    assert d.rd(STATUS) == 1 << 25
    d.wr(SELECT, 1 << 25)
    assert d.rd(IDENTITY) == 1 << 31 | 4 << 16 | 1 << 15
    d.wr(IDENTITY, ~0)
    assert d.rd(STATUS) == 0
    d.invalidate(VA)
    assert d.irqs() == 1 or True
    d.run(0, 2 << 23)
    assert d.rd(STATUS) & 1 << 15, "no interrupt of the engine"
    verdict(d)


def case_store_and_copy(new, random):
    """Stores and copies in VRAM and RAM, and a page that reads as zero"""
    d = new()
    for i in range(3):
        d.pte(VA + i * 0x1000, DATA + i * 0x1000 | P | W | DM)
    d.pte(VA + 0x3000, 0x200000 | P | W)
    d.pte(VA + 0x4000, NULL)
    assert not d.run(1, *store(VA + 8, 11, 12), *store(VA + 0x3010, 13))
    assert d.word(DATA + 8) == 11 and d.word(DATA + 12) == 12
    assert d.ram[0x200010:0x200014] == struct.pack("<I", 13)
    d.vram(DATA + 0xFFC, 14, 15)
    assert not d.run(1, *copy(VA + 0x1800, VA + 0xFFC, 4))
    assert d.word(DATA + 0x1800) == 14
    assert not d.run(1, *copy(VA + 0x1800, VA + 0x4000, 4), *clear(VA + 0xFFC, 4))
    assert d.word(DATA + 0x1800) == 0 and d.word(DATA + 0xFFC) == 0
    assert d.idle(1)
    verdict(d)


def case_large_page(new, random):
    d = new()
    va = VA + (2 << 20)
    d.pte(va, 4 << 20 | P | W | DM | PS, level=1)
    assert not d.run(1, *store(va + 0x12344, 5))
    assert d.word((4 << 20) + 0x12344) == 5
    d.run(1, *store(BATCH + 0x800, 1))
    assert d.door("WALK", va + 0x5000)
    flags, addr = struct.unpack("<I", d.read(DOOR, K["DOOR_FLAGS"]))[0], struct.unpack("<Q", d.read(DOOR, K["DOOR_ADDR"], 8))[0]
    assert flags >> 8 == 21 and addr == 4 << 20 and flags & K["DOOR_LOCAL"]
    assert d.door("NEXT", 0) and struct.unpack("<Q", d.read(DOOR, K["DOOR_VA"], 8))[0] == BATCH
    verdict(d)


def case_compact(new, random):
    """A table with 32 entries of 64 KiB. What is behind them means nothing"""
    d = new()
    va, table = VA + (2 << 20), TABLES + 0x1F000
    d.pte(va, table | P | W | COMPACT, level=1)
    for i in range(512):
        d.vram(table + i * 8, (4 << 20) + (31 - i) * 0x10000 | P | W | DM if i < 32 else NULL, 0)
    assert not d.run(1, *store(va + 0x31234, 5), *store(va + 0x1FFFFC, 6))
    assert d.word((4 << 20) + 28 * 0x10000 + 0x1234) == 5 and d.word((4 << 20) + 0xFFFC) == 6
    d.run(1, *store(BATCH + 0x800, 1))
    assert d.door("WALK", va + 0x1F5000)
    flags, addr = struct.unpack("<I", d.read(DOOR, K["DOOR_FLAGS"]))[0], struct.unpack("<Q", d.read(DOOR, K["DOOR_ADDR"], 8))[0]
    assert flags >> 8 == 16 and addr == 4 << 20 and flags & K["DOOR_LOCAL"]
    verdict(d)


def case_odd_entries(new, random):
    """A hint of 64 KiB at memory that is not aligned, and an entry for a table with a bit that nobody knows"""
    d = new()
    d.pte(VA + 0x1000, DATA + 0x1000 | P | W | DM | 1 << 8)
    assert not d.run(1, *store(VA + 0x1000, 1))
    verdict(d)
    d = new()
    d.pte(VA + 0x1000, DATA + 0x2000 | P | W | DM | 1 << 8)
    assert not d.run(1, *store(VA + 0x1000, 1))
    verdict(d, 1, violations=1)
    d = new()
    d.pte(VA + (2 << 20), TABLES + 0x14000 | P | W | 1 << 9 << 1, level=1)
    d.run(1, *store(VA + (2 << 20), 1))
    verdict(d, 1, violations=1)


def case_fault(new, random):
    """A fault is reported with its address and reason. The command goes on when the fault is answered"""
    d = new()
    d.pte(VA + 0x1000, DATA | P | DM)
    (fault,) = d.run(1, *store(VA + 0x1008, 7))
    assert fault[0] == 0x6002 and fault[2] >> 12 == 1
    assert fault[3] == (VA + 0x1000 & 0xffffffff | 1 | 1 << 2) and fault[4] == VA >> 32
    assert not d.idle(1)
    d.pte(VA + 0x1000, DATA | P | W | DM)
    assert not d.answer(fault)
    assert d.word(DATA + 8) == 7 and d.idle(1)
    (fault,) = d.run(1, 0x2F << 23 | 5 << 8 | 1, VA + 0x1008 & 0xffffffff, VA >> 32)
    assert fault[3] & 15 == 2 | 2 << 2
    d.pte(VA + 0x1000, DATA | P | W | DM | AE)
    assert not d.answer(fault)
    assert d.word(DATA + 8) == 8
    verdict(d)


def case_refused(new, random):
    """A fault that is refused ends the context"""
    d = new()
    (fault,) = d.run(1, *store(VA, 7))
    assert [e[0] for e in d.answer(fault, good=False)] == [0x6000, 0x1008]
    assert d.request(0x1000, 1) == []
    verdict(d)


def case_answer_without_fault(new, random):
    d = new()
    (fault,) = d.run(1, *store(VA, 7))
    d.pte(VA, DATA | P | W | DM)
    d.answer(fault)
    d.answer(fault)
    verdict(d, 1, violations=1)


def case_late_fault(new, random):
    d = new()
    d.knob("LATE", 200)
    assert not d.run(1, *store(VA, 7))
    found = []
    d.wait(lambda: found.extend(d.events()) or found, "no fault")
    assert found[0][0] == 0x6002
    verdict(d)


def case_disabled_in_fault(new, random):
    """A context is disabled only when its fault has been answered"""
    d = new()
    (fault,) = d.run(1, *store(VA, 7))
    assert d.request(0x1001, 1, 0) == []
    d.pte(VA, DATA | P | W | DM)
    assert d.answer(fault) == [(0x1002, 1, 0)]
    assert d.request(0x4503, 1) == [(0x4600, 1)]
    verdict(d)


def case_wrong_requests(new, random):
    d = new()
    d.request(0x1000, 7)                            # not registered
    d.request(0x1001, 1, 1)                         # enabled already
    d.request(0x4503, 1)                            # not disabled
    d.request(0x4502, 0, 0, 3, 1, 0, 0, 0, 0, 0, IMAGES, 0)     # registered already
    verdict(d, 1, violations=4)


def case_no_room(new, random):
    d = new()
    d.vram(DESC + 64, (d.g2h + 1) % WORDS)
    d.request(0x7002, 1, 0)
    verdict(d, 1, violations=1)


def case_tlb(new, random):
    """The TLB keeps an entry until it is invalidated, for its address space alone"""
    d = new()
    d.pte(VA, DATA | P | W | DM)
    d.run(1, *store(VA, 1))
    d.pte(VA, DATA + 0x1000 | P | W | DM)
    d.run(1, *store(VA, 2))
    assert d.word(DATA) == 2 and d.word(DATA + 0x1000) == 0
    d.invalidate(VA, asid=2)
    d.run(1, *store(VA, 3))
    assert d.word(DATA) == 3
    assert d.invalidate(VA) == [(0x7001, 99)]
    d.run(1, *store(VA, 4))
    assert d.word(DATA) == 3 and d.word(DATA + 0x1000) == 4
    verdict(d)


def case_stale_for_long(new, random):
    d = new()
    d.pte(VA, DATA | P | W | DM)
    d.run(1, *store(VA, 1))
    d.pte(VA, 0)
    d.run(1, *store(VA, 2))
    time.sleep(2.5)
    verdict(d, 1, violations=1)


def faulted(new, *options):
    """A driver whose process has page faults, and VA mapped"""
    d = new(*options)
    (fault,) = d.run(1, *store(VA, 1))
    d.pte(VA, DATA | P | W | DM)
    d.answer(fault)
    return d


def case_idle_but_stale(new, random):
    d = faulted(new)
    d.knob("CHECK", 1)
    d.pte(VA, 0)
    d.knob("CHECK", 1)
    verdict(d, 1, violations=1)


def case_slow_invalidation(new, random):
    d = faulted(new)
    d.knob("SLOW", 200)
    d.pte(VA, 0)
    assert d.invalidate(VA) == []
    d.run(1, *store(VA, 5))
    assert d.word(DATA) == 5
    found = []
    d.wait(lambda: found.extend(d.events()) or found, "no answer")
    assert found == [(0x7001, 99)]
    assert d.run(1, *store(VA, 6))[0][0] == 0x6002
    # A fast one does not overtake a slow one.
    assert d.request(0x7000, 100, 1, 1, 0, 0, 0) == []
    d.knob("SLOW", 0)
    assert d.request(0x7000, 101, 1, 1, 0, 0, 0) == [(0x7001, 100), (0x7001, 101)]
    verdict(d)


def case_copied_but_writable(new, random):
    """The driver copies a page that a process can write: the write could be lost"""
    d = faulted(new)
    d.pte(VA, DATA | P | W | DM, asid=0)
    d.pte(VA + 0x1000, DATA + 0x1000 | P | W | DM, asid=0)
    d.run(0, *copy(VA + 0x1000, VA, 4096))
    verdict(d, 1, violations=1)


def case_copied_to_reachable(new, random):
    """The driver fills memory that a process can still reach"""
    d = faulted(new)
    d.pte(VA, DATA | P | W | DM, asid=0)
    d.run(0, *clear(VA, 4096))
    verdict(d, 1, violations=1)


def case_copied(new, random):
    """The same after an invalidation is no error"""
    d = faulted(new)
    d.pte(VA, DATA | P | W | DM, asid=0)
    d.pte(VA + 0x1000, DATA + 0x1000 | P | W | DM, asid=0)
    d.pte(VA, 0)
    d.invalidate(VA)
    d.run(0, *copy(VA + 0x1000, VA, 4096), *clear(VA, 4096))
    verdict(d)


def case_held_copy(new, random):
    d = new()
    for i in 0, 1:
        d.pte(VA + i * 0x1000, DATA + i * 0x1000 | P | W | DM, asid=0)
    d.vram(DATA, 77)
    d.knob("HOLD", 1)
    d.run(0, *copy(VA + 0x1000, VA, 4096))
    time.sleep(0.1)
    assert d.word(DATA + 0x1000) == 0
    d.knob("RELEASE", 1)
    d.wait(lambda: d.word(DATA + 0x1000) == 77, "the copy is not released")
    verdict(d)


def case_iommu(new, random):
    """DMA to an address that is not mapped; memory that is unmapped while the TLB leads there"""
    d = faulted(new)
    d.pte(VA + 0x1000, NOWHERE | P | W)
    assert d.run(1, *store(VA + 0x1000, 1))[0][0] == 0x6002
    verdict(d, 1, iommu_faults=1)
    d = faulted(new)
    d.dma_unmap(0, SIZE)
    d.dma_map(0x400000, 4096)
    d.pte(VA + 0x2000, 0x400000 | P | W)
    d.run(1, *store(VA + 0x2000, 1))
    d.dma_unmap(0x400000, 4096)
    verdict(d, 1, violations=1)


def case_no_bus_master(new, random):
    d = new(bus_master=False)
    d.pte(VA, 0x200000 | P | W)
    d.run(1, *store(VA, 1))
    verdict(d, 1, iommu_faults=1)


def case_beyond_vram(new, random):
    d = new()
    d.pte(VA, VRAM_END | P | W | DM)
    d.run(1, *store(VA, 1))
    verdict(d, 1, violations=1)


def case_posted(new, random):
    """A write of a peer comes late: a read of VRAM pushes it. Without copies there is no peer"""
    d = new("-p")
    for i in 0, 1:
        d.pte(VA + i * 0x1000, DATA + i * 0x1000 | P | W | DM)
    d.run(1, *copy(VA + 0x1000, VA, 4096))
    d.vram(DATA + 0x1000, 9)
    d.run(1, *copy(VA, VA + 0x1000, 8))
    assert d.word(DATA) == 0, "the write was not late"
    d.run(1, *copy(VA, VA + 0x1000, 8))
    assert d.word(DATA) == 9
    # A page that becomes a table is the driver's own.
    d.pte(VA + (2 << 20), DATA + 0x1000 | P | W, level=1)
    d.vram(DATA + 0x1000, DATA | P | W | DM, 0)
    assert not d.run(1, *store(VA + (2 << 20), 7))
    assert d.word(DATA) == 7
    verdict(d)


def case_peer(new, random):
    """The model of another device accesses BAR 2 at its address on the bus"""
    at, size = 0x240000000, 1 << 30
    with tempfile.TemporaryDirectory() as folder:
        d = new("-p", "-l", folder + "/peer")
        for i in 0, 1:
            d.pte(VA + i * 0x1000, DATA + i * 0x1000 | P | W | DM)
        d.run(1, *copy(VA + 0x1000, VA, 4096))
        asker = client.PeerEnd(folder + "/asker")
        access = lambda *args, **more: asker.access(folder + "/peer", *args, **more)
        assert access(at + DATA, 4)[0] == 0, "where no BAR is"
        d.write(CONFIG, 0x18, struct.pack("<Q", at | 0xc))
        assert access(at - 1)[0] == access(at + size)[0] == 0, "beside the BAR"
        assert access(at)[0] == size
        data = random.randbytes(2000)
        assert access(at + DATA + 0x1004, data=data)[0] == size - DATA - 0x1004
        d.run(1, *copy(VA, VA + 0x1004, 4))
        assert access(at + DATA + 0x1004, len(data))[1] == data
        assert d.word(DATA) == 0, "it was not posted"
        assert access(at + size - 2, data=b"lost")[0] == 2 and d.read(VRAM, size - 2, 2) == bytes(2), "behind the end"
        d.write(CONFIG, 4, struct.pack("<H", 4))
        assert access(at + DATA, 4)[0] == 0, "memory is not decoded"
        d.write(CONFIG, 4, struct.pack("<H", 6))
        verdict(d)


def case_asks(new, random):
    """The device accesses the BAR of another model, but for atomics"""
    at, bar = 0x250000000, bytearray(random.randbytes(0x3000))
    for atomic in False, True:
        with tempfile.TemporaryDirectory() as folder:
            end = client.PeerEnd(folder + "/peer")
            threading.Thread(target=end.answer, args=(at, bar), daemon=True).start()
            d = new("-r", folder + "/peer")
            d.pte(VA, DATA | P | W | DM)
            for i in range(2):
                d.pte(VA + (i + 1) * 0x1000, at + 0x1000 * (i + 1) | P | W | AE)
            if atomic:
                d.run(1, 0x2F << 23 | 5 << 8 | 1, (VA + 0x1000) & 0xffffffff, VA >> 32)
                verdict(d, 1, violations=1)
                continue
            want = bytes(bar)
            d.run(1, *copy(VA + 8, VA + 0x1008, 0xF00))
            assert d.read(VRAM, DATA + 8, 0xF00) == want[0x1008:0x1F08], "it reads something else"
            d.run(1, *copy(VA + 0x1FF0, VA + 8, 0x20), *store(VA + 0x2100, 77))
            assert bar == want[:0x1FF0] + want[0x1008:0x1028] + want[0x2010:0x2100] + struct.pack("<I", 77) + want[0x2104:], "it writes something else"
            verdict(d, peer_bytes_written=0x24)


def case_gone(new, random):
    d = new()
    d.knob("GONE", 1)
    assert d.rd(0xD8C) == 0xffffffff and d.read(VRAM, 0) == b"\xff" * 4
    d.ask(13)
    assert d.rd(0xD8C) >> 22 == 20
    verdict(d)


def case_sleep(new, random):
    """In D3 nothing is lost"""
    d = new()
    d.vram(DATA, 1)
    d.write(CONFIG, 0x64, b"\3")
    assert d.read(CONFIG, 0x64, 1) == b"\x0b"
    d.write(CONFIG, 0x64, b"\0")
    assert d.word(DATA) == 1 and d.rd(0xC000) == READY
    verdict(d)


def case_reset(new, random):
    """A reset of the GT ends the firmware and its contexts"""
    d = new()
    d.wr(0x941C, 1)
    assert d.rd(0xC000) == 1 and d.rd(0x941C) == 0
    d.wr(0x1901F0, 1)
    verdict(d)


def case_map(new, random):
    """QEMU may map the GGTT and VRAM, but not VRAM whose writes are queued"""
    for option, mapped in ([], [0, 2]), (["-p"], [0]):
        d = new(*option)
        for region in 0, 2, 4:
            info = d.ask(5, struct.pack("<IIIIQQ", 32, 0, region, 0, 0, 0))
            assert bool(struct.unpack_from("<I", info, 4)[0] & 4) == (region in mapped), region
        verdict(d)


def case_nonsense(new, random):
    def session():
        d = new(*random.choice([[], ["-p"]]))
        d.events = lambda: []           # they may be nonsense, too
        noise = lambda n: random.choice([bytes(n), b"\xff" * n, random.randbytes(n)])
        for _ in range(300):
            what = random.randrange(8)
            if what == 0:
                d.write(VRAM, random.choice([DESC, DESC + 64, IMAGES + 0x1000, RINGS, TABLES + 0x10000, TABLES + 0x14000]) + 4 * random.randrange(64), noise(8))
            elif what == 1:
                d.request(random.choice([0x1000, 0x1001, 0x4502, 0x4503, 0x6003, 0x7000, 0x7002, 0x3003, random.getrandbits(16)]),
                          *(random.choice([0, 1, 2, 4095, 4096, VA, random.getrandbits(32)]) & 0xffffffff for _ in range(random.choice([1, 3, 6, 11, 200]))))
            elif what == 2:
                va = random.choice([0, VA, VA + 0xFFC, BATCH, (1 << 64) - 4])
                d.run(random.choice([0, 1]), *random.choice([store(va, 1), copy(va, VA, random.choice([1, 4096, 1 << 24])), clear(va, 8), batch_start(va),
                                                             (random.getrandbits(32), *struct.unpack("<10I", noise(40)))]))
            elif what == 3:
                d.wr(random.choice([0x190008, SELECT, IDENTITY, 0xC314, 0x1901F0, 0x941C, 0x101010, 0x138124, 0x190240, random.randrange(0, 4 << 20, 4)]), random.choice([0, 1, ~0, random.getrandbits(32)]))
            elif what == 4:
                d.pte(VA + 0x1000 * random.randrange(4), random.choice([0, P | W | DM | DATA, P | W, random.getrandbits(64)]))
            elif what == 5:
                d.knob(random.choice(["HOLD", "RELEASE", "SLOW", "LATE", "CHECK", "OP", "ASID", "VA"]), random.choice([0, 1, 2, 3, 0xffffffff]))
            elif what == 6:
                region = random.choice([BAR0, VRAM, DOOR, CONFIG])
                offset = random.choice([0, 0x100, 0x7FC, 0x800, 0xFFC, 0x1FF8, 0x190000])
                d.read(region, offset, random.choice([1, 4, 8, 64]))
            if random.random() < 0.02:
                d.ask(random.choice([2, 3, 4, 5, 7, 8, 9, 10, 13, 99]), random.randbytes(random.choice([0, 4, 16, 24, 32, 40])))
                d.write(CONFIG, 4, struct.pack("<H", 6))
        rc, _, err = d.end()
        assert rc in (0, 1), f"exit status {rc}: {err[-2000:]}"
    client.repeat(session, case_nonsense.seconds)


if __name__ == "__main__":
    client.main(__doc__, globals(), Driver)
