#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs one fuzzer and prints one line: its statistics, or the input that failed. It begins with the committed inputs and with
# inputs that earlier runs found (BUILD/corpus/NAME); inputs that failed (BUILD/failures/NAME) are tried again.
# Usage: run.sh BUILD SECONDS NAME
set -u
build=$1 seconds=$2 name=$3
found=$build/corpus/$name failures=$build/failures/$name log=$build/logs/$name.log
mkdir -p "$found" "$failures" "$build/logs"
"$build/fuzz/$name" "$found" "$(dirname "$0")/corpus/$name" "$failures" -max_total_time="$seconds" -artifact_prefix="$failures/" \
  -timeout=20 -malloc_limit_mb=512 -use_value_profile=1 -print_final_stats=1 > "$log" 2>&1
status=$?
count() { sed -n "s/$1/\1/p" "$log" | tail -n 1; }
if [ $status -ne 0 ]; then
  echo "$name: FAILED on $(count '.*Test unit written to \(.*\)'); the report is in $log"
  exit 1
fi
printf '%-16s ok: %9s inputs, %6s a second; %5s edges covered, %4s inputs new\n' "$name" \
  "$(count '^stat::number_of_executed_units: *\(.*\)')" "$(count '^stat::average_exec_per_sec: *\(.*\)')" \
  "$(count '.* cov: \([0-9]*\) .*')" "$(count '^stat::new_units_added: *\(.*\)')"
