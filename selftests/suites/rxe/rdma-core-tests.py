# SPDX-License-Identifier: GPL-2.0-only
"""rdma-core-tests.py DEVICE GID MODULE...: runs these of rdma-core's tests and prints KTAP."""

import sys
import unittest

FOLDER = "/usr/share/doc/rdma-core"


def tests(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from tests(test)
        else:
            yield test


class Result(unittest.TestResult):
    def say(self, word, test, text="", reason=""):
        for line in text.rstrip().splitlines():
            print("#", line)
        print(f"{word} {self.testsRun} {test.id().removeprefix('tests.')}{reason}", flush=True)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.say("ok", test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.say("ok", test, reason=f" # SKIP {' '.join(reason.split())}")

    def addError(self, test, err):
        super().addError(test, err)
        self.say("not ok", test, self.errors[-1][1])

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.say("not ok", test, self.failures[-1][1])


def main(device, gid, *modules):
    sys.path[:0] = [FOLDER, f"{FOLDER}/tests"]
    from args_parser import parser
    sys.argv[1:] = ["--dev", device, "--gid", gid]
    parser.parse_args()
    suite = unittest.TestSuite(unittest.defaultTestLoader.loadTestsFromName(f"tests.{m}") for m in modules)
    todo = list(tests(suite))
    print("KTAP version 1")
    print(f"1..{len(todo)}", flush=True)
    result = Result()
    for test in todo:
        test.run(result)
    return not result.wasSuccessful()


sys.exit(main(*sys.argv[1:]))
