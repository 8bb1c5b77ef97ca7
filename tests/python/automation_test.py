# SPDX-License-Identifier: Apache-2.0
"""The loop of examples/automation finds the planted problems of its loader, and keeps no change that a longer measurement rejects.

PENSTOCK_TEST_LONGER: how many times as long that measurement is (default 2).
"""
import os
import pathlib
import sys
import unittest

import penstock_bench

FOLDER = pathlib.Path(__file__).parents[2] / "examples" / "automation"
sys.path.insert(0, str(FOLDER))
import bad_loader  # noqa: E402
import improve  # noqa: E402

CANDIDATES = {"color": ["blue"], "check": [True], "workers": [4], "reopen": [False]}
BUDGET_S, VARY_BUDGET_S = 6, 14
LONGER = float(os.environ.get("PENSTOCK_TEST_LONGER", "2"))


class AutomationTest(unittest.TestCase):
    def test_the_loop_cures_the_planted_problems_and_keeps_nothing_else(self):
        said = []
        settings, steps = improve.improve(bad_loader.make_loader, CANDIDATES, samples_per_s=2000, budget=BUDGET_S,
                                          vary_budget=VARY_BUDGET_S, say=said.append)
        print("\n".join(said), flush=True)
        self.assertTrue(settings, said)
        self.assertLessEqual(set(settings), {"workers", "reopen"}, said)  # the others change nothing, or cost time
        kept = [(before, tried) for before, tried, is_kept in steps if is_kept]
        self.assertEqual(len(kept), len(settings))
        for before, tried in kept:
            longer = penstock_bench.isolate(bad_loader.make_loader, args=before, samples_per_s=2000, budget=BUDGET_S, progress=False,
                                            vary={name: [value] for name, value in tried.change.items()},
                                            vary_budget=LONGER * VARY_BUDGET_S)
            again = longer.tried
            self.assertIsNotNone(again, f"{tried.text} was kept, and is not the best setting in a longer measurement: {longer.verdict}")
            print(f"{tried.text}: kept for {tried.gain_percent} %; {LONGER:g} times as long: {again.gain_percent} %", flush=True)
            self.assertGreater(again.gain_percent.high, 0)

    def test_a_program_of_less_than_sixty_lines(self):
        self.assertLessEqual(len((FOLDER / "improve.py").read_text().splitlines()), 60)

    def test_the_best_candidate_is_tried_first(self):
        settings = [{"kind": "argument", "name": "num_workers", "value": "4", "now": None}]
        gain = {"value": 40, "low": 20, "high": 60, "ends": "95 % interval"}
        found = penstock_bench.Isolation({"answer": {"candidates": [
            {"settings": settings, "text": "num_workers=4", "rate": 140, "gain_percent": gain, "basis": "predicted"}]}}, "", "")
        self.assertEqual(found.candidates[0].change, {"num_workers": 4})
        self.assertEqual(found.candidates[0].present, {"num_workers": None})
        self.assertEqual(found.candidates[0].gain_percent.low, 20)
        self.assertEqual(improve.next_setting(found, {"pin_memory": [1], "num_workers": [2]}), "num_workers")
        self.assertEqual(improve.next_setting(found, {"pin_memory": [1], "cache": [2]}), "pin_memory")
        self.assertIsNone(improve.next_setting(found, {}))


if __name__ == "__main__":
    unittest.main()
