# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2054,SC2154  # shares names with visit.sh; flags' lists have commas
# The steps of a visit for visit.sh, most valuable first: call, step, time limit in seconds. `here`: the step
# prepares the machine, so each machine runs it. With those steps, the limits add up to 515, 520, 230 and 465 s.
table="\
1 machine         10 here
1 libraries       40 here
1 device          25
1 first_light     40
1 torch           40
1 gradients       60
1 autotune        90
1 rates          140
1 ceilings        25
1 trace           45
2 dataset         15 here
2 feeders        150
2 peer           170
2 alternate       75
2 updates         60
3 kernels         35
3 graphs          20
3 convolutions    40
3 patterns        15
3 decode          15
3 losses          40
4 profile         85
4 precisions      50
4 gradients_rest  70
4 tuned           55
4 memcheck        45
4 racecheck       45
4 initcheck       45"
step_names() { awk -v flag="${1:-}" 'flag == "" || $4 == flag { print $2 }' <<< "$table"; }

# Paths and limits for a step. The names in capitals are files that it writes.
RESULT=$work/results/$NAME.json      # figures, as JSON
TURNS=$work/results/$NAME            # or a folder of JSON files, one for each turn
HEADLINE=$work/steps/$NAME.headline  # a few lines for the summary
LINES_FILE=$work/steps/$NAME.lines   # output of the latest command
PROFILE=$work/profile
LIMIT=${LIMIT:-60}  # the step's time limit in seconds
export PYTHON=${PYTHON:-python3} PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
export XDG_CACHE_HOME=$work/cache TORCHINDUCTOR_CACHE_DIR=$state/inductor  # plans are packed, compiled kernels are not
export CUDNN_LOGLEVEL_DBG=1 CUDNN_LOGDEST_DBG=$work/logs/$NAME.cudnn.%i.log  # errors, by process
if [ -s "$state/libraries" ]; then PENSTOCK_LIBRARIES=$(cat "$state/libraries") && export PENSTOCK_LIBRARIES; fi

penstock=("$here/with_libraries.sh" penstock)
check=("$here/with_libraries.sh" penstock_gpu_check)
driver=gpu
[ -z "$dry" ] || driver=host

# Ends a step that this machine cannot run.
skip() { echo "$*" > "$work/steps/$NAME.reason"; echo "skipped: $*"; exit 77; }
need_gpu() { [ -z "$dry" ] || skip "needs a GPU"; }
need_torch() {
  "$PYTHON" -c 'import sys; from importlib.util import find_spec; sys.exit(not (find_spec("torch") and find_spec("numpy")))' \
    || skip "$PYTHON has no PyTorch with NumPy"
}
headline() { tee -a "$HEADLINE"; }
is_done() { [ "$(awk -F '\t' -v name="$1" '$1 == name { last = $2 } END { print last }' "$work/steps.tsv")" = "done" ]; }

# Patterns that identify a failed recording, and an illegal access.
recording_failed='(^penstock: |penstock run exits with ).*(gpu:record=false|cudaErrorStreamCapture|cudaGraph)'
illegal='cudaErrorIllegal|cudaErrorMisaligned|cudaErrorLaunchFailure|cudaErrorInvalidPc|cudaErrorHardwareStackError|illegal memory access'
# What must stay the same for results and plans to hold on another machine.
gpu_name() {
  if [ -n "$dry" ]; then echo dry; else nvidia-smi --query-gpu=name --format=csv,noheader 2> /dev/null | head -n 1; fi
}
# gpu_answers SECONDS: waits at most that long.
gpu_answers() {
  [ -n "$dry" ] || ! is_done libraries || PENSTOCK_LIBRARIES=$(cat "$state/libraries") \
    timeout -k 1 "$1" "${check[@]}" device --driver gpu > "$work/logs/answer.log" 2>&1 < /dev/null
}

