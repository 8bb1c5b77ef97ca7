#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Consumers that are killed with batches in flight: `serve` continues with the next consumer, whichever side
# binds, and whatever the killed one left behind. Also endpoints that no other process can reach.
# Usage: consumer_restart_test.sh PENSTOCK
. "$(dirname "$0")/../../support/expect.sh"
penstock=$1
serve=
run=
trap 'kill $serve $run 2> /dev/null; rm -rf "$folder"' EXIT

consume() {  # consume OPTIONS BATCHES
  exec "$penstock" run --fake-location "zmq-consume:hwm=2,$1" --model null --batch-size 8 \
    --num-warmup-batches 2 --num-batches "$2" --display-every 1 --timeout 30s
}

mkfifo steps
for bind in true false; do
  endpoint=ipc://$folder/feed-$bind
  [ $bind = true ] && other=false || other=true
  "$penstock" serve --model null --batch-size 8 --img-per-s 800 --hwm 2 --endpoint "$endpoint" --bind=$other \
    --timeout 30s &
  serve=$!
  for receivers in 1 3; do
    (consume "endpoint=$endpoint,bind=$bind,receivers=$receivers" 20000 > steps) &
    run=$!
    exec 3< steps
    while read -r line <&3; do case $line in *images/sec*) break ;; esac; done
    kill -9 $run
    wait $run 2> /dev/null
    expect "killed while it received (bind=$bind)" 137 $?
    exec 3<&-
  done
  (consume "endpoint=$endpoint,bind=$bind" 200 > last.txt)
  expect "the next one (bind=$bind)" 0 $?
  kill -INT $serve
  wait $serve
  expect "serve (bind=$bind)" 130 $?
done

"$penstock" serve --model null --batch-size 8 --endpoint inproc://feed 2> refused.txt
expect "serve to threads" 2 $?
(consume endpoint=inproc://feed 2) 2>> refused.txt
expect "run from threads" 2 $?
expect "refusals that say what to give (grep)" 2 "$(grep -c 'expected ipc://PATH' refused.txt)"
