#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# With the toolkit's stub instead of the driver's library, a dry call ends within its budget. A real call reports at
# once that there is no GPU and runs no step that needs one.
# Usage: visit_stub_test.sh SOURCE_DIRECTORY PROGRAMS PYTHON
set -eu
source=$1
export PENSTOCK_PROGRAMS=$2 PYTHON=$3
stub=
for toolkit in "${CUDA_HOME:-}" /usr/local/cuda; do
  [ -n "$stub" ] || [ ! -e "$toolkit/lib64/stubs/libcuda.so" ] || stub=$toolkit/lib64/stubs/libcuda.so
done
[ -n "$stub" ] || { echo "skipped: the CUDA toolkit with lib64/stubs/libcuda.so is not here"; exit 77; }
if ldconfig -p | grep -q 'libcuda\.so\.1 '; then echo "skipped: this machine has a driver"; exit 77; fi
[ -e "$PENSTOCK_PROGRAMS/libpenstock_cuda.so" ] || { echo "skipped: libpenstock_cuda.so was not built"; exit 77; }

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
ln -s "$stub" "$folder/libcuda.so.1"
export LD_LIBRARY_PATH=$folder
budget=150
verdicts() { awk -F '\t' '{ last[$1] = $2 } END { for (step in last) print step ": " last[step] }' "$folder/state/$1/steps.tsv"; }

SECONDS=0
"$source/bench/gpu/visit.sh" 1 --dry --budget $budget --out "$folder/dry" --state "$folder/state"
[ $SECONDS -le $budget ] || { echo "$SECONDS s of $budget"; exit 1; }
if verdicts dry | grep -vE ': (done|skipped)$'; then exit 1; fi

SECONDS=0
"$source/bench/gpu/visit.sh" 1 --budget $budget --out "$folder/gpu" --state "$folder/state"
[ $SECONDS -le $budget ] || { echo "$SECONDS s of $budget"; exit 1; }
verdicts gpu | grep -q '^device: FAILED'
verdicts gpu | grep -q '^rates: not run'
grep -q 'does not answer since step device' "$folder/gpu/summary.txt"
