#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Write the table of patches/README.md and the picture patches/series.svg.

usage: series-page.py          write those that differ
       series-page.py --check  check that both are up to date (needs no graphviz)

Both are made from patches/series, patches/needs, scripts/checks/trees and the patches.
"""

import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "guest"))
from common import FAIL, PATCHES, TOP, die, help_or_usage
from topology import FONT, INK, LINE, PAPER, draw, is_drawn

PAGE, PICTURE = PATCHES / "README.md", PATCHES / "series.svg"
BEGIN, END = "<!-- series-page.py: begin -->\n", "<!-- series-page.py: end -->\n"
FILL = {"needed": "#ddf4ff", "fix": "#f6f8fa", "optional": "#fff8c5", "held": "#ffebe9"}


def rows(path):
    lines = (line.split("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line]


def part(path):
    """The column in which the added lines of this file count."""
    if path.startswith("Documentation/"):
        return "documentation"
    if path.startswith(("tools/testing/", "lib/test_")) or "kunit" in path:
        return "tests"
    return "code"


def series():
    """For each series, in order: its name, tree, needs, kind, description, number of patches, and added lines."""
    needs = {row[0]: row[1:] for row in ([cell.strip() for cell in line.split("|")] for line in rows(PATCHES / "needs"))}
    trees = [line.split() for line in rows(TOP / "scripts/checks/trees")]
    patches = {}
    for path in rows(PATCHES / "series"):
        patches.setdefault(path.split("/")[0], []).append(PATCHES / path)
    for name, paths in patches.items():
        tree = next((tree for pattern, _, tree in trees if fnmatch(name, pattern)), None)
        if name not in needs or not tree:
            die(f"{name} has no row in patches/needs or in scripts/checks/trees")
        need, kind, what = needs[name]
        added = dict.fromkeys(("code", "documentation", "tests"), 0)
        # In / because in a folder of a repository git leaves out files that are not below it.
        stat = subprocess.run(["git", "apply", "--numstat", *paths], cwd="/", capture_output=True, text=True, check=True).stdout
        for line in stat.splitlines():
            number, _, file = line.split("\t")
            added[part(file)] += int(number)
        yield name, tree, need.replace(",", " ").split() if need != "-" else [], kind, what, len(paths), added


def table(all_series):
    out = ["| series | what | tree | needs | kind | patches | code | documentation | tests |",
           "|---|---|---|---|---|--:|--:|--:|--:|"]
    for name, tree, needs, kind, what, count, added in all_series:
        cells = [f"[`{name}`]({name}/0000-cover-letter.patch)", what, tree, ", ".join(f"`{n}`" for n in needs), kind, count, *added.values()]
        out.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(out) + "\n"


def graph(all_series):
    out = [f'digraph {{ graph [bgcolor="{PAPER}", pad=0.15, rankdir=LR, ranksep=0.6, nodesep=0.15]',
           f'node [shape=box, style=filled, color="{LINE}", fontname="{FONT}", fontsize=12, fontcolor="{INK}"]',
           f'edge [color="{LINE}", arrowsize=0.8]']
    for name, tree, needs, kind, *_ in all_series:
        out.append(f'"{name}" [fillcolor="{FILL[kind]}", label=<<b>{name}</b><br/>tree {tree}, {kind}>]')
        out += [f'"{need}" -> "{name}"' for need in needs]
    return "\n".join([*out, "}"]) + "\n"


def main(args):
    if args not in ([], ["--check"]):
        return help_or_usage(__doc__, args)
    found = list(series())
    dot, text = graph(found), PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    new = before + BEGIN + table(found) + END + rest.split(END)[1]
    stale = [path for path, good in ((PAGE, text == new), (PICTURE, is_drawn(PICTURE, dot))) if not good]
    for path in stale:
        if args:
            print(f"patches/{path.name} is out of date: make series-page", file=sys.stderr)
        else:
            path.write_text(new if path == PAGE else draw(dot), encoding="utf-8")
    return FAIL if args and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
