#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A dry call of a visit finishes without a failed step, and writes its files; a second call
# repeats nothing. The limits of its steps fit the call.
# Usage: visit_test.sh CALL SOURCE_DIRECTORY PROGRAMS PYTHON
set -eu
call=$1 source=$2
export PENSTOCK_PROGRAMS=$3 PYTHON=$4 CUDA_VISIBLE_DEVICES=

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
steps() { work=$folder NAME='' dry='' here='' state=$folder bash -uc '. "$1" && echo "$table"' - "$source/bench/gpu/steps.sh"; }
limits=$(steps | awk -v call="$call" '$1 == call || $1 < call && $4 == "here" { sum += $3 } END { print sum }')
most=(0 530 530 250 530)
[ "$limits" -le "${most[call]}" ] || { echo "the limits of call $call add up to $limits s"; exit 1; }

# Only the steps of this call, and those that prepare the machine.
only=$(steps | awk -v call="$call" '$1 == call || $1 < call && $4 == "here" { print $2 }' | paste -sd,)
visit() { "$source/bench/gpu/visit.sh" "$call" --dry --out "$folder/out" --state "$folder/state" --only "$@"; }
visit "$only"
logs=$folder/state/dry/logs

cd "$folder/out"
tar -xzf state.tar.gz
cd dry
if awk -F '\t' '{ last[$1] = $2 } END { for (step in last) print last[step] }' steps.tsv | grep -vxE 'done|skipped'; then
  echo "a step was neither done nor skipped:"
  cat logs/*.log
  exit 1
fi
grep -q "^call $call" ../summary.txt
"$PYTHON" - "$call" "$only" <<'CHECK'
import json, sys

result = json.load(open("../results.json"))
assert result["call"] == int(sys.argv[1]), result["call"]
assert [step["name"] for step in result["steps"]] == sys.argv[2].split(","), result["steps"]
assert all(step["note"] for step in result["steps"] if step["verdict"] == "skipped"), "a skipped step has no reason"
done = {step["name"] for step in result["steps"] if step["verdict"] == "done"}
assert done or sys.argv[1] == "4", "nothing was done"
assert {name.split("/")[0] for name in result["results"]} <= done, (done, list(result["results"]))
CHECK

rm "$logs"/*.log
unfinished=results/.penstock-1-0.tmp  # as a program leaves it that is killed while it writes
printf '{' > "$folder/state/dry/$unfinished"
visit "$only"
if tar -tzf "$folder/out/state.tar.gz" "dry/$unfinished" 2> /dev/null; then
  echo "the packed state has an unfinished file"
  exit 1
fi
if compgen -G "$logs/*.log"; then
  echo "a finished step ran again"
  exit 1
fi
visit "${only%%,*}" --again
[ -e "$logs/${only%%,*}.log" ]
