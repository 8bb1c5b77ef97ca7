# SPDX-License-Identifier: Apache-2.0
"""A visit to a GPU machine when something fails there. Scripts stand in for Penstock's programs, its tools and its peer.

Usage: visit_faults_test.py SOURCE_DIRECTORY COMPILER [TESTS...]
"""
import contextlib
import importlib.util
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

SOURCE, COMPILER = pathlib.Path(sys.argv[1]), sys.argv[2]
GPU = SOURCE / "bench/gpu"
ILLEGAL = "CUDA device 0: cudaEventSynchronize failed with cudaErrorIllegalAddress: an illegal memory access was encountered"
RUN = """config='"config":{"model":"m","device":"'$device'","precision":"fp16","batch_size":256}'
echo '{"img_per_s":100,"status":"ok",'$config'}'"""
# The script appends its arguments to a file; $device and $verb hold the parts of them that it needs.
HEAD = """#!/bin/bash
echo "$(basename "$0") $*" >> "$CALLS"
verb=${1:-} device=
for word; do [ "$before" != --device ] || device=$word; before=$word; done
"""


class StandIns(unittest.TestCase):
    """A folder with scripts that stand in for programs."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.calls = self.folder / "calls"
        self.environment = os.environ | {"PYTHON": sys.executable, "PENSTOCK_PROGRAMS": str(self.folder / "bin"), "CALLS": str(self.calls),
                                         "PATH": f"{self.folder / 'tools'}:{os.environ['PATH']}"}
        self.program("bin/penstock", RUN)
        self.program("bin/penstock_gpu_check", "echo \"$verb: 1 passed\"")

    def program(self, name, text):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(HEAD + text + "\n")
        path.chmod(0o755)

    def called(self, word):
        return [line for line in self.calls.read_text().splitlines() if word in line]


class Visit(StandIns):
    def visit(self, steps, *more):
        """The last line of each step, and the summary."""
        out = self.folder / "out"
        subprocess.run([GPU / "visit.sh", "1", "--only", steps, "--out", out, "--state", self.folder / "state", *more], check=True,
                       env=self.environment, stdout=subprocess.PIPE, timeout=100)
        self.results = json.loads((out / "results.json").read_text())["results"]
        steps = json.loads((out / "results.json").read_text())["steps"]
        return {step["name"]: step for step in steps}, (out / "summary.txt").read_text()

    def test_goes_on_without_recording_once_a_run_failed_while_a_step_was_recorded(self):
        self.program("bin/penstock", f"""case $device in
