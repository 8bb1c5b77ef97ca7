#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `penstock watch -- torchrun` with PyTorch's own DataLoader, two ranks over gloo. Usage: watch_test.sh PENSTOCK VENV
set -eu
penstock=$1 venv=$2
script=$(realpath "$(dirname "$0")/two_ranks.py")
if [ ! -x "$venv/bin/torchrun" ]; then
  echo "skipped: no torch in $venv; run \`make interop\`"
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$penstock" watch --json "$folder/watch.json" -- "$venv/bin/torchrun" --nproc-per-node 2 "$script"
"$venv/bin/python" - "$folder/watch.json" <<'END'
import json, sys
ranks = json.load(open(sys.argv[1]))["ranks"]
assert [rank["rank"] for rank in ranks] == [0, 1], ranks
loops = [rank["loops"][0] for rank in ranks]
assert [loop["loop"].split(":")[0] for loop in loops] == ["two_ranks.py"] * 2, loops
assert [loop["batches"] for loop in loops] == [40, 40] and [loop["epochs"] for loop in loops] == [2, 2], loops
assert loops[0]["waited_percent"] > loops[1]["waited_percent"] + 20, loops
END
