#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Write the results of the last `make`, `make demo`, `make test` or `make soak` as one page.

usage: report.py [RESULTS]

Reads RESULTS/latest (default: results/latest), the results of its runs, and those of
`make bench`. The figures of an earlier `make` or `make demo` stay on the page. Writes
RESULTS/report/index.html and prints its path. RESULTS can be copied elsewhere as a whole.
"""

import html
import json
import re
import sys
from pathlib import Path

import bench
from common import TOP, die, help_or_usage
from results import NOT_XML, VERDICTS, message, numbers, verdict

PICTURES = TOP / "selftests/pictures"
# A status has a mark, too, for readers who see no colours.
MARKS = {"pass": "✓", "fail": "✗", "skip": "–"}
# The devices of a picture are QEMU's. The demo has models in their place.
MODELS = {"edu": "ConnectX", "ivshmem": "GP100"}
# The colours of the pictures (scripts/guest/topology.py) become those of the page, which has a dark mode.
COLOURS = {"#1f2328": "currentColor", "#ffffff": "var(--paper)", "#f6f8fa": "var(--soft)", "#eaeef2": "var(--soft)", "#8c959f": "var(--skip)",
           "#1a7f37": "var(--pass)", "#0969da": "var(--p2p)", "#bc4c00": "var(--moved)", "#cf222e": "var(--fail)", "#ddf4ff": "var(--blue)",
           "#fff8c5": "var(--yellow)", "#fbefff": "var(--violet)", "#ffebe9": "var(--red)"}
STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --paper: #fff; --line: #d0d7de; --soft: #f6f8fa;
  --pass: #1a7f37; --fail: #cf222e; --skip: #656d76; --p2p: #0969da; --moved: #bc4c00;
  --blue: #ddf4ff; --yellow: #fff8c5; --violet: #fbefff; --red: #ffebe9 }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --paper: #0d1117; --line: #30363d; --soft: #161b22;
  --pass: #3fb950; --fail: #ff7b72; --skip: #9198a1; --p2p: #58a6ff; --moved: #f0883e;
  --blue: #12304f; --yellow: #3a3010; --violet: #2f2145; --red: #4a1d20 } }
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 80rem; padding: 1rem; font: 16px/1.45 system-ui, sans-serif; color: var(--ink);
  background: var(--paper); overflow-wrap: anywhere }
.pass { color: var(--pass) } .fail { color: var(--fail) } .skip { color: var(--skip) }
h1 { margin: 0 } .verdict { font-size: 1.3rem; margin: .5rem 0 } .bars { max-width: 48rem } h2 { margin: 2rem 0 .5rem; border-bottom: 1px solid var(--line) }
a { color: inherit } table { border-collapse: collapse; width: 100% }
th, td { border: 1px solid var(--line); padding: .3rem .5rem; text-align: left; vertical-align: top; overflow-wrap: break-word }
thead th { background: var(--soft) } .matrix td a { display: block; font-size: .85rem; margin: .1rem 0 }
pre { white-space: pre-wrap; background: var(--soft); padding: .5rem; font-size: .8rem; max-height: 24rem; overflow-y: auto }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(18rem, 100%), 1fr)); gap: 1rem }
figure { margin: 0; border: 1px solid var(--line); padding: .5rem } figcaption { margin-top: .5rem }
figure svg { display: block; margin: auto; max-width: 100%; height: 20rem }
.bar { position: relative; height: .9rem; background: var(--soft); border: 1px solid var(--line); margin: .15rem 0 .6rem }
.bar i { position: absolute; inset: 0 auto 0 0; background: var(--p2p) }
.bar i.moved { left: auto; right: 0; background: var(--moved) }
@media (max-width: 64rem) {
  thead { display: none } tr, td, tbody th { display: block; border-width: 0 } tr { border: 1px solid var(--line); margin-bottom: .6rem }
  tbody th { background: var(--soft) } td:empty { display: none } td[data-what]::before { content: attr(data-what) ": "; color: var(--skip) } }
"""


def text(value):
    return html.escape(NOT_XML.sub("\ufffd", str(value)))


