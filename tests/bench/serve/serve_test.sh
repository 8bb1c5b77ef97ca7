#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The verb `serve`: feeds a run, ends by itself, by a signal and by a timeout, with the documented exit
# codes. Usage: serve_test.sh PENSTOCK
. "$(dirname "$0")/../../support/expect.sh"
penstock=$1

# From a device feeder, over a file name in the working directory; a finite producer sends every batch.
"$penstock" serve --fake-location gpu --model null --batch-size 8 --num-batches 22 --hwm 2 --timeout 30s &
"$penstock" run --json --fake-location zmq-consume:hwm=2 --model null --batch-size 8 \
  --num-warmup-batches 2 --num-batches 20 --timeout 30s > result.json
expect "run beside serve" 0 $?
wait $!
expect "serve --num-batches" 0 $?
said result.json '"images_received":176'

# In other formats. Messages of Penstock's framed format are numbered, so missing ones are detected.
for format in pickle msgpack numpy-frames framed; do
  "$penstock" serve --format $format --model null --batch-size 8 --num-batches 22 --hwm 2 --timeout 30s &
  "$penstock" run --json --fake-location zmq-consume:hwm=2,format=$format --model null --batch-size 8 \
    --num-warmup-batches 2 --num-batches 20 --timeout 30s > result.json
  expect "run beside serve --format $format" 0 $?
  wait $!
  expect "serve --format $format" 0 $?
done
said result.json '"images_missing":0'
said result.json '"hand_off_median_s":'
"$penstock" serve --checksum --timeout 300ms
expect "a checksum in zmq_op" 2 $?
"$penstock" serve --format pyarrow --timeout 300ms
expect "an unknown format" 2 $?

# A Python loader: arrays that are no images, and images of another type than bytes. Other formats hold neither.
cat > loaders.py << 'END'
import array

def of(kind, *shape):
    size = array.array(kind).itemsize
    for length in shape:
        size *= length
    return memoryview(bytes(size)).cast("B").cast(kind, shape)

def texts():
    for length in range(16, 56):
        yield {"ids": of("i", 8, length), "y": array.array("i", range(8))}

def images():
    return [(of("f", 2, 32, 32, 3), array.array("i", [0, 1]))] * 40
END
for loader in "texts batch=8x4096B null" "images pixels=f32 null --batch-size 2 --image-size 32"; do
  # shellcheck disable=SC2086
  set -- $loader
  function=$1 options=$2 model=$3
  shift 3
  "$penstock" serve --loader "loaders.py:$function" --num-batches 22 --endpoint ipc://loaded --timeout 30s 2> served.txt &
  "$penstock" run --json --fake-location "zmq-consume:endpoint=ipc://loaded,producers=1,$options" --model "$model" "$@" \
    --num-warmup-batches 2 --num-batches 20 --timeout 30s > result.json
  expect "run beside serve --loader $function" 0 $?
  wait $!
  expect "serve --loader $function" 0 $?
  case $function in
    texts)
      said served.txt 'arrays for consumers with zmq-consume:batch=8x'
      said served.txt 'sent 22 batches, 176 samples, .* samples/s'
      said result.json '"unit":"samples"'
      said result.json '"images_received":176'
      ;;
    images) said result.json '"unit":"img"' ;;
  esac
done
"$penstock" serve --loader loaders.py:texts --format pickle --timeout 300ms 2> said.txt
expect "arrays in another format" 2 $?
said said.txt 'these batches are no images; take framed'
cat >> loaders.py << 'END'

def ranks():
    import os
    yield from [{"ids": of("i", 4, 1 + int(os.environ["RANK"])), "of": int(os.environ["WORLD_SIZE"])}] * 40

def growing():
    yield {"ids": of("B", 8, 10)}
    yield {"ids": of("B", 8, 100000)}
