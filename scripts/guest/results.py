#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Judge runs by the files in their folders.

usage: results.py run DIR KEY=VALUE...    judge one run
       results.py repeated DIR FIRST      judge a run that repeats one that failed
       results.py compare OLD NEW TABLE   check that every test of OLD has the same result in NEW
       results.py summary DIR RUN...      write the sum of all runs: results.json, junit.xml, kcidb.json
       results.py table KIND RUN...       print p2p-table, what `make` prints of these runs,
                                          or demo-table or gpus-table of `make demo`

run reads ktap, splats and console.log in DIR. It writes results.json, junit.xml and
conclusion.txt there, and prints the exit code of the run. selftests/README.md has the
keys, all of which are copied to results.json. Required are suite, kernel, topology,
command, guest_status, why, and code (0, or the exit code for an error outside of the tests).
repeated rewrites these files. The rules of flakes are in selftests/README.md, too.

table exits with 1 unless all tests passed and printed a line "# KIND KEY=VALUE...".

tools/testing/kunit/kunit_parser.py of the kernel tree parses the KTAP.
"""

import hashlib
import io
import json
import os
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

from common import BUILD, DIED, FAIL, PANIC, PATCHES, PLAN, SPLAT, TIMEOUT, TOP, USAGE, git, help_or_usage

# The parser gives this name to planned tests without a result. The result "vm" says what happened.
NO_RESULT = "(no result)"
# Characters that XML does not allow, such as escape codes that a guest prints.
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def kunit(text):
    """What the parser of the kernel tree makes of KTAP, and what it prints."""
    folder = next((f for tree in ("tree", "base") if (f := BUILD / tree / "tools/testing/kunit").exists()), None)
    if not folder:
        sys.exit(f"results.py: no tools/testing/kunit below {BUILD}: run 'make tree' first")
    sys.dont_write_bytecode = True
    sys.path.append(str(folder))
    from kunit_parser import parse_run_tests
    from kunit_printer import Printer
    log = io.StringIO()
    return parse_run_tests(text.splitlines(), Printer(output=log)), log.getvalue()


def flatten(group, prefix=""):
    """The tests. Names include the names of groups, except the outermost one."""
    for test in group.subtests:
        name = prefix + test.name
        if test.subtests:
            yield from flatten(test, f"{name}.")
        else:
            status = {"SUCCESS": "PASS", "SKIPPED": "SKIP"}.get(test.status.name, "FAIL")
            yield {"name": name or NO_RESULT, "status": status, "reason": test.skip_reason}


def groups(group):
    return sum(1 + groups(test) for test in group.subtests if test.subtests)


def parse(text):
    """The tests of a KTAP file, and errors of its plan."""
    if "TAP version" not in text:
        return [], "no KTAP"
    group, log = kunit(text)
    tests = list(flatten(group))

    # The parser stops at the end of the plan. Result lines after that are not among its tests.
    lines = len(re.findall(r"^\s*(?:not )?ok \d+", text, re.M))
    names = [t["name"] for t in tests]
    twice = sorted({n for n in names if names.count(n) > 1})
    errors = re.findall(r"\[ERROR\] Test: (.*)", log)
    if not re.search(r"^\s*1\.\.\d+", text, re.M):
        return tests, "no plan"
    if errors:
        return tests, f"not what was planned: {errors[0]} ({len(errors)} such)" if len(errors) > 1 else errors[0]
    if lines > len(tests) + groups(group):
        return tests, f"{lines} results, more than were planned"
    if twice:
        return tests, f"a name stands for two tests: {twice[0]}"
    return tests, contradiction(text)


def contradiction(text):
    """Errors that the parser does not look for: lines after the last test, a second plan, totals that contradict the results."""
    plans, failed = set(), False
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        line = line.strip()
        if line.startswith("Bail out!"):
            return line
        if re.match(r"(not )?ok \d", line):
            # The result of a group. Another group with its own plan may follow.
            plans = {i for i in plans if i <= indent}
            failed = failed or line.startswith("not ")
        elif re.match(r"1\.\.\d", line):
            if indent in plans:
                return f"a second plan: {line}"
            plans.add(indent)
        elif line.startswith("# Totals:"):
            if not failed and re.search(r" (fail|error):[1-9]", line):
                return f"no result is \"not ok\": {line}"
            failed = False
    return ""


# The prefix of a kernel message: <level>[seconds][caller]
STAMP = re.compile(r"(?:<\d+>)?\[ *(\d+\.\d+)\] ?(?:\[[^]]*\] ?)*")
# Lines that KUnit prints without "ktap: ".
KTAP = re.compile(r"\s*(?:#|(?:not )?ok \d|1\.\.\d|K?TAP version)")


def evidence(folder, tests):
    """For each test by name: seconds since the result before it, if known, and the lines of its log."""
    console = folder / "console.log"
    left, found, lines, before = [t["name"] for t in tests], {}, [], None
    for line in (console if console.exists() else folder / "ktap").read_text(errors="replace").splitlines():
        stamp = STAMP.match(line)
        now, line = (float(stamp[1]), line[stamp.end():]) if stamp else (None, line)
        if line.startswith("ktap: "):
            line = line[6:]
        elif stamp and not KTAP.match(line):
            continue
        lines.append(line)
        result = re.match(r"\s*(?:not )?ok \d+ ?(?:- )?([^#]*)", line)
        if result:
            # A test of a group is called GROUP.NAME. The copies of KUnit lines that a suite prints are not counted again.
            name = result[1].strip()
            name = next((n for n in left if n == name), None) or next((n for n in left if n.endswith("." + name)), None)
            if name:
                left.remove(name)
                found[name] = None if None in (now, before) else round(now - before, 3), lines
        if result or re.match(r"\s*(1\.\.\d|K?TAP version|# Subtest)", line):
            before, lines = now, []
    return found


def splat_text(folder, splat):
    """The splat as it is on the console, up to the end of the trace or a number of lines."""
    lines = (folder / "console.log").read_text(errors="replace").splitlines()[splat["line"] - 1:][:40]
    end = next((i + 1 for i, line in enumerate(lines) if "---[ end trace" in line), len(lines))
    return [f"splat, line {splat['line']} of console.log:", *lines[:end]]


def listed(suite, name, *values):
    """The reason for these values in the file NAME of the suite, or nothing."""
    path = TOP / "selftests/suites" / suite / name
    for number, line in enumerate(path.read_text().splitlines() if path.exists() else [], 1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = line.split(None, len(values))
        if len(fields) <= len(values):
            sys.exit(f"results.py: {path}:{number}: {len(values)} regular expressions and a reason wanted, see test.sh --help")
        if all(re.fullmatch(pattern, value) for pattern, value in zip(fields, values)):
            return fields[-1]
    return ""


def run(folder, meta):
    folder = Path(folder)
    ktap = folder / "ktap"
    text = NOT_XML.sub("\ufffd", ktap.read_text(errors="replace"))
    ktap.write_text(text)
    tests, plan = parse(text)
    for test in tests:
        if test["status"] == "SKIP" and not listed(meta["suite"], "may-skip", f"{meta['kernel']}/{meta['topology']}", test["name"]):
            test.update(status="FAIL", reason=f"may not skip here: {test['reason']}")
        if test["name"] == NO_RESULT:
            test["reason"] = "planned, and there is no result"

    lines = (folder / "splats").read_text(errors="replace").splitlines() if (folder / "splats").exists() else []
    splats = [{"line": int(number), "test": test, "text": said} for number, test, said in (line.split("\t", 2) for line in lines)]
    failed = [t for t in tests if t["status"] == "FAIL"]

    for key in [key for key in meta if key == "guest_status" or key.endswith("seconds")]:
        meta[key] = float(meta[key]) if "." in meta[key] else int(meta[key]) if meta[key] else None

    # An error of the run as a whole counts as one failed test.
    code, why = int(meta.pop("code")), meta.pop("why")
    if code == 0 and splats:
        code, why = SPLAT, "splat"
    if code == 0 and plan:
        code, why = PLAN, plan
        if meta["guest_status"] != 0:
            why += f"; the guest command ended with status {meta['guest_status']}: {''.join(text.splitlines()[-1:])}"
    if code == 0 and meta["guest_status"] != 0 and not failed:
        code, why = FAIL, f"the guest command ended with status {meta['guest_status']}"
    if why:
        if splats:
            why += f"; first splat, line {splats[0]['line']}, during {splats[0]['test']}: {splats[0]['text']}"
        tests.append({"name": "vm", "status": "FAIL", "reason": why})
    elif failed:
        code, why = FAIL, f"{failed[0]['name']} {failed[0]['reason']}".strip()

    found = evidence(folder, tests)
    for test in tests:
        seconds, lines = found.get(test["name"], (None, []))
        if seconds is not None:
            test["seconds"] = seconds
        if test["status"] == "FAIL":
            of_test = [s for s in splats if test["name"] in ("vm", s["test"])][:5]
            lines = sum((splat_text(folder, s) for s in of_test), lines)
            if of_test:
                test["reason"] = test["reason"] or of_test[0]["text"]
            if test["name"] == "vm" and not splats:
                log = next(f for f in (folder / "console.log", ktap) if f.exists())
                lines = [f"the end of {log.name}:", *log.read_text(errors="replace").splitlines()[-20:]]
        if lines:
            test["log"] = "\n".join(lines[-200:])

    write(folder, {**meta, "exit": code, "why": why, "splats": splats, "tests": tests})
    print_failed(tests)
    print(code)


def print_failed(tests):
    failed = [t for t in tests if t["status"] == "FAIL"]
    for test in failed[:20]:
        print(f"    not ok {test['name']} {test['reason']}".rstrip(), file=sys.stderr)
    if len(failed) > 20:
        print(f"    and {len(failed) - 20} more", file=sys.stderr)


def repeated(folder, before):
    """Judge a run that repeats another one. A test that failed in the first run and not in the second one is a flake."""
    folder, result, first = Path(folder), load(folder), load_first(before)
    tests = {t["name"]: t for t in result["tests"]}
    for failed in [t for t in first["tests"] if t["status"] == "FAIL" and t["name"] != NO_RESULT]:
        test = tests.get(failed["name"])
        if test is None:
            # "vm" exists only if the run as a whole had an error.
            test = {"name": failed["name"], "status": "PASS", "reason": ""}
            if failed["name"] != "vm":
                test.update(status="FAIL", reason="has no result when repeated")
            result["tests"].append(test)
        test["first"] = message(failed)
        if test["status"] != "FAIL":
            test["flake"] = listed(result["suite"], "flaky", f"{result['kernel']}/{result['topology']}", failed["name"], message(failed))
            if not test["flake"]:
                test.update(status="FAIL", reason=f"flake: passed when repeated, failed before: {message(failed)}")
    flakes = [t for t in result["tests"] if "flake" in t]
    unlisted = [t for t in flakes if not t["flake"]]
    if result["exit"] == 0 and unlisted:
        result["exit"] = first["exit"]
        result["why"] = f"{unlisted[0]['name']} {unlisted[0]['reason']}; not listed in selftests/suites/{result['suite']}/flaky"
    result["first"] = {k: first[k] for k in ("folder", "exit", "why", "counts")}
    result["flakes"] = [{"test": t["name"], "failed with": t["first"], "listed": t["flake"]} for t in flakes]
    write(folder, result, first)
    print_failed(result["tests"])
    print(result["exit"])


def write(folder, result, first=None):
    result["counts"] = {s: sum(t["status"] == s for t in result["tests"]) for s in ("PASS", "FAIL", "SKIP")}
    where = " ".join(result.get(k, "") for k in ("suite", "kernel", "topology", "command")).split()
    line = f"{' '.join(where)}: {verdict(result['counts'], result.get('flakes', []))}"
    if result["why"]:
        line += f" - exit {result['exit']}: {result['why']}"
    if first:
        line += f" (first result: {first['folder']})"
    (folder / "conclusion.txt").write_text(line + "\n")
    (folder / "results.json").write_text(json.dumps(result, indent=1) + "\n")
    write_junit(folder, result, first)


def verdict(counts, flakes):
    line = f"{counts['PASS']} passed, {counts['FAIL']} failed, {counts['SKIP']} skipped"
    if flakes:
        line += f"; flakes: {len(flakes)} ({sum(bool(f['listed']) for f in flakes)} listed)"
    return line


def message(test):
    """One line about a failure: the failed expectation if the test printed one, otherwise its last line."""
    said = [line.strip("# \t") for line in test.get("log", "").splitlines() if line.lstrip().startswith("#")]
    said = [line for line in said if not re.match(r"(RUN|OK|FAIL)\s", line)]
    return test["reason"] or next((line for line in said if "xpected" in line), said[-1] if said else "failed")


def explain(result, test):
    """The text of a failure for people."""
    text = [message(test), ""]
    if test.get("log"):
        text += [test["log"], ""]
    if result.get("repeat"):
        text.append(f"Repeat it: {result['repeat']}")
    if result.get("topology"):
        text.append(f"or, with what belongs to it: make test SUITES={result['suite']} TOPOLOGIES={result['topology']}")
    log = "ktap" if result.get("kernel") == "host" else "console.log"
    return "\n".join([*text, f"Log: {result.get('folder', '')}/{log}"])


# In junit.xml, an error of the run as a whole is an "error", not a "failure".
ERRORS = {USAGE: "not run", SPLAT: "splat", PLAN: "plan", DIED: "died", TIMEOUT: "time limit", PANIC: "panic"}


def verdict_element(case, prefix, result, test):
    """<failure> or <error>, with a prefix for the elements of Surefire for repeated tests"""
    kind, what = ("error", ERRORS.get(result["exit"], "failed")) if test["name"] == "vm" else ("failure", "failed")
    element = ET.SubElement(case, prefix + kind.title() if prefix else kind, message=message(test), type=what)
    element.text = explain(result, test)


def write_xml(root, path):
    for element in root.iter():
        for key, value in element.items():
            element.set(key, NOT_XML.sub("\ufffd", value))
        element.text = element.text and NOT_XML.sub("\ufffd", element.text)
    ET.indent(root)
    root.tail = "\n"
    ET.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def write_junit(folder, result, first):
    """junit.xml in the dialect of the Jenkins plugin xunit (junit-10.xsd), which GitLab reads as well."""
    tests, words = result["tests"], result.get("command", "").split()[1:]
    name = ".".join(filter(None, (*(result.get(k, "") for k in ("suite", "kernel", "topology")), "-".join(words))))
    errors = sum(t["name"] == "vm" and t["status"] == "FAIL" for t in tests)
    root = ET.Element("testsuite", name=name, tests=str(len(tests)), failures=str(result["counts"]["FAIL"] - errors),
                      errors=str(errors), skipped=str(result["counts"]["SKIP"]), time=str(result.get("seconds") or 0))
    if result.get("start"):
        root.set("timestamp", result["start"][:19])
    properties = ET.SubElement(root, "properties")
    for key in ("series", "qemu", "repeat", "folder"):
        if result.get(key):
            ET.SubElement(properties, "property", name=key, value=result[key])
    for test in tests:
        case = ET.SubElement(root, "testcase", name=test["name"], classname=name)
        if "seconds" in test:
            case.set("time", f"{test['seconds']:.3f}")
        if test["status"] == "FAIL":
            verdict_element(case, "", result, test)
        if "first" in test:
            # The first failure of a flake, or of a test that failed twice, in the form of Surefire.
            failed = next(t for t in first["tests"] if t["name"] == test["name"])
            verdict_element(case, "flaky" if "flake" in test else "rerun", first, failed)
        if test["status"] == "SKIP":
            ET.SubElement(case, "skipped", message=test["reason"])
        if test["status"] != "FAIL" and test.get("log"):
            ET.SubElement(case, "system-out").text = test["log"]
    write_xml(root, folder / "junit.xml")


def load(folder):
    return json.loads((Path(folder) / "results.json").read_text())


def load_first(folder):
    """The first result of a run that was repeated. It was written before its folder was renamed."""
    result = load(folder)
    return {**result, "folder": result["folder"] + ".first"}


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


def source(kernel, stamp):
    """The source of this kernel as a checkout of KCIDB, without its id. Only fields that are known for sure."""
    base = dict(line.split(": ", 1) for line in (PATCHES / "BASE").read_text().splitlines() if not line.startswith("#"))
    checkout = {"tree_name": "mainline", "valid": True, "misc": {"git_tree": stamp["tree"]}}
    commit = git(BUILD / "base", "rev-parse", "HEAD").strip()
    if commit == base["commit"]:
        # An imported tarball is a commit that exists nowhere else.
        url, tag = base["git"].split()
        checkout.update(git_repository_url=url, git_commit_name=tag, comment=f"{tag}, imported from {base['package']}")
    else:
        checkout["git_commit_hash"] = commit
    if stamp["edits"] != hashlib.sha256().hexdigest()[:16]:
        checkout["misc"]["edits"] = stamp["edits"]
    elif kernel == "unpatched":
        checkout["patchset_hash"] = ""
    else:
        # scripts/patches/series.sh: a commit and a checksum for each patch in build/tree
        applied = [line.split() for line in (BUILD / "tree/.git/series").read_text().splitlines()]
        if kernel == "feature":
            # The base and the series with its tag.
            last = git(BUILD / "tree", "rev-parse", "series/1-hmm-p2p").strip()
            applied = applied[:[fields[0] for fields in applied].index(last) + 1]
        if git(BUILD / "tree", "rev-parse", applied[-1][0] + "^{tree}").strip() == stamp["tree"]:
            sums = "".join(fields[1] + "\n" for fields in applied[1:])
            checkout["patchset_hash"] = hashlib.sha256(sums.encode()).hexdigest()
    return checkout


def kcidb(runs):
    """A submission to KCIDB with everything that ran on a kernel. A repeated run is included twice."""
    origin = os.environ.get("KCIDB_ORIGIN") or "hmm_p2p"
    checkouts, builds, tests = {}, {}, []
    for result in [run for run in runs if run["kernel"] != "host"]:
        kernel = result["kernel"]
        stamp = dict(line.split(" ", 1) for line in (BUILD / "kernels" / kernel / "stamp").read_text().splitlines())
        checkout = f"{origin}:{stamp['tree']}-{stamp['edits']}"
        build = f"{checkout}-{kernel}-{stamp['config']}"
        if checkout not in checkouts:
            checkouts[checkout] = {"id": checkout, "origin": origin, **source(kernel, stamp)}
        builds[build] = {"id": build, "origin": origin, "checkout_id": checkout, "architecture": "x86_64", "compiler": stamp["compiler"],
                         "config_name": kernel, "status": "PASS", "misc": {"config": stamp["config"]}}
        where = [result["suite"], kernel, result["topology"], *result["command"].split()[1:]]
        run = "-".join([*where, result["start"], *(["first"] if result["folder"].endswith(".first") else [])])
        for number, test in enumerate(result["tests"], 1):
            if test["name"] == NO_RESULT:
                continue
            status = "PASS" if "flake" in test else test["status"]
            if test["name"] == "vm" and status == "FAIL":
                status = {USAGE: "MISS", PLAN: "ERROR"}.get(result["exit"], "FAIL")
            path = [re.sub("[^A-Za-z0-9_-]+", "_", word) for word in ["hmm_p2p", result["suite"], *test["name"].split(".")] if word]
            one = {"id": f"{origin}:{run}-{number}-{test['name']}", "origin": origin, "build_id": build,
                   "path": ".".join(path), "status": status, "start_time": result["start"], "comment": " ".join(where),
                   "environment": {"misc": {k: result[k] for k in ("qemu", "accelerator", "topology") if k in result}},
                   "misc": {k: result[k] for k in ("folder", "repeat") if k in result}}
            if "seconds" in test:
                one["duration"] = test["seconds"]
            if status not in ("PASS", "SKIP"):
                one["log_excerpt"] = NOT_XML.sub("\ufffd", explain(result, test))[:16384]
            if "flake" in test:
                one["misc"]["flake"] = test["flake"] or "not listed"
            tests.append(one)
    return {"version": {"major": 5, "minor": 0}, "checkouts": [*checkouts.values()], "builds": [*builds.values()], "tests": tests}


def summary(folder, runs):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    results = [load(r) for r in runs]
    counts = {s: sum(r["counts"][s] for r in results) for s in ("PASS", "FAIL", "SKIP")}
    suites = ET.Element("testsuites", name="hmm-p2p")
    suites.extend(ET.parse(Path(r) / "junit.xml").getroot() for r in runs)
    for key in ("tests", "failures", "errors"):
        suites.set(key, str(sum(int(suite.get(key)) for suite in suites)))
    suites.set("time", f"{sum(float(suite.get('time')) for suite in suites):.1f}")
    write_xml(suites, folder / "junit.xml")
    rows = [{**{k: v for k, v in r.items() if k != "tests"}, "folder": os.path.relpath(d, folder)}
            for r, d in zip(results, runs)]
    (folder / "results.json").write_text(json.dumps({"counts": counts, "runs": rows}, indent=1) + "\n")
    every = sum(([load_first(f"{d}.first"), r] if "first" in r else [r] for r, d in zip(results, runs)), [])
    (folder / "kcidb.json").write_text(json.dumps(kcidb(every), indent=1) + "\n")
    flakes = sum((r.get("flakes", []) for r in results), [])
    (folder / "conclusion.txt").write_text(verdict(counts, flakes) + "\n")
    print(verdict(counts, flakes))
    return FAIL if counts["FAIL"] or not counts["PASS"] else 0


VERDICTS = {"bus": "bus address", "bridge": "through host bridge", "none": "not supported"}
# The columns of each table, and the cells that a row of numbers gives.
TABLES = {
    "p2p-table": ({"TOPOLOGY": "<18", "VERDICT": "<20", "P2P": ">6", "MIGRATED": ">8", "DATA": "<13", "EXPECTED": ""}, lambda row: [
        VERDICTS.get(row["verdict"], row["verdict"]), row["p2p"], row["migrated"], "verified" if row["verified"] == "yes" else "WRONG"]),
    "demo-table": ({"TOPOLOGY": "<17", "P2P FLAG": "<8", "TURNS": ">5", "RDMA OPS": ">8", "P2P BYTES": ">9", "IN VRAM": ">7",
                    "MIGRATED": ">8", "BYTES COPIED": ">12", "DATA": "<8", "EXPECTED": ""}, lambda row: [
        row["flag"], row["turns"], row["ops"], row["p2p"], f"{row['vram']}/{row['pages']}", row["migrated"], row["copied"], row["data"]]),
    "gpus-table": ({"TOPOLOGY": "<17", "GPU": "<3", "VRAM OF": "<7", "PAGES": ">5", "BYTES READ": ">10", "BYTES WRITTEN": ">13", "IN VRAM": ">7",
                    "BYTES COPIED": ">12", "DATA": "<8", "EXPECTED": ""}, lambda row: [
        row["gpu"], row["owner"], row["pages"], row["read"], row["written"], f"{row['vram']}/{row['pages']}", row["copied"], row["data"]]),
}


def numbers(kind, test):
    """The lines "# KIND KEY=VALUE..." that a test printed"""
    return [dict(field.split("=", 1) for field in line.split()) for line in re.findall(f"^ *# {kind} (.*)$", test.get("log", ""), re.M)]


def table(kind, folders):
    columns, cells = TABLES[kind]
    rc = 0

    def line(*words):
        print("  ".join(f"{word:{width}}" for word, width in zip(words, columns.values())).rstrip())
    line(*columns)
    for folder in folders:
        result = load(folder)
        for test in result["tests"]:
            said = [cells(row) for row in numbers(kind, test)] or [["-"] * (len(columns) - 2)]
            if test["name"] == "no-devices":
                said = [["no PCI devices: tests skip", "", "", ""]]
            good = test["status"] == "PASS" and said[0][0] != "-"
            if test["name"] != "vm":
                line(result["topology"], *said[0], "yes" if good else "NO")
            rc = rc if good else FAIL
        if result["why"]:
            print((Path(folder) / "conclusion.txt").read_text(), end="")
    return rc


def main(args):
    if args[:1] == ["run"] and len(args) >= 2:
        return run(args[1], dict(a.split("=", 1) for a in args[2:]))
    if args[:1] == ["repeated"] and len(args) == 3:
        return repeated(*args[1:])
    if args[:1] == ["compare"] and len(args) == 4:
        return compare(*args[1:])
    if args[:1] == ["summary"] and len(args) >= 2:
        return summary(args[1], args[2:])
    if args[:1] == ["table"] and len(args) >= 3 and args[1] in TABLES:
        return table(args[1], args[2:])
    return help_or_usage(__doc__, args)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
