#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that kernels keep their working data in registers: no stack frames, no spills.

Usage: kernel_registers.py NVCC SOURCE_DIRECTORY FILE.cu. Compiles the file for sm_90 and reads the
assembler's report on each kernel; exits 1 and names the kernels that use local memory.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

KERNEL = re.compile(r"Function properties for (\S+)")
MEMORY = re.compile(
    r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
)


def assembler_report(nvcc, source_directory, file):
    with tempfile.TemporaryDirectory() as folder:
        command = [nvcc, "-std=c++20", "-O3", "-DNDEBUG", "-arch=sm_90", "-cubin", "-Xptxas=-v",
                   f"-I{source_directory}", file, "-o", str(pathlib.Path(folder) / "kernels.cubin")]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    return done.stderr


def main():
    kernels, wrong, name = 0, [], "?"
    for line in assembler_report(*sys.argv[1:]).splitlines():
        if found := KERNEL.search(line):
            name = found[1]
        if found := MEMORY.search(line):
            kernels += 1
            if any(int(size) for size in found.groups()):
                wrong.append(f"{name}: {found[0]}")
    print(f"{kernels} kernels and functions, {len(wrong)} with local memory")
    print("\n".join(wrong))
    return 1 if wrong or kernels == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
