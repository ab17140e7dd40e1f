#!/usr/bin/env python3
"""Turn what a run left in its folder into a verdict.

usage: results.py run DIR KEY=VALUE...    judge one run
       results.py compare OLD NEW TABLE   every test of OLD has the same result in NEW
       results.py summary DIR RUN...      add the runs up

run reads DIR/ktap and DIR/splats, writes DIR/results.json, junit.xml and
conclusion.txt and prints the exit code of the run. Of the keys it needs code
(0, or what went wrong below the tests), why and guest_status; suite names the
may-skip file; all of them are kept in results.json.
KTAP is parsed by the kernel tree's tools/testing/kunit/kunit.py.
"""

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("BUILD", TOP / "build"))
FAIL, USAGE, SPLAT, PLAN = 1, 2, 5, 6


def kunit():
    for tree in ("tree", "base"):
        path = BUILD / tree / "tools/testing/kunit/kunit.py"
        if path.exists():
            return path
    sys.exit(f"results.py: no kunit.py below {BUILD}: run 'make tree' first")


def flatten(group, prefix=""):
    """(name, status) of each test; a group's name counts too, but the one of the whole."""
    for case in group["test_cases"]:
        yield prefix + case["name"], case["status"]
    for sub in group["sub_groups"]:
        yield from flatten(sub, f"{prefix}{sub['name']}.")


def groups(group):
    return sum(1 + groups(sub) for sub in group["sub_groups"])


def skip_reasons(suite, prefix=""):
    """Only junit has the reasons of skips."""
    for case in suite.findall("testcase"):
        skipped = case.find("skipped")
        if skipped is not None:
            yield prefix + case.get("name"), skipped.text or ""
    for sub in suite.findall("testsuite"):
        yield from skip_reasons(sub, f"{prefix}{sub.get('name')}.")


def parse(ktap, junit):
    """The tests of a KTAP file, and what is wrong with its plan."""
    if not re.search(r"TAP version", ktap.read_text(errors="replace")):
        return [], "no KTAP"
    result = ktap.with_name("kunit.json")
    log = subprocess.run(
        [sys.executable, "-B", str(kunit()), "parse", f"--json={result}", f"--junit={junit}", str(ktap)],
        capture_output=True, text=True, check=False)
    if not result.exists():
        sys.exit(f"results.py: kunit.py failed: {log.stderr.strip()}")
    group = json.loads(result.read_text())
    result.unlink()
    reasons = dict(skip_reasons(ET.parse(junit).getroot()))
    tests = [{"name": name or "(no result)", "status": status, "reason": reasons.get(name, "")}
             for name, status in flatten(group)]

    # kunit.py stops at the plan's end: what comes after it shows as result lines that are not among the tests.
    lines = len(re.findall(r"^\s*(?:not )?ok \d+", ktap.read_text(errors="replace"), re.M))
    names = [t["name"] for t in tests]
    twice = sorted({n for n in names if names.count(n) > 1})
    errors = re.findall(r"\[ERROR\]\S* Test: (.*)", log.stdout)
    if not re.search(r"^\s*1\.\.\d+", ktap.read_text(errors="replace"), re.M):
        return tests, "no plan"
    if errors:
        return tests, f"not what was planned: {errors[0]} ({len(errors)} such)" if len(errors) > 1 else errors[0]
    if lines > len(tests) + groups(group):
        return tests, f"{lines} results, more than were planned"
    if twice:
        return tests, f"a name stands for two tests: {twice[0]}"
    return tests, ""