# watched FILE COMMAND...: writes the output to the log and to LINES_FILE, and the standard output to FILE.
# After the step's first illegal access it runs the command again under memcheck, which names the kernel.
watched() {
  local rc
  "${@:2}" 2>&1 > "$1" | tee "$LINES_FILE"
  rc=${PIPESTATUS[0]}
  if [ "$rc" -ne 0 ] && grep -qE "$illegal" "$LINES_FILE" && [ ! -e "$work/logs/$NAME.memcheck.log" ]; then
    echo "an illegal access, once more under memcheck" | headline
    under memcheck timeout --foreground -k 5 60 "${@:2}" 2>&1 | tee "$work/logs/$NAME.memcheck.log" | found_by_sanitizer | headline
  fi
  return "$rc"
}
# under TOOL COMMAND...: runs Penstock's programs under compute-sanitizer.
under() {
  local program filter=
  program=$(PATH=$PATH:/usr/local/cuda/bin:/usr/local/cuda/compute-sanitizer command -v compute-sanitizer) || { echo "========= no compute-sanitizer on the PATH"; return 77; }
  if [ "$1" != memcheck ]; then
    filter="--filter kns=penstock"
    if "$program" --help 2>&1 | grep -q -- --kernel-regex; then filter="--kernel-regex kns=penstock"; fi
  fi
  PENSTOCK_UNDER="$program --tool $1 --target-processes all --error-exitcode 9 --print-limit 30 $filter" "${@:2}"
}
found_by_sanitizer() { grep -E '^========= +(Invalid|Error|Uninit|Race|Barrier|Program hit|at |no |ERROR SUMMARY|RACECHECK SUMMARY)|SUMMARY' | head -n 12; }

# turn PART SECONDS COMMAND...: stores the command's standard output as a result. A turn that succeeded in an
# earlier call is not repeated.
turn() {
  local file=$TURNS/$1.json rc
  [ ! -s "$file" ] || return 0
  mkdir -p "$TURNS"
  watched "$file.new" timeout --foreground -k 5 "$2" "${@:3}"
  rc=$?
  if [ "$rc" -eq 0 ]; then mv "$file.new" "$file"; else echo "turn $1 failed with $rc" | headline; fi
  return "$rc"
}

step_machine() {
  uname -srm
  grep -m 1 'model name' /proc/cpuinfo
  echo "$(nproc) processors, $(awk '/MemTotal/ { printf "%.0f GiB", $2 / 1048576 }' /proc/meminfo)" | headline
  if command -v nvidia-smi > /dev/null; then
    nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.mem,clocks.max.sm,power.limit,temperature.gpu,pcie.link.gen.max,pcie.link.width.max \
      --format=csv,noheader | headline
    nvidia-smi -q
  else
    echo "no nvidia-smi" | headline
  fi
  for tool in nvcc ncu nsys compute-sanitizer cuda-gdb cuobjdump; do
    echo "$tool: $(PATH=$PATH:/usr/local/cuda/bin command -v "$tool" || echo none)"
  done
}

# Loads cuDNN and NCCL. This takes long on a machine that has just started.
step_libraries() {
  "$here/with_libraries.sh" 2> "$LINES_FILE" > "$state/libraries.new" && mv "$state/libraries.new" "$state/libraries" || return 1
  headline < "$LINES_FILE"
  PENSTOCK_LIBRARIES=$(cat "$state/libraries")
  echo "libraries: $PENSTOCK_LIBRARIES"
  "${penstock[@]}" --version | headline
  return "${PIPESTATUS[0]}"
}

step_device() {
  watched /dev/stdout "${check[@]}" device --driver "$driver" --json "$RESULT" --expect "$here/../../tests/trainer/backends/gpu/h200.json"
  local rc=$?
  grep -v '^NOTE dnn_properties:' "$LINES_FILE" >> "$HEADLINE"
  return "$rc"
}

step_torch() {
  need_torch
  "$PYTHON" - <<'ASK' | headline
import importlib, sys
import torch
print("python", sys.version.split()[0], "torch", torch.__version__, "cuda", torch.version.cuda, "cudnn", torch.backends.cudnn.version(),
      "GPU", torch.cuda.is_available())
for name in ("triton", "numpy"):
    try:
        print(name, importlib.import_module(name).__version__)
    except Exception:
        print(name, "none")
ASK
  return "${PIPESTATUS[0]}"
}

