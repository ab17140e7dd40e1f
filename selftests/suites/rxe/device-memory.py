"""device-memory.py DEVICE GID: on-demand paging of memory that is in the device memory of test_hmm.

rxe copies with the CPU, to which an alias is of no use: the pages have to come back to RAM, with the right data. Prints KTAP.
"""

import ctypes
import fcntl
import mmap
import os
import sys
import time

from pyverbs.libibverbs_enums import (ibv_wr_opcode as op, _IBV_ADVISE_MR_ADVICE_PREFETCH as PREFETCH,
                                      _IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT as PREFETCH_NO_FAULT,
                                      _IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE as PREFETCH_WRITE,
                                      _IBV_ADVISE_MR_FLAG_FLUSH as FLUSH)
from pyverbs.wr import SGE
from verbs import PAGE, Failed, equal, run_tests

NPAGES = 16


class Command(ctypes.Structure):
    """struct hmm_dmirror_cmd of lib/test_hmm_uapi.h"""
    _fields_ = [(name, ctypes.c_uint64) for name in ("addr", "ptr", "npages", "cpages", "faults")]


class Stats(ctypes.Structure):
    """struct hmm_dmirror_p2p_stats"""
    _fields_ = [(name, ctypes.c_uint64) for name in ("bound", "bar_pages", "bar_live", "op_calls", "migrated", "flushes")]


def ioctl_number(direction, number, struct):
    return direction << 30 | ctypes.sizeof(struct) << 16 | ord("H") << 8 | number


MIGRATE_TO_DEV = ioctl_number(3, 2, Command)
SNAPSHOT = ioctl_number(3, 4, Command)
P2P_STATS = ioctl_number(2, 11, Stats)
PROT_DEV_PRIVATE_LOCAL = 0x20
# Its test_hmm keeps no statistics: what is left to see is where the pages are, and the data.
UNPATCHED = os.uname().release.endswith("-unpatched")


