#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Break the patches line by line and prove that the tests notice.

usage: [FRESH=1] [JOBS=N] mutants.py [MUTANT...]

Tests each mutant in selftests/mutants/*.patch, or only the named ones ('odp-*' is a
pattern), and prints the test that killed it. Without names, mutants for other kernels
than normal and debug are skipped, except with LIST=soak.

A mutant is a diff that breaks one line. It applies to build/tree, or to this
repository if it breaks a driver of selftests/modules. The first line above the diff
says what is broken. The header lines are
  Patch: SERIES SUBJECT              the patch whose line it breaks, or
  Base: FILE                         the file, if no patch touches the line, or
  Module: NAME                       the driver
  Suite: SUITE                       the suite that must notice (default: hmm)
  Run: KERNEL TOPOLOGY ARGUMENTS     a run to do, as in the suite's file runs; may
                                     be repeated
  Killed-by: TEST...                 one of these must fail, or the guest must crash
  Hangs: WHY                         reaching a time limit in such a test counts, too;
                                     otherwise it does not, because a busy machine
                                     may cause it
  Survives: WHY                      in place of Killed-by: the proof that no test can
                                     notice

All runs of a mutant use the same kernel. After a run that kills the mutant, the others
are left out.

One kernel has all mutants that change only the bodies of functions: each such function
once for each mutant. The boot parameter hmm_mutant=K selects one, 0 none. JOBS guests
(default: one a processor) run at a time. The other mutants, of data, macros and scripts,
are built one by one. First, the kernel without a mutant has to pass all tests that the
runs name. All is built in build/mutants, a clone of build/tree with its own kernels.
Results are in results/mutants/NAME. A run that reaches a time limit before an expected
test failed is repeated once with double limits, unless the mutant has a line Hangs.

selftests/README.md says when a mutant is repeated; FRESH=1 repeats all. The last line is
"N passed, N failed, N skipped" for all mutants. Exit 1 if one failed.
"""
import concurrent.futures
import fcntl
import functools
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

from common import (BUILD, CACHE, DIED, FAIL, JOBS, PANIC, PLAN, TIMEOUT, TOP, call, die, git, help_or_usage, step,
                    stop_at_signals, vm)

MUTANTS, RESULTS, UPSTREAM = TOP / "selftests/mutants", TOP / "results/mutants", BUILD / "tree"
# Kernels are built in WORK. The guests have a BUILD of their own, without the edits of the mutants.
WORK = BUILD / "mutants"
TREE, GUEST, MODULES, VERDICTS = WORK / "tree", WORK / "guest", WORK / "selftests/modules", MUTANTS / "verdicts"
HOME = "mm/hmm.c"  # the boot parameter is defined there
PARAMETER = ("#include <linux/moduleparam.h>\nint hmm_mutant;\nEXPORT_SYMBOL_GPL(hmm_mutant);\n"
             "core_param(hmm_mutant, hmm_mutant, int, 0444);\n")
LIMITS = {"BOOT_TIMEOUT": "30", "TEST_TIMEOUT": "120", "SILENCE_TIMEOUT": "120"}
keeping = threading.Lock()


class Mutant:
    def __init__(self, path):
        self.name, self.path, self.text = path.stem, path, path.read_text()
        self.headers = {}
        for key, value in re.findall(r"^([A-Z][a-z-]+): *(.*)$", self.text.split("\n--- ")[0], re.M):
            self.headers.setdefault(key, []).append(value)
        self.files = re.findall(r"^\+\+\+ b/(.*)", self.text, re.M)
        self.suite = self.first("Suite", "hmm")
        self.runs = [run.split() for run in self.headers.get("Run", [])]
        self.module = "Module" in self.headers
        self.expected = self.first("Killed-by").split()
        self.survives = self.first("Survives")
        self.hangs = "Hangs" in self.headers
        self.number = self.id = None

    def first(self, key, default=""):
        return self.headers.get(key, [default])[0]

    def check(self, subjects):
        selftests = TOP / "selftests"
        module, base, patch = map(self.first, ("Module", "Base", "Patch"))
        kernels, topologies = ({run[i] for run in self.runs} for i in (0, 1))
        killed, survives = (len(self.headers.get(key, [])) for key in ("Killed-by", "Survives"))
        for wrong, why in (
                (module and not (selftests / "modules" / module).is_dir(), f"no such driver: {module}"),
                (base and not (UPSTREAM / base).is_file(), f"no such file in build/tree: {base}"),
                (not module and not base and patch not in subjects, f"no such patch in build/tree: {patch}"),
                (not os.access(selftests / "suites" / self.suite / "run", os.X_OK),
                 f"no suite {self.suite} that runs in a guest"),
                (not self.runs, "no line Run:"),
                (killed + survives != 1, "one line Killed-by: or one Survives: is needed"),
                (len(kernels) > 1, "runs of more than one kernel"),
                *((kernel in ("unpatched", "feature"),
                   f"the source of the kernel {kernel} is not build/tree, which mutants break") for kernel in kernels),
                *((not (selftests / "topologies" / topology).is_file(), f"no topology {topology}")
                  for topology in topologies)):
            if wrong:
                die(f"{self.path}: {why}")

    def apply(self, where):
        return call(["git", "-C", where, "apply", self.path], GIT_CEILING_DIRECTORIES=where.parent)[0] == 0


# What a verdict depends on.

# A test of kselftest_harness.h, or of a class in Python.
TEST = re.compile(r"^TEST\w*\((?:\w+, *)?(\w+)[^)]*\)\n\{\n.*?^\}\n|^    def test_(\w+)\(.*?(?=^ {0,4}\S)", re.M | re.S)


@functools.lru_cache(None)
def contents(name, tests=None):
    """a file of the series (tree/NAME) or of this repository, only with these tests; C without comments and white space"""
    text = git(TREE, "show", f"HEAD:{name[5:]}") if name[:5] == "tree/" else (TOP / name).read_text(errors="replace")
    if tests:
        text = TEST.sub(lambda m: m[0] if (m[1] or m[2]) in tests else "", text)
    if name[-2:] in (".c", ".h"):
        text = re.sub(r'("(?:\\.|[^"\\])*")|/\*.*?\*/|//[^\n]*', lambda m: m[1] or "", text, flags=re.S)
        text = re.sub(r"\s+", " ", text)
    return text


