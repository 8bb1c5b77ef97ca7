#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `penstock run` with a loader of another library (loaders.py): with --loader, and with a profile of its code.
# Usage: loaders_test.sh PENSTOCK VENV FUNCTION MODULES [TEXT THAT THE OUTPUT MUST HOLD...]
set -eu
penstock=$1 venv=$2 function=$3 modules=$4
shift 4
here=$(dirname "$0")
python=$venv/bin/python
if [ ! -x "$python" ] || ! "$python" -c "import $modules" > /dev/null 2>&1; then
  echo "skipped: no $modules in $venv; run \`make interop\`"
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$penstock" dataset make --data-dir "$folder" --images 128 --val-images 8 --classes 4 --brief
PENSTOCK_DATA=$folder/train
export PENSTOCK_DATA
run() {
  "$penstock" run "$@" --device emulated:img_per_s=100000 --num-batches 20 --num-warmup-batches 2 --out "$folder/out" 2>&1
}
run --loader "$here/loaders.py:$function" --python "$python" | tee "$folder/text"
run --fake-location "python:profile=true,python=$python,loader=$here/loaders.py:$function" | tee -a "$folder/text"
for text in "total images/sec" "$@"; do
  grep -q -e "$text" "$folder/text" || { echo "the output does not hold '$text'"; exit 1; }
done
