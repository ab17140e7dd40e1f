# SPDX-License-Identifier: GPL-2.0-only
"""offsets.py DEVICE GID: on-demand paging of data that begins inside a page or crosses its end, of regions whose addresses for
RDMA (IOVA) differ from those of the process, and of large regions; prefetch of regions without on-demand paging; FLUSH. Prints
KTAP.
"""

import ctypes
import errno
import itertools
import mmap
import os
import sys
import time

from pyverbs.libibverbs_enums import (ibv_access_flags, ibv_mr_init_attr_mask, ibv_placement_type,
                                      ibv_qp_create_send_ops_flags as send_ops, ibv_selectivity_level, ibv_wr_opcode as op,
                                      _IBV_ADVISE_MR_ADVICE_PREFETCH as PREFETCH,
                                      _IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT as PREFETCH_NO_FAULT,
                                      _IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE as PREFETCH_WRITE,
                                      _IBV_ADVISE_MR_FLAG_FLUSH as FLUSH)
from pyverbs.mr import MREx
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QPEx
from pyverbs.wr import SGE
from verbs import ACCESS, FLUSH as FLUSH_ACCESS, PAGE, Failed, Link, each_failing_allocation, equal, limit, run_tests

SIZE = 4 * PAGE
ATOMIC_PLACES = (8, PAGE - 8, 2 * PAGE + 64)
# Offset and size: within a page, across its end, several packets. One end is on demand, the other one is not.
PLACES = [(1, 8), (64, PAGE - 64), (PAGE - 1, 2), (PAGE // 2, PAGE), (PAGE + 8, 2 * PAGE), (100, 3 * PAGE), (0, 4 * PAGE)]


def present(address):
    with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
        return os.pread(pagemap.fileno(), 8, address // PAGE * 8)[7] >> 7


class RegionAtIova:
    def __init__(self, link, address, iova=None):
        # One page further. A kernel that takes the IOVA for the address accesses the wrong page, but stays in the process.
        self.buf = iova or address + PAGE
        self.mr = MREx(link.pd, SIZE, ACCESS | ibv_access_flags.IBV_ACCESS_ON_DEMAND, address=address,
                       comp_mask=ibv_mr_init_attr_mask.IBV_REG_MR_MASK_IOVA, iova=self.buf)
        self.lkey, self.rkey = self.mr.lkey, self.mr.rkey


class Tests:
    def __init__(self, link):
        self.link = link
        self.maps = [mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) for _ in range(2)]
        self.address, other = [ctypes.addressof(ctypes.c_char.from_buffer(m)) for m in self.maps]
        self.odp = link.region(self.address, SIZE)
        self.plain = link.region(other, SIZE, 0)

    def check(self, work, local, to_remote):
        maps = {self.odp: self.maps[0], self.plain: self.maps[1]}
        remote = self.plain if local is self.odp else self.odp
        source, sink = (local, remote) if to_remote else (remote, local)
        for (at, size), (other, _) in itertools.product(PLACES, PLACES):
            if other + size > SIZE:
                continue
            local_at, remote_at = (at, other) if local is self.odp else (other, at)
            start, to = (local_at, remote_at) if to_remote else (remote_at, local_at)
            maps[source][:] = b"".join((i * 2654435761 + 1 & 0xffffffff).to_bytes(4, "little") for i in range(SIZE // 4))
            maps[sink][:] = bytes(SIZE)
            wanted = bytes(to) + maps[source][start:start + size] + bytes(SIZE - to - size)
            work(local, remote, local_at, remote_at, size)
            equal(f"{size} bytes from {start} to {to} are right", maps[sink][:] == wanted, True)

    def rdma(self, opcode):
        return lambda *args: self.link.rdma(opcode, *args)

    def test_remote_write(self):
        self.check(self.rdma(op.IBV_WR_RDMA_WRITE), self.plain, True)

    def test_remote_read(self):
        self.check(self.rdma(op.IBV_WR_RDMA_READ), self.plain, False)

    def test_local_write(self):
        self.check(self.rdma(op.IBV_WR_RDMA_WRITE), self.odp, True)

    def test_local_read(self):
        self.check(self.rdma(op.IBV_WR_RDMA_READ), self.odp, False)

    def test_send(self):
        self.check(self.link.send, self.odp, True)

    def test_receive(self):
        self.check(self.link.send, self.plain, True)

    def test_atomic(self):
        self.check_atomic()

    def check_atomic(self):
        for at in ATOMIC_PLACES:
            self.maps[0][:] = bytes(range(256)) * (SIZE // 256)
            wanted = bytearray(self.maps[0][:])
            wanted[at + 7] = (wanted[at + 7] + 1) % 256
            self.link.rdma(op.IBV_WR_ATOMIC_FETCH_AND_ADD, self.plain, self.odp, 0, at, 8, add=1 << 56)
            equal(f"memory after an atomic operation at {at} is right", self.maps[0][:] == wanted, True)

    def use_iova(self):
        self.odp.close()
        self.odp = RegionAtIova(self.link, self.address)

    def test_iova_remote_write(self):
        self.use_iova()
        self.check(self.rdma(op.IBV_WR_RDMA_WRITE), self.plain, True)

    def test_iova_remote_read(self):
        self.use_iova()
        self.check(self.rdma(op.IBV_WR_RDMA_READ), self.plain, False)

    def test_iova_send(self):
        self.use_iova()
        self.check(self.link.send, self.odp, True)

    def test_iova_receive(self):
        self.use_iova()
        self.check(self.link.send, self.plain, True)

    def test_iova_atomic(self):
        self.use_iova()
        self.check_atomic()

    def test_iova_atomic_write(self):
        link = Link(sys.argv[1], int(sys.argv[2]), ops=send_ops.IBV_QP_EX_WITH_ATOMIC_WRITE)
        region = RegionAtIova(link, self.address)
        for at in ATOMIC_PLACES:
            self.maps[0][:] = bytes(SIZE)
            link.request(QPEx.wr_atomic_write, region.rkey, region.buf + at, b"12345678")
            wanted = bytes(at) + b"12345678" + bytes(SIZE - at - 8)
            equal(f"memory after an atomic write at {at} is right", self.maps[0][:] == wanted, True)

    def test_iova_prefetch(self):
        self.use_iova()
        self.link.pd.advise_mr(PREFETCH_WRITE, FLUSH, [SGE(self.odp.buf, SIZE, self.odp.lkey)])

    def test_iova_prefetch_background(self):
        """A prefetch in the background reports no errors. So the test waits until the pages are present."""
        memory = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        region = RegionAtIova(self.link, address)
        self.link.pd.advise_mr(PREFETCH_WRITE, 0, [SGE(region.buf, SIZE, region.lkey)])
        self.wait_until_present(address)

    def wait_until_present(self, address):
        end = limit(60)
        while not all(present(address + at) for at in range(0, SIZE, PAGE)):
            if time.monotonic() > end:
                raise Failed(f"pages that came: {[present(address + at) for at in range(0, SIZE, PAGE)]}")
            time.sleep(0.01)

    def test_prefetch_two(self):
        """A prefetch names several regions. An error in the second one is reported."""
        memory = [mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) for _ in range(2)]
        regions = [self.link.region(ctypes.addressof(ctypes.c_char.from_buffer(m)), SIZE) for m in memory]
        sges = [SGE(r.buf, SIZE, r.lkey) for r in regions]
        for flags, order in itertools.product((FLUSH, 0), (1, -1)):
            for m in memory:
                m.madvise(mmap.MADV_DONTNEED)
            self.link.pd.advise_mr(PREFETCH_WRITE, flags, sges[::order])
            for r in regions:
                self.wait_until_present(r.buf)
            wrong = SGE(self.plain.buf, SIZE, self.plain.lkey)
            equal("error of a wrong second key", self.prefetch_error(flags, sges[0], wrong), errno.EINVAL)

    def test_nth(self):
        """One memory allocation after the other fails: while a region is registered, while it is prefetched, and while a prefetch
        in the background begins. Then the region can be used."""
        size = 64 * PAGE  # more pages than the kernel has room for on its stack
        for flags in (None, FLUSH, 0):
            for try_it in each_failing_allocation():
                memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
                regions = []

                def register():
                    regions.append(self.link.region(ctypes.addressof(ctypes.c_char.from_buffer(memory)), size))

                if flags is not None or not try_it(register):
                    register()
                region = regions[0]
                if flags is not None:
                    try_it(lambda: self.link.pd.advise_mr(PREFETCH_WRITE, flags, [SGE(region.buf, size, region.lkey)]))
                self.maps[1][:] = os.urandom(SIZE)
                self.link.rdma(op.IBV_WR_RDMA_WRITE, self.plain, region, 0, 0, SIZE)
                equal("memory is right", memory[:] == self.maps[1][:] + bytes(size - SIZE), True)
                # If a prefetch has kept a reference, the kernel waits for 50 seconds, on slow machines, too.
                end = time.monotonic() + 40
                region.close()
                equal("the region was closed in time", time.monotonic() < end, True)

    def test_iova_end(self):
        """The region ends at the end of the address space. A kernel that takes the IOVA for the address leaves its page list."""
        self.odp.close()
        self.odp = RegionAtIova(self.link, self.address, 2**64 - SIZE)
        self.check(self.rdma(op.IBV_WR_RDMA_WRITE), self.plain, True)
        self.check(self.rdma(op.IBV_WR_RDMA_READ), self.plain, False)
        self.check_atomic()

    def flush(self, level, length):
        """Flushes a region of 4 GiB, of which no page is present. Returns whether the first and the last page are then."""
        size = 4 << 30
        noreserve = 0x4000
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | noreserve)
        # One huge page of zeroes is everywhere.
        memory.madvise(mmap.MADV_HUGEPAGE)
        link = Link(sys.argv[1], int(sys.argv[2]), ops=send_ops.IBV_QP_EX_WITH_FLUSH)
        region = link.region(ctypes.addressof(ctypes.c_char.from_buffer(memory)), size,
                             FLUSH_ACCESS | ibv_access_flags.IBV_ACCESS_ON_DEMAND)
        link.request(QPEx.wr_flush, region.rkey, region.buf, length, ibv_placement_type.IBV_FLUSH_PERSISTENT, level)
        return present(region.buf), present(region.buf + size - PAGE)

    def test_flush_mr(self):
        equal("pages that were flushed", self.flush(ibv_selectivity_level.IBV_FLUSH_MR, 0), (1, 1))

    def test_flush_range(self):
        equal("pages that were flushed", self.flush(ibv_selectivity_level.IBV_FLUSH_RANGE, 1 << 31), (1, 0))

    def test_prefetch_wraps(self):
        """A range that wraps around to address 0 is refused."""
        equal("error", self.prefetch_error(FLUSH, SGE(2**64 - PAGE, 2 * PAGE, self.odp.lkey)), errno.EFAULT)

    def prefetch_error(self, flags, *sges):
        try:
            self.link.pd.advise_mr(PREFETCH_WRITE, flags, list(sges))
        except PyverbsRDMAError as error:
            return error.error_code
        return 0

    def test_atomic_zero_page(self):
        """Memory that was only read is the zero page, which all processes share. An atomic operation must not write to it."""
        memory, other = (mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) for _ in range(2))
        region = self.link.region(ctypes.addressof(ctypes.c_char.from_buffer(memory)), SIZE)
        self.link.pd.advise_mr(PREFETCH, FLUSH, [SGE(region.buf, SIZE, region.lkey)])
        self.link.rdma(op.IBV_WR_ATOMIC_FETCH_AND_ADD, self.plain, region, 0, PAGE + 8, 8, add=5)
        equal("what was there", self.maps[1][:8], bytes(8))
        equal("other memory has something else than zeroes", any(other[:]), False)
        equal("memory is right", memory[:] == bytes(PAGE + 8) + b"\5" + bytes(SIZE - PAGE - 9), True)

    def test_large(self):
        size = 3 << 30
        noreserve = 0x4000
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | noreserve)
        large = self.link.region(ctypes.addressof(ctypes.c_char.from_buffer(memory)), size)
        self.link.pd.advise_mr(PREFETCH_NO_FAULT, FLUSH, [SGE(large.buf, size, large.lkey)])
        last = size - PAGE
        memory[last:] = self.maps[0][:PAGE] = bytes(range(256)) * (PAGE // 256)
        self.link.rdma(op.IBV_WR_RDMA_READ, self.plain, large, 0, last)
        equal("the last page is right", self.maps[1][:PAGE] == self.maps[0][:PAGE], True)

    def test_prefetch_plain(self):
        for flags in (FLUSH, 0):
            seen = self.prefetch_error(flags, SGE(self.plain.buf, SIZE, self.plain.lkey))
            equal(f"error of a prefetch with flags {flags}", seen, errno.EINVAL)


sys.exit(run_tests(Tests, *sys.argv[1:3], sys.argv[3:]))
