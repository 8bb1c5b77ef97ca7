#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds a fuzzer with clang and runs it for a while; what it finds lies in FOLDER/NAME.
# Usage: run_fuzzer.sh SOURCE_DIRECTORY FOLDER SECONDS NAME [SOURCES, -lLIBRARIES...]
set -eu
source=$1 folder=$2/$4 seconds=$3 name=$4
shift 4

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
parts=
for part in "$@"; do
  case $part in
    -l*) parts="$parts $part" ;;
    *) parts="$parts $source/$part" ;;
  esac
done
# shellcheck disable=SC2086  # lists of words
$clang -std=c++20 -O1 -g -I"$source" -o fuzzer "$source/tests/fuzz/${name}_fuzzer.cpp" $parts
mkdir -p corpus
./fuzzer corpus -max_total_time="$seconds" -max_len=2000 -use_value_profile=1 -print_final_stats=1
