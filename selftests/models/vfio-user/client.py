# SPDX-License-Identifier: GPL-2.0-only
"""QEMU's end of vfio-user, for tests of a model; and a loop over such tests, which prints KTAP.

The check.py of a model acts as QEMU and as a driver, a correct one or one that breaks rules, and checks that the model notices.
Its last case sends random data (SEED, for SECONDS). Whatever it sends, the model must answer, and must end in a regular way.
"""

import array
import mmap
import os
import random
import re
import socket
import struct
import subprocess
import sys
import tempfile
import time

SIZE = 16 << 20         # of RAM, which begins at address 0
VERSION, DMA_MAP, DMA_UNMAP, SET_IRQS, READ, WRITE = 1, 2, 3, 8, 9, 10
CONFIG = 7
MSI = 1


class PeerEnd:
    """One end of the socket between two models, see peer.c"""
    MESSAGE = struct.Struct("<QQII4096s")

    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind(path)
        self.sock.settimeout(120)

    def access(self, path, addr, size=0, data=None):
        """Requests an access. Returns how many bytes the peer has from this address on, and the bytes that were read"""
        self.sock.sendto(self.MESSAGE.pack(addr, 0, len(data or bytes(size)), data is not None, data or b""), path)
        _, room, _, _, seen = self.MESSAGE.unpack(self.sock.recv(8192))
        return room, seen[:size]

    def answer(self, base, memory):
        """Answers requests for ever, like a BAR with this memory"""
        while True:
            message, who = self.sock.recvfrom(8192)
            addr, _, size, write, data = self.MESSAGE.unpack(message)
            at = addr - base
            room = len(memory) - at if 0 <= at < len(memory) else 0
            if write and size <= room:
                memory[at:at + size] = data[:size]
            self.sock.sendto(self.MESSAGE.pack(addr, room, size, write, bytes(memory[at:at + size]) if size <= room else b""), who)


class Client:
    def __init__(self, model, bus_master=True):
        self.id = 0
        self.dir = tempfile.TemporaryDirectory()
        path = self.dir.name + "/socket"
        self.said = open(self.dir.name + "/stderr", "w+")
        self.model = subprocess.Popen([*model, path], stdout=subprocess.PIPE, stderr=self.said, text=True)
        self.sock = socket.socket(socket.AF_UNIX)
        for _ in range(6000):
            try:
                self.sock.connect(path)
                break
            except OSError:
                time.sleep(0.01)
        self.sock.settimeout(120)
        self.fd = os.memfd_create("ram")
        os.ftruncate(self.fd, SIZE)
        self.ram = mmap.mmap(self.fd, SIZE)
        self.ask(VERSION, struct.pack("<HH", 0, 0) + b"{}\0")
        self.dma_map(0, SIZE)
        if bus_master:
            self.write(CONFIG, 4, struct.pack("<H", 6))

    def ask(self, command, body=b"", fds=(), reply=True):
        self.id = (self.id + 1) & 0xffff
        message = struct.pack("<HHIII", self.id, command, 16 + len(body), 0, 0) + body
        self.sock.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])
        if not reply:
            return None
        head = self.take(16)
        number, _, size, flags, error = struct.unpack("<HHIII", head)
        assert number == self.id, "the reply is to another message"
        data = self.take(size - 16)
        return (error or 1) if flags & 0x20 else data

    def take(self, size):
        data = b""
        while len(data) < size:
            part = self.sock.recv(size - len(data))
            if not part:
                raise ConnectionError("the model has gone")
            data += part
        return data

    def dma_map(self, iova, size, offset=0, prot=3, fd=None):
        return self.ask(DMA_MAP, struct.pack("<IIQQQ", 32, prot, offset, iova, size), [fd or self.fd])

    def dma_unmap(self, iova, size):
        return self.ask(DMA_UNMAP, struct.pack("<IIQQ", 24, 0, iova, size))

    def read(self, region, offset, size=4):
        data = self.ask(READ, struct.pack("<QII", offset, region, size))
        return data[16:] if isinstance(data, bytes) else data

    def write(self, region, offset, data):
        return self.ask(WRITE, struct.pack("<QII", offset, region, len(data)) + data)

    def msi(self):
        """Connects the MSI, for irqs()"""
        self.irq = os.eventfd(0, os.EFD_NONBLOCK)
        self.ask(SET_IRQS, struct.pack("<IIIII", 20, 4 | 32, MSI, 0, 1), [self.irq])

    def irqs(self):
        """Returns the interrupts since the last call"""
        try:
            return os.eventfd_read(self.irq)
        except BlockingIOError:
            return 0

    def wait(self, condition, what):
        end = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < end, what
            time.sleep(0.01)

    def end(self):
        """Disconnects. Returns exit status, counters and log of the model"""
        self.sock.close()
        out, _ = self.model.communicate(timeout=120)
        self.said.seek(0)
        return self.model.returncode, {k: int(v) for k, v in (line.split() for line in out.splitlines())}, self.said.read()