@functools.lru_cache(None)
def tree_files():
    return set(git(TREE, "ls-files").split("\n"))


def tests_of(suite, words):
    """The programs that these arguments name, and those that they start as /suites/SUITE/NAME, /programs/NAME,
    /kselftest/mm/NAME or by /guest/kunit."""
    found, names = set(), [f"selftests/suites/{suite}/run"]
    for word in re.split("[ :,]+", " ".join(words)):
        names += [f"selftests/suites/{suite}/{word}", f"selftests/programs/{word}"]
    while names:
        name = names.pop()
        for file in {name, name + ".c", name + ".py"} - found:
            if not (file[5:] in tree_files() if file[:5] == "tree/" else (TOP / file).is_file()):
                continue
            found.add(file)
            text = contents(file)
            names += [f"tree/tools/testing/selftests{m[10:]}" if m[:10] == "/kselftest" else "selftests" + m
                      for m in re.findall(r"(?<![a-z])(/(?:suites|programs|kselftest/mm)/[\w./-]+)", text)]
            for kunit in re.findall("/guest/kunit ([a-z_]+)", text):
                names += ["tree/" + f for f in tree_files() if f.endswith(f"/{kunit}.c")]
    return found


def named(suite, runs):
    """The tests that all of these runs name, as -t TEST or PART:TEST,...; nothing if a run is of a whole program"""
    tests = set()
    for words in runs:
        options = [test for before, test in zip(words, words[1:]) if before == "-t"]
        parts = [test for word in words if ":" in word for test in word.split(":")[1].split(",")]
        if not options and (not parts or any((TOP / "selftests/suites" / suite / word).is_file() for word in words)):
            return None
        tests |= {test.split(".")[-1] for test in options + parts}
    return frozenset(tests)


def mutant_id(mutant):
    # Its description, the places of its hunks, and comments beside them do not count.
    parts = re.findall(r"^(?:Suite|Run|Killed-by|Survives|Hangs):.*|^(?! \s*(?:/?\*|//))[-+ ].*", mutant.text, re.M)
    files = {f if mutant.module else f"tree/{f}" for f in mutant.files}
    runs = [run[2:] for run in mutant.runs]
    programs, tests = tests_of(mutant.suite, [word for run in runs for word in run]) - files, named(mutant.suite, runs)
    texts = [contents(f) for f in sorted(files)] + [contents(f, tests) for f in sorted(programs)]
    return hashlib.sha256("\n".join(parts + texts).encode()).hexdigest()[:16]


