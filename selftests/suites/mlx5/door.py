# SPDX-License-Identifier: GPL-2.0-only
"""door.py DEVICE [TEST...]: accesses memory regions as a remote peer would, by the back door of the model. Prints KTAP."""

import ctypes
import errno
import fcntl
import glob
import json
import mmap
import os
import random
import select
import struct
import subprocess
import sys
import threading
import time
import traceback

from pyverbs.addr import AHAttr
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.libibverbs_enums import (ibv_access_flags, ibv_mtu, ibv_mw_type, ibv_qp_type, ibv_rereg_mr_flags, ibv_send_flags,
                                      ibv_wc_status, ibv_wr_opcode,
                                      _IBV_ADVISE_MR_ADVICE_PREFETCH as PREFETCH,
                                      _IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT as PREFETCH_NO_FAULT,
                                      _IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE as PREFETCH_WRITE,
                                      _IBV_ADVISE_MR_FLAG_FLUSH as FLUSH)
from pyverbs.mr import MR, MW, MWBind, MWBindInfo
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

from backdoor import ATS, BUSY, DONE, FAILED, READ, RELAXED_READ, RELAXED_WRITE, STATUS, SYNDROME, VARIANT, WRITE, Door

sys.path.append("/suites/rxe")
from verbs import IBV_ACCESS_ODP_P2P, IBV_ODP_SUPPORT_P2P, PAGE, Link, Skipped, each_failing_allocation, limit

# MLX5_OPCODE_UMR, MLX5_CMD_OP_CREATE_MKEY, MLX5_CMD_OP_PAGE_FAULT_RESUME, MLX5_CMD_STAT_NO_RES_ERR
UMR, CREATE_MKEY, PAGE_FAULT_RESUME, NO_RES = 0x25, 0x200, 0x204, 0xf
# x86_64; linux/userfaultfd.h
SYS_USERFAULTFD, UFFDIO_API, UFFDIO_REGISTER, UFFDIO_ZEROPAGE = 323, 0xc018aa3f, 0xc020aa00, 0xc020aa04
UFFD_API, MISSING = 0xaa, 1
DMABUF_MOVE_EXPORT, DMABUF_MOVE = 0x44d0, 0x44d1
# Device control of the model, PCI_EXP_DEVCTL_RELAX_EN
DEVCTL, RELAX_EN = 0x48, 0x10


LIBC = ctypes.CDLL(None)


class Verbs:
    """Calls of libibverbs. Unlike pyverbs, they let other threads of Python run."""

    def __init__(self, device):
        lib = self.lib = ctypes.CDLL("libibverbs.so.1", use_errno=True)
        for name in "get_device_list", "open_device", "alloc_pd", "reg_mr", "reg_dmabuf_mr":
            getattr(lib, f"ibv_{name}").restype = ctypes.c_void_p
        lib.ibv_get_device_name.restype = ctypes.c_char_p
        devices = ctypes.cast(lib.ibv_get_device_list(None), ctypes.POINTER(ctypes.c_void_p))
        at = next(i for i in range(16) if lib.ibv_get_device_name(ctypes.c_void_p(devices[i])) == device.encode())
        context = lib.ibv_open_device(ctypes.c_void_p(devices[at]))
        self.pd = ctypes.c_void_p(lib.ibv_alloc_pd(ctypes.c_void_p(context)))

    def reg_mr(self, address, size):
        """Returns None if the registration fails."""
        return self.lib.ibv_reg_mr(self.pd, ctypes.c_void_p(address), ctypes.c_size_t(size), int(ODP))

    def dereg_mr(self, mr):
        return self.lib.ibv_dereg_mr(ctypes.c_void_p(mr))

    def reg_dmabuf_mr(self, fd, size):
        return self.lib.ibv_reg_dmabuf_mr(self.pd, ctypes.c_uint64(0), ctypes.c_size_t(size), ctypes.c_uint64(0), fd, int(PINNED))

    def prefetch(self, lkey, address, size):
        """Returns the error."""
        sge = struct.pack("QII", address, size, lkey)
        return self.lib.ibv_cmd_advise_mr(self.pd, PREFETCH, FLUSH, sge, 1)

    def rkey(self, mr):
        """Returns the last field of struct ibv_mr. In mlx5 it is also the lkey."""
        return ctypes.c_uint32.from_address(mr + 40).value


class HeldBack:
    """An absent page. A fault of this page waits until the end of the block."""

    def __init__(self, address):
        self.address = address
        self.uffd = ctypes.CDLL(None).syscall(SYS_USERFAULTFD, os.O_CLOEXEC | os.O_NONBLOCK)
        fcntl.ioctl(self.uffd, UFFDIO_API, struct.pack("QQQ", UFFD_API, 0, 0))
        fcntl.ioctl(self.uffd, UFFDIO_REGISTER, struct.pack("QQQQ", address, PAGE, MISSING, 0))

    def wait(self):
        assert select.select([self.uffd], [], [], 30)[0], "no fault of the page that is not there"

    def read(self):
        """Takes the report of the fault."""
        os.read(self.uffd, 32)

    def give(self):
        fcntl.ioctl(self.uffd, UFFDIO_ZEROPAGE, struct.pack("QQQq", self.address, PAGE, 0, 0))

    def drop(self):
        LIBC.madvise(ctypes.c_void_p(self.address), ctypes.c_size_t(PAGE), mmap.MADV_DONTNEED)

    def close(self):
        os.close(self.uffd)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.give()
        self.close()


class Buffer:
    """A dma-buf whose memory can move (selftests/modules/dmabuf_move)"""

    def __init__(self, npages):
        self.exporter = os.open("/dev/dmabuf_move", os.O_RDWR)
        self.fd = LIBC.ioctl(self.exporter, ctypes.c_ulong(DMABUF_MOVE_EXPORT), ctypes.c_ulong(npages))
        assert self.fd >= 0

    def move(self):
        assert LIBC.ioctl(self.exporter, ctypes.c_ulong(DMABUF_MOVE), ctypes.c_ulong(0)) == 0

    def close(self):
        os.close(self.fd)
        os.close(self.exporter)


PINNED = (ibv_access_flags.IBV_ACCESS_LOCAL_WRITE | ibv_access_flags.IBV_ACCESS_REMOTE_READ |
          ibv_access_flags.IBV_ACCESS_REMOTE_WRITE)
ODP = PINNED | ibv_access_flags.IBV_ACCESS_ON_DEMAND


def no_lockdep():
    """mlx5_ib recovers the UMR QP with a umem_mutex held. It then takes a mutex under which other code allocates memory. Lockdep
    reports this, and stops.
    """
    if os.path.exists("/proc/lockdep"):
        raise Skipped("lockdep reports how mlx5_ib recovers")


