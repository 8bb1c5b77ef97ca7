#!/bin/sh
# Measures on all GPUs of this machine, one process each, as torchrun starts a training:
#   examples/torchrun/run.sh 4
# On several machines start the same on each, as you start your training there, with torchrun's own flags:
#   examples/torchrun/run.sh 4 --nnodes 2 --node-rank 0 --master-addr node1 --master-port 29500
# torchrun's store listens at the port, and ranks of Penstock meet one port above it.
processes=${1:-2}
[ $# -eq 0 ] || shift
# The device is emulated, so that this runs anywhere. Leave --device out to train on the GPUs, and put your own loader in
# place of the feeder: --loader train.py:make_loader
exec torchrun --nproc-per-node "$processes" "$@" --no-python penstock run --variable-update horovod \
  --device emulated:img_per_s=2000 --model trivial --batch-size 32 --num-batches 50 --fake-location host
