#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The verb `look`: what it says about files, endpoints and loaders, and how it ends. Usage: look_test.sh PENSTOCK
. "$(dirname "$0")/../../support/expect.sh"
penstock=$1

# Files: labels, types, and a picture.
"$penstock" dataset make --data-dir data --images 12 --val-images 1 --classes 3 --brief
"$penstock" look --feeder queue --data-dir data/train --image-size 32 --batch-size 4 --num-batches 6 --contact-sheet sheet.png > said.txt
expect "look at files" 0 $?
said said.txt 'batches      6, of 4 images'
said said.txt 'pixels       uint8 \[4,32,32,3\] (NHWC), which the device normalises'
said said.txt 'labels       0 to 2; 3 of 1000 classes'
said said.txt 'rate         .* img/s'
expect "the picture's format" PNG "$(head -c 4 sheet.png | tail -c 3)"

# Floats that the feeder normalised, as JSON.
"$penstock" look --feeder host:normalise=f16 --image-size 32 --batch-size 4 --num-batches 8 --json > said.txt
expect "look at floats" 0 $?
said said.txt '"dtype": "float16"'
said said.txt '"different_batches": 3'
said said.txt '5 of 8 batches repeat an earlier one'

# An endpoint: what came before it fell silent is reported, and the exit code is that of the timeout.
"$penstock" serve --feeder cpu --format msgpack --model null --image-size 16 --batch-size 4 --num-batches 3 --endpoint ipc://feed &
"$penstock" look --feeder zmq-consume:endpoint=ipc://feed --image-size 16 --batch-size 4 --num-batches 9 --timeout 2s \
  > said.txt 2> errors.txt
expect "look at a producer that ends" 5 $?
wait $!
said said.txt 'batches      3, of 4 images'
said said.txt 'note         messages have the format msgpack'
said errors.txt 'ipc://feed'
"$penstock" look --feeder zmq-consume:endpoint=ipc://nowhere --timeout 300ms > said.txt 2> errors.txt
expect "look at nothing" 5 $?
expect "bytes of its report" 0 "$(wc -c < said.txt)"

# A stop request ends it.
"$penstock" look --feeder zmq-consume:endpoint=ipc://silent --timeout 60s > said.txt 2>&1 &
kill -TERM $!
wait $!
expect "look that is stopped" 143 $?

# Other programs' producers and loaders.
if /usr/bin/python3 -c 'import numpy, zmq' 2> errors.txt; then
  cat > produce.py <<'PRODUCER'
import pickle, sys
import numpy, zmq

images = {"zeros": numpy.random.rand(4, 16, 16, 3).astype(numpy.uint8),
          "planar": numpy.random.randn(4, 3, 16, 16).astype(numpy.float32)}[sys.argv[1]]
socket = zmq.Context().socket(zmq.PUSH)
socket.connect("ipc://foreign")
for _ in range(5):
    socket.send(pickle.dumps([images, numpy.arange(4)], protocol=4))
socket.close(linger=20000)
socket.context.term()
PRODUCER
  for images in zeros planar; do
    options=$([ $images = zeros ] || echo ,pixels=f32,planar=true)
    /usr/bin/python3 produce.py $images &
    "$penstock" look --feeder zmq-consume:endpoint=ipc://foreign$options --image-size 16 --batch-size 4 --num-batches 5 > $images.txt
    expect "look at a producer in Python, $images" 0 $?
    wait $!
  done
  said zeros.txt 'unusual      all batches are equal'
  said zeros.txt 'unusual      all pixels are 0: values from 0 to 1 may have been cast to bytes'
  said planar.txt 'pixels       float32 \[4,3,16,16\] (NCHW), which the device takes as normalised'
  said planar.txt 'labels       0 to 3; 4 of 1000 classes'
  printf 'import numpy\ndef make():\n  while True: yield numpy.full((2, 8, 8, 3), 7, numpy.uint8), numpy.array([1, 2])\n' > loader.py
  "$penstock" look --loader loader.py:make --python /usr/bin/python3 --num-batches 3 > said.txt
  expect "look at a Python loader" 0 $?
  said said.txt 'unusual      6 of 6 images have one colour only'
else
  echo "skipped: producers and loaders in Python; install python3-numpy python3-zmq"
fi
