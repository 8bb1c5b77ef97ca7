#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs every command that a README shows, as a reader would.

Usage: readme_commands.py README SOURCE_DIRECTORY BUILD_DIRECTORY WORK_DIRECTORY

Commands are the lines of ```sh blocks; a line that ends in a backslash goes on in the next one. They
run in WORK_DIRECTORY, in which `build` and the source folders are links. Those of a block run in their order, and blocks
beside each other, but behind earlier ones that name the same files (example-*, out/*). Lines that begin with `make`,
`git` or `cd` are how the reader got here, and are not run again. Anything but exit code 0 is a failure, but for the
answer of `penstock isolate` that it cannot tell, which a busy machine may be told.
"""
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

NOT_RUN_AGAIN = ("make", "git", "cd")
# mpirun asks root to allow itself, as CI's containers are.
ENVIRONMENT = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
UNDECIDED = 7
LINKS = ("examples", "bench", "tests")
AT_ONCE = 3
DEFAULT_DATA = "data"  # made by the first that reads it, and changed by nobody
LIMIT_S = 200


def blocks(text):
    """The commands of each block that has some."""
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.S | re.M):
        lines = [line.strip() for line in block.replace("\\\n", " ").splitlines()]
        commands = [line for line in lines if line and not line.startswith("#") and line.split()[0] not in NOT_RUN_AGAIN]
        if commands:
            yield commands


def files_of(commands):
    files = set(re.findall(r"\bexample-\w+|\bout/\w+", "\n".join(commands)))
    if any(re.search(r"[ ,]queue\b", command) and "--data-dir" not in command for command in commands):
        files.add(DEFAULT_DATA)
    return files


def run(commands, earlier, work):
    """What failed; empty: nothing."""
    for each in earlier:
        if each.result():
            return "an earlier one that it follows has failed"
    for command in commands:
        began = time.monotonic()
        done = subprocess.run(["bash", "-c", command], cwd=work, timeout=LIMIT_S, env=ENVIRONMENT, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              errors="replace")
        print(f"$ {command}\n{done.stdout}# {time.monotonic() - began:.1f} s", flush=True)
        undecided = done.returncode == UNDECIDED and " isolate " in command
        if done.returncode != 0 and not undecided:
            return f"exit code {done.returncode}: {command}"
    return ""


def main():
    readme, source, build, work = map(pathlib.Path, sys.argv[1:])
    work.mkdir(parents=True, exist_ok=True)
    for name, target in [("build", build)] + [(link, source / link) for link in LINKS]:
        if not (work / name).exists():
            (work / name).symlink_to(target)
    for made in work.glob("example-*"):  # by an earlier run: it is made anew
        shutil.rmtree(made, ignore_errors=True)
    begun = []
    # The pool begins blocks in their order, so that what one waits for has begun.
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for commands in blocks(readme.read_text()):
            files = files_of(commands)
            earlier = [each for others, each in begun if files & others]
            if any(DEFAULT_DATA in others for others, _ in begun):
                files.discard(DEFAULT_DATA)
            begun.append((files, pool.submit(run, commands, earlier, work)))
    failures = [each.result() for _, each in begun if each.result()]
    for failure in failures:
        print(f"{readme.name}: {failure}")
    print(f"{len(begun)} blocks of commands of {readme.name} ran")
    return 1 if failures or not begun else 0


if __name__ == "__main__":
    sys.exit(main())