# run_check PART SECONDS VERB ARGUMENTS...: runs the checks that no earlier call ran. If a check makes the device
# unusable, the program ends, and a new process runs the remaining checks.
run_check() {
  local file=$TURNS/$1.json rc tries failed
  mkdir -p "$TURNS"
  for tries in 1 2 3; do
    "${check[@]}" "$3" --driver "$driver" --seconds "$2" --json "$file" --resume "${@:4}" 2>&1 | tee "$LINES_FILE"
    rc=${PIPESTATUS[0]}
    { tail -n 1 "$LINES_FILE"; grep '^FAIL' "$LINES_FILE" | head -n 10; } >> "$HEADLINE"
    [ "$rc" -eq 8 ] || break
    failed=$(awk '/^FAIL/ { line = $0 } END { sub(/^FAIL /, "", line); sub(/( [a-z_]+=.*|: .*)$/, "", line); print line }' "$LINES_FILE")
    [ -n "$failed" ] || break
    echo "try $tries: '$failed' left the device unusable; once more under memcheck" | headline
    under memcheck timeout --foreground -k 5 60 "${check[@]}" "$3" --driver "$driver" --only "$failed" 2>&1 \
      | tee "$work/logs/$NAME.memcheck$tries.log" | found_by_sanitizer | headline
  done
  # If checks remain, the step is out of time, and the next call runs them.
  ! tail -n 1 "$LINES_FILE" | grep -q 'not made, since the time was up' || rc=124
  return "$rc"
}
# The share of the step's time that checks may use. The rest is for starting and for the last check.
seconds() { echo $((LIMIT * ${1:-80} / 100)); }

# Some of each kind if the host emulates the GPU. Other tests check that emulation.
step_kernels() { run_check all "$(seconds)" kernels ${dry:+--only 20x8,2x7x9x3,17x15,5x7,UpdateWeights}; }
step_graphs() { run_check all "$(seconds)" graphs ${dry:+--only conv,residual,block}; }
# For fp16, also the engines that timing may choose; for the other precisions, the first two.
step_convolutions() {
  local rc=0
  run_check fp16 "$(seconds 50)" convolutions --only "fp16 ${dry:+7x7x512_1x1}" || rc=$?
  [ -n "$dry" ] || run_check others "$(seconds 35)" convolutions --engines 2 --only "bf16 ,fp32 ,tf32 " || rc=$?
  return "$rc"
}
step_patterns() { run_check all "$(seconds)" patterns ${dry:+--only 7x7x512_1x1s1_2048}; }
step_ceilings() {
  need_gpu
  watched /dev/stdout "${check[@]}" ceilings --json "$RESULT" | headline
  return "${PIPESTATUS[0]}"
}

# gpu OPTION...: the device of a run, with settings that earlier steps found.
gpu() {
  [ ! -e "$work/record_false" ] || set -- "$@" record=false
  (IFS=,; echo "gpu${*:+:$*}")
}
# If timing takes too long to choose engines, the library's first engines are used.
tuned() { if is_done autotune; then gpu "$@"; else gpu autotune=false "$@"; fi; }

# compare WHAT ARGUMENTS...: compares one step, or fifty, with PyTorch's. Lines of single tensors and steps go
# only to the log.
compare() {
  local rc
  need_torch
  if [ -n "$dry" ]; then
    set -- "$@" --device cpu --torch-device cpu --batch 2 --image-size 64 --steps 2 --learning-rate 1e-4 --precisions fp32,fp16
  fi
  watched /dev/stdout "$PYTHON" "$here/compare_step.py" "$1" --penstock "${penstock[*]}" --json "$RESULT" \
    --fused-device "$(gpu autotune=false fused=on)" "${@:2}"
  rc=$?
  grep -E '^(PASS|FAIL|SKIP)|Error' "$LINES_FILE" >> "$HEADLINE"
  return "$rc"
}
step_gradients() { compare gradients --device "$(gpu autotune=false fused=off)" --precisions fp16,fp16+fused; }
step_gradients_rest() { compare gradients --device "$(gpu autotune=false fused=off)" --precisions fp32,tf32,bf16; }
step_losses() { compare losses --device "$(gpu autotune=false fused=off)" --precisions fp16,fp16+fused,fp32,tf32,bf16; }
# The chosen engines, at the batch size for which they were chosen.
step_tuned() {
  need_gpu
  compare gradients --device "$(tuned)" --precisions fp16 --batch 256
}

