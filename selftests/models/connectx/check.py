#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""check.py MODEL KERNEL-TREE [SEED [SECONDS]]: is the model fit to judge a driver? Prints KTAP.

Acts as QEMU and as a driver that breaks rules, and checks that the model notices. The last case sends random data (SEED,
for SECONDS). Whatever it sends, the model must answer, and must end in a regular way.
"""

import mmap
import os
import re
import struct
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "vfio-user"))
import client
from client import CONFIG, SIZE

BAR0, DOOR = 0, 4
CMDQ, BOX, BUFFERS = 0x1000, 0x10000, 0x100000
NOWHERE = 0x40000000
BUSY, DONE, FAILED = 1, 2, 3
# Registers of the back door
FAIL, PLAIN, FAIL_STATUS = 0x18, 0x24, 0x28


class Layouts:
    """The layouts struct mlx5_ifc_*_bits. Each byte in them stands for one bit"""

    def __init__(self, path):
        with open(path) as header:
            text = re.sub(r"/\*.*?\*/", "", header.read(), flags=re.S)
        self.bodies = {m[2]: (m[1], m[3]) for m in re.finditer(r"^(struct|union) mlx5_ifc_(\w+)_bits \{(.*?)^\};", text, re.S | re.M)}
        self.cache = {}

    def fields(self, name):
        """{field: (offset, size)}, and the size of the layout, in bits"""
        if name not in self.cache:
            kind, body = self.bodies[name]
            at, size, out = 0, 0, {}
            for m in re.finditer(r"(?:u8|(?:struct|union) mlx5_ifc_(\w+)_bits)\s+(\w+)((?:\[\w*\])*);", body):
                n = 1
                for dim in re.findall(r"\[(\w*)\]", m[3]):
                    n *= int(dim or "0", 0)
                inner, width = self.fields(m[1]) if m[1] else ({}, 1)
                out[m[2]] = at, n * width
                out.update({f"{m[2]}.{k}": (at + o, w) for k, (o, w) in inner.items()})
                size = max(size, at + n * width)
                if kind == "struct":
                    at += n * width
            self.cache[name] = out, size
        return self.cache[name]

    def pack(self, name, **values):
        fields, size = self.fields(name)
        number = 0
        for field, value in values.items():
            offset, width = fields[field.replace("__", ".")]
            number |= (value & (1 << width) - 1) << (size - offset - width)
        return number.to_bytes(size // 8, "big")

    def get(self, name, data, field):
        offset, width = self.fields(name)[0][field]
        return int.from_bytes(data, "big") >> (len(data) * 8 - offset - width) & (1 << width) - 1

    def opcode(self, name):
        return self.opcodes[name]


class Driver(client.Client):
    def __init__(self, model, ifc, bus_master=True, memory=False, seed=1, peer=None, ats=False):
        super().__init__([model, "-s", str(seed)] + ["-m"] * memory + ["-a"] * ats + ["-p", peer] * bool(peer), bus_master)
        self.ifc, self.token, self.memory, self.taken = ifc, 1, memory, 0
        self.write(BAR0, 0x10, struct.pack(">I", 0))
        self.write(BAR0, 0x14, struct.pack(">I", CMDQ))

    def boxes(self, at, data):
        """Writes a chain of mailboxes with this data. Returns its address, or 0 if there is no data"""
        blocks = [data[i:i + 512] for i in range(0, len(data), 512)]
        for i, block in enumerate(blocks):
            here = at + i * 1024
            after = here + 1024 if i + 1 < len(blocks) else 0
            self.ram[here:here + 576] = block.ljust(512, b"\0") + bytes(48) + struct.pack(">QIBBBB", after, i, 0, self.token, 0, 0)
        return at if blocks else 0

    def execute(self, message, outlen=1024):
        """Executes a command. Returns the status of its delivery, the status of the command, and its output"""
        out_at = self.start(message, outlen)
        slot = self.ram[CMDQ:CMDQ + 64]
        assert not slot[63] & 1, "the command did not end"
        out = slot[32:48]
        for at in range(out_at, out_at + -(-max(outlen - 16, 0) // 512) * 1024, 1024):
            out += self.ram[at:at + 512]
        return slot[63] >> 1, out[0], out[:outlen]

    def start(self, message, outlen):
        """Starts a command. Returns the address of its output mailboxes"""
        self.token = self.token % 255 + 1
        in_at, out_at = self.boxes(BOX, message[16:]), self.boxes(BOX + 0x40000, bytes(max(outlen - 16, 0)))
        self.ram[CMDQ:CMDQ + 64] = (struct.pack(">BxxxIQ", 7, len(message), in_at) + message[:16].ljust(16, b"\0") + bytes(16) +
                                    struct.pack(">QIBBBB", out_at, outlen, self.token, 0, 0, 1))
        self.write(BAR0, 0x18, struct.pack(">I", 1))
        return out_at

    def command(self, layout, op, tail=b"", **values):
        delivery, status, out = self.execute(self.ifc.pack(layout + "_in", opcode=op, **values) + tail)
        assert delivery == 0 and status == 0, f"{layout}: {delivery:#x}, {status:#x}"
        return out

    def mkey(self, **mkc):
        """Creates an mkey with the MTTs ptag. Returns its key"""
        mtts = b"".join(struct.pack(">Q", tag) for tag in mkc.pop("ptag", []))
        values = {f"memory_key_mkey_entry__{k}": v for k, v in {"lr": 1, "rr": 1, "rw": 1, **mkc}.items()}
        out = self.command("create_mkey", 0x200, mtts, pg_access=1, translations_octword_actual_size=len(mtts) // 16,
                           memory_key_mkey_entry__translations_octword_size=len(mtts) // 16, **values)
        return self.ifc.get("create_mkey_out", out[:16], "mkey_index") << 8

    def objects(self):
        """Creates an event queue, a completion queue, an mkey of each kind and two connected QPs. Returns the keys"""
        if self.memory:
            head = struct.pack(">HHHHQ", 0x109, 0, 0, 2 << 1, 0)
            assert self.execute((head + self.ifc.pack("odp_cap", mem_page_fault=1)).ljust(0x1010, b"\0"))[:2] == (0, 0)
        page = struct.pack(">Q", 0x300000)
        self.ram[0x30003f:0x301000:64] = b"\1" * 64
        self.command("create_eq", 0x301, page, eq_context_entry__log_eq_size=6, event_bitmask=(1 << 64) - 1 - (1 << 0xa) << 192)
        self.command("create_cq", 0x400, struct.pack(">Q", 0x301000), cq_context__log_cq_size=6,
                     cq_context__c_eqn_or_apu_element=1, cq_context__dbr_addr=0x302000)
        self.write(BAR0, 0x10040, struct.pack(">I", 1 << 24))
        keys = [self.mkey(access_mode_1_0=0, length64=1, lw=1, a=1, pd=1),
                self.mkey(access_mode_1_0=1, log_page_size=12, len=0x4000, lw=1, a=1, pd=1, umr_en=1, ptag=[0x200003, 0x201003, 0, 0x202001] + [0] * 12),
                self.mkey(access_mode_1_0=3, log_page_size=12, length64=1, lw=1, a=1, pd=1, umr_en=1,
                          ptag=[0x1100, 0, 0x200, 0, 0x1200, 0, 0x1000, 0x200000]),
                self.mkey(access_mode_1_0=2, length64=1, lw=1, a=1, pd=1, umr_en=1, ptag=[8 << 32 | 0x1100, 0, 0x1000 << 32 | 0x1000, 0x200000])]
        for n, peer in (0x40, 0x41), (0x41, 0x40):
            at = 0x303000 + (n & 1) * 0x1000
            self.command("create_qp", 0x500, struct.pack(">Q", at), qpc__log_sq_size=4, qpc__log_rq_size=4, qpc__cqn_snd=0x80,
                         qpc__cqn_rcv=0x80, qpc__dbr_addr=0x302040 + (n & 1) * 64, qpc__pd=1)
            # Fill the receive queue. It has 16 WQEs of 16 bytes.
            self.ram[at:at + 256] = struct.pack(">IIQ", 0x1000, keys[0], 0x203000) * 16
            dbr = 0x302040 + (n & 1) * 64
            self.ram[dbr:dbr + 4] = struct.pack(">I", 16)
            self.command("rst2init_qp", 0x502, qpn=n, qpc__pd=1, qpc__rre=1, qpc__rwe=1, qpc__rae=1)
            self.command("init2rtr_qp", 0x503, qpn=n, qpc__remote_qpn=peer)
            self.command("rtr2rts_qp", 0x504, qpn=n, qpc__rnr_retry=1)
        return keys

    def send(self, qpn, wqe, index):
        """Posts a WQE at this index of the send queue, which has 16 blocks. Returns the next index"""
        at = 0x303000 + (qpn & 1) * 0x1000 + 256
        for i in range(0, len(wqe), 64):
            here = at + (index + i // 64) % 16 * 64
            self.ram[here:here + 64] = wqe[i:i + 64].ljust(64, b"\0")
        index += -(-len(wqe) // 64)
        dbr = 0x302044 + (qpn & 1) * 64
        self.ram[dbr:dbr + 4] = struct.pack(">I", index & 0xffff)
        self.write(BAR0, 0x10800, struct.pack(">II", 0, qpn << 8))
        return index

    def events(self):
        """Returns the page faults that were reported since the last call"""
        found = []
        while True:
            eqe = self.ram[0x300000 + self.taken % 64 * 64:][:64]
            if eqe[63] != self.taken // 64 % 2:
                break
            self.taken += 1
            if eqe[1] == 0xc:
                found.append(eqe)
        self.write(BAR0, 0x10040, struct.pack(">I", 1 << 24 | self.taken))
        return found

    def resume(self, eqe, error=0):
        if self.memory:
            high, low = struct.unpack(">HI", eqe[38:44])
            info = {"mem_page_fault_info__fault_token_47_32": high, "mem_page_fault_info__fault_token_31_0": low,
                    "mem_page_fault_info__error": error}
        else:
            token, = struct.unpack(">I", eqe[56:60] if eqe[3] == 1 else eqe[44:48])
            info = {"trans_page_fault_info__fault_token": token & 0xffffff, "trans_page_fault_info__error": error}
        self.command("page_fault_resume", 0x204, **{f"page_fault_info__{k}": v for k, v in info.items()})

    def umr(self, key, mtts, index, qpn=0x40):
        """Posts a UMR that writes the first eight MTTs and has no completion. Returns the next index"""
        return self.send(qpn, struct.pack(">IIBxxBI", 0x25, qpn << 8 | 12, 0, 0, key) + struct.pack(">BxxxHHQI28x", 0x90, 4, 0, 0, 0) +
                         bytes(64) + struct.pack(">8Q", *mtts), index)

    def plain(self):
        self.write(DOOR, PLAIN, struct.pack("<I", 1))

    def wait(self):
        """Waits until the access by the back door has ended. Returns its status"""
        for _ in range(6000):
            status, = struct.unpack("<I", self.read(DOOR, 0x14))
            if status != BUSY:
                return status
            time.sleep(0.01)
        raise AssertionError("still busy")

    def door(self, op, key, va, size):
        """Starts an access by the back door. Returns its status"""
        self.write(DOOR, 0, struct.pack("<I", key))
        self.write(DOOR, 8, struct.pack("<Q", va))
        self.write(DOOR, 16, struct.pack("<I", size))
        self.write(DOOR, 4, struct.pack("<I", op))
        return struct.unpack("<I", self.read(DOOR, 0x14))[0]


def verdict(driver, code, **counters):
    client.verdict(driver, code, ("iommu_faults", "bad_commands", "bad_umrs", "violations"), **counters)


def case_good(new, random):
    """The model finds no error of a correct driver"""
    d = new()
    d.command("enable_hca", 0x104)
    d.ram[0x200000:0x200008] = b"original"
    key = d.mkey(access_mode_1_0=1, log_page_size=12, len=0x1000, ptag=[0x200003, 0])
    assert d.door(1, key, 0, 8) == DONE
    assert d.read(DOOR, 0x1000, 8) == b"original"
    d.write(DOOR, 0x1000, b"replaced")
    assert d.door(2, key, 0, 8) == DONE
    assert d.ram[0x200000:0x200008] == b"replaced"
    d.command("destroy_mkey", 0x202, mkey_index=key >> 8)
    d.command("teardown_hca", 0x103)
    verdict(d, 0)


def case_rights(new, random):
    """Writes to a read-only page, and accesses with a free, short or wrong mkey, fail. They are no error of the driver"""
    d = new()
    key = d.mkey(access_mode_1_0=1, log_page_size=12, len=0x1000, ptag=[0x200001, 0])
    assert d.door(1, key, 0, 8) == DONE
    assert d.door(2, key, 0, 8) == FAILED
    assert d.door(1, key, 0xffc, 8) == FAILED
    assert d.door(1, key + 1, 0, 8) == FAILED
    key = d.mkey(access_mode_1_0=1, log_page_size=12, len=0x1000, free=1, ptag=[0x200003, 0])
    assert d.door(1, key, 0, 8) == FAILED
    verdict(d, 0)


def case_rights_below(new, random):
    """Rights of an mkey behind another one: behind a KSM the access stays remote, behind a KLM it is local. Local reads need a right"""
    d = new()
    page = {"access_mode_1_0": 1, "log_page_size": 12, "len": 0x1000, "ptag": [0x200003, 0], "lw": 1}
    for mode, rights, read, write in ((3, {"rr": 0}, FAILED, DONE), (3, {"rw": 0}, DONE, FAILED), (3, {"lr": 0, "lw": 0}, DONE, DONE),
                                      (2, {"rr": 0, "rw": 0}, DONE, DONE), (2, {"lr": 0}, FAILED, DONE), (2, {"lw": 0}, DONE, FAILED)):
        key = d.mkey(**{**page, **rights})
        above = d.mkey(access_mode_1_0=mode, log_page_size=12, length64=1, ptag=[key if mode == 3 else 0x1000 << 32 | key, 0])
        assert (d.door(1, above, 0, 8), d.door(2, above, 0, 8)) == (read, write), (mode, rights)
    keys = d.objects()
    deaf = d.mkey(**{**page, "lr": 0, "pd": 1})
    d.send(0x40, struct.pack(">IIBxxBI", 8, 0x40 << 8 | 3, 0, 8, 0) + struct.pack(">QII", 0x200200, keys[0], 0) + struct.pack(">IIQ", 8, deaf, 0), 0)
    assert d.ram[0x30103f] >> 4 == 13, "a local read without the right to do so"
    verdict(d, 0)


def case_in_vain(new, random):
    """It is a violation to resume a page fault 17 times without the page, but not if the page was present for a while each time"""
    for memory in False, True:
        d = new(memory=memory)
        keys = d.objects()
        d.plain()
        assert d.door(1, keys[1], 0x2000, 8) == BUSY
        for n in range(17):
            faults = d.events()
            assert len(faults) == 1, (n, faults)
            d.resume(faults[0])
        assert d.wait() == FAILED and not d.events()
        verdict(d, 1, violations=1)
        d = new(memory=memory)
        keys = d.objects()
        d.plain()
        there, gone = [0x200003, 0x201003, 0x202003, 0x202001, 0, 0, 0, 0], [0x200003, 0x201003, 0, 0x202001, 0, 0, 0, 0]
        assert d.door(1, keys[1], 0x2000, 8) == BUSY
        index = 0
        for n in range(40):
            faults = d.events()
            assert len(faults) == 1, (n, faults)
            index = d.umr(keys[1], gone, d.umr(keys[1], there, index))
            d.resume(faults[0])
        d.umr(keys[1], there, index)
        d.resume(d.events()[0])
        assert d.wait() == DONE
        verdict(d, 0)


def case_resumed_twice(new, random):
    """The driver may resume each part of a page fault with an error, but only one part without"""
    for memory in False, True:
        for first, second, violations in (0, 0, 1), (1, 0, 0), (0, 1, 0):
            d = new(memory=memory)
            keys = d.objects()
            d.plain()
            assert d.door(1, keys[1], 0x2000, 8) == BUSY
            eqe, = d.events()
            d.umr(keys[1], [0x200003, 0x201003, 0x202003, 0x202001, 0, 0, 0, 0], 0)
            d.resume(eqe, first)
            d.resume(eqe, second)
            assert d.wait() == (FAILED if first else DONE)
            verdict(d, violations, violations=violations)


def case_moods(new, random):
    """Prefetch, page faults in parts and other lengths occur at random, and are legal. They do not occur after PLAIN was set"""
    for plain in False, True:
        d = new(memory=True, seed=random.getrandbits(64))
        key = d.mkey(access_mode_1_0=1, log_page_size=12, len=0x10000, ptag=[0] * 16)
        d.objects()
        if plain:
            d.plain()
        seen = set()
        for _ in range(300):
            va, size = random.randrange(0, 0x8000), random.randrange(1, 0x8000)
            assert d.door(1, key, va, size) == BUSY
            faults = d.events()
            parts = [(struct.unpack(">I", e[44:48])[0] >> 12, struct.unpack(">Q", e[52:60])[0]) for e in faults]
            before, after = ([struct.unpack(">H", e[at:at + 2])[0] for e in faults] for at in (36, 34))
            assert [e[32] >> 7 for e in faults] == [0] * (len(faults) - 1) + [1], "the last one, and no other, is the last"
            assert len({e[38:44] for e in faults}) == 1, "one token"
            assert parts[0][1] == va & ~4095 and all(n for n, _ in parts), (va, parts)
            pages = (size + (va & 4095) + 4095) >> 12
            total = sum(n for n, _ in parts)
            assert max((at + (n << 12) - (va & ~4095)) >> 12 for n, at in parts) <= pages, (va, size, parts)
            seen |= {("parts", len(parts)), ("all", total >= pages), ("before", any(before)), ("after", any(after))}
            d.resume(faults[-1], 1)
            assert d.wait() == FAILED
        want = {("parts", 1), ("all", True), ("before", False), ("after", False)}
        assert seen == (want if plain else want | {("parts", 2), ("all", False), ("before", True), ("after", True)}), seen
        verdict(d, 0)
    d = new(seed=random.getrandbits(64))
    keys = d.objects()
    seen = set()
    for _ in range(200):
        assert d.door(1, keys[1], 0x1000, 0x2000) == BUSY
        eqe, = d.events()
        seen.add(struct.unpack(">I", eqe[44:48])[0])
        d.resume(eqe, 1)
    assert seen == {0, 0x2000}, seen
    verdict(d, 0)


def case_late(new, random):
    """Receiver not ready: some accesses continue later than their page fault is resumed. The response of some READs is sent again"""
    d = new(seed=random.getrandbits(64))
    keys = d.objects()
    there, gone = [0x200003, 0x201003, 0x202003, 0x202001, 0, 0, 0, 0], [0x200003, 0x201003, 0, 0x202001, 0, 0, 0, 0]
    late, again, index, other = set(), set(), 0, 0
    for n in range(60):
        d.ram[0x210000:0x212000] = b"1" * 0x2000
        d.ram[0x302000:0x302004] = struct.pack(">I", n)
        index = d.umr(keys[1], gone, index)
        index = d.send(0x40, struct.pack(">IIBxxBI", 0x10, 0x40 << 8 | 3, 0, 8, 0) + struct.pack(">QII", 0x210000, keys[0], 0) +
                       struct.pack(">IIQ", 0x2000, keys[1], 0x1000), index)
        faults = []
        while not faults:
            faults = d.events()
        d.ram[0x210000:0x212000] = b"2" * 0x2000
        # On the other QP, because this one waits for the READ.
        other = d.umr(keys[1], there, other, 0x41)
        d.resume(faults[0])
        cqe = 0x301000 + n % 64 * 64
        late.add(d.ram[cqe + 63] & 1 == n // 64 % 2 and d.ram[cqe + 56] == 0x10)
        while not (d.ram[cqe + 63] & 1 == n // 64 % 2 and d.ram[cqe + 56] == 0x10):
            time.sleep(0.001)
            # If the UMR is slow, the page is still absent and faults again.
            for eqe in d.events():
                d.resume(eqe)
        assert d.ram[0x202000:0x203000] == b"2" * 0x1000
        again.add(d.ram[0x201000:0x202000] != b"1" * 0x1000)
    assert late == again == {False, True}, (late, again)
    verdict(d, 0)


def case_far(new, random):
    """The device reads the BAR of another model at once, and its writes arrive late. Where there is no BAR, accesses fail"""
    far = bytearray(random.randbytes(0x3000))
    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/peer"
        threading.Thread(target=client.PeerEnd(path).answer, args=(NOWHERE, far), daemon=True).start()
        d = new(peer=path)
        key = d.mkey(access_mode_1_0=1, log_page_size=12, len=0x4000, ptag=[NOWHERE + (page << 12) | 3 for page in range(3)] + [0x200003])
        assert d.door(1, key, 0x800, 0x3000) == DONE
        assert b"".join(d.read(DOOR, 0x1000 + at, 0x800) for at in range(0, 0x3000, 0x800)) == far[0x800:] + d.ram[0x200000:0x200800]
        old, data = bytes(far[:0x1800]), random.randbytes(0x1800)
        for at in range(0, len(data), 0x800):
            d.write(DOOR, 0x1000 + at, data[at:at + 0x800])
        begin = time.monotonic()
        assert d.door(2, key, 0, len(data)) == DONE
        late = far[:0x1800] == old
        assert late or time.monotonic() > begin + 0.04, "it arrived at once"
        assert d.door(1, key, 0x2000, 8) == DONE and far[:0x1800] == data, "a read did not push it"
        _, counters, _ = d.end()
        assert (counters["peer_bytes_read"], counters["peer_bytes_written"]) == (0x2808, 0x1800), counters
        for nobody in path, folder + "/nobody":
            d = new(peer=nobody)
            key = d.mkey(access_mode_1_0=1, log_page_size=12, len=0x1000, ptag=[NOWHERE + 0x3000 | 3, 0])
            assert d.door(1, key, 0, 8) == d.door(2, key, 0, 8) == FAILED
            verdict(d, 1, violations=1, iommu_faults=2)


def case_posted(new, random):
    """Writes to a peer arrive late: when the device reads the peer, when the translation is removed, or after a while"""
    d = new()
    fd = os.memfd_create("peer")
    os.ftruncate(fd, 0x2000)
    with mmap.mmap(fd, 0x2000) as peer:
        d.dma_map(NOWHERE, 0x2000, fd=fd)
        make = lambda: d.mkey(access_mode_1_0=1, log_page_size=12, len=0x2000, ptag=[NOWHERE | 3, (NOWHERE + 0x1000) | 3])
        key = make()

        def write():
            """Only a read that is early enough can show that the write is late."""
            for _ in range(200):
                data = random.randbytes(8)
                d.write(DOOR, 0x1000, data)
                begin = time.monotonic()
                assert d.door(2, key, 0, 8) == DONE
                late = peer[:8] != data
                if time.monotonic() < begin + 0.04:
                    assert late, "it arrived at once"
                    return data
            raise AssertionError("too slow to see anything")

        data = write()
        assert d.door(1, key, 0x1000, 8) == DONE and peer[:8] == data, "a read did not push it"
        data = write()
        d.command("destroy_mkey", 0x202, mkey_index=key >> 8)
        assert peer[:8] == data, "the translation went, and it had not arrived"
        key = make()
        data = write()
        while peer[:8] != data:
            time.sleep(0.01)
        d.command("destroy_mkey", 0x202, mkey_index=key >> 8)
        key = d.mkey(access_mode_1_0=0, length64=1)
        # Only if it is quick enough, the last write is still under way.
        for tries in range(1, 201):
            begin = time.monotonic()
            assert d.door(2, key, NOWHERE + 0x1000, 8) == DONE
            d.dma_unmap(NOWHERE, 0x2000)
            if time.monotonic() < begin + 0.04:
                break
            d.dma_map(NOWHERE, 0x2000, fd=fd)
    os.close(fd)
    rc, counters, err = d.end()
    assert rc == 1 and 0 < counters["violations"] <= tries, err
    assert not any(counters[key] for key in ("iommu_faults", "bad_commands", "bad_umrs")), err


def case_ksm_leads_nowhere(new, random):
    """Destroying an mkey while KSMs lead to it is a violation. In the right order it is none"""
    for first, second, violations in (1, 2, 1), (2, 1, 0):
        d = new()
        keys = d.objects()
        d.command("destroy_mkey", 0x202, mkey_index=keys[first] >> 8)
        d.command("destroy_mkey", 0x202, mkey_index=keys[second] >> 8)
        verdict(d, violations, violations=violations)


def case_made_to_fail(new, random):
    """The selected command fails, and the requested number of later ones, with the requested status"""
    d = new()
    for status, more in (0, 0), (0xf, 2):
        d.write(DOOR, FAIL_STATUS, struct.pack("<I", status | more << 16))
        d.write(DOOR, FAIL, struct.pack("<I", 0x800 | 2 << 16))
        d.command("alloc_pd", 0x800)
        for _ in range(1 + more):
            assert d.execute(d.ifc.pack("alloc_pd_in", opcode=0x800), 16)[:2] == (0, status or 1)
        d.command("alloc_pd", 0x800)
    verdict(d, 0)


def case_queue_pairs(new, random):
    """A WRITE from one QP to the other, with a completion"""
    d = new()
    keys = d.objects()
    d.ram[0x200100:0x200108] = b"payload!"
    d.send(0x40, struct.pack(">IIBxxBI", 8, 0x40 << 8 | 3, 0, 8, 0) + struct.pack(">QII", 0x200200, keys[0], 0) +
           struct.pack(">IIQ", 8, keys[1], 0x100), 0)
    assert d.ram[0x200200:0x200208] == b"payload!"
    cqe = d.ram[0x301000:0x301040]
    assert cqe[63] == 0 and struct.unpack(">I", cqe[56:60])[0] == 8 << 24 | 0x40, cqe.hex()
    verdict(d, 0)


def case_iommu_fault(new, random):
    d = new()
    key = d.mkey(access_mode_1_0=0, length64=1)
    assert d.door(1, key, NOWHERE, 8) == FAILED
    verdict(d, 1, iommu_faults=1)


def case_read_only(new, random):
    """A write to memory that is mapped read-only"""
    d = new()
    d.dma_map(NOWHERE, 0x1000, prot=1)
    key = d.mkey(access_mode_1_0=0, length64=1)
    assert d.door(1, key, NOWHERE, 8) == DONE
    assert d.door(2, key, NOWHERE, 8) == FAILED
    verdict(d, 1, iommu_faults=1)


def case_across_the_end(new, random):
    """The access begins in mapped memory and ends behind it"""
    d = new()
    key = d.mkey(access_mode_1_0=0, length64=1)
    assert d.door(1, key, SIZE - 4, 8) == FAILED
    verdict(d, 1, iommu_faults=1)


def case_mtt_nowhere(new, random):
    d = new()
    d.mkey(access_mode_1_0=1, log_page_size=12, len=0x2000, ptag=[0x200003, NOWHERE | 3])
    verdict(d, 1, violations=1)


def case_unmapped_in_use(new, random):
    d = new()
    d.dma_map(NOWHERE, 0x2000)
    d.mkey(access_mode_1_0=1, log_page_size=12, len=0x2000, ptag=[NOWHERE | 3, (NOWHERE + 0x1000) | 3])
    d.dma_unmap(NOWHERE, 0x2000)
    verdict(d, 1, violations=1)


def case_unmapped_behind_end(new, random):
    """An MTT behind the end of an mkey is not in use"""
    d = new()
    d.dma_map(NOWHERE, 0x2000)
    d.mkey(access_mode_1_0=1, log_page_size=12, start_addr=0xfff, len=1, ptag=[0x200003, NOWHERE | 3])
    d.dma_unmap(NOWHERE, 0x1000)
    d.mkey(access_mode_1_0=1, log_page_size=12, start_addr=0xfff, len=2, ptag=[0x200003, (NOWHERE + 0x1000) | 3])
    d.dma_unmap(NOWHERE + 0x1000, 0x1000)
    verdict(d, 1, violations=1)


def case_unmapped_after_destroy(new, random):
    """The same in the right order is no violation"""
    d = new()
    d.dma_map(NOWHERE, 0x2000)
    key = d.mkey(access_mode_1_0=1, log_page_size=12, len=0x2000, ptag=[NOWHERE | 3, (NOWHERE + 0x1000) | 3])
    d.command("destroy_mkey", 0x202, mkey_index=key >> 8)
    d.dma_unmap(NOWHERE, 0x2000)
    verdict(d, 0)


def case_ats(new, random):
    """A translation is requested once, and again after an invalidation, but not if the mkey has no ATS or ATS is not enabled.
    An adapter without ATS refuses an mkey with ATS"""
    d = new(ats=True)
    d.dma_map(NOWHERE, 0x1000, offset=0x200000)
    mkc = {"access_mode_1_0": 1, "log_page_size": 12, "len": 0x1000, "ma_translation_mode": 1, "ptag": [NOWHERE | 3, 0]}
    key, plain = d.mkey(**mkc), d.mkey(**{**mkc, "ma_translation_mode": 0})
    try:
        new().mkey(**mkc)
    except AssertionError:
        pass
    else:
        raise AssertionError("an adapter without ATS accepts an mkey with ATS")

    def read(key, offset):
        d.ram[offset:offset + 8] = struct.pack("<Q", offset)
        assert d.door(1, key, 0, 8) == DONE
        assert d.read(DOOR, 0x1000, 8) == struct.pack("<Q", offset)

    read(key, 0x200000)
    assert d.read(CONFIG, 0x100) == struct.pack("<I", 0x1000f)
    d.write(CONFIG, 0x106, struct.pack("<H", 0x8000))
    read(plain, 0x200000)
    read(key, 0x200000)
    read(key, 0x200000)
    for k in key, plain:
        d.command("destroy_mkey", 0x202, mkey_index=k >> 8)
    d.dma_unmap(NOWHERE, 0x1000)
    d.dma_map(NOWHERE, 0x1000, offset=0x201000)
    read(d.mkey(**mkc), 0x201000)
    _, seen, _ = d.end()
    assert (seen["translations"], seen["violations"]) == (2, 0), seen


def case_ats_stale(new, random):
    """An address is mapped to other memory without an invalidation. Only DMA_UNMAP of everything invalidates nothing"""
    d = new(ats=True)
    d.write(CONFIG, 0x106, struct.pack("<H", 0x8000))
    key = d.mkey(access_mode_1_0=1, log_page_size=12, len=0x1000, ma_translation_mode=1, ptag=[0x200003, 0])
    assert d.door(1, key, 0, 8) == DONE
    d.ask(client.DMA_UNMAP, struct.pack("<IIQQ", 24, 2, 0, 0))
    d.dma_map(0, SIZE - 0x1000, offset=0x1000)
    d.door(1, key, 0, 8)
    verdict(d, 1, violations=1)


def case_ats_not_translated(new, random):
    """A bus address in an mkey with ATS is a violation. Without ATS the device can reach the peer"""
    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/peer"
        threading.Thread(target=client.PeerEnd(path).answer, args=(NOWHERE, bytearray(0x1000)), daemon=True).start()
        for ats in 0, 1:
            d = new(ats=True, peer=path)
            d.write(CONFIG, 0x106, struct.pack("<H", 0x8000))
            d.mkey(access_mode_1_0=1, log_page_size=12, len=0x1000, ma_translation_mode=ats, ptag=[NOWHERE | 3, 0])
            verdict(d, ats, violations=ats)


def case_left_behind(new, random):
    d = new()
    d.command("alloc_pd", 0x800)
    d.command("teardown_hca", 0x103)
    verdict(d, 1, violations=1)


def case_no_bus_master(new, random):
    d = new(bus_master=False)
    d.command("enable_hca", 0x104)
    rc, seen, _ = d.end()
    assert rc == 1 and seen["violations"] > 0, seen


def case_bad_command(new, random):
    d = new()
    assert d.execute(struct.pack(">HHI", 0xfff, 0, 0) + bytes(8))[:2] == (0, 2)
    verdict(d, 1, bad_commands=1)


def case_bad_umr(new, random):
    """A UMR of an mkey that does not allow UMRs"""
    d = new()
    keys = d.objects()
    d.send(0x40, struct.pack(">IIBxxBI", 0x25, 0x40 << 8 | 8, 0, 8, keys[0]) + bytes(112), 0)
    verdict(d, 1, bad_umrs=1)


def case_slow(new, random):
    """A delayed command and a delayed UMR end after the delay, not before"""
    d = new()
    keys = d.objects()
    for opcode, go, done in ((0x800, lambda: d.start(d.ifc.pack("alloc_pd_in", opcode=0x800), 16), lambda: not d.ram[CMDQ + 63] & 1),
                             (0x25, lambda: d.send(0x40, struct.pack(">IIBxxBI", 0x25, 0x40 << 8 | 8, 0, 8, keys[1]) + bytes(112), 0),
                              lambda: struct.unpack(">I", d.ram[0x301038:0x30103c])[0] == 0x25 << 24 | 0x40)):
        d.write(DOOR, 0x1c, struct.pack("<I", opcode | 300 << 16))
        begin = time.monotonic()
        go()
        assert not done() or time.monotonic() >= begin + 0.299, "done at once"
        while not done():
            assert time.monotonic() < begin + 60, "it does not end"
            time.sleep(0.01)
        # The model counts whole milliseconds, and the first may have begun already.
        assert time.monotonic() >= begin + 0.299, "too soon"
        d.write(DOOR, 0x1c, bytes(4))
    verdict(d, 0)


def case_dead(new, random):
    """Dead firmware does nothing until the driver restarts it. A device off the bus reads as ones until it is bus master again"""
    for syndrome in 1, 0xff:
        d = new()
        d.objects()
        d.write(DOOR, 0x20, struct.pack("<I", syndrome))
        d.start(d.ifc.pack("alloc_pd_in", opcode=0x800), 16)
        assert d.ram[CMDQ + 63] & 1, "the command was done"
        state, = struct.unpack(">I", d.read(BAR0, 0x14))
        assert state >> 8 & 7 == (1 if syndrome == 1 else 7), hex(state)
        assert d.read(BAR0, 0x23d, 1) == bytes([syndrome]), "syndrome"
        d.write(CONFIG, 4, struct.pack("<H", 2))
        d.write(CONFIG, 4, struct.pack("<H", 6))
        d.write(BAR0, 0x10, struct.pack(">I", 0))
        d.write(BAR0, 0x14, struct.pack(">I", CMDQ))
        d.command("alloc_pd", 0x800)
        verdict(d, 0)


def case_no_event_queue(new, random):
    """A page fault is an error if no event queue reports it"""
    d = new()
    key = d.mkey(access_mode_1_0=1, log_page_size=12, len=0x2000, ptag=[0x200003, 0])
    assert d.door(1, key, 0x1000, 8) == FAILED
    verdict(d, 0)


def slow_keys(d, memory):
    """Creates an mkey of single bytes, and an mkey of many pieces of the first one. An access by the second would take hours"""
    bytewise = d.mkey(access_mode_1_0=2, length64=1, lw=1, pd=1, ptag=[1 << 32 | memory, 0x200000] * 4096)
    return bytewise, d.mkey(access_mode_1_0=2, length64=1, lw=1, pd=1, ptag=[4096 << 32 | bytewise, 0] * 4096)


def case_endless(new, random):
    """A message that would take hours is refused"""
    d = new()
    _, slow = slow_keys(d, d.mkey(access_mode_1_0=0, length64=1))
    assert d.door(1, slow, 0, 16 << 20) == FAILED
    rc, _, err = d.end()
    assert rc == 0 and "too many pieces" in err, err


def case_turns(new, random):
    """A send queue with much work does not keep the guest waiting, and completes all of it"""
    for _ in range(50):
        d = new()
        keys = d.objects()
        bytewise, _ = slow_keys(d, keys[0])
        d.ram[0x200000:0x200800] = b"x" * 0x800
        wqe = (struct.pack(">IIBxxBI", 8, 0x40 << 8 | 3, 0, 8, 0) + struct.pack(">QII", 0x210000, keys[0], 0) +
               struct.pack(">IIQ", 0x800, bytewise, 0)).ljust(64, b"\0")
        done = lambda: sum(d.ram[at + 56] == 8 for at in range(0x301000, 0x301200, 64))
        d.send(0x40, wqe * 8, 0)
        # On a busy machine this may come too late to see it.
        early = done() < 8
        for _ in range(200):
            if done() < 8:
                time.sleep(0.05)
        assert done() == 8, f"{done()} of 8 WQEs"
        assert d.ram[0x210000:0x210800] == b"x" * 0x800
        verdict(d, 0)
        if early:
            return
    raise AssertionError("one doorbell did it all")


def case_nonsense(new, random):
    """Commands, queues and messages that no driver would send"""
    ifc = case_nonsense.ifc
    known = [op for op in range(0x100, 0x820)]
    addresses = [0, 0x200000, 0x200001, SIZE - 8, NOWHERE, 2**64 - 8, 1 << 63]

    def noise(size):
        kind = random.randrange(4)
        if kind == 0:
            return random.randbytes(size)
        if kind == 1:
            return bytes(size)
        data = bytearray(size)
        for _ in range(random.randrange(1, 8)):
            at = random.randrange(max(size - 8, 1))
            data[at:at + 8] = struct.pack(">Q", random.choice(addresses + [1, 16, 0x80, 0x100, 0xffffff, random.getrandbits(64)]))[:size - at]
        return bytes(data[:size])

    def session():
        d = new()
        keys = d.objects()
        index = {0x40: 0, 0x41: 0}
        for _ in range(random.choice([20, 200])):
            if random.random() < 0.5:
                send(d, keys, index)
            else:
                other(d)
        rc, _, err = d.end()
        assert rc in (0, 1), f"exit status {rc}: {err[-2000:]}"

    def send(d, keys, index):
        qpn = random.choice([0x40, 0x41])
        key = lambda: random.choice(keys + [0x100, 0x200, 0x1001])
        va = lambda: random.choice(addresses + [0x1000, 0x1ff8, 0x2000, 0x200010])
        count = lambda: random.choice([0, 1, 8, 8, 64, 4096, 0x2000, 0x80000008, 0x80000040])
        data = b"".join(struct.pack(">IIQ", count(), key(), va()) for _ in range(random.choice([0, 1, 1, 2, 5])))
        op = random.choice([0, 1, 8, 9, 0xa, 0xa, 0xb, 0x10, 0x11, 0x12, 0x25, 0x25])
        if op == 0x25:
            body = (struct.pack(">BxxxHHQI28x", random.choice([0, 0x10, 0x20, 0x40, 0x80, 0x90]), random.choice([0, 4, 8, 0xffff]),
                                random.choice([0, 4, 0xfff0]), random.choice([0, 1 << 29, 1 << 13, 0x1f2083, 2**64 - 1]),
                                random.choice([0, 0, 1])) + noise(64) + data)
        else:
            body = b"".join([struct.pack(">QII", va(), key(), 0) if op in (8, 9, 0x10, 0x11, 0x12) else b"",
                             struct.pack(">QQ", 1, 2) if op in (0x11, 0x12) else b"", data])
        ds = random.choice([1 + -(-len(body) // 16)] * 9 + [random.randrange(64)])
        wqe = struct.pack(">IIBxxBI", op, qpn << 8 | ds, 0, random.choice([0, 8, 0xa]), key()) + body
        index[qpn] = d.send(qpn, wqe, index[qpn])
        if random.random() < 0.3:
            token = random.choice([random.getrandbits(48), random.randrange(1, 40) << 12 | random.randrange(40)])
            d.execute(ifc.pack("page_fault_resume_in", opcode=0x204) [:8] + struct.pack(">II", random.choice([0, 1 << 31]), token & 0xffffffff))
        if random.random() < 0.1:
            for op in 0x50a, 0x502, 0x503, 0x504:
                layout = {0x50a: "qp_2rst", 0x502: "rst2init_qp", 0x503: "init2rtr_qp", 0x504: "rtr2rts_qp"}[op]
                more = {"qpc__remote_qpn": qpn ^ 1} if op == 0x503 else {"qpc__pd": 1, "qpc__rre": 1, "qpc__rwe": 1} if op == 0x502 else {}
                d.execute(ifc.pack(layout + "_in", opcode=op, qpn=qpn, **more))
            index[qpn] = 0

    def other(d):
        what = random.randrange(8)
        if what < 4:
            op = random.choice(known if random.random() < 0.2 else
                               [0x100, 0x109, 0x200, 0x201, 0x202, 0x204, 0x301, 0x302, 0x400, 0x401, 0x403, 0x500, 0x501,
                                0x502, 0x503, 0x504, 0x507, 0x50a, 0x50b, 0x700, 0x701, 0x702, 0x703, 0x764, 0x765, 0x800, 0x805])
            body = bytearray(noise(random.choice([16, 32, 0x110, 0x118, 0x400, 0x1000])))
            body[:2] = struct.pack(">H", op)
            if random.random() < 0.7:
                body[8:12] = struct.pack(">I", random.choice([1, 2, 0x10, 0x11, 0x12, 0x40, 0x41, 0x80, 0x81]))
            d.execute(bytes(body), random.choice([8, 16, 64, 0x1010]))
        elif what == 4:
            at = random.choice([0x10000, 0x11000]) + random.choice([0x20, 0x40, 0x48, 0x800, 0x900, 0xa00])
            d.write(BAR0, at, struct.pack(">II", random.choice([0, 1 << 24, 2 << 24, random.getrandbits(32)]),
                                          random.choice([0x40, 0x41, 0x80]) << 8 | random.choice([0, 0x80, 0x81])))
        elif what == 5:
            at = random.randrange(BUFFERS, SIZE - 4096)
            d.ram[at:at + 4096] = noise(4096)
        elif what == 6:
            d.door(random.choice([1, 2, 7]), random.choice([0x1000, 0x1100, 0x1200, 0x100, 0x200, random.getrandbits(32)]),
                   random.choice(addresses), random.choice([0, 1, 8, 4096, 1 << 20]))
        else:
            d.ask(random.choice([2, 3, 4, 5, 7, 8, 9, 10, 13, 99]), noise(random.choice([0, 4, 16, 24, 32, 40])))
            # Some of these messages unmap the memory.
            if d.read(CONFIG, 0, 2) != b"\xb3\x15":
                raise AssertionError("the configuration space has gone")
            d.write(CONFIG, 4, struct.pack("<H", 6))
            d.write(BAR0, 0x14, struct.pack(">I", CMDQ))
            d.dma_map(0, SIZE)
    client.repeat(session, case_nonsense.seconds)


def main(model, tree, seed="1", seconds="10"):
    ifc = Layouts(tree + "/include/linux/mlx5/mlx5_ifc.h")
    case_nonsense.seconds, case_nonsense.ifc = float(seconds), ifc
    return client.run(globals(), lambda **options: Driver(model, ifc, **options), seed)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
