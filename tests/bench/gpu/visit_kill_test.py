# SPDX-License-Identifier: Apache-2.0
"""A dry visit that is killed at random times leaves complete results. On a fresh machine it continues from them
without repeating a finished step or turn. The first call has a rate soon after its start.

Usage: visit_kill_test.py SOURCE_DIRECTORY PROGRAMS
"""
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

SOURCE, PROGRAMS = pathlib.Path(sys.argv[1]), sys.argv[2]
# Checks, turns, sweeps, and steps that each machine repeats.
STEPS = ["machine", "device", "kernels", "graphs", "rates", "trace", "dataset", "feeders", "updates"]
OF_THE_MACHINE = {"machine", "dataset"}
KILLS, LONGEST, DEADLINE = 3, 8.0, 200


def start(folder, resume, call=("3", "--only", ",".join(STEPS))):
    command = [SOURCE / "bench/gpu/visit.sh", *call, "--dry", "--out", folder / "out", "--state", folder / "state"]
    environment = os.environ | {"PENSTOCK_PROGRAMS": PROGRAMS, "PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": ""}
    with open(folder / "output", "w") as output:
        return subprocess.Popen(command + (["--resume", resume] if resume else []), env=environment, stdout=output,
                                stderr=subprocess.STDOUT, start_new_session=True)


def end_session(session):
    """Ends the steps, too, as when a machine is taken away: steps are separate process groups."""
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rsplit(")", 1)[1].split()[3]) == session:
                os.kill(int(stat.parent.name), signal.SIGKILL)
        except (OSError, ValueError, IndexError):
            pass  # it has already ended


def rows(state):
    """Lines of the journal, and the results by name, of a packed state; empty if there is none."""
    if state is None:
        return [], {}
    with tarfile.open(state) as archive:
        files = {member.name: archive.extractfile(member).read() for member in archive if member.isfile()}
    results = {name: data for name, data in files.items() if name.startswith("dry/results/")}
    for name, data in results.items():
        json.loads(data)
    return [line.split("\t") for line in files["dry/steps.tsv"].decode().splitlines()], results


def finished(journal):
    last = {row[0]: row[1] for row in journal}
    return {step for step, verdict in last.items() if verdict in ("done", "skipped")}


def expect_nothing_repeated(before, after):
    (old, old_results), (new, new_results) = before, after
    assert new[:len(old)] == old, "the journal did not go on from the earlier one"
    again = {row[0] for row in new[len(old):] if row[1] == "running"} & (finished(old) - OF_THE_MACHINE)
    assert not again, f"finished steps ran again: {again}"
    for name, data in old_results.items():
        if "/rates/" in name or "/feeders/" in name:
            assert new_results[name] == data, f"{name} was measured again"


def visit(seed, folder):
    draw = random.Random(seed)
    resume, kills = None, 0
    while True:
        here = folder / f"machine_{kills}"
        here.mkdir()
        process = start(here, resume)
        try:
            code = process.wait(draw.uniform(0.2, LONGEST) if kills < KILLS else DEADLINE)
        except subprocess.TimeoutExpired:
            assert kills < KILLS, f"the visit did not end in {DEADLINE} s: {(here / 'output').read_text()}"
            how = draw.choice([signal.SIGTERM, signal.SIGKILL])
            os.killpg(process.pid, how)
            code = process.wait(60)
            print(f"seed {seed}: ended by {how.name} with {code}", flush=True)
            assert code in ((143, -how) if how == signal.SIGTERM else (-how,)), code
        finally:
            end_session(process.pid)
        packed = here / "out/state.tar.gz"
        if packed.exists():
            json.loads((here / "out/results.json").read_text())
            expect_nothing_repeated(rows(resume), rows(packed))
            resume = packed
        if code == 0:
            break
        kills += 1
    journal, results = rows(resume)
    assert finished(journal) == set(STEPS), journal
    assert {f"dry/results/rates/{turn}.json" for turn in ("tuned_1", "reduced_precision")} <= set(results), list(results)
    print(f"seed {seed}: done after {kills} kills", flush=True)


def kill_after_first_light(folder):
    process, results, deadline = start(folder, None, "1"), {}, time.monotonic() + DEADLINE
    try:
        while "first_light/fused" not in results:
            assert process.poll() is None and time.monotonic() < deadline, (folder / "output").read_text()
            time.sleep(0.1)
            if (folder / "out/results.json").exists():
                results = json.loads((folder / "out/results.json").read_text())["results"]
    finally:
        end_session(process.pid)
    assert process.wait(60) == -signal.SIGKILL
    assert results["first_light/unfused"]["img_per_s"] > 0 and results["first_light/fused"]["img_per_s"] > 0, results
    assert not {"gradients", "autotune/run", "rates/tuned_1"} & set(results), "other steps came first"


def main():
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # killed programs may write for a moment
        kill_after_first_light(pathlib.Path(folder))
    for seed in (1, 2):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # killed programs may write for a moment
            visit(seed, pathlib.Path(folder))


main()
