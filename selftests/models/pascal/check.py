#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""check.py MODEL [SEED [SECONDS]]: is the model fit to judge a driver? Prints KTAP. See client.py."""

import os
import struct
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "vfio-user"))
sys.dont_write_bytecode = True
import client
from client import CONFIG, SIZE

BAR0, BAR1, BAR2, DOOR = 0, 1, 3, 5
MSI = 1
VRAM_END = 2 << 30
NOWHERE = 0x40000000

# The layout of VRAM: an instance block and tables of each address space, and mapped memory.
INST, TABLES, DATA, USERD, RUNLIST, RING = 0x10000, 0x20000, 0x80000, 0x90000, 0x91000, 0x92000
FAULT_BUFFER = 0xA0000
VA = 0x7F12400000           # of the process; 2 MiB aligned, below 2^40: entries of the ring have no more bits
PB = VA + (1 << 21)         # push buffers are there

# PTEs and PDEs (gp100-mmu-format.pdf)
V, VOL, PRIV, RO, NO_ATOMIC = 1, 1 << 3, 1 << 5, 1 << 6, 1 << 7
SYSTEM = 2 << 1
PDE = 1 << 1                # to a table in VRAM
PAGE_ALL, ALL_PDB, HUB_ONLY, REPLAY, CANCEL, TRIGGER = 1, 2, 4, 1 << 3, 3 << 3, 1 << 31


K, FAILURES = client.constants(os.path.join(HERE, "backdoor.h"))
IDLE, BUSY, DONE, FAILED = (K["DOOR_" + name] for name in ("IDLE", "BUSY", "DONE", "FAILED"))


class Driver(client.Client):
    def __init__(self, model, *options, bus_master=True, setup=True):
        super().__init__([model, *options], bus_master)
        self.msi()
        self.put = 0
        if setup:
            self.setup()

    # ---- registers, VRAM ----

    def rd(self, at):
        return struct.unpack("<I", self.read(BAR0, at))[0]

    def wr(self, at, val):
        self.write(BAR0, at, struct.pack("<I", val & 0xffffffff))

    def vram(self, at, data=None, size=0):
        """Uses PRAMIN, which does not flush writes to BAR 1"""
        self.wr(0x1700, at >> 16)
        offset = 0x700000 + (at & 0xffff)
        return self.write(BAR0, offset, data) if data is not None else self.read(BAR0, offset, size)

    # ---- page tables: five tables of each address space, a page each, for 1 GiB from a 2 MiB page on ----

    def pte(self, space, va, pte, shift=12):
        """Address of a table. The tables of small pages follow each other, one for each of the first 8 times 2 MiB"""
        tables = TABLES + space * 0x10000
        pd0 = tables + 0x3000 + (va >> 21 & 255) * 16
        index = (va >> 21) - (self.base[space] >> 21)
        if shift == 21:
            return self.vram(pd0, struct.pack("<QQ", pte, 0))
        small, big = tables + 0x4000 + index * 0x1000, tables + 0xc000 + index * 0x100
        self.vram(pd0, struct.pack("<QQ", big >> 4 | PDE, small >> 4 | PDE))
        if shift == 16:
            return self.vram(big + (va >> 16 & 31) * 8, struct.pack("<Q", pte))
        return self.vram(small + (va >> 12 & 511) * 8, struct.pack("<Q", pte))

    def space(self, space, base, flags=0):
        tables = TABLES + space * 0x10000
        self.base[space] = base
        for level, shift in enumerate((47, 38, 29)):
            index = base >> shift & (511 if level else 3)
            self.vram(tables + level * 0x1000 + index * 8, struct.pack("<Q", tables + (level + 1) * 0x1000 >> 4 | PDE))
        self.vram(INST + space * 0x1000 + 0x200, struct.pack("<Q", tables | flags | 1 << 10))

    def invalidate(self, space, what=PAGE_ALL):
        pdb = (TABLES + space * 0x10000) >> 12 << 4
        self.wr(0x100cb8, pdb)
        self.wr(0x100cec, pdb >> 32)
        self.wr(0x100cbc, TRIGGER | what)

    def setup(self):
        """Sets up BAR 1 (space 1), BAR 2 (space 2) with the fault buffer, and a channel (space 0) on runlist 1, that of CE0"""
        self.base = {}
        self.wr(0x160, 0xffffffff)
        self.space(0, VA, 0x30)
        self.space(1, 0)
        self.space(2, 0)
        self.wr(0x1704, 1 << 31 | INST + 0x1000 >> 12)
        self.wr(0x1714, 1 << 31 | INST + 0x2000 >> 12)
        for i in range(4):
            self.pte(2, i << 12, FAULT_BUFFER + (i << 12) >> 4 | V)
        self.pte(1, 0, USERD >> 4 | V)
        self.pte(1, 0x10000, DATA >> 4 | V)
        self.wr(0x2a74, 0)
        self.wr(0x2a70, 0)
        self.wr(0x2a70, 1)
        self.wr(0x2254, 1 << 28)
        self.wr(0x2140, 0x7fffffff | 1 << 31)
        self.pte(0, PB, SYSTEM | VOL | 0x100000 >> 4 | V)       # the push buffer, in RAM
        self.pte(0, PB + 0x1000, RING >> 4 | V)                 # its ring of entries
        self.pte(0, PB + 0x2000, SYSTEM | VOL | 0x101000 >> 4 | V)      # semaphores
        self.vram(INST + 0x08, struct.pack("<Q", USERD + 0x200))
        self.vram(INST + 0x48, struct.pack("<Q", PB + 0x1000 | 8 << 48))
        self.wr(0x800008, 1 << 31 | INST >> 12)
        self.vram(RUNLIST, struct.pack("<II", 1, INST >> 12))
        self.wr(0x2270, RUNLIST >> 12)
        self.wr(0x2274, 1 << 20 | 1)
        self.wr(0x80000c, 1 << 10)
        self.wr(0x2a00, ~0)
        self.wr(0x088704, 0)
        self.irqs()

    # ---- push buffers ----

    def push(self, *words, second=False):
        """Runs a segment of the push buffer on channel 1; second: on channel 2, as its first one"""
        at = 0x100000 + self.put * 128
        self.ram[at:at + 4 * len(words)] = struct.pack(f"<{len(words)}I", *words)
        va = PB + self.put * 128
        self.vram(RING + 0x800 if second else RING + self.put * 8, struct.pack("<Q", va | len(words) << 42))
        self.put += 1
        self.write(BAR1, 0x48c if second else 0x28c, struct.pack("<I", 1 if second else self.put))

    def copy(self, src, dst, size, flags=0, semaphore=0, physical=(True, True), targets=(0, 0), lines=1, second=False):
        """Copies by the copy engine, which writes this value to the semaphore at the end"""
        inc = lambda method, *values: (1 << 29 | len(values) << 16 | 4 << 13 | method >> 2, *values)
        launch = 2 | 3 << 7 | 1 << 9 | physical[0] << 12 | physical[1] << 13 | (1 << 3 if semaphore else 0) | flags
        self.push(*inc(0, 0xc0b5), *inc(0x240, PB + 0x2000 >> 32, PB + 0x2000 & 0xffffffff, semaphore),
                  *inc(0x260, *targets), *inc(0x400, src >> 32, src & 0xffffffff, dst >> 32, dst & 0xffffffff, size, size, size, lines),
                  *inc(0x300, launch), second=second)

    def semaphore(self):
        return struct.unpack("<I", self.ram[0x101000:0x101004])[0]

    # ---- the back door ----

    def knob(self, name, val):
        self.write(DOOR, K["DOOR_" + name], struct.pack("<I", val))

    def status(self, n=0):
        return struct.unpack("<I", self.read(DOOR, n * K["DOOR_SIZE"] + K["DOOR_STATUS"]))[0]

    def data(self, size, n=0):
        return self.read(DOOR, n * K["DOOR_SIZE"] + K["DOOR_DATA"], size)

    def gpu(self, op, va, size=4, data=None, n=0, chid=1):
        """Makes a request as a client of a GPC. Returns its status"""
        at = n * K["DOOR_SIZE"]
        if data:
            self.write(DOOR, at + K["DOOR_DATA"], data)
        self.write(DOOR, at + K["DOOR_CHID"], struct.pack("<I", chid))
        self.write(DOOR, at + K["DOOR_VA"], struct.pack("<Q", va))
        self.write(DOOR, at + K["DOOR_LEN"], struct.pack("<I", size))
        self.write(DOOR, at + K["DOOR_OP"], struct.pack("<I", K["DOOR_" + op]))
        return self.status(n)

    def entry(self, i):
        """Returns an entry of the fault buffer: instance, address, client, access, reason, GPC, valid"""
        inst, va, _, word, info = struct.unpack("<QQQII", self.vram(FAULT_BUFFER + i * 32, size=32))
        return inst, va, info >> 8 & 127, info >> 16 & 7, info & 31, info >> 24 & 31, info >> 31


