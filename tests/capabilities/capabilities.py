#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what the program offers with the committed list, tests/capabilities/capabilities.txt.

Usage: capabilities.py BUILD_DIRECTORY [--write]

Asks the built program for its flags, components, formats, record keys and exit codes, and the build for the files that it
installs. Exits 1 if the list differs and 77 if the build lacks an optional library. --write replaces the committed list.
The list does not depend on the machine: the program runs on one core, and keys that contain names or that appear only
if the measurement finds something are left out.
"""
import collections
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parent
LIST = FOLDER / "capabilities.txt"
LIMIT_S = 120

# Twenty steps of a minimal model, on data from `dataset make`.
TINY = ["--num-gpus", "1", "--batch-size", "4", "--image-size", "32", "--num-batches", "20", "--num-warmup-batches", "1"]
EMULATED = ["--device", "emulated:img_per_s=2000", *TINY]
ALL_STAGES = ["--fake-location", "queue", "--data-dir", "data/train"]
TRAINING = ["--device", "cpu", "--model", "lenet", "--num-gpus", "2", "--batch-size", "4", "--num-batches", "4",
            "--num-warmup-batches", "1", "--eval-during-training-every-n-steps", "2", *ALL_STAGES]

# Values that neither `list` nor the checked flags name: a wrong value makes the program print the valid ones.
ASKED = {
    "message format received": ["run", "--fake-location", "zmq-consume:format=?"],
    "message format sent": ["serve", "--format", "?"],
}
# Exit codes of these commands. docs/troubleshooting.md has the meaning of all codes.
PROVOKED = {
    "no verb": [],
    "unknown flag": ["run", "--no-such-flag"],
    "known component that is not built": ["run", "--model", "nasnet"],
    "no message before the timeout": ["run", *EMULATED, "--model", "null", "--timeout", "0.1s",
                                      "--fake-location", "zmq-consume:endpoint=ipc://nothing"],
    "unreadable sample": ["dataset", "check", "--data-dir", "damaged"],
    "damaged results": ["report", "damaged/class/empty.jpg"],
    "comparison of different feeders": ["report", "compare", "emulated.json", "cpu.json"],
}
# Values of these keys are maps from names that the build or the data choose.
NAMED = {"environment.libraries", "runs[].repetitions[].facts", "runs[].repetitions[].counters", "sizes", "subsampling",
         "colour_space"}
# Keys of isolation.json and selftest.json that are empty, or differ in form, if the measurement does not find their
# subject; and `sweep`, which is the content of results.json.
FOUND = {"bottleneck", "next_bottleneck", "supply_row", "supply_img_per_s", "delivery", "supply_curve", "scaling_law",
         "cores_per_device", "depths", "verification", "ladder", "sweep"}
# Facts that only some kernels report, or that a run has only if batches were ready before the window.
FACTS_OF_SOME_RUNS = {"facts.waited_for_core_s", "facts.most_hidden_percent"}


class Program:
    """The built program, run in an empty folder, on one core."""

    def __init__(self, path, folder):
        self.path, self.folder = path, folder
        self.environment = {key: os.environ[key] for key in ("PATH", "LD_LIBRARY_PATH") if key in os.environ}
        self.environment |= {"HOME": str(folder), "LC_ALL": "C"}

    def call(self, *arguments):
        return subprocess.run([self.path, *arguments], cwd=self.folder, env=self.environment, timeout=LIMIT_S, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, errors="replace")

    def output(self, *arguments, codes=(0,)):
        done = self.call(*arguments)
        if done.returncode not in codes:
            sys.exit(f"cannot list the capabilities: `{shlex.join([str(self.path), *arguments])}` ended with "
                     f"{done.returncode}; expected {' or '.join(map(str, codes))}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout


def words_of(text):
    """From 'a, b or c': a, b, c. Empty unless all are single words."""
    words = re.split(r", | or ", re.split(r"[:;(] |$", text)[0])
    return words if len(words) > 1 and all(re.fullmatch(r"[\w.:=+/-]+", word) for word in words) else []


def verbs_of(program, *verb):
    """The verbs of a command: those that its help lists, recursively; a command without verbs is a verb."""
    text = program.output(*verb, "--help-all")
    below = re.findall(r"^  ([a-z][\w-]*) ", text, re.M) if "\nGeneral:" not in text else []
    return [found for name in below for found in verbs_of(program, *verb, name)] if below else [(verb, text)]


def flags_in(help_text):
    """Name, default and whether it is boolean, of each flag."""
    lines = help_text.split("\nGeneral:")[0].splitlines()
    for line, below in zip(lines, lines[1:] + [""]):
        if not line.startswith("  --"):
            continue
        flag = re.fullmatch(r"  (--[\w-]+(?:, --[\w-]+)*)( VALUE)?(?:  +(.*))?", line)
        if not flag:
            sys.exit(f"cannot read this flag: {line}")
        default = re.search(r" \[([^\[\]]*)\]$", flag[3] or below)
        yield flag[1].split(", "), default[1] if default else "", not flag[2]


def flags(program):
    run_flags = set()  # other verbs accept the same values
    for verb, text in verbs_of(program):
        name = " ".join(verb)
        yield "verb", name
        if re.search(r"^Usage: .* \[flags\] .", text, re.M):
            yield "flag", f"{name} ARGUMENTS"
        for (flag, *aliases), default, boolean in flags_in(text):
            yield "flag", f"{name} {flag}" + (f" = {default}" if default else "")
            for alias in aliases:
                yield "flag alias", f"{name} {alias} = {flag}"
            if boolean or flag in run_flags:
                continue
            if name == "run":
                run_flags.add(flag)
            # Help is printed after the values are checked, so nothing runs.
            error = program.call(*verb, f"{flag}=?", "--help").stderr
            expected = re.search(r"expected (?:one of |some of )?(.*)", error)
            for word in words_of(expected[1]) if expected else []:
                yield "flag value", f"{name} {flag} = {word}"


def components(program):
    kind = component = option = None
    for line in program.output("list", "--all").splitlines():
        name, _, text = re.fullmatch(r"( *\S*)( *)(.*)", line).groups()
        depth, name = len(name) - len(name.lstrip()), name.strip()
        if depth == 0 and line:
            kind = re.sub(r" \(.*", "", line)
        elif line.startswith(" " * 25 + "also "):
            for alias in line.split("also ")[1].split(", "):
                yield "component alias", f"{kind} {alias} = {component}"
        elif depth == 2 and kind == "refused flag":
            yield kind, name
        elif depth == 2 and text.startswith("-- "):
            if "built without" in text:
                print(f"not compared: {kind} {name} {text}")
                sys.exit(77)
            yield "component refused", f"{kind} {name}"
        elif depth == 2:
            component = name
            yield "component", f"{kind} {component}"
        elif depth == 6:
            option, default = name, re.search(r" \[([^\[\]]*)\]$", text)
            yield "component option", f"{kind} {component}:{option}" + (f" = {default[1]}" if default else "")
        elif depth == 8:
            yield "component value", f"{kind} {component}:{option} = {name}"


def asked(program):
    for section, arguments in ASKED.items():
        error = program.call(*arguments).stderr
        named = re.search(r"(?:expected|built here:) (?:one of |some of )?(.*)", error)
        if not named or not words_of(named[1]):
            sys.exit(f"cannot list each {section}: `penstock {shlex.join(arguments)}` says: {error}")
        for word in words_of(named[1]):
            yield section, word


def keys_of(value, path=""):
    """Paths of all keys of a JSON value; the elements of a list share one path."""
    if isinstance(value, dict) and path not in NAMED:
        for key, below in value.items():
            inner = f"{path}.{key}" if path else key
            yield inner
            yield from keys_of(below, inner)
    elif isinstance(value, list):
        for element in value:
            yield from keys_of(element, path + "[]")


def records(program):
    def keys(record, text):
        return {(f"key of {record}", key) for key in keys_of(json.loads(text))}

    def columns(table, text):
        return {(f"column of {table}", name) for name in text.splitlines()[0].split(",")
                if not name.startswith("environment_libraries_")}

    def file(name):
        return (program.folder / name).read_text()

    program.output("run", *EMULATED, "--fake-location", "host", "--out", "emulated.json")
    program.output("run", *TRAINING, "--out", "cpu.json")
    runs = keys("run --json", file("emulated.json")) | keys("run --json", file("cpu.json"))
    yield from {line for line in runs if line[1] not in FACTS_OF_SOME_RUNS}
    program.output("sweep", *EMULATED, "--fake-location", "gpu,queue", "--data-dir", "data/train", "--repetitions", "1",
                   "--noextend-window", "--out", "sweep")
    yield from keys("results.json", file("sweep/results.json"))
    yield from columns("results.csv", file("sweep/results.csv"))
    for path in (program.folder / "sweep").iterdir():  # the set of figures depends on the result
        yield "file of sweep --out", path.name
    yield from keys("report compare --format json", program.output("report", "compare", "sweep", "sweep", "--format", "json",
                                                                   codes=(0, 7)))
    # With a wide interval it ends after the fewest blocks; 7: undecided.
    program.output("isolate", *EMULATED, "--fake-location", "host", "--half-width", "50", "--budget", "20s", "--noverify",
                   "--out", "isolate", codes=(0, 7))
    program.output("selftest", "--budget", "2s", "--pairs", "5", "--out", "selftest", codes=(0, 1, 7))
    for path in ("isolate/isolation.json", "selftest/selftest.json"):
        known = {key: None if key in FOUND else value for key, value in json.loads(file(path)).items()}
        yield from keys(path.split("/")[1], json.dumps(known))
    yield from keys("project --format json", program.output("project", "emulated.json", "--format", "json"))
    yield from columns("project --format csv", program.output("project", "emulated.json", "--format", "csv"))
    yield from keys("dataset inspect --json", program.output("dataset", "inspect", "--data-dir", "data/train", "--json"))
    # A model that no cache holds: gradients of a small one may be added faster than memory could, and then nothing is compared.
    yield from keys("allreduce --json", program.output("allreduce", "--model", "alexnet", "--algorithm", "ring", "--num-iters", "2", "--json"))


def exit_codes(program):
    sample = program.folder / "damaged/class/empty.jpg"
    sample.parent.mkdir(parents=True)
    sample.touch()
    for what, arguments in PROVOKED.items():
        yield "exit code", f"{program.call(*arguments).returncode}: {what}"
    page = (FOLDER.parents[1] / "docs/troubleshooting.md").read_text()
    for codes, meaning in re.findall(r"^\| ([\d, ]+) \| (.+) \|$", page.split("## Exit codes")[1].split("\n## ")[0], re.M):
        yield "exit code documented", f"{codes}: {meaning}"


def installed(build, folder):
    done = subprocess.run(["cmake", "--install", build, "--prefix", folder], timeout=LIMIT_S, text=True, capture_output=True)
    if done.returncode != 0:
        sys.exit(f"cannot install {build}; build all of it first (cmake --build {build}):\n{done.stderr}")
    for path in folder.rglob("*"):
        name = re.sub(r"\.so[.\d]*$", ".so", path.relative_to(folder).as_posix())
        name = re.sub(r"^lib/[^/]+-linux-gnu/", "lib/", name)
        if not path.is_dir() and name != "lib/libpenstock_cuda.so":  # only built where CUDA's toolkit is installed
            yield "installed", re.sub(r"-(release|debug|relwithdebinfo|noconfig)\.cmake$", "-CONFIGURATION.cmake", name)


def capabilities(build):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # some defaults are the number of cores
    with tempfile.TemporaryDirectory(prefix="penstock-capabilities-") as name:
        folder = pathlib.Path(name)
        program = Program(build / "penstock", folder)
        program.output("dataset", "make", "--data-dir", "data", "--images", "16", "--val-images", "8", "--classes", "2")
        lines = collections.defaultdict(set)
        for listed in (components(program), flags(program), asked(program), records(program), exit_codes(program),
                       installed(build, folder / "installed")):
            for section, text in listed:
                lines[section].add(f"{section}: {text}\n")
        return "\n".join("".join(sorted(lines[section])) for section in sorted(lines))


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    found = capabilities(build)
    if "--write" in sys.argv[2:]:
        LIST.write_text(found)
        return 0
    before, now = set(LIST.read_text().split("\n")) - {""}, set(found.split("\n")) - {""}
    if before == now:
        print(f"{len(now)} capabilities, as in {LIST}")
        return 0
    for title, lines in (("Gone. Each is a defect, unless this commit removes it on purpose:", before - now),
                         ("New. Add them to the list:", now - before)):
        if lines:
            print("\n  ".join([title, *sorted(lines)]))
    print(f"This command rewrites the list: python3 {pathlib.Path(__file__).resolve()} {build} --write")
    return 1


if __name__ == "__main__":
    sys.exit(main())
