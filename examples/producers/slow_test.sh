#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A producer that ends while its consumer has no room must lose no message over ipc.
# Usage: slow_test.sh PENSTOCK COMMAND...
#   COMMAND   a producer that sends 22 batches of one image of 32 x 32 each and ends, in the words of start_producer.sh
set -eu
penstock=$1
shift
producers=$(dirname "$0")
. "$producers/start_producer.sh"
# All batches together fit into the kernel's buffer.
"$penstock" run --json --fake-location "zmq-consume:endpoint=ipc://$folder/feed,hwm=1" --model trivial \
  --image-size 32 --device emulated:img_per_s=20 --batch-size 1 --num-warmup-batches 2 --num-batches 20 \
  --timeout 20s > "$folder/result.json"
wait "$producer"
producer=
check_arrived 22 all