K["DOOR_SIZE"] = 65536


def verdict(driver, code=0, **counters):
    client.verdict(driver, code, FAILURES, **counters)


def case_identity(new, random):
    """The identity of the chip, and a VBIOS whose bytes add up to zero"""
    d = new()
    assert d.rd(0) == 0x130000a1 and d.rd(4) == 0
    assert d.read(CONFIG, 0, 4) == bytes.fromhex("de10f815")
    rom = b"".join(d.read(BAR0, 0x300000 + i, 4096) for i in (0, 4096))
    assert rom[:2] == b"\x55\xaa" and sum(rom) & 255 == 0 and rom[2] * 512 == len(rom)
    now = d.rd(0x9400)
    time.sleep(0.01)
    assert d.rd(0x9400) - now & 0xffffffff >= 10000000
    verdict(d)


def case_page_sizes(new, random):
    """A translation by PTEs of 4 KiB, 64 KiB and 2 MiB, to VRAM and to RAM"""
    d = new()
    d.ram[0x200010:0x200014] = b"RAM!"
    for shift, offset in (12, 0x3000), (16, 0x50000), (21, 3 << 21):
        d.vram(DATA + 0x123 if shift < 21 else (4 << 21) + 0x123, b"VRAM")
        d.pte(0, VA + offset, (DATA if shift < 21 else 4 << 21) >> 4 | V, shift)
        assert d.gpu("LOAD", VA + offset + 0x123) == DONE and d.data(4) == b"VRAM", shift
    d.pte(0, VA + 0x9000, SYSTEM | VOL | 0x200000 >> 4 | V)
    assert d.gpu("LOAD", VA + 0x9010) == DONE and d.data(4) == b"RAM!"
    assert d.gpu("STORE", VA + 0x9020, data=b"done") == DONE and d.ram[0x200020:0x200024] == b"done"
    verdict(d)


