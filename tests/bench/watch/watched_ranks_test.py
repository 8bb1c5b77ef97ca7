#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two ranks of a training run under `penstock watch`, each as on another machine; the loader of rank 1 sleeps longer. `report` of
both records has to name it, with the delay. Usage: watched_ranks_test.py PENSTOCK
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

PENSTOCK = pathlib.Path(sys.argv.pop(1)).resolve()
TIMEOUT_S = 60
DELAY_MS = 18

TRAINING = """
import os, pathlib, socket, time
from penstock_bench import watching

rank, place = int(os.environ["RANK"]), "\\0" + os.environ["PLACE"]
if rank == 0:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(place)
    listener.listen()
    other, _ = listener.accept()
else:
    other = socket.socket(socket.AF_UNIX)
    while other.connect_ex(place) != 0:
        time.sleep(0.05)

def batches():
    for _ in range(60):
        time.sleep(0.002 + rank * float(os.environ["DELAY_MS"]) / 1e3)
        yield [b""] * 32

for batch in watching.watch(batches()):
    time.sleep(0.01)
    other.sendall(b"1")  # stands for the exchange of gradients
    other.recv(1)
"""


class WatchedRanks(unittest.TestCase):
    def waited_ms(self, delay_ms):
        """For how long rank 1 made the other wait in each step, as the report says; 0: it names no rank, or the other."""
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "train.py").write_text(TRAINING)
            environment = os.environ | {"WORLD_SIZE": "2", "PLACE": f"{folder}/ranks", "DELAY_MS": str(delay_ms)}
            watched = [subprocess.Popen([PENSTOCK, "watch", "--json", f"{rank}.json", "--", sys.executable, "train.py"], cwd=folder,
                                        env=environment | {"RANK": str(rank), "LOCAL_RANK": "0"}, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for rank in (0, 1)]
            for each in watched:
                text = each.communicate(timeout=TIMEOUT_S)[0]
                self.assertEqual(each.returncode, 0, text)
            report = subprocess.run([PENSTOCK, "report", "0.json", "1.json"], cwd=folder, text=True, capture_output=True,
                                    timeout=TIMEOUT_S, check=True)
            found = re.search(r"Rank 1 .*?makes the others wait for its input: ([\d.]+) ms a step", " ".join(report.stdout.split()))
            return float(found[1]) if found else 0

    def test_the_slow_rank_is_named_with_its_delay(self):
        self.assertAlmostEqual(self.waited_ms(DELAY_MS), DELAY_MS, delta=DELAY_MS / 2)  # a busy machine adds its own

    def test_ranks_that_are_alike_do_not_make_each_other_wait(self):
        self.assertLess(self.waited_ms(0), DELAY_MS / 2)


if __name__ == "__main__":
    unittest.main()
