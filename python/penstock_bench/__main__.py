# SPDX-License-Identifier: Apache-2.0
"""The command `penstock`: becomes the program of this package, so signals and exit codes are the program's."""
import os
import sys

from penstock_bench import program


def main():
    try:
        path = program.path()
    except program.PenstockError as error:
        sys.exit(f"penstock: {error}")
    os.environ.pop("PENSTOCK", None)  # it may name this command
    os.execv(path, ["penstock", *sys.argv[1:]])


if __name__ == "__main__":
    main()