def verdict(client, code, failures, **counters):
    """The model must end with this exit status. The counters in failures must be 0, except for those that are given a value"""
    rc, seen, err = client.end()
    assert rc == code, f"exit status {rc}, not {code}: {err}"
    for key in failures:
        assert seen[key] == counters.get(key, 0), f"{key}: {seen[key]}: {err}"


def constants(path):
    """The enums of the header of a back door, and the names of its DOOR_FAILURES"""
    with open(path) as header:
        text = re.sub(r"/\*.*?\*/", "", header.read(), flags=re.S)
    out = {}
    for body in re.findall(r"enum(?: \w+)? \{(.*?)\};", text, re.S):
        value = -1
        for name, _, given in (item.strip().partition("=") for item in body.split(",") if item.strip()):
            value = eval(given, None, out) if given else value + 1
            out[name.strip()] = value
    return out, re.findall(r"X\((\w+)\)", text.split("DOOR_FAILURES(X)")[1])


def repeat(session, seconds):
    """Lets one driver after the other send random data"""
    rounds = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        rounds += 1
        session()
    print(f"# {rounds} drivers")


def run(cases, start, seed):
    """Calls each case with a function that starts a client, and with a random number generator. Returns the exit status"""
    # Not 1, because a model exits with 1 if the driver broke a rule.
    os.environ["ASAN_OPTIONS"] = os.environ["UBSAN_OPTIONS"] = "exitcode=99"
    cases = {name.removeprefix("case_"): case for name, case in cases.items() if name.startswith("case_")}
    print("KTAP version 1")
    print(f"1..{len(cases)}")
    print(f"# seed {seed}", flush=True)
    bad = 0
    for number, (name, case) in enumerate(cases.items(), 1):
        clients = []

        def new(*args, **options):
            clients.append(start(*args, **options))
            return clients[-1]

        try:
            case(new, random.Random(int(seed)))
            print(f"ok {number} {name}", flush=True)
        except Exception as error:
            bad = 1
            for line in f"{type(error).__name__}: {error}".splitlines():
                print("#", line)
            # The last client is the one that failed.
            for client in clients[-1:]:
                client.model.kill()
                client.said.seek(0)
                for line in client.said.read().splitlines()[-30:]:
                    print("#", line)
            print(f"not ok {number} {name}", flush=True)
    return bad


def main(doc, cases, driver):
    """The command line of a check.py: MODEL [SEED [SECONDS]]. driver: a class"""
    if len(sys.argv) < 2:
        sys.exit(doc)
    program, seed, seconds = sys.argv[1:] + ["1", "10"][len(sys.argv) - 2:]
    cases["case_nonsense"].seconds = float(seconds)
    sys.exit(run(cases, lambda *options, **more: driver(program, *options, **more), seed))
