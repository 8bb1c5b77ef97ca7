#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every record that the program writes has a JSON Schema in docs/schemas, and follows it.

Usage: schemas_test.py SOURCE_DIRECTORY PENSTOCK

Exits 77, with the reason, if python3-jsonschema is missing.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

LIMIT_S = 100
UNDECIDED = 7
EMULATED = ["--device", "emulated:img_per_s=2000", "--image-size", "32", "--batch-size", "4"]
STEPS = ["--num-batches", "12", "--num-warmup-batches", "2"]


class Checks:
    def __init__(self, source, program, folder, validator):
        self.program, self.folder, self.source, self.failed = program, folder, source, False
        self.schemas = {}
        for path in sorted((source / "docs" / "schemas").glob("*.schema.json")):
            schema = json.loads(path.read_text())
            validator.check_schema(schema)
            self.schemas[path.name.partition(".")[0]] = validator(schema)

    def call(self, *words):
        done = subprocess.run([self.program, *map(str, words)], cwd=self.folder, text=True, capture_output=True, timeout=LIMIT_S,
                              stdin=subprocess.DEVNULL, check=False, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
        if done.returncode not in (0, UNDECIDED):
            sys.exit(f"penstock {words[0]} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout

    def check(self, kind, what, record):
        faults = list(self.schemas[kind].iter_errors(record))
        for fault in faults[:5]:
            print(f"{what}: {'/'.join(map(str, fault.absolute_path))}: {fault.message[:300]}")
        print(f"{what}: {'does not follow' if faults else 'follows'} {kind}.schema.json")
        self.failed = self.failed or bool(faults)

    def refuse(self, kind, record):
        """A schema that accepts everything tests nothing."""
        if self.schemas[kind].is_valid({**record, "no_such_key": 1}) or self.schemas[kind].is_valid({**record, "schema": 99}):
            print(f"{kind}.schema.json accepts what it must refuse")
            self.failed = True

    def refuse_every_fault(self, kind, record):
        if self.schemas[kind].is_valid({**record, "queues": [{**record["queues"][0], "no_such_key": 1}]}):
            print(f"{kind}.schema.json accepts an unknown key of a queue")
            self.failed = True
        for key, value in record.items():
            if key == "environment":  # an optional one
                continue
            without = {name: other for name, other in record.items() if name != key}
            wrong = {**record, key: 1 if isinstance(value, dict) else {}}
            if self.schemas[kind].is_valid(without) or self.schemas[kind].is_valid(wrong):
                print(f"{kind}.schema.json accepts a record without {key}, or with one of another type")
                self.failed = True

    def isolation(self, name):
        record = json.loads((self.folder / name / "isolation.json").read_text())
        self.check("isolation", f"isolate of {name}", record)
        self.check("results", f"the runs of {name}", record["sweep"])
        self.refuse("isolation", record)


def check_all(checks):
    call, check, folder = checks.call, checks.check, checks.folder
    stated = json.loads(call("report", "--schema"))
    if stated != checks.schemas["results"].schema:
        sys.exit("docs/schemas/results.schema.json is old; write it anew: build/penstock report --schema --out docs/schemas/results.schema.json")
    run = json.loads(call("run", *EMULATED, *STEPS, "--fake-location", "cpu", "--json"))
    check("results", "run --json", run)
    checks.refuse("results", run)
    checks.refuse_every_fault("results", run)
    ranks = subprocess.run([sys.executable, checks.source / "tests" / "support" / "start_ranks.py", "2", checks.program, "run", *EMULATED, *STEPS,
                            "--fake-location", "cpu", "--variable-update", "horovod", "--json"], text=True, stdout=subprocess.PIPE,
                           timeout=LIMIT_S, check=True).stdout
    check("results", "run --json of two ranks", json.loads(ranks))
    call("sweep", *EMULATED, *STEPS, "--fake-location", "gpu,cpu", "--num-gpus", "1", "--repetitions", "1", "--out", "sweep")
    check("results", "a sweep", json.loads((folder / "sweep" / "results.json").read_text()))
    call("dataset", "make", "--brief", "--data-dir", "data", "--images", "24", "--val-images", "3")
    call("isolate", *EMULATED, "--data-dir", "data/train", "--budget", "6s", "--vary", "feeder_threads=1,2", "--vary-budget", "5s", "--ladder",
         "--ladder-budget", "5s", "--out", "images")
    checks.isolation("images")
    tokens = ["--loader", f"{checks.source}/examples/loaders/any.py:token_batches", "--python", sys.executable]
    call("isolate", *tokens, "--device", "emulated:step_time=10ms", "--budget", "5s", "--out", "tokens")
    checks.isolation("tokens")
    call("watch", "--json", "watch.json", "--", sys.executable, f"{checks.source}/examples/loaders/watched.py")
    watched = json.loads((folder / "watch.json").read_text())
    check("watch", "watch --json", watched)
    checks.refuse("watch", watched)
    compared = json.loads(call("ab", "--base", ".", "--pairs", "3", "--metric", "rate: (.*)", "--format", "json", "--", "echo", "rate: 5"))
    check("comparison", "ab --format json", compared)
    checks.refuse("comparison", compared)
    check("comparison", "report compare --format json", json.loads(call("report", "compare", "sweep", "sweep", "--format", "json")))
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        try:
            call("doctor", child.pid, "--seconds", "1s", "--json", "doctor.json")
        finally:
            child.kill()
    examined = json.loads((folder / "doctor.json").read_text())
    check("doctor", "doctor --json", examined)
    checks.refuse("doctor", examined)


def main():
    try:
        import jsonschema
    except ImportError:
        print(f"skipped: {sys.executable} has no jsonschema; install python3-jsonschema")
        return 77
    source, program = (pathlib.Path(each).resolve() for each in sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        checks = Checks(source, program, pathlib.Path(folder), jsonschema.Draft202012Validator)
        check_all(checks)
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
