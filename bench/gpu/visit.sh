#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A visit to a GPU machine: all checks and measurements for a short stay there, in four calls of under
# ten minutes, without interaction. A call may be killed at any time, and the next one may run on
# another machine. See README.md beside this file; steps.sh has the steps.
#
# Usage: visit.sh 1|2|3|4 [--dry] [--out DIR] [--resume FILE] [--budget SECONDS] [--only STEP,...] [--again] [--state DIR]
#   1|2|3|4    the call; it first continues steps of earlier calls that were interrupted or not reached
#   --dry      runs at small sizes the parts that need no GPU
#   --out      folder for the results (default: visit)
#   --resume   the state.tar.gz of the previous call, for a machine that has no state of a visit yet
#   --budget   seconds after which no step begins, and running steps end (default: 530)
#   --only     runs only these steps, of any call
#   --again    repeats this call's finished steps
#   --state    folder that this machine keeps between calls (default: ~/.cache/penstock-visit)
set -u
trap 'exit 143' TERM INT  # runs once the current command has ended, so no command outlives a step
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
usage() { sed -n 's/^# \{0,1\}//; 7,15p' "${BASH_SOURCE[0]}" >&2; exit 2; }
fail() { echo "visit.sh: $*" >&2; exit 2; }

call='' dry='' out=visit resume='' budget=530 only='' again='' state='' NAME=''
while [ $# -gt 0 ]; do
  case $1 in
    [1-4]) call=$1 ;;
    --dry) dry=1 ;;
    --again) again=1 ;;
    --out | --resume | --budget | --only | --state | --step)
      [ $# -ge 2 ] || usage
      case $1 in
        --out) out=$2 ;;
        --resume) resume=$2 ;;
        --budget) budget=$2 ;;
        --only) only=,$2, ;;
        --state) state=$2 ;;
        --step) NAME=$2 ;;  # within a step
      esac
      shift
      ;;
    *) usage ;;
  esac
  shift
done
[ -n "$call$NAME" ] || usage
[[ $budget =~ ^[0-9]+$ ]] || usage
state=${state:-${HOME:-/tmp}/.cache/penstock-visit}
mkdir -p "$state" || exit 2
state=$(cd "$state" && pwd)
kind=gpu
[ -z "$dry" ] || kind=dry  # a dry call does not finish a step of a real call
work=$state/$kind          # the files that are packed
journal=$work/steps.tsv    # step, verdict, exit code, seconds, note; the last line of a step counts

# shellcheck source=bench/gpu/steps.sh
. "$here/steps.sh"
if [ -n "$NAME" ]; then
  "step_$NAME"
  exit
fi

if [ -n "$resume" ] && [ ! -e "$journal" ]; then
  [ -r "$resume" ] || fail "--resume: there is no file $resume; give the state.tar.gz of an earlier call"
  rm -rf "$state/unpacked" && mkdir "$state/unpacked"
  tar -C "$state/unpacked" -xzf "$resume" "$kind"
  [ -e "$state/unpacked/$kind/steps.tsv" ] \
    || fail "--resume: $resume is not the state.tar.gz of an earlier call of this kind ($kind)"
  rm -rf "$work"
  # Steps that prepared the earlier machine must run again on this one.
  for NAME in $(step_names here); do printf '%s\tnot run\t-\t0\tanother machine\n' "$NAME"; done >> "$state/unpacked/$kind/steps.tsv"
  mv "$state/unpacked/$kind" "$work"
elif [ -n "$resume" ]; then
  echo "this machine has a visit's state in $work: $resume is not needed"
fi
if [ -e "$work/gpu" ] && [ "$(gpu_name)" != "$(cat "$work/gpu")" ]; then
  echo "earlier calls ran on another GPU ($(cat "$work/gpu")): all steps run again on this one ($(gpu_name))"
  rm -rf "$work"
