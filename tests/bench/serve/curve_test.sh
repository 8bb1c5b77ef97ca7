#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The verb `keygen`, and `serve` against `run` with its keys: only a process with the right keys feeds the run.
# Usage: curve_test.sh PENSTOCK
. "$(dirname "$0")/../../support/expect.sh"
penstock=$1

for name in consumer alice mallory; do "$penstock" keygen --out keys --name $name > /dev/null || exit 1; done
"$penstock" keygen --out keys --name alice
expect "keygen over keys that are there" 2 $?
expect "mode of a secret" 600 "$(stat -c %a keys/alice.key_secret)"
mkdir allowed
cp keys/alice.key allowed

endpoint=ipc://$folder/feed
serve() {  # as that client, to the server with that key
  "$penstock" serve --model null --batch-size 8 --hwm 2 --endpoint "$endpoint" --timeout 30s --num-batches 22 \
    --curve-secret "keys/$1.key_secret" --curve-server-key "keys/$2.key" 2>> "$1-$2.txt"
}
"$penstock" run --json --fake-location "zmq-consume:endpoint=$endpoint,hwm=2,curve_secret=keys/consumer.key_secret,curve_allow=allowed" \
  --model null --batch-size 8 --num-warmup-batches 2 --num-batches 20 --timeout 30s > result.json 2> run.txt &
run=$!
serve mallory consumer
expect "a key that is not admitted" 2 $?
said mallory-consumer.txt "does not accept the key of this side"
serve alice mallory
expect "the key of another server" 2 $?
said alice-mallory.txt "and that curve_server_key"
"$penstock" serve --model null --batch-size 8 --endpoint "$endpoint" --timeout 30s 2> plain.txt
expect "no key" 2 $?
said plain.txt "only peers with CURVE keys"
serve alice consumer
expect "the right keys" 0 $?
wait $run
expect "the run" 0 $?
said result.json '"images_received":176'
said result.json '"peers_refused":[1-9]'
said run.txt "refused process [0-9]*: its key"
said run.txt "another key"

"$penstock" serve --model null --endpoint "tcp://0.0.0.0:*" --bind 2> open.txt
expect "an open socket without keys" 2 $?
said open.txt "curve-allow"
"$penstock" serve --model null --curve-secret keys/alice.key_secret 2> alone.txt
expect "a secret key alone" 2 $?
said alone.txt "curve-server-key"
