#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The safetensors package reads a checkpoint of `penstock run`, and Penstock restores the package's files.
# Usage: safetensors_test.sh PENSTOCK VENV
set -eu
penstock=$1 venv=$2

if [ ! -x "$venv/bin/python" ] || ! "$venv/bin/python" -c 'import numpy, safetensors' 2> /dev/null; then
  echo "skipped: no safetensors in $venv; run \`make interop\`"
  exit 77
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
train() {
  "$penstock" run --json --device cpu --model tiny_cnn --fake-location gpu --batch-size 4 \
    --optimizer momentum --num-warmup-batches 0 --num-batches "$1" --train-dir "$folder/train" \
    > "$folder/result.json"
}
train 3
"$venv/bin/python" - "$folder/train/model-3.safetensors" <<'CHECK'
import sys

from safetensors import safe_open
from safetensors.numpy import save_file

with safe_open(sys.argv[1], "np") as file:
    about = file.metadata()
    tensors = {name: file.get_tensor(name) for name in file.keys()}
assert about["model"] == "tiny_cnn" and about["step"] == "3", about
assert tensors["conv1.weight"].shape == (16, 3, 3, 3), tensors["conv1.weight"].shape
assert "optimizer.0.conv1.weight" in tensors and "conv1.bn.running_mean" in tensors, list(tensors)
assert all(tensor.dtype == "float32" for tensor in tensors.values())
# The package orders tensors differently, so the checksum differs, too.
import zlib

save_file(tensors, sys.argv[1], about)
data = open(sys.argv[1], "rb").read()
length = int.from_bytes(data[:8], "little")
about["crc32"] = "%08x" % zlib.crc32(data[8 + length :])
save_file(tensors, sys.argv[1], about)
print(len(tensors), "tensors are read and written by safetensors")
CHECK
train 5
test -f "$folder/train/model-5.safetensors"