# measure PART SECONDS DEVICE PRECISION STEPS [FLAG...]: writes a run's JSON, and its rate as a headline. Without a
# GPU, it runs a small network on the CPU.
measure() {
  if [ -n "$dry" ]; then
    turn "$1" "$2" "${penstock[@]}" run --json --device cpu --model tiny_cnn --fake-location gpu --batch-size 8 --num-batches 5 \
      --num-warmup-batches 1 "${@:6}" || return
  else
    turn "$1" "$2" "${penstock[@]}" run --json --device "$3" --model resnet50_v1.5 --precision "$4" --fake-location gpu \
      --batch-size 256 --num-batches "$5" --num-warmup-batches 10 --optimizer momentum:nesterov=false "${@:6}" || return
  fi
  "$PYTHON" -c 'import json, sys
run = json.load(sys.stdin)
of = run["config"]
print("%s: %s on %s, %s, batch %d: %.1f img/s, %s" % (sys.argv[1], of["model"], of["device"], of["precision"], of["batch_size"],
                                                      run["img_per_s"], run["status"]))' \
    "$1" < "$TURNS/$1.json" | headline
}

# The first rates, with the library's first engines. It shows early whether steps can be recorded.
step_first_light() {
  local rc=0
  measure unfused 25 "$(gpu autotune=false fused=off)" fp16 30 || rc=$?
  measure fused 25 "$(gpu autotune=false fused=on)" fp16 30 || rc=$?
  return "$rc"
}

step_autotune() {
  need_gpu
  local begin=$SECONDS
  measure run $((LIMIT - 5)) "$(gpu)" fp16 10 || return
  echo "engines chosen, and ten steps, in $((SECONDS - begin)) s" | headline
  [ -n "$(find "$XDG_CACHE_HOME" -name 'gpu-plans-*.json')" ] || echo "no plans were kept under $XDG_CACHE_HOME: each run chooses again" | headline
}

# The gain from timing engines, from fusing convolutions with batch norms, and from a stem over blocks. Engines that sum in less than f32
# are not timed yet, so that turn is last.
step_rates() {
  local rc=0
  measure tuned_1 25 "$(tuned)" fp16 100 || rc=$?
  measure fused_off 25 "$(tuned fused=off)" fp16 100 || rc=$?
  measure fused_on 25 "$(tuned fused=on)" fp16 100 || rc=$?
  measure plain_stem 25 "$(tuned stem_blocks=off)" fp16 100 || rc=$?
  measure tuned_2 25 "$(tuned)" fp16 100 || rc=$?
  measure first_engines 25 "$(gpu autotune=false)" fp16 100 || rc=$?
  measure tuned_3 25 "$(tuned)" fp16 100 || rc=$?
  measure reduced_precision 60 "$(tuned reduced_precision=true)" fp16 100 || rc=$?
  return "$rc"
}
step_precisions() {
  local precision rc=0
  for precision in bf16 tf32 fp32; do measure "$precision" 25 "$(gpu autotune=false)" "$precision" 30 || rc=$?; done
  return "$rc"
}

step_peer() {
  need_torch
  "$PYTHON" "$here/../peers/pytorch_gpu.py" variants --json "$RESULT" --seconds $((LIMIT - 10)) \
    ${dry:+--device cpu --model resnet18 --batch 2 --image-size 32 --steps 2 --warmup 1 --rounds 1} | headline
  return "${PIPESTATUS[0]}"
}

