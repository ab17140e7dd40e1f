#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Combine and judge the results of the suite cost.

usage: bench.py read OUT RUN...      write the counts of the folders RUN to the file OUT
       bench.py report FILE DIR      write DIR/table.md, DIR/cover.txt, DIR/*.svg, DIR/*.png (needs gnuplot); print the table
       bench.py judge FILE           print which budgets are kept
       bench.py compare OLD NEW      print what has changed between two files

A count is the median of all boots. The count of a boot is the least of its samples, because an interrupt only adds to it.
exit: 1 if a budget is exceeded (report, judge), or if a count differs by more than 0.1 % (compare; 1 % for code that waits).
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from statistics import median

FAIL, USAGE = 1, 2

# The budget of callers that do not ask for aliases, relative to the base. In a snapshot of 512 entries that are all private pages
# of another owner, each entry costs a call that compares the owner, and nothing else.
MAY_TAKE = 1.03
MAY_TAKE_OF = {r"other\.pte\.look": 1.10}
# These cases wait for a grace period or another thread, whose time varies.
WAITS = r"revoke\.(exit|unbind)\..*"
# The work of the exporter (test_hmm) to migrate its pages is not part of the cost of the walk.
NOT_JUDGED = r"clock|other\..*\.write"


def costs(folder):
    """{case: (pages, samples)} of a run"""
    ktap = (Path(folder) / "ktap").read_text()
    return {name: (int(pages), [int(s) for s in samples.split()])
            for name, pages, samples in re.findall(r"^# cost (\S+) (\d+)((?: \d+)+)$", ktap, re.M)}


def numbers(folder):
    """{case: {what: number}}: other numbers, such as migrations"""
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


def counted(file):
    """{(kernel, group, topology, case, what): numbers of all boots}: other numbers, which have no spread"""
    found = {}
    for run in json.loads(Path(file).read_text())["runs"]:
        for case, c in run["cases"].items():
            for what in c.keys() - {"pages", "samples"}:
                found.setdefault((run["kernel"], run["command"].split()[1], run["topology"], case, what), set()).add(c[what])
    return found


def may_take(case):
    return next((n for pattern, n in MAY_TAKE_OF.items() if re.fullmatch(pattern, case)), MAY_TAKE)


def per_page(value):
    count, pages, _ = value
    return f"{count / pages:.1f}" if count / pages < 1000 else f"{count / pages:.0f}"


def change(old, new):
    return f"{100 * (new[0] - old[0]) / old[0]:+.1f} %"


class Report:
    """The tables, and whether the budgets are kept."""

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

    def number(self, case, what, topology=None, kernel="normal"):
        """A number that is the same in each boot, or None."""
        seen = {run["cases"][case].get(what) for run in self.runs
                if case in run["cases"] and run["kernel"] == kernel and topology in (None, run["topology"])}
        return seen.pop() if len(seen) == 1 else None

    def measured(self, group):
        return any(g == group for g, _, _ in self.table)

    def both(self, group, topology):
        """The cases that both kernels have. A case of the base alone is an error."""
        alone = []
        for (g, t, case), kernels in self.table.items():
            if (g, t) != (group, topology) or case == "clock":
                continue
            if {"unpatched", "normal"} <= kernels.keys():
                yield case, kernels["unpatched"], kernels["normal"]
            elif "unpatched" in kernels:
                alone.append(case)
        if alone:
            self.bar(False, f"each case is measured with the patches, too; not so: {', '.join(alone)}")

    def others(self):
        if not self.measured("others"):
            return
        self.say("## B0: hmm_range_fault() without aliases")
        self.say()
        self.say("| case | pages | base | patched | more | spread |")
        self.say("|---|--:|--:|--:|--:|--:|")
        worse = []
        for case, old, new in self.both("others", "none"):
            self.say(f"| {case} | {old[1]} | {old[0]:.0f} | {new[0]:.0f} | {new[0] - old[0]:+.0f} | {max(old[2], new[2]):.2f} % |")
            if not re.fullmatch(NOT_JUDGED, case) and new[0] > old[0] * may_take(case):
                worse.append(case)
        self.say()
        self.bar(not worse, "at most 3 % more, and 10 % for a snapshot of nothing but pages of others"
                 + (f"; not so: {', '.join(worse)}" if worse else ""))

    def odp(self):
        if not self.measured("odp"):
            return
        self.say("## RDMA: on-demand paging of RAM")
        self.say()
        self.say("Instructions for each page: mapping + unmapping. `virt` is a device that does no DMA (rxe).")
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
                pages = "one page that is not there yet" if case == "odp.none.1" else "16 pages and more" if old[1] >= 16 else "less than 16 pages"
                worst.setdefault(pages, {})[topology, case] = both[1][0] / both[0][0]
        self.say()
        for pages, most in (("one page that is not there yet", 1), ("less than 16 pages", 10), ("16 pages and more", 3)):
            if pages in worst:
                where = max(worst[pages], key=worst[pages].get)
                self.bar(worst[pages][where] <= 1 + most / 100,
                         f"{pages}: at most {most} % more for a page (most: {100 * (worst[pages][where] - 1):+.1f} %, {' '.join(where)})")

    def alias(self):
        if not self.measured("alias"):
            return
        self.say("## B1: device memory, by alias and by migration to RAM")
        self.say()
        self.say("Instructions for each page. The columns \"without the copy\" leave out `copy_highpage()` or `memcpy_fromio()`.")
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
        for case, least in (("pte.1", 3), ("pte.512", 15), ("pmd.512", 50)):
            a, m = self.get("alias", "switch", "alias." + case), self.get("alias", "switch", "migrate." + case)
            one = self.get("alias", "switch", "copy.bar")
            times = (m[0] - m[1] * one[0]) / a[0] if a and m and one else 0
            self.bar(times >= least, f"{case}: at least {least} times fewer than migration without the copy ({times:.1f})")

    def pingpong(self):
        if not self.measured("pingpong"):
            return
        self.say("## B2: a device and its peer take turns at the same memory")
        self.say()
        self.say("In a round the peer looks up 512 pages. Then the device looks them up, and migrates back those that have left its memory. "
                 "Each migration copies 4096 bytes.")
        self.say()
        self.say("| case | instructions a round | pages to RAM | pages to the device | spread |")
        self.say("|---|--:|--:|--:|--:|")
        moved = {}
        for case in ("alias.pte.512", "migrate.pte.512", "alias.pmd.512", "migrate.pmd.512"):
            name = f"pingpong.{case}"
            value = self.get("pingpong", "switch", name)
            moved[case] = self.number(name, "to-ram"), self.number(name, "to-device")
            if value:
                self.say(f"| {case} | {value[0]:.0f} | {moved[case][0]} | {moved[case][1]} | {value[2]:.2f} % |")
        self.say()
        self.bar(all(n == ((0, 0) if case.startswith("alias") else (512, 512)) for case, n in moved.items()),
                 "no page migrates and nothing is copied, against two migrations a round")

    def partial(self):
        if not self.measured("partial"):
            return
        self.say("## B3: no alias for some of 512 pages")
        self.say()
        self.say("| case | pages without alias | migrated | walks | instructions | if all migrate | spread |")
        self.say("|---|--:|--:|--:|--:|--:|--:|")
        good = True
        for kind, wanted in (("pte", (0, 1, 51, 256, 512)), ("pmd", (0, 1))):
            whole = self.get("alias", "switch", f"migrate.{kind}.512")
            for k in wanted:
                name = f"partial.{kind}.{k}"
                value = self.get("partial", "switch", name)
                if not value:
                    good = False
                    continue
                migrated, walks = self.number(name, "migrated"), self.number(name, "walks")
                good = good and migrated == (512 if kind == "pmd" and k else k) and walks is not None and walks <= 2
                self.say(f"| {kind} | {k} | {migrated} | {walks} | {value[0]:.0f} | {whole[0]:.0f} | {value[2]:.2f} % |"
                         if whole else f"| {kind} | {k} | {migrated} | {walks} | {value[0]:.0f} | - | {value[2]:.2f} % |")
        self.say()
        self.bar(good, "just these pages migrate, or all of a huge page, with at most one walk more")

    def prefetch(self):
        rows = [(case, v["normal"]) for (g, _, case), v in self.table.items()
                if g == "prefetch" and case != "clock" and not case.endswith(".unmap") and "normal" in v]
        if not rows:
            return
        self.say("## B8: prefetch of device memory, without faults")
        self.say()
        self.say("| case | pages found | instructions for each page | spread |")
        self.say("|---|--:|--:|--:|")
        for case, value in rows:
            self.say(f"| {case} | {value[1]} | {per_page(value)} | {value[2]:.2f} % |")
        self.say()

    def importers(self):
        cases = {(kind, n): (self.get("importers", "switch-importers", f"importers.alias.{kind}.{n}"),
                             self.get("importers", "switch-importers", f"importers.fallback.{kind}.{n}"))
                 for kind in ("pte", "pmd") for n in (1, 2, 3, 4)}
        if not self.measured("importers"):
            return
        if not all(a and f for a, f in cases.values()):
            self.bar(False, "B4: all cases are measured")
            return
        self.say("## B4: up to four importers")
        self.say()
        self.say("The importers map 512 pages of device memory one after the other, as on-demand paging does. Without aliases the pages "
                 "migrate for the first importer, and the others find them in RAM. Migrating them back is not counted.")
        self.say()
        self.say("| pages | importers | by alias | migrated | without alias | migrated for the first | for the others | times | spread |")
        self.say("|---|--:|--:|--:|--:|--:|--:|--:|--:|")
        moved, less = True, True
        for (kind, n), (alias, fallback) in cases.items():
            numbers = [self.number(f"importers.{how}.{kind}.{n}", f"migrated-{who}")
                       for how in ("alias", "fallback") for who in ("first", "later")]
            moved = moved and numbers == [0, 0, 512, 0]
            less = less and alias[0] < fallback[0]
            self.say(f"| {kind} | {n} | {alias[0]:.0f} | {numbers[0] + numbers[1] if None not in numbers else '?'} | {fallback[0]:.0f} | "
                     f"{numbers[2]} | {numbers[3]} | {fallback[0] / alias[0]:.1f} | {max(alias[2], fallback[2]):.2f} % |")
        self.say()
        for kind in ("pte", "pmd"):
            (a1, f1), (a4, f4) = cases[kind, 1], cases[kind, 4]
            more = (a4[0] - a1[0]) / 3 - (f4[0] - f1[0]) / 3
            if more > 0:
                self.say(f"{kind}: each further importer takes {more / 512:.1f} instructions more for a page by alias than for a page in RAM. So a "
                         f"single migration without a way back is cheaper from {1 + (f1[0] - a1[0]) / more:.0f} importers on.")
            else:
                self.say(f"{kind}: each further importer takes {-more / 512:.1f} instructions less for a page by alias than for a page in RAM. So "
                         "migration is not cheaper for any number of importers.")
            self.say()
        self.bar(moved, "nothing migrates by the alias; without it each page does once, for the first importer")
        self.bar(less, "the alias takes less for one to four importers")

    def small(self):
        small = self.get("small", "switch", "small.pte.4096")
        if not self.measured("small"):
            return
        if not small:
            self.bar(False, "B5: all cases are measured")
            return
        self.say("## B5: more device memory than BAR")
        self.say()
        numbers = [self.number("small.pte.4096", what) for what in ("aliases", "migrated", "walks", "errors")]
        self.say(f"The process has 4096 pages of test_hmm's memory, and the BAR has room for {numbers[0]} of them. {numbers[0]} pages are reached by "
                 f"alias, and {numbers[1]} migrate. This takes {numbers[2]} walks (one, and one more for each page table that has pages to "
                 f"migrate) and {small[0]:.0f} instructions. A second lookup of the same pages migrates nothing. Pages with wrong data: {numbers[3]}.")
        self.say()
        self.bar(numbers[3] == 0, "no errors: each alias leads to its page")

    def revoke(self):
        def get(name, n, zap=""):
            return self.get("revoke", "switch-importers", f"revoke.{name}.{n}{zap}")
        names = ("migrate.alias.pte", "migrate.alias.pmd", "munmap.ram.pte", "munmap.alias.pte", "munmap.ram.pmd", "munmap.alias.pmd",
                 "release.ram.pte", "release.alias.pte", "exit.ram.pte", "exit.alias.pte", "unbind.alias.pte", "unbind.alias.pmd")
        rows = [(name, n) for name in names for n in (0, 1, 2, 3, 4) if get(name, n)]
        if not self.measured("revoke"):
            return
        self.say("## B6: importers lose their mappings")
        self.say()
        self.say("Each importer has mapped the same 512 pages. Then one of these events happens: the pages migrate to RAM (`migrate`), the process "
                 "unmaps them (`munmap`), the importers release their MRs (`release`), the process exits (`exit`), or the driver of the exporter "
                 "is unbound (`unbind`). \"of the last importer\" is the difference to the row with one importer less. \"unmapping\" has the "
                 "instructions of `ib_umem_odp_unmap_dma_pages()` in the notifiers, for each importer and page. \"pages unmapped\" counts only "
                 "pages that notifiers unmapped. `exit` and `unbind` also wait. The guest's clock runs on during a wait, so these figures are "
                 "larger than the number of instructions.")
        self.say()
        self.say("| case | importers | instructions | of the last importer | unmapping | notifiers called | pages unmapped | migrated | wrong data | spread |")
        self.say("|---|" + "--:|" * 9)
        good, flat, dearer = {name for name, _ in rows} == set(names), [], []
        for name, n in rows:
            value, before, zap = get(name, n), get(name, n - 1), get(name, n, ".zap")
            numbers = [self.number(f"revoke.{name}.{n}", what) for what in ("calls", "zapped", "migrated", "lost")]
            keeps = name.startswith(("migrate", "unbind"))
            good = good and numbers[1:] == [0 if name.startswith("release") else 512 * n, 512 if keeps else 0, 0]
            self.say(f"| {name} | {n} | {value[0]:.0f} | {f'{value[0] - before[0]:.0f}' if before else ''} | "
                     f"{f'{zap[0] / n / zap[1]:.1f}' if zap else ''} | {' | '.join(map(str, numbers))} | {value[2]:.2f} % |")
            first = get(name, 1, ".zap")
            if zap and first and zap[0] / n > 1.03 * first[0]:
                flat.append(f"{name}.{n}")
            ram = get(name.replace("alias", "ram"), n, ".zap")
            if zap and ram and zap[0] > ram[0]:
                dearer.append(f"{name}.{n}")
        self.say()
        self.bar(good, "each mapping is gone, each page has its data, and pages migrate only by `migrate` and `unbind`")
        self.bar(not flat, "unmapping costs each of several importers no more than a single one" + (f"; not so: {', '.join(flat)}" if flat else ""))
        self.bar(not dearer, "unmapping an alias takes no more instructions than unmapping RAM" + (f"; not so: {', '.join(dearer)}" if dearer else ""))

    def maps(self):
        whats = ("dma", "iommu-map", "iommu-unmap", "iommu-flush")
        rows = []
        for topology, how in (("switch", "bus address"), ("root-ports-iommu", "IOMMU")):
            for case, text in (("odp.pte.512", "RAM, pages"), ("odp.pmd.512", "RAM, a huge page"), ("odp.hugetlb.512", "RAM, an MR of huge pages"),
                               ("odp.alias.pte.512", "alias, pages"), ("odp.alias.pmd.512", "alias, a huge page"),
                               ("odp.fallback.pte.512", "migrated, pages")):
                old = [self.number(case, what, topology, "unpatched") for what in whats]
                new = [self.number(case, what, topology) for what in whats]
                if None not in new:
                    rows.append((topology, how, case, text, None if None in old else old, new))
        if not any(topology == "root-ports-iommu" for topology, *_ in rows):
            return
        self.say("## B7: DMA map and IOMMU calls for 2 MiB")
        self.say()
        self.say("The memory is mapped by on-demand paging. \"DMA\" counts the pages that `dma_map_phys()` or `dma_iova_link()` mapped: those with "
                 "`HMM_PFN_DMA_MAPPED` and without `HMM_PFN_P2PDMA_BUS`. \"IOMMU map\", \"unmap\" and \"flush\" count the calls of `map_range()`, "
                 "`unmap_range()` and `iotlb_sync()`. The MR keeps its IOVAs, so each page is flushed from the IOTLB as soon as it is unmapped, "
                 "even if the IOMMU uses lazy invalidation. A case with `-` was not run on the base.")
        self.say()
        self.say("| topology | memory | DMA, base | patched | IOMMU map, base | patched | unmap, base | patched | flush, base | patched |")
        self.say("|---|---|" + "--:|" * 8)
        more, bus, bridge, huge = [], [], [], []
        for topology, how, case, text, old, new in rows:
            pairs = zip(old or ["-"] * 4, new)
            self.say(f"| {topology} | {text} | {' | '.join(f'{a} | {b}' for a, b in pairs)} |")
            if old and any(b > a for a, b in zip(old, new)):
                more.append(f"{topology} {case}")
            if ".alias." in case and topology == "switch":
                bus += new
            elif ".alias." in case:
                bridge += new[:2]
            if "hugetlb" in case:
                huge += new[:3]
        self.say()
        self.bar(not more, "RAM takes no more calls than in the base" + (f"; not so: {', '.join(more)}" if more else ""))
        if bus:
            self.bar(not any(bus), "an alias by bus address takes none at all: no DMA mapping and no IOMMU call")
        self.bar(bool(bridge) and set(bridge) == {512},
                 "an alias through the host bridge takes one for each page, as RAM does: one DMA mapping and one IOMMU map call")
        self.bar(huge == [1, 1, 1], "an MR of huge pages takes one DMA mapping, one IOMMU map call and one unmap call")
        link = {how: (self.get("maps", "root-ports-iommu", f"link.{how}"), self.get("maps", "root-ports-iommu", f"link.{how}.unmap"))
                for how in ("page", "range", "folio")}
        if all(a and b for a, b in link.values()):
            self.say("This table compares ways to map the pages of a folio. Figures are instructions for each page: `dma_iova_link()` and "
                     "`dma_iova_sync()` to map, `dma_iova_unlink()` to unmap.")
            self.say()
            self.say("| | map | unmap |")
            self.say("|---|--:|--:|")
            for how, text in (("page", "page by page, as `hmm_dma_map_pfn()` does"), ("range", "mapped page by page, unmapped in one call"),
                              ("folio", "mapped and unmapped in one call")):
                self.say(f"| {text} | {' | '.join(per_page(v) for v in link[how])} |")
            self.say()
            self.say("`hmm_dma_map_pfn()` maps page by page for this reason: if a folio was mapped in one call, unmapping one of its pages unmaps "
                     f"{self.number('link.folio', 'lost-by-one')} pages, because `iommu_unmap()` cannot unmap a part. The pages of an ODP MR are "
                     "unmapped one by one, while the device still uses the others. An MR of huge pages (`IBV_ACCESS_HUGETLB`) only unmaps "
                     "whole huge pages, so it maps each of them in one call.")
            self.say()

    def cover(self):
        """Narrow plain text for the cover letter."""
        rows = []

        def both(title, group, topology, cases):
            found = [(text, self.get(group, topology, case, "unpatched"), self.get(group, topology, case)) for case, text in cases]
            found = [(text, old, new) for text, old, new in found if old and new]
            if found:
                rows.append(f"{title:46}{'base':>10}{'patched':>10}")
                rows.extend(f"  {text:44}{per_page(old):>10}{per_page(new):>10}" for text, old, new in found)

        both("hmm_range_fault() without the flag, a page", "others", "none",
             (("pte.write", "RAM, 512 pages"), ("pte.1.write", "RAM, one page"), ("pmd.write", "RAM, a huge page"),
              ("own.pte.write", "device memory of the caller, 512 pages"), ("own.pmd.write", "device memory of the caller, a huge page"),
              ("other.pte.look", "device memory of others, looked at, 512 pages")))
        for topology, text in (("switch", "no IOMMU"), ("root-ports-iommu", "IOMMU")):
            both(f"RDMA ODP of RAM, {text}, a page", "odp", topology,
                 (("odp.pte.1", "one page"), ("odp.pte.16", "16 pages"), ("odp.pte.512", "512 pages"), ("odp.pmd.512", "a huge page")))

        def moved(title, copy, cases):
            found = [(text, self.get("alias", "switch", alias), self.get("alias", "switch", move)) for alias, move, text in cases]
            found = [(text, alias, move) for text, alias, move in found if alias and move]
            one = self.get("alias", "switch", copy)
            if found and one:
                rows.append(f"{title:46}{'alias':>10}{'migration':>10}")
                rows.extend(f"  {text:44}{per_page(alias):>10}{per_page((move[0] - move[1] * one[0], move[1], 0)):>10}"
                            for text, alias, move in found)

        moved("Device memory of a peer, a page, without copying", "copy.bar",
              (("alias.pte.1", "migrate.pte.1", "hmm_range_fault(), one page"),
               ("alias.pte.512", "migrate.pte.512", "hmm_range_fault(), 512 pages"),
               ("alias.pmd.512", "migrate.pmd.512", "hmm_range_fault(), a huge page")))
        moved("", "copy", (("odp.alias.pte.512", "odp.fallback.pte.512", "RDMA ODP, 512 pages"),
                           ("odp.alias.pmd.512", "odp.fallback.pmd.512", "RDMA ODP, a huge page")))
        return "".join(row.rstrip() + "\n" for row in rows)

    def curves(self):
        """{name: [(bytes, instructions for each page)]}"""
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
        self.say("## Growth: instructions for each page by the size of the range")
        self.say()
        self.say(f"| | {' | '.join(human(size) for size in sizes)} |")
        self.say("|---|" + "--:|" * len(sizes))
        steep = []
        for name, points in lines.items():
            cost = dict(points)
            self.say(f"| {name} | {' | '.join(f'{cost[s]:.1f}' if s in cost else '' for s in sizes)} |")
            # From 2 MiB on the fixed cost of a call does not matter.
            large = [c for s, c in points if s >= 2 << 20]
            if large and max(large) > 1.03 * large[0]:
                steep.append(name)
        self.say()
        self.bar(not steep, "no page costs more in a larger range (from 2 MiB upwards)" + (f"; not so: {', '.join(steep)}" if steep else ""))


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


def judge(file):
    """Return: the complete report."""
    table = load(file)
    runs = json.loads(Path(file).read_text())["runs"]
    r = Report(table, runs)
    boots = min(sum(other["kernel"] == run["kernel"] and other["topology"] == run["topology"] and
                    other["command"] == run["command"] for other in runs) for run in runs)
    kernels = ", ".join(sorted({f"{run['kernel']} {run['series']}" for run in runs}))
    r.say("# Benchmarks")
    r.say()
    r.say(f"Guest instructions: QEMU {runs[0]['qemu']} (TCG), `-icount shift=0,sleep=off`, one processor. Linux {runs[0]['base']}. "
          f"Kernels, with the git id of their source: {kernels}. `normal` has the patches. Each group of cases was booted {boots} times on "
          "each kernel and topology that it needs. The count of a case in a boot is the least of its samples. A figure is the median of "
          "these counts. The spread is the difference between the greatest and the least of them, in per cent of the median.")
    r.say()
    r.others()
    r.odp()
    r.alias()
    r.pingpong()
    r.partial()
    r.importers()
    r.small()
    r.revoke()
    r.maps()
    r.prefetch()
    r.growth()
    return r, boots


def report(file, folder):
    r, boots = judge(file)
    text = "\n".join(r.lines).rstrip() + "\n"
    (Path(folder) / "table.md").write_text(text)
    (Path(folder) / "cover.txt").write_text(
        f"Guest instructions (QEMU TCG, -icount shift=0, one processor; the median of\n{boots} boots):\n\n{r.cover()}")
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
    for name, group, topology, what, title, xlabel in (
            ("importers", "importers", "switch-importers", r"importers\.(.*)\.(\d+)", "512 pages of device memory for several importers", "importers"),
            ("revoke", "revoke", "switch-importers", r"revoke\.((?:migrate|munmap).*)\.(\d+)", "512 pages are taken from several importers",
             "importers")):
        lines = {}
        for (g, t, case), kernels in r.table.items():
            match = re.fullmatch(what, case)
            if (g, t) == (group, topology) and match:
                lines.setdefault(match[1], []).append((int(match[2]), kernels["normal"][0]))
        if lines:
            plot(folder, name, title, xlabel, "instructions", lines, False)
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
            elif abs(y[0] - x[0]) > x[0] / (100 if re.fullmatch(WAITS, key[2]) else 1000):
                print(f"{name}: {x[0]:.0f} -> {y[0]:.0f} ({change(x, y)})")
                rc = FAIL
            else:
                same += 1
    a, b = counted(old), counted(new)
    for key in sorted(a.keys() & b.keys()):
        if a[key] != b[key]:
            print(f"{' '.join(key)}: {sorted(a[key])} -> {sorted(b[key])}")
            rc = FAIL
        else:
            same += 1
    print(f"{same} counts are equal within 0.1 % (within 1 % for code that waits)")
    return rc


def main(args):
    if args[:1] == ["read"] and len(args) >= 3:
        return read(args[1], args[2:])
    if args[:1] == ["report"] and len(args) == 3:
        return report(*args[1:])
    if args[:1] == ["judge"] and len(args) == 2:
        r, _ = judge(args[1])
        print("\n".join(line for line in r.lines if line.startswith(("Passed: ", "**Missed**: "))))
        return FAIL if r.missed else 0
    if args[:1] == ["compare"] and len(args) == 3:
        return compare(*args[1:])
    print(__doc__, end="", file=sys.stdout if args == ["--help"] else sys.stderr)
    return 0 if args == ["--help"] else USAGE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
