#!/usr/bin/env python3
"""What runs of the suite cost say together.

usage: bench.py read OUT RUN...      the counts of these folders, into a file
       bench.py others OLD NEW       two of these folders, of the base and of the patches: nobody pays for what he does not use
       bench.py report FILE DIR      DIR/table.md, DIR/*.svg, DIR/*.png (needs gnuplot); print the table
       bench.py compare OLD NEW      what has changed between two files

A count is the least that was measured in a boot, for an interrupt only adds to it, and then the median of the boots.
others prints KTAP. exit: 1 if a bar is missed (others, report), or a count is off by more than 0.1 % (compare).
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from statistics import median

FAIL, USAGE = 1, 2

# What others may pay more, in instructions: a test and its jump for each page of others that is met. And one for the only
# page asked for of a huge one of one's own: the base reports the wrong page there, to mend that takes two more than are saved.
MAY_COST = {r"other\.pte\.look": 2 * 512, r"other\.\w+(\.1)?\.look": 2, r"own\.pmd\.1\.\w+": 1}
# What the exporter does (test_hmm) to move its pages is not what others pay for the walk.
NOT_JUDGED = r"clock|other\..*\.write"


def costs(folder):
    """{case: (pages, samples)} of a run"""
    ktap = (Path(folder) / "ktap").read_text()
    return {name: (int(pages), [int(s) for s in samples.split()])
            for name, pages, samples in re.findall(r"^# cost (\S+) (\d+)((?: \d+)+)$", ktap, re.M)}


def numbers(folder):
    """{case: {what: number}}: what was counted beside"""
    found = {}
    for name, what, number in re.findall(r"^# count (\S+) (\S+) (\d+)$", (Path(folder) / "ktap").read_text(), re.M):
        found.setdefault(name, {})[what] = int(number)
    return found


def read(out, folders):
    runs = []
    for folder in folders:
        meta = json.loads((Path(folder) / "results.json").read_text())
        if meta["exit"]:
            sys.exit(f"bench.py: {folder}: {meta['why']}")
        run = {k: meta[k] for k in ("kernel", "topology", "command", "base", "series", "qemu")}
        run["qemu_command"] = (Path(folder) / "qemu.sh").read_text()
        counted = numbers(folder)
        run["cases"] = {name: {"pages": pages, "samples": samples, **counted.get(name, {})}
                        for name, (pages, samples) in costs(folder).items()}
        runs.append(run)
    Path(out).write_text(json.dumps({"runs": runs}, indent=1) + "\n")


def load(file):
    """{(group, topology, case): {kernel: (count, pages, spread)}}: spread in per cent, between boots"""
    boots = {}
    for run in json.loads(Path(file).read_text())["runs"]:
        group = run["command"].split()[1]
        for case, c in run["cases"].items():
            where = boots.setdefault((group, run["topology"], case), {})
            where.setdefault(run["kernel"], []).append((min(c["samples"]), c["pages"]))
    table = {}
    for key, kernels in boots.items():
        table[key] = {}
        for kernel, values in kernels.items():
            seen = [v for v, _ in values]
            table[key][kernel] = (median(seen), values[0][1], 100 * (max(seen) - min(seen)) / median(seen))
    return table


def may_cost(case):
    return next((n for pattern, n in MAY_COST.items() if re.fullmatch(pattern, case)), 0)


def others(old, new):
    """As KTAP."""
    a, b = costs(old), costs(new)
    names = [n for n in a if not re.fullmatch(NOT_JUDGED, n)]
    print(f"KTAP version 1\n1..{len(names)}")
    rc = 0
    for number, name in enumerate(names, 1):
        before = min(a[name][1])
        after = min(b[name][1]) if name in b else None
        good = after is not None and after <= before + may_cost(name)
        rc = rc if good else FAIL
        print(f"# {name}: {before:.0f} instructions for {a[name][0]} pages, now {'none' if after is None else format(after, '.0f')}")
        print(f"{'' if good else 'not '}ok {number} {name}")
    return rc if names else FAIL


def per_page(value):
    count, pages, _ = value
    return f"{count / pages:.1f}" if count / pages < 1000 else f"{count / pages:.0f}"


def change(old, new):
    return f"{100 * (new[0] - old[0]) / old[0]:+.1f} %"


class Report:
    """The table, and whether the bars are cleared."""

    def __init__(self, table, runs):
        self.table = table
        self.runs = runs
        self.lines = []
        self.missed = []

    def get(self, group, topology, case, kernel="normal"):
        return self.table.get((group, topology, case), {}).get(kernel)

    def say(self, line=""):
        self.lines.append(line)

    def bar(self, good, text):
        self.say(f"{'Passed' if good else '**Missed**'}: {text}")
        self.say()
        if not good:
            self.missed.append(text)

    def number(self, case, what):
        """The same in each boot, or None."""
        seen = {run["cases"][case].get(what) for run in self.runs if case in run["cases"]}
        return seen.pop() if len(seen) == 1 else None

    def both(self, group, topology):
        """The cases that both kernels have."""
        for (g, t, case), kernels in self.table.items():
            if (g, t) == (group, topology) and {"unpatched", "normal"} <= kernels.keys() and case != "clock":
                yield case, kernels["unpatched"], kernels["normal"]

    def others(self):
        self.say("## B0: hmm_range_fault() without aliases")
        self.say()
        self.say("| case | pages | base | patched | more | spread |")
        self.say("|---|--:|--:|--:|--:|--:|")
        worse = []
        for case, old, new in self.both("others", "none"):
            self.say(f"| {case} | {old[1]} | {old[0]:.0f} | {new[0]:.0f} | {new[0] - old[0]:+.0f} | {max(old[2], new[2]):.2f} % |")
            if not re.fullmatch(NOT_JUDGED, case) and new[0] > old[0] + may_cost(case):
                worse.append(case)
        self.say()
        self.bar(not worse, "no instruction more on present and own pages and on holes, one test for pages of others"
                 + (f"; not so: {', '.join(worse)}" if worse else ""))

    def odp(self):
        self.say("## RDMA: on-demand paging of RAM")
        self.say()
        self.say("Instructions per page, to map and to unmap it. `virt`: for a device that does no DMA (rxe).")
        self.say()
        self.say("| topology | case | pages | base | patched | fault | fault and unmap | spread |")
        self.say("|---|---|--:|--:|--:|--:|--:|--:|")
        worst = {}
        for topology in sorted({t for g, t, _ in self.table if g == "odp"}):
            cases = {case: (old, new) for case, old, new in self.both("odp", topology)}
            for case, (old, new) in cases.items():
                undo = cases.get(case + ".unmap")
                if not undo:
                    continue
                both = [(a[0] + b[0], *a[1:]) for a, b in zip((old, new), undo)]
                self.say(f"| {topology} | {case} | {old[1]} | {per_page(old)} + {per_page(undo[0])} | "
                         f"{per_page(new)} + {per_page(undo[1])} | {change(old, new)} | {change(*both)} | "
                         f"{max(old[2], new[2]):.2f} % |")
                worst[topology, case] = both[1][0] / both[0][0]
        self.say()
        if worst:
            where = max(worst, key=worst.get)
            self.bar(worst[where] <= 1.03, f"at most 3 % more for a page (most: {100 * (worst[where] - 1):+.1f} %, {' '.join(where)})")

    def alias(self):
        self.say("## B1: device memory, by its alias and by migration to RAM")
        self.say()
        self.say("Instructions per page. Without the copy: less what `copy_highpage()` or `memcpy_fromio()` take for as many pages.")
        self.say()
        self.say("| case | pages | alias | migration | without the copy | times | without the copy | spread |")
        self.say("|---|--:|--:|--:|--:|--:|--:|--:|")
        rows = (("walk", "alias.", "migrate.", "copy.bar", ("pte.1", "pte.16", "pte.512", "pmd.512")),
                ("odp", "odp.alias.", "odp.fallback.", "copy", ("pte.1", "pte.512", "pmd.512")))
        for what, alias, move, copy, cases in rows:
            one = self.get("alias", "switch", copy)
            for case in cases:
                a, m = self.get("alias", "switch", alias + case), self.get("alias", "switch", move + case)
                if not (a and m and one):
                    continue
                bare = m[0] - m[1] * one[0]
                self.say(f"| {what}, {case} | {a[1]} | {per_page(a)} | {per_page(m)} | {per_page((bare, m[1], 0))} | "
                         f"{m[0] / a[0]:.1f} | {bare / a[0]:.1f} | {max(a[2], m[2]):.2f} % |")
        self.say()
        for case, least in (("pte.512", 20), ("pmd.512", 50)):
            a, m = self.get("alias", "switch", "alias." + case), self.get("alias", "switch", "migrate." + case)
            one = self.get("alias", "switch", "copy.bar")
            if a and m and one:
                times = (m[0] - m[1] * one[0]) / a[0]
                self.bar(times >= least, f"{case}: at least {least} times fewer than migration without the copy ({times:.1f})")


    def pingpong(self):
        self.say("## B2: a device and its peer use the same memory by turns")
        self.say()
        self.say("A round: the peer looks up 512 pages, then the device does, and migrates what is no longer in its memory. Bytes "
                 "copied: 4096 for each page.")
        self.say()
        self.say("| case | instructions a round | pages to RAM | pages to the device | spread |")
        self.say("|---|--:|--:|--:|--:|")
        moved = {}
        for case in ("alias.pte.512", "migrate.pte.512", "alias.pmd.512", "migrate.pmd.512"):
            name = f"pingpong.{case}"
            value = self.get("pingpong", "switch", name)
            if value:
                moved[case] = self.number(name, "to-ram"), self.number(name, "to-device")
                self.say(f"| {case} | {value[0]:.0f} | {moved[case][0]} | {moved[case][1]} | {value[2]:.2f} % |")
        self.say()
        if moved:
            self.bar(all(n == ((0, 0) if case.startswith("alias") else (512, 512)) for case, n in moved.items()),
                     "no page migrates and nothing is copied, against two migrations a round")

    def partial(self):
        self.say("## B3: no alias for some of 512 pages")
        self.say()
        self.say("| case | pages without | migrate | walks | instructions | all of it by migration | spread |")
        self.say("|---|--:|--:|--:|--:|--:|--:|")
        good, any_case = True, False
        for kind, wanted in (("pte", (0, 1, 51, 256, 512)), ("pmd", (0, 1))):
            whole = self.get("alias", "switch", f"migrate.{kind}.512")
            for k in wanted:
                name = f"partial.{kind}.{k}"
                value = self.get("partial", "switch", name)
                if not value:
                    continue
                any_case = True
                migrated, walks = self.number(name, "migrated"), self.number(name, "walks")
                good = good and migrated == (512 if kind == "pmd" and k else k) and walks is not None and walks <= 2
                self.say(f"| {kind} | {k} | {migrated} | {walks} | {value[0]:.0f} | {whole[0]:.0f} | {value[2]:.2f} % |"
                         if whole else f"| {kind} | {k} | {migrated} | {walks} | {value[0]:.0f} | - | {value[2]:.2f} % |")
        self.say()
        if any_case:
            self.bar(good, "just these pages migrate, or all of a huge page, with at most one walk more")

    def prefetch(self):
        rows = [(case, v["normal"]) for (g, _, case), v in self.table.items()
                if g == "prefetch" and case != "clock" and not case.endswith(".unmap") and "normal" in v]
        if not rows:
            return
        self.say("## B8: prefetch of device memory, without faults")
        self.say()
        self.say("| case | pages, all found | instructions a page | spread |")
        self.say("|---|--:|--:|--:|")
        for case, value in rows:
            self.say(f"| {case} | {value[1]} | {per_page(value)} | {value[2]:.2f} % |")
        self.say()

    def curves(self):
        """{name: [(bytes, instructions a page)]}: over the size of the range"""
        lines = {}
        for (group, _, case), kernels in self.table.items():
            if group not in ("grow", "grow-alias") or case == "clock" or case.endswith(".unmap"):
                continue
            for kernel, value in kernels.items():
                name = f"{case.split('.', 1)[1].rsplit('.', 1)[0]}{', base' if kernel == 'unpatched' else ''}"
                lines.setdefault(name, []).append((4096 * value[1], value[0] / value[1]))
        return {name: sorted(points) for name, points in sorted(lines.items())}

    def growth(self):
        lines = self.curves()
        if not lines:
            return
        sizes = sorted({size for points in lines.values() for size, _ in points})
        self.say("## Growth: instructions a page over the size of the range")
        self.say()
        self.say(f"| | {' | '.join(human(size) for size in sizes)} |")
        self.say("|---|" + "--:|" * len(sizes))
        steep = []
        for name, points in lines.items():
            cost = dict(points)
            self.say(f"| {name} | {' | '.join(f'{cost[s]:.1f}' if s in cost else '' for s in sizes)} |")
            # From 2 MiB on the fixed part of a call is of no account.
            large = [c for s, c in points if s >= 2 << 20]
            if large and max(large) > 1.03 * large[0]:
                steep.append(name)
        self.say()
        self.bar(not steep, "no page costs more in a larger range, from 2 MiB on" + (f"; not so: {', '.join(steep)}" if steep else ""))


def human(size):
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if size < 1024:
            return f"{size:.0f} {unit}"
    return f"{size:.0f} TiB"


def plot(folder, name, title, xlabel, ylabel, lines, log):
    """lines: {name: points}, into NAME.dat, NAME.svg and NAME.png"""
    data = Path(folder) / f"{name}.dat"
    data.write_text("\n\n\n".join(f'"{line}"\n' + "\n".join(f"{x} {y:.2f}" for x, y in points)
                                for line, points in lines.items()) + "\n")
    script = "".join(f"set terminal {terminal} size {size}\nset output '{folder}/{name}.{ending}'\n" f"""
        set title '{title}'
        set xlabel '{xlabel}'
        set ylabel '{ylabel}'
        set key outside right
        set grid
        {"set logscale x 2; set format x '%.0b %BB'; set logscale y 10" if log else "set yrange [0:*]"}
        plot for [i=0:{len(lines) - 1}] '{data}' index i using 1:2 with linespoints title columnheader(1)
        """ for terminal, size, ending in (("svg", "900,540", "svg"), ("pngcairo", "900,540", "png")))
    subprocess.run(["gnuplot"], input=script, text=True, check=True)


def report(file, folder):
    table = load(file)
    runs = json.loads(Path(file).read_text())["runs"]
    r = Report(table, runs)
    boots = min(sum(other["kernel"] == run["kernel"] and other["topology"] == run["topology"] and
                    other["command"] == run["command"] for other in runs) for run in runs)
    kernels = ", ".join(sorted({f"{run['kernel']} {run['series']}" for run in runs}))
    r.say("# Benchmarks")
    r.say()
    r.say(f"Guest instructions: QEMU {runs[0]['qemu']} (TCG), `-icount shift=0,sleep=off`, one processor. Linux {runs[0]['base']}, "
          f"{kernels}. {boots} boots of each; a count is the least measured in a boot, and then the median of the boots; the spread is "
          "that between boots.")
    r.say()
    r.others()
    r.odp()
    r.alias()
    r.pingpong()
    r.partial()
    r.prefetch()
    r.growth()
    text = "\n".join(r.lines).rstrip() + "\n"
    (Path(folder) / "table.md").write_text(text)
    print(text, end="")
    lines = r.curves()
    if lines:
        plot(folder, "growth", "Cost of a page over the size of the range", "range", "instructions a page", lines, True)
    part = [(k, r.get("partial", "switch", f"partial.pte.{k}")) for k in (0, 1, 51, 256, 512)]
    whole = r.get("alias", "switch", "migrate.pte.512")
    if whole and all(v for _, v in part):
        plot(folder, "partial", "512 pages of device memory, some without an alias", "pages without an alias", "instructions",
             {"page by page": [(k, v[0]) for k, v in part],
              "all migrate if one does": [(0, part[0][1][0]), (1, whole[0]), (512, whole[0])]}, False)
    return FAIL if r.missed else 0


def compare(old, new):
    a, b = load(old), load(new)
    rc, same = 0, 0
    for key in sorted({*a, *b}):
        for kernel in ("unpatched", "normal"):
            x, y = a.get(key, {}).get(kernel), b.get(key, {}).get(kernel)
            if not x and not y:
                continue
            name = f"{kernel} {' '.join(key)}"
            if not x or not y:
                print(f"{name}: {'new' if y else 'gone'}")
            elif abs(y[0] - x[0]) > x[0] / 1000:
                print(f"{name}: {x[0]:.0f} -> {y[0]:.0f} ({change(x, y)})")
                rc = FAIL
            else:
                same += 1
    print(f"{same} counts are the same within 0.1 %")
    return rc


def main(args):
    if args[:1] == ["read"] and len(args) >= 3:
        return read(args[1], args[2:])
    if args[:1] == ["others"] and len(args) == 3:
        return others(*args[1:])
    if args[:1] == ["report"] and len(args) == 3:
        return report(*args[1:])
    if args[:1] == ["compare"] and len(args) == 3:
        return compare(*args[1:])
    print(__doc__, end="", file=sys.stdout if args == ["--help"] else sys.stderr)
    return 0 if args == ["--help"] else USAGE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