*record=false*) {RUN} ;;
*) echo "penstock: cuDNN failed, while a step was being recorded; --device gpu:record=false does not record" >&2; exit 8 ;;
esac""")
        steps, summary = self.visit("rates,precisions")
        self.assertEqual([steps[name]["verdict"] for name in ("rates", "precisions")], ["done", "done"])
        self.assertIn("recording a step failed", summary)
        devices = [result["config"]["device"] for result in self.results.values()]
        self.assertTrue(devices and all("record=false" in device for device in devices), devices)
        self.assertIn("gpu:autotune=false,reduced_precision=true,record=false", devices)

    def test_does_not_blame_the_recording_for_other_failures(self):
        self.program("bin/penstock", "echo 'penstock: CUDA device 0: out of memory' >&2; exit 8")
        self.assertEqual(self.visit("rates")[0]["rates"]["verdict"], "FAILED")
        self.assertEqual(self.called("record=false"), [])

    def test_keeps_the_turns_that_ended_and_takes_the_others_in_the_next_call(self):
        self.program("bin/penstock", f"case $device in *fused=on*) exit 1 ;; *) {RUN} ;; esac")
        self.assertEqual(self.visit("rates")[0]["rates"]["verdict"], "FAILED")
        self.assertEqual(len(self.results), 7)
        self.calls.unlink()
        self.program("bin/penstock", RUN)
        self.assertEqual(self.visit("rates")[0]["rates"]["verdict"], "done")
        self.assertEqual(len(self.results), 8)
        self.assertEqual(len(self.called("penstock run")), 1)

    def test_takes_plans_and_finished_turns_to_a_fresh_machine(self):
        self.program("bin/penstock", f"mkdir -p $XDG_CACHE_HOME/penstock; echo plans > $XDG_CACHE_HOME/penstock/gpu-plans-x.json\n{RUN}")
        self.visit("machine,rates")
        state = self.folder / "carried.tar.gz"
        (self.folder / "out/state.tar.gz").rename(state)
        shutil.rmtree(self.folder / "state")
        self.program("bin/penstock", f"[ -s $XDG_CACHE_HOME/penstock/gpu-plans-x.json ] || exit 1\n{RUN}")
        self.calls.unlink()
        steps, _ = self.visit("machine,rates,precisions", "--resume", state)
        self.assertEqual({step["verdict"] for step in steps.values()} - {"skipped"}, {"done", "not run"})
        self.assertEqual([steps[name]["verdict"] for name in ("machine", "rates", "precisions")], ["done"] * 3)
        self.assertEqual(len(self.called("penstock run")), 3, "those of precisions")
        self.assertIn("rates/tuned_1", self.results)

    def test_measures_again_on_another_gpu(self):
        self.program("tools/nvidia-smi", "echo 'GPU A'")
        self.visit("rates")
        self.visit("rates")
        turns = len(self.called("penstock run"))
        self.program("tools/nvidia-smi", "echo 'GPU B'")
        self.visit("rates")
        self.assertEqual(len(self.results), turns)
        self.assertEqual(len(self.called("penstock run")), 2 * turns)

    def test_runs_a_check_with_an_illegal_access_under_memcheck_and_blames_no_other(self):
        self.program("tools/compute-sanitizer", "echo '========= Invalid __global__ write of size 4 bytes'; echo '========= ERROR SUMMARY: 1 error'")
        self.program("bin/penstock_gpu_check", f"""[ "$verb" = kernels ] || {{ echo "$verb: 1 passed"; exit; }}
