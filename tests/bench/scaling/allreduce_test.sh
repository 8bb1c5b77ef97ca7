#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The verb `allreduce`: the table, JSON, refused options, and the result after a signal.
# Usage: allreduce_test.sh PENSTOCK
. "$(dirname "$0")/../../support/expect.sh"
penstock=$1

"$penstock" allreduce --model tiny_cnn --ranks 3 --num-iters 3 > table
expect "the table" 0 $?
expect "rows whose sums are right" 8 "$(grep -c ' 3  *right$' table)"

"$penstock" allreduce --model=tiny_cnn --all_reduce_spec=pscpu:1k:xring#2 --num_iters=3 --json > json
expect "--json" 0 $?
said json '"algorithm":"shared-memory","iterations":3,"sums_checked":true'
said json '"algorithm":"pscpu:1k:xring#2","iterations":3,"sums_checked":true'

"$penstock" allreduce --model tiny_cnn --num-iters 3 --wire fp16 --gradient-repacking 4 \
  --algorithm ring,shared-memory > half
expect "--wire" 0 $?
expect "rows of fp16 whose sums are right" 2 "$(grep -c ' fp16 .* right$' half)"
said half ' in 4 buckets;'
said half '^bound: '

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
said partial '^Stopped: this is what was measured by then.$'