def case_both_sizes(new, random):
    """A valid big PTE has priority over the small ones. An invalid big PTE with the privilege bit means that no small ones exist"""
    d = new()
    d.vram(DATA, b"small")
    d.vram(DATA + 0x10000, b"big__")
    d.pte(0, VA, DATA >> 4 | V)
    assert d.gpu("LOAD", VA, 5) == DONE and d.data(5) == b"small"
    d.pte(0, VA, DATA + 0x10000 >> 4 | V, 16)
    d.invalidate(0)
    assert d.gpu("LOAD", VA, 5) == DONE and d.data(5) == b"big__"
    d.pte(0, VA, PRIV, 16)
    d.invalidate(0)
    assert d.gpu("LOAD", VA, 5) == BUSY
    verdict(d)


def case_sparse(new, random):
    """A sparse page reads as zeroes and drops writes"""
    d = new()
    d.pte(0, VA, VOL)
    assert d.gpu("STORE", VA, data=b"lost") == DONE
    assert d.gpu("LOAD", VA) == DONE and d.data(4) == bytes(4)
    d.pte(1, 0x5000, VOL)
    d.write(BAR1, 0x5000, b"lost")
    assert d.read(BAR1, 0x5000) == bytes(4)
    verdict(d)


def case_replay(new, random):
    """A load from an unmapped page faults and raises an interrupt. It succeeds after a PTE is written and the fault is replayed"""
    d = new()
    d.vram(DATA, b"data")
    assert d.gpu("LOAD", VA + 0x4010) == BUSY
    assert d.irqs() == 1 and d.rd(0x100) & 0x200
    assert (d.rd(0x2a7c), d.rd(0x2a80)) == (0, 1)
    assert d.entry(0) == (INST, VA + 0x4000, 1, 0, 0, 0, 1), d.entry(0)
    assert d.gpu("LOAD", VA + 0x6000, n=1) == BUSY
    assert d.irqs() == 0, "an interrupt though the MSI is not armed"
    d.wr(0x88704, 0)
    assert d.irqs() == 1
    d.wr(0x2a7c, 2)
    assert not d.rd(0x100) & 0x200
    d.pte(0, VA + 0x4000, DATA >> 4 | V)
    d.vram(DATA + 0x10, b"DATA")
    assert d.status() == BUSY
    d.invalidate(0, PAGE_ALL | ALL_PDB | REPLAY)
    assert d.status() == DONE and d.data(4) == b"DATA"
    verdict(d)


def case_access_rights(new, random):
    """Stores to read-only pages and disabled atomics fault with the right reason"""
    d = new()
    d.pte(0, VA, DATA >> 4 | V | RO)
    d.pte(0, VA + 0x1000, DATA >> 4 | V | NO_ATOMIC)
    assert d.gpu("LOAD", VA) == DONE
    assert d.gpu("STORE", VA, n=1) == BUSY and d.entry(0)[3:6] == (1, 6, 1)
    assert d.gpu("STORE", VA + 0x1000, data=struct.pack("<I", 40), n=2) == DONE
    assert d.gpu("ADD", VA + 0x1000, data=struct.pack("<I", 2), n=3) == BUSY and d.entry(1)[3:6] == (2, 15, 3)
    assert d.gpu("PREFETCH", VA + 0x2000, n=4) == BUSY and d.entry(2)[3:6] == (3, 2, 4)
    d.pte(0, VA + 0x1000, DATA >> 4 | V)
    d.invalidate(0, PAGE_ALL | ALL_PDB | REPLAY)
    assert d.status(3) == DONE and d.data(4, 3) == struct.pack("<I", 40)
    assert d.vram(DATA, size=4) == struct.pack("<I", 42)
    assert d.status(1) == BUSY and d.rd(0x2a80) == 5
    verdict(d)


def case_cancel(new, random):
    """A targeted cancel concerns only this client. Its fault becomes a fatal fault of GR"""
    d = new()
    for n in 0, 1:
        assert d.gpu("LOAD", VA + 0x1000 * n, n=n) == BUSY
    d.wr(0x409500, 0)
    d.wr(0x409504, 0x38)
    assert d.rd(0x409804) == 1 and d.rd(0x409b00) == 1 << 31 | INST >> 12
    d.invalidate(0, PAGE_ALL | ALL_PDB | CANCEL | 1 << 15 | 5 << 9)
    assert d.status(0) == d.status(1) == BUSY
    d.invalidate(0, PAGE_ALL | ALL_PDB | CANCEL | 1 << 15 | 1 << 9)
    assert d.status(0) == BUSY and d.status(1) == FAILED
    assert d.rd(0x2100) & 1 << 28 and d.rd(0x259c) == 1
    assert d.rd(0x2800) == INST >> 12 and d.rd(0x2804) == VA + 0x1000 & 0xffffffff
    assert not d.rd(0x280c) & 1 << 20
    d.wr(0x259c, 1)
    assert not d.rd(0x2100) & 1 << 28
    verdict(d)


def case_not_replayable(new, random):
    """Without the bits in the directory base a fault of a GPC is fatal"""
    d = new()
    d.space(0, VA)
    assert d.gpu("LOAD", VA) == FAILED and d.rd(0x259c) == 1
    verdict(d)


