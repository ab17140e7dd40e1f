# SPDX-License-Identifier: GPL-2.0-only
"""Shared by the tests that use pyverbs: two connected queue pairs, and KTAP."""

import mmap
import os
import subprocess
import time
import traceback

from pyverbs.addr import AH, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.libibverbs_enums import (ibv_access_flags, ibv_qp_create_send_ops_flags, ibv_qp_init_attr_mask, ibv_qp_type,
                                      ibv_send_flags, ibv_wc_status)
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsError
from pyverbs.qp import QP, QPAttr, QPCap, QPEx, QPInitAttr, QPInitAttrEx
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

PAGE = mmap.PAGESIZE
ACCESS = (ibv_access_flags.IBV_ACCESS_LOCAL_WRITE | ibv_access_flags.IBV_ACCESS_REMOTE_READ |
          ibv_access_flags.IBV_ACCESS_REMOTE_WRITE | ibv_access_flags.IBV_ACCESS_REMOTE_ATOMIC)
FLUSH = ibv_access_flags.IBV_ACCESS_FLUSH_GLOBAL | ibv_access_flags.IBV_ACCESS_FLUSH_PERSISTENT
# Debian's rdma-core does not know them yet: access the memory of PCI peers in place, and whether a device can do it
# (rdma-core/*.patch).
IBV_ACCESS_ODP_P2P, IBV_ODP_SUPPORT_P2P = 1 << 21, 1 << 2
QKEY = 0x1234
# Entries of a queue; size of the header that a receiver gets with each datagram.
DEPTH, GRH = 16, 40


class Failed(Exception):
    pass


class Skipped(Exception):
    pass


def limit(seconds):
    """Returns the time at which a wait times out. It is later on a slow machine (scripts/guest/vm.sh)."""
    return time.monotonic() + seconds * int(os.environ.get("HMM_P2P_SLOWDOWN", "4")) // 4


def equal(what, seen, wanted):
    if seen != wanted:
        raise Failed(f"{what}: {seen}, not {wanted}")


def each_failing_allocation():
    """Yields a function that calls its argument while one memory allocation fails: first the first one, then the second one, and
    so on, until none is left. The function returns whether the call succeeds."""
    debugfs, path = "/sys/kernel/debug", "/proc/thread-self/fail-nth"
    if not os.path.exists(path):
        raise Skipped("the kernel has no fault injection")
    subprocess.run(("/guest/spare-dma-debug",), check=True)
    for attr in ("failslab/ignore-gfp-wait", "failslab/verbose", "fail_page_alloc/ignore-gfp-wait", "fail_page_alloc/verbose",
                 "fail_page_alloc/min-order"):
        with open(f"{debugfs}/{attr}", "w") as file:
            file.write("0")
    nth, left, failed = 0, 0, 0

    def try_it(call):
        nonlocal left, failed
        control = os.open(path, os.O_RDWR)
        os.write(control, str(nth).encode())
        try:
            call()
            return True
        except PyverbsError:
            failed += 1
            return False
        finally:
            left = int(os.pread(control, 16, 0))
            os.write(control, b"0")
            os.close(control)

    while left == 0:
        nth += 1
        yield try_it
    print(f"# {nth - 1} allocations, {failed} calls failed")
    if not failed:
        raise Failed("no allocation has failed")


