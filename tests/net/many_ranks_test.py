#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A job of many ranks on several hosts, which meet over TCP: one total, the rank that makes the others wait, and ranks that are lost.

Usage: hosts.sh 4 many_ranks_test.py PENSTOCK [TEST...]; $PENSTOCK_RANKS (64) is the number of ranks.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

import hosts

PENSTOCK = pathlib.Path(sys.argv.pop(1)).resolve()
RANKS = int(os.environ.get("PENSTOCK_RANKS", 64))
LIMIT_S = 150
SILENCE_S = 4  # after which a rank counts as lost
NAMED_WITHIN_S = 10  # 5 s, and as much again for many processes on few cores
LATE_RANK, DELAY_MS = RANKS * 5 // 8, 100
LOADER = f"""
import os, time

def make():
    delay_s = {DELAY_MS / 1e3} if os.environ["RANK"] == "{LATE_RANK}" else 0
    while True:
        time.sleep(delay_s)
        yield memoryview(bytes(8 * 4 * 4 * 3)).cast("B", (8, 4, 4, 3)), list(range(8))
"""
RUN = [PENSTOCK, "run", "--device", "emulated:img_per_s=20", "--model", "trivial", "--batch-size", "8", "--variable-update", "horovod",
       "--num-warmup-batches", "2"]


class ManyRanks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.hosts = hosts.names()
        self.each = RANKS // len(self.hosts)
        self.ranks = []
        self.addCleanup(self.end)

    def end(self):
        for rank in self.ranks:
            rank.kill()
            rank.wait()

    def host_of(self, rank):
        return self.hosts[rank // self.each]

    def start(self, command):
        """One process for each rank, with torchrun's variables and its words in a file."""
        common = dict(os.environ, WORLD_SIZE=str(RANKS), LOCAL_WORLD_SIZE=str(self.each), MASTER_ADDR=hosts.address(self.hosts[0]),
                      MASTER_PORT="29500", TORCHELASTIC_RUN_ID=self.id(), TORCHELASTIC_RESTART_COUNT="0")
        for rank in range(RANKS):
            with open(self.folder / f"out{rank}", "wb") as out, open(self.folder / f"err{rank}", "wb") as err:
                self.ranks.append(subprocess.Popen(hosts.on(self.host_of(rank), command), stdin=subprocess.DEVNULL, stdout=out,
                                                   stderr=err, env=dict(common, RANK=str(rank), LOCAL_RANK=str(rank % self.each))))

    def words(self, rank):
        return (self.folder / f"err{rank}").read_text(errors="replace")

    def wait(self, ranks=None):
        deadline = time.monotonic() + LIMIT_S
        return [self.ranks[rank].wait(max(0.1, deadline - time.monotonic())) for rank in ranks or range(RANKS)]

    def await_steps(self):
        steps, deadline = self.folder / "result.steps.jsonl", time.monotonic() + LIMIT_S
        while not (steps.exists() and '"step":3' in steps.read_text()):
            self.assertLess(time.monotonic(), deadline, self.words(0))
            self.assertIsNone(self.ranks[0].poll(), self.words(0))
            time.sleep(0.1)

    def endless(self):
        self.start([*RUN, "--fake-location", "host", "--num-batches", "100000", "--timeout", f"{SILENCE_S}s",
                    "--out", self.folder / "result.json"])
        self.await_steps()

    def expect_named(self, text, survivors):
        begin = time.monotonic()
        self.assertEqual(self.wait([0]), [5], self.words(0))
        seconds = time.monotonic() - begin
        print(f"{self.id()}: named after {seconds:.1f} s")
        self.assertLess(seconds, NAMED_WITHIN_S)
        self.assertRegex(self.words(0), text)
        self.assertEqual(set(self.wait(survivors)), {5})
        self.assertEqual(json.loads((self.folder / "result.json").read_text())["status"], "partial")

    def test_one_total_and_the_rank_that_makes_the_others_wait(self):
        (self.folder / "loader.py").write_text(LOADER)
        begin = time.monotonic()
        self.start([*RUN, "--json", "--loop", "sync", "--num-batches", "30", "--loader", f"{self.folder / 'loader.py'}:make"])
        codes = self.wait()
        self.assertEqual(set(codes), {0}, self.words(codes.index(max(codes))))
        result = json.loads((self.folder / "out0").read_text())
        self.assertEqual([rank["rank"] for rank in result["ranks"]], list(range(RANKS)))
        self.assertEqual({rank["host"] for rank in result["ranks"]}, set(self.hosts))
        skew = result["rank_skew"]
        print(f"{RANKS} ranks: {time.monotonic() - begin:.0f} s, {result['img_per_s']:.0f} img/s, {skew}")
        self.assertEqual((skew["culprit"], skew["rank"]), ("rank", LATE_RANK))
        self.assertAlmostEqual(skew["delay_ms"], DELAY_MS, delta=DELAY_MS / 10)

    def test_a_killed_rank_is_named(self):
        self.endless()
        lost = RANKS - 3
        self.ranks[lost].kill()
        self.expect_named(rf"rank {lost} \(host {self.host_of(lost)}", [rank for rank in range(RANKS) if rank != lost])

    def test_a_host_that_is_cut_off_is_named(self):
        self.endless()
        self.addCleanup(hosts.set_link, self.hosts[-1], "up")
        hosts.set_link(self.hosts[-1], "down")
        self.expect_named(self.hosts[-1], range(RANKS))


if __name__ == "__main__":
    unittest.main()