def case_stale(new, random):
    """An entry that was not invalidated is still used. The check finds it"""
    d = new()
    d.vram(DATA, b"old_")
    d.vram(DATA + 0x1000, b"new_")
    d.pte(0, VA, DATA >> 4 | V)
    assert d.gpu("LOAD", VA) == DONE and d.data(4) == b"old_"
    d.pte(0, VA, DATA + 0x1000 >> 4 | V)
    assert d.gpu("LOAD", VA) == DONE and d.data(4) == b"old_"
    d.knob("CHECK", 1)
    verdict(d, 1, violations=1)


def case_invalidated(new, random):
    d = new()
    d.vram(DATA + 0x1000, b"new_")
    d.pte(0, VA, DATA >> 4 | V)
    assert d.gpu("LOAD", VA) == DONE
    d.pte(0, VA, DATA + 0x1000 >> 4 | V)
    d.invalidate(0)
    assert d.gpu("LOAD", VA) == DONE and d.data(4) == b"new_"
    d.knob("CHECK", 1)
    verdict(d)


def case_other_directory(new, random):
    """The invalidation of another directory, or for the hub only, does not help a GPC"""
    for space, what in (1, PAGE_ALL), (0, PAGE_ALL | HUB_ONLY):
        d = new()
        d.pte(0, VA, DATA >> 4 | V)
        assert d.gpu("LOAD", VA) == DONE
        d.pte(0, VA, 0)
        d.invalidate(space, what)
        d.knob("CHECK", 1)
        verdict(d, 1, violations=1)


def case_stale_too_long(new, random):
    """A stale entry is used, and no invalidation follows within two seconds"""
    d = new()
    d.pte(0, VA, DATA >> 4 | V)
    assert d.gpu("LOAD", VA) == DONE
    d.pte(0, VA, 0)
    assert d.gpu("LOAD", VA) == DONE
    time.sleep(2.5)
    verdict(d, 1, violations=1)


def case_copied_while_writable(new, random):
    """A process must not be able to write the source of a copy, by a TLB or a page table. It may be able to read it"""
    for flags, loaded, mapped, wrong in (0, True, False, 1), (0, False, True, 1), (RO, True, True, 0):
        d = new()
        d.pte(0, VA, DATA >> 4 | V | flags)
        assert not loaded or d.gpu("LOAD", VA) == DONE
        if not mapped:
            d.pte(0, VA, 0)
        d.copy(DATA, 0x300000, 0x1000, targets=(0, 1))
        verdict(d, wrong, violations=wrong)


def case_copied_to_mapped(new, random):
    """A process must not reach the destination of a copy, because that page was free"""
    for shift, loaded, mapped, wrong in (12, True, False, 1), (12, False, True, 1), (21, False, True, 1), (12, False, False, 0):
        d = new()
        at = DATA if shift == 12 else 4 << 21
        d.pte(0, VA, at >> 4 | V | RO, shift)
        assert not loaded or d.gpu("LOAD", VA) == DONE
        if not mapped:
            d.pte(0, VA, 0, shift)
        d.copy(0x300000, at, 0x1000, targets=(1, 0))
        verdict(d, wrong, violations=wrong)


def case_next(new, random):
    """The back door lists mapped pages of each size, one after the other"""
    d = new()
    found = []
    d.pte(0, VA, 4 << 21 >> 4 | V, 21)
    d.pte(0, VA + 0x207000, DATA >> 4 | V | RO)
    d.pte(0, VA + 0x410000, DATA >> 4 | V, 16)
    va = 0
    while d.gpu("NEXT", va) == DONE:
        va, = struct.unpack("<Q", d.read(DOOR, K["DOOR_VA"], 8))
        flags, = struct.unpack("<I", d.read(DOOR, K["DOOR_FLAGS"]))
        found.append((va, flags >> 8))
        va += 1 << (flags >> 8)
    assert d.status() == FAILED
    assert found == [(VA, 21), (PB, 12), (PB + 0x1000, 12), (PB + 0x2000, 12), (VA + 0x207000, 12), (VA + 0x410000, 16)], found
    verdict(d)


def case_backwards(new, random):
    """Copies of two channels in either order: the last one leaves its semaphore"""
    for backwards, last in (0, 2), (1, 1):
        d = new()
        d.vram(INST + 0x4000 + 0x08, struct.pack("<Q", USERD + 0x400))
        d.vram(INST + 0x4000 + 0x48, struct.pack("<Q", PB + 0x1800 | 8 << 48))
        d.vram(INST + 0x4000 + 0x200, struct.pack("<Q", TABLES | 0x30 | 1 << 10))
        d.wr(0x800010, 1 << 31 | INST + 0x4000 >> 12)
        d.vram(RUNLIST, struct.pack("<IIII", 1, INST >> 12, 2, INST + 0x4000 >> 12))
        d.wr(0x2274, 1 << 20 | 2)
        d.wr(0x800014, 1 << 10)
        d.knob("HOLD", 1)
        d.copy(DATA, DATA + 0x1000, 16, semaphore=1)
        d.copy(DATA, DATA + 0x2000, 16, semaphore=2, second=True)
        d.knob("BACKWARDS", backwards)
        d.knob("HOLD", 0)
        assert d.semaphore() == last, d.semaphore()
        verdict(d)