class Link:
    """Two queue pairs of this process, connected to each other. The first one sends requests to the second one."""

    def __init__(self, device, gid, shared=False, datagrams=False, ops=0):
        flush = ops & ibv_qp_create_send_ops_flags.IBV_QP_EX_WITH_FLUSH
        self.context = Context(name=device)
        port = self.context.query_port(1)
        self.odp_caps = self.context.query_device_ex().odp_caps
        self.pd = PD(self.context)
        self.cq = CQ(self.context, 100)
        cap = QPCap(max_send_wr=DEPTH, max_recv_wr=DEPTH, max_send_sge=1, max_recv_sge=1)
        # shared: the queue pairs use a shared receive queue.
        self.srq = SRQ(self.pd, SrqInitAttr(SrqAttr(max_wr=DEPTH))) if shared else None
        kind = ibv_qp_type.IBV_QPT_UD if datagrams else ibv_qp_type.IBV_QPT_RC
        self.qps = []
        for _ in range(2):
            attr = QPAttr(port_num=1)
            attr.qp_access_flags, attr.qkey = ACCESS, QKEY
            if ops:
                attr.qp_access_flags |= FLUSH if flush else 0
                mask = ibv_qp_init_attr_mask.IBV_QP_INIT_ATTR_PD | ibv_qp_init_attr_mask.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
                init = QPInitAttrEx(qp_type=kind, scq=self.cq, rcq=self.cq, cap=cap, pd=self.pd, comp_mask=mask,
                                    send_ops_flags=ops)
                self.qps.append(QPEx(self.context, init, attr))
            else:
                self.qps.append(QP(self.pd, QPInitAttr(qp_type=kind, scq=self.cq, rcq=self.cq, srq=self.srq, cap=cap), attr))
        way = AHAttr(port_num=1, dlid=port.lid, is_global=1, gr=GlobalRoute(dgid=self.context.query_gid(1, gid), sgid_index=gid))
        self.ah = AH(self.pd, attr=way) if datagrams else None
        if datagrams:
            return
        for qp, peer in zip(self.qps, reversed(self.qps)):
            attr = QPAttr(port_num=1)
            attr.qp_access_flags = ACCESS | (FLUSH if flush else 0)
            attr.path_mtu = port.active_mtu
            attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
            attr.min_rnr_timer, attr.rnr_retry, attr.retry_cnt = 12, 7, 7
            # One second, because the emulated machine may be slow. The flush of a large region takes longer.
            attr.timeout = 22 if flush else 18
            attr.ah_attr = way
            attr.dest_qp_num = peer.qp_num
            attr.rq_psn = attr.sq_psn = 1
            qp.to_rts(attr)

    def region(self, address, size, flags=ibv_access_flags.IBV_ACCESS_ON_DEMAND):
        return MR(self.pd, size, ACCESS | flags, address=address)

    def request(self, write, *args):
        """Sends a request that only the queue pairs with ops know: write is a method of QPEx."""
        qp = self.qps[0]
        qp.wr_start()
        qp.wr_id, qp.wr_flags = 1, ibv_send_flags.IBV_SEND_SIGNALED
        write(qp, *args)
        qp.wr_complete()
        self.wait(1)

    def wait(self, completions):
        """Waits for this many completions, of both ends. Each must be a success."""
        end = limit(60)
        while completions:
            count, done = self.cq.poll(completions)
            for wc in done:
                equal("status of the completion", wc.status, ibv_wc_status.IBV_WC_SUCCESS)
            completions -= count
            if time.monotonic() > end:
                raise Failed(f"{completions} completions did not come")

    def post(self, opcode, local, remote, at=0, remote_at=None, size=PAGE, add=None):
        """Posts a READ, a WRITE or an atomic operation between these places of two memory regions."""
        remote_at = at if remote_at is None else remote_at
        wr = SendWR(opcode=opcode, num_sge=1, sg=[SGE(local.buf + at, size, local.lkey)],
                    send_flags=ibv_send_flags.IBV_SEND_SIGNALED)
        if add is None:
            wr.set_wr_rdma(remote.rkey, remote.buf + remote_at)
        else:
            wr.set_wr_atomic(remote.rkey, remote.buf + remote_at, add)
        self.qps[0].post_send(wr)

    def rdma(self, *args, **options):
        self.post(*args, **options)
        self.wait(1)

    def send(self, local, remote, at=0, remote_at=None, size=PAGE):
        remote_at = at if remote_at is None else remote_at
        room = size + (GRH if self.ah else 0)
        (self.srq or self.qps[1]).post_recv(RecvWR(num_sge=1, sg=[SGE(remote.buf + remote_at, room, remote.lkey)]))
        wr = SendWR(num_sge=1, sg=[SGE(local.buf + at, size, local.lkey)], send_flags=ibv_send_flags.IBV_SEND_SIGNALED)
        if self.ah:
            wr.set_wr_ud(self.ah, self.qps[1].qp_num, QKEY)
        self.qps[0].post_send(wr)
        self.wait(2)


def run_tests(kind, device, gid, only=()):
    """Runs all methods test_* of a class, or those in `only`. Each gets a new object, because a queue pair in error would fail all
    later tests.
    """
    names = [f"test_{name}" for name in only] or [name for name in vars(kind) if name.startswith("test_")]
    print("KTAP version 1")
    print(f"1..{len(names)}")
    failed = 0
    for number, name in enumerate(names, 1):
        result, reason = "ok", ""
        try:
            getattr(kind(Link(device, int(gid))), name)()
        except Skipped as skipped:
            reason = f" # SKIP {skipped}"
        except Exception as error:
            failed = 1
            result = "not ok"
            for line in [str(error)] if isinstance(error, Failed) else traceback.format_exc().splitlines():
                print("#", line)
        print(f"{result} {number} {name.removeprefix('test_')}{reason}", flush=True)
    return failed
