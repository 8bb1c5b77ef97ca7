#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs every command that a README shows, in order, as a reader would.

Usage: readme_commands.py README SOURCE_DIRECTORY BUILD_DIRECTORY WORK_DIRECTORY

Commands are the lines of ```sh blocks; a line that ends in a backslash goes on in the next one. They
run in WORK_DIRECTORY, in which `build` and the source folders are links. Lines that begin with `make`,
`git` or `cd` are how the reader got here, and are not run again. Anything but exit code 0 is a failure, but for the
answer of `penstock isolate` that it cannot tell, which a busy machine may be told.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

NOT_RUN_AGAIN = ("make", "git", "cd")
# mpirun asks root to allow itself, as CI's containers are.
ENVIRONMENT = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
UNDECIDED = 7
LINKS = ("examples", "bench", "tests")


def commands(text):
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.S | re.M):
        for line in block.replace("\\\n", " ").splitlines():
            if line.strip() and not line.startswith("#"):
                yield line.strip()


def main():
    readme, source, build, work = map(pathlib.Path, sys.argv[1:])
    work.mkdir(parents=True, exist_ok=True)
    for name, target in [("build", build)] + [(link, source / link) for link in LINKS]:
        if not (work / name).exists():
            (work / name).symlink_to(target)
    shutil.rmtree(work / "example-data", ignore_errors=True)  # of an earlier run: it is made anew
    ran = 0
    for command in commands(readme.read_text()):
        if command.split()[0] in NOT_RUN_AGAIN:
            continue
        print(f"$ {command}", flush=True)
        done = subprocess.run(["bash", "-c", command], cwd=work, timeout=120, env=ENVIRONMENT)
        undecided = done.returncode == UNDECIDED and " isolate " in command
        if done.returncode != 0 and not undecided:
            print(f"{readme.name}: exit code {done.returncode}")
            return 1
        ran += 1
    print(f"{ran} commands of {readme.name} ran")
    return 0 if ran else 1


if __name__ == "__main__":
    sys.exit(main())