def case_unmapped_in_tlb(new, random):
    """Memory must not be unmapped from the device while a TLB leads to it. After an invalidation it may be"""
    for right in False, True:
        d = new()
        d.dma_map(NOWHERE, 0x1000)
        d.pte(0, VA, SYSTEM | VOL | NOWHERE >> 4 | V)
        assert d.gpu("LOAD", VA) == DONE
        d.pte(0, VA, 0)
        if right:
            d.invalidate(0)
        d.dma_unmap(NOWHERE, 0x1000)
        verdict(d, int(not right), violations=int(not right))


def case_behind_vram(new, random):
    d = new()
    d.pte(0, VA, VRAM_END >> 4 | V)
    d.gpu("LOAD", VA)
    verdict(d, 1, violations=1)


def case_iommu_fault(new, random):
    d = new()
    d.pte(0, VA, SYSTEM | VOL | NOWHERE >> 4 | V)
    d.gpu("LOAD", VA)
    verdict(d, 1, iommu_faults=1)


def case_no_such_runlist(new, random):
    d = new()
    d.wr(0x2274, 3 << 20 | 1)
    verdict(d, 1, violations=1)


def case_no_bus_master(new, random):
    d = new(bus_master=False)
    d.pte(0, VA, SYSTEM | VOL | 0x200000 >> 4 | V)
    d.gpu("LOAD", VA)
    verdict(d, 1, violations=1)


def case_posted_writes(new, random):
    """Writes to BAR 1 arrive when BAR 1 is read or, without -p read, flushed"""
    for options, by_flush in ((), True), (("-p", "read"), False), (("-p", "no"), None):
        d = new(*options)
        d.write(BAR1, 0x10000, b"late")
        there = lambda: d.vram(DATA, size=4) == b"late"
        if by_flush is None:
            assert there()
            continue
        assert not there()
        d.wr(0x70000, 1)
        assert d.rd(0x70000) == 0 and there() == by_flush
        d.write(BAR1, 0x10004, b"more")
        assert d.read(BAR1, 0x10004) == b"more" and there()
        # A semaphore of the GPU comes after a write of the same word through BAR 1, but does not flush other words.
        d.pte(0, PB + 0x3000, DATA >> 4 | V)
        at = PB + 0x3008
        for word in 0x1000c, 0x10008:
            d.write(BAR1, word, b"old_")
            d.push(1 << 29 | 4 << 16 | 0x10 >> 2, at >> 32, at & 0xffffffff, 7, 2 | 1 << 24)
            assert d.vram(DATA + 0xc, size=4) == (b"old_" if word == 0x10008 else bytes(4))
        assert d.read(BAR1, 0x10008) == struct.pack("<I", 7)
        verdict(d)


def case_peer(new, random):
    """The model of another device accesses BAR 1 at its address on the bus"""
    at, size = 0x240000000, 256 << 20
    with tempfile.TemporaryDirectory() as folder:
        d = new("-l", folder + "/peer")
        asker = client.PeerEnd(folder + "/asker")
        access = lambda *args, **more: asker.access(folder + "/peer", *args, **more)
        assert access(at + 0x10000, 4)[0] == 0, "where no BAR is"
        d.write(CONFIG, 0x14, struct.pack("<Q", at | 0xc))
        assert access(at - 1)[0] == access(at + size)[0] == 0, "beside the BAR"
        assert access(at)[0] == size
        data = random.randbytes(2000)
        assert access(at + 0x10004, data=data)[0] == size - 0x10004
        assert d.vram(DATA + 4, size=len(data)) == bytes(len(data)), "it was not posted"
        assert access(at + 0x10004, len(data))[1] == data == d.vram(DATA + 4, size=len(data))
        assert access(at + size - 2, data=b"lost")[0] == 2, "behind the end"
        d.write(CONFIG, 4, struct.pack("<H", 4))
        assert access(at + 0x10000, 4)[0] == 0, "memory is not decoded"
        d.write(CONFIG, 4, struct.pack("<H", 6))
        access(at + 0x8000, 4)
        verdict(d, 1, bar_faults=1)


def case_bar_fault(new, random):
    """Accesses to BAR 1 fail where nothing is mapped, and while it is disabled"""
    for off in False, True:
        d = new()
        if off:
            d.wr(0x1704, 0)
        assert d.read(BAR1, 0x8000) == b"\xff" * 4
        assert d.rd(0x259c) == (0 if off else 1 << 4)
        verdict(d, 1, bar_faults=1)


def case_hub(new, random):
    """BAR 1 has a TLB, too; an invalidation for the hub is enough for it"""
    d = new("-p", "no")
    d.vram(DATA, b"old_")
    d.vram(DATA + 0x1000, b"new_")
    assert d.read(BAR1, 0x10000) == b"old_"
    d.pte(1, 0x10000, DATA + 0x1000 >> 4 | V)
    assert d.read(BAR1, 0x10000) == b"old_"
    d.invalidate(1, PAGE_ALL | HUB_ONLY)
    assert d.read(BAR1, 0x10000) == b"new_"
    verdict(d)


def case_copy(new, random):
    """Copies between physical and virtual addresses, in VRAM and RAM. A semaphore reports the end, and GP_GET advances"""
    d = new()
    d.ram[0x200000:0x202000] = bytes(range(256)) * 32
    d.copy(0x200000, DATA, 0x1000, semaphore=1, targets=(1, 0), lines=2)
    assert d.semaphore() == 1 and d.vram(DATA, size=0x1000) + d.vram(DATA + 0x1000, size=0x1000) == bytes(range(256)) * 32
    assert d.read(BAR1, 0x288) == struct.pack("<I", 1)
    d.pte(0, VA, DATA >> 4 | V)
    d.copy(VA, 0x300000, 0x1000, semaphore=2, physical=(False, True), targets=(0, 1))
    assert d.semaphore() == 2 and d.ram[0x300000:0x301000] == bytes(range(256)) * 16
    verdict(d)


