# SPDX-License-Identifier: Apache-2.0
"""isolate(), run(), compare() and doctor() against the program, with loaders of a known cost."""
import contextlib
import importlib.util
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest

import numpy
import penstock_bench
from penstock_bench import PenstockError

LIMIT_S = 60
DECISIONS = ("slower", "undecided")  # the second one if the machine is busy
SPIN = pathlib.Path(__file__).parents[2] / "examples" / "loaders" / "spin.py"


def import_file(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


spin = import_file(SPIN)


class Sleeping:
    """A loader that can be iterated again; each batch of 8 samples takes `ms`."""

    def __init__(self, ms=10, batches=50):
        self.ms, self.batches = ms, batches
        self.threads, self.epochs = set(), 0

    def __len__(self):
        return self.batches

    def __iter__(self):
        self.epochs += 1
        for _ in range(self.batches):
            time.sleep(self.ms / 1000)
            self.threads.add((os.getpid(), threading.get_ident()))
            yield {"input_ids": numpy.ones((8, 64), numpy.int64)}


def quietly(measure, *arguments, **named):
    return measure(*arguments, progress=False, **named)


class MeasuringTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def refusal(self, *arguments, **named):
        began = time.monotonic()
        with self.assertRaises(PenstockError) as caught:
            quietly(penstock_bench.isolate, *arguments, **{"samples_per_s": 1000, "budget": 5, **named})
        self.assertLess(time.monotonic() - began, LIMIT_S)
        return str(caught.exception)

    def script(self, text):
        path = self.folder / "script.py"
        path.write_text(textwrap.dedent(text))
        return path

    def test_a_function_of_a_file_is_started_in_fresh_processes(self):
        found = quietly(penstock_bench.isolate, spin.make_loader, args={"ms": 20}, samples_per_s=6400, budget=8)
        self.assertIn(found.decision, DECISIONS)
        self.assertTrue(30 < found.cost_percent.value < 95, found.cost_percent)
        self.assertLessEqual(found.cost_percent.low, found.cost_percent.value)
        if found.decision == "slower":
            self.assertEqual(found.bottleneck, "next(loader)")
            self.assertIn("input costs", found.verdict[0])
            self.assertTrue(found.recommendations)
        self.assertFalse(any("in one process" in doubt for doubt in found.doubts), found.doubts)
        self.assertFalse(found.interrupted)
        self.assertIn(found.verdict[0][:20], str(found))
        self.assertEqual(json.loads(found.to_json())["kind"], "isolation")
        saved = found.save(self.folder / "kept")
        self.assertEqual(json.loads((saved / "isolation.json").read_text())["verdict"], found.verdict)
        self.assertIn("</html>", (saved / "report.html").read_text())

    def test_a_loader_is_measured_in_this_process_by_the_thread_that_asks(self):
        loader = Sleeping(ms=20)
        found = quietly(penstock_bench.isolate, loader, samples_per_s=800, budget=8)
        self.assertEqual(loader.threads, {(os.getpid(), threading.get_ident())})
        self.assertGreaterEqual(loader.epochs, 3)  # each run has an iterator
        self.assertIn(found.decision, DECISIONS)
        self.assertEqual(found.unit, "samples")
        self.assertTrue(30 < found.cost_percent.value < 95, found.cost_percent)
        self.assertLess(found.samples_per_s.value, 500)
        self.assertTrue(any("differences between processes are not in the intervals" in doubt for doubt in found.doubts))
        self.assertIn("fresh iterator", " ".join(found.record["sweep"]["runs"][found.record["coupled_row"]]["notes"]))
        self.assertNotIn("penstock_live", sys.modules)

    def test_a_function_of_no_file_is_called_in_this_process_and_its_arguments_can_be_varied(self):
        made = []

        def make(ms=20):
            made.append(ms)
            return Sleeping(ms)

        found = quietly(penstock_bench.isolate, make, samples_per_s=800, budget=5, vary={"ms": [5]}, vary_budget="8s")
        self.assertEqual(set(made), {20, 5})
        self.assertEqual([setting["setting"] for setting in found.record["settings"]], ["", "ms=5"])

    def test_arguments_arrive_as_they_are(self):
        path = self.script("""
            def make(path, names, flag, none, n):
                assert (path, names, flag, none, n) == ("/a,b c='x", ["x", "y"], True, None, 3), (path, names, flag, none, n)
                return [{"input_ids": memoryview(bytes(16 * 64)).cast("B", (16, 64))}] * 50
            """)
        make, args = import_file(path).make, {"path": "/a,b c='x", "names": ["x", "y"], "flag": True, "none": None, "n": 3}
        for factory in (make, lambda **named: make(**named)):
            self.assertGreater(quietly(penstock_bench.run, factory, args=args, samples_per_s=5000, num_batches=20).samples_per_s, 1000)
        self.assertRegex(self.refusal(make, args={"n": object()}), "args has n=<object .*let the function make such an object")
        loader = Sleeping(1)
        run = quietly(penstock_bench.run, lambda made: made, args={"made": loader}, samples_per_s=5000, num_batches=20)
        self.assertGreater(run.samples_per_s, 1000)

    def test_a_function_that_trains_says_how_long_a_step_takes(self):
        def train(batch):
            self.assertEqual(batch["input_ids"].shape, (8, 64))
            time.sleep(0.01)

        run = quietly(penstock_bench.run, Sleeping(ms=1), samples_per_s=train, num_batches=20)
        self.assertTrue(500 < run.samples_per_s <= 810, run.samples_per_s)
        self.assertRegex(run.notes[0], r"a step of the device is 1\d\.\d\d ms, the median of 50 calls of train")

    def test_a_watched_training_says_how_fast_the_device_is(self):
        record = self.folder / "watch.json"
        subprocess.run([os.environ["PENSTOCK"], "watch", "--json", record, "--", sys.executable, SPIN.parent / "watched.py"], check=True,
                       capture_output=True, timeout=LIMIT_S)
        found = quietly(penstock_bench.isolate, Sleeping(ms=40), samples_per_s=record, budget=6)
        self.assertTrue(120 < found.samples_per_s.value < 210, found.samples_per_s)  # 8 samples in 40 ms
        self.assertIn("coupled (Sleeping)", str(found))
        run = quietly(penstock_bench.run, Sleeping(ms=1), samples_per_s=record, num_batches=20)
        self.assertTrue(250 < run.samples_per_s < 3300, run.samples_per_s)  # it trains 64 samples in 20 ms
        self.assertIn(found.decision, DECISIONS)

    def test_a_loader_of_another_process_needs_that_process(self):
        done = subprocess.run([os.environ["PENSTOCK"], "run", "--loader", "penstock:live", "--python", sys.executable], capture_output=True,
                              text=True, timeout=LIMIT_S, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("penstock:live is a loader of the process that called penstock_bench", done.stderr)

    def test_a_data_loader_of_pytorch_is_left_as_it_was(self):
        try:
            import torch.utils.data
            from torch.utils.data._utils import fetch
        except ImportError:
            self.skipTest("no PyTorch")
        kinds = (fetch._MapDatasetFetcher, torch.utils.data.dataloader._MultiProcessingDataLoaderIter)
        before = [dict(vars(kind)) for kind in kinds]
        samples = [numpy.ones((64,), numpy.int64)] * 400
        for persistent in (False, True):
            loader = torch.utils.data.DataLoader(samples, 8, num_workers=1, persistent_workers=persistent)
            found = quietly(penstock_bench.isolate, loader, samples_per_s=2000, budget=8)
            self.assertIn("load", [stage["name"] for stage in found.stages])
            self.assertEqual([dict(vars(kind)) for kind in kinds], before)
            self.assertIsNone(loader._iterator)
            self.assertEqual(len(list(loader)), 50)

    def test_what_cannot_be_measured_is_refused_with_advice(self):
        loader = Sleeping()
        for named, text in [({"samples_per_s": None}, "expected samples_per_s=2400, the path of a record"),
                            ({"samples_per_s": -1}, "samples_per_s is -1; expected a number above 0"),
                            ({"device": "gpu"}, "both say which device trains"),
                            ({"vary": {"num_workers": [1, 2]}}, r"pass the function that makes it, as isolate\(make_loader, vary"),
                            ({"vary": ["num_workers"]}, "expected names and lists of values"),
                            ({"args": {"ms": 3}}, "made already: pass the function"),
                            ({"no_such_flag": 3}, "no-such-flag"),
                            ({"samples_per_s": str(self.folder / "none.json")}, "--from-watch is .*expected a record of `penstock watch")]:
            with self.subTest(text=text):
                self.assertRegex(self.refusal(loader, **named), text)
        self.assertRegex(self.refusal(lambda: loader, vary={"OMP_NUM_THREADS": [1, 2]}), "needs fresh processes")
        self.assertRegex(self.refusal("no_such_file.py:make"), "there is no file 'no_such_file.py'")
        self.assertRegex(self.refusal(spin.make_loader, vary={"ms": ["1,2"]}), "words without commas")

    def test_an_exception_of_the_loader_is_shown(self):
        def broken():
            yield {"input_ids": numpy.ones((8, 64), numpy.int64)}
            raise ValueError("the file 17.jpg is empty")

        self.assertIn("the file 17.jpg is empty", self.refusal(broken))
        self.assertIn("yielded no batch", self.refusal(list))
        once = iter([{"input_ids": numpy.ones((8, 64), numpy.int64)}] * 3)
        self.assertRegex(self.refusal(once), r"ended after \d batches, and yields no second epoch; expected a function")

    def test_a_loader_that_hangs_is_shown_and_left(self):
        path = self.script("""
            import penstock_bench, signal, threading, numpy
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the background of a shell
            def hangs():
                for number in range(100):
                    if number == 5:
                        threading.Event().wait()  # for ever
                    yield {"input_ids": numpy.ones((8, 64), numpy.int64)}
            class Loader:
                def __iter__(self):
                    return hangs()
            if __name__ == "__main__":
                penstock_bench.run(Loader(), samples_per_s=800, timeout=1, num_batches=20)
            """)
        done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=LIMIT_S, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("PenstockError: the loader yielded no batch for 1 s", done.stderr)
        self.assertRegex(done.stderr, r'script\.py", line 7 in hangs')
        self.assertIn("the loader was interrupted", done.stderr)

    def test_a_missing_program_is_named(self):
        for value, text in (("/no/such/program", "PENSTOCK is '/no/such/program', where no program is"),
                            (None, "install the wheel with pip, or set PENSTOCK=build/penstock")):
            program = ("import penstock_bench\ntry:\n    penstock_bench.isolate([1], samples_per_s=1)\n"
                       "except penstock_bench.PenstockError as error:\n    print(error)\n")
            environment = {name: each for name, each in os.environ.items() if name != "PENSTOCK"}
            environment.update({"PENSTOCK": value} if value else {})
            said = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=LIMIT_S,
                                  check=True).stdout
            self.assertIn(text, said)

    def test_a_file_that_measures_its_own_loader_needs_a_guard(self):
        path = self.script("""
            import penstock_bench
            def make():
                return [{"input_ids": [[1, 2]] * 8}] * 5
            penstock_bench.isolate(make, samples_per_s=1000, budget=5)
            """)
        done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=LIMIT_S, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("put the call under if __name__ == '__main__':", done.stderr)

    def test_ctrl_c_keeps_what_was_measured(self):
        path = self.script("""
            import penstock_bench, signal, time, numpy
            signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have left it ignored
            class Loader:
                def __iter__(self):
                    while True:
                        time.sleep(0.02)
                        yield {"input_ids": numpy.ones((8, 64), numpy.int64)}
            def make():
                return Loader()
            if __name__ == "__main__":
                import sys
                found = penstock_bench.isolate(Loader() if sys.argv[1] == "live" else make, samples_per_s=800, budget=300)
                print(found.interrupted, found.verdict[0])
            """)
        for kind in ("live", "file"):
            with self.subTest(kind=kind):
                child = subprocess.Popen([sys.executable, path, kind], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                killer = threading.Timer(LIMIT_S, child.kill)
                killer.start()
                for line in child.stderr:
                    if "blocks 2" in line:
                        break
                child.send_signal(signal.SIGINT)
                output, errors = child.communicate(timeout=LIMIT_S)
                killer.cancel()
                self.assertEqual(child.returncode, 0, errors)
                self.assertRegex(output, "^True .*(input costs|Undecided)")

    def test_a_notebook_shows_the_beginning_of_the_page(self):
        found = quietly(penstock_bench.isolate, Sleeping(ms=20), samples_per_s=800, budget=5)
        text = found._repr_html_()
        self.assertEqual((text.count("<div"), text.count("<ul")), (text.count("</div>"), text.count("</ul>")))
        self.assertIn("<svg", text)
        self.assertIn('<p class="lead', text)
        self.assertNotIn("prefers-color-scheme", text)
        self.assertLess(len(text), 40000)
        self.assertEqual(text.count("What would help"), 1)
        self.assertIn("of fresh iterators", text)
        self.assertNotIn("fresh processes", str(found))
        self.assertIn("<Isolation: ", repr(found))

    def test_a_command_is_compared_in_two_versions(self):
        found = quietly(penstock_bench.ab, ["echo", "rate: {5|4}"], metric="rate: (.*)", pairs=5)
        self.assertEqual(found.verdict, "regression", str(found))
        self.assertIn("slower", str(found))
        self.assertRaises(penstock_bench.PenstockError, penstock_bench.ab, ["echo"], pairs="many")

    def test_results_are_compared(self):
        slow, fast = ([quietly(penstock_bench.run, spin.make_loader, args={"ms": ms}, samples_per_s=6400, num_batches=20) for _ in range(3)]
                      for ms in (30, 10))
        self.assertGreater(fast[0].samples_per_s, slow[0].samples_per_s)
        found = penstock_bench.compare(fast, slow, allow="fake_location")
        self.assertEqual(found.verdict, "regression", str(found))
        self.assertEqual(penstock_bench.compare(slow, fast, allow="fake_location").verdict, "improvement")
        self.assertIn("img/s", str(found))
        self.assertEqual(penstock_bench.compare(fast, slow).verdict, "undecided")  # other arguments
        with self.assertRaisesRegex(PenstockError, "no_such_key"):
            penstock_bench.compare(fast, slow, allow="no_such_key")

    def test_a_process_is_examined(self):
        child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        try:
            found = penstock_bench.doctor(child.pid, seconds=1)
        finally:
            child.kill()
            child.wait()
        self.assertEqual((found.record["pid"], found.record["processes"][0]["pid"]), (child.pid, child.pid))
        self.assertIn(str(child.pid), str(found))
        with self.assertRaisesRegex(PenstockError, str(child.pid)):
            penstock_bench.doctor(child.pid, seconds=1)

    def test_progress_is_shown_line_by_line_without_a_terminal(self):
        stream = io.StringIO()
        with contextlib.redirect_stderr(stream):
            penstock_bench.isolate(Sleeping(ms=5), samples_per_s=800, budget=5)
        self.assertRegex(stream.getvalue(), r"penstock: blocks 1: at most \d+ s left")


if __name__ == "__main__":
    unittest.main()