[ ! -e "$CALLS.second" ] || {{ echo "FAIL is there"; exit 1; }}
touch "$CALLS.second"
echo "PASS add rows_2"
echo "FAIL add rows_3 worst_error=1: {ILLEGAL}"
echo "NOTE kernels: ended early: {ILLEGAL}"
exit 8""")
        steps, summary = self.visit("kernels,graphs")
        self.assertEqual([steps[name]["verdict"] for name in ("kernels", "graphs")], ["FAILED", "done"])
        self.assertIn("--only add rows_3", self.called("--tool memcheck")[0])
        self.assertIn("Invalid __global__ write", summary)
        self.assertEqual(len(self.called("penstock_gpu_check kernels --driver gpu --seconds")), 2, "the other checks are made")

    def test_runs_a_training_step_with_an_illegal_access_under_memcheck(self):
        self.program("tools/compute-sanitizer", "echo '========= Invalid __global__ read of size 2 bytes'")
        self.program("bin/penstock", f"echo 'penstock: {ILLEGAL}' >&2; exit 8")
        steps, summary = self.visit("precisions")
        self.assertEqual(steps["precisions"]["verdict"], "FAILED")
        self.assertIn("Invalid __global__ read", summary)
        self.assertIn("penstock run --json", self.called("--tool memcheck")[0])

    def test_runs_no_step_once_the_gpu_does_not_answer(self):
        self.visit("libraries")
        self.program("bin/penstock_gpu_check", "exit 1")
        steps, _ = self.visit("kernels,graphs,patterns")
        self.assertEqual([steps[name]["verdict"] for name in ("kernels", "graphs", "patterns")], ["FAILED", "not run", "not run"])
        self.assertIn("does not answer since step kernels", steps["graphs"]["note"])

    def test_ends_with_its_budget_and_continues_what_was_cut_off(self):
        self.program("bin/penstock_gpu_check", "echo $$ > \"$CALLS.pid\"; trap '' TERM; while true; do sleep 1000; done")
        begun = pathlib.Path(f"{self.calls}.pid")
        for budget in (6, 24, 96):  # on a busy machine the program may not even begin within the first one
            begin = time.monotonic()
            steps, _ = self.visit("kernels,graphs", "--budget", str(budget))
            self.assertLess(time.monotonic() - begin, 5 * budget)
            if begun.exists():
                break
        hung = pathlib.Path("/proc", begun.read_text().strip(), "stat")
        self.assertTrue(not hung.exists() or ") Z" in hung.read_text(), "a program outlived its step")
        self.assertEqual([steps[name]["verdict"] for name in ("kernels", "graphs")], ["out of time", "not run"])
        self.program("bin/penstock_gpu_check", "echo \"$verb: 1 passed\"")
        steps, _ = self.visit("kernels,graphs")
        self.assertEqual([steps[name]["verdict"] for name in ("kernels", "graphs")], ["done", "done"])

    def test_continues_a_step_whose_checks_took_too_long(self):
        self.program("bin/penstock_gpu_check", "echo 'kernels: 3 passed, 0 failed; 2 not made, since the time was up'")
        self.assertEqual(self.visit("kernels")[0]["kernels"]["verdict"], "out of time")

    def test_refuses_a_file_that_is_no_state(self):
        other = self.folder / "other.tar.gz"
        subprocess.run(["tar", "-C", self.folder, "-czf", other, "bin"], check=True)
        for name, reason in ((other, "is not the state.tar.gz"), (self.folder / "absent", "there is no file")):
            done = subprocess.run([GPU / "visit.sh", "1", "--resume", name, "--state", self.folder / "state"], env=self.environment,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.assertEqual(done.returncode, 2)
            self.assertIn(reason, done.stderr)


class Alternate(StandIns):
    """Penstock's and its peer's turns."""
    PEER = """echo '{"ready": true}'; while read -r line; do echo '{"img_per_s": 50}'; done"""

    def alternate(self, *more):
        done = subprocess.run([sys.executable, GPU / "alternate.py", "--penstock", self.folder / "bin/penstock", "--peer", self.folder / "bin/peer",
                               "--json", self.folder / "turns.json", "--rounds", "3", *more], env=self.environment, stdout=subprocess.PIPE, timeout=60)
        return done.returncode, json.loads((self.folder / "turns.json").read_text())

    def test_keeps_the_turns_of_a_call_that_ended_early(self):
        self.program("bin/peer", "echo '{\"ready\": true}'; read -r line; echo '{\"img_per_s\": 40}'")
        code, result = self.alternate()
        self.assertEqual((code, result["turns"]), (1, [[100, 40]]))
        self.assertIn("PyTorch ended", result["problem"])
        self.program("bin/peer", self.PEER)
        code, result = self.alternate()
        self.assertEqual((code, result["turns"], result["problem"]), (0, [[100, 40], [100, 50], [100, 50]], None))
        self.assertEqual(result["ratio"], 2)
        self.calls.unlink()
        self.assertEqual(self.alternate()[0], 0)
        self.assertFalse(self.calls.exists(), "all turns were there, and something ran")

    def test_limits_each_turn(self):
        self.program("bin/peer", self.PEER)
        self.program("bin/penstock", f"[ $(wc -l < \"$CALLS\") -lt 5 ] || exec sleep 1000\n{RUN}")
        code, result = self.alternate("--turn-seconds", "2")
        self.assertEqual(code, 1)
        self.assertIn("penstock run did not end in 2 s", result["problem"])
        self.assertGreaterEqual(len(result["turns"]), 1)

    def test_takes_the_next_best_peer_if_the_best_does_not_start_in_time(self):
        rows = [{"precision": "bf16", "mode": "eager", "img_per_s": 1}, {"precision": "fp16", "mode": "compiled", "img_per_s": 3},
                {"precision": "fp16", "mode": "graph", "img_per_s": 2}, {"precision": "fp16", "mode": "max_autotune", "skipped": "no time"}]
        (self.folder / "variants.json").write_text(json.dumps(rows))
        self.program("bin/peer", f"case $* in *compiled*) exec sleep 1000 ;; esac\n{self.PEER}")
        code, result = self.alternate("--variants", self.folder / "variants.json", "--start-seconds", "2")
        self.assertEqual((code, result["peer"]), (0, ["fp16", "graph"]))


class Libraries(StandIns):
    def library(self, folder, name, function):
        (self.folder / folder).mkdir(parents=True, exist_ok=True)
        source = self.folder / "library.cpp"
        source.write_text(f"extern \"C\" {function}\n")
        subprocess.run([COMPILER, "-shared", "-fPIC", "-o", self.folder / folder / name, source], check=True)

    def folders(self):
        environment = self.environment | {"CUDA_HOME": str(self.folder / "cuda"), "PYTHONPATH": str(self.folder / "site")}
        done = subprocess.run([GPU / "with_libraries.sh"], env=environment, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                              timeout=100)
        return [pathlib.Path(folder) for folder in done.stdout.strip().split(":")]

    def first_with(self, name):
        return next(folder for folder in self.folders() if (folder / name).exists())

    def test_takes_the_newest_of_each_wherever_it_is(self):
        cudnn, nccl = "libcudnn.so.9", "libnccl.so.2"
        self.library("cuda/lib64", cudnn, "unsigned long cudnnGetVersion() { return 998000; }")
        self.library("cuda/lib64", nccl, "int ncclGetVersion(int* version) { *version = 99900; return 0; }")
        self.library("site/nvidia/cudnn/lib", cudnn, "unsigned long cudnnGetVersion() { return 999000; }")
        self.library("site/nvidia/nccl/lib", nccl, "int ncclGetVersion(int* version) { *version = 99800; return 0; }")
        self.assertEqual(self.first_with(cudnn), self.folder / "site/nvidia/cudnn/lib")
        self.assertEqual(self.first_with(nccl), self.folder / "cuda/lib64")
        self.library("cuda/lib64", cudnn, "unsigned long cudnnGetVersion() { return 999100; }")
        self.library("site/nvidia/nccl/lib", nccl, "int ncclGetVersion(int* version) { *version = 99901; return 0; }")
        self.assertEqual(self.first_with(cudnn), self.folder / "cuda/lib64")
        self.assertEqual(self.first_with(nccl), self.folder / "site/nvidia/nccl/lib")

    def test_takes_no_library_that_cannot_be_loaded_before_one_that_can(self):
        self.library("site/nvidia/cudnn/lib", "libcudnn.so.9", "unsigned long cudnnGetVersion() { return 999000; }")
        (self.folder / "cuda/lib64").mkdir(parents=True)
        (self.folder / "cuda/lib64/libcudnn.so.9").write_text("not a library")
        self.assertEqual(self.first_with("libcudnn.so.9"), self.folder / "site/nvidia/cudnn/lib")

    def test_finds_the_profiler_library_beside_the_toolkit(self):
        (self.folder / "cuda/extras/CUPTI/lib64").mkdir(parents=True)
        self.assertIn(self.folder / "cuda/extras/CUPTI/lib64", self.folders())


class Peers(unittest.TestCase):
    """Steps that need PyTorch, on a machine without it: earlier measurements and comparisons are not repeated."""

    def load(self, path):
        with mock.patch.dict(sys.modules, {name: mock.MagicMock() for name in ("numpy", "torch", "torch.nn", "pytorch_trainer")}):
            spec = importlib.util.spec_from_file_location("script", SOURCE / path)
            script = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(script)
        return script

    def main(self, script, *arguments):
        with mock.patch.object(sys, "argv", ["script", *map(str, arguments)]), contextlib.redirect_stdout(io.StringIO()) as output:
            code = script.main()
        return code, output.getvalue()

    def test_compare_only_what_an_earlier_call_did_not(self):
        script = self.load("bench/gpu/compare_step.py")
        with tempfile.TemporaryDirectory() as folder:
            arguments = ["gradients", "--penstock", "p", "--precisions", "fp16,bf16,fp32", "--json", pathlib.Path(folder) / "json"]
            outcomes = [{"passed": True, "line": "PASS fp16"}, script.NotHere("no bf16"), RuntimeError("lost")]
            with mock.patch.object(script, "compare_gradients", side_effect=outcomes):
                code, output = self.main(script, *arguments)
            self.assertEqual((code, output.splitlines()), (1, ["PASS fp16", "SKIP bf16: no bf16", "FAIL fp32: lost"]))
            with mock.patch.object(script, "compare_gradients", return_value={"passed": True, "line": "PASS fp32"}) as compare:
                code, output = self.main(script, *arguments)
            self.assertEqual((code, output.splitlines()), (0, ["PASS fp16", "SKIP bf16: no bf16", "PASS fp32"]))
            self.assertEqual([call.args[1] for call in compare.call_args_list], ["fp32"])

    def test_measure_only_the_variants_that_an_earlier_call_did_not(self):
        script = self.load("bench/peers/pytorch_gpu.py")
        script.torch.__version__ = "2"
        rate = {"lowest": 1, "highest": 3, "prepare_s": 1}

        def killed(arguments, row):
            if row["mode"] == "graph":
                raise KeyboardInterrupt
            row.update(rate, img_per_s=2)

        with tempfile.TemporaryDirectory() as folder:
            arguments = ["variants", "--precisions", "fp16", "--json", pathlib.Path(folder) / "json"]
            with mock.patch.object(script, "measure_variant", side_effect=killed), self.assertRaises(KeyboardInterrupt):
                self.main(script, *arguments)
            with mock.patch.object(script, "measure_variant", side_effect=lambda arguments, row: row.update(rate, img_per_s=3)) as measure:
                self.assertEqual(self.main(script, *arguments)[0], 0)
            rows = json.loads((pathlib.Path(folder) / "json").read_text())
        self.assertEqual([call.args[1]["mode"] for call in measure.call_args_list], script.MODES[1:])
        self.assertEqual([row["img_per_s"] for row in rows], [2, 3, 3, 3, 3])
        self.assertEqual([row["mode"] for row in rows if row.get("best")], ["graph"])


class Profile(unittest.TestCase):
    def test_adds_up_the_kernels_of_a_trace_and_leaves_out_the_host(self):
        def event(process, name, microseconds):
            return {"ph": "X", "pid": process, "tid": 1, "name": name, "ts": 0, "dur": microseconds, "args": {}}

        events = [{"ph": "M", "pid": process, "tid": 0, "name": "process_name", "args": {"name": name}}
                  for process, name in ((2, "rank 0"), (10000, "device 0"))]
        events += [event(2, "step", 900), event(2, "step", 900), event(10000, "conv", 300), event(10000, "conv", 500), event(10000, "pool", 100)]
        with tempfile.TemporaryDirectory() as folder:
            trace, table = pathlib.Path(folder) / "trace.json", pathlib.Path(folder) / "table.json"
            trace.write_text(json.dumps({"traceEvents": events}))
            subprocess.run([sys.executable, GPU / "kernel_profile.py", "longest", trace, "--json", table], check=True, stdout=subprocess.PIPE)
            result = json.loads(table.read_text())
        self.assertEqual(result["steps"], 2)
        self.assertEqual([(row["name"], row["launches"]) for row in result["kernels"]], [("conv", 2), ("pool", 1)])
        self.assertAlmostEqual(result["total_s"], 900e-6)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
