#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs every command that the README and the pages of docs/ show, as a reader would.

Usage: readme_commands.py SOURCE_DIRECTORY BUILD_DIRECTORY WORK_DIRECTORY

Commands are the lines of ```sh blocks; a line that ends in a backslash continues on the next line. Blocks of another
kind, such as ```text, are not run: they show output, or commands that need minutes, root, a network, a GPU or another
machine. Lines that begin with a word of NOT_RUN built or installed the program, and are not run, either.

Commands run in WORK_DIRECTORY, where `build` and some source folders are links and `data` is a small version of the data
set that `make run` makes. A command that several pages show runs once. The commands of a block run in order. Blocks run
in parallel, but a block waits for earlier blocks that name the same files (example-*, out/*). A command fails if its exit
code is not 0; `penstock isolate`, `demo` and `ab` may also answer `undecided`, since the machine may be busy. A command that starts mpirun
has a second try, as tests with the label `launcher` have (tests/README.md).
"""
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

NOT_RUN = ("make", "git", "cd", "cmake", "cc", "docker", "sudo", "apt-get", "dpkg")
# mpirun refuses to run as root unless told otherwise, and containers of a CI run as root.
ENVIRONMENT = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
UNDECIDED = 7
NO_CPU = "built without DNNL::dnnl"  # what a program without --device cpu says; the commands of its block are not run
LAUNCHES = re.compile(r"\b(mpirun|penstock (launch|scale))\b")
LINKS = ("examples", "bench", "tests", "python")
AT_ONCE = 3
DATA = "build/penstock dataset make --brief --data-dir data --images 80 --val-images 16"
LIMIT_S = 200


def blocks(text):
    """The commands of each block that has any."""
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.S | re.M):
        lines = [line.strip() for line in block.replace("\\\n", " ").splitlines()]
        commands = [line for line in lines if line and not line.startswith("#") and line.split()[0] not in NOT_RUN]
        if commands:
            yield commands


def files_of(commands):
    return set(re.findall(r"\bexample-\w+|\bout/\w+", "\n".join(commands)))


def call(command, work):
    """A description of the failure; empty if there is none."""
    for _ in range(2 if LAUNCHES.search(command) else 1):
        began = time.monotonic()
        # `timeout` ends all processes that the command started; its exit code is then 124 or 137.
        done = subprocess.run(["timeout", "-k", "10", str(LIMIT_S), "bash", "-c", command], cwd=work, env=ENVIRONMENT, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace",
                              check=False)
        print(f"$ {command}\n{done.stdout}# {time.monotonic() - began:.1f} s, exit code {done.returncode}", flush=True)
        undecided = done.returncode == UNDECIDED and re.search(r" (isolate|demo|ab)\b", command)
        if done.returncode == 0 or undecided:
            return ""
        if NO_CPU in done.stdout:
            return NO_CPU
    return f"exit code {done.returncode}: {command}"


def run(commands, earlier, work):
    """A description of the failure; empty if there is none."""
    if failed := [each.result() for each in earlier if each.result()]:
        return NO_CPU if NO_CPU in failed else "an earlier block that it depends on has failed"
    return next(filter(None, (call(command, work) for command in commands)), "")


def main():
    source, build, work = map(pathlib.Path, sys.argv[1:])
    work.mkdir(parents=True, exist_ok=True)
    for name, target in [("build", build)] + [(link, source / link) for link in LINKS]:
        if not (work / name).exists():
            (work / name).symlink_to(target)
    for made in [*work.glob("example-*"), work / "data", work / "out"]:  # from an earlier run
        shutil.rmtree(made, ignore_errors=True)
    failures = [failure for failure in [call(DATA, work)] if failure]
    seen, begun = set(), []
    # The pool starts blocks in order, so that a block only waits for blocks that have started.
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for page in [source / "README.md", *sorted((source / "docs").glob("*.md"))]:
            for commands in blocks(page.read_text()):
                files = files_of(commands)
                earlier = [each for others, each, _ in begun if files & others]
                new = [command for command in commands if command not in seen]
                seen.update(new)
                begun.append((files, pool.submit(run, new, earlier, work), page.relative_to(source)))
    failures += [f"{page}: {each.result()}" for _, each, page in begun if each.result() not in ("", NO_CPU)]
    print("\n".join(failures))
    print(f"{len(seen)} commands of {len({page for *_, page in begun})} pages ran")
    return 1 if failures or not begun else 0


if __name__ == "__main__":
    sys.exit(main())