def may_skip(suite, kernel, topology, name):
    path = TOP / "selftests/suites" / suite / "may-skip"
    for number, line in enumerate(path.read_text().splitlines() if path.exists() else [], 1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = line.split(None, 2)
        if len(fields) < 3:
            sys.exit(f"results.py: {path}:{number}: KERNEL/TOPOLOGY TEST REASON wanted, each a regular expression but the last")
        if re.fullmatch(fields[0], f"{kernel}/{topology}") and re.fullmatch(fields[1], name):
            return True
    return False


def run(folder, meta):
    folder = Path(folder)
    junit = folder / "junit.xml"
    tests, plan = parse(folder / "ktap", junit)
    for test in tests:
        if test["status"] == "SKIP" and not may_skip(meta["suite"], meta["kernel"], meta["topology"], test["name"]):
            test.update(status="FAIL", reason=f"may not skip here: {test['reason']}")
        elif test["status"] == "ERROR":
            test["status"] = "FAIL"

    splats = []
    if (folder / "splats").exists():
        for line in (folder / "splats").read_text(errors="replace").splitlines():
            number, test, text = line.split("\t", 2)
            splats.append({"line": int(number), "test": test, "text": text})
    failed = [t for t in tests if t["status"] == "FAIL"]

    # What the run as a whole did wrong counts as one failed test of its own.
    code, why = int(meta.pop("code")), meta.pop("why")
    if code == 0 and splats:
        code, why = SPLAT, "splat"
    if code == 0 and plan:
        code, why = PLAN, plan
        if meta["guest_status"] != "0":
            last = (folder / "ktap").read_text(errors="replace").splitlines()[-1:]
            why += f"; the guest command ended with status {meta['guest_status']}: {''.join(last)}"
    if code == 0 and meta["guest_status"] != "0" and not failed:
        code, why = FAIL, f"the guest command ended with status {meta['guest_status']}"
    if why:
        if splats:
            why += f"; first splat, line {splats[0]['line']}, during {splats[0]['test']}: {splats[0]['text']}"
        tests.append({"name": "vm", "status": "FAIL", "reason": why})
    elif failed:
        code, why = FAIL, f"{failed[0]['name']} {failed[0]['reason']}".strip()

    counts = {s: sum(t["status"] == s for t in tests) for s in ("PASS", "FAIL", "SKIP")}
    write(folder, {**meta, "exit": code, "why": why, "counts": counts, "splats": splats, "tests": tests})
    failed = [t for t in tests if t["status"] == "FAIL"]
    for test in failed[:20]:
        print(f"    not ok {test['name']} {test['reason']}".rstrip(), file=sys.stderr)
    if len(failed) > 20:
        print(f"    and {len(failed) - 20} more", file=sys.stderr)
    print(code)


def write(folder, result):
    where = " ".join(result.get(k, "") for k in ("suite", "kernel", "topology", "command")).split()
    counts = result["counts"]
    line = f"{' '.join(where)}: {verdict(counts)}"
    if result["why"]:
        line += f" - exit {result['exit']}: {result['why']}"
    (folder / "conclusion.txt").write_text(line + "\n")
    (folder / "results.json").write_text(json.dumps(result, indent=1) + "\n")
    decorate(folder / "junit.xml", result)


def verdict(counts):
    return f"{counts['PASS']} passed, {counts['FAIL']} failed, {counts['SKIP']} skipped"


def decorate(junit, result):
    """junit.xml as kunit.py wrote it, with our verdicts: kunit.py knows no splat and no forbidden skip."""
    output = {}
    if junit.exists():
        output = {c.get("name"): c.findtext("system-out") for c in ET.parse(junit).getroot().iter("testcase")}
    counts = result["counts"]
    root = ET.Element("testsuite", name=".".join(result.get(k, "") for k in ("suite", "kernel", "topology")).strip("."),
                      tests=str(sum(counts.values())), failures=str(counts["FAIL"]), skipped=str(counts["SKIP"]))
    for test in result["tests"]:
        case = ET.SubElement(root, "testcase", name=test["name"], classname=root.get("name"))
        if test["status"] == "FAIL":
            ET.SubElement(case, "failure").text = test["reason"] or "failed"
        elif test["status"] == "SKIP":
            ET.SubElement(case, "skipped").text = test["reason"]
        log = output.get(test["name"].rsplit(".", 1)[-1]) or output.get(test["name"])
        if log:
            ET.SubElement(case, "system-out").text = log
    ET.indent(root)
    ET.ElementTree(root).write(junit, encoding="utf-8", xml_declaration=True)


def load(folder):
    return json.loads((Path(folder) / "results.json").read_text())


def compare(old, new, table):
    a, b = ({t["name"]: t["status"] for t in load(f)["tests"] if t["name"] != "vm"} for f in (old, new))
    width = max(map(len, [*a, *b]), default=0)
    differ = [n for n in a if b.get(n) != a[n]]
    with open(table, "w", encoding="utf-8") as f:
        for name in [*a, *(n for n in b if n not in a)]:
            mark = "differs" if name in differ else "new" if name not in a else ""
            f.write(f"{name:{width}}  {a.get(name, '-'):4}  {b.get(name, '-'):4}  {mark}".rstrip() + "\n")
    same = len(a) - len(differ)
    print(f"{same} of {len(a)} tests have the same result, {len(b.keys() - a.keys())} are new" +
          (f"; differs: {differ[0]} was {a[differ[0]]}, is {b.get(differ[0], 'gone')}" if differ else ""))
    return FAIL if differ or not a else 0


def summary(folder, runs):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    results = [load(r) for r in runs]
    counts = {s: sum(r["counts"][s] for r in results) for s in ("PASS", "FAIL", "SKIP")}
    suites = ET.Element("testsuites")
    for r in runs:
        suites.append(ET.parse(Path(r) / "junit.xml").getroot())
    ET.indent(suites)
    ET.ElementTree(suites).write(folder / "junit.xml", encoding="utf-8", xml_declaration=True)
    rows = [{**{k: v for k, v in r.items() if k != "tests"}, "folder": os.path.relpath(d, folder)}
            for r, d in zip(results, runs)]
    (folder / "results.json").write_text(json.dumps({"counts": counts, "runs": rows}, indent=1) + "\n")
    (folder / "conclusion.txt").write_text(verdict(counts) + "\n")
    firsts = [(float(r["first_test_seconds"]), f"{r['suite']} {r['topology']}") for r in results
              if r.get("kernel") == "normal" and r.get("first_test_seconds")]
    if firsts:
        seconds, where = max(firsts)
        print(f"    slowest of {len(firsts)} guests with the kernel normal to its first test line: {seconds} s ({where})", file=sys.stderr)
    print(verdict(counts))
    return FAIL if counts["FAIL"] or not counts["PASS"] else 0


def main(args):
    if args[:1] == ["run"] and len(args) >= 2:
        return run(args[1], dict(a.split("=", 1) for a in args[2:]))
    if args[:1] == ["compare"] and len(args) == 4:
        return compare(*args[1:])
    if args[:1] == ["summary"] and len(args) >= 2:
        return summary(args[1], args[2:])
    print(__doc__, end="", file=sys.stdout if args == ["--help"] else sys.stderr)
    return 0 if args == ["--help"] else USAGE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
