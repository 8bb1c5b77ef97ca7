# SPDX-License-Identifier: Apache-2.0
"""The command `penstock`: becomes the program of this package, so signals and exit codes are the program's."""
import os
import pathlib
import sys


def main():
    program = pathlib.Path(__file__).parent / "bin" / "penstock"
    if not program.exists():
        sys.exit(f"penstock: there is no program {program}; install the package with pip, or run build/penstock")
    os.execv(program, ["penstock", *sys.argv[1:]])


if __name__ == "__main__":
    main()