def state(counts):
    return "fail" if counts["FAIL"] or not sum(counts.values()) else "pass" if counts["PASS"] else "skip"


def number(count, what):
    return f"{count} {what}{'' if count == 1 else 's'}"


def amount(count):
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count} bytes"


def order(name):
    """The place of a topology in what make prints; the others come after, by name."""
    runs = (TOP / "selftests/suites/p2p-table/runs").read_text().splitlines()
    known = [line.split()[1] for line in runs if line and not line.startswith("#")]
    return known.index(name) if name in known else len(known), name


def picture(name, models={}):
    """A picture of selftests/pictures without its caption and its paper, in the colours of the page."""
    path = PICTURES / f"{name}.svg"
    if not path.exists():
        return ""
    svg = path.read_text(encoding="utf-8")
    size, head, caption, drawing = re.fullmatch(r"(<svg[^>]*>)(.*?<g[^>]*>\n)<polygon[^>]*>\n((?:<text.*?</text>\n)*)(.*)", svg, re.S).groups()
    lines = [-float(y) for y in re.findall(r'<text[^>]* y="(-[0-9.]+)"', caption)]
    # The caption is below the drawing.
    width, height = re.search(r'viewBox="0.00 0.00 ([0-9.]+) ([0-9.]+)"', size).groups()
    rest = float(height) - (max(lines) + 14 if lines else 0)
    size = re.sub(r'viewBox="[^"]*"', f'viewBox="0 0 {width} {rest:.1f}"', re.sub(r' (width|height)="[^"]*"', "", size))
    for qemu, model in models.items():
        # At the middle of the text that was there
        drawing = re.sub(rf'<text x="([0-9.]+)"([^>]*)>({qemu}[^<]*)<',
                         lambda m, model=model: f'<text x="{float(m[1]) + 3.3 * len(m[3]):.0f}"{m[2]} text-anchor="middle">{model}<', drawing)
    return re.sub('(fill|stroke)="(#[0-9a-f]{6})"', lambda m: f'{m[1]}="{COLOURS[m[2]]}"', size + head + drawing)


def table(head, rows, kind=""):
    """The first cell of each row is its header. Cells are HTML."""
    def cells(row):
        first, *others = row
        return f"<th>{first}</th>" + "".join(f'<td data-what="{name}">{cell}</td>' if cell else "<td></td>" for name, cell in zip(head[1:], others))
    return (f'<table class="{kind}"><thead><tr>{"".join(f"<th>{name}</th>" for name in head)}</tr></thead><tbody>'
            + "\n".join(f"<tr>{cells(row)}</tr>" for row in rows) + "</tbody></table>")