@functools.lru_cache(None)
def guest_id(suite):
    h = hashlib.sha256(git(TREE, "rev-parse", "HEAD^{tree}").encode())
    for folder in ("selftests/guest", "selftests/modules", "selftests/programs", "kernel-config", f"selftests/suites/{suite}"):
        for path in sorted(p for p in (TOP / folder).rglob("*") if p.is_file()):
            h.update(str(path).encode() + path.read_bytes())
    return h.hexdigest()


def unmutated_id(run):
    return hashlib.sha256((guest_id(run[0]) + " ".join(run)).encode()).hexdigest()[:16]


def kept():
    return {row[0]: row[1:] for row in (line.split(" ", 2) for line in VERDICTS.read_text().splitlines())}


def keep(mutant, verdict):
    """Record the verdict, unless its inputs changed meanwhile."""
    with keeping:
        contents.cache_clear()
        if mutant_id(mutant) == mutant.id:
            rows = {**kept(), mutant.name: [mutant.id, verdict]}
            temporary = VERDICTS.with_suffix(".new")
            names = (name for name in sorted(rows) if (MUTANTS / f"{name}.patch").is_file())
            temporary.write_text("".join(" ".join([name, *rows[name]]) + "\n" for name in names))
            temporary.rename(VERDICTS)


# One kernel for many mutants.

# A signature and a body, from "{" to "}". A line of the signature ends no statement, function or comment.
FUNCTION = re.compile(r"((?:^(?!#|\w+:$|.*(?:[;}]|\*/)$).+\n)+)(^\{\n(?:.*\n)*?\}$)", re.M)


def parts_of(signature):
    """(text before the name, name, parameters, arguments, text behind): nothing if those cannot be passed on"""
    # Annotations such as __acquires(&lock) stand behind the parameters.
    behind = re.search(r"(?:\s+__\w+(?:\([^()]*\))?)*\s*$", signature)[0]
    m = re.match(r"([^(]*?\b)(?!__)(\w+)\s*\((.*)\)$", signature[:len(signature) - len(behind)], re.S)
    if not m:
        return None
    names = [re.search(r"\(\s*\*\s*(\w+)\s*\)|(\w+)\s*(?:\[[^]]*\])*\s*$", p) for p in re.split(r",(?![^(]*\))", m[3])]
    if None in names:
        return None
    args = "" if m[3].strip() == "void" else ", ".join(name[1] or name[2] for name in names)
    return m[1], m[2], m[3], args, behind.rstrip()


def mergeable(old, new):
    """The changed functions: {index of a body: body}, or nothing if more than bodies changed."""
    # text between functions, signature, body, text, signature, body, ..., text
    old, new = FUNCTION.split(old), FUNCTION.split(new)
    changed = {i: b for i, (a, b) in enumerate(zip(old, new)) if a != b}
    bodies = all(i % 3 == 2 and parts_of(old[i - 1]) for i in changed)
    return changed if len(old) == len(new) and changed and bodies else None


def merged(old, changes):
    """old with all changes: {number: {index: body}}"""
    out = FUNCTION.split(old)
    for i in sorted({i for change in changes.values() for i in change}):
        signature = out[i - 1].rstrip()
        kind, name, parameters, args, behind = parts_of(signature)
        plain = re.sub(r"\b(static|inline|__always_inline|extern|noinline)\b\s*", "", kind)
        void = re.fullmatch(r"(__\w+\s+)*void\s+", plain)
        pick = lambda n: f"{{ {name}__m{n}({args}); return; }}" if void else f"return {name}__m{n}({args});"
        bodies = {n: change[i] for n, change in changes.items() if i in change}
        out[i - 1] = f"extern int hmm_mutant;\n{signature};\n" + "".join(
            f"static noinline __maybe_unused {plain}{name}__m{n}({parameters}){behind}\n{body}\n"
            for n, body in {0: out[i], **bodies}.items())
        out[i] = f"{signature}\n{{\n\tswitch (hmm_mutant) {{\n" + \
            "".join(f"\tcase {n}: {pick(n)}\n" for n in bodies) + f"\tdefault: {pick(0)}\n\t}}\n}}"
    return "".join(out)


