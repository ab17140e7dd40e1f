"""door.py DEVICE [TEST...]: what a remote peer would do to a memory region, asked of the model by its back door. Prints KTAP."""

import ctypes
import mmap
import os
import random
import struct
import sys
import time
import traceback

from pyverbs.addr import AHAttr
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.libibverbs_enums import ibv_access_flags, ibv_mtu, ibv_qp_type
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr

PAGE = 4096
# Registers of a channel: selftests/models/connectx/backdoor.c
RKEY, OP, VA, LEN, STATUS, FAIL, COUNTERS, DATA = 0, 4, 8, 16, 20, 24, 0x800, 0x1000
READ, WRITE = 1, 2
BUSY, DONE, FAILED = 1, 2, 3
# STATS of connectx.h
NAMES = ("commands events interrupts completions umr_wqes page_faults memory_faults resumes resumes_with_error stale_resumes mkeys_enabled bytes_read "
         "bytes_written peer_bytes_read peer_bytes_written dma_maps injected iommu_faults bad_commands violations").split()


class Door:
    """A channel of the back door"""

    def __init__(self, device, channel=0):
        path = os.path.realpath(f"/sys/class/infiniband/{device}/device") + "/resource4"
        self.file = open(path, "r+b", buffering=0)
        self.map = mmap.mmap(self.file.fileno(), 65536, offset=channel * 65536)
        # Each access must be one of 32 bits.
        self.regs = (ctypes.c_uint32 * (65536 // 4)).from_buffer(self.map)

    def counters(self):
        at = COUNTERS // 4
        return {n: self.regs[at + 2 * i] | self.regs[at + 2 * i + 1] << 32 for i, n in enumerate(NAMES)}

    def go(self, op, rkey, va, length):
        r = self.regs
        r[RKEY // 4], r[VA // 4], r[VA // 4 + 1], r[LEN // 4] = rkey, va & 0xffffffff, va >> 32, length
        r[OP // 4] = op

    def wait(self, want=DONE):
        end = time.monotonic() + 30
        while self.regs[STATUS // 4] == BUSY:
            assert time.monotonic() < end, "still busy"
            time.sleep(0.001)
        assert self.regs[STATUS // 4] == want, f"status {self.regs[STATUS // 4]}, not {want}"

    def write(self, rkey, va, data, want=DONE):
        words = struct.unpack(f"<{len(data) // 4}I", data)
        self.regs[DATA // 4:DATA // 4 + len(words)] = words
        self.go(WRITE, rkey, va, len(data))
        self.wait(want)

    def read(self, rkey, va, length, want=DONE):
        self.go(READ, rkey, va, length)
        self.wait(want)
        return struct.pack(f"<{length // 4}I", *self.regs[DATA // 4:(DATA + length) // 4])


ODP = (ibv_access_flags.IBV_ACCESS_LOCAL_WRITE | ibv_access_flags.IBV_ACCESS_REMOTE_READ |
       ibv_access_flags.IBV_ACCESS_REMOTE_WRITE | ibv_access_flags.IBV_ACCESS_ON_DEMAND)


class Tests:
    def __init__(self, device):
        self.context = Context(name=device)
        self.pd = PD(self.context)
        self.door = Door(device)

    def memory(self, npages):
        m = mmap.mmap(-1, npages * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        return m, ctypes.addressof(ctypes.c_char.from_buffer(m))

    def odp(self, address, size):
        return MR(self.pd, size, ODP, address=address)

    def faults(self, before):
        return self.door.counters()["page_faults"] - before["page_faults"]

    def test_read(self):
        """Pages that were there at registration: no fault"""
        m, a = self.memory(4)
        m[:] = os.urandom(4 * PAGE)
        mr = self.odp(a, 4 * PAGE)
        before = self.door.counters()
        assert self.door.read(mr.rkey, a, 4 * PAGE) == m[:]
        assert self.faults(before) == 0
        mr.close()

    def test_write_absent(self):
        """Pages that were never touched: faults, and they are there"""
        m, a = self.memory(4)
        mr = self.odp(a, 4 * PAGE)
        before = self.door.counters()
        data = os.urandom(4 * PAGE)
        self.door.write(mr.rkey, a, data)
        assert m[:] == data
        assert self.faults(before) == 1, self.faults(before)
        mr.close()

    def test_unaligned(self):
        """Nothing around it changes"""
        m, a = self.memory(4)
        mr = self.odp(a, 4 * PAGE)
        data = os.urandom(2 * PAGE)
        self.door.write(mr.rkey, a + 1036, data)
        assert m[1036:1036 + 2 * PAGE] == data and not any(m[:1036]) and not any(m[1036 + 2 * PAGE:])
        mr.close()

    def test_invalidate(self):
        """MADV_DONTNEED: the next read faults, and finds zeroes"""
        m, a = self.memory(4)
        m[:] = os.urandom(4 * PAGE)
        mr = self.odp(a, 4 * PAGE)
        for _ in range(5):
            assert self.door.read(mr.rkey, a, 4 * PAGE) == m[:]
            m.madvise(mmap.MADV_DONTNEED)
            before = self.door.counters()
            assert self.door.read(mr.rkey, a, 4 * PAGE) == bytes(4 * PAGE)
            assert self.faults(before) == 1, self.faults(before)
            m[:] = os.urandom(4 * PAGE)
        mr.close()

    def test_fork(self):
        """Copy on write: the write of the device goes to this process only"""
        m, a = self.memory(1)
        m[:] = b"p" * PAGE
        mr = self.odp(a, PAGE)
        wait, go = os.pipe()
        child = os.fork()
        if child == 0:
            os.read(wait, 1)
            os._exit(m[:] != b"p" * PAGE)
        self.door.write(mr.rkey, a, b"n" * PAGE)
        assert m[:] == b"n" * PAGE
        os.write(go, b"x")
        assert os.waitpid(child, 0)[1] == 0
        mr.close()

    def test_implicit(self):
        """All memory of the process"""
        mr = MR(self.pd, access=ODP, length=0, implicit=True)
        for _ in range(3):
            m, a = self.memory(8)
            data = os.urandom(8 * PAGE)
            before = self.door.counters()
            self.door.write(mr.rkey, a, data)
            assert m[:] == data
            assert self.faults(before) >= 1
            assert self.door.read(mr.rkey, a, 8 * PAGE) == data
        mr.close()

    def test_no_access(self):
        """The process itself may not go there: resumed with error"""
        m, a = self.memory(16)
        mr = self.odp(a, 16 * PAGE)
        libc = ctypes.CDLL(None)
        assert libc.mprotect(ctypes.c_void_p(a), ctypes.c_size_t(16 * PAGE), 0) == 0
        before = self.door.counters()
        self.door.go(READ, mr.rkey, a, PAGE)
        self.door.wait(FAILED)
        assert self.door.counters()["resumes_with_error"] == before["resumes_with_error"] + 1
        assert libc.mprotect(ctypes.c_void_p(a), ctypes.c_size_t(16 * PAGE), 3) == 0
        mr.close()

    def test_bounds(self):
        """Beyond the region, with another key, with the key of one that has gone"""
        m, a = self.memory(2)
        mr = self.odp(a, 2 * PAGE)
        self.door.go(READ, mr.rkey, a + PAGE, 2 * PAGE)
        self.door.wait(FAILED)
        self.door.go(READ, mr.rkey ^ 1, a, PAGE)
        self.door.wait(FAILED)
        key = mr.rkey
        mr.close()
        self.door.go(READ, key, a, PAGE)
        self.door.wait(FAILED)

    def test_sparse(self):
        """Holes of an MR of more than one UMR's translations: each page reads as its own"""
        n = 1024
        m, a = self.memory(n)
        for p in range(0, n, 3):
            m[p * PAGE:p * PAGE + 8] = struct.pack("<Q", p)
        mr = self.odp(a, n * PAGE)
        for p in range(0, n, 7):
            want = struct.pack("<Q", p if p % 3 == 0 else 0)
            assert self.door.read(mr.rkey, a + p * PAGE, 8) == want, p
        mr.close()

    def test_chunks(self):
        """An MR so large that its first MTTs are written by more than one UMR; pages that the first one has, the second one has not"""
        chunk = ((1 << 20) - 64) // 8
        m, a = self.memory(2 * chunk)
        for p in range(64):
            m[p * PAGE:p * PAGE + 8] = struct.pack("<Q", 0x1111 + p)
        mr = self.odp(a, 2 * chunk * PAGE)
        for p in range(0, 64, 9):
            assert self.door.read(mr.rkey, a + p * PAGE, 8) == struct.pack("<Q", 0x1111 + p)
            got = self.door.read(mr.rkey, a + (chunk + p) * PAGE, 8)
            assert got == bytes(8), f"page {chunk + p} was never written to, and the device reads {got.hex()}"
        mr.close()

    def test_command_fails(self):
        """An error of a command reaches the caller, and nothing else happens"""
        for opcode, make in ((0x400, lambda: CQ(self.context, 10)), (0x500, self.qp), (0x502, self.qp), (0x503, self.qp), (0x504, self.qp),
                             (0x200, lambda: MR(self.pd, access=ODP, length=0, implicit=True))):
            make().close()
            before = self.door.counters()["injected"]
            self.door.regs[FAIL // 4] = opcode | 1 << 16
            try:
                made = make()
            except PyverbsError:
                assert self.door.counters()["injected"] == before + 1
            else:
                # Nothing of this kind was made: the driver had one left.
                assert self.door.counters()["injected"] == before, f"the failure of {opcode:#x} was lost"
                made.close()
            self.door.regs[FAIL // 4] = 0
            make().close()

    def qp(self):
        cq = CQ(self.context, 10)
        attr = QPAttr(port_num=1)
        qp = QP(self.pd, QPInitAttr(qp_type=ibv_qp_type.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(max_recv_wr=1)), attr)
        attr.ah_attr = AHAttr(port_num=1, dlid=1)
        attr.dest_qp_num = qp.qp_num
        attr.path_mtu = ibv_mtu.IBV_MTU_1024
        qp.to_rts(attr)
        return qp

    def settle(self, want):
        """mkeys in use, once they are as many as that, or after a while"""
        end = time.monotonic() + 3
        while True:
            n = self.door.counters()["mkeys_enabled"]
            if n == want or time.monotonic() > end:
                return n
            time.sleep(0.01)

    def implicit_child(self, npages):
        mr = MR(self.pd, access=ODP, length=0, implicit=True)
        # A range of addresses of its own: a child covers 1 GiB.
        libc = ctypes.CDLL(None)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
        libc.munmap.argtypes = libc.madvise.argtypes = None
        a = libc.mmap(0x100000000000, npages * PAGE, 3, 0x100022, -1, 0)
        assert a == 0x100000000000
        return mr, a, libc

    def test_implicit_unmap(self):
        """A child of an implicit MR goes with the memory that it covers, however often its pages were mapped"""
        mr, a, libc = self.implicit_child(8)
        before = self.door.counters()["mkeys_enabled"]
        for p in range(8):
            self.door.write(mr.rkey, a + p * PAGE, b"x" * 64)
        assert self.door.counters()["mkeys_enabled"] == before + 1
        libc.munmap(ctypes.c_void_p(a), ctypes.c_size_t(8 * PAGE))
        n = self.settle(before)
        mr.close()
        assert n == before, f"{n - before} children are left"

    def test_implicit_pingpong(self):
        """Memory that only comes and goes does not take the child away each time"""
        mr, a, libc = self.implicit_child(1)
        before = self.door.counters()["mkeys_enabled"]
        for i in range(5):
            self.door.write(mr.rkey, a, b"x" * 64)
            libc.madvise(ctypes.c_void_p(a), ctypes.c_size_t(PAGE), 4)
            time.sleep(0.1)
            n = self.door.counters()["mkeys_enabled"]
            assert n == before + 1, f"{n - before} children after round {i}"
        libc.munmap(ctypes.c_void_p(a), ctypes.c_size_t(PAGE))
        mr.close()

    def channels(self):
        """Reads and writes by all channels, while the memory comes and goes. What the model sees is what counts."""
        n = 96
        m, a = self.memory(n)
        mr = self.odp(a, n * PAGE)
        doors = [Door(sys.argv[1], c) for c in range(8)]
        rng = random.Random(1)
        end = time.monotonic() + float(os.environ.get("STRESS_SECONDS", "20"))
        rounds = failed = 0
        while time.monotonic() < end:
            for d in doors:
                status = d.regs[STATUS // 4]
                if status == BUSY:
                    continue
                failed += status == FAILED
                rounds += 1
                first = rng.randrange(n)
                count = rng.randrange(1, min(n - first, 32) + 1)
                d.go(rng.choice((READ, WRITE)), mr.rkey, a + first * PAGE, count * PAGE)
            first = rng.randrange(n)
            m.madvise(mmap.MADV_DONTNEED, first * PAGE, rng.randrange(1, n - first + 1) * PAGE)
            if rng.random() < 0.3:
                m[rng.randrange(n) * PAGE] = 1
        for d in doors:
            while d.regs[STATUS // 4] == BUSY:
                time.sleep(0.01)
        c = self.door.counters()
        print(f"# {rounds} accesses, {failed} failed, {c['page_faults']} page faults, {c['resumes_with_error']} resumed with error, "
              f"{c['iommu_faults']} IOMMU faults, {c['violations']} violations")
        mr.close()
        assert failed == 0 and c["iommu_faults"] == 0 and c["violations"] == 0


def main(device, *only):
    names = only or [name.removeprefix("test_") for name in vars(Tests) if name.startswith("test_")]
    print("KTAP version 1")
    print(f"1..{len(names)}", flush=True)
    failed = 0
    for number, name in enumerate(names, 1):
        result = "ok"
        try:
            tests = Tests(device)
            (getattr(tests, f"test_{name}", None) or getattr(tests, name))()
        except Exception:
            result, failed = "not ok", 1
            for line in traceback.format_exc().splitlines():
                print("#", line)
        print(result, number, name, flush=True)
    return failed


sys.exit(main(*sys.argv[1:]))