fi
mkdir -p "$out" "$work"/{logs,results,steps,profile} || exit 2
out=$(cd "$out" && pwd)
touch "$journal"
gpu_name > "$work/gpu"
rm -f "$out"/*.new

declare -A verdicts=()
while IFS=$'\t' read -r name verdict _; do verdicts[$name]=$verdict; done < "$journal"
record() {  # STEP VERDICT CODE SECONDS NOTE
  printf '%s\t%s\t%s\t%s\t%s\n' "$@" >> "$journal"
  verdicts[$1]=$2
  [ "$2" = running ] || echo "$1: $2 (rc $3, $4 s) $5"
}

# The last line of each step, in the order of the table.
latest() { awk -F '\t' 'NR == FNR { last[$1] = $0; next } $1 in last { print last[$1] }' "$journal" <(step_names); }
write_summary() {
  echo "call $call, $(date -u +%FT%TZ)"
  latest | awk -F '\t' '{ printf "%-16s %-12s %4s s  %s\n", $1, $2, $4, $5 }'
  local name
  for name in $(step_names); do
    if [ -s "$work/steps/$name.headline" ]; then
      echo "-- $name"
      head -n 24 "$work/steps/$name.headline" | cut -c 1-200
    fi
  done
}
# Writes the table, and each result under its step. Each file is one complete JSON value.
write_results() {
  local file separator=''
  latest | awk -F '\t' -v call="$call" 'BEGIN { printf "{\"call\":%s,\"steps\":[", call } {
    gsub(/[\\"]/, "\\\\&", $5); gsub(/[[:cntrl:]]/, " ", $5)
    printf "%s{\"name\":\"%s\",\"verdict\":\"%s\",\"rc\":\"%s\",\"seconds\":%s,\"note\":\"%s\"}", (NR > 1 ? "," : ""), $1, $2, $3, $4, $5
  } END { printf "],\"results\":{" }'
  while read -r file; do
    printf '%s"%s":' "$separator" "${file%.json}"
    cat "$work/results/$file"
    separator=,
  done < <(cd "$work/results" && find . -name '*.json' -size +0 -printf '%P\n' | sort)
  echo '}}'
}
# Without unfinished files, ours and those of our programs.
write_state() {  # MORE OPTIONS
  tar -C "$state" --exclude='*.new' --exclude='.penstock-*.tmp' --warning=no-file-changed --warning=no-file-removed -cz "$@" "$kind"
}
# in_place FILE COMMAND...: replaces that file of the results with the command's output, in one rename.
in_place() {
  "${@:2}" > "$out/$1.new"
  mv "$out/$1.new" "$out/$1"
}
most=15000000  # largest size of the state, in bytes
pack() {
  in_place summary.txt write_summary
  in_place results.json write_results
  in_place state.tar.gz write_state
  if [ "$(stat -c %s "$out/state.tar.gz")" -gt "$most" ]; then
    in_place state.tar.gz write_state --exclude="$kind/profile"
    echo "the state is larger than $most bytes: the profiles are left out" >> "$out/summary.txt"
  fi
}
# Keeps the beginning and the end of a long log.
cut_log() {
  [ "$(stat -c %s "$1")" -le 4000000 ] || { head -c 1000000 "$1"; printf '\n... cut ...\n'; tail -c 1000000 "$1"; } > "$1.new"
  [ ! -e "$1.new" ] || mv "$1.new" "$1"
}

child='' running='' begun=0
stop() {
  trap - TERM INT
  if [ -n "$child" ]; then
    kill -TERM "$child" 2> /dev/null
    wait "$child"
    record "$running" stopped - $((SECONDS - begun)) "by a signal"
  fi
  pack
  echo "stopped by a signal" >&2
  exit 143
}
trap stop TERM INT

# try STEP LIMIT: runs the step as a process group with that time limit in seconds. Packs its results while it runs.
try() {
  local rc timer
  begun=$SECONDS running=$1
  record "$1" running - 0 "or killed with the call"
  LIMIT=$2 timeout -k 5 "$2" "$BASH" "${BASH_SOURCE[0]}" ${dry:+--dry} --state "$state" --step "$1" \
    > "$work/logs/$1.log" 2>&1 < /dev/null &
  child=$!
  while kill -0 "$child" 2> /dev/null; do
    sleep 10 &
    timer=$!
    wait -n "$child" "$timer"
    if kill -0 "$timer" 2> /dev/null; then
      kill "$timer"
      wait "$timer" 2> /dev/null
      break
    fi
    pack
  done
  wait "$child"
  rc=$?
  child=
  return "$rc"
}

lost=''  # the reason why the GPU is unusable from now on
run_step() {
  local name=$1 limit=$2 left=$((budget - SECONDS)) rc note='' verdict log
  if [ -n "$lost" ] || [ "$left" -lt 5 ]; then
    record "$name" "not run" - 0 "${lost:-no time was left: call again}"
    return
  fi
  [ "$limit" -le "$left" ] || limit=$left
  rm -f "$work/steps/$name."* "$work/logs/$name.memcheck"*
  [ -z "$again" ] || rm -rf "$work/results/$name" "$work/results/$name.json"
  try "$name" "$limit"
  rc=$?
  log=$work/logs/$name.log
  if [ "$rc" -ne 0 ] && [ ! -e "$work/record_false" ] && grep -qE "$recording_failed" "$log"; then
    mv "$log" "$work/logs/$name.recorded.log"
    touch "$work/record_false"
    left=$((budget - SECONDS))
    try "$name" $((limit < left ? limit : left > 5 ? left : 5))
    rc=$?
    echo "recording a step failed, see $name.recorded.log; with gpu:record=false this step ended with $rc" >> "$work/steps/$name.headline"
    [[ $rc =~ ^(0|124|137)$ ]] || rm "$work/record_false"  # recording was not the cause
  fi
  case $rc in
    0) verdict='done' ;;
    77) verdict=skipped note=$(cat "$work/steps/$name.reason" 2> /dev/null) ;;
    124 | 137) verdict="out of time" note="after $limit s; the next call continues it" ;;
    *)
      verdict=FAILED note=$(grep -E '^(FAIL|SKIP|penstock: )|Error' "$log" | tail -n 1)
      note=$(echo "${note:-$(tail -n 1 "$log")}" | cut -c 1-160 | tr '\t' ' ')
      ;;
  esac
  record "$name" "$verdict" "$rc" $((SECONDS - begun)) "$note"
  find "$work/logs" -name '*.cudnn.*' -empty -delete
  for log in "$work/logs/$name."*log; do cut_log "$log"; done
  left=$((budget - SECONDS))
  if [[ ! $rc =~ ^(0|77|124)$ ]] && [ "$left" -ge 15 ] && ! gpu_answers $((left < 40 ? left : 40)); then
    lost="the GPU does not answer since step $name"
    echo "$lost" >> "$work/steps/$name.headline"
  fi
}

pack
while read -r of name limit _; do
  if [ -n "$only" ]; then
    [[ $only == *",$name,"* ]] || continue
  elif [ "$of" -gt "$call" ]; then
    break
  elif [ "$of" -lt "$call" ] && [[ ${verdicts[$name]:-} =~ ^(done|skipped|FAILED)$ ]]; then
    continue  # a later call does not retry failed steps
  fi
  [[ -n $again || ! ${verdicts[$name]:-} =~ ^(done|skipped)$ ]] || continue
  run_step "$name" "$limit"
  pack
done <<< "$table"
pack
cat "$out/summary.txt"
