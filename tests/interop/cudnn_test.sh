#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# PyPI's newest cuDNN has engines for every graph of a step, the fused ones included.
# Usage: cudnn_test.sh PLANNER_TEST PENSTOCK_CUDA CUDA_STUBS VENV
set -eu
test=$1 library=$2 stubs=$3
cudnn=$(echo "$4"/lib/python3*/site-packages/nvidia/cudnn/lib)

if [ ! -e "$cudnn/libcudnn.so.9" ]; then
  echo "skipped: no nvidia-cudnn-cu13 in $4; run \`make interop\`"
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
ln -s "$stubs/libcuda.so" "$folder/libcuda.so.1" # this cuDNN does not plan without one
export LD_LIBRARY_PATH="$cudnn:$folder"
ldd "$library" | grep -F "$cudnn/libcudnn.so.9"
status=0
"$test" --gtest_brief=1 > "$folder/output" || status=$?
cat "$folder/output"
! grep -q SKIPPED "$folder/output" || status=1 # the library is of another revision
exit "$status"