class Memory:
    """Pages of this process, which test_hmm can take to its device memory."""

    def __init__(self, mirror, npages=NPAGES):
        self.mirror, self.npages, self.size = mirror, npages, npages * PAGE
        self.map = mmap.mmap(-1, self.size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))

    def fill(self, seed):
        """Each page has other bytes, and no two words of a page are the same."""
        data = b"".join((seed << 48 | page << 32 | word).to_bytes(8, "little")
                        for page in range(self.npages) for word in range(PAGE // 8))
        self.map[:] = data
        return data

    def command(self, number, first, npages, out):
        cmd = Command(addr=self.address + first * PAGE, ptr=ctypes.addressof(out), npages=npages)
        fcntl.ioctl(self.mirror, number, cmd)
        return cmd

    def to_device(self, first=0, npages=None):
        npages = npages or self.npages
        out = ctypes.create_string_buffer(npages * PAGE)
        equal("pages that went to device memory", self.command(MIGRATE_TO_DEV, first, npages, out).cpages, npages)
        equal("pages in device memory", self.in_device()[first:first + npages], [True] * npages)

    def in_device(self):
        out = (ctypes.c_uint8 * self.npages)()
        self.command(SNAPSHOT, 0, self.npages, out)
        return [prot & 0xf0 == PROT_DEV_PRIVATE_LOCAL for prot in out]


class Tests:
    def __init__(self, link):
        self.link = link
        self.mirror = open("/dev/hmm_dmirror0", "r+b", buffering=0)

    def stats(self):
        stats = Stats()
        if not UNPATCHED:
            fcntl.ioctl(self.mirror, P2P_STATS, stats)
        return stats

    def begin(self):
        """The memory that is tested, and plain memory on the other end, both registered."""
        self.memory, self.plain = Memory(self.mirror), Memory(self.mirror)
        self.data, self.other = self.memory.fill(1), self.plain.fill(2)
        self.memory.to_device()
        self.before = self.stats()
        self.mr = self.link.region(self.memory.address, self.memory.size)
        self.plain_mr = self.link.region(self.plain.address, self.plain.size, 0)
        self.came_back([])

    def came_back(self, pages):
        """Just these pages have left device memory since begin(), and nobody asked for an alias."""
        now = self.stats()
        left = [page for page, there in enumerate(self.memory.in_device()) if not there]
        equal("pages that left device memory", left, list(pages))
        if UNPATCHED:
            return
        equal("pages copied to RAM", now.migrated - self.before.migrated, len(pages))
        if now.bar_pages:
            equal("pages of the BAR given up", self.before.bar_live - now.bar_live, len(pages))
        equal("calls of get_dma_pfn_for_device()", now.op_calls - self.before.op_calls, 0)

    def rdma(self, opcode, local, remote, pages=range(NPAGES), **options):
        """Page by page: see rxe0."""
        for page in pages:
            self.link.rdma(opcode, local, remote, page * PAGE, **options)

    def send(self, local, remote):
        for page in range(NPAGES):
            self.link.send(local, remote, page * PAGE)

    def end(self):
        self.mr.close()
        self.plain_mr.close()

    def test_register(self):
        """Registration takes no page away."""
        self.begin()
        self.end()
        self.came_back([])
        equal("data is right", self.memory.map[:] == self.data, True)

    def test_rdma_write(self):
        self.begin()
        self.rdma(op.IBV_WR_RDMA_WRITE, self.plain_mr, self.mr)
        self.came_back(range(NPAGES))
        equal("data is right", self.memory.map[:] == self.other, True)
        self.end()

    def test_rdma_read(self):
        self.begin()
        self.rdma(op.IBV_WR_RDMA_READ, self.plain_mr, self.mr)
        self.came_back(range(NPAGES))
        equal("data is right", (self.plain.map[:] == self.data, self.memory.map[:] == self.data), (True, True))
        self.end()

    def test_local_write(self):
        """The near end of an RDMA WRITE: what is in device memory is sent."""
        self.begin()
        self.rdma(op.IBV_WR_RDMA_WRITE, self.mr, self.plain_mr)
        self.came_back(range(NPAGES))
        equal("data is right", self.plain.map[:] == self.data, True)
        self.end()

    def test_local_read(self):
        self.begin()
        self.rdma(op.IBV_WR_RDMA_READ, self.mr, self.plain_mr)
        self.came_back(range(NPAGES))
        equal("data is right", self.memory.map[:] == self.other, True)
        self.end()

    def test_send(self):
        self.begin()
        self.send(self.mr, self.plain_mr)
        self.came_back(range(NPAGES))
        equal("data is right", self.plain.map[:] == self.data, True)
        self.end()

    def test_receive(self):
        self.begin()
        self.send(self.plain_mr, self.mr)
        self.came_back(range(NPAGES))
        equal("data is right", self.memory.map[:] == self.other, True)
        self.end()

    def test_atomic(self):
        self.begin()
        self.rdma(op.IBV_WR_ATOMIC_FETCH_AND_ADD, self.plain_mr, self.mr, size=8, add=1 << 56)
        self.came_back(range(NPAGES))
        for page in range(NPAGES):
            at = page * PAGE
            old = int.from_bytes(self.data[at:at + 8], "little")
            equal("word fetched", int.from_bytes(self.plain.map[at:at + 8], "little"), old)
            equal("word after", int.from_bytes(self.memory.map[at:at + 8], "little"), old + (1 << 56))
            equal("rest of the page is right", self.memory.map[at + 8:at + PAGE] == self.data[at + 8:at + PAGE], True)
        self.end()

    def prefetch(self, advice, flags):
        self.begin()
        self.link.pd.advise_mr(advice, flags, [SGE(self.mr.buf, self.memory.size, self.mr.lkey)])

    def test_prefetch(self):
        self.prefetch(PREFETCH, FLUSH)
        self.came_back(range(NPAGES))
        equal("data is right", self.memory.map[:] == self.data, True)
        self.end()

    def test_prefetch_write(self):
        self.prefetch(PREFETCH_WRITE, FLUSH)
        self.came_back(range(NPAGES))
        equal("data is right", self.memory.map[:] == self.data, True)
        self.end()

    def test_prefetch_async(self):
        self.prefetch(PREFETCH_WRITE, 0)
        end = time.monotonic() + 60
        while True:
            try:
                self.came_back(range(NPAGES))
                break
            except Failed:
                if time.monotonic() > end:
                    raise
            time.sleep(0.1)
        equal("data is right", self.memory.map[:] == self.data, True)
        self.end()

    def test_prefetch_no_fault(self):
        """Takes no page away, and the one that is read then comes."""
        self.prefetch(PREFETCH_NO_FAULT, FLUSH)
        self.came_back([])
        self.rdma(op.IBV_WR_RDMA_READ, self.plain_mr, self.mr)
        self.came_back(range(NPAGES))
        equal("data is right", self.plain.map[:] == self.data, True)
        self.end()

    def test_some(self):
        """Pages that nobody touches stay."""
        self.begin()
        self.rdma(op.IBV_WR_RDMA_READ, self.plain_mr, self.mr, pages=range(3, 8))
        self.came_back(range(3, 8))
        self.end()

    def test_again(self):
        """A page that was used comes to device memory again while it is registered: its old place must not be used."""
        self.begin()
        self.rdma(op.IBV_WR_RDMA_WRITE, self.plain_mr, self.mr)
        for seed in range(3, 6):
            data = self.memory.fill(seed)
            self.memory.to_device()
            self.before = self.stats()
            self.rdma(op.IBV_WR_RDMA_READ, self.plain_mr, self.mr)
            self.came_back(range(NPAGES))
            equal("data is right", self.plain.map[:] == data, True)
            other = self.plain.fill(seed + 10)
            self.memory.to_device()
            self.before = self.stats()
            self.rdma(op.IBV_WR_RDMA_WRITE, self.plain_mr, self.mr)
            self.came_back(range(NPAGES))
            equal("data is right", self.memory.map[:] == other, True)
        self.end()

    def test_fork(self):
        """A page that a child has too is copied before it is written to. The child keeps what it had."""
        self.begin()
        wait, go = os.pipe()
        child = os.fork()
        if child == 0:
            os.read(wait, 1)
            os._exit(self.memory.map[:] != self.data)
        self.rdma(op.IBV_WR_RDMA_WRITE, self.plain_mr, self.mr)
        self.came_back(range(NPAGES))
        os.write(go, b"x")
        equal("exit status of the child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        equal("data is right", self.memory.map[:] == self.other, True)
        self.end()

    def test_both(self):
        """Device memory at both ends."""
        self.begin()
        self.plain_mr.close()
        self.plain_mr = self.link.region(self.plain.address, self.plain.size)
        self.plain.to_device()
        self.rdma(op.IBV_WR_RDMA_WRITE, self.mr, self.plain_mr)
        equal("pages of the far end in device memory", any(self.plain.in_device()), False)
        equal("pages of the near end in device memory", any(self.memory.in_device()), False)
        equal("calls of get_dma_pfn_for_device()", self.stats().op_calls - self.before.op_calls, 0)
        equal("data is right", (self.plain.map[:] == self.data, self.memory.map[:] == self.data), (True, True))
        self.end()


sys.exit(run_tests(Tests, *sys.argv[1:]))
