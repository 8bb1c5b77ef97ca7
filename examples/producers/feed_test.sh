#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Feeds `penstock run` from a producer over a real socket and checks that its images arrived.
# Usage: feed_test.sh PENSTOCK OPTIONS COMMAND...
#   OPTIONS   further options of zmq-consume, besides endpoint and hwm, such as format=framed; '' for none
#   COMMAND   starts the producer, with batches of 8, in the words of start_producer.sh
set -eu
penstock=$1 options=$2
shift 2
producers=$(dirname "$0")
. "$producers/start_producer.sh"
"$penstock" run --json --fake-location "zmq-consume:endpoint=ipc://$folder/feed,hwm=2${options:+,$options}" \
  --model null --batch-size 8 --num-warmup-batches 2 --num-batches 20 --timeout 60s > "$folder/result.json"
check_arrived 176
