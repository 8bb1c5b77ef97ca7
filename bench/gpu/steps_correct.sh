# SPDX-License-Identifier: Apache-2.0
# The steps of the stage `correct`, for visit.sh.
driver=gpu
[ -z "$dry" ] || driver=host

# run_check VERB ARGUMENTS...: the verb's last line and its failures are the headline. A step may make
# several; its result is the array of theirs.
run_check() {
  local rc parts
  parts=$(find "$work/results" -name "$NAME.part*" | wc -l)
  reported check "$1" --driver "$driver" --json "$work/results/$NAME.part$parts" "${@:2}"
  rc=$?
  { tail -n 1 "$LINES_FILE"; grep '^FAIL' "$LINES_FILE" | head -n 10; } >> "$HEADLINE"
  together "$work/results/$NAME.part"* > "$RESULT"
  return $rc
}
# Of the step's time, what checks may take; the rest is for starting and for the last of them.
seconds() { echo $((PENSTOCK_STEP_SECONDS * ${1:-80} / 100)); }

step_inventory() {
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
  command -v nvcc > /dev/null && nvcc --version | tail -n 2
  for tool in ncu nsys compute-sanitizer cuda-gdb cuobjdump; do
    echo "$tool: $(command -v "$tool" || echo none)"
  done
  echo "libraries: $PENSTOCK_LIBRARIES"
  (IFS=:; for folder in $PENSTOCK_LIBRARIES; do ls -l "$folder"/lib{cudnn,nccl,cublasLt,cudart,cuda,nvjpeg}*.so.* 2> /dev/null; done)
  "$PYTHON" - <<'ASK' | headline
import sys
try:
    import torch
    print("python", sys.version.split()[0], "torch", torch.__version__, "cuda", torch.version.cuda, "cudnn",
          torch.backends.cudnn.version(), "nccl", torch.cuda.nccl.version() if torch.cuda.is_available() else "-")
except Exception as error:
    print("python", sys.version.split()[0], "without torch:", error)
for name in ("torchvision", "triton", "numpy"):
    try:
        print(name, __import__(name).__version__)
    except Exception:
        print(name, "none")
ASK
  penstock --version | headline
}

step_device() {
  reported check device --driver "$driver" --json "$RESULT" --expect "$here/../../tests/trainer/gpu/h200.json"
  local rc=$?
  grep -v '^NOTE dnn_properties:' "$LINES_FILE" >> "$HEADLINE"
  return $rc
}

step_ceilings() {
  need_gpu
  check ceilings --json "$RESULT" | headline
  return "${PIPESTATUS[0]}"
}

# Some of each kind where the host plays the GPU: that it does so rightly is what its own tests say.
step_kernels() { run_check kernels --seconds "$(seconds)" ${dry:+--only 20x8,2x7x9x3,17x15,5x7,UpdateWeights}; }
step_graphs() { run_check graphs --seconds "$(seconds)" ${dry:+--only conv,residual,block}; }
# Of fp16, the engines that timing may prefer, too; of the others the first two.
step_convolutions() {
  local rc=0
  run_check convolutions --seconds "$(seconds 50)" --only "fp16 ${dry:+7x7x512_1x1}" || rc=1
  [ -n "$dry" ] || run_check convolutions --seconds "$(seconds 35)" --engines 2 --only "bf16 ,fp32 ,tf32 " || rc=1
  return $rc
}
step_patterns() { run_check patterns --seconds "$(seconds)" ${dry:+--only 7x7x512_1x1s1_2048}; }

step_gradients() { compare gradients --device gpu:autotune=false,fused=off; }
step_losses() { compare losses --device gpu:autotune=false,fused=off; }

# Small shapes of every kernel: tools make them a hundred times slower.
small=50x7,20x8,5x2056,2x7x9x3,3x5x4x17,1x1x1x5,17x15,5x7,SetStep,SetHyper,Summarise,CheckFinite,SumSquares,FindTrust,UpdateWeights,AdaptLossScale,SumSlices,WidenGradients,1003
sanitize() {
  local filter rc
  need_gpu
  PATH=$PATH:/usr/local/cuda/bin:/usr/local/cuda/compute-sanitizer need compute-sanitizer
  PATH=$PATH:/usr/local/cuda/bin:/usr/local/cuda/compute-sanitizer
  filter="--filter kns=penstock"
  if compute-sanitizer --help 2>&1 | grep -q -- --kernel-regex; then filter="--kernel-regex kns=penstock"; fi
  # shellcheck disable=SC2086
  reported compute-sanitizer --tool "$1" --target-processes all --error-exitcode 9 --print-limit 30 $filter \
    "$here/with_libraries.sh" penstock_gpu_check kernels --json "$RESULT" --seconds "$(seconds)" --only "$small"
  rc=$?
  { grep -E 'SUMMARY|^kernels:' "$LINES_FILE"; grep -E '^(FAIL|========= (Invalid|Error|Uninit|Race|Barrier))' "$LINES_FILE" | head -n 8; } >> "$HEADLINE"
  return $rc
}
step_memcheck() { sanitize memcheck; }
step_racecheck() { sanitize racecheck; }
step_initcheck() { sanitize initcheck; }