def case_fill(new, random):
    """A copy of two constants that reads no source. A component that is not written keeps its value"""
    d = new()
    d.vram(DATA, b"\xee" * 64)
    inc = lambda method, *values: (1 << 29 | len(values) << 16 | 4 << 13 | method >> 2, *values)
    d.push(*inc(0, 0xc0b5), *inc(0x264, 0), *inc(0x408, 0, DATA), *inc(0x418, 2), *inc(0x700, 0x11111111, 0x22222222),
           0x20000000 | 1 << 16 | 4 << 13 | 0x708 >> 2, 4 | 5 << 4 | 6 << 8 | 3 << 16 | 2 << 24, *inc(0x300, 2 | 3 << 7 | 1 << 10 | 1 << 13))
    assert d.vram(DATA, size=28) == (b"\x11" * 4 + b"\x22" * 4 + b"\xee" * 4) * 2 + b"\xee" * 4, d.vram(DATA, size=28).hex()
    d.vram(DATA + 0x1000, b"a1b2")
    d.push(*inc(0x260, 0, 0), *inc(0x400, 0, DATA + 0x1000, 0, DATA), *inc(0x418, 2),
           *inc(0x708, 1 | 0 << 4 | 0 << 8 | 0 << 16 | 1 << 20 | 2 << 24), *inc(0x300, 2 | 3 << 7 | 1 << 10 | 3 << 12))
    assert d.vram(DATA, size=8) == b"1aa2bb\x22\x22", d.vram(DATA, size=8)
    verdict(d)


def case_copy_fault(new, random):
    """The fault is fatal and names unit CE0 and its client of the hub. The channel stops"""
    d = new()
    d.copy(VA, DATA, 0x1000, semaphore=1, physical=(False, True))
    assert d.semaphore() == 0 and d.rd(0x259c) == 1 << 0x15
    assert d.rd(0x2800 + 0x150) == INST >> 12 and d.rd(0x280c + 0x150) & 0x1fffff == 1 << 20 | 1 << 8 | 0
    assert d.rd(0x2a80) == 0, "it is in the buffer of replayable faults"
    d.copy(DATA, DATA + 0x1000, 0x1000, semaphore=2)
    assert d.semaphore() == 0
    rc, seen, err = d.end()
    assert rc == 0 and seen["fatal_faults"] == 1, err


def case_held_copies(new, random):
    """Two copies are held. One is released, then all"""
    d = new()
    d.knob("HOLD", 1)
    d.copy(DATA, DATA + 0x1000, 16, semaphore=1)
    d.copy(DATA, DATA + 0x2000, 16, semaphore=2)
    assert d.semaphore() == 0
    d.knob("RELEASE", 1)
    assert d.semaphore() == 1
    d.knob("HOLD", 0)
    assert d.semaphore() == 2
    d.knob("HOLD", 2)
    d.copy(DATA, DATA + 0x1000, 16, semaphore=3)
    assert d.semaphore() == 3
    for offset in 0, 0x1000:
        d.pte(0, VA + offset, DATA + offset >> 4 | V)
    d.copy(VA, VA + 0x1000, 16, semaphore=4, physical=(False, False))
    assert d.semaphore() == 3
    d.knob("HOLD", 0)
    assert d.semaphore() == 4
    verdict(d)


def case_slow(new, random):
    """Delayed copies, and a slow invalidation that takes effect at its end"""
    d = new()
    d.knob("DELAY", 300)
    begin = time.monotonic()
    d.copy(DATA, DATA + 0x1000, 16, semaphore=1)
    assert d.semaphore() == 0 or time.monotonic() >= begin + 0.29, "it ends at once"
    d.wait(lambda: d.semaphore() == 1, "the copy does not end")
    assert time.monotonic() >= begin + 0.29, "too soon"
    d.knob("DELAY", 0)
    d.knob("SLOW", 300)
    d.pte(0, VA, DATA >> 4 | V)
    assert d.gpu("LOAD", VA) == DONE
    d.pte(0, VA, 0)
    begin = time.monotonic()
    d.invalidate(0)
    assert not d.rd(0x100c80) & 1 << 15 and d.gpu("LOAD", VA) == DONE or time.monotonic() >= begin + 0.29, "it ends at once"
    d.wait(lambda: d.rd(0x100c80) & 1 << 15, "the invalidation does not end")
    assert time.monotonic() >= begin + 0.29, "too soon"
    assert d.gpu("LOAD", VA) == BUSY
    verdict(d)


def case_behind(new, random):
    """An access starts just after a flush of the TLB of its address space"""
    d = new()
    d.pte(0, VA, DATA >> 4 | V)
    d.knob("BEHIND", 1)
    assert d.gpu("LOAD", VA) == BUSY
    d.invalidate(1)
    d.invalidate(0, PAGE_ALL | ALL_PDB | REPLAY)
    assert d.status() == BUSY
    d.invalidate(0)
    assert d.status() == DONE
    verdict(d)


