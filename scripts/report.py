#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Write the results of the last `make`, `make demo`, `make test` or `make soak` as one page.

usage: report.py [RESULTS]

Reads RESULTS/latest (default: results/latest), the results of each run that it
names, and RESULTS/bench/raw.json if it exists. Writes RESULTS/report/index.html and
prints its path. The page needs no network and no script. Links to logs are
relative, so RESULTS can be copied elsewhere as a whole.

exit: 0 the page was written, also if tests failed; 2 wrong usage, or no results
"""

import html
import json
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
import bench
from results import NOT_XML, message, verdict

TOP = Path(__file__).resolve().parent.parent
PICTURES = TOP / "selftests/pictures"
USAGE = 2
# A status has a mark, too, for readers who see no colours.
MARKS = {"pass": "✓", "fail": "✗", "skip": "–"}
VERDICTS = {"bus": "bus address", "bridge": "through host bridge", "none": "not supported"}
STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --paper: #fff; --line: #d0d7de; --soft: #f6f8fa;
  --pass: #1a7f37; --fail: #cf222e; --skip: #656d76; --p2p: #0969da; --moved: #bc4c00 }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --paper: #0d1117; --line: #30363d; --soft: #161b22;
  --pass: #3fb950; --fail: #ff7b72; --skip: #9198a1; --p2p: #58a6ff; --moved: #f0883e } }
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 80rem; padding: 1rem; font: 16px/1.45 system-ui, sans-serif; color: var(--ink);
  background: var(--paper); overflow-wrap: anywhere }
h1.pass, .pass { color: var(--pass) } h1.fail, .fail { color: var(--fail) } .skip { color: var(--skip) }
h1 { margin: 0 } h2 { margin: 2rem 0 .5rem; border-bottom: 1px solid var(--line) }
a { color: inherit } table { border-collapse: collapse; width: 100% }
th, td { border: 1px solid var(--line); padding: .3rem .5rem; text-align: left; vertical-align: top; overflow-wrap: break-word }
thead th { background: var(--soft) } .matrix td a { display: block; font-size: .85rem; margin: .1rem 0 }
pre { white-space: pre-wrap; background: var(--soft); padding: .5rem; font-size: .8rem; max-height: 24rem; overflow-y: auto }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(18rem, 100%), 1fr)); gap: 1rem }
figure { margin: 0; border: 1px solid var(--line); padding: .5rem } figcaption { margin-top: .5rem }
figure svg { display: block; margin: auto; max-width: 100%; height: 22rem; background: #fff }
.bar { position: relative; height: .9rem; background: var(--soft); border: 1px solid var(--line); margin: .15rem 0 .6rem }
.bar i { position: absolute; inset: 0 auto 0 0; background: var(--p2p) } .bar.fail i { background: var(--fail) }
.bar b { position: absolute; top: -3px; bottom: -3px; width: 3px; background: var(--ink) }
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
        return (f'<h1 class="{kind}">{MARKS[kind]} {word}</h1>\n<p>{text(verdict(self.sum["counts"], flakes))}, in '
                f'{number(len(self.runs), "run")}. Emulated devices: nothing here ran on hardware.</p>')

    def failed(self):
        # Only the first failures are unfolded.
        unfold = [' open=""'] * 5
        out = [f'<details{"".join(unfold[n:n + 1])}><summary class="fail">{MARKS["fail"]} {text(run["what"])}: {text(test["name"])}</summary>'
               f'<p>{text(message(test))}</p><p>{self.log(run, "log")}; repeat it: <code>{text(run.get("repeat", "make test"))}</code></p>'
               f'<pre>{text(test.get("log", ""))}</pre></details>' for n, (run, test) in enumerate(self.tests("FAIL"))]
        out += [f'<p>Flake, listed: {self.log(run, text(run["what"]))}: {text(flake["test"])}. {text(flake["listed"])}</p>'
                for run in self.runs for flake in run.get("flakes", []) if flake["listed"]]
        lost = [run for run in self.runs if run["counts"]["FAIL"] and not run["tests"]]
        out += [f'<p class="fail">{MARKS["fail"]} {text(run["what"])}: {text(run["why"])}</p>' for run in lost]
        return "<h2>What failed</h2>\n" + ("\n".join(out) or "<p>Nothing.</p>")

    def topologies(self):
        cards = []
        for name in sorted({run["topology"] for run in self.runs} - {""}):
            picture = PICTURES / f"{name}.svg"
            lines = [line for run in self.runs if (run["suite"], run["topology"]) == ("table", name)
                     for test in run["tests"] for line in re.findall("^# p2p-table (.*)$", test.get("log", ""), re.M)]
            say = ""
            for line in lines:
                row = dict(field.split("=", 1) for field in line.split())
                pages, p2p, moved = (int(row[key]) for key in ("pages", "p2p", "migrated"))
                say += (f'<br/>{VERDICTS.get(row["verdict"], text(row["verdict"]))}: of {pages} pages {p2p} by peer-to-peer, {moved} migrated; '
                        f'data {"verified" if row["verified"] == "yes" else "WRONG"}'
                        f'<span class="bar" style="display:block"><i style="width:{100 * p2p / max(pages, 1):.0f}%"></i>'
                        f'<i class="moved" style="width:{100 * moved / max(pages, 1):.0f}%"></i></span>')
            cards.append((not say, f'<figure>{picture.read_text(encoding="utf-8") if picture.exists() else ""}<figcaption><strong>{text(name)}</strong>'
                         f'{say or "<br/>These runs have no figures of the suite table for it."}</figcaption></figure>'))
        return '<h2>Topologies</h2>\n<div class="cards">' + "\n".join(card for _, card in sorted(cards, key=lambda card: card[0])) + "</div>" if cards else ""

    def demo(self):
        rows = []
        for run, test in [(run, test) for run in self.runs for test in run["tests"]]:
            for line in re.findall("^ *# demo-table (.*)$", test.get("log", ""), re.M):
                row = dict(field.split("=", 1) for field in line.split())
                kind = test["status"].lower()
                rows.append([text(run["topology"]), self.log(run, text(" ".join([run["kernel"], *run["command"].split()[1:]]))),
                             *(text(row[key]) for key in ("flag", "turns", "ops", "p2p")), text(f'{row["vram"]} of {row["pages"]}'),
                             *(text(row[key]) for key in ("migrated", "copied", "data")),
                             f'<span class="{kind}">{MARKS[kind]} {"yes" if kind == "pass" else "NO"}</span>'])
        return ("<h2>GPU and adapter</h2>\n<p>A GPU and an RDMA adapter take turns at the same pages. P2P bytes are those that the adapter reached "
                "in video memory (VRAM). Migrated pages went to RAM, and the program moved them back for the next turn of the GPU. The copy "
                "engine of the GPU copied the bytes both ways. Without the P2P flag the kernel does what it does today.</p>"
                + table(["topology", "run", "P2P flag", "turns", "RDMA operations", "P2P bytes", "pages in VRAM", "pages migrated", "bytes copied",
                         "data", "as demanded"], rows)) if rows else ""

    def matrix(self):
        suites = sorted({run["suite"] for run in self.runs})
        names = sorted({run["topology"] for run in self.runs})
        def cell(suite, name):
            out = ""
            for run in self.runs:
                if (run["suite"], run["topology"]) == (suite, name):
                    kind, counts = state(run["counts"]), run["counts"]
                    done = f'{counts["FAIL"]} failed' if counts["FAIL"] else counts["PASS"] or f'{counts["SKIP"]} skipped'
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
        return "<h2>What was skipped</h2>\n" + (table(["suite", "reason", "tests"], rows) if rows else "<p>Nothing.</p>")

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
                + (table(["suite", "tests", "pass without", "pass with", "differ", "new"], rows) if rows
                   else "<p>Not compared in these runs: <code>make soak</code> compares them.</p>"))

    def bench(self):
        raw = self.results / "bench/raw.json"
        if not raw.exists():
            return ""
        judged, _ = bench.judge(raw)
        rows = []
        for case, old, new in judged.both("others", "none"):
            if not re.fullmatch(bench.NOT_JUDGED, case):
                rows.append((f"without the flag, {case}", new[0] / old[0], bench.may_take(case), "of the base"))
        for least, case in ((3, "pte.1"), (15, "pte.512"), (50, "pmd.512")):
            alias, move, copy = (judged.get("alias", "switch", name) for name in (f"alias.{case}", f"migrate.{case}", "copy.bar"))
            if alias and move and copy:
                rows.append((f"by the alias, {case}", alias[0] / (move[0] - move[1] * copy[0]), 1 / least, "of migration without the copy"))
        out = []
        for name, value, budget, of in rows:
            kind, widest = "pass" if value <= budget else "fail", max(1.15, value)
            out.append(f'<div>{MARKS[kind]} {text(name)}: {100 * value:.1f} % {of}, budget {100 * budget:.1f} %<div class="bar {kind}">'
                       f'<i style="width:{100 * value / widest:.1f}%"></i><b style="left:{100 * budget / widest:.1f}%"></b></div></div>')
        lines = [line for line in judged.lines if line.startswith(("Passed: ", "**Missed**: "))]
        kinds = ["pass" if line[0] == "P" else "fail" for line in lines]
        lines = [f'<li><span class="{kind}">{MARKS[kind]}</span> {text(line.split(": ", 1)[1])}</li>' for kind, line in zip(kinds, lines)]
        return (f"<h2>Benchmarks</h2>\n<p>Guest instructions of the last <code>make bench</code>; the stroke is the budget. {self.link(raw, 'Samples')}</p>"
                + f'<div class="cards">{"".join(out)}</div>' + f"<h3>All budgets</h3><ul>{''.join(lines)}</ul>")

    def what(self):
        kcidb = self.latest / "kcidb.json"
        kcidb = json.loads(kcidb.read_text()) if kcidb.exists() else {"checkouts": [], "builds": []}
        rows = [["date", text(min((run["start"] for run in self.runs), default=""))], ["base", " ".join({run["base"]: 0 for run in self.runs if run.get("base")})],
                ["source", "<br/>".join(text(c.get("comment") or c.get("git_commit_hash", "")) + (f', patches {text(c["patchset_hash"][:12])}'
                 if c.get("patchset_hash") else "") for c in kcidb["checkouts"])],
                ["series", "<br/>".join(sorted({f'{run["kernel"]}: {run["series"]}' for run in self.runs if run.get("series")}))],
                ["QEMU", ", ".join(sorted({f'{run["qemu"]} ({run["accelerator"]})' for run in self.runs if run.get("qemu")}))],
                ["gcc", "<br/>".join(sorted({text(b["compiler"]) for b in kcidb["builds"]}))],
                ["more", " ".join(self.link(self.latest / name, name) for name in ("junit.xml", "kcidb.json", "times.txt") if (self.latest / name).exists())]]
        return "<h2>What was run</h2>\n" + table(["", "what"], [row for row in rows if row[1]]).replace(' data-what="what"', "")

    def write(self):
        parts = [self.top(), self.failed(), self.topologies(), self.demo(), self.matrix(), self.skipped(), self.same(), self.bench(), self.what()]
        folder = self.results / "report"
        folder.mkdir(exist_ok=True)
        (folder / "index.html").write_text(
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/><meta name="viewport" content="width=device-width, initial-scale=1"/>'
            f'<title>Peer-to-peer DMA to device-private memory: results</title><style>{STYLE}</style></head><body>\n'
            + "\n".join(filter(None, parts)) + "\n</body></html>\n", encoding="utf-8")
        return folder / "index.html"


def main(args):
    if args == ["--help"]:
        print(__doc__.strip())
        return 0
    results = Path(args[0] if args else TOP / "results")
    if len(args) > 1 or args and args[0].startswith("-"):
        print(__doc__.strip(), file=sys.stderr)
        return USAGE
    if not (results / "latest/results.json").exists():
        print(f"report.py: no {results}/latest: run 'make' or 'make test' first", file=sys.stderr)
        return USAGE
    print(Page(results).write())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
