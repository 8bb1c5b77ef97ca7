# SPDX-License-Identifier: Apache-2.0
# The steps of the stage `speed`, for visit.sh.

# Choosing engines by timing them may take too long: then the library's first ones are used.
tuned_device() {
  if [ -e "$work/steps/autotune.done" ]; then echo gpu; else echo gpu:autotune=false; fi
}
# train DEVICE BATCH PRECISION STEPS: one run's JSON on stdout. Without a GPU: a small net on the processors.
train() {
  if [ -n "$dry" ]; then
    penstock run --json --device cpu --model tiny_cnn --fake-location gpu --batch-size 8 --num-batches 5 --num-warmup-batches 1
  else
    penstock run --json --device "$1" --model resnet50_v1.5 --precision "$3" --fake-location gpu --batch-size "$2" \
      --num-batches "$4" --num-warmup-batches 10 --optimizer momentum:nesterov=false
  fi
}
# Of a run's JSON on stdin: one line.
rate_of() {
  "$PYTHON" -c 'import json, sys
run = json.load(sys.stdin)
of = run["config"]
print("%s on %s, %s, batch %d: %.1f img/s, %s" % (of["model"], of["device"], of["precision"], of["batch_size"], run["img_per_s"], run["status"]))'
}
# measure PART TRAIN...: a run whose rate is a headline.
measure() {
  train "${@:2}" > "$work/results/$NAME.part$1" || return 1
  rate_of < "$work/results/$NAME.part$1" | headline
}

step_autotune() {
  need_gpu
  local begin=$SECONDS
  measure 0 gpu 256 fp16 10 || return 1
  cp "$work/results/$NAME.part0" "$RESULT"
  echo "engines chosen, and ten steps, in $((SECONDS - begin)) s" | headline
  [ -n "$(find "$XDG_CACHE_HOME" -name 'gpu-plans-*.json')" ] && return 0
  echo "no plans were kept under $XDG_CACHE_HOME: each run chooses again" | headline
}

step_rates() {
  local run
  for run in 1 2 3; do measure "$run" "$(tuned_device)" 256 fp16 200 || return 1; done
  # What timing, and fusing convolutions with batch norms, are worth.
  for run in fused=off fused=on autotune=false; do measure "$run" "gpu:$run" 256 fp16 200 || return 1; done
  together "$work/results/$NAME.part"* > "$RESULT"
}

# The engines that were chosen, at the batch that they were chosen for.
step_tuned() {
  need_gpu
  compare gradients --device "$(tuned_device)" --precisions fp16 --batch 256
}

step_peer() {
  need_torch
  "$PYTHON" "$here/../peers/pytorch_gpu.py" variants --json "$RESULT" --seconds $((PENSTOCK_STEP_SECONDS - 10)) \
    ${dry:+--device cpu --model resnet18 --batch 2 --image-size 32 --steps 2 --warmup 1 --rounds 1} | headline
  return "${PIPESTATUS[0]}"
}

alternate() {
  need_torch
  [ -z "$dry" ] || [ "$1" = 256 ] || skip "one batch is enough without a GPU"
  "$PYTHON" "$here/alternate.py" --penstock "$here/with_libraries.sh penstock" --json "$RESULT" --batch "$1" \
    --device "$(tuned_device)" \
    --variants "$work/results/peer.json" --seconds $((PENSTOCK_STEP_SECONDS - 10)) \
    ${dry:+--device cpu --model resnet18 --precision fp32 --batch 2 --image-size 32 --steps 2 --warmup 1 --rounds 2} | headline
  return "${PIPESTATUS[0]}"
}
step_alternate_256() { alternate 256; }
step_alternate_512() { alternate 512; }
step_alternate_128() { alternate 128; }
step_alternate_64() { alternate 64; }

step_precisions() {
  local precision
  for precision in bf16 tf32 fp32; do measure "$precision" gpu:autotune=false 256 "$precision" 30 || return 1; done
  together "$work/results/$NAME.part"* > "$RESULT"
}

# The kernels of one step under the profiler. Steps repeat, so any stretch as long as one has all.
step_profile() {
  need_gpu
  PATH=$PATH:/usr/local/cuda/bin
  need ncu
  local device
  device=$(tuned_device)
  train "$device" 256 fp16 3 > "$work/results/$NAME.part" || return 1
  local operations metrics
  operations=$("$PYTHON" -c 'import json, sys; print(int(json.load(sys.stdin)["facts"]["operations_per_step"]))' < "$work/results/$NAME.part")
  metrics=$(ncu --query-metrics 2> /dev/null | "$PYTHON" "$here/kernel_profile.py" metrics)
  echo "metrics: $metrics"
  ncu --clock-control none --target-processes all --graph-profiling node --launch-skip $((operations * 4)) \
    --launch-count $((operations * 11 / 10)) --metrics "$metrics" --csv --page raw --log-file "$PROFILE/kernels.csv" \
    "$here/with_libraries.sh" penstock run --json --device "$device" --model resnet50_v1.5 --precision fp16 \
    --fake-location gpu --batch-size 256 --num-batches 6 --num-warmup-batches 2 > /dev/null
  "$PYTHON" "$here/kernel_profile.py" longest "$PROFILE/kernels.csv" --json "$RESULT" | headline
  return "${PIPESTATUS[0]}"
}