def case_failing_copy(new, random):
    """The second copy after this knob was set fails"""
    d = new()
    d.knob("FAIL", 2)
    for value in 1, 2:
        d.copy(DATA, DATA + 0x1000, 16, semaphore=value)
    assert d.semaphore() == 1 and d.rd(0x259c) == 1 << 0x15
    verdict(d)


def case_semaphores(new, random):
    """One channel waits for a value, in the push buffer"""
    d = new()
    at = PB + 0x2000
    d.push(1 << 29 | 4 << 16 | 0x10 >> 2, at >> 32, at & 0xffffffff, 7, 4 | 1 << 12,
           1 << 29 | 4 << 16 | 0x10 >> 2, at + 16 >> 32, at + 16 & 0xffffffff, 9, 2 | 1 << 24)
    assert d.ram[0x101010:0x101014] == bytes(4)
    d.ram[0x101000:0x101004] = struct.pack("<I", 8)
    d.wait(lambda: d.ram[0x101010:0x101014] == struct.pack("<I", 9), "it waits for ever")
    d.push(1 << 29 | 1 << 16 | 0x20 >> 2, 0)
    assert d.rd(0x2100) & 1 << 31 and d.irqs()
    verdict(d)


def case_odd_faults(new, random):
    """Faults are sent twice, with a late valid bit, and in larger numbers than the buffer can hold"""
    d = new()
    d.knob("AGAIN", 1)
    d.knob("LATE", 100)
    begin = time.monotonic()
    assert d.gpu("LOAD", VA) == BUSY and d.rd(0x2a80) == 2
    assert [d.entry(i)[6] for i in (0, 1)] == [0, 0] or time.monotonic() >= begin + 0.09, "they are valid at once"
    d.wait(lambda: [d.entry(i)[6] for i in (0, 1)] == [1, 1], "the valid bits do not come")
    assert d.entry(0)[:6] == d.entry(1)[:6]
    d.knob("LATE", 0)
    for _ in range(200):
        d.invalidate(0, PAGE_ALL | ALL_PDB | REPLAY)
    assert d.rd(0x2a80) == 255
    d.wr(0x2a7c, 255)
    d.pte(0, VA, DATA >> 4 | V)
    d.invalidate(0, PAGE_ALL | ALL_PDB | REPLAY)
    assert d.status() == DONE
    verdict(d)


def case_off_the_bus(new, random):
    """Reads return all ones until bus mastering is enabled again"""
    d = new()
    d.knob("GONE", 1)
    assert d.rd(0) == 0xffffffff and d.read(BAR1, 0x10000) == b"\xff" * 4
    d.write(CONFIG, 4, struct.pack("<H", 2))
    d.write(CONFIG, 4, struct.pack("<H", 6))
    assert d.rd(0) == 0x130000a1 and d.rd(0x1704) == 0
    verdict(d)


def case_sleep(new, random):
    """After D3 the registers are as after power on, and VRAM is there after devinit"""
    def sleep(d):
        d.vram(DATA, b"before")
        d.write(CONFIG, 0x64, b"\3\0")
        d.write(CONFIG, 0x64, b"\0\0")

    def devinit(d, spoilt=()):
        """Loads and starts devinit as the driver does. spoilt: words that are written as 0, by port and address"""
        def load(control, data, to, at, size):
            d.wr(control, 1 << 24 | to)
            for i in range(0, size, 4):
                d.wr(data, d.rd(0x300000 + at + i) if (control, to + i) not in spoilt else 0)

        word = lambda at: d.rd(0x300000 + at)
        head = word(word(0x2c0) + 6 & ~3) >> 16 | (word(word(0x2c0) + 6 + 3 & ~3) & 0xffff) << 16
        load(0x10a180, 0x10a184, 0, head + 0x30, word(head + 0x1c))
        load(0x10a180, 0x10a184, word(head + 0x1c), head + 0x30 + word(head + 0x1c), word(head + 0x20))
        load(0x10a1c0, 0x10a1c4, word(head + 0x28), head + 0x30 + word(head + 0x24), word(head + 0x2c))
        for offset, table in ((8, 0x254), (16, 0x258)):
            d.wr(0x10a1c0, word(head + 0x0c) + 8)
            d.wr(0x10a1c0, d.rd(0x10a1c4) + offset)
            load(0x10a1c0, 0x10a1c4, d.rd(0x10a1c4), word(table) & 0xffff, word(table) >> 16)
        d.wr(0x10a040, 0x5000)
        d.wr(0x10a104, word(head + 8))
        d.wr(0x10a100, 2)
        return bool(d.rd(0x10a040) & 0x2000)

    d = new()
    sleep(d)
    assert d.rd(0x1704) == 0 and d.rd(0x2240c) == 0 and devinit(d) and d.rd(0x2240c) == 2
    assert d.vram(DATA, size=6) == bytes(6)
    verdict(d)
    d = new()
    sleep(d)
    d.vram(DATA, size=4)
    verdict(d, 1, violations=1)
    for lost in (0x10a180, 0), (0x10a180, 0x1fc), (0x10a1c0, 0x400), (0x10a1c0, 0x63c):
        d = new()
        sleep(d)
        assert not devinit(d, [lost])
        verdict(d, 1, violations=1)