class Tests:
    def __init__(self, device):
        self.context = Context(name=device)
        self.pd = PD(self.context)
        self.door = Door(device)
        self.door.plain(False)
        self.door.name(0)

    def memory(self, npages):
        m = mmap.mmap(-1, npages * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        return m, ctypes.addressof(ctypes.c_char.from_buffer(m))

    def odp(self, address, size):
        return MR(self.pd, size, ODP, address=address)

    def faults(self, before):
        return self.door.counters()["page_faults"] - before["page_faults"]

    def test_read(self):
        """A read of pages that were present at registration does not fault."""
        m, a = self.memory(4)
        m[:] = os.urandom(4 * PAGE)
        mr = self.odp(a, 4 * PAGE)
        before = self.door.counters()
        assert self.door.read(mr.rkey, a, 4 * PAGE) == m[:]
        assert self.faults(before) == 0
        mr.close()

    def test_write_absent(self):
        """A write to pages that were never touched faults, and then finds them."""
        self.door.plain()
        m, a = self.memory(4)
        mr = self.odp(a, 4 * PAGE)
        before = self.door.counters()
        data = os.urandom(4 * PAGE)
        self.door.write(mr.rkey, a, data)
        assert m[:] == data
        assert self.faults(before) == 1, self.faults(before)
        mr.close()

    def test_unaligned(self):
        """An unaligned write changes nothing around its destination."""
        m, a = self.memory(4)
        mr = self.odp(a, 4 * PAGE)
        data = os.urandom(2 * PAGE)
        self.door.write(mr.rkey, a + 1036, data)
        assert m[1036:1036 + 2 * PAGE] == data and not any(m[:1036]) and not any(m[1036 + 2 * PAGE:])
        mr.close()

    def test_invalidate(self):
        """After MADV_DONTNEED the next read faults and finds zeroes."""
        self.door.plain()
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
        """After fork() a write of the device changes only the memory of this process."""
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
        """The region covers all memory of the process."""
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
        """If the process itself may not access the memory, the page fault is resumed with an error."""
        m, a = self.memory(16)
        mr = self.odp(a, 16 * PAGE)
        libc = ctypes.CDLL(None)
        assert libc.mprotect(ctypes.c_void_p(a), ctypes.c_size_t(16 * PAGE), 0) == 0
        before = self.door.counters()
        self.door.go(READ, mr.rkey, a, PAGE)
        self.door.wait(FAILED)
        assert self.door.counters()["resumes_with_error"] == before["resumes_with_error"] + 1
        # The second half may be accessed. If the device reports the pages in two parts, the first part ends the access.
        assert libc.mprotect(ctypes.c_void_p(a + 8 * PAGE), ctypes.c_size_t(8 * PAGE), 3) == 0
        before, n = self.door.counters(), 200
        for _ in range(n):
            self.door.go(READ, mr.rkey, a, 16 * PAGE)
            self.door.wait(FAILED)
        # An invalidation of something else lets the device try again. Without an error for the first part, it does so 20 times.
        assert self.faults(before) < n + 8, self.faults(before)
        assert libc.mprotect(ctypes.c_void_p(a), ctypes.c_size_t(16 * PAGE), 3) == 0
        mr.close()

    def post(self, link, read, local, rkey, address):
        wr = SendWR(opcode=ibv_wr_opcode.IBV_WR_RDMA_READ if read else ibv_wr_opcode.IBV_WR_RDMA_WRITE, num_sge=1, sg=[local],
                    send_flags=ibv_send_flags.IBV_SEND_SIGNALED)
        wr.set_wr_rdma(rkey, address)
        link.qps[0].post_send(wr)

    def test_faults(self):
        """Random accesses. The model reports faults in random ways: with neighbouring pages, in parts, without a length."""
        n, rng, link = 64, random.Random(1), Link(sys.argv[1], 0)
        p, b = self.memory(n)
        plain = link.region(b, n * PAGE, 0)
        for implicit in False, True:
            # This address range is still unmapped behind the pages.
            mr, a, libc = self.implicit_child(n)
            mr.close()
            mr = MR(link.pd, access=ODP, length=0, implicit=True) if implicit else MR(link.pd, n * PAGE, ODP, address=a)
            data = bytearray(n * PAGE)
            for i in range(120):
                at = rng.randrange(n * PAGE - 8)
                size = min(rng.randrange(1, 6 * PAGE), n * PAGE - at)
                local, remote = (mr, a), (plain, b)
                if i & 1:
                    local, remote = remote, local
                read = bool(i & 2)
                # The source of a WRITE is the local end, that of a READ is the remote end.
                if (local[0] is plain) != read:
                    p[at:at + size] = data[at:at + size] = rng.randbytes(size)
                self.post(link, read, SGE(local[1] + at, size, local[0].lkey), remote[0].rkey, remote[1] + at)
                link.wait(1)
                assert p[at:at + size] == data[at:at + size], (implicit, i, at, size)
                first = rng.randrange(n)
                count = min(rng.randrange(1, n // 4), n - first)
                if i % 5 == 0:
                    assert ctypes.string_at(a, n * PAGE) == data, (implicit, i)
                libc.madvise(ctypes.c_void_p(a + first * PAGE), ctypes.c_size_t(count * PAGE), mmap.MADV_DONTNEED)
                data[first * PAGE:(first + count) * PAGE] = bytes(count * PAGE)
            mr.close()
            libc.munmap(ctypes.c_void_p(a), ctypes.c_size_t(n * PAGE))

    def test_bounds(self):
        """Accesses fail behind the end of the region, with a wrong key, and with the key of a region that was deregistered."""
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
        """An MR with holes that needs more than one UMR for its translations: each page has its own data."""
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
        """More than one UMR writes the first MTTs of a large MR. Only pages of the first UMR are present."""
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
        """The error of a command reaches the caller and has no other effect."""
        for opcode, make in ((0x400, lambda: CQ(self.context, 10)), (0x500, self.qp), (0x502, self.qp), (0x503, self.qp), (0x504, self.qp),
                             (0x200, lambda: MR(self.pd, access=ODP, length=0, implicit=True))):
            make().close()
            before = self.door.counters()["injected"]
            self.door.fail(opcode)
            try:
                made = make()
            except PyverbsError:
                assert self.door.counters()["injected"] == before + 1
            else:
                # The driver had one in reserve, so it sent no command.
                assert self.door.counters()["injected"] == before, f"the failure of {opcode:#x} was lost"
                made.close()
            self.door.fail(0, 0)
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
        """Waits until this many mkeys are in use, or until a time limit. Returns the number."""
        end = limit(20)
        while True:
            n = self.door.counters()["mkeys_enabled"]
            if n == want or time.monotonic() > end:
                return n
            time.sleep(0.01)

    def busy(self, seconds):
        """Waits until the access ends, or for so long."""
        end = time.monotonic() + seconds
        while self.door.regs[STATUS // 4] == BUSY and time.monotonic() < end:
            time.sleep(0.01)

    def implicit_child(self, npages):
        mr = MR(self.pd, access=ODP, length=0, implicit=True)
        # No other memory is in the 1 GiB that a child covers.
        libc = ctypes.CDLL(None)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
        libc.munmap.argtypes = libc.madvise.argtypes = None
        a = libc.mmap(0x100000000000, npages * PAGE, 3, 0x100022, -1, 0)
        assert a == 0x100000000000
        return mr, a, libc

    def test_implicit_unmap(self):
        """A child of an implicit MR is destroyed when its memory is unmapped, also if pages were mapped more than once."""
        self.door.plain()
        mr, a, libc = self.implicit_child(8)
        before = self.door.counters()["mkeys_enabled"]
        for p in range(8):
            self.door.write(mr.rkey, a + p * PAGE, b"x" * 64)
        assert self.door.counters()["mkeys_enabled"] == before + 1
        # These pages are already mapped.
        self.pd.advise_mr(PREFETCH_WRITE, FLUSH, [SGE(a, 8 * PAGE, mr.lkey)])
        libc.munmap(ctypes.c_void_p(a), ctypes.c_size_t(8 * PAGE))
        n = self.settle(before)
        mr.close()
        assert n == before, f"{n - before} children are left"

    def test_implicit_dontneed(self):
        """A child is also destroyed if its pages were dropped before their memory was unmapped."""
        self.door.plain()
        mr, a, libc = self.implicit_child(8)
        before = self.door.counters()["mkeys_enabled"]
        self.door.write(mr.rkey, a, b"x" * 8 * PAGE)
        assert self.door.counters()["mkeys_enabled"] == before + 1
        libc.madvise(ctypes.c_void_p(a), ctypes.c_size_t(8 * PAGE), mmap.MADV_DONTNEED)
        libc.munmap(ctypes.c_void_p(a), ctypes.c_size_t(8 * PAGE))
        n = self.settle(before)
        mr.close()
        assert n == before, f"{n - before} children are left"

    def test_implicit_pingpong(self):
        """A child is kept while pages of its memory are dropped and mapped again."""
        self.door.plain()
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

    def test_umr_fails(self):
        """If the translations cannot be written, the access may fail. The next access succeeds."""
        m, a = self.memory(2)
        mr = self.odp(a, 2 * PAGE)
        no_lockdep()
        self.door.fail(UMR)
        self.door.go(READ, mr.rkey, a, PAGE)
        # In the memory scheme the driver tries again.
        self.door.wait(DONE if os.environ["SCHEME"] == "memory" else FAILED)
        self.door.write(mr.rkey, a, b"x" * 64)
        assert m[:64] == b"x" * 64
        mr.close()

    def test_register_fails(self):
        """The UMR that enables the mkey fails while an invalidation waits. The invalidation skips the zap but unmaps the pages."""
        no_lockdep()
        n = 64
        verbs = Verbs(sys.argv[1])
        libc = ctypes.CDLL(None)
        # The driver keeps objects that it makes for its first region.
        m, a = self.memory(1)
        self.odp(a, PAGE).close()
        before = self.door.counters()
        processors = os.sched_getaffinity(0)
        # On one processor the invalidation gets the mutex as soon as it is free.
        os.sched_setaffinity(0, {0})
        for _ in range(5):
            m, a = self.memory(n)
            m[:] = os.urandom(n * PAGE)
            made = []
            self.door.slow(UMR, 300)
            self.door.fail(UMR)
            thread = threading.Thread(target=lambda: made.append(verbs.reg_mr(a, n * PAGE)))
            thread.start()
            time.sleep(0.15)
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
            libc.madvise(ctypes.c_void_p(a), ctypes.c_size_t(n * PAGE), mmap.MADV_DONTNEED)
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
            # An IOMMU mapping that is left leads to pages that may have another owner by now.
            left = self.door.counters()["dma_regions"] - before["dma_regions"]
            thread.join()
            self.door.slow(UMR, 0)
            assert left < n // 2, f"{left} pages are mapped still"
            assert made == [None], "the failure of the UMR was lost"
        os.sched_setaffinity(0, processors)
        now = self.door.counters()
        assert now["injected"] == before["injected"] + 5
        assert now["bad_umrs"] == before["bad_umrs"], f"{now['bad_umrs'] - before['bad_umrs']} UMRs of an mkey that was not enabled"

    def test_again(self):
        """The firmware lacks resources for a child of an implicit MR. The device tries again, and the access succeeds."""
        self.door.plain()
        mr, a, libc = self.implicit_child(1)
        # In the memory scheme the driver itself tries again.
        more = os.environ["SCHEME"] == "memory"
        before = self.door.counters()
        for n in range(64):
            # Earlier children have left mkeys. Each new child uses one of them, until the driver has to create one.
            at = a + (n << 30)
            assert libc.mmap(at, PAGE, 3, 0x100022, -1, 0) == at or not n
            self.door.fail(CREATE_MKEY, status=NO_RES, more=more)
            self.door.write(mr.rkey, at, b"x" * 64)
            if self.door.counters()["injected"] == before["injected"] + 1 + more:
                break
        else:
            raise AssertionError("none had to be made")
        self.door.fail(0, 0)
        assert self.faults(before) == n + 2, f"{self.faults(before)} faults of {n + 1} pages"
        mr.close()
        for i in range(n + 1):
            libc.munmap(ctypes.c_void_p(a + (i << 30)), ctypes.c_size_t(PAGE))

    def test_child_not_passed(self):
        """The memory of a child is unmapped, but the UMR that leads the implicit MR past the child fails. The child stays as
        long as the implicit MR.
        """
        no_lockdep()
        self.door.plain()
        start = self.door.counters()["mkeys_enabled"]
        mr, a, libc = self.implicit_child(2)
        before = self.door.counters()
        self.door.write(mr.rkey, a, b"x" * 64)
        # The first UMR removes the translation of the page.
        self.door.fail(UMR, 2)
        libc.munmap(ctypes.c_void_p(a), ctypes.c_size_t(PAGE))
        end = time.monotonic() + 30
        while self.door.counters()["injected"] == before["injected"]:
            assert time.monotonic() < end, "the implicit MR was not updated"
            time.sleep(0.01)
        # If the UMR had succeeded, the child would be destroyed in this time.
        time.sleep(0.5)
        assert self.door.counters()["mkeys_enabled"] == before["mkeys_enabled"] + 1, "the child has gone"
        self.door.write(mr.rkey, a + PAGE, b"y" * 64)
        assert ctypes.string_at(a + PAGE, 64) == b"y" * 64
        libc.munmap(ctypes.c_void_p(a + PAGE), ctypes.c_size_t(PAGE))
        n = self.settle(before["mkeys_enabled"] + 1)
        assert n == before["mkeys_enabled"] + 1, f"{n - before['mkeys_enabled']} children"
        mr.close()
        n = self.settle(start)
        assert n == start, f"{n - start} mkeys are left"

    def test_new_child_nth(self):
        """One UMR after the other fails while an access makes a child. The access fails, or the driver tries again. When the memory
        is unmapped, no child is left.
        """
        no_lockdep()
        self.door.plain()
        nth, failed = 0, True
        while failed:
            nth += 1
            mr, a, libc = self.implicit_child(1)
            before = self.door.counters()
            self.door.fail(UMR, nth)
            self.door.go(WRITE, mr.rkey, a, 64)
            self.busy(5)
            faults = self.faults(before)
            failed = self.door.counters()["injected"] > before["injected"]
            self.door.fail(UMR, 0)
            libc.munmap(ctypes.c_void_p(a), ctypes.c_size_t(PAGE))
            self.door.end()
            assert faults <= 8, f"UMR {nth}: {faults} faults of one page"
            n = self.settle(before["mkeys_enabled"])
            assert n == before["mkeys_enabled"], f"UMR {nth}: {n - before['mkeys_enabled']} children are left"
            mr.close()
        print(f"# {nth - 1} UMRs")
        # They enable the child, lead the implicit MR to it, and map the page.
        assert nth > 3

    def child_destroyed(self):
        """Returns an implicit MR, two addresses of a page, and the mkey of a child with the first page, which was destroyed."""
        mr, a, libc = self.implicit_child(2)
        before = self.door.counters()["mkeys_enabled"]
        self.door.write(mr.rkey, a, b"x" * 64)
        key = self.door.key(mr.rkey, a)
        assert key != mr.rkey
        libc.munmap(ctypes.c_void_p(a), ctypes.c_size_t(PAGE))
        assert self.settle(before) == before
        return mr, a + PAGE, libc, key

    def test_unknown_key(self):
        """A page fault names an mkey that the driver does not know, or a destroyed child with another low byte. It fails at once,
        although a child of an implicit MR was just destroyed.
        """
        if os.environ["SCHEME"] != "memory":
            return  # In the transport scheme such an mkey belongs to pinned memory.
        self.door.plain()
        mr, a, libc, key = self.child_destroyed()
        for unknown in 0xffffff00, key ^ 1:
            self.door.name(unknown)
            before = self.door.counters()
            self.door.go(READ, mr.rkey, a, 64)
            self.door.wait(FAILED)
            assert self.faults(before) == 1, f"{self.faults(before)} faults of {unknown:#x}"
        self.door.name(0)
        assert self.door.read(mr.rkey, a, 64) == bytes(64)
        libc.munmap(ctypes.c_void_p(a), ctypes.c_size_t(PAGE))
        mr.close()

    def test_late_fault(self):
        """A page fault names a child of an implicit MR that was destroyed meanwhile. The device tries again."""
        if os.environ["SCHEME"] != "memory":
            return  # In the transport scheme the fault names the implicit MR.
        self.door.plain()
        mr, a, libc, key = self.child_destroyed()
        # A prefetch does not find it.
        error = self.prefetch_error(key, a)
        assert error == errno.ENOENT, f"error {error}"
        status = self.door.late_read(Door(sys.argv[1], 1), key, mr.rkey, a, PAGE_FAULT_RESUME)
        assert status == DONE, f"status {status}"
        libc.munmap(ctypes.c_void_p(a), ctypes.c_size_t(PAGE))
        mr.close()

    def test_window_named(self):
        """A page fault names the mkey of a memory window. It fails."""
        if os.environ["SCHEME"] != "memory":
            return  # In the transport scheme the driver itself looks into the window.
        self.door.plain()
        m, a = self.memory(1)
        mr = self.odp(a, PAGE)
        window = MW(self.pd, ibv_mw_type.IBV_MW_TYPE_2)
        self.door.name(window.rkey)
        self.door.go(READ, mr.rkey, a, 64)
        self.door.wait(FAILED)
        self.door.name(0)
        assert self.door.read(mr.rkey, a, 64) == bytes(64)
        window.close()
        mr.close()

    def test_empty_children(self):
        """Accesses to memory that does not exist leave no child of an implicit MR behind."""
        self.door.plain()
        mr, a, libc = self.implicit_child(1)
        before = self.door.counters()["mkeys_enabled"]
        for n in range(1, 33):
            self.door.read(mr.rkey, a + (n << 30), 64, FAILED)
        n = self.settle(before)
        mr.close()
        libc.munmap(ctypes.c_void_p(a), ctypes.c_size_t(PAGE))
        assert n == before, f"{n - before} children are left"

    def test_empty_neighbour(self):
        """Page faults at the beginning of a child also ask for pages before it. No child is left there."""
        mr, a, libc = self.implicit_child(4)
        before = self.door.counters()["mkeys_enabled"]
        for _ in range(50):
            self.door.write(mr.rkey, a, b"x" * 64)
            libc.madvise(ctypes.c_void_p(a), ctypes.c_size_t(4 * PAGE), mmap.MADV_DONTNEED)
        n = self.settle(before + 1)
        mr.close()
        libc.munmap(ctypes.c_void_p(a), ctypes.c_size_t(4 * PAGE))
        assert n == before + 1, f"{n - before} children, not 1"

    def test_empty_after_fault(self):
        """All memory of a child is unmapped while a fault of the child waits. The end of the fault destroys the child."""
        self.door.plain()
        mr, a, libc = self.implicit_child(3)
        before = self.door.counters()["mkeys_enabled"]
        self.door.write(mr.rkey, a, b"x" * 64)
        second = Door(sys.argv[1], 1)
        page = HeldBack(a + 2 * PAGE)
        second.go(READ, mr.rkey, a + 2 * PAGE, 64)
        page.wait()
        libc.munmap(ctypes.c_void_p(a), ctypes.c_size_t(3 * PAGE))
        page.close()
        assert second.end() == FAILED
        n = self.settle(before)
        mr.close()
        assert n == before, f"{n - before} children are left"

    def test_new_child_sleeps(self):
        """The fault that makes a child waits for a page. An access to other memory of the child does not fault again and again."""
        self.door.plain()
        mr, a, libc = self.implicit_child(3)
        second = Door(sys.argv[1], 1)
        with HeldBack(a + 2 * PAGE) as page:
            second.go(READ, mr.rkey, a + 2 * PAGE, 64)
            page.wait()
            before = self.door.counters()
            self.door.go(WRITE, mr.rkey, a, 64)
            self.busy(5)
            faults = self.faults(before)
        second.wait()
        self.door.wait()
        libc.munmap(ctypes.c_void_p(a), ctypes.c_size_t(3 * PAGE))
        mr.close()
        assert faults <= 8, f"{faults} faults of one page"

    def test_unreachable_neighbour(self):
        """Two pages are memory of a PCI device that the adapter cannot reach. Accesses to RAM beside them succeed."""
        allocate = glob.glob("/sys/bus/pci/drivers/p2pmem_test/*/p2pmem/allocate")
        if not allocate:
            raise Skipped("there is no such memory")
        self.door.plain()
        n, bad = 8, 3
        mr, a, libc = self.implicit_child(n)
        mr.close()
        mr = self.odp(a, n * PAGE)
        peer = os.open(allocate[0], os.O_RDWR)
        # MAP_SHARED | MAP_FIXED
        assert libc.mmap(a + bad * PAGE, 2 * PAGE, 3, 0x11, peer, 0) == a + bad * PAGE
        self.odp(a, n * PAGE).close()
        self.door.write(mr.rkey, a, b"x" * 64)
        self.door.go(READ, mr.rkey, a + (bad + 1) * PAGE - 32, 64)
        reached = self.door.end() == DONE
        failed = []
        for p in set(range(n)) - {0, bad, bad + 1}:
            self.door.go(READ, mr.rkey, a + p * PAGE, 64)
            if self.door.end() != DONE:
                failed.append(p)
        libc.munmap(ctypes.c_void_p(a), ctypes.c_size_t(n * PAGE))
        os.close(peer)
        mr.close()
        assert not failed, f"accesses to the pages {failed} fail"
        if reached:
            raise Skipped("the adapter reaches the device")

    def test_dmabuf_moves(self):
        """After the memory of a dma-buf has moved, the device reads it at its new place."""
        n, buf, verbs = 16, Buffer(16), Verbs(sys.argv[1])
        mr = verbs.reg_dmabuf_mr(buf.fd, n * PAGE)
        assert mr
        for p in range(0, n, 5):
            data = os.urandom(PAGE)
            self.door.write(verbs.rkey(mr), p * PAGE, data)
            before = self.door.counters()
            buf.move()
            assert self.door.read(verbs.rkey(mr), p * PAGE, PAGE) == data
            assert self.faults(before) >= 1
        assert verbs.dereg_mr(mr) == 0
        buf.close()

    def test_dmabuf_register_fails(self):
        """The UMR that enables the mkey of a dma-buf MR fails while a move of its memory waits. The move posts no UMR."""
        no_lockdep()
        n, buf, verbs = 16, Buffer(16), Verbs(sys.argv[1])
        # The driver keeps objects that it makes for its first region.
        assert verbs.dereg_mr(verbs.reg_dmabuf_mr(buf.fd, n * PAGE)) == 0
        before = self.door.counters()
        processors = os.sched_getaffinity(0)
        # On one processor the move gets the lock as soon as it is free.
        os.sched_setaffinity(0, {0})
        for _ in range(5):
            made = []
            self.door.slow(UMR, 300)
            self.door.fail(UMR)
            thread = threading.Thread(target=lambda: made.append(verbs.reg_dmabuf_mr(buf.fd, n * PAGE)))
            thread.start()
            time.sleep(0.15)
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
            buf.move()
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
            thread.join()
            self.door.slow(UMR, 0)
            assert made == [None], "the failure of the UMR was lost"
        os.sched_setaffinity(0, processors)
        buf.close()
        now = self.door.counters()
        assert now["injected"] == before["injected"] + 5
        assert now["bad_umrs"] == before["bad_umrs"], f"{now['bad_umrs'] - before['bad_umrs']} UMRs of an mkey that was not enabled"

    def test_dmabuf_prefetch_early(self):
        """A dma-buf MR is prefetched by the key that it is going to have. The UMR that enables the mkey fails."""
        no_lockdep()
        n, buf, verbs = 16, Buffer(16), Verbs(sys.argv[1])
        mr = verbs.reg_dmabuf_mr(buf.fd, n * PAGE)
        # The next registration of this kind takes the same mkey from the pool.
        key = verbs.rkey(mr)
        assert verbs.dereg_mr(mr) == 0
        before = self.door.counters()
        made = []
        self.door.slow(UMR, 1000)
        self.door.fail(UMR)
        thread = threading.Thread(target=lambda: made.append(verbs.reg_dmabuf_mr(buf.fd, n * PAGE)))
        thread.start()
        time.sleep(0.5)
        error = verbs.prefetch(key, 0, PAGE)
        thread.join()
        self.door.slow(UMR, 0)
        buf.close()
        now = self.door.counters()
        assert made == [None], "the failure of the UMR was lost"
        assert now["bad_umrs"] == before["bad_umrs"], f"{now['bad_umrs'] - before['bad_umrs']} UMRs of an mkey that was not enabled"
        assert error == errno.ENOENT, f"error {error}"

    def test_p2p_capability(self):
        """A program can tell that the P2P flag may have an effect."""
        assert self.context.query_device_ex().odp_caps.general_caps & IBV_ODP_SUPPORT_P2P

    def test_give_up(self):
        """Whenever one of two pages arrives, the other one is dropped. The driver gives up, and the device tries again."""
        if os.path.exists("/proc/lockdep"):
            raise Skipped("takes long")
        if os.environ["SCHEME"] != "memory":
            return  # The transport scheme does the same as edu_odp (test odp.give_up).
        self.door.plain()
        n = 600
        m, a = self.memory(n)
        m[:] = os.urandom(n * PAGE)
        mr = self.odp(a, n * PAGE)
        pages = [HeldBack(a + p * PAGE) for p in (3, n - 1)]
        for page in pages:
            page.drop()
        before = self.door.counters()
        self.door.go(READ, mr.rkey, a, n * PAGE)
        rounds = 0
        while self.faults(before) < 2 and self.door.regs[STATUS // 4] == BUSY:
            ready = select.select([page.uffd for page in pages], [], [], 0.01)[0]
            for page, other in zip(pages, reversed(pages)):
                if page.uffd in ready:
                    rounds += 1
                    page.read()
                    other.drop()
                    page.give()
        for page in pages:
            page.close()
        self.door.wait()
        print(f"# {rounds} rounds")
        assert rounds > 100
        assert self.door.counters()["resumes_with_error"] == before["resumes_with_error"]
        assert self.door.read(mr.rkey, a + 4 * PAGE, PAGE) == m[4 * PAGE:5 * PAGE]
        mr.close()

    def test_rereg_pinned(self):
        """The P2P flag has no effect on a pinned region: the region keeps its mkey."""
        m, a = self.memory(2)
        change = ibv_rereg_mr_flags.IBV_REREG_MR_CHANGE_ACCESS
        for old, new in ((IBV_ACCESS_ODP_P2P, 0), (0, IBV_ACCESS_ODP_P2P), (IBV_ACCESS_ODP_P2P, IBV_ACCESS_ODP_P2P)):
            mr = MR(self.pd, 2 * PAGE, PINNED | old, address=a)
            key = mr.rkey
            mr.rereg(change, access=PINNED | new)
            assert mr.rkey == key, (old, new)
            self.door.write(mr.rkey, a, b"x" * 64)
            mr.close()

    def test_relaxed(self):
        """A region with the P2P flag has relaxed ordering only if it has ATS. Other regions never have ATS. This holds for
        explicit and implicit regions, at registration and after a change of the access flags.
        """
        m, a = self.memory(2)
        both = ibv_access_flags.IBV_ACCESS_RELAXED_ORDERING
        change = ibv_rereg_mr_flags.IBV_REREG_MR_CHANGE_ACCESS
        has_ats = os.environ["ATS"] == "1"
        config = os.open(f"/sys/class/infiniband/{sys.argv[1]}/device/config", os.O_RDWR)
        control, = os.pread(config, 1, DEVCTL)
        # On an adapter with ATS, relaxed ordering of reads must be enabled in configuration space.
        for reads in (False, True) if has_ats else (True,):
            os.pwrite(config, bytes([control | RELAX_EN if reads else control & ~RELAX_EN]), DEVCTL)
            ordering = RELAXED_WRITE | (RELAXED_READ if reads else 0)
            for implicit in False, True:
                plain = None
                for flags, want in (0, ordering), (IBV_ACCESS_ODP_P2P, ordering | ATS if reads and has_ats else 0):
                    for before in 0, both:
                        mr = (MR(self.pd, 0, ODP | flags | before, implicit=True) if implicit else
                              MR(self.pd, 2 * PAGE, ODP | flags | before, address=a))
                        for asked in before, both, 0, both:
                            if asked != before:
                                mr.rereg(change, access=ODP | flags | asked)
                            assert self.door.read(mr.rkey, a, 64) == m[:64]
                            context = self.door.mkey(mr.rkey, a) & ~VARIANT
                            plain = context if plain is None else plain
                            # No other field of the mkey changes.
                            seen = plain & (ordering | ATS), context ^ plain
                            assert seen == (0, want if asked else 0), (reads, implicit, flags, before, asked, hex(context ^ plain))
                            before = asked
                        mr.close()
        os.close(config)

    def test_translations(self):
        """The adapter keeps a translation that it got by ATS until the page is dropped."""
        with open(f"/sys/class/infiniband/{sys.argv[1]}/device/config", "rb") as config:
            config.seek(0x100)
            header, _, control = struct.unpack("<IHH", config.read(8))
        if header & 0xffff != 0xf or not control & 0x8000:
            raise Skipped("no IOMMU translates for the adapter")
        self.door.plain()
        for flags, want in (0, 0), (IBV_ACCESS_ODP_P2P, 1):
            m, a = self.memory(1)
            mr = MR(self.pd, PAGE, ODP | flags | ibv_access_flags.IBV_ACCESS_RELAXED_ORDERING, address=a)
            for gone in True, False, True, False:
                if gone:
                    m.madvise(mmap.MADV_DONTNEED)
                    m[:] = os.urandom(PAGE)
                before = self.door.counters()["translations"]
                assert self.door.read(mr.rkey, a, 64) == m[:64]
                asked = self.door.counters()["translations"] - before
                assert asked == want * gone, (flags, gone, asked)
            mr.close()

    def test_qp_error(self):
        """A page fault that cannot be resolved is an error of its queue pair, and of no other queue pair."""
        m, a = self.memory(16)
        libc = ctypes.CDLL(None)
        before = self.door.counters()
        for far in True, False:
            link, other = Link(sys.argv[1], 0), Link(sys.argv[1], 0)
            mr, plain = link.region(a, 16 * PAGE), link.region(a, 16 * PAGE, 0)
            assert libc.mprotect(ctypes.c_void_p(a), ctypes.c_size_t(8 * PAGE), 0) == 0
            ends = (plain, a + 8 * PAGE, mr, a) if far else (mr, a, plain, a + 8 * PAGE)
            local, local_at, remote, remote_at = ends
            self.post(link, False, SGE(local_at, PAGE, local.lkey), remote.rkey, remote_at)
            status = self.completion(link)
            want = ibv_wc_status.IBV_WC_REM_ACCESS_ERR if far else ibv_wc_status.IBV_WC_LOC_PROT_ERR
            assert status == want, f"status {status}, not {want}"
            mr.close()
            plain.close()
            assert libc.mprotect(ctypes.c_void_p(a), ctypes.c_size_t(8 * PAGE), 3) == 0
            mr, plain = other.region(a, 8 * PAGE), other.region(a + 8 * PAGE, 8 * PAGE, 0)
            other.rdma(ibv_wr_opcode.IBV_WR_RDMA_WRITE, plain, mr)
            mr.close()
            plain.close()
        # The device did not repeat the fault until its limit.
        assert self.door.counters()["violations"] == before["violations"]

    def completion(self, link):
        end = limit(30)
        while True:
            count, done = link.cq.poll(1)
            if count:
                return done[0].status
            assert time.monotonic() < end, "no completion"

    def statistic(self, name):
        """Returns the sum of a counter over all memory regions."""
        show = subprocess.run(("rdma", "-j", "statistic", "show", "mr"), stdout=subprocess.PIPE, check=True)
        return sum(int(mr.get(name, 0)) for mr in json.loads(show.stdout or "[]"))

    def prefetch(self, mr, a, n, advice, flags):
        before = self.statistic("page_prefetch")
        self.pd.advise_mr(advice, flags, [SGE(a, n * PAGE, mr.lkey)])
        end = limit(30)
        while (now := self.statistic("page_prefetch")) != before + n:
            assert not flags and time.monotonic() < end, f"{now - before} pages were prefetched, not {n}"

    def test_statistic(self):
        """The counters that `rdma statistic` shows are right."""
        self.door.plain()
        n = 16
        m, a = self.memory(n)
        mr = self.odp(a, n * PAGE)
        before = {name: self.statistic(name) for name in ("page_faults", "page_faults_handled", "page_invalidations")}
        faults = self.door.counters()
        self.door.write(mr.rkey, a, os.urandom(8 * PAGE))
        m.madvise(mmap.MADV_DONTNEED, 0, 8 * PAGE)
        self.door.read(mr.rkey, a + 8 * PAGE, PAGE)
        now = {name: self.statistic(name) - before[name] for name in before}
        assert now == {"page_faults": 9, "page_faults_handled": self.faults(faults), "page_invalidations": 8}, now
        mr.close()

    def prefetches(self, make):
        """Prefetched pages do not fault. An access faults only if a page is absent or not writable."""
        self.door.plain()
        n = 8
        for flags in FLUSH, 0:
            # advice; whether the program has touched the pages; number of faults of a read; of a write
            for advice, touched, reads, writes in ((PREFETCH, False, 0, 1), (PREFETCH, True, 0, 1), (PREFETCH_WRITE, False, 0, 0),
                                                   (PREFETCH_WRITE, True, 0, 0), (PREFETCH_NO_FAULT, True, 0, None)):
                m, a = self.memory(n)
                mr = make(a, n)
                data = os.urandom(n * PAGE) if touched else bytes(n * PAGE)
                if touched:
                    m[:] = data
                self.prefetch(mr, a, n, advice, flags)
                before = self.door.counters()
                assert self.door.read(mr.rkey, a, n * PAGE) == data
                assert self.faults(before) == reads, (advice, touched, flags, self.faults(before))
                before = self.door.counters()
                self.door.write(mr.rkey, a, data[::-1])
                assert m[:] == data[::-1]
                assert writes is None or self.faults(before) == writes, (advice, touched, flags, self.faults(before))
                mr.close()
        # PREFETCH_NO_FAULT does not fault in absent pages.
        m, a = self.memory(n)
        mr = make(a, n)
        self.pd.advise_mr(PREFETCH_NO_FAULT, FLUSH, [SGE(a, n * PAGE, mr.lkey)])
        before = self.door.counters()
        assert self.door.read(mr.rkey, a, n * PAGE) == bytes(n * PAGE)
        assert self.faults(before) > 0
        mr.close()

    def test_window(self):
        """Accesses through a memory window. Its mkey is a list with one piece of a region."""
        n, rng = 16, random.Random(1)
        for implicit in False, True:
            link = Link(sys.argv[1], 0)
            m, a = self.memory(n)
            p, b = self.memory(n)
            access = ODP | ibv_access_flags.IBV_ACCESS_MW_BIND
            mr = MR(link.pd, access=access, length=0, implicit=True) if implicit else MR(link.pd, n * PAGE, access, address=a)
            plain = link.region(b, n * PAGE, 0)
            window = MW(link.pd, ibv_mw_type.IBV_MW_TYPE_1)
            # The window does not contain the first page.
            info = MWBindInfo(mr, a + PAGE, (n - 1) * PAGE,
                              ibv_access_flags.IBV_ACCESS_REMOTE_READ | ibv_access_flags.IBV_ACCESS_REMOTE_WRITE)
            link.qps[1].bind_mw(window, MWBind(info, ibv_send_flags.IBV_SEND_SIGNALED))
            link.wait(1)
            data = bytearray(n * PAGE)
            before = self.door.counters()
            for i in range(40):
                at = rng.randrange(PAGE, n * PAGE - 8)
                size = min(rng.randrange(8, 3 * PAGE), n * PAGE - at)
                if i & 1:
                    m.madvise(mmap.MADV_DONTNEED, at // PAGE * PAGE, PAGE)
                    data[at // PAGE * PAGE:(at // PAGE + 1) * PAGE] = bytes(PAGE)
                read = bool(i & 2)
                if not read:
                    p[at:at + size] = data[at:at + size] = rng.randbytes(size)
                self.post(link, read, SGE(b + at, size, plain.lkey), window.rkey, a + at)
                link.wait(1)
                assert p[at:at + size] == data[at:at + size], (implicit, i, at, size)
            assert self.faults(before) > 0
            assert m[:] == data, implicit
            self.post(link, True, SGE(b, 64, plain.lkey), window.rkey, a)
            assert self.completion(link) == ibv_wc_status.IBV_WC_REM_ACCESS_ERR
            window.close()
            mr.close()
            plain.close()

    def test_prefetch(self):
        """Prefetches of an explicit region"""
        self.prefetches(lambda a, n: self.odp(a, n * PAGE))

    def test_prefetch_implicit(self):
        self.prefetches(lambda a, n: MR(self.pd, access=ODP, length=0, implicit=True))

    def test_prefetch_read_only(self):
        """The region allows writes, but the process may only read the memory."""
        self.door.plain()
        n = 4
        m, a = self.memory(n)
        m[:] = data = os.urandom(n * PAGE)
        mr = self.odp(a, n * PAGE)
        assert LIBC.mprotect(ctypes.c_void_p(a), ctypes.c_size_t(n * PAGE), 1) == 0
        self.pd.advise_mr(PREFETCH, FLUSH, [SGE(a, n * PAGE, mr.lkey)])
        before = self.door.counters()
        assert self.door.read(mr.rkey, a, n * PAGE) == data
        assert self.faults(before) == 0, self.faults(before)
        try:
            self.pd.advise_mr(PREFETCH_WRITE, FLUSH, [SGE(a, n * PAGE, mr.lkey)])
            raise AssertionError("prefetched to be written to")
        except PyverbsError:
            pass
        self.door.write(mr.rkey, a, b"x" * 64, FAILED)
        assert self.door.read(mr.rkey, a, n * PAGE) == data
        assert LIBC.mprotect(ctypes.c_void_p(a), ctypes.c_size_t(n * PAGE), 3) == 0
        self.door.write(mr.rkey, a, b"x" * 64)
        assert m[:] == b"x" * 64 + data[64:]
        mr.close()

    def test_prefetch_two(self):
        """A prefetch names an explicit and an implicit region, in either order. If the second key is wrong, it fails, and the first
        region can be deregistered."""
        self.door.plain()
        n = 8
        memory = [self.memory(n) for _ in range(2)]
        places = [a for _, a in memory]
        mrs = [self.odp(places[0], n * PAGE), MR(self.pd, access=ODP, length=0, implicit=True)]
        sges = [SGE(a, n * PAGE, mr.lkey) for a, mr in zip(places, mrs)]
        for order in (1, -1):
            for a in places:
                LIBC.madvise(ctypes.c_void_p(a), ctypes.c_size_t(n * PAGE), mmap.MADV_DONTNEED)
            self.pd.advise_mr(PREFETCH_WRITE, FLUSH, sges[::order])
            before = self.door.counters()
            for a, mr in zip(places, mrs):
                assert self.door.read(mr.rkey, a, n * PAGE) == bytes(n * PAGE)
            assert self.faults(before) == 0, self.faults(before)
            for flags in (FLUSH, 0):
                error = self.prefetch_error(mrs[1].lkey ^ 1, places[1], flags, sges[:1])
                assert error == errno.ENOENT, f"error {error}"
        for mr in mrs:
            mr.close()

    def test_prefetch_nth(self):
        """One memory allocation after the other fails while a prefetch makes a child. Then the child, or the next one, works."""
        for try_it in each_failing_allocation():
            m, a = self.memory(4)
            mr = MR(self.pd, access=ODP, length=0, implicit=True)
            sge = [SGE(a, 4 * PAGE, mr.lkey)]
            try_it(lambda: self.pd.advise_mr(PREFETCH_WRITE, FLUSH, sge))
            m.madvise(mmap.MADV_DONTNEED, PAGE)
            data = os.urandom(4 * PAGE)
            self.door.write(mr.rkey, a, data)
            assert m[:] == data
            mr.close()

    def prefetch_error(self, lkey, a=0, flags=FLUSH, before=()):
        try:
            self.pd.advise_mr(PREFETCH, flags, [*before, SGE(a, PAGE, lkey)])
        except PyverbsError as error:
            return error.error_code
        return 0

    def test_prefetch_wrong_key(self):
        """The lkey has the index of a region, but another low byte."""
        m, a = self.memory(1)
        mr = self.odp(a, PAGE)
        error = self.prefetch_error(mr.lkey ^ 1, a)
        assert error == errno.ENOENT, f"error {error}"
        assert self.prefetch_error(mr.lkey, a) == 0
        mr.close()

    def test_prefetch_dereg(self):
        """The region is deregistered during a prefetch."""
        n = 64
        for i in range(20):
            m, a = self.memory(n)
            mr = self.odp(a, n * PAGE) if i % 2 else MR(self.pd, access=ODP, length=0, implicit=True)
            for p in range(0, n, 8):
                self.pd.advise_mr(PREFETCH_WRITE, 0, [SGE(a + p * PAGE, 8 * PAGE, mr.lkey)])
            mr.close()

    def dereg_load(self, make):
        """The region is deregistered while all channels and a queue pair access it. Each access must end."""
        n = 64
        doors = [Door(sys.argv[1], c) for c in range(8)]
        ends = []
        for i in range(20):
            link = Link(sys.argv[1], 0)
            m, a = self.memory(n)
            near, b = self.memory(n)
            mr, plain = make(link.pd, a, n), link.region(b, n * PAGE, 0)
            for c, d in enumerate(doors):
                d.go(WRITE if c & 1 else READ, mr.rkey, a + c * 8 * PAGE, 8 * PAGE)
            self.post(link, False, SGE(b, n * PAGE, plain.lkey), mr.rkey, a)
            time.sleep(i % 10 * 0.002)
            mr.close()
            ends += [d.end() for d in doors]
            self.completion(link)
            plain.close()
        print(f"# {ends.count(DONE)} done, {ends.count(FAILED)} failed")

    def test_dereg_load(self):
        self.dereg_load(lambda pd, a, n: MR(pd, n * PAGE, ODP, address=a))

    def test_dereg_load_implicit(self):
        before = self.door.counters()["mkeys_enabled"]
        self.dereg_load(lambda pd, a, n: MR(pd, access=ODP, length=0, implicit=True))
        n = self.settle(before)
        assert n == before, f"{n - before} mkeys are left"

    def test_dereg_fault(self):
        """An implicit MR is deregistered during a fault that makes a child. No child is left."""
        for _ in range(3):
            before = self.door.counters()["mkeys_enabled"]
            mr, a, libc = self.implicit_child(1)
            self.door.slow(UMR, 100)
            # Making a child takes several UMRs.
            self.door.go(READ, mr.rkey, a, 64)
            time.sleep(0.25)
            mr.close()
            self.door.slow(UMR, 0)
            self.door.end()
            libc.munmap(ctypes.c_void_p(a), ctypes.c_size_t(PAGE))
            n = self.settle(before)
            assert n == before, f"{n - before} mkeys are left"

    def test_child_gone(self):
        """A child is being destroyed, and its implicit MR still leads to it. An access to other memory of the child succeeds."""
        self.door.plain()
        mr, a, libc = self.implicit_child(2)
        self.door.write(mr.rkey, a, b"x" * 64)
        self.door.slow(UMR, 200)
        libc.munmap(ctypes.c_void_p(a), ctypes.c_size_t(PAGE))
        before = self.door.counters()
        self.door.write(mr.rkey, a + PAGE, b"y" * 64)
        faults = self.faults(before)
        self.door.slow(UMR, 0)
        assert faults <= 8, f"{faults} faults of one page"
        assert ctypes.string_at(a + PAGE, 64) == b"y" * 64
        libc.munmap(ctypes.c_void_p(a + PAGE), ctypes.c_size_t(PAGE))
        mr.close()

    def test_child_sleeps(self):
        """The pages of a child are unmapped while a fault of the child waits. The child stays, also for its other memory."""
        self.door.plain()
        mr, a, libc = self.implicit_child(3)
        self.door.write(mr.rkey, a, b"x" * 64)
        second = Door(sys.argv[1], 1)
        with HeldBack(a + 2 * PAGE) as page:
            second.go(READ, mr.rkey, a + 2 * PAGE, 64)
            page.wait()
            libc.munmap(ctypes.c_void_p(a), ctypes.c_size_t(PAGE))
            before = self.door.counters()
            self.door.write(mr.rkey, a + PAGE, b"y" * 64)
            faults = self.faults(before)
            children = self.door.counters()["mkeys_enabled"] - before["mkeys_enabled"]
        second.wait()
        assert not children, f"{children} more children"
        assert ctypes.string_at(a + PAGE, 64) == b"y" * 64
        assert faults <= 8, f"{faults} faults of one page"
        libc.munmap(ctypes.c_void_p(a + PAGE), ctypes.c_size_t(2 * PAGE))
        mr.close()

    def test_child_lost(self):
        """Eight page faults make the same child. Those that lose put their mkeys back into the pool. If a page fault names such an
        mkey, the device tries again.
        """
        self.door.plain()
        n = 8
        mr, a, libc = self.implicit_child(2 * n)
        before = self.door.counters()
        # These children leave mkeys in the pool, and the driver takes the last ones first.
        places, keys = [a + (i << 30) for i in range(1, n + 1)], set()
        for place in places:
            assert libc.mmap(place, PAGE, 3, 0x100022, -1, 0) == place
            self.door.write(mr.rkey, place, b"x" * 64)
            keys.add(self.door.key(mr.rkey, place))
        for place in places:
            libc.munmap(ctypes.c_void_p(place), ctypes.c_size_t(PAGE))
        assert self.settle(before["mkeys_enabled"]) == before["mkeys_enabled"]
        before = self.door.counters()
        doors = [Door(sys.argv[1], c) for c in range(n)]
        # All look for the child before the first one is there.
        self.door.slow(UMR, 100)
        for c, d in enumerate(doors):
            d.go(READ, mr.rkey, a + c * PAGE, 64)
        for d in doors:
            d.wait()
        self.door.slow(UMR, 0)
        children = self.settle(before["mkeys_enabled"] + 1) - before["mkeys_enabled"]
        updates = self.door.counters()["umr_wqes"] - before["umr_wqes"]
        lost = keys - {self.door.key(mr.rkey, a)}
        if os.environ["SCHEME"] == "memory":
            ends = [self.door.late_read(doors[1], key, mr.rkey, a + (n + p) * PAGE, PAGE_FAULT_RESUME) for p, key in enumerate(lost)]
            assert set(ends) == {DONE}, ends
        libc.munmap(ctypes.c_void_p(a), ctypes.c_size_t(2 * n * PAGE))
        mr.close()
        assert children == 1, f"{children} children"
        assert updates > 2 * n, f"{updates} UMRs: one fault came after the other"

    def test_dereg_sleeps(self):
        """The region is being deregistered while a fault waits. Another access fails without faulting again and again."""
        self.door.plain()
        verbs = Verbs(sys.argv[1])
        second = Door(sys.argv[1], 1)
        for implicit in False, True:
            m, a = self.memory(4)
            mr = verbs.reg_mr(None, 2**64 - 1) if implicit else verbs.reg_mr(a, 4 * PAGE)
            rkey = verbs.rkey(mr)
            thread = threading.Thread(target=verbs.dereg_mr, args=(mr,))
            with HeldBack(a + 3 * PAGE) as page:
                second.go(READ, rkey, a + 3 * PAGE, 64)
                page.wait()
                thread.start()
                time.sleep(0.3)
                before = self.door.counters()
                self.door.go(READ, rkey, a + PAGE, 64)
                time.sleep(1)
                faults = self.faults(before)
                error = self.prefetch_error(rkey)
            thread.join()
            second.end()
            assert self.door.end() == FAILED
            assert faults <= 8, f"{faults} faults of one page"
            # The region is in another protection domain: EPERM if the driver still finds it.
            assert error == errno.ENOENT, f"error {error} of a prefetch"

    def test_neighbour_gone(self):
        """A page is dropped while the driver waits for another page of the same fault. Then the page beside it is mapped."""
        self.door.plain()
        n, gone, beside, slow = 13, 3, 4, 12
        m, a = self.memory(n)
        mr = self.odp(a, n * PAGE)
        old, new = os.urandom(slow * PAGE), os.urandom(PAGE)
        m[:slow * PAGE] = old
        second = Door(sys.argv[1], 1)
        with HeldBack(a + slow * PAGE) as page:
            self.door.go(READ, mr.rkey, a, n * PAGE)
            page.wait()
            m.madvise(mmap.MADV_DONTNEED, gone * PAGE, PAGE)
            # This memory reuses the dropped page.
            others = [mmap.mmap(-1, 64 * PAGE) for _ in range(2)]
            for other in others:
                other[:] = b"o" * len(other)
            m[gone * PAGE:(gone + 1) * PAGE] = new
            assert second.read(mr.rkey, a + beside * PAGE, PAGE) == old[beside * PAGE:(beside + 1) * PAGE]
            assert second.read(mr.rkey, a + gone * PAGE, PAGE) == new, "the device has a page that is gone"
        self.door.wait()
        assert self.door.read(mr.rkey, a, n * PAGE) == m[:]
        mr.close()

    def die(self):
        """The firmware dies while page faults and commands are pending."""
        self.dies(1)

    def gone(self):
        """The device is pulled out."""
        self.dies(0xff)

    def dies(self, syndrome):
        n = 64
        m, a = self.memory(n)
        mr = self.odp(a, n * PAGE)
        self.door.slow(UMR, 1000)
        doors = [Door(sys.argv[1], c) for c in range(1, 8)]
        for c, d in enumerate(doors):
            d.go(READ, mr.rkey, a + c * 8 * PAGE, 8 * PAGE)
        time.sleep(0.05)
        assert BUSY in [d.regs[STATUS // 4] for d in doors], "no page fault was open"
        self.door.regs[SYNDROME // 4] = syndrome
        for d in doors:
            d.end()
        # Deregistration must return although the device no longer answers.
        mr.close()

    def channels(self):
        """All channels read and write while pages are dropped. The test fails if an access fails or the model finds an error."""
        n = 96
        m, a = self.memory(n)
        mr = self.odp(a, n * PAGE)
        doors = [Door(sys.argv[1], c) for c in range(8)]
        rng = random.Random(1)
        end = time.monotonic() + float(os.environ.get("STRESS_SECONDS", "20"))
        rounds = failed = 0
        while time.monotonic() < end:
            begun = rounds > 0
            for d in doors:
                status = d.regs[STATUS // 4]
                if status == BUSY:
                    continue
                # In the first round the status is still that of the test before.
                failed += begun and status == FAILED
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
            failed += d.regs[STATUS // 4] == FAILED
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
        skip = ""
        try:
            tests = Tests(device)
            before = tests.door.counters()["violations"]
            (getattr(tests, f"test_{name}", None) or getattr(tests, name))()
            assert tests.door.counters()["violations"] == before, "the model has found something: see what it says"
        except Skipped as reason:
            skip = f" # SKIP {reason}"
        except Exception:
            failed = 1
            for line in traceback.format_exc().splitlines():
                print("#", line)
            # The end of this block frees the objects of the test, and this may hang.
            print("not ok", number, name, flush=True)
            continue
        print("ok", number, name + skip, flush=True)
    return failed


sys.exit(main(*sys.argv[1:]))
