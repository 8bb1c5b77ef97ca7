#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes the few files of a stage out of what its steps left behind, and prints the summary.
#
# Usage: pack_results.sh STAGE WORK OUT STEPS CACHE
set -u
stage=$1 work=$2 out=$3 steps=$4 cache=$5
most=15000000  # bytes of one file

summary=$out/summary.txt
table=$work/steps.tsv
printf 'step\tverdict\trc\tseconds\tnote\n' > "$table"
for one in $steps; do
  [ ! -e "$work/steps/${one%:*}.tsv" ] || cat "$work/steps/${one%:*}.tsv" >> "$table"
done
{
  echo "stage $stage, $(date -u +%FT%TZ)"
  awk -F '\t' 'NR > 1 { printf "%-14s %-12s %4s s  %s\n", $1, $2, $4, $5 }' "$table"
  for one in $steps; do
    if [ -s "$work/steps/${one%:*}.headline" ]; then
      echo "-- ${one%:*}"
      head -n 24 "$work/steps/${one%:*}.headline" | cut -c 1-200
    fi
  done
} > "$summary"

# One object: the table, and every step's JSON under its name. Written without Python's help, since
# that may be missing: each step's file is one JSON value already.
{
  printf '{"stage":"%s","steps":[' "$stage"
  awk -F '\t' 'NR > 1 {
    gsub(/[\\"]/, "\\\\&", $5); gsub(/[[:cntrl:]]/, " ", $5)
    printf "%s{\"name\":\"%s\",\"verdict\":\"%s\",\"rc\":\"%s\",\"seconds\":%s,\"note\":\"%s\"}", (NR > 2 ? "," : ""), $1, $2, $3, $4, $5
  }' "$table"
  printf '],"results":{'
  separator=
  for file in "$work"/results/*.json; do
    # A step that was ended in the middle may have left half a file: those go to the logs alone.
    if [ -s "$file" ] && tail -c 2 "$file" | grep -q '[]}]'; then
      printf '%s"%s":' "$separator" "$(basename "$file" .json)"
      cat "$file"
      separator=,
    fi
  done
  echo '}}'
} > "$out/results.json"

# Archives: all logs and results with the plans of the DNN library, and what profilers wrote.
for log in "$work"/logs/*.log; do
  if [ -e "$log" ] && [ "$(stat -c %s "$log")" -gt 4000000 ]; then
    { head -c 1000000 "$log"; printf '\n... cut ...\n'; tail -c 1000000 "$log"; } > "$log.cut" && mv "$log.cut" "$log"
  fi
done
mkdir -p "$work/plans"
find "$cache" -name 'gpu-plans-*.json' -exec cp {} "$work/plans/" \; 2> /dev/null
tar -C "$work" -czf "$out/logs.tar.gz" steps.tsv logs results plans
rm -f "$out/profile.tar.gz"
if [ -n "$(ls -A "$work/profile" 2> /dev/null)" ]; then tar -C "$work" -czf "$out/profile.tar.gz" profile; fi
for file in "$out"/logs.tar.gz "$out"/profile.tar.gz; do
  if [ -e "$file" ] && [ "$(stat -c %s "$file")" -gt "$most" ]; then
    echo "$(basename "$file") is $(stat -c %s "$file") bytes: cut to the text of its largest parts" >> "$summary"
    find "$work/profile" -size +2M -delete
    [ "$(basename "$file")" = logs.tar.gz ] || tar -C "$work" -czf "$file" profile
  fi
done
cat "$summary"