def case_unknown(new, random):
    """Accesses to unknown registers and methods are counted"""
    d = new()
    d.rd(0x123450)
    d.wr(0x123450, 1)
    d.wr(0x123450, 1)
    word = lambda subchannel, method, value: (1 << 29 | 1 << 16 | subchannel << 13 | method >> 2, value)
    d.push(*word(4, 0, 0xc0b5), *word(4, 0x900, 1))             # of the copy engine
    d.push(*word(4, 0x44, 1), *word(2, 0x400, 1))               # of host; on a subchannel without an object
    d.push(*word(3, 0, 0xc097), 7 << 29)                        # another class; another header
    d.push(*word(4, 0x300, 2), *word(4, 0x300, 1 << 19))        # another layout; a reduction
    d.push(1 << 29 | 4 << 16 | 0x10 >> 2, PB + 0x2000 >> 32, PB + 0x2000 & 0xffffffff, 0, 16)      # a reduction by host
    rc, seen, err = d.end()
    assert rc == 1 and (seen["unknown_registers"], seen["unknown_methods"]) == (3, 8), err
    assert err.count("unknown register") == 2, err


def case_nonsense(new, random):
    """Registers, page tables, push buffers, clients and messages that no driver would make"""
    addresses = [0, INST, TABLES, DATA, VRAM_END - 8, VRAM_END, NOWHERE, VA, PB, 0x200000, 2**40 - 4, 2**64 - 8]
    registers = [0x100, 0x160, 0x200, 0x1700, 0x1704, 0x1714, 0x2100, 0x2140, 0x2254, 0x2270, 0x2274, 0x259c, 0x2a00, 0x2a30, 0x2a70, 0x2a74,
                 0x2a7c, 0x2630, 0x9140, 0x9400, 0x9410, 0x9420, 0x70000, 0x88704, 0x100c80, 0x100cb8, 0x100cbc, 0x100cec, 0x409504, 0x800000,
                 0x800004, 0x800008, 0x80000c, 0x8001f8, 0x700000, 0x7ffffc, 0x300000, 0x22700, 0xfffffc]
    word = lambda: random.choice([0, 1, 3, 0xc0b5, 1 << 31, 1 << 31 | INST >> 12, 0xffffffff, random.getrandbits(32), 1 << 20 | 3,
                                  random.choice(addresses) & 0xffffffff, 1 << random.randrange(32)])

    def noise(size):
        return b"".join(struct.pack("<Q", random.choice([0, word(), random.choice(addresses) >> 4 | random.choice([V, PDE, SYSTEM | V, VOL, 6, 7])]))
                        for _ in range(size // 8))

    def methods():
        n = random.randrange(1, 9)
        op = random.choice([1, 1, 1, 3, 4, 5, 0, 7])
        method = random.choice([0, 0x10, 0x1c, 0x20, 0x240, 0x260, 0x300, 0x400, 0x418, 0x41c, 0x700, 0x708, random.randrange(0, 0x4000, 4)])
        values = [random.choice([word(), random.choice(addresses) >> 32, 2 | 3 << 7, 0x386 | random.getrandbits(14) << 9]) for _ in range(n)]
        return (op << 29 | n << 16 | random.choice([0, 4, 4, 4]) << 13 | method >> 2, *values)

    def session():
        d = new()
        for _ in range(random.choice([20, 150])):
            what = random.randrange(9)
            if what < 2:
                d.wr(random.choice(registers) if random.random() < 0.8 else random.randrange(0, 16 << 20, 4), word())
            elif what == 2:
                d.rd(random.choice(registers) if random.random() < 0.8 else random.randrange(0, 16 << 20, 4))
            elif what == 3:
                d.vram(random.choice([INST, TABLES, TABLES + 0x3000, RUNLIST, RING, USERD, DATA]) + random.randrange(0, 0x800, 8), noise(random.choice([8, 64])))
            elif what == 4 and d.put < 30:
                d.push(*methods(), *methods(), *methods())
            elif what == 5:
                d.gpu(random.choice(["LOAD", "STORE", "ADD", "PREFETCH", "WALK", "NEXT", "VRAM"]), min(random.choice(addresses) + random.choice([0, 4, 4095]), 2**64 - 1),
                      random.choice([0, 4, 4096, 65536, 0xffffffff]), n=random.randrange(8), chid=random.choice([0, 1, 1, 1, 63, 64]))
            elif what == 6:
                d.knob(random.choice(["HOLD", "RELEASE", "AGAIN", "FAIL", "POSTED", "CHECK", "SLOW", "LATE", "BACKWARDS", "BEHIND"]), random.choice([0, 1, 2, 3]))
            elif what == 7:
                region, size = random.choice([(BAR1, random.choice([1, 4, 8, 512])), (BAR2, 4), (DOOR, 8), (CONFIG, 4)])
                offset = random.choice([0, 0x288, 0x28c, 0x10000, 0xffc, 0xfff8])
                d.write(region, offset, noise(512)[:size]) if random.random() < 0.5 else d.read(region, offset, size)
            else:
                d.invalidate(random.choice([0, 1, 2]), random.getrandbits(21))
            if random.random() < 0.02:
                d.ask(random.choice([2, 3, 4, 5, 7, 8, 9, 10, 13, 99]), random.randbytes(random.choice([0, 4, 16, 24, 32, 40])))
        rc, _, err = d.end()
        assert rc in (0, 1), f"exit status {rc}: {err[-2000:]}"
    client.repeat(session, case_nonsense.seconds)


if __name__ == "__main__":
    client.main(__doc__, globals(), Driver)