def merge(batch):
    """Edit the tree so that it has all mutants of the batch that can be in one kernel. They get a number."""
    changes = {}
    for number, mutant in enumerate(batch, 1):
        if not all(file.endswith((".c", ".h")) and not file.startswith("tools/") for file in mutant.files):
            continue
        root = WORK if mutant.module else TREE
        with tempfile.TemporaryDirectory() as scratch:
            for file in mutant.files:
                (Path(scratch) / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(root / file, Path(scratch) / file)
            if not mutant.apply(Path(scratch)):
                continue
            found = {root / f: mergeable((root / f).read_text(), (Path(scratch) / f).read_text()) for f in mutant.files}
        if None in found.values():
            continue
        mutant.number = number
        for path, change in found.items():
            changes.setdefault(path, {})[number] = change
    for path, change in changes.items():
        path.write_text(merged(path.read_text(), change))
    if changes:
        with (TREE / HOME).open("a") as home:
            home.write(PARAMETER)


# Builds and runs.

def unmutate():
    git(TREE, "reset", "-q", "--hard")
    # With a new time stamp. Otherwise make would take the object of the mutant for newer.
    shutil.rmtree(MODULES, ignore_errors=True)
    shutil.copytree(TOP / "selftests/modules", MODULES, copy_function=shutil.copyfile)


def kernel_sh(*words):
    return call([TOP / "scripts/build/kernel.sh", *words], BUILD=WORK, MODULES=MODULES)


def make_room(kernel):
    """Return the folder that the guests boot as this kernel, for a new one."""
    shutil.rmtree(GUEST / "kernels" / kernel, ignore_errors=True)
    for archive in (GUEST / "initramfs").glob("*.cpio"):
        archive.unlink()  # as large as the modules of its kernel
    return GUEST / "kernels" / kernel


def build(kernel, batch):
    """Build the kernel with all mutants that can be in it, and put it where the guests find it."""
    while True:
        unmutate()
        merge(batch)
        code, out = kernel_sh("build", kernel)
        if code == 0:
            break
        bad = {int(n) for n in re.findall(r"__m([1-9]\d*)[’']", (WORK / f"kernels/{kernel}.log").read_text(errors="replace"))}
        if not bad or not any(m.number in bad for m in batch):
            die(f"the unmutated kernel does not build: {out}")
        for mutant in [m for m in batch if m.number in bad]:
            batch.remove(mutant)
            yield mutant, "not ok", "DOES NOT BUILD"
    shutil.copytree(WORK / "kernels" / kernel, make_room(kernel))


def run_tests(folder, suite, kernel, topology, *args, number=0, slow=1):
    env = {key: os.environ.get(key) or value for key, value in LIMITS.items()}
    env["SLOWDOWN"] = slow * int(os.environ.get("SLOWDOWN") or 1)
    code = vm(folder, suite, kernel, topology, *args, append=f"hmm_mutant={number}", BUILD=GUEST, **env)
    # The header of bzImage, which is not compressed, has the number of the build.
    version = re.search(rb" #\d+ SMP", (folder / "console.log").read_bytes())
    if version and version[0] not in (GUEST / "kernels" / kernel / "bzImage").read_bytes():
        die(f"the guest did not run the kernel that was built for it: {folder}/console.log")
    return code


def joined(runs):
    """Join runs that differ only in the tests that they name (-t TEST or PART:TEST,...) to one with all of these tests."""
    tests = {}
    for run in runs:
        words = " ".join(run)
        rest, names = re.sub(r" -t \S+", "", words), re.findall(r" -t (\S+)", words)
        part = re.search(r" [^ :]+:([^ :]+)$", rest)
        if part:
            rest, names = rest[:part.start(1)], names + part[1].split(",")
        tests.setdefault(rest, {}).update(dict.fromkeys(names))
    for rest, names in tests.items():
        if rest.endswith(":"):
            yield (rest + ",".join(names)).split()
        else:
            options = [word for name in names for word in ("-t", name)]
            # The kernel takes at most 32 arguments for init, so at most ten times -t.
            for i in range(0, max(1, len(options)), 20):
                yield [*rest.split(), *options[i:i + 20]]


def unmutated_passes(runs, pool):
    runs = [run for run in joined(runs) if os.environ.get("FRESH") or not (CACHE / "mutants" / unmutated_id(run)).exists()]

    def one(n, run):
        folder = RESULTS / "unmutated" / "-".join([*run[:3], str(n)]).replace("/", "-")
        shutil.rmtree(folder, ignore_errors=True)
        if run_tests(folder, *run) and run_tests(folder, *run, slow=2):
            die(f"the unmutated kernel fails, fix that first: {(folder / 'conclusion.txt').read_text().strip()} ({folder})")
        (CACHE / "mutants" / unmutated_id(run)).touch()
        return (folder / "conclusion.txt").read_text().strip()
    for done, conclusion in enumerate(pool.map(one, range(1, len(runs) + 1), runs), 1):
        step(f"unmutated {done}/{len(runs)}: {conclusion}")


def killed_by(folder, hangs):
    """The tests that failed, had a splat, or ended without a result. If no test was running, the name is "timeout" or "boot"."""
    result = json.loads((folder / "results.json").read_text())
    names = [t["name"] for t in result["tests"] if t["status"] == "FAIL" and t["name"] not in ("vm", "(no result)")]
    names += [s["test"] for s in result["splats"]]
    if result["splats"]:
        # KUnit names a test only after it has run. The stack trace names the one that runs.
        names += [".".join(function[::-1]) for function in
                  re.findall(r"\] +(?:\? )?(\w+)\+0x\S+ \[(\w+)_kunit\]", (folder / "console.log").read_text(errors="replace"))]
    # A time limit is no proof, because a busy machine reaches it, too.
    if result["exit"] in (PLAN, DIED, PANIC) or result["exit"] == TIMEOUT and hangs:
        last = re.findall(r"^#\s+(RUN|OK|FAIL|SKIP)\s+(\S+)", (folder / "ktap").read_text(errors="replace"), re.M)[-1:]
        names += [name for what, name in last if what == "RUN"]
    if result["exit"] and not names:
        names = ["timeout" if result["exit"] == TIMEOUT else "boot"]
    return ["boot" if n == "-" else n for n in dict.fromkeys(names)]


def some(tests):
    return ", ".join(tests) if len(tests) < 3 else f"{tests[0]}, and {len(tests) - 1} more"


def test(mutant):
    """Return "ok" or "not ok", and the verdict."""
    out = RESULTS / mutant.name
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    shutil.copy(mutant.path, out)
    seen = []
    for run in mutant.runs:
        run = [mutant.suite, *run]
        folder = out / "-".join(run).replace("/", "-")
        for slow in 1, 2:  # a busy machine reaches time limits, too
            code = run_tests(folder, *run, number=mutant.number or 0, slow=slow)
            noticed = killed_by(folder, mutant.hangs) if code else []
            if code != TIMEOUT or mutant.hangs or {*noticed} & {*mutant.expected}:
                break
        seen = sorted([*seen, *noticed], key=lambda name: name not in mutant.expected)  # those that must notice come first
        if seen and seen[0] in mutant.expected:
            break
    if seen and seen[0] in mutant.expected:
        result = "ok", f"killed by {some(seen)}"
    elif mutant.expected and seen:
        result = "not ok", f"killed by {some(seen)}, but not by {' '.join(mutant.expected)}"
    elif mutant.expected:
        result = "not ok", f"SURVIVES, not seen by {' '.join(mutant.expected)}"
    elif seen:
        result = "not ok", f"killed by {some(seen)}, but said to survive"
    else:
        result = "ok", f"survives: {mutant.survives}"
    (out / "conclusion.txt").write_text(result[1] + "\n")
    keep(mutant, ": ".join(result))
    return mutant, *result


def build_alone(mutant):
    """Put its kernel where the guests find it, or return what is wrong."""
    unmutate()
    root = WORK if mutant.module else TREE
    if not mutant.apply(root):
        return f"DOES NOT APPLY to {root.relative_to(BUILD.parent)}"
    kernel = mutant.runs[0][0]
    code, out = kernel_sh("again", kernel, make_room(kernel), *([] if mutant.module else mutant.files))
    return f"DOES NOT BUILD: {out.strip()[-300:]}" if code else None


def test_batch(kernel, batch, pool):
    """Yield (mutant, result, verdict)."""
    yield from build(kernel, batch)
    unmutated_passes([[m.suite, *run] for m in batch for run in m.runs], pool)
    together = [m for m in batch if m.number]
    alone = [m for m in batch if not m.number]
    step(f"{kernel}: {len(together)} mutants in one kernel, {len(alone)} built one by one")
    for future in concurrent.futures.as_completed([pool.submit(test, m) for m in together]):
        yield future.result()
    if alone:
        list(build(kernel, []))  # without a mutant: only what depends on one is built again
    for mutant in alone:
        wrong = build_alone(mutant)
        yield (mutant, "not ok", wrong) if wrong else test(mutant)


def prepare():
    """build/mutants: the series as it is committed in build/tree. Unchanged files keep their time stamps."""
    if not (UPSTREAM / ".git").is_dir():
        die(f"no {UPSTREAM}: run make tree")
    for folder in (WORK, RESULTS, CACHE / "mutants"):
        folder.mkdir(parents=True, exist_ok=True)
    VERDICTS.touch()
    try:
        # It is open, and locked, until the script ends.
        fcntl.flock(os.open(WORK / "lock", os.O_RDWR | os.O_CREAT), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        die(f"{WORK} is in use by another mutants.py")
    if not (TREE / ".git").is_dir():
        if shutil.disk_usage(BUILD).free < 8 << 30:
            die(f"less than 8 GiB are free in {BUILD}")
        git(BUILD, "clone", "-q", "--template=", "--no-checkout", "--shared", UPSTREAM, TREE)
        (TREE / ".git/info").mkdir(exist_ok=True)
        (TREE / ".git/info/exclude").write_text("/out-*/\n")
    git(TREE, "fetch", "-q", UPSTREAM, "HEAD")
    git(TREE, "reset", "-q", "--hard", "FETCH_HEAD")
    git(TREE, "clean", "-q", "-f", "-d")
    if git(UPSTREAM, "status", "--porcelain"):
        step("mutants: build/tree has edits that are not committed: left out")
    unmutate()
    # The guests need the headers of the series.
    series = git(TREE, "rev-parse", "HEAD^{tree}")
    if not (GUEST / "tree/id").exists() or (GUEST / "tree/id").read_text() != series:
        shutil.rmtree(GUEST, ignore_errors=True)
        (GUEST / "kernels").mkdir(parents=True)
        archive = f"git -C {TREE} archive HEAD ':(glob)**/*.h' tools/testing/kunit | tar -C {GUEST}/tree -x -m"
        (GUEST / "tree").mkdir()
        if call(["bash", "-o", "pipefail", "-c", archive])[0]:
            die(f"could not copy the headers: {archive}")
        (GUEST / "base").symlink_to("../../base")
        (GUEST / "tree/id").write_text(series)


def main():
    names = sys.argv[1:] or ["*"]
    if any(name.startswith("-") for name in names):
        return help_or_usage(__doc__, names)
    stop_at_signals()
    mutants = {}
    for name in names:
        found = sorted(MUTANTS.glob(f"{name}.patch"))
        if not found:
            die(f"no mutant {name}; there are: {' '.join(sorted(p.stem for p in MUTANTS.glob('*.patch')))}")
        mutants.update((p.stem, Mutant(p)) for p in found)
    prepare()
    log = git(UPSTREAM, "log", "--notes=series", "--format=%x00%N%x01%s", "base..HEAD")
    subjects = {" ".join(part.strip() for part in row.split("\x01")) for row in log.split("\x00")}
    for mutant in mutants.values():
        mutant.check(subjects)
        mutant.id = mutant_id(mutant)
    more = [] if sys.argv[1:] or os.environ.get("LIST") == "soak" else [
        name for name, mutant in mutants.items() if mutant.runs[0][0] not in ("normal", "debug")]
    for name in more:
        step(f"mutants: left to make soak, because of its kernel: {mutants.pop(name).name}")

    before = {} if os.environ.get("FRESH") else {
        name: verdict for name, (id_, verdict) in kept().items() if name in mutants and mutants[name].id == id_}
    todo = [m for name, m in mutants.items() if name not in before]
    step(f"mutants: {len(before)} done before, {len(todo)} to do, in {WORK}")
    results = [verdict.partition(": ")[0] for verdict in before.values()]
    for name, verdict in before.items():
        if verdict.startswith("not ok: "):
            step(f"before: {name}: {verdict.removeprefix('not ok: ')}")
    began = time.time()
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        for kernel in dict.fromkeys(m.runs[0][0] for m in todo):
            for mutant, result, verdict in test_batch(kernel, [m for m in todo if m.runs[0][0] == kernel], pool):
                results.append(result)
                left = (time.time() - began) / (len(results) - len(before)) * (len(mutants) - len(results)) / 60
                step(f"{len(results)}/{len(mutants)}, {left:.0f} min left: {mutant.name}: {verdict}")
    unmutate()
    failed = results.count("not ok")
    print(f"{len(results) - failed} passed, {failed} failed, {len(more)} skipped")
    return FAIL if failed else 0


if __name__ == "__main__":
    sys.exit(main())
