#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs bench/peers/transport_rates.py with tiny batches and short turns: every case has a row with a rate or with the
reason why it has none, and nothing is left behind.

Usage: transport_rates_test.py SOURCE_DIRECTORY PENSTOCK
"""
import glob
import json
import os
import subprocess
import sys
import tempfile

PYTHON = "/usr/bin/python3"


def check(condition, text):
    if not condition:
        sys.exit(f"failed: {text}")


def measure(source, penstock, folder, *words):
    """The script's exit code, its output, and its JSON."""
    out = os.path.join(folder, "result.json")
    child = subprocess.run(
        [sys.executable, os.path.join(source, "bench", "peers", "transport_rates.py"), penstock, PYTHON, "--rounds",
         "1", "--seconds", "0.1", "--batch", "4", "--image", "32", "--hwm", "2", "--pace", "50",
         "--hand-off-rate", "2000", "--json", out, *words],
        capture_output=True, text=True, check=False, env={**os.environ, "TMPDIR": folder})
    check(os.path.exists(out), child.stderr)
    with open(out, encoding="utf-8") as file:
        return child.returncode, child.stdout, json.load(file)


def check_all(source, penstock, cases, folder):
    code, text, result = measure(source, penstock, folder, "--results", folder)
    check(code == 0, text)
    has_limit = os.path.exists(os.path.join(os.path.dirname(penstock), "penstock_zmq_limit"))
    for case in cases:
        turns, why = result["turns"].get(case.name), result["failed"].get(case.name)
        check((turns is None) != (why is None), f"{case.name} has {turns} and {why}")
        if why:
            check(why.startswith("skipped: "), f"{case.name}: {why}")
            # Cases that this build supports must have a rate.
            needs = {*case.serve_needs, *case.consume_needs, *case.python_needs} - {"--send-buffer", "keep_memory"}
            check(needs or not has_limit, f"{case.name}: {why}")
            continue
        check(len(turns) == 1 and turns[0]["img_per_s"] > 0 and turns[0]["consumer_cpu_ms"] > 0, turns)
        check(case.producer == "none" or turns[0]["producer_cpu_ms"] >= 0, turns)
        if case.stamped:
            check(0 < turns[0]["latency_ms_median"] <= turns[0]["latency_ms_p99"], turns)
    for case in cases:
        way_that_lost = case.group == "limit" and case.transport in result["limits"] and (
            case.name != result["limits"][case.transport])
        rows = [f"| {case.way} | {case.transport} |"] if way_that_lost else [f"| {case.name} |", f"| **{case.name}** |"]
        check(any(row in text for row in rows), f"there is no row of {case.name}: {text}")
    check(set(result["limits"]) == ({"ipc", "abstract", "tcp"} if has_limit else set()), result["limits"])
    written = glob.glob(os.path.join(folder, "*-zmq-transports.md"))
    check(len(written) == 1, written)
    with open(written[0], encoding="utf-8") as file:
        check(file.read().strip() == text.strip(), "the file is not what was printed")


def main():
    source, penstock = sys.argv[1:]
    sys.dont_write_bytecode = True
    sys.path.insert(0, os.path.join(source, "bench", "peers", "transports"))
    import cases

    found = cases.all_cases()
    check(len({case.name for case in found}) == len(found), "two cases have one name")
    with tempfile.TemporaryDirectory() as folder:
        check_all(source, penstock, found, folder)
        code, text, result = measure(source, penstock, folder, "--only", "penstock, zmq_op, tcp", "--limit", "0.01")
        name = "penstock, zmq_op, tcp"
        check(code == 1 and "took longer than 0.01 s" in result["failed"][name] and name in text, (code, text))
        left = [path for path in os.listdir(folder) if path.startswith("penstock-")]
        check(not left, f"left behind: {left}")
    print("1 passed, 0 failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
