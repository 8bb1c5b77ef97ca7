#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# One stage of a visit to a machine with a GPU: everything that a short stay there should settle,
# without a question asked. See README.md beside this file.
#
# Usage: visit.sh STAGE [--dry] [--out DIR] [--budget SECONDS] [--again] [--state DIR] [--only STEP]
#   STAGE      correct, speed or sweep
#   --dry      what can be run without a GPU, at small sizes
#   --out      where the results go (default: visit-STAGE)
#   --budget   seconds after which no step begins, and running ones end (default: 470)
#   --again    repeat steps that an earlier call finished
#   --state    what calls remember: finished steps, plans, data (default: ~/.cache/penstock-visit)
#   --only     this step alone
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
usage() { sed -n 's/^# \{0,1\}//; 6,14p' "${BASH_SOURCE[0]}" >&2; exit 2; }

dry= out= budget=470 again= state= only= stage= inner=
while [ $# -gt 0 ]; do
  case $1 in
    correct | speed | sweep) stage=$1 ;;
    --dry) dry=1 ;;
    --again) again=1 ;;
    --out | --budget | --state | --only | --step)
      [ $# -ge 2 ] || usage
      case $1 in
        --out) out=$2 ;;
        --budget) budget=$2 ;;
        --state) state=$2 ;;
        --only) only=$2 ;;
        --step) inner=$2 ;;
      esac
      shift
      ;;
    *) usage ;;
  esac
  shift
done
[ -n "$stage" ] || usage
[[ $budget =~ ^[0-9]+$ ]] || usage
out=${out:-visit-$stage}
state=${state:-${HOME:-/tmp}/.cache/penstock-visit}
mkdir -p "$out" "$state" || exit 2
out=$(cd "$out" && pwd)
given_state=$(cd "$state" && pwd)
state=$given_state${dry:+/dry}  # a dry call finishes no step of a real one
work=$state/$stage

export PYTHON=${PYTHON:-python3}
export PENSTOCK_LIBRARIES=${PENSTOCK_LIBRARIES:-$("$here/libraries.sh")}
export XDG_CACHE_HOME=$state/cache TORCHINDUCTOR_CACHE_DIR=$state/cache/inductor
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
mkdir -p "$work"/{logs,results,steps,profile} "$XDG_CACHE_HOME"

# What a step may use. The names in capitals are what it writes to.
NAME=${inner:-none}
RESULT=$work/results/$NAME.json   # figures, as JSON
HEADLINE=$work/steps/$NAME.headline  # a few lines for the summary
PROFILE=$work/profile
penstock() { "$here/with_libraries.sh" penstock "$@"; }
check() { "$here/with_libraries.sh" penstock_gpu_check "$@"; }
# Ends a step that this machine cannot do.
skip() { echo "$*" > "$work/steps/$NAME.reason"; echo "skipped: $*"; exit 77; }
need_gpu() { [ -z "$dry" ] || skip "needs a GPU"; }
need_torch() { "$PYTHON" -c 'import numpy, torch' 2> /dev/null || skip "$PYTHON has no PyTorch with NumPy"; }
need() { command -v "$1" > /dev/null || skip "no $1 on the PATH"; }
headline() { tee -a "$HEADLINE"; }
# reported COMMAND...: its output goes to the log as it comes, and to a file for the headline.
LINES_FILE=$work/steps/$NAME.lines
reported() {
  "$@" 2>&1 | tee "$LINES_FILE"
  return "${PIPESTATUS[0]}"
}
# together FILES...: their JSON values as one array.
together() {
  local file separator='['
  for file in "$@"; do printf '%s' "$separator"; cat "$file"; separator=,; done
  echo ']'
}

# compare WHAT ARGUMENTS...: one step, or fifty, beside PyTorch's. Lines of single tensors and steps are
# for the log alone.
compare() {
  local rc
  need_torch
  if [ -n "$dry" ]; then
    set -- "$1" --device cpu --torch-device cpu --precisions fp32,fp16 --batch 2 --image-size 64 --steps 2 --learning-rate 1e-4
  fi
  reported "$PYTHON" "$here/compare_step.py" --penstock "$here/with_libraries.sh penstock" --json "$RESULT" "$@"
  rc=$?
  grep -E '^(PASS|FAIL|SKIP)|Error' "$LINES_FILE" >> "$HEADLINE"
  return $rc
}

# Steps, in order: name, most seconds, and what is lost without it.
case $stage in
  correct) steps="inventory:20 device:20 kernels:75 ceilings:40 graphs:45 gradients:80 convolutions:100 losses:60
                  patterns:45 memcheck:45 racecheck:45 initcheck:45" ;;
  speed) steps="autotune:200 rates:60 peer:170 alternate_256:120 tuned:90 profile:120 alternate_512:100 alternate_128:100
                alternate_64:100 precisions:60" ;;
  sweep) steps="dataset:40 feeders:240 updates:150" ;;
esac
. "$here/steps_$stage.sh"

if [ -n "$inner" ]; then
  "step_$inner"
  exit
fi

record() {  # NAME VERDICT RC SECONDS NOTE
  printf '%s\t%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$4" "$5" > "$work/steps/$1.tsv"
  echo "$1: $2 (rc $3, $4 s) $5"
}

child= running=
stop() {
  trap - TERM INT
  if [ -n "$child" ]; then
    kill -TERM "$child" 2> /dev/null
    wait "$child"
    record "$running" stopped - $((SECONDS - begun)) "by a signal"
  fi
  echo "stopped by a signal" >&2
  exit 143
}
finish() {
  "$here/pack_results.sh" "$stage" "$work" "$out" "$steps" "$XDG_CACHE_HOME"
}
trap stop TERM INT
trap finish EXIT

run_step() {
  local name=$1 limit=$2 left=$((budget - SECONDS)) rc note= verdict
  [ -z "$only" ] || [ "$only" = "$name" ] || return 0
  if [ -e "$work/steps/$name.done" ] && [ -z "$again" ]; then return 0; fi
  if [ "$left" -lt 5 ]; then
    record "$name" "not run" - 0 "no time was left: call again"
    return 0
  fi
  [ "$limit" -le "$left" ] || limit=$left
  rm -f "$work/steps/$name."* "$work/results/$name."{json,part}*
  local before=$SECONDS
  PENSTOCK_STEP_SECONDS=$limit timeout -k 5 "$limit" "$BASH" "${BASH_SOURCE[0]}" "$stage" ${dry:+--dry} \
    --out "$out" --state "$given_state" --step "$name" > "$work/logs/$name.log" 2>&1 < /dev/null &
  child=$! running=$name begun=$before
  wait "$child"
  rc=$?
  child=
  case $rc in
    0) verdict=done ;;
    77) verdict=skipped note=$(cat "$work/steps/$name.reason" 2> /dev/null) ;;
    124 | 137)
      verdict="out of time" note="after $limit s; what it had left is kept"
      if [ -e "$work/steps/$name.lines" ]; then
        { grep '^FAIL' "$work/steps/$name.lines" | head -n 8; tail -n 1 "$work/steps/$name.lines"; } >> "$work/steps/$name.headline"
      fi
      ;;
    *) verdict=FAILED note=$(grep -v '^[[:space:]]*$' "$work/logs/$name.log" | tail -n 1 | cut -c 1-160) ;;
  esac
  [ "$rc" -ne 0 ] && [ "$rc" -ne 77 ] || touch "$work/steps/$name.done"
  record "$name" "$verdict" "$rc" "$((SECONDS - before))" "$note"
}

for one in $steps; do run_step "${one%:*}" "${one#*:}"; done
