#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Draw the PCIe topologies of selftests/topologies.

usage: topology.py             draw those in selftests/pictures that are out of date
       topology.py --check     check that selftests/pictures is up to date (needs no
                               graphviz)
       topology.py --dot FILE  print the dot source of one file

The verdicts are those of the file. In the guest, the suite hmm compares them with
the kernel and with p2p-check.
"""

import hashlib
import html
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

from common import FAIL, TOP, die, help_or_usage

TOPOLOGIES = TOP / "selftests/topologies"
PICTURES = TOP / "selftests/pictures"

# QEMU device: its kind
DEVICES = {"pcie-root-port": "port", "x3130-upstream": "upstream", "xio3130-downstream": "downstream", "pxb-pcie": "host",
           "pcie-pci-bridge": "pci", "pci-testdev": "filler", "ivshmem-plain": "exporter", "edu": "importer",
           "intel-iommu": "iommu", "amd-iommu": "iommu", "virtio-iommu-pci": "iommu"}
IOMMU = {"intel-iommu": "Intel IOMMU", "amd-iommu": "AMD IOMMU", "virtio-iommu-pci": "virtio IOMMU"}
BRIDGES = ("port", "upstream", "downstream", "host", "pci")
# What test_hmm takes.
EXPORTERS, IMPORTERS = 2, 4
# The only bridge of QEMU with an ACS capability, and the words on the kernel command line by which all of them redirect.
HAS_ACS, REDIRECT = "pcie-root-port", "config_acs=xxx11xx@pci:1b36:c"

FONT = "DejaVu Sans"
INK, LINE, PAPER = "#1f2328", "#8c959f", "#ffffff"
BUS, BRIDGE, RAM, NO = "#1a7f37", "#0969da", "#bc4c00", "#cf222e"
FILL = {"exporter": "#ddf4ff", "importer": "#fff8c5", "top": "#f6f8fa", "host": "#eaeef2", "iommu": "#fbefff",
        "no": "#ffebe9", "port": PAPER, "upstream": PAPER, "downstream": PAPER, "pci": PAPER}


class Wrong(Exception):
    """The topology file is wrong."""


class Device:
    def __init__(self, qemu, properties, parent):
        self.qemu, self.properties, self.parent = qemu, properties, parent
        self.kind = DEVICES[qemu]
        self.children = []
        self.slot = self.number = 0

    def up(self):
        """The PCI bridges above the device, the nearest first, without the host bridge."""
        return [] if self.parent.kind == "host" else [self.parent, *self.parent.up()]

    def host(self):
        return self if self.kind == "host" else self.parent.host()

    def below(self):
        for device in self.children:
            if device.kind != "host":
                yield device
                yield from device.below()

    def addressed(self):
        """The devices below in the order of their addresses. The firmware numbers buses depth first."""
        devices = sorted(self.children, key=lambda d: d.slot)
        yield from devices
        for device in devices:
            if device.kind != "host":
                yield from device.addressed()

    def used(self):
        return self.kind in ("exporter", "importer") or any(c.used() for c in self.children)


class Topology:
    def __init__(self, path):
        self.name = path.name
        self.keys, self.append = {}, ""
        self.host = Device("pxb-pcie", {}, None)
        self.hosts, self.iommu = [self.host], None
        buses = {"pcie.0": self.host}
        for line in path.read_text(encoding="utf-8").splitlines():
            if not line or line.startswith("#"):
                continue
            key, _, value = line.partition("=")
            if key in ("device", "exporter", "importer"):
                self.add(key, value, buses)
            elif key == "append":
                self.append += f" {value}"
            else:
                self.keys[key] = value
        hosts = sorted(self.hosts, key=lambda h: int(h.properties.get("bus_nr", "0"), 0))
        self.devices = [d for host in hosts for d in host.addressed()]
        self.exporters = [d for d in self.devices if d.kind == "exporter"]
        self.importers = [d for d in self.devices if d.kind == "importer"]
        for devices in (self.exporters, self.importers):
            for n, device in enumerate(devices):
                device.number = n
        self.masked = self.keys.get("masked") == "yes"
        # A list for each exporter, with an entry for each importer.
        self.verdicts = [words * len(self.importers) if len(words) == 1 else words
                         for words in (word.split(",") for word in self.keys.get("verdict", "").split())]
        self.check()

    def add(self, key, value, buses):
        if key != "device":
            value = f"{'edu' if key == 'importer' else 'ivshmem-plain'},{value}"
        qemu, *words = value.split(",")
        if qemu not in DEVICES:
            raise Wrong(f"device {qemu}: not known to scripts/guest/topology.py")
        properties = dict(w.partition("=")[::2] for w in words)
        if qemu == "pxb-pcie" and self.hosts[1:] and "bus" not in properties:
            raise Wrong("a second pxb-pcie needs bus=pcie.0, because QEMU would put it below the first")
        bus = properties.get("bus", "pcie.0")
        if bus not in buses:
            raise Wrong(f"{qemu}: no bus {bus} before it")
        device = Device(qemu, properties, buses[bus])
        if device.kind == "iommu":
            self.iommu = qemu
            if qemu == "intel-iommu":
                return  # no PCI device
        # The first free slot, as in QEMU. On pcie.0 the first slots belong to the chipset.
        taken = {c.slot for c in device.parent.children}
        free = next(n for n in range(device.parent is self.host, 256) if n not in taken)
        device.slot = int(properties["addr"].split(".")[0], 16) if "addr" in properties else free
        device.parent.children.append(device)
        if device.kind in BRIDGES:
            buses[properties.get("id", "")] = device
        if device.kind == "host":
            self.hosts.append(device)

    def iommu_on(self):
        # With kernel-config/, the Intel IOMMU is used only if the command line asks for it.
        return bool(self.iommu) and (self.iommu != "intel-iommu" or "intel_iommu=on" in self.append)

    def translates(self):
        return self.iommu_on() and not {"iommu=pt", "iommu.passthrough=1"} & set(self.append.split())

    @staticmethod
    def meet(exporter, importer):
        """The bridge at which the paths of the two devices meet, or None."""
        theirs = importer.up()
        return next((b for b in exporter.up() if b in theirs), None)

    def check(self):
        for key in ("cpu", "memory"):
            if not self.keys.get(key):
                raise Wrong(f"no {key}")
        if len(self.verdicts) != len(self.exporters):
            raise Wrong(f"{len(self.verdicts)} verdicts for {len(self.exporters)} exporters")
        if bool(self.exporters) != bool(self.importers):
            raise Wrong("exporters without importers, or importers without exporters")
        if "config_acs" in self.append.replace(REDIRECT, ""):
            raise Wrong(f"of config_acs only {REDIRECT} is known to scripts/guest/topology.py")
        shape = self.keys.get("shape", "direct")
        if self.exporters and (shape == "iova") != self.translates():
            raise Wrong(f"shape={shape}, but {'an' if self.translates() else 'no'} IOMMU translates")
        if len(self.exporters) > EXPORTERS or len(self.importers) > IMPORTERS:
            raise Wrong(f"test_hmm takes at most {EXPORTERS} exporters and {IMPORTERS} importers")
        for exporter, words in zip(self.exporters, self.verdicts):
            if len(words) != len(self.importers):
                raise Wrong(f"verdict {','.join(words)}: {len(words)} verdicts for {len(self.importers)} importers")
            for importer, said in zip(self.importers, words):
                if said == "bus" and not self.meet(exporter, importer):
                    raise Wrong(f"verdict bus, but no switch is above importer {importer.number} and exporter {exporter.number}")

    # The picture

    def paths(self):
        """{link or pair of host bridges: {(colour, up or down)}} of the data paths, and the same of refused paths. A link is
        named by the device below it."""
        drawn, refused = {}, {}

        def go(ways, colour, devices, direction):
            for device in devices:
                ways.setdefault(device, set()).add((colour, direction))

        for exporter, words in zip(self.exporters, self.verdicts):
            for importer, said in zip(self.importers, words):
                common = self.meet(exporter, importer) if said == "bus" else None
                above = [importer, *importer.up()], [exporter, *exporter.up()]
                if common:
                    above = [side[:side.index(common)] for side in above]
                blocked = said == "none" or self.masked
                colour = RAM if blocked else BUS if common else BRIDGE
                go(drawn, colour, [importer, *importer.up(), importer.host()] if blocked else above[0], "back")
                ways = refused if blocked else drawn
                go(ways, NO if blocked else colour, above[1], "forward")
                if not common and importer.host() is not exporter.host():
                    pair = (importer.host(), exporter.host())
                    go(ways, NO if blocked else colour, [pair],
                       "forward" if self.hosts.index(pair[0]) < self.hosts.index(pair[1]) else "back")
        return drawn, {k: v for k, v in refused.items() if k not in drawn}

    def dot(self):
        drawn, refused = self.paths()
        shown = [d for host in self.hosts for d in host.below() if d.used()]
        for n, device in enumerate([*self.hosts, *shown]):
            device.node = f"n{n}"
        ends = [d for d in shown if d.kind in ("exporter", "importer")]
        moved = [e for e, words in zip(self.exporters, self.verdicts) if "none" in words or self.masked]
        # The arrow of a migrating page goes around the outside, on the side of the exporter.
        left = bool(moved) and moved == ends[:1]
        side = "w" if left else "e"

        out = [
            "digraph {",
            f'graph [bgcolor="{PAPER}", pad=0.15, ranksep=0.4, nodesep={0.6 if self.hosts[1:] else 0.3}, ordering=out, '
            f'fontname="{FONT}", fontsize=12, fontcolor="{INK}", labelloc=b, label={self.caption()}]',
            f'node [shape=plain, fontname="{FONT}", fontsize=12, fontcolor="{INK}"]',
            f'edge [color="{LINE}", dir=none, fontname="{FONT}", fontsize=11, arrowsize=0.8]',
        ]

        def edge(a, b, link):
            style = ""
            if link in drawn:
                colours = ":".join(sorted({c for c, _ in drawn[link]}))
                directions = {d for _, d in drawn[link]}
                style = f'color="{colours}", penwidth=3, dir={directions.pop() if len(directions) == 1 else "both"}'
            elif link in refused:
                style = f'color="{NO}", penwidth=2, style=dashed'
            out.append(f"{a} -> {b} [{style}]")

        migrations = [f'top:ram:{side} -> {exporter.node}:{side} [color="{RAM}", fontcolor="{RAM}", dir=back, '
                      'style=dashed, penwidth=2, weight=0, label=" page \\n migrates "]' for exporter in moved]
        cells = [(["RAM", self.keys["memory"].replace("G", " GiB")], "top", "ram"), (["CPU", self.keys["cpu"]], "top", "")]
        out.append(f"top [label={box([cells if left else cells[::-1]])}]")
        # Edges are in the order of their targets, from left to right.
        if left:
            out += migrations
        for device in [*self.hosts, *shown]:
            out.append(f"{device.node} [label={box(self.rows(device))}]")
            top = "top:ram" if device in drawn else "top"
            edge(top if device in self.hosts else device.parent.node, device.node, device)
        if not left:
            out += migrations
        for pair in (k for k in [*drawn, *refused] if isinstance(k, tuple)):
            a, b = sorted(pair, key=self.hosts.index)
            edge(a.node, b.node, pair)
        for switch in (d for d in shown if d.kind == "upstream"):
            ports = [d.node for d in [switch, *switch.children] if d.used()]
            out.append(f'subgraph cluster_{switch.node} {{ graph [label="", style="rounded,filled", color="{LINE}", '
                       f'fillcolor="{FILL["top"]}"] {" ".join(ports)} }}')
        out.append(f"{{ rank=same {' '.join(h.node for h in self.hosts)} }}")
        out.append(f"{{ rank=sink {' '.join(e.node for e in ends)} }}")
        return "\n".join([*out, "}"]) + "\n"

    def rows(self, device):
        kind = device.kind
        n = f" {device.number}" if len(self.exporters if kind == "exporter" else self.importers) > 1 else ""
        text = {
            "host": ["host bridge"],
            "port": ["root port" if device.parent in self.hosts else "PCIe port"],
            "upstream": ["PCIe switch", "upstream port"],
            "downstream": ["downstream port"],
            "pci": ["PCIe-to-PCI", "bridge"],
            "exporter": [f"exporter{n}", "GPU memory", "ivshmem, 16 MiB"],
            "importer": [f"importer{n}", "NIC", "edu"],
        }[kind]
        rows = [[(text, kind, "")]]
        # With an IOMMU the kernel turns this on everywhere.
        if device.qemu == HAS_ACS and device.parent.kind != "host" and (self.iommu_on() or REDIRECT in self.append):
            rows.append([(["ACS redirect"], "iommu", "")])
        if kind == "host":
            if any("none" in words for words in self.verdicts):
                rows.append([(["✕ not trusted by the kernel:", "no peer-to-peer"], "no", "")])
            if self.iommu:
                how = "IOVA → bus address" if self.translates() else "passthrough" if self.iommu_on() else "off"
                rows.append([([f"{IOMMU[self.iommu]}: {how}"], "iommu", "")])
        if kind == "importer" and self.masked:
            rows.append([([f"✕ {self.keys.get('dma_bits', 64)}-bit DMA mask"], "no", "")])
        return rows

    def caption(self):
        keys = self.keys
        lines = ["", f"<b>{html.escape(self.name)}</b>"]
        lines += wrapped(keys.get("description", ""))
        say = {
            "bus": (BUS, "bus address: the switch forwards"),
            "bridge": (BRIDGE, "through the host bridge" + (", by IOVA" if self.translates() else "")),
            "none": (RAM, "not supported: the page migrates to RAM"),
        }
        if self.masked:
            say = dict.fromkeys(say, (RAM, "refused by the DMA mask: the page migrates to RAM"))
        for exporter, words in zip(self.exporters, self.verdicts):
            differ = len(set(words)) > 1
            for n, said in enumerate(words if differ else words[:1]):
                colour, text = say[said]
                pair = [f"exporter {exporter.number}"] if len(self.exporters) > 1 else []
                pair += [f"importer {n}"] if differ else []
                lines.append(f'<font color="{colour}"><b>{", ".join(pair)}{": " if pair else ""}{text}</b></font>')
        if self.exporters:
            lines += wrapped(f"DMA mask {keys.get('dma_bits', 64)} bits; data arrives: "
                             + keys.get("data", "").replace("no: ", "no, "))
        fillers = [d for d in self.devices if d.kind == "filler"]
        if fillers:
            lines.append(f"not shown: {len(fillers)} pci-testdev, which only take up addresses")
        return f"<{'<br/>'.join(lines)}>"


def wrapped(text):
    """Wrap to HTML lines of similar length, as few as possible."""
    return map(html.escape, textwrap.wrap(text, len(text) // (len(text) // 48 + 1) + 8))


def box(rows):
    cells = "".join(
        "<tr>" + "".join(
            f'<td bgcolor="{FILL[kind]}"' + (f' port="{port}">' if port else ">")
            + "<br/>".join(f'<font color="{NO}">{html.escape(t)}</font>' if kind == "no" else html.escape(t) for t in text)
            + "</td>" for text, kind, port in row)
        + "</tr>" for row in rows)
    return f'<<table border="0" cellborder="1" cellspacing="0" cellpadding="5" color="{LINE}">{cells}</table>>'


def digest(dot):
    """The content of a picture for --check, without its layout, which depends on the version of graphviz."""
    return f"<!-- scripts/guest/topology.py: {hashlib.sha256(dot.encode()).hexdigest()} -->"


def is_drawn(picture, dot):
    return picture.exists() and digest(dot) in picture.read_text(encoding="utf-8")


def draw(dot):
    if not shutil.which("dot"):
        die("no dot: apt-get install graphviz")
    svg = subprocess.run(["dot", "-Tsvg"], input=dot, stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout
    # Remove the version and the names of graphviz, and move attributes that are the same everywhere to one place.
    svg = re.sub(r'<\?xml.*?\?>|<!DOCTYPE.*?>|<!--.*?-->|<title>.*?</title>|<g id="(?!graph).*?>| id=".*?" class=".*?"', "",
                 svg, flags=re.S)
    svg = svg.replace("</g>", "", svg.count("</g>") - 1)
    for common in (f' font-family="{FONT}"', ' font-size="12.00"', f' fill="{INK}"', ' text-anchor="start"',
                   ' stroke="transparent"', ' stroke="none"', ' xmlns:xlink="http://www.w3.org/1999/xlink"'):
        svg = svg.replace(common, "")
    # Merge area and border of a box into one rectangle.
    svg = re.sub(r'(<polygon fill="[^"]*")( points="[^"]*"/>)\n<polygon fill="none"( stroke="[^"]*")\2', r"\1\3\2", svg)
    # Verdana has the same width.
    svg = svg.replace("<g ", f'{digest(dot)}\n<g font-family="Verdana,{FONT},sans-serif" font-size="12" fill="{INK}" ', 1)
    return re.sub(r"\n\s*", "\n", svg.lstrip())


def main(args):
    if args[:1] == ["--dot"] and len(args) == 2:
        try:
            print(Topology(Path(args[1])).dot(), end="")
        except (Wrong, OSError) as e:
            return complain(f"{args[1]}: {e}")
        return 0
    if args not in ([], ["--check"]):
        return help_or_usage(__doc__, args)

    # data-path.svg, which README.md shows, is no topology.
    rc, names, fresh = 0, {"data-path.svg"}, []
    for path in sorted(set(TOPOLOGIES.iterdir()) - {TOPOLOGIES / "README"}):
        names.add(f"{path.name}.svg")
        picture = PICTURES / f"{path.name}.svg"
        try:
            dot = Topology(path).dot()
        except Wrong as e:
            rc = complain(f"{path.relative_to(TOP)}: {e}")
            continue
        if is_drawn(picture, dot):
            continue
        if args:
            rc = complain(f"{picture.relative_to(TOP)} is out of date: run 'make topology'")
        else:
            picture.write_text(draw(dot), encoding="utf-8")
            fresh.append(path.name)
    for name in sorted({path.name for path in PICTURES.iterdir()} - names):
        if args:
            rc = complain(f"selftests/pictures/{name} has no topology: run 'make topology'")
        else:
            (PICTURES / name).unlink()
    if not args:
        print(f"{len(names)} pictures in selftests/pictures; new: {' '.join(fresh) or 'none'}")
    return rc


def complain(text):
    print(f"topology.py: {text}", file=sys.stderr)
    return FAIL


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
