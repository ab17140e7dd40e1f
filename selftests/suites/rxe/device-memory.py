# SPDX-License-Identifier: GPL-2.0-only
"""On-demand paging of memory that is in the device memory of test_hmm, or in that of a GPU. Prints KTAP.

rxe copies with the CPU, which cannot use an alias. So the pages have to migrate to RAM, with the right data. An adapter that
reaches the device memory accesses it in place: MAINTAINERS-notes/hardware.md.
"""

import argparse
import array
import ctypes
import errno
import fcntl
import json
import mmap
import os
import random
import struct
import subprocess
import sys
import threading
import time

try:
    import pyverbs
except ModuleNotFoundError:
    sys.exit("device-memory.py: needs pyverbs; on Debian: apt-get install python3-pyverbs")
from pyverbs.libibverbs_enums import (ibv_access_flags, ibv_odp_general_caps, ibv_odp_transport_cap_bits,
                                      ibv_rereg_mr_flags, ibv_wr_opcode as op,
                                      _IBV_ADVISE_MR_ADVICE_PREFETCH as PREFETCH,
                                      _IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT as PREFETCH_NO_FAULT,
                                      _IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE as PREFETCH_WRITE,
                                      _IBV_ADVISE_MR_FLAG_FLUSH as FLUSH)
from pyverbs.mr import MR
from pyverbs.pyverbs_error import PyverbsError
from pyverbs.wr import SGE
from verbs import ACCESS, DEPTH, GRH, IBV_ACCESS_ODP_P2P as P2P, PAGE, Failed, Link, Skipped, equal, limit, run_tests

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("device", help="an RDMA device: rxe0, mlx5_0")
parser.add_argument("gid", type=int, help="index of the GID of its port 1 that is used")
parser.add_argument("test", nargs="*", help="only these")
parser.add_argument("--nouveau", metavar="NODE", help="the memory of this GPU, /dev/dri/renderD128, not that of test_hmm")
parser.add_argument("--xe", metavar="NODE", help="the same with a GPU of xe")
parser.add_argument("--expect", choices=("ram", "stay", "any"), default="ram",
                    help="where pages are after the adapter used them: in RAM (default), still in device memory, or no matter")
parser.add_argument("--pages", type=int, default=16, help="size of the memory (default: %(default)s)")
parser.add_argument("--huge", action="store_true", help="in huge pages of 2 MiB")
parser.add_argument("--relaxed", action="store_true", help="with relaxed ordering")
parser.add_argument("--unpatched", action="store_true", help="the kernel lacks the patches, so it counts nothing")
parser.add_argument("--speed", action="store_true", help="measure, in place and migrating; no tests")
args = parser.parse_args()
if args.relaxed:
    P2P |= ibv_access_flags.IBV_ACCESS_RELAXED_ORDERING

