# SPDX-License-Identifier: GPL-2.0-only
"""What the Python scripts share: paths, exit codes, and programs that end with the script."""
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("BUILD") or TOP / "build").resolve()
PATCHES = Path(os.environ.get("PATCHES") or TOP / "patches").resolve()
CACHE = Path(os.environ.get("HMM_P2P_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hmm-p2p")
FAIL, USAGE, SPLAT, PLAN, DIED, TIMEOUT, PANIC = 1, 2, 5, 6, 7, 124, 255
JOBS = int(os.environ.get("JOBS") or os.cpu_count())
started = float(os.environ.get("STARTED") or time.time())
running = set()


def help_or_usage(text, args):
    """Print how the script is used, and return its exit code."""
    asked = args == ["--help"]
    print(text.strip(), file=sys.stdout if asked else sys.stderr)
    return 0 if asked else USAGE


def stop(code):
    """End what runs, and exit: also from a thread."""
    for process in list(running):
        try:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
        except ProcessLookupError:
            pass
    os._exit(code)


def stop_at_signals():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: stop(128 + number))


def die(text):
    print(f"{Path(sys.argv[0]).name}: {text}", file=sys.stderr, flush=True)
    stop(USAGE)


def step(text):
    seconds = int(time.time() - started)
    print(f"[{seconds // 60:3}:{seconds % 60:02}] {text}", file=sys.stderr, flush=True)


def call(command, **env):
    """Run it as a process group of its own, so that an interrupt ends all of it. Return its exit code and output."""
    process = subprocess.Popen([str(word) for word in command], env=dict(os.environ, **{k: str(v) for k, v in env.items()}),
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               errors="replace", start_new_session=True)
    running.add(process)
    out = process.communicate()[0]
    running.discard(process)
    return process.returncode, out


def git(where, *words):
    code, out = call(["git", "-C", where, *words], GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_NOSYSTEM="1",
                     GIT_CEILING_DIRECTORIES=BUILD)
    if code:
        raise RuntimeError(f"git {' '.join(map(str, words))}: {out}")
    return out


def vm(folder, suite, kernel, topology, *args, append, **env):
    """Run a suite in a guest. Return the exit code of the run."""
    code, out = call([TOP / "scripts/guest/vm.sh", "run", "-q", "-o", folder, "-a", append, kernel, topology, f"/suites/{suite}/run", *args], **env)
    if not (Path(folder) / "results.json").exists():
        die(f"could not run: {suite} {kernel} {topology} {' '.join(args)}: {out}")
    return code