step_alternate() {
  need_torch
  watched /dev/stdout "$PYTHON" "$here/alternate.py" --penstock "${penstock[*]}" --json "$RESULT" --batch 256 --device "$(tuned)" \
    --steps 60 --variants "$work/results/peer.json" --seconds $((LIMIT - 15)) \
    ${dry:+--device cpu --model resnet18 --precision fp32 --batch 2 --image-size 32 --steps 2 --warmup 1 --rounds 2}
  local rc=$?
  headline < "$LINES_FILE" > /dev/null
  return "$rc"
}

# The time of each kernel in a step.
step_trace() {
  measure run 50 "$(tuned)" fp16 20 --trace-file "$PROFILE/trace.json" --trace-steps 10 || return
  [ -z "$dry" ] || return 0  # a trace of the host has no kernels
  "$PYTHON" "$here/kernel_profile.py" longest "$PROFILE/trace.json" --json "$RESULT" | headline
  return "${PIPESTATUS[0]}"
}

# Profiles the kernels of one step: how busy memory and matrix units are. Steps repeat, so any interval of one
# step's length contains all kernels.
step_profile() {
  need_gpu
  PATH=$PATH:/usr/local/cuda/bin
  command -v ncu > /dev/null || skip "no ncu on the PATH"
  measure run 30 "$(tuned)" fp16 3 || return
  local operations metrics
  operations=$("$PYTHON" -c 'import json, sys; print(int(json.load(sys.stdin)["facts"]["operations_per_step"]))' < "$TURNS/run.json")
  metrics=$(ncu --query-metrics 2> /dev/null | "$PYTHON" "$here/kernel_profile.py" metrics)
  echo "metrics: $metrics"
  # If it is stopped early, its measurements so far remain.
  timeout --foreground -s INT -k 10 $((LIMIT - 35)) \
    ncu --clock-control none --target-processes all --graph-profiling node --launch-skip $((operations * 4)) \
    --launch-count $((operations * 11 / 10)) --metrics "$metrics" --csv --page raw --log-file "$PROFILE/kernels.csv" \
    "${penstock[@]}" run --json --device "$(tuned)" --model resnet50_v1.5 --precision fp16 \
    --fake-location gpu --batch-size 256 --num-batches 6 --num-warmup-batches 2 > /dev/null
  "$PYTHON" "$here/kernel_profile.py" longest "$PROFILE/kernels.csv" --json "$RESULT" | headline
  return "${PIPESTATUS[0]}"
}

# Photographs to decode; they stay on this machine.
data=$state/data${dry:+_dry}
step_dataset() {
  [ -d "$data/train" ] || {
    rm -rf "$data.new"
    "${penstock[@]}" dataset make --data-dir "$data.new" --images "$([ -n "$dry" ] && echo 40 || echo 2000)" --val-images 8 \
      --threads "$(nproc)" && mv "$data.new" "$data"
  } || return 1
  "${penstock[@]}" dataset inspect --data-dir "$data/train" | head -n 6 | headline
}

