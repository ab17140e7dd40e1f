#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Print the names of tests that failed, had a splat, or ended without a result.

usage: killers.py DIR [WHY]    WHY: why the mutant is expected to hang its test. Without WHY a time limit is no proof

Used by mutants.py. If no test was running, the name is "timeout" or "boot".
"""

import json
import re
import sys
from pathlib import Path


def killers(folder, hangs):
    result = json.loads((folder / "results.json").read_text())
    names = [t["name"] for t in result["tests"] if t["status"] == "FAIL" and t["name"] not in ("vm", "(no result)")]
    names += [s["test"] for s in result["splats"]]
    if result["splats"]:
        # KUnit names a test only after it has run. The stack trace names the one that runs.
        names += [".".join(function[::-1]) for function in
                  re.findall(r"\] +(?:\? )?(\w+)\+0x\S+ \[(\w+)_kunit\]", (folder / "console.log").read_text(errors="replace"))]
    # A time limit is no proof, because a busy machine reaches it, too.
    if result["exit"] in (6, 7, 255) or result["exit"] == 124 and hangs:
        last = re.findall(r"^#\s+(RUN|OK|FAIL|SKIP)\s+(\S+)", (folder / "ktap").read_text(errors="replace"), re.M)[-1:]
        names += [name for what, name in last if what == "RUN"]
    if result["exit"] and not names:
        names = ["timeout" if result["exit"] == 124 else "boot"]
    return ["boot" if n == "-" else n for n in dict.fromkeys(names)]


if __name__ == "__main__":
    if sys.argv[1:] == ["--help"] or len(sys.argv) not in (2, 3):
        print(__doc__, end="", file=sys.stdout if "--help" in sys.argv else sys.stderr)
        sys.exit(0 if "--help" in sys.argv else 2)
    print(" ".join(killers(Path(sys.argv[1]), sys.argv[2:] not in ([], [""]))))
