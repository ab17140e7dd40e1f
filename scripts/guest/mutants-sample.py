#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Break N (default 40) random places in the lines that the patches add to each FILE (default mm/hmm.c), and print which run
notices. SEED (default 1) selects the places. A mutant negates a condition or removes a part of it, removes a statement or
swaps it with the next one, is off by one, or replaces an operator, flag or constant by a similar one. selftests/mutants/sample-runs
lists the runs that may notice a mutant. selftests/mutants/equivalent lists mutants that no test can notice, with the reason.

mutants.py builds and runs the kernel, which contains all mutants. Results are in results/mutants-sample. It continues where it stopped."""
import argparse, concurrent.futures, hashlib, os, random, re, sys

import mutants
from common import JOBS, TOP, call, die, git, stop_at_signals
from mutants import HOME, TREE, UPSTREAM

DATA = TOP / "selftests/mutants"
os.environ.setdefault("TEST_TIMEOUT", "240")  # the runs are longer than those of mutants.py
os.environ["FAIL_FAST"] = "1"
PAIRS = [(" && ", " || "), (" == ", " != "), (" < ", " <= "), (" > ", " >= "), (" + ", " - "), (" & ", " | "), (" += ", " -= "),
         ("true", "false"), ("HMM_PFN_VALID", "HMM_PFN_WRITE"), ("HMM_PFN_DMA_MAPPED", "HMM_PFN_P2PDMA"), ("addr", "end"),
         ("PAGE_SHIFT", "PMD_SHIFT"), ("PAGE_SIZE", "PMD_SIZE"), ("0", "1"), ("i", "i + 1"), ("start", "end")]
RULES = [(a.replace(a.strip(), rf"(?<!\w){re.escape(a.strip())}(?!\w)"), b) for x, y in PAIRS for a, b in ((x, y), (y, x))]
RULES += [(r" - 1\b", ""), (r"!(?=[\w(])", "")]
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
for name, default in (("N", 40), ("SEED", 1)):
    parser.add_argument(name, nargs="?", type=int, default=default)
parser.add_argument("FILE", nargs="*", default=[HOME])
parser.add_argument("--check", action="store_true", help="only check the arguments")
SAMPLE = [row for row in map(str.split, (DATA / "sample-runs").read_text().splitlines()) if row and row[0] != "#"]

def units(lines, added):
    """(first line, last line, text before, text that may change, text after) of each statement or condition with an added line"""
    found, start, inside, comment = [], 0, False, False
    for n, line in enumerate(lines):
        text = line.strip()
        if line[:1] in "{}" or not inside or comment or text[:2] == "/*" or text[:1] in ("", "#") or re.match(r"\w+:$", text):
            inside = line[:1] == "{" or inside and line[:1] != "}"
            comment = text[:2] == "/*" and "*/" not in text or comment and "*/" not in text
            start = n + 1
            continue
        whole = re.sub(r"\s+", " ", " ".join(lines[start:n + 1])).strip()
        if whole.count("(") != whole.count(")") or \
           whole[-1] not in ";{}:" and not re.match(r"(} )?(else|if|for|while)\b", whole):
            continue
        m = re.match(r"((?:} )?(?:else )?(?:if|while) \()(.*)(\)(?: {)?)$", whole) or \
            re.match(r"(for \([^;]*; )([^;]*)(;.*)$", whole) or \
            re.match(r"((?:(?:const|unsigned|struct|enum) )*\w+ \*?\w+ = )(.*)(;)$", whole) or \
            re.match(r"()((?!(?:const|unsigned|struct|enum|case|break) |(?!return|goto)\w+ \*?\w+[,;]).*;)()$", whole)
        if m and added & set(range(start, n + 1)):
            found.append((start, n, *m.groups()))
        start = n + 1
    return found

def mutants_of(found, lines):
    """A mutant is a list of (unit, replacement)."""
    ends = [lines[last + 1] == "}" for _, last, *_ in found]  # the last line of a function: its return has to stay
    for u, (_, last, before, text, _) in enumerate(found):
        for old, new in RULES:
            for m in re.finditer(old, text):
                yield [(u, text[:m.start()] + new + text[m.end():])]
        if "if (" in before or "while (" in before:
            yield [(u, f"!({text})")]
            parts = re.split(r" (?:&&|\|\|) ", text)
            yield from ([(u, p)] for p in parts if len(parts) > 1 and p.count("(") == p.count(")"))
        elif not before and not ends[u]:
            yield [(u, ";")]
            if found[u + 1:] and found[u + 1][0] == last + 1 and not found[u + 1][2] + "return" * ends[u + 1] and text[:6] != "return":
                yield [(u, found[u + 1][3]), (u + 1, text)]

class Sample(mutants.Mutant):
    def __init__(self, name, lines, found, changes):
        self.files, self.module, self.number = [name], False, None
        self.changes, self.lines = changes, list(lines)
        for u, new in changes:
            first, last, before, _, after = found[u]
            indent = re.match(r"\s*", lines[first])[0]
            self.lines[first:last + 1] = [indent + before + new + after] + [""] * (last - first)

    def apply(self, where):
        (where / self.files[0]).write_text("\n".join(self.lines) + "\n")
        return True

def noticed(k, runs, results):
    """Return: the first run that fails, or nothing"""
    verdict = results / str(k) / f"verdict-{runs[0][1]}"
    if verdict.exists():
        return verdict.read_text()
    by = ""
    for suite, kernel, topology, *args in runs:
        run = results / str(k) / "-".join([suite, kernel, topology, *args])
        if mutants.run_tests(run, suite, kernel, topology, *args, number=k):
            by = f"{suite} {kernel} {topology} {' '.join(args)}: {(run / 'conclusion.txt').read_text().strip()}"
            break
    verdict.write_text(by)
    return by

def sample(name, count, seed):
    runs = [row[1:] for row in SAMPLE if row[0] == name]
    same = {tuple(row.split("\t")[:3]) for row in (DATA / "equivalent").read_text().splitlines() if row[:1] not in ("", "#")}
    mutants.unmutate()
    lines, added = (TREE / name).read_text().split("\n")[:-1], set()
    for start, length in re.findall(r"^@@ .* \+(\d+),?(\d*)", git(UPSTREAM, "diff", "-U0", "base", "HEAD", "--", name), re.M):
        added |= set(range(int(start) - 1, int(start) - 1 + int(length or 1)))
    found = units(lines, added)
    possible = list(mutants_of(found, lines))
    drawn = [Sample(name, lines, found, m) for m in random.Random(seed).sample(possible, min(count, len(possible)))]
    print(f"{name}: {len(possible)} mutants possible, {len(drawn)} drawn; building", flush=True)
    tests = git(TREE, "rev-parse", "HEAD:") + call(["git", "-C", TOP, "rev-parse", "HEAD:selftests"])[1]
    drawn_from = (TREE / name).read_text() + f"{[m.changes for m in drawn]}{runs}{tests}"
    results = TOP / "results/mutants-sample" / hashlib.sha256(drawn_from.encode()).hexdigest()[:12]
    killed, left = 0, drawn
    for kernel in dict.fromkeys(run[1] for run in runs):
        list(mutants.build(kernel, drawn))  # this removes those that do not compile: they are no mutants
        here = [run for run in runs if run[1] == kernel]
        left = [m for m in left if m in drawn and m.number]
        with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
            mutants.unmutated_passes(here, pool)
            for mutant, by in zip(left, pool.map(lambda m: noticed(m.number, here, results), left)):
                u, new = mutant.changes[0]
                old, swap = found[u][3], " (swapped)" * (len(mutant.changes) - 1)
                mutant.noticed, mutant.equivalent = bool(by), not by and (name, old, new) in same
                end = by or ("SURVIVES", "equivalent")[mutant.equivalent]
                print(f"{mutant.number} {name}:{found[u][0] + 1}: {old} -> {new}{swap}: {end}", flush=True)
        killed, left = killed + sum(m.noticed for m in left), [m for m in left if not m.noticed]
    equal = sum(m.equivalent for m in left)
    total = killed + len(left)
    print(f"{name}: {killed} of {total} noticed, {equal} equivalent: "
          f"{100 * killed / max(1, total - equal):.0f} %; seed {seed}, {results.relative_to(TOP)}")
    return killed + equal == total

args = parser.parse_args()
args.N > 0 or die(f"N={args.N}: must be at least 1")
for name in args.FILE:
    name in {row[0] for row in SAMPLE} or die(f"selftests/mutants/sample-runs has no runs for {name}; it has: {' '.join(dict.fromkeys(row[0] for row in SAMPLE))}")
if args.check:
    sys.exit()
stop_at_signals()
mutants.prepare()
sys.exit(0 if all([sample(name, args.N, args.SEED) for name in args.FILE]) else 1)