# sweep PART SECONDS ARGUMENTS...: a turn that is a sweep. Partial results of an interrupted sweep are kept, too.
sweep() {
  local folder=$work/sweeps/$NAME.$1 file=$TURNS/$1.json rc=0
  if [ ! -s "$file" ]; then
    rm -rf "$folder"
    watched /dev/stdout "${penstock[@]}" sweep --out "$folder" --data-dir "$data/train" --time-budget "$2s" "${@:3}" || rc=$?
    if [ "$rc" -eq 0 ]; then mkdir -p "$TURNS" && cp "$folder/results.json" "$file.new" && mv "$file.new" "$file"; fi
  fi
  [ ! -s "$folder/results.md" ] || { echo "$1:"; awk '/^\|/ { print; seen = 1; next } seen { exit }' "$folder/results.md"; } | headline
  return "$rc"
}
# Each combination runs once first, for an early table, and then three times, for intervals.
sweep_twice() {
  sweep once $((LIMIT / 3)) --repetitions 1 "$@" || return
  [ -n "$dry" ] || sweep repeated $((LIMIT * 2 / 3 - 15)) --repetitions 3 "$@"
}
on_cpu=(--model tiny_cnn --batch-size 8 --num-batches 10 --num-warmup-batches 2 --noextend-window)
step_feeders() {
  local feeders=(--fake-location gpu,host,cpu,queue,zmq-consume --num-gpus 1)
  if [ -n "$dry" ]; then
    sweep_twice "${feeders[@]}" --device emulated:img_per_s=2000 "${on_cpu[@]}"
  else
    sweep_twice "${feeders[@]}" --device "$(tuned)" --model resnet50_v1.5 --precision fp16 --batch-size 256 --num-batches 60
  fi
}
# Decoding on the CPU and by nvJPEG: whether the pixels are alike, and the rates.
step_decode() {
  local engine rc
  for engine in libjpeg nvjpeg; do
    "${penstock[@]}" look --json --feeder "queue:engine=$engine,crop=center,flip=false,shrink=false" --data-dir "$data/train" \
      --order strict --num-batches 4 --batch-size 32 > "$work/logs/decode.$engine.json" 2> "$LINES_FILE"
    rc=$?
    [ "$rc" -ne 3 ] || skip "$(tail -n 1 "$LINES_FILE")"
    [ "$rc" -eq 0 ] || { cat "$LINES_FILE"; return "$rc"; }
  done
  "$PYTHON" - "$work/logs/decode.libjpeg.json" "$work/logs/decode.nvjpeg.json" <<'COMPARE' | headline
import json, sys
libjpeg, nvjpeg = (json.load(open(name)) for name in sys.argv[1:])
off = max(abs(a[key] - b[key]) for a, b in zip(libjpeg["channels"], nvjpeg["channels"]) for key in ("mean", "deviation"))
left = nvjpeg["counters"].get("images_by_another_engine", 0)
print(f"nvJPEG's means and deviations of channels differ from libjpeg's by {off:.2g} at most; libjpeg decoded {left} of {nvjpeg['images']} images")
if off > 1 or left > nvjpeg["images"] // 10:
    sys.exit("FAIL: expected at most 1, and a tenth of the images")
COMPARE
  [ "${PIPESTATUS[0]}" -eq 0 ] || return 1
  sweep once $((LIMIT - 12)) --repetitions 1 --model null --num-gpus 1 --device emulated:copy=none --num-batches 40 \
    --fake-location queue,queue:engine=libjpeg,queue:engine=nvjpeg
}
step_updates() {
  local updates=(--variable-update replicated,parameter_server --fake-location gpu)
  if [ -n "$dry" ]; then
    sweep_twice "${updates[@]}" --device cpu --num-gpus 1,2 "${on_cpu[@]}"
  else
    sweep_twice "${updates[@]}" --device "$(gpu autotune=false replicas=4)" --num-gpus 1,4 --model resnet50_v1.5 --precision fp16 --batch-size 64 \
      --num-batches 30
  fi
}

# Every kernel at small shapes, because the tools make kernels a hundred times slower.
small=50x7,20x8,5x2056,2x7x9x3,3x5x4x17,1x1x1x5,17x15,5x7,SetStep,SetHyper,Summarise,CheckFinite,SumSquares,FindTrust,UpdateWeights,AdaptLossScale,WidenGradients,3+9001
sanitize() {
  need_gpu
  local rc
  under "$1" "${check[@]}" kernels --json "$RESULT" --seconds "$(seconds)" --only "$small" 2>&1 | tee "$LINES_FILE"
  rc=${PIPESTATUS[0]}
  [ "$rc" -ne 77 ] || skip "no compute-sanitizer on the PATH"
  { grep -E '^kernels:' "$LINES_FILE"; found_by_sanitizer < "$LINES_FILE"; grep '^FAIL' "$LINES_FILE" | head -n 8; } >> "$HEADLINE"
  return "$rc"
}
step_memcheck() { sanitize memcheck; }
step_racecheck() { sanitize racecheck; }
step_initcheck() { sanitize initcheck; }
