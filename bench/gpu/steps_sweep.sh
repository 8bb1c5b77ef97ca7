# SPDX-License-Identifier: Apache-2.0
# The steps of the stage `sweep`, for visit.sh.
data=$state/data

# Photographs to decode; kept for the next call.
step_dataset() {
  [ -d "$data/train" ] || penstock dataset make --data-dir "$data" --images "$([ -n "$dry" ] && echo 40 || echo 2000)" --val-images 8 \
    --threads "$(nproc)" || return 1
  penstock dataset inspect --data-dir "$data/train" | head -n 6 | headline
}

# sweep NAME ARGUMENTS...: its tables come back.
sweep() {
  local folder=$work/results/$NAME.folder rc
  penstock sweep --out "$folder" --data-dir "$data/train" --time-budget $((PENSTOCK_STEP_SECONDS - 20))s "$@"
  rc=$?
  [ ! -s "$folder/results.json" ] || cp "$folder/results.json" "$RESULT"
  [ ! -s "$folder/results.md" ] || grep '^|' "$folder/results.md" | headline
  return $rc
}

step_feeders() {
  if [ -n "$dry" ]; then
    sweep --fake-location gpu,host,cpu,queue,zmq-consume --device emulated:img_per_s=2000 --num-gpus 1 --model tiny_cnn \
      --batch-size 8 --num-batches 10 --num-warmup-batches 2 --noextend-window --repetitions 1
  else
    sweep --fake-location gpu,host,cpu,queue,zmq-consume --device gpu --model resnet50_v1.5 --precision fp16 --num-gpus 1 \
      --batch-size 256 --num-batches 100 --repetitions 3
  fi
}

step_updates() {
  if [ -n "$dry" ]; then
    sweep --variable-update replicated,parameter_server --fake-location gpu --device cpu --num-gpus 1,2 --model tiny_cnn \
      --batch-size 8 --num-batches 10 --num-warmup-batches 2 --noextend-window --repetitions 1
  else
    sweep --variable-update replicated,parameter_server --fake-location gpu --device gpu:replicas=4 --num-gpus 1,2,4 \
      --model resnet50_v1.5 --precision fp16 --batch-size 64 --num-batches 50 --repetitions 2
  fi
}