END
"$penstock" serve --loader loaders.py:ranks --benchmark --num-batches 8 --processes 2 2> said.txt
expect "several processes with a loader" 0 $?
said said.txt 'yields 4 samples a batch, dict of ids int32.4,1.'
said said.txt 'yields 4 samples a batch, dict of ids int32.4,2.'
"$penstock" serve --loader loaders.py:growing --benchmark 2> said.txt
expect "a batch that is larger than a slot" 6 $?
said said.txt 'has 800000 bytes, and there is room for .*,batch=8x1600000B'
"$penstock" serve --loader loaders.py:texts --count ids --benchmark 2> said.txt
expect "counting in a producer" 2 $?
"$penstock" serve --loader loaders.py:texts --credit --timeout 300ms
expect "arrays by credit" 2 $?
"$penstock" serve --loader loaders.py:texts --num-batches 22 --endpoint ipc://misfit --timeout 10s 2> /dev/null &
"$penstock" run --fake-location "zmq-consume:endpoint=ipc://misfit" --model null --batch-size 8 --num-batches 2 \
  --timeout 30s 2> said.txt
expect "arrays for a run of images" 6 $?
said said.txt 'a run with zmq-consume:batch=8xBYTESB takes it'
kill $!
wait $!

# Without a consumer: what making and encoding cost.
"$penstock" serve --benchmark --format msgpack --model null --batch-size 8 --num-batches 50 2> said.txt
expect "serve --benchmark" 0 $?
said said.txt 'are encoded as msgpack and dropped'
said said.txt 'encoded and dropped 50 batches, 400 images, .* img/s'
"$penstock" serve --benchmark --endpoint ipc://nowhere 2> said.txt
expect "serve --benchmark with an endpoint" 2 $?

# A run that starts its producer extends the window until batches in sockets do not decide the rate, unless told not to.
own="zmq-consume:endpoint=ipc://own,producer='$penstock serve --endpoint ipc://own --model null --batch-size 8'"
"$penstock" run --fake-location "$own" --model null --batch-size 8 --num-warmup-batches 2 --num-batches 20 \
  --timeout 30s > total.txt 2> said.txt
expect "run with its own producer" 0 $?
said total.txt 'total images/sec: [0-9.]*$'
said said.txt '[0-9]* steps are measured instead of 20, .* left'
"$penstock" run --fake-location "$own" --model null --batch-size 8 --num-warmup-batches 2 --num-batches 20 \
  --timeout 30s --noextend-window > total.txt 2> said.txt
expect "the same without a longer window" 0 $?
said total.txt 'total images/sec: [0-9.]*$'
said total.txt '^# draining: '
said said.txt 'penstock: draining: '

# No consumer takes a batch.
"$penstock" serve --model null --batch-size 8 --timeout 300ms
expect "no consumer" 5 $?

# A consumer that leaves is named, and can end the producer: pixels by push and by credit, and image files.
"$penstock" dataset make --data-dir data --images 4 --val-images 1 --classes 2 --brief
for way in "--fake-location host" "--fake-location host --credit" "--encoded --data-dir data/train"; do
  case $way in
    *credit) options=,credit=2 ;;
    *encoded*) options=,encoded=true ;;
    *) options= ;;
  esac
  # shellcheck disable=SC2086
  "$penstock" serve $way --model null --image-size 32 --batch-size 2 --endpoint ipc://left --end-with-consumer --timeout 30s \
    2> said.txt &
  "$penstock" run --json --fake-location "zmq-consume:endpoint=ipc://left$options" --model null --image-size 32 \
    --batch-size 2 --num-warmup-batches 1 --num-batches 5 --timeout 30s > /dev/null
  expect "run beside serve $way" 0 $?
  wait $!
  expect "serve $way --end-with-consumer" 0 $?
  said said.txt 'the consumer, .*, left after [1-9][0-9]* batches; 0 connected'
done

# Two producers cannot bind the same name; a signal ends the first and removes its socket file.
mkfifo ready
"$penstock" serve --model null --batch-size 8 --bind --endpoint ipc://held 2> ready &
held=$!
exec 3< ready
read -r line <&3
echo "$line"
"$penstock" serve --model null --batch-size 8 --bind --endpoint ipc://held
expect "endpoint in use" 2 $?
kill -INT $held
wait $held
expect "interrupted" 130 $?
test ! -e held
expect "socket file removed (test)" 0 $?

"$penstock" serve --fake-location zmq-serve
expect "zmq-serve as a feeder" 3 $?
"$penstock" serve --img-per-s=-5
expect "a rate below 0" 2 $?
"$penstock" serve --hwm 0
expect "no room in the socket" 2 $?
