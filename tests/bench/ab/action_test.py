#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the steps of action.yml by hand, as a runner of GitHub would, on a pull request that is slower and on one that changes nothing.

Usage: action_test.py ACTION PENSTOCK
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

try:
    import yaml
except ImportError:
    print("skipped: no module yaml (python3-yaml)")
    sys.exit(77)


def value_of(expression, inputs):
    """The only expressions of the action: inputs, and the branch of a pull request to main."""
    found = re.fullmatch(r"\$\{\{ inputs\.(\w+)(?: \|\| (.*))? \}\}", expression)
    if not found:
        return {"${{ github.action_path }}": "/nowhere"}[expression]
    return inputs[found[1]] or ("main" if found[2] else "")


def run_step(step, inputs, folder, repository, program):
    environment = {**os.environ, **{name: value_of(text, inputs) for name, text in step["env"].items()},
                   "PATH": f"{program.parent}:{os.environ['PATH']}", "RUNNER_TEMP": str(folder)}
    for name in ("GITHUB_PATH", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"):
        environment[name] = str(folder / name)
    return subprocess.run(["bash", "-e", "-o", "pipefail", "-c", step["run"]], cwd=repository, env=environment, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False)


def main():
    action = yaml.safe_load(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    program = pathlib.Path(sys.argv[2]).absolute()
    defaults = {name: given.get("default", "") for name, given in action["inputs"].items()}
    assert not action["inputs"]["command"].get("default")
    for speed, verdict, code in ((90, "slower", 1), (100, "equal within the margin", 0)):
        with tempfile.TemporaryDirectory() as place:
            repository = pathlib.Path(place) / "repository"
            subprocess.run(["sh", "-ec", "git init -qb main repository; cd repository; git config user.email a@example.org; "
                            "git config user.name a; echo 'echo rate: 100' > bench.sh; git add .; git commit -qm base; "
                            f"git checkout -qb change; echo 'echo rate: {speed} ' > bench.sh; git commit -qam change"],
                           cwd=place, check=True)
            inputs = {**defaults, "command": "sh bench.sh", "metric": "rate: ([0-9]+)", "budget": "3s"}
            steps = [run_step(step, inputs, pathlib.Path(place), repository, program) for step in action["runs"]["steps"]]
            for step in steps[:-1]:
                assert step.returncode == 0, step.stdout
            assert steps[-1].returncode == code, steps[-1].stdout
            outputs = (pathlib.Path(place) / "GITHUB_OUTPUT").read_text(encoding="utf-8")
            summary = (pathlib.Path(place) / "GITHUB_STEP_SUMMARY").read_text(encoding="utf-8")
            assert outputs == f"verdict={verdict}\n", outputs
            assert "| configuration |" in summary and verdict.split()[0] in summary, summary
            print(summary)


if __name__ == "__main__":
    main()
