#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A dry stage of a visit reaches its end without a failed step, leaves its files, and a second call
# repeats nothing.
# Usage: visit_test.sh STAGE SOURCE_DIRECTORY PROGRAMS PYTHON
set -eu
stage=$1 source=$2
export PENSTOCK_PROGRAMS=$3 PYTHON=$4 CUDA_VISIBLE_DEVICES=

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
visit() { "$source/bench/gpu/visit.sh" "$stage" --dry --out "$folder/out" --state "$folder/state" "$@"; }
visit
logs=$folder/state/dry/$stage/logs

cd "$folder/out"
tar -xzf logs.tar.gz
if cut -f 2 steps.tsv | grep -vxE 'verdict|done|skipped'; then
  echo "a step was neither done nor skipped:"
  cat logs/*.log
  exit 1
fi
[ "$(wc -l < steps.tsv)" -gt 1 ]
grep -q "^stage $stage" summary.txt
"$PYTHON" - "$stage" <<'CHECK'
import csv, json, sys

result = json.load(open("results.json"))
steps = list(csv.DictReader(open("steps.tsv"), delimiter="\t"))
assert result["stage"] == sys.argv[1], result["stage"]
assert [step["name"] for step in result["steps"]] == [step["step"] for step in steps], result["steps"]
assert all(step["note"] for step in steps if step["verdict"] == "skipped"), "a skipped step has no reason"
done = {step["step"] for step in steps if step["verdict"] == "done"}
assert done and set(result["results"]) <= done, (done, list(result["results"]))
CHECK

rm "$logs"/*.log
visit
if compgen -G "$logs/*.log"; then
  echo "a finished step ran again"
  exit 1
fi
first=$(sed -n '2s/\t.*//p' steps.tsv)
visit --again --only "$first"
[ -e "$logs/$first.log" ]