HUGE = 2 << 20
NPAGES = -(-args.pages * PAGE // HUGE) * HUGE // PAGE if args.huge else args.pages
# The test knows exactly which pages a software adapter accesses.
SOFTWARE = not os.path.exists(f"/sys/class/infiniband/{args.device}/device")
# test_hmm of the unpatched kernel has no statistics. There only the places of the pages and the data are checked.
UNPATCHED = args.unpatched or os.uname().release.endswith("-unpatched")
GPU = args.nouveau or args.xe
ODP = ibv_access_flags.IBV_ACCESS_ON_DEMAND


class Command(ctypes.Structure):
    """struct hmm_dmirror_cmd of lib/test_hmm_uapi.h"""
    _fields_ = [(name, ctypes.c_uint64) for name in ("addr", "ptr", "npages", "cpages", "faults")]


class Stats(ctypes.Structure):
    """struct hmm_dmirror_p2p_stats"""
    _fields_ = [(name, ctypes.c_uint64) for name in ("bound", "bar_pages", "bar_live", "op_calls", "migrated", "flushes")]


class SvmInit(ctypes.Structure):
    """struct drm_nouveau_svm_init of drm/nouveau_drm.h"""
    _fields_ = [(name, ctypes.c_uint64) for name in ("unmanaged_addr", "unmanaged_size")]


class SvmBind(ctypes.Structure):
    """struct drm_nouveau_svm_bind"""
    _fields_ = [(name, ctypes.c_uint64)
                for name in ("header", "va_start", "va_end", "npages", "stride", "result", "reserved0", "reserved1")]


class XeQuery(ctypes.Structure):
    """struct drm_xe_device_query of drm/xe_drm.h"""
    _fields_ = [("extensions", ctypes.c_uint64), ("query", ctypes.c_uint32), ("size", ctypes.c_uint32), ("data", ctypes.c_uint64),
                ("reserved", ctypes.c_uint64 * 2)]


class XeVmCreate(ctypes.Structure):
    """struct drm_xe_vm_create"""
    _fields_ = [("extensions", ctypes.c_uint64), ("flags", ctypes.c_uint32), ("vm_id", ctypes.c_uint32), ("reserved", ctypes.c_uint64 * 2)]


class XeSync(ctypes.Structure):
    """struct drm_xe_sync"""
    _fields_ = [("extensions", ctypes.c_uint64), ("type", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("addr", ctypes.c_uint64),
                ("timeline_value", ctypes.c_uint64), ("reserved", ctypes.c_uint64 * 2)]


class XeVmBind(ctypes.Structure):
    """struct drm_xe_vm_bind with one struct drm_xe_vm_bind_op in it"""
    _fields_ = [("extensions", ctypes.c_uint64), ("vm_id", ctypes.c_uint32), ("exec_queue_id", ctypes.c_uint32), ("pad", ctypes.c_uint32),
                ("num_binds", ctypes.c_uint32), ("op_extensions", ctypes.c_uint64), ("obj", ctypes.c_uint32), ("pat_index", ctypes.c_uint16),
                ("op_pad", ctypes.c_uint16), ("offset", ctypes.c_uint64), ("range", ctypes.c_uint64), ("addr", ctypes.c_uint64),
                ("op", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("region", ctypes.c_uint32), ("op_pad2", ctypes.c_uint32),
                ("op_reserved", ctypes.c_uint64 * 3), ("pad2", ctypes.c_uint32), ("num_syncs", ctypes.c_uint32), ("syncs", ctypes.c_uint64),
                ("reserved", ctypes.c_uint64 * 2)]


class XeWait(ctypes.Structure):
    """struct drm_xe_wait_user_fence"""
    _fields_ = [("extensions", ctypes.c_uint64), ("addr", ctypes.c_uint64), ("op", ctypes.c_uint16), ("flags", ctypes.c_uint16),
                ("pad", ctypes.c_uint32), ("value", ctypes.c_uint64), ("mask", ctypes.c_uint64), ("timeout", ctypes.c_int64),
                ("exec_queue_id", ctypes.c_uint32), ("pad2", ctypes.c_uint32), ("reserved", ctypes.c_uint64 * 2)]


class ScanArg(ctypes.Structure):
    """struct pm_scan_arg of linux/fs.h"""
    _fields_ = [(name, ctypes.c_uint64)
                for name in ("size", "flags", "start", "end", "walk_end", "vec", "vec_len", "max_pages",
                             "category_inverted", "category_mask", "category_anyof_mask", "return_mask")]


def ioctl_number(direction, kind, number, struct):
    return direction << 30 | ctypes.sizeof(struct) << 16 | ord(kind) << 8 | number


MIGRATE_TO_DEV = ioctl_number(3, "H", 2, Command)
P2P_STATS = ioctl_number(2, "H", 11, Stats)
SVM_INIT = ioctl_number(3, "d", 0x40 + 8, SvmInit)
SVM_BIND = ioctl_number(3, "d", 0x40 + 9, SvmBind)
XE_QUERY = ioctl_number(3, "d", 0x40 + 0, XeQuery)
XE_VM_CREATE = ioctl_number(3, "d", 0x40 + 3, XeVmCreate)
XE_VM_BIND = ioctl_number(1, "d", 0x40 + 5, XeVmBind)
XE_WAIT = ioctl_number(3, "d", 0x40 + 0xa, XeWait)
PAGEMAP_SCAN = ioctl_number(3, "f", 16, ScanArg)
PAGE_IS_HUGE = 1 << 6
# NOUVEAU_SVM_BIND_COMMAND__MIGRATE, NOUVEAU_SVM_BIND_TARGET__GPU_VRAM
MIGRATE_TO_VRAM = 0 << 0 | 1 << 31 << 16

# DRM_XE_DEVICE_QUERY_MEM_REGIONS, struct drm_xe_mem_region, DRM_XE_MEM_REGION_CLASS_VRAM
XE_REGIONS, XE_REGION, XE_VRAM = 1, struct.Struct("<HHI10Q"), 1
# DRM_XE_VM_CREATE_FLAG_LR_MODE | _FAULT_MODE; DRM_XE_VM_BIND_FLAG_CPU_ADDR_MIRROR; DRM_XE_VM_BIND_OP_MAP, _PREFETCH
XE_FAULT_MODE, XE_MIRROR, XE_MAP, XE_PREFETCH = 1 << 1 | 1 << 2, 1 << 5, 0, 4
# DRM_XE_SYNC_TYPE_USER_FENCE, DRM_XE_SYNC_FLAG_SIGNAL, and any value that is not 0
XE_FENCE, XE_SIGNAL, XE_DONE = 2, 1, 1


class TestHmm:
    """The device memory of test_hmm"""

    def __init__(self):
        self.file = open("/dev/hmm_dmirror0", "r+b", buffering=0)

    def migrate(self, address, npages):
        out = ctypes.create_string_buffer(npages * PAGE)
        cmd = Command(addr=address, ptr=ctypes.addressof(out), npages=npages)
        fcntl.ioctl(self.file, MIGRATE_TO_DEV, cmd)
        equal("pages that went to device memory", cmd.cpages, npages)

    def stats(self):
        if UNPATCHED:
            return None
        stats = Stats()
        fcntl.ioctl(self.file, P2P_STATS, stats)
        return stats


class Gpu:
    """The memory of a GPU. Sets the file of its driver, and its folder in sysfs."""

    def __init__(self, node, driver):
        self.file = open(node, "r+b", buffering=0)
        number = os.fstat(self.file.fileno()).st_rdev
        self.pci = os.path.realpath(f"/sys/dev/char/{os.major(number)}:{os.minor(number)}/device")
        if os.path.basename(os.path.realpath(f"{self.pci}/driver")) != driver:
            raise OSError(f"{node}: not a device of {driver}")

    def stats(self):
        return None

    def windows(self):
        return 0


class Xe(Gpu):
    """An address space of a GPU of xe that mirrors this process. Nothing runs on the GPU."""

    def __init__(self, node):
        super().__init__(node, "xe")
        query = XeQuery(query=XE_REGIONS)
        fcntl.ioctl(self.file, XE_QUERY, query)
        answer = ctypes.create_string_buffer(query.size)
        query.data = ctypes.addressof(answer)
        fcntl.ioctl(self.file, XE_QUERY, query)
        regions = XE_REGION.iter_unpack(answer.raw[8:8 + int.from_bytes(answer.raw[:4], "little") * XE_REGION.size])
        vram = [instance for kind, instance, *_ in regions if kind == XE_VRAM]
        if not vram:
            raise OSError(f"{node}: a GPU without memory of its own")
        self.region = vram[0]
        try:
            vm = XeVmCreate(flags=XE_FAULT_MODE)
            fcntl.ioctl(self.file, XE_VM_CREATE, vm)
            self.vm = vm.vm_id
            self.bind(op=XE_MAP, flags=XE_MIRROR, range=1 << 47)
        except OSError as error:
            raise OSError(f"{node}: no shared virtual memory: not Battlemage or later, or no CONFIG_DRM_XE_GPUSVM "
                          f"({error.strerror})") from error

    def bind(self, **operation):
        fence = ctypes.c_uint64()
        sync = XeSync(type=XE_FENCE, flags=XE_SIGNAL, addr=ctypes.addressof(fence), timeline_value=XE_DONE)
        fcntl.ioctl(self.file, XE_VM_BIND, XeVmBind(vm_id=self.vm, num_binds=1, num_syncs=1, syncs=ctypes.addressof(sync), **operation))
        fcntl.ioctl(self.file, XE_WAIT, XeWait(addr=ctypes.addressof(fence), value=XE_DONE, mask=2**64 - 1, timeout=60 * 10**9))

    def migrate(self, address, npages):
        """Moves pages, and does not report whether it has. xe moves all pages of a block or none, so one busy page is enough for none."""
        for _ in range(10):
            self.bind(op=XE_PREFETCH, addr=address, range=npages * PAGE, region=self.region)
            if not in_ram(address, npages):
                break
            time.sleep(0.05)


class Nouveau(Gpu):
    """The memory of a GPU, by nouveau"""

    def __init__(self, node):
        super().__init__(node, "nouveau")
        # Addresses at which nouveau may map its own buffers on the GPU. A channel needs low ones (MAP_32BIT: Python 3.13).
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_32BIT", 0)
        self.unmanaged = mmap.mmap(-1, 64 << 20, flags=flags)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.unmanaged))
        try:
            fcntl.ioctl(self.file, SVM_INIT, SvmInit(unmanaged_addr=address, unmanaged_size=len(self.unmanaged)))
        except OSError as error:
            raise OSError(f"{node}: no shared virtual memory: not Pascal, or no CONFIG_DRM_NOUVEAU_SVM "
                          f"(DRM_IOCTL_NOUVEAU_SVM_INIT: {error.strerror})") from error

    def migrate(self, address, npages):
        """Moves as many pages as it can, and does not report the number."""
        bind = SvmBind(header=MIGRATE_TO_VRAM, va_start=address, va_end=address + npages * PAGE)
        fcntl.ioctl(self.file, SVM_BIND, bind)

    def windows(self):
        """Returns how many huge pages BAR1 can show to peers."""
        with open(f"/sys/bus/pci/devices/{os.path.basename(self.pci)}/p2pmem/size") as file:
            return int(file.read()) // HUGE


def device_memory():
    if args.xe:
        return Xe(args.xe)
    return Nouveau(args.nouveau) if args.nouveau else TestHmm()


# Bits of an entry of pagemap. Swap types of device-private pages: SWP_DEVICE_WRITE, SWP_DEVICE_READ
PM_PRESENT, PM_SWAP, PM_PFN = 1 << 63, 1 << 62, (1 << 55) - 1
DEVICE_PRIVATE = 28, 29


def huge_pages(start, end):
    """Returns start and end of the first huge pages in this range. The sums of smaps are of no use, because khugepaged can change
    them at any time.
    """
    region = (ctypes.c_uint64 * 3)()
    scan = ScanArg(size=ctypes.sizeof(ScanArg), start=start, end=end, vec=ctypes.addressof(region), vec_len=1,
                   category_mask=PAGE_IS_HUGE, return_mask=PAGE_IS_HUGE)
    with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
        fcntl.ioctl(pagemap, PAGEMAP_SCAN, scan)
    return region[0], region[1]


def entries(address, npages):
    """Returns the entries of pagemap."""
    with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
        return memoryview(os.pread(pagemap.fileno(), npages * 8, address // PAGE * 8)).cast("Q")


def in_ram(address, npages):
    """Returns the indices of the pages that are not in device memory."""
    return [page for page, entry in enumerate(entries(address, npages)) if not (entry & PM_SWAP and entry & 0x1f in DEVICE_PRIVATE)]


class Part:
    """A part of a mapping"""

    def __init__(self, whole, start, size):
        self.whole, self.start, self.size = whole, start, size

    def at(self, key):
        if not isinstance(key, slice):
            return self.start + key
        first, end, step = key.indices(self.size)
        return slice(self.start + first, self.start + end, step)

    def __getitem__(self, key):
        return self.whole[self.at(key)]

    def __setitem__(self, key, value):
        self.whole[self.at(key)] = value

    def __len__(self):
        return self.size

    def madvise(self, advice, start=0, size=None):
        self.whole.madvise(advice, self.start + start, self.size if size is None else size)


class Memory:
    """Pages of this process, which can migrate to device memory. xe migrates blocks of up to 2 MiB that are in one mapping, so no other
    memory may be in the same block.
    """

    def __init__(self, device, size=NPAGES * PAGE):
        self.device, self.size = device, size
        whole = mmap.mmap(-1, size + 2 * HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        start = ctypes.addressof(ctypes.c_char.from_buffer(whole))
        self.address = (start // HUGE + 1) * HUGE
        self.map = Part(whole, self.address - start, size)
        libc = ctypes.CDLL(None)
        for first, end in (start, self.address), (self.address + size, start + size + 2 * HUGE):
            equal("mprotect", libc.mprotect(ctypes.c_void_p(first), ctypes.c_size_t(end - first), 0), 0)
        if args.huge:
            self.map.madvise(mmap.MADV_HUGEPAGE)
            self.map[::HUGE] = bytes(self.size // HUGE)
            whole = self.address, self.address + self.size
            equal("addresses in huge pages", huge_pages(*whole), whole)

    def fill(self, seed):
        """Writes a different value to each word."""
        first = (seed << 48 | page << 32 for page in range(NPAGES))
        data = b"".join(array.array("Q", range(word, word + PAGE // 8)).tobytes() for word in first)
        self.map[:] = data
        return data

    def to_device(self):
        self.device.migrate(self.address, self.size // PAGE)
        if args.expect != "any":
            equal("pages that did not go to device memory", self.in_ram(), [])

    def in_ram(self):
        """Returns the indices of the pages that are not in device memory."""
        return in_ram(self.address, self.size // PAGE)


def exporter():
    """Returns the PCI device of test_hmm."""
    for device in (entry.path for entry in os.scandir("/sys/bus/pci/devices")):
        with open(f"{device}/vendor") as vendor, open(f"{device}/device") as kind:
            if (vendor.read(), kind.read()) == ("0x1af4\n", "0x1110\n"):
                return device
    raise Skipped("no exporter")


class Bar:
    """The BAR through which peers reach the memory of a PCI device."""

    def __init__(self, device, number):
        with open(f"{device}/resource") as resource:
            self.start, end = (int(word, 16) for word in resource.read().splitlines()[number].split()[:2])
        self.size = end + 1 - self.start
        with open(f"{device}/resource{number}", "rb", buffering=0) as file:
            self.map = mmap.mmap(file.fileno(), self.size, prot=mmap.PROT_READ)

    def read(self, address, size):
        """Returns the bytes at this address, or None if it is not in the BAR."""
        at = address - self.start
        return self.map[at:at + size] if 0 <= at < self.size else None


class Tests:
    def __init__(self, link):
        self.link = link
        self.device = device_memory()

    def begin(self, flags=ODP | P2P):
        """Registers the memory to test, and plain memory for the other end."""
        self.memory, self.plain = Memory(self.device), Memory(self.device)
        self.data, self.other = self.memory.fill(1), self.plain.fill(2)
        self.memory.to_device()
        self.before = self.device.stats()
        self.mr = self.link.region(self.memory.address, self.memory.size, flags)
        self.plain_mr = self.link.region(self.plain.address, self.plain.size, 0)
        self.came_back([])

    def came_back(self, pages):
        """Since begin() only these pages have left device memory, and rxe has got no alias."""
        if args.expect == "any":
            return
        equal("pages that left device memory", self.memory.in_ram(), list(pages))
        now = self.device.stats()
        if now:
            equal("pages copied to RAM", now.migrated - self.before.migrated, len(pages))
            if now.bar_pages:
                equal("pages of the BAR given up", self.before.bar_live - now.bar_live, len(pages))
        self.no_alias()

    def no_alias(self):
        now = self.device.stats()
        if now and SOFTWARE:
            equal("calls of get_dma_pfn_for_device()", now.op_calls - self.before.op_calls, 0)

    def used(self, pages=range(NPAGES)):
        """Checks places and counters after the adapter has used these pages."""
        seen = self.show_counters()
        if args.expect == "stay":
            pages = []
        elif args.huge:
            pages = range(NPAGES)
        self.came_back(pages)
        if GPU and args.expect == "stay":
            equal("pages at the peer, not reached", (seen["page_p2p"] > 0, seen["page_p2p_fallbacks"]), (True, 0))
        elif seen and not GPU and not UNPATCHED:
            p2p, fallbacks = seen["page_p2p"], seen["page_p2p_fallbacks"]
            if args.expect == "stay":
                equal("counted at the peer in whole turns, not reached", (p2p > 0, p2p % NPAGES, fallbacks), (True, 0, 0))
            elif args.expect == "ram":
                # Registration counts, too, unless the region is implicit. One fault migrates all of a huge page.
                looked = NPAGES if self.mr.buf else 0
                faulted = 1 if args.huge else len(pages)
                equal("counted at the peer, not reached", (p2p, fallbacks >= looked + faulted), (0, True))

    def show_counters(self):
        """Prints the counters of each memory region on demand, and returns those of the first. rxe has no counters."""
        first = None
        show = subprocess.run(("rdma", "-j", "statistic", "show", "mr"), stdout=subprocess.PIPE)
        for mr in json.loads(show.stdout or "[]"):
            counters = {name: value for name, value in mr.items() if name.startswith("page_")}
            if counters:
                print("#", *(f"{name} {value}" for name, value in counters.items()))
                first = first or counters
        return first

    def rdma(self, opcode, local, remote, pages=range(NPAGES), **options):
        """One operation for each page."""
        for page in pages:
            self.link.rdma(opcode, local, remote, page * PAGE, **options)

    def send(self, local, remote):
        for page in range(NPAGES):
            self.link.send(local, remote, page * PAGE)

    def end(self):
        self.mr.close()
        self.plain_mr.close()

    def test_register(self):
        """Registration moves no page."""
        self.begin()
        self.end()
        self.came_back([])
        equal("data is right", self.memory.map[:] == self.data, True)

    def test_rdma_write(self):
        self.begin()
        self.rdma(op.IBV_WR_RDMA_WRITE, self.plain_mr, self.mr)
        self.used()
        equal("data is right", self.memory.map[:] == self.other, True)
        self.end()

    def test_rdma_read(self):
        self.begin()
        self.rdma(op.IBV_WR_RDMA_READ, self.plain_mr, self.mr)
        self.used()
        equal("data is right", (self.plain.map[:] == self.data, self.memory.map[:] == self.data), (True, True))
        self.end()

    def test_local_write(self):
        """The source of an RDMA WRITE is in device memory."""
        self.begin()
        self.rdma(op.IBV_WR_RDMA_WRITE, self.mr, self.plain_mr)
        self.used()
        equal("data is right", self.plain.map[:] == self.data, True)
        self.end()

    def test_local_read(self):
        self.begin()
        self.rdma(op.IBV_WR_RDMA_READ, self.mr, self.plain_mr)
        self.used()
        equal("data is right", self.memory.map[:] == self.other, True)
        self.end()

    def test_send(self):
        self.begin()
        self.send(self.mr, self.plain_mr)
        self.used()
        equal("data is right", self.plain.map[:] == self.data, True)
        self.end()

    def test_receive(self):
        self.begin()
        self.send(self.plain_mr, self.mr)
        self.used()
        equal("data is right", self.memory.map[:] == self.other, True)
        self.end()

    def test_send_datagram(self):
        """A queue pair of the type UD sends memory on demand, but does not receive into it."""
        if not self.link.odp_caps.ud_odp_caps & ibv_odp_transport_cap_bits.IBV_ODP_SUPPORT_SEND:
            raise Skipped(f"{args.device} sends no datagrams of memory on demand")
        self.link, size = Link(args.device, args.gid, datagrams=True), 512
        self.begin()
        for page in range(NPAGES):
            self.link.send(self.mr, self.plain_mr, page * PAGE, size=size)
        self.used()
        for at in range(0, self.memory.size, PAGE):
            equal("datagram is right", self.plain.map[at + GRH:at + GRH + size] == self.data[at:at + size], True)
        self.end()

    def test_in_flight(self):
        """As many requests at a time as the queue holds. perftest does this, too, but cannot use device memory."""
        self.begin()
        for opcode in op.IBV_WR_RDMA_WRITE, op.IBV_WR_RDMA_READ:
            for first in range(0, NPAGES, DEPTH):
                pages = range(first, min(first + DEPTH, NPAGES))
                for page in pages:
                    self.link.post(opcode, self.plain_mr, self.mr, page * PAGE)
                self.link.wait(len(pages))
            self.used()
            if opcode == op.IBV_WR_RDMA_WRITE:
                self.plain.fill(3)
        equal("data is right", (self.plain.map[:] == self.other, self.memory.map[:] == self.other), (True, True))
        self.end()

    def test_receive_shared(self):
        """As test_receive, with a shared receive queue"""
        if not self.link.odp_caps.rc_odp_caps & ibv_odp_transport_cap_bits.IBV_ODP_SUPPORT_SRQ_RECV:
            raise Skipped(f"{args.device} has no shared receive queues on demand")
        self.link = Link(args.device, args.gid, shared=True)
        self.test_receive()

    def test_atomic(self):
        if not self.link.odp_caps.rc_odp_caps & ibv_odp_transport_cap_bits.IBV_ODP_SUPPORT_ATOMIC:
            raise Skipped(f"{args.device} has no atomic operations on demand")
        self.begin()
        self.rdma(op.IBV_WR_ATOMIC_FETCH_AND_ADD, self.plain_mr, self.mr, size=8, add=1 << 56)
        self.used()
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
        self.used()
        equal("data is right", self.memory.map[:] == self.data, True)
        self.end()

    def test_prefetch_write(self):
        self.prefetch(PREFETCH_WRITE, FLUSH)
        self.used()
        equal("data is right", self.memory.map[:] == self.data, True)
        self.end()

    def test_prefetch_async(self):
        self.prefetch(PREFETCH_WRITE, 0)
        end = limit(60)
        while True:
            try:
                self.used()
                break
            except Failed:
                if time.monotonic() > end:
                    raise
            time.sleep(0.1)
        equal("data is right", self.memory.map[:] == self.data, True)
        self.end()

    def test_prefetch_no_fault(self):
        """A prefetch without faults moves no page. A later read does."""
        self.prefetch(PREFETCH_NO_FAULT, FLUSH)
        self.came_back([])
        self.rdma(op.IBV_WR_RDMA_READ, self.plain_mr, self.mr)
        self.used()
        equal("data is right", self.plain.map[:] == self.data, True)
        self.end()

    def test_some(self):
        """Pages that no request touches stay. Only hardware may ask for other pages of its own accord, and xe migrates whole blocks."""
        self.begin()
        self.rdma(op.IBV_WR_RDMA_READ, self.plain_mr, self.mr, pages=range(3, 8))
        self.used(range(3, 8) if SOFTWARE and not args.xe else sorted({*range(3, 8), *self.memory.in_ram()}))
        self.end()

    def test_again(self):
        """A registered page migrates to device memory again after it was used. The adapter must not use its old place."""
        self.begin()
        self.rdma(op.IBV_WR_RDMA_WRITE, self.plain_mr, self.mr)
        for seed in range(3, 6):
            data = self.memory.fill(seed)
            self.memory.to_device()
            self.before = self.device.stats()
            self.rdma(op.IBV_WR_RDMA_READ, self.plain_mr, self.mr)
            self.used()
            equal("data is right", self.plain.map[:] == data, True)
            other = self.plain.fill(seed + 10)
            self.memory.to_device()
            self.before = self.device.stats()
            self.rdma(op.IBV_WR_RDMA_WRITE, self.plain_mr, self.mr)
            self.used()
            equal("data is right", self.memory.map[:] == other, True)
        self.end()

    def test_fork(self):
        """A page that is shared with a child is copied before a write. The child keeps its data."""
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
        """The memory of both ends is in device memory."""
        self.begin()
        self.plain_mr.close()
        self.plain_mr = self.link.region(self.plain.address, self.plain.size, ODP | P2P)
        self.plain.to_device()
        self.rdma(op.IBV_WR_RDMA_WRITE, self.mr, self.plain_mr)
        self.show_counters()
        if args.expect != "any":
            wanted = [] if args.expect == "stay" else list(range(NPAGES))
            equal("pages in RAM, near end, far end", (self.memory.in_ram(), self.plain.in_ram()), (wanted, wanted))
        self.no_alias()
        equal("data is right", (self.plain.map[:] == self.data, self.memory.map[:] == self.data), (True, True))
        self.end()

    def migrates(self, use):
        """Without the P2P flag pages migrate to RAM, as without the patches. No alias is requested, and nothing is counted."""
        before = self.device.stats()
        use()
        if args.expect != "any":
            equal("pages that are left in device memory", len(self.memory.in_ram()), NPAGES)
        equal("data is right", self.plain.map[:] == self.data, True)
        counters, now = self.show_counters(), self.device.stats()
        if now:
            equal("calls of get_dma_pfn_for_device()", now.op_calls - before.op_calls, 0)
        if counters and not UNPATCHED:
            equal("counted at the peer, not reached", (counters["page_p2p"], counters["page_p2p_fallbacks"]), (0, 0))

    def read(self):
        """Reads all of the memory by its address, because an implicit region begins at address 0."""
        for page in range(NPAGES):
            self.link.rdma(op.IBV_WR_RDMA_READ, self.plain_mr, self.mr, page * PAGE,
                           self.memory.address + page * PAGE - (self.mr.buf or 0))

    def read_prefetched(self):
        self.link.pd.advise_mr(PREFETCH, FLUSH, [SGE(self.memory.address, self.memory.size, self.mr.lkey)])
        self.read()

    def implicit(self, flags):
        if not self.link.odp_caps.general_caps & ibv_odp_general_caps.IBV_ODP_SUPPORT_IMPLICIT:
            raise Skipped(f"{args.device} has no implicit regions")
        self.begin()
        self.mr.close()
        self.mr = MR(self.link.pd, 0, ACCESS | ODP | flags, implicit=True)

    def test_not_asked(self):
        self.begin(ODP)
        self.migrates(self.read)
        self.end()

    def test_not_asked_prefetch(self):
        self.begin(ODP)
        self.migrates(self.read_prefetched)
        self.end()

    def test_not_asked_implicit(self):
        for use in self.read, self.read_prefetched:
            self.implicit(0)
            self.migrates(use)
            self.end()

    def test_implicit(self):
        """A child of an implicit region inherits the P2P flag."""
        for use in self.read, self.read_prefetched:
            self.implicit(P2P)
            use()
            self.used()
            equal("data is right", self.plain.map[:] == self.data, True)
            self.end()

    def test_rereg(self):
        """The P2P flag of an explicit region can only be changed together with its translation. The last flag counts."""
        if SOFTWARE:
            raise Skipped("an adapter in software never asks")
        if UNPATCHED:
            raise Skipped("there is no such flag")
        change, move = ibv_rereg_mr_flags.IBV_REREG_MR_CHANGE_ACCESS, ibv_rereg_mr_flags.IBV_REREG_MR_CHANGE_TRANSLATION
        for old, new in (P2P, 0), (0, P2P):
            self.begin(ODP | old)
            try:
                self.mr.rereg(change, access=ACCESS | ODP | new)
            except PyverbsError:
                pass
            else:
                raise Failed("the flag of a region was changed, and its memory was not looked up anew")
            self.mr.rereg(change | move, addr=self.memory.address, length=self.memory.size, access=ACCESS | ODP | new)
            if new:
                self.read()
                self.used()
                equal("data is right", self.plain.map[:] == self.data, True)
            else:
                self.migrates(self.read)
            self.end()
            self.implicit(old)
            self.mr.rereg(change, access=ACCESS | ODP | new)
            if new:
                self.read()
                self.used()
            else:
                self.migrates(self.read)
            self.end()

    def test_shadow(self):
        """While pages move, each translation of the adapter leads to the present place of the page, or is absent."""
        group = f"/sys/class/infiniband/{args.device}/device/iommu_group/type"
        if SOFTWARE or args.huge:
            raise Skipped("needs the model of a ConnectX, and pages")
        if GPU:
            self.gpu()
        if os.path.exists(group) and "identity" not in open(group).read():
            raise Skipped("an IOMMU translates")
        bar = Bar(self.device.pci, 1) if args.nouveau else Bar(exporter(), 2)
        # 64 bytes are enough to tell pages apart. More would take long on the models.
        door, rng, size = self.door(), random.Random(1), 64
        self.begin()
        seen = {"RAM": 0, "device": 0, "not present": 0}
        for seed in range(3, 23):
            data = bytearray(self.memory.fill(seed))
            self.memory.to_device()

            def move(n):
                """Migrates some pages to RAM, and drops some."""
                for page in rng.sample(range(NPAGES), n):
                    self.memory.map[page * PAGE]
                for page in rng.sample(range(NPAGES), n):
                    self.memory.map.madvise(mmap.MADV_DONTNEED, page * PAGE, PAGE)
                    data[page * PAGE:(page + 1) * PAGE] = bytes(PAGE)

            move(NPAGES // 4)
            for page in rng.sample(range(NPAGES), NPAGES // 2):
                at = page * PAGE
                equal("data is right", door.read(self.mr.rkey, self.memory.address + at, size) == data[at:at + size], True)
            # If one translation is removed, the adapter loses all translations of its block of eight.
            move(1)
            for page, entry in enumerate(entries(self.memory.address, NPAGES)):
                address = door.where(self.mr.rkey, self.memory.address + page * PAGE)
                if address is None:
                    seen["not present"] += 1
                elif entry & PM_PRESENT:
                    seen["RAM"] += 1
                    equal(f"address of page {page} in RAM", hex(address), hex((entry & PM_PFN) * PAGE))
                else:
                    equal(f"page {page} is anywhere", entry & PM_SWAP, PM_SWAP)
                    seen["device"] += 1
                    at = page * PAGE
                    equal(f"{address:#x} is page {page} in the BAR", bar.read(address, size) == data[at:at + size], True)
        print("#", seen)
        equal("pages were seen in RAM, at the peer, not present", [n > 0 for n in seen.values()], [True, args.expect == "stay", True])
        self.end()

    def gpu(self):
        """Returns the back door of the GPU, which loads and stores as a shader would."""
        if not args.nouveau:
            raise Skipped("needs the model of a GP100")
        sys.path.append(os.path.join(os.path.dirname(__file__), "../nouveau"))
        from gpu import Gpu
        try:
            return Gpu(self.device.file)
        except FileNotFoundError as error:
            raise Skipped(str(error)) from error

    def door(self):
        """Returns the back door of the ConnectX, which knows the translations of the adapter."""
        sys.path.append(os.path.join(os.path.dirname(__file__), "../mlx5"))
        from backdoor import Door
        return Door(args.device)

    def take_turns(self, flags):
        """The GPU and the adapter take turns at the same pages. If a page has left device memory, the program moves it back. The
        numbers are a row of the table of `make demo`.
        """
        gpu, door = self.gpu(), self.door()
        self.begin(flags)
        rng, data, turns, size = random.Random(1), bytearray(self.data), 1024, 64
        migrated, wrong = 0, []

        def moved():
            copied, reached = gpu.counters(), door.counters()
            return copied["copied_bytes"], reached["peer_bytes_read"] + reached["peer_bytes_written"]

        before = moved()
        for turn in range(turns):
            page = turn % NPAGES
            at = page * PAGE + turn // NPAGES * size % PAGE
            ping, pong = rng.randbytes(size), rng.randbytes(size)
            if page in self.memory.in_ram():
                migrated += 1
                self.device.migrate(self.memory.address + page * PAGE, 1)
            gpu.store(self.memory.address + at, ping)
            self.link.rdma(op.IBV_WR_RDMA_READ, self.plain_mr, self.mr, at, size=size)
            if self.plain.map[at:at + size] != ping:
                wrong.append(f"turn {turn}: the adapter does not read what the GPU has stored")
            self.plain.map[at:at + size] = pong
            self.link.rdma(op.IBV_WR_RDMA_WRITE, self.plain_mr, self.mr, at, size=size)
            # This READ makes the WRITE arrive.
            self.link.rdma(op.IBV_WR_RDMA_READ, self.plain_mr, self.mr, at, size=8)
            if gpu.load(self.memory.address + at, size) != pong:
                wrong.append(f"turn {turn}: the GPU does not load what the adapter has written")
            data[at:at + size] = pong
        self.show_counters()
        copied, p2p = (now - then for now, then in zip(moved(), before))
        left = len(self.memory.in_ram())
        # Last of all, because a page that the CPU reads leaves device memory.
        if self.memory.map[:] != data:
            wrong.append("the CPU does not see what was written")
        row = {"flag": "yes" if flags & P2P else "no", "turns": turns, "ops": 3 * turns, "p2p": p2p, "pages": NPAGES,
               "vram": NPAGES - left, "migrated": migrated + left, "copied": copied, "data": "WRONG" if wrong else "verified"}
        print("# demo-table", *(f"{name}={value}" for name, value in row.items()))
        for line in wrong[:3]:
            print("#", line)
        wanted = {**row, "data": "verified"}
        if args.expect == "stay" and flags & P2P:
            wanted.update(p2p=turns * (size + size + 8), vram=NPAGES, migrated=0, copied=0)
        elif args.expect != "any":
            wanted.update(p2p=0, vram=0)
            if not args.huge:
                # Each turn migrates a page to RAM, and back to VRAM first, except for the first turn of each page.
                wanted.update(migrated=turns, copied=(2 * turns - NPAGES) * PAGE)
        differ = [name for name in row if row[name] != wanted[name]]
        equal("numbers", {name: row[name] for name in differ}, {name: wanted[name] for name in differ})
        self.end()

    def test_ping_pong(self):
        self.take_turns(ODP | P2P)

    def test_ping_pong_not_asked(self):
        """The same without the P2P flag, as on a kernel without the patches"""
        if args.expect == "ram":
            raise Skipped("ping_pong does not reach the memory either")
        self.take_turns(ODP)

    def test_windows(self):
        """More huge pages than windows in BAR1. Pages without one migrate. Memory with a window that was freed is used again first."""
        if not args.nouveau or args.expect == "any":
            raise Skipped("needs nouveau, and must know where pages are")
        count = 16
        windows = self.device.windows() if args.expect == "stay" else 0
        memory = mmap.mmap(-1, (count + 1) * HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        first = -start % HUGE
        memory.madvise(mmap.MADV_HUGEPAGE)
        plain = Memory(self.device)
        mr = self.link.region(start + first, count * HUGE, ODP | P2P)
        plain_mr = self.link.region(plain.address, plain.size, 0)

        def read(block, seed):
            """Reads a page by the adapter. Returns whether the page stays."""
            at = block * HUGE + 3 * PAGE
            self.link.rdma(op.IBV_WR_RDMA_READ, plain_mr, mr, 0, at)
            stays = not in_ram(start + first + at, 1)
            equal(f"data of block {block} is right", plain.map[:PAGE], bytes((seed, block)) * (PAGE // 2))
            return stays

        def fill(block, seed):
            at = first + block * HUGE
            memory[at + 3 * PAGE:at + 4 * PAGE] = bytes((seed, block)) * (PAGE // 2)
            self.device.migrate(start + at, HUGE // PAGE)
            equal(f"pages of block {block} that did not go to device memory", in_ram(start + at, HUGE // PAGE), [])

        stay = 0
        for block in range(count):
            fill(block, 1)
            stay += read(block, 1)
        # Windows are shared with memory of small pages.
        equal("pages that stay, and windows", (stay > 0, stay <= windows), (windows > 0, True))
        # No block has lost its data, or its window, to a later one.
        for block in range(count):
            read(block, 1)
        for block in range(count):
            memory.madvise(mmap.MADV_DONTNEED, first + block * HUGE, HUGE)
        for block in range(count):
            fill(block, 2)
            equal(f"block {block} stays", read(block, 2), windows > 0)
            memory.madvise(mmap.MADV_DONTNEED, first + block * HUGE, HUGE)
        mr.close()
        plain_mr.close()

    def gpu_goes(self, data):
        """Unbinds the driver of the GPU: the adapter finds the pages in RAM. Binds it again: the pages can move to VRAM again."""
        # nouveau crashes if it is unbound while a file is open: MAINTAINERS-notes/nouveau.md
        self.device.file.close()
        driver, name = "/sys/bus/pci/drivers/nouveau", os.path.basename(self.device.pci)
        with open(f"{driver}/unbind", "w") as unbind:
            unbind.write(name)
        equal("pages in RAM", self.memory.in_ram(), list(range(NPAGES)))
        self.plain.fill(3)
        self.rdma(op.IBV_WR_RDMA_READ, self.plain_mr, self.mr)
        equal("data is right", self.plain.map[:] == data, True)
        with open(f"{driver}/bind", "w") as bind:
            bind.write(name)
        self.memory.device = self.device = device_memory()
        data = self.memory.fill(4)
        self.memory.to_device()
        self.rdma(op.IBV_WR_RDMA_READ, self.plain_mr, self.mr)
        self.came_back([] if args.expect == "stay" else range(NPAGES))
        equal("data is right", self.plain.map[:] == data, True)
        self.end()

    def test_gpu_unbound(self):
        self.gpu()
        self.begin()
        self.rdma(op.IBV_WR_RDMA_WRITE, self.plain_mr, self.mr)
        self.used()
        # Writes that are in flight when the driver is unbound must arrive.
        data = self.plain.fill(5)
        self.rdma(op.IBV_WR_RDMA_WRITE, self.plain_mr, self.mr)
        self.gpu_goes(data)

    def test_killed(self):
        """A process that is killed while GPU and adapter use its memory leaves nothing behind."""
        self.gpu()
        door = self.door()
        before = door.counters()["completions"]
        child = subprocess.Popen((sys.executable, __file__, *sys.argv[1:len(sys.argv) - len(args.test)], "all_at_random"),
                                 stdout=subprocess.DEVNULL)
        end = limit(60)
        while door.counters()["completions"] < before + 20 and child.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        child.kill()
        equal("the process ended by signal", -child.wait(), 9)
        show = subprocess.run(("rdma", "-j", "resource", "show", "mr"), stdout=subprocess.PIPE, check=True)
        equal("regions that it left", [mr for mr in json.loads(show.stdout or "[]") if mr.get("pid") == child.pid], [])
        self.test_rdma_read()

    def test_meanwhile(self):
        """While the adapter writes and reads, pages go to VRAM and back, the process forks, and in the end it unmaps them."""
        if not GPU:
            raise Skipped("needs a GPU")
        self.begin()
        back = Memory(self.device)
        back_mr = self.link.region(back.address, back.size, 0)
        done, wrong, stop = [0], [], threading.Event()

        def use():
            rng = random.Random(1)
            try:
                while not stop.is_set():
                    at = done[0] % NPAGES * PAGE
                    self.plain.map[at:at + PAGE] = rng.randbytes(PAGE)
                    self.link.rdma(op.IBV_WR_RDMA_WRITE, self.plain_mr, self.mr, at)
                    self.link.rdma(op.IBV_WR_RDMA_READ, back_mr, self.mr, at)
                    if back.map[at:at + PAGE] != self.plain.map[at:at + PAGE]:
                        wrong.append(f"page {at // PAGE} is not as it was written")
                    done[0] += 1
            except Failed as error:
                wrong.append(str(error))

        def while_used(turns, act):
            stop.clear()
            user = threading.Thread(target=use)
            user.start()
            for turn in range(turns):
                so_far = done[0]
                act(turn)
                while done[0] < so_far + 2 and user.is_alive():
                    time.sleep(0.001)
            stop.set()
            user.join()

        def move(turn):
            """Moves pages to VRAM, then to RAM, then to VRAM, then forks."""
            if turn % 2 == 0:
                self.device.migrate(self.memory.address, NPAGES)
            elif turn % 4 == 1:
                for page in range(turn % 3, NPAGES, 3):
                    self.memory.map[page * PAGE]
            else:
                child = os.fork()
                if child == 0:
                    os._exit(0)
                os.waitpid(child, 0)

        def unmap(_):
            libc = ctypes.CDLL(None)
            equal("munmap", libc.munmap(ctypes.c_void_p(self.memory.address), ctypes.c_size_t(self.memory.size)), 0)
            # Python must not unmap the memory again.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.memory.map))

        self.rdma(op.IBV_WR_RDMA_WRITE, self.plain_mr, self.mr)
        while_used(40, move)
        self.show_counters()
        print(f"# {done[0]} times written and read")
        equal("what went wrong", wrong, [])
        equal("data is right", self.memory.map[:] == self.plain.map[:], True)
        self.memory.to_device()
        while_used(1, unmap)
        equal("what the adapter was told", wrong, ["status of the completion: 10, not 0"])
        self.end()

    def test_all_at_random(self):
        """CPU, GPU and adapter load and store while pages move and are dropped. Each sees the data that was written last."""
        gpu = self.gpu()
        self.begin()
        rng, data, size = random.Random(1), bytearray(self.data), 64
        seen, late = {}, set()
        for turn in range(1000):
            page = rng.randrange(NPAGES)
            at = page * PAGE + rng.randrange(0, PAGE, size)
            place, new = slice(at, at + size), rng.randbytes(size)
            who, store = rng.choice((("CPU", False), ("CPU", True)) + 3 * (("GPU", False), ("GPU", True), ("adapter", False), ("adapter", True)) +
                                    2 * (("to device", False),) + (("gone", False),))
            where = "RAM" if page in self.memory.in_ram() else "device"
            seen[who, where] = seen.get((who, where), 0) + 1
            if who == "to device":
                self.device.migrate(self.memory.address, NPAGES)
            elif who == "gone":
                self.memory.map.madvise(mmap.MADV_DONTNEED, page * PAGE, PAGE)
                data[page * PAGE:(page + 1) * PAGE] = bytes(PAGE)
            elif who == "CPU":
                equal(f"turn {turn}: the CPU sees it", self.memory.map[place] == data[place], True)
                if store:
                    self.memory.map[place] = data[place] = new
            elif who == "adapter" and store:
                self.plain.map[place] = data[place] = new
                self.link.rdma(op.IBV_WR_RDMA_WRITE, self.plain_mr, self.mr, at, size=size)
                late.add(page)
            else:
                if who == "adapter" or page in late:
                    # This READ makes the WRITE of the adapter arrive.
                    self.link.rdma(op.IBV_WR_RDMA_READ, self.plain_mr, self.mr, at, size=size)
                    equal(f"turn {turn}: the adapter sees it", self.plain.map[place] == data[place], True)
                    late.discard(page)
                if who == "GPU" and store:
                    gpu.store(self.memory.address + at, new)
                    data[place] = new
                elif who == "GPU":
                    equal(f"turn {turn}: the GPU sees it", gpu.load(self.memory.address + at, size) == data[place], True)
            if args.expect == "stay" and who in ("GPU", "adapter") and where == "device":
                equal(f"turn {turn}: page {page} stays", page in self.memory.in_ram(), False)
        self.show_counters()
        print("#", *(f"{who} {where} {n}" for (who, where), n in sorted(seen.items())))
        equal("data is right", self.memory.map[:] == data, True)
        self.end()

    def test_last_write(self):
        """The CPU reads at once after a WRITE. Data that is still on its way to device memory must not be lost."""
        self.begin()
        for page in range(NPAGES):
            # xe migrates all pages together, so they have to go back. For each of many pages this would take long.
            if args.xe and page % max(NPAGES // 16, 1) == 0 and page in self.memory.in_ram():
                self.memory.to_device()
            self.link.rdma(op.IBV_WR_RDMA_WRITE, self.plain_mr, self.mr, page * PAGE)
            at = (page + 1) * PAGE - 8
            equal(f"last word of page {page} is right", self.memory.map[at:at + 8] == self.other[at:at + 8], True)
        self.came_back(range(NPAGES))
        equal("data is right", self.memory.map[:] == self.other, True)
        self.end()

    def test_gpu_fails(self):
        """The copy engine fails. Pages cannot leave VRAM, but the adapter still reaches them. Unbinding the driver loses them."""
        gpu = self.gpu()
        if args.expect != "stay":
            raise Skipped("the adapter does not reach VRAM")
        self.begin()
        self.rdma(op.IBV_WR_RDMA_WRITE, self.plain_mr, self.mr)
        gpu.fail_copy()
        with open("/proc/self/mem", "rb", buffering=0) as memory:
            try:
                os.pread(memory.fileno(), 8, self.memory.address)
            except OSError as error:
                equal("what the CPU gets", errno.errorcode[error.errno], "EIO")
            else:
                raise Failed("the CPU reads what it cannot have")
        self.plain.fill(3)
        self.rdma(op.IBV_WR_RDMA_READ, self.plain_mr, self.mr)
        self.came_back([])
        equal("data is right", self.plain.map[:] == self.other, True)
        self.gpu_goes(bytes(self.memory.size))


def speed():
    """Times READs of device memory by the adapter: in place, and with a migration to RAM by each READ. Prints a table."""
    model = "HMM_P2P_SLOWDOWN" in os.environ
    print("size of a READ, in place, migrating (medians), ratio" + (" (a model: the times are left out)" if model else ""))
    for name, size in ("4 KiB", PAGE), ("64 KiB", 64 << 10), ("2 MiB", HUGE), ("1 GiB", 1 << 30):
        if model and size > HUGE:
            break
        link, device = Link(args.device, args.gid), device_memory()
        if args.nouveau and args.expect == "stay" and size > device.windows() * HUGE:
            print(f"{name}, left out: BAR1 has windows for {device.windows()} huge pages")
            continue
        memory, plain = Memory(device, size), Memory(device, size)
        if size >= HUGE:
            memory.map.madvise(mmap.MADV_HUGEPAGE)
        memory.map[:] = random.Random(size).randbytes(PAGE) * (size // PAGE)
        data = memory.map[-PAGE:]
        plain_mr, turns = link.region(plain.address, size, 0), 3 if model or size > HUGE else 100
        part = min(size, link.context.query_port(1).max_msg_sz)

        def read(mr):
            begin = time.monotonic()
            for at in range(0, size, part):
                link.rdma(op.IBV_WR_RDMA_READ, plain_mr, mr, at, size=part)
            return time.monotonic() - begin

        times = []
        for flags in ODP | P2P, ODP:
            mr, seen = link.region(memory.address, size, flags), []
            for turn in range(turns + 1):
                if turn == 0 or not flags & P2P:
                    memory.to_device()
                seen.append(read(mr))
            # The first READ finds the pages.
            times.append(sorted(seen[1:])[turns // 2])
            if flags & P2P and args.expect == "stay":
                equal("pages that left device memory", memory.in_ram(), [])
            elif not flags & P2P and args.expect != "any":
                equal("pages that are left in device memory", len(memory.in_ram()), size // PAGE)
            equal("data is right", plain.map[-PAGE:] == data, True)
            mr.close()
        plain_mr.close()
        cells = "-, -, -" if model else ", ".join([*(f"{t * 1e6:.1f} us {size / t / 1e9:.2f} GB/s" for t in times), f"{times[1] / times[0]:.1f}"])
        print(f"{name}, {cells}", flush=True)


def main():
    unknown = [test for test in args.test if not hasattr(Tests, f"test_{test}")]
    if unknown:
        parser.error(f"no such test: {' '.join(unknown)}")
    try:
        if os.geteuid():
            raise PermissionError("needs root, to see where pages are")
        device_memory()
        if not Link(args.device, args.gid).odp_caps.general_caps & ibv_odp_general_caps.IBV_ODP_SUPPORT:
            raise OSError(f"{args.device}: no on-demand paging")
    except (OSError, PyverbsError) as error:
        sys.exit(f"device-memory.py: {error}")
    if args.speed:
        try:
            return speed()
        except Failed as error:
            sys.exit(f"device-memory.py: {error}")
    return run_tests(Tests, args.device, args.gid, args.test)


sys.exit(main())
