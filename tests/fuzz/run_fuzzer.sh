#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs FOLDER/fuzzer from seeds that it writes itself: for PENSTOCK_FUZZ_SECONDS, with what it finds kept in FOLDER/corpus
# for the next such run; without that variable for one second, which keeps nothing. An input that fails is kept in
# FOLDER/failures, its path is printed, and it is tried again by each later run.
# Usage: run_fuzzer.sh FOLDER
set -eu
folder=$1
if [ ! -x "$folder/fuzzer" ]; then
  echo "skipped: there was no clang++ with libFuzzer when this was built; install clang-14 and libclang-rt-14-dev"
  exit 77
fi
cd "$folder"
corpus=corpus
if [ -z "${PENSTOCK_FUZZ_SECONDS:-}" ]; then
  corpus=scratch
  rm -rf scratch
fi
rm -rf seeds
mkdir -p $corpus failures seeds
PENSTOCK_FUZZ_SEEDS=seeds ./fuzzer $corpus seeds failures -max_total_time="${PENSTOCK_FUZZ_SECONDS:-1}" \
  -artifact_prefix="$folder/failures/" -timeout=20 -malloc_limit_mb=512 -use_value_profile=1 -print_final_stats=1
