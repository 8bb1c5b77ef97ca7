#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the zmq_op fuzzer with clang and runs it for a while; what it finds lies in FOLDER.
# Usage: run_fuzzer.sh SOURCE_DIRECTORY FOLDER SECONDS
set -eu
source=$1 folder=$2 seconds=$3

mkdir -p "$folder"
cd "$folder"
echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' > probe.cpp
clang=
for compiler in clang++ clang++-14; do
  command="$compiler -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined"
  if $command -o probe probe.cpp 2> /dev/null; then clang=$command; break; fi
done
if [ -z "$clang" ]; then
  echo "skipped: no clang++ with libFuzzer; install clang-14 and libclang-rt-14-dev"
  exit 77
fi
$clang -std=c++20 -O1 -g -I"$source" -o zmq_op_fuzzer \
  "$source/tests/fuzz/zmq_op_fuzzer.cpp" "$source/dataflow/wire/zmq_op.cpp"
mkdir -p corpus
./zmq_op_fuzzer corpus -max_total_time="$seconds" -max_len=200 -use_value_profile=1 -print_final_stats=1
