#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the three commands of docs/your-loader.md as they stand there, on its loader, with PyTorch and torchvision. Only
the budgets are shorter. Usage: your_loader_test.py PENSTOCK VENV PAGE
"""
import pathlib
import re
import subprocess
import sys
import tempfile

SHORT = {"run": "--num-batches 4", "isolate": "--budget 15s", "isolate --vary": "--budget 15s --vary-budget 30s"}
UNDECIDED = 7
LIMIT_S = 240


def main():
    penstock, venv, page = (pathlib.Path(word).absolute() for word in sys.argv[1:])
    python = venv / "bin" / "python"
    if not python.exists() or subprocess.run([python, "-c", "import torchvision"], stderr=subprocess.DEVNULL,
                                             check=False).returncode != 0:
        print(f"skipped: no torchvision in {venv}; run `make interop`")
        sys.exit(77)
    section = re.search(r"^## Three commands\n(.*?)^## ", page.read_text(), re.S | re.M)[1]
    loader = re.search(r"^```python\n# my_loader.py\n(.*?)^```", section, re.S | re.M)[1]
    commands = re.search(r"^```text\n(.*?)^```", section, re.S | re.M)[1].replace("\\\n", "").strip().splitlines()
    assert len(commands) == 3, commands
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        subprocess.run([penstock, "dataset", "make", "--data-dir", folder, "--images", "400", "--val-images", "16", "--brief"],
                       check=True)
        (folder / "my_loader.py").write_text(loader.replace('"/data/train"', f'"{folder / "train"}"'))
        for command in commands:
            verb = command.split()[1] + (" --vary" if "--vary" in command else "")
            words = f"{command} {SHORT[verb]}".replace("venv/bin/python", str(python)).split()
            print("$", *words, flush=True)
            done = subprocess.run([penstock, *words[1:]], cwd=folder, text=True, timeout=LIMIT_S, stdout=subprocess.PIPE,
                                  check=False)
            print(done.stdout, flush=True)
            assert done.returncode == 0 or (verb != "run" and done.returncode == UNDECIDED), done.returncode
            expected = {"run": "total images/sec: ", "isolate": "Alone it supplies ", "isolate --vary": " is best: "}[verb]
            assert expected in " ".join(done.stdout.split()) + " ", f"no '{expected}'"


if __name__ == "__main__":
    main()
