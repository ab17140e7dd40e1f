#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Measure what the patches cost and save, in guest instructions.

usage: [BOOTS=n] [JOBS=n] bench.py [GROUP...]
       bench.py judge FILE             print which budgets a file raw.json keeps

Runs the groups of selftests/programs/hmm-bench.c on the kernels and topologies that
each group needs. Each combination is booted BOOTS times (default 5), with JOBS
guests at the same time (default: one per processor).

Writes to results/bench: table.md, raw.json with every sample and the QEMU command
of each boot, and runs/ with one folder per boot.

table.md says how its figures are made. Exit 1 if one exceeds its budget.
"""

import concurrent.futures
import json
import os
import re
import shutil
import sys
from collections import Counter, namedtuple
from pathlib import Path
from statistics import median

from common import FAIL, JOBS, TOP, die, help_or_usage, step, stop_at_signals, vm

OUT = TOP / "results/bench"
# kernel, topology, group
RUNS = [("unpatched", "none", "others"), ("normal", "none", "others"), ("unpatched", "switch", "odp"), ("normal", "switch", "odp"),
        ("unpatched", "root-ports-iommu", "odp"), ("normal", "root-ports-iommu", "odp"), ("normal", "switch", "alias"),
        ("normal", "switch", "pingpong")]

# The budget of callers that do not ask for aliases, relative to the base. A call takes 43 instructions more, and a private page up to
# 12. benchmarks.md has the reason for each number.
MAY_TAKE = {r"own\..*": 1.09, r"other\.pte\.look": 1.18, r"other\.pte\.1\.look": 1.06, ".*": 1.05}
# The work of the exporter (test_hmm) to migrate its pages is not part of the cost of the walk.
NOT_JUDGED = r"clock|other\..*\.write"
# How many times fewer instructions an alias takes at least, compared with migration without the copy.
AT_LEAST = {"pte.1": 3, "pte.512": 14, "pmd.512": 40}

# A case on one kernel. spread: between boots, in per cent. numbers: such as {"to-ram": {512}}, with what each boot had.
Cost = namedtuple("Cost", "count pages spread numbers")


def measure(groups):
    """Boot everything, and return the folders of the results."""
    runs = [(boot, *run) for boot in range(1, int(os.environ.get("BOOTS") or 5) + 1) for run in RUNS if not groups or run[-1] in groups]
    if not runs:
        die(f"no group {' '.join(groups)}; there are: {' '.join(dict.fromkeys(run[-1] for run in RUNS))}")
    step(f"bench: {len(runs)} boots, QEMU with TCG (no KVM), {JOBS} side by side")
    shutil.rmtree(OUT / "runs", ignore_errors=True)

    def one(boot, kernel, topology, group):
        folder = OUT / "runs" / f"{boot}-{kernel}-{topology}-{group}"
        # One nanosecond is one instruction here. Calibration of the APIC timer would take longer than the rest of the boot, and fail.
        if vm(folder, "bench", kernel, topology, group, append="noapictimer"):
            die(f"could not measure: {(folder / 'conclusion.txt').read_text().strip()} ({folder})")
        return folder
    folders = []
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        for future in concurrent.futures.as_completed([pool.submit(one, *run) for run in runs]):
            folders.append(future.result())
            step(f"{len(folders)}/{len(runs)} {(folders[-1] / 'conclusion.txt').read_text().strip()}")
    return sorted(folders)


def read(folders):
    """The content of raw.json"""
    runs = []
    for folder in folders:
        meta = json.loads((folder / "results.json").read_text())
        run = {k: meta[k] for k in ("kernel", "topology", "command", "base", "series", "qemu")}
        run["qemu_command"] = (folder / "qemu.sh").read_text()
        ktap = (folder / "ktap").read_text()
        run["cases"] = {name: {"pages": int(pages), "samples": [int(s) for s in samples.split()]}
                        for name, pages, samples in re.findall(r"^# cost (\S+) (\d+)((?: \d+)+)$", ktap, re.M)}
        for name, what, number in re.findall(r"^# count (\S+) (\S+) (\d+)$", ktap, re.M):
            run["cases"][name][what] = int(number)
        runs.append(run)
    return json.dumps({"runs": runs}, indent=1) + "\n"


def load(file):
    """{(group, topology, case): {kernel: Cost}}"""
    boots = {}
    for run in json.loads(Path(file).read_text())["runs"]:
        group = run["command"].split()[1]
        for case, c in run["cases"].items():
            boots.setdefault((group, run["topology"], case, run["kernel"]), []).append(c)
    table = {}
    for (*key, kernel), cases in boots.items():
        seen = [min(c["samples"]) for c in cases]
        numbers = {what: {c[what] for c in cases} for what in cases[0].keys() - {"pages", "samples"}}
        table.setdefault(tuple(key), {})[kernel] = Cost(
            median(seen), cases[0]["pages"], 100 * (max(seen) - min(seen)) / median(seen), numbers)
    return table


def per_page(cost):
    each = cost.count / cost.pages
    return f"{each:.1f}" if each < 1000 else f"{each:.0f}"


def change(old, new):
    return f"{100 * (new - old) / old:+.1f} %"


def get(table, group, case):
    return table.get((group, "switch", case), {}).get("normal")


def both(table, group, topology):
    """{case: (base, patched)}: the cases that both kernels have"""
    return {case: (kernels["unpatched"], kernels["normal"]) for (g, t, case), kernels in table.items()
            if (g, t) == (group, topology) and case != "clock" and {"unpatched", "normal"} <= kernels.keys()}


def without_copy(table, case, alias="alias.", move="migrate.", copy="copy.bar"):
    """(alias, migration, migration without the copy of each page), or None if one is missing"""
    a, m, one = (get(table, "alias", name) for name in (alias + case, move + case, copy))
    return (a, m, m._replace(count=m.count - m.pages * one.count)) if a and m and one else None


# The tables return lines. A budget is a line of its own.
def budget(good, text):
    return [f"{'Passed' if good else '**Missed**'}: {text}", ""]


def is_budget(line):
    return line.startswith(("Passed: ", "**Missed**: "))


def complete(table, group, topology):
    """A case without a figure of both kernels is an error: nothing would be compared."""
    alone = [case for (g, t, case), kernels in table.items() if (g, t) == (group, topology) and not {"unpatched", "normal"} <= kernels.keys()]
    return budget(False, f"each case is measured on both kernels; not so: {', '.join(alone)}") if alone else []


def others(table):
    lines = ["## hmm_range_fault() without aliases", "", "| case | pages | base | patched | more | spread |", "|---|--:|--:|--:|--:|--:|"]
    worse = []
    for case, (old, new) in both(table, "others", "none").items():
        lines.append(f"| {case} | {old.pages} | {old.count:.0f} | {new.count:.0f} | {new.count - old.count:+.0f} | "
                     f"{max(old.spread, new.spread):.2f} % |")
        may_take = next(times for pattern, times in MAY_TAKE.items() if re.fullmatch(pattern, case))
        if not re.fullmatch(NOT_JUDGED, case) and new.count > old.count * may_take:
            worse.append(case)
    return [*lines, "", *complete(table, "others", "none"),
            *budget(not worse, "at most 5 % more, 9 % for pages of the caller's device, 18 % for a snapshot of nothing but pages of others, "
                    "6 % for one page of them"
                    + (f"; not so: {', '.join(worse)}" if worse else ""))]


def odp(table):
    lines = ["## RDMA: on-demand paging of RAM", "",
             "Instructions for each page: mapping + unmapping. `virt` is a device that does no DMA (rxe).", "",
             "| topology | case | pages | base | patched | fault | fault and unmap | spread |", "|---|---|--:|--:|--:|--:|--:|--:|"]
    worst, missing = {}, []
    for topology in sorted({t for g, t, _ in table if g == "odp"}):
        cases = both(table, "odp", topology)
        missing += complete(table, "odp", topology)
        for case, (old, new) in cases.items():
            if case + ".unmap" not in cases:
                continue
            old_undo, new_undo = cases[case + ".unmap"]
            old_all, new_all = old.count + old_undo.count, new.count + new_undo.count
            lines.append(f"| {topology} | {case} | {old.pages} | {per_page(old)} + {per_page(old_undo)} | {per_page(new)} + {per_page(new_undo)} | "
                         f"{change(old.count, new.count)} | {change(old_all, new_all)} | {max(old.spread, new.spread):.2f} % |")
            pages = "one page that is not there yet" if case == "odp.none.1" else "16 pages and more" if old.pages >= 16 else "less than 16 pages"
            worst.setdefault(pages, {})[topology, case] = new_all / old_all
    lines += ["", *missing]
    for pages, most in (("one page that is not there yet", 3), ("less than 16 pages", 10), ("16 pages and more", 3)):
        if pages in worst:
            where = max(worst[pages], key=worst[pages].get)
            lines += budget(worst[pages][where] <= 1 + most / 100,
                            f"{pages}: at most {most} % more for a page (most: {100 * (worst[pages][where] - 1):+.1f} %, {' '.join(where)})")
    return lines


def alias(table):
    lines = ["## Device memory, by alias and by migration to RAM", "",
             "Instructions for each page. The columns \"without the copy\" leave out `copy_highpage()` or `memcpy_fromio()`.", "",
             "| case | pages | alias | migration | without the copy | times | without the copy | spread |", "|---|--:|--:|--:|--:|--:|--:|--:|"]
    for what, cases, names in (("walk", ("pte.1", "pte.16", "pte.512", "pmd.512"), ()),
                               ("odp", ("pte.1", "pte.512", "pmd.512"), ("odp.alias.", "odp.fallback.", "copy"))):
        for case in cases:
            found = without_copy(table, case, *names)
            if found:
                a, m, bare = found
                lines.append(f"| {what}, {case} | {a.pages} | {' | '.join(map(per_page, found))} | {m.count / a.count:.1f} | "
                             f"{bare.count / a.count:.1f} | {max(a.spread, m.spread):.2f} % |")
    lines.append("")
    for case, least in AT_LEAST.items():
        found = without_copy(table, case)
        times = found[2].count / found[0].count if found else 0
        lines += budget(times >= least, f"{case}: at least {least} times fewer than migration without the copy ({times:.1f})")
    return lines


def pingpong(table):
    lines = ["## A device and its peer take turns at the same memory", "",
             "In a round the peer looks up 512 pages. Then the device looks them up, and migrates back those that have left its memory. "
             "Each migration copies 4096 bytes.", "",
             "| case | instructions a round | pages to RAM | pages to the device | spread |", "|---|--:|--:|--:|--:|"]
    good = True
    for case in ("alias.pte.512", "migrate.pte.512", "alias.pmd.512", "migrate.pmd.512"):
        cost = get(table, "pingpong", f"pingpong.{case}")
        moved = [cost.numbers[what] for what in ("to-ram", "to-device")] if cost else []
        good = good and moved == [{0 if case.startswith("alias") else 512}] * 2
        if cost:
            lines.append(f"| {case} | {cost.count:.0f} | {' | '.join(' or '.join(map(str, sorted(n))) for n in moved)} | {cost.spread:.2f} % |")
    return [*lines, "", *budget(good, "no page migrates and nothing is copied, against two migrations a round")]


def judge(table):
    """All tables of what was measured."""
    groups = {group for group, _, _ in table}
    return [line for lines in (others, odp, alias, pingpong) if lines.__name__ in groups for line in lines(table)]


def exit_code(lines):
    return FAIL if any(line.startswith("**Missed**") for line in lines) else 0


def report(file):
    """Write the tables, and print them."""
    runs = json.loads(Path(file).read_text())["runs"]
    boots = min(Counter((run["kernel"], run["topology"], run["command"]) for run in runs).values())
    booted = "once" if boots == 1 else f"{boots} times"
    kernels = ", ".join(sorted({f"{run['kernel']} {run['series']}" for run in runs}))
    lines = ["# Benchmarks", "",
             f"Guest instructions: QEMU {runs[0]['qemu']} (TCG), `-icount shift=0,sleep=off`, one processor. Linux {runs[0]['base']}. "
             f"Kernels, with the git id of their source: {kernels}. `normal` has the patches. Each group of cases was booted {booted} on "
             "each kernel and topology that it needs. The count of a case in a boot is the least of its samples. A figure is the median of "
             "these counts. The spread is the difference between the greatest and the least of them, in per cent of the median.", "",
             *judge(load(file))]
    text = "\n".join(lines).rstrip() + "\n"
    (OUT / "table.md").write_text(text)
    print(text, end="")
    return exit_code(lines)


def main(args):
    if args[:1] == ["judge"] and len(args) == 2:
        lines = [line for line in judge(load(args[1])) if is_budget(line)]
        print("\n".join(lines))
        return exit_code(lines)
    if any(arg.startswith("-") for arg in args):
        return help_or_usage(__doc__, args)
    stop_at_signals()
    raw = OUT / "raw.json"
    raw.write_text(read(measure(args)))
    rc = report(raw)
    step(f"bench: results are in {OUT.relative_to(TOP)}")
    return rc


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
