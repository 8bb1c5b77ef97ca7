#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The verb `allreduce`: the table, JSON, refused options, and the result after a signal.
# Usage: allreduce_test.sh PENSTOCK
set -u
penstock=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1

expect() {  # expect WHAT WANTED FOUND
  if [ "$2" != "$3" ]; then echo "$1: expected $2, found $3"; exit 1; fi
  echo "$1: $3"
}

"$penstock" allreduce --model tiny_cnn --ranks 3 --num-iters 3 > table
expect "the table" 0 $?
expect "rows whose sums are right" 8 "$(grep -c ' 3  *right$' table)"

"$penstock" allreduce --model=tiny_cnn --all_reduce_spec=pscpu:1k:xring#2 --num_iters=3 --json > json
expect "--json" 0 $?
grep -q '"algorithm":"shared-memory","iterations":3,"sums_checked":true' json
expect "the shared memory beside a spec (grep)" 0 $?
grep -q '"algorithm":"pscpu:1k:xring#2","iterations":3,"sums_checked":true' json
expect "the spec (grep)" 0 $?

"$penstock" allreduce --model tiny_cnn --num-iters 3 --wire fp16 --gradient-repacking 4 \
  --algorithm ring,shared-memory > half
expect "--wire" 0 $?
expect "rows of fp16 whose sums are right" 2 "$(grep -c ' fp16 .* right$' half)"
grep -q ' in 4 buckets;' half
expect "--gradient-repacking (grep)" 0 $?
grep -q '^bound: ' half
expect "the bound (grep)" 0 $?

for refused in --ranks=1 --ranks=many --num-iters=0 --model=null --model=resnet51 --algorithm=rings \
               --all-reduce-spec=xring#0 --bucket-mib=-1 --wire=fp8 --algorithm=mpi --timeout=0 --local-ranks=-1 --seed=-1; do
  "$penstock" allreduce "$refused" 2> refusal
  expect "$refused" 2 $?
done

# After a signal it prints the measurements so far.
mkfifo ready
"$penstock" allreduce --model tiny_cnn --num-iters 1000000 > partial 2> ready &
running=$!
exec 3< ready
read -r line <&3
echo "$line"
kill -INT $running
wait $running
expect "interrupted" 130 $?
grep -q '^Stopped: this is what was measured by then.$' partial
expect "what was measured (grep)" 0 $?