class Page:
    def __init__(self, results):
        self.results, self.latest = results, (results / "latest").resolve()
        self.sum = json.loads((self.latest / "results.json").read_text())
        self.runs = self.sum["runs"]
        for run in self.runs:
            run["path"] = (self.latest / run["folder"]).resolve()
            own = run["path"] / "results.json"
            run["tests"] = json.loads(own.read_text())["tests"] if own.exists() else []
            run["what"] = " ".join([run["suite"], run["kernel"], run["topology"], *run["command"].split()[1:]]).strip()
        self.start = min((run["start"] for run in self.runs), default="")
        self.bases = " ".join(dict.fromkeys(run["base"] for run in self.runs if run.get("base")))
        # The figures of an earlier `make` or `make demo` of the same base and patches
        known = {run["path"] for run in self.runs}
        versions = {(run.get("base"), run.get("series")) for run in self.runs}
        earlier = [{**json.loads(path.read_text()), "path": path.parent.resolve()}
                   for suite in ("p2p-table", "e2e", "gpus") for path in sorted(results.glob(f"*/{suite}*/results.json"))]
        self.earlier = [run for run in earlier if run["path"] not in known and run["path"].suffix != ".first" and
                        ((run.get("base"), run.get("series")) in versions or
                         run["kernel"] == "feature" and run.get("base") in dict(versions))]

    def link(self, path, label, kind=""):
        """Results of old runs may have been removed since."""
        if not path.exists():
            return f'<span class="{kind}">{label} (no log)</span>'
        return f'<a class="{kind}" href="../{text(path.relative_to(self.results.resolve()))}">{label}</a>'

    def log(self, run, label, kind=""):
        return self.link(run["path"] / ("ktap" if run["kernel"] == "host" else "console.log"), label, kind)

    def tests(self, status):
        return [(run, test) for run in self.runs for test in run["tests"] if test["status"] == status]

    def top(self):
        kind = state(self.sum["counts"])
        flakes = sum((run.get("flakes", []) for run in self.runs), [])
        word = {"pass": "Passed", "fail": "Failed", "skip": "Nothing was tested"}[kind]
        return (f'<h1>Peer-to-peer DMA to device-private memory</h1>\n<p>An RDMA adapter reads and writes GPU memory directly over PCIe, '
                f'and the kernel can still migrate that memory. {text(self.start[:10])}, Linux {text(self.bases)}. '
                f'Emulated devices: nothing here ran on hardware.</p>\n<p class="verdict {kind}">{MARKS[kind]} {word}: '
                f'{text(verdict(self.sum["counts"], flakes))}, in {number(len(self.runs), "run")}</p>')

    def failed(self):
        # Only the first failures are unfolded.
        out = [('<details open="">' if n < 5 else "<details>") +
               f'<summary class="fail">{MARKS["fail"]} {text(run["what"])}: {text(test["name"])}</summary>'
               f'<p>{text(message(test))}</p><p>{self.log(run, "log")}; repeat it: <code>{text(run.get("repeat", "make test"))}</code></p>'
               f'<pre>{text(test.get("log", ""))}</pre></details>' for n, (run, test) in enumerate(self.tests("FAIL"))]
        out += [f'<p>Flake, listed: {self.log(run, text(run["what"]))}: {text(flake["test"])}. {text(flake["listed"])}</p>'
                for run in self.runs for flake in run.get("flakes", []) if flake["listed"]]
        lost = [run for run in self.runs if run["counts"]["FAIL"] and not run["tests"]]
        out += [f'<p class="fail">{MARKS["fail"]} {text(run["what"])}: {text(run["why"])}</p>' for run in lost]
        return "<h2>What failed</h2>\n" + "\n".join(out) if out else ""

    def rows(self, kind):
        """The lines "# KIND KEY=VALUE..." that tests printed, with their run and test."""
        for run in self.runs + self.earlier:
            for test in run["tests"]:
                for row in numbers(kind, test):
                    yield run, test, row

    def topologies(self):
        say = {}
        for run, _, row in self.rows("p2p-table"):
            if run["suite"] == "p2p-table":
                pages, p2p, moved = (int(row[key]) for key in ("pages", "p2p", "migrated"))
                data = "data verified" if row["verified"] == "yes" else "data WRONG"
                say[run["topology"]] = say.get(run["topology"], "") + (
                    f'<br/>{VERDICTS.get(row["verdict"], text(row["verdict"]))}: {p2p} of {pages} pages reached in place, {moved or "none"} migrated; {data}'
                    f'<span class="bar" style="display:block"><i style="width:{100 * p2p / max(pages, 1):.0f}%"></i>'
                    f'<i class="moved" style="width:{100 * moved / max(pages, 1):.0f}%"></i></span>')
        seen = {run["topology"] for run in self.runs} - {""} - {run["topology"] for run, *_ in self.rows("demo-table")}
        names = sorted(seen.union(say), key=order)
        cards = [f'<figure>{picture(name)}<figcaption><strong>{text(name)}</strong>{say[name]}</figcaption></figure>' for name in names if name in say]
        others = [f'<figure>{picture(name)}<figcaption><strong>{text(name)}</strong></figcaption></figure>' for name in names if name not in say]
        return (("<h2>Topologies</h2>\n<p>How the adapter (QEMU's edu, the importer) reached device-private memory (QEMU's ivshmem, the exporter). "
                 "In the pictures the way of the data is green if a switch forwards it by bus address, blue if it passes the host bridge, and orange if "
                 "the page migrates to RAM. In the bars, blue pages were reached in place, orange ones migrated.</p>\n" if cards else "<h2>Topologies</h2>\n")
                + f'<div class="cards">{"".join(cards)}</div>'
                + (f'<details><summary>{number(len(others), "other topology").replace("ys", "ies")} of these runs, without figures</summary>'
                   f'<div class="cards">{"".join(others)}</div></details>' if others else "")) if names else ""

    def demo(self):
        copied = {}
        for run, _, row in self.rows("demo-table"):
            copied.setdefault(run["topology"], {})[row["flag"]] = int(row["copied"])

        def cells(kind, *keys):
            for run, test, row in self.rows(kind):
                mark = test["status"].lower()
                row["in VRAM"] = f'{row["vram"]} of {row["pages"]}'
                what = re.sub("([:,])", r"\1<wbr>", text(" ".join([run["kernel"], *run["command"].split()[1:]])))
                yield [text(run["topology"]), self.log(run, what), *(text(row[key]) for key in keys),
                       f'<span class="{mark}">{MARKS[mark]} {"yes" if mark == "pass" else "NO"}</span>']
        rows = list(cells("demo-table", "flag", "turns", "ops", "p2p", "in VRAM", "migrated", "copied", "data"))
        two = list(cells("gpus-table", "gpu", "owner", "read", "written", "in VRAM", "copied", "data"))
        gpus = "<h2>Two GPUs</h2>\n<p>The GPU of one driver, a model of a Battlemage or of a GP100, reads and writes memory that is in VRAM of another driver.</p>\n" + table(
            ["topology", "run", "GPU", "VRAM of", "bytes read", "bytes written", "pages in VRAM", "bytes copied", "data", "expected"], two) if two else ""
        if not rows:
            return gpus
        bars = ""
        for name, of in copied.items():
            if of.keys() == {"no", "yes"}:
                bars += f'<h2>{amount(of["yes"])} copied instead of {amount(of["no"])}</h2>\n<div class="bars">'
                for flag, words in (("no", "Without the P2P flag, as today"), ("yes", "With the P2P flag")):
                    bars += (f'<div>{words}: {amount(of[flag])} copied between GPU memory and RAM<div class="bar"><i class="moved" style="left:0;right:auto;'
                             f'width:{100 * of[flag] / max(*of.values(), 1):.0f}%"></i></div></div>')
                bars += "</div>\n"
        cards = "".join(f'<figure>{picture(name, MODELS)}<figcaption><strong>{text(name)}</strong></figcaption></figure>' for name in sorted(copied, key=order))
        return (bars + f'<div class="cards">{cards}</div>\n' + "<h2>GPU and adapter</h2>\n<p>A GPU and an RDMA adapter, models of a GP100 and of a ConnectX, take turns at the same pages. P2P bytes are those that the adapter reached "
                "in video memory (VRAM). Migrated pages went to RAM, and the program moved them back for the next turn of the GPU. The copy "
                "engine of the GPU copied the bytes both ways. Without the P2P flag the kernel does what it does today.</p>\n"
                + table(["topology", "run", "P2P flag", "turns", "RDMA operations", "P2P bytes", "pages in VRAM", "pages migrated", "bytes copied",
                         "data", "expected"], rows) + gpus)

    def matrix(self):
        suites = sorted({run["suite"] for run in self.runs})
        names = sorted({run["topology"] for run in self.runs}, key=order)
        def cell(suite, name):
            out = ""
            for run in self.runs:
                if (run["suite"], run["topology"]) == (suite, name):
                    kind, counts = state(run["counts"]), run["counts"]
                    done = f'{counts["FAIL"]} failed' if counts["FAIL"] else f'{counts["PASS"]} passed' if counts["PASS"] else f'{counts["SKIP"]} skipped'
                    label = " ".join([MARKS[kind], run["kernel"], *run["command"].split()[1:]])
                    out += self.log(run, f"{text(label)}: {done}", kind)
            return out
        return ("<h2>Runs</h2>\n<p>Suites and topologies; in each cell the kernel, its arguments, and how many tests passed. Each line links to its log.</p>"
                + table(["topology", *suites], [[text(name) or "no guest", *(cell(suite, name) for suite in suites)] for name in names], "matrix"))

    def skipped(self):
        why = {}
        for run, test in self.tests("SKIP"):
            why.setdefault((run["suite"], test["reason"]), []).append(f'{run["kernel"]} {run["topology"]}: {test["name"]}')
        rows = [[text(suite), text(reason or "no reason given"),
                 f'<details><summary>{number(len(tests), "test")}</summary>{"<br/>".join(map(text, tests))}</details>']
                for (suite, reason), tests in sorted(why.items())]
        return "<h2>What was skipped</h2>\n" + table(["suite", "reason", "tests"], rows) if rows else ""

    def same(self):
        rows = []
        for path in sorted(self.latest.glob("same-result-*.txt")):
            tests = [re.fullmatch(r"(\S+) +(\S+) +(\S+) *(\S*)", line) for line in path.read_text().splitlines()]
            old = [t for t in tests if t and t[4] != "new"]
            differ = [t for t in old if t[4] == "differs"]
            rows.append([self.link(path, text(path.stem[12:])), len(old), sum(t[2] == "PASS" for t in old), sum(t[3] == "PASS" for t in old),
                         "<br/>".join(f'<span class="fail">{MARKS["fail"]} {text(t[1])}: {t[2]}, now {t[3]}</span>' for t in differ) or "none",
                         len(tests) - len(old)])
        return ("<h2>Old tests, without and with the patches</h2>\n"
                + table(["suite", "tests", "pass without", "pass with", "differ", "new"], rows)) if rows else ""

    def bench(self):
        raw = self.results / "bench/raw.json"
        if not raw.exists():
            return ""
        lines = []
        for line in filter(bench.is_budget, bench.judge(bench.load(raw))):
            kind = "pass" if line.startswith("Passed") else "fail"
            lines.append(f'<li><span class="{kind}">{MARKS[kind]}</span> {text(line.split(": ", 1)[1])}</li>')
        return (f"<h2>Benchmarks</h2>\n<p>Budgets of the last <code>make bench</code>, in guest instructions. {self.link(raw, 'Samples')}</p>"
                + f"<ul>{''.join(lines)}</ul>")

    def what(self):
        kcidb = self.latest / "kcidb.json"
        kcidb = json.loads(kcidb.read_text()) if kcidb.exists() else {"checkouts": [], "builds": []}
        rows = [["date", text(self.start)], ["base", self.bases],
                ["source", "<br/>".join(text(c.get("comment") or c.get("git_commit_hash", "")) + (f', patches {text(c["patchset_hash"][:12])}'
                 if c.get("patchset_hash") else "") for c in kcidb["checkouts"])],
                ["series", "<br/>".join(sorted({f'{run["kernel"]}: {run["series"]}' for run in self.runs if run.get("series")}))],
                ["QEMU", ", ".join(sorted({f'{run["qemu"]} ({run["accelerator"]})' for run in self.runs if run.get("qemu")}))],
                ["gcc", "<br/>".join(sorted({text(b["compiler"]) for b in kcidb["builds"]}))],
                ["more", " ".join(self.link(self.latest / name, name) for name in ("junit.xml", "kcidb.json", "times.txt") if (self.latest / name).exists())]]
        return "<h2>What was run</h2>\n" + table(["", "what"], [row for row in rows if row[1]]).replace(' data-what="what"', "")

    def write(self):
        parts = [self.top(), self.failed(), self.demo(), self.topologies(), self.matrix(), self.skipped(), self.same(), self.bench(), self.what()]
        folder = self.results / "report"
        folder.mkdir(exist_ok=True)
        (folder / "index.html").write_text(
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/><meta name="viewport" content="width=device-width, initial-scale=1"/>'
            f'<title>Peer-to-peer DMA to device-private memory: results</title><style>{STYLE}</style></head><body>\n'
            + "\n".join(filter(None, parts)) + "\n</body></html>\n", encoding="utf-8")
        return folder / "index.html"


def main(args):
    results = Path(args[0] if args else TOP / "results")
    if len(args) > 1 or args and args[0].startswith("-"):
        return help_or_usage(__doc__, args)
    if not (results / "latest/results.json").exists():
        die(f"no {results}/latest: run 'make' or 'make test' first")
    print(Page(results).write())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
