#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Trains a small network on synthetic photographs until validation accuracy reaches 95 %.
# Usage: examples/train_to_accuracy/train.sh build/penstock [FOLDER]
set -eu
penstock=$1
folder=${2:-train-to-accuracy}
goal=0.95

# Is a component of this kind built? `--` marks names that are known but not built.
is_built() { "$penstock" list | awk -v kind="$1 (" -v name="$2" '
  /^[^ ]/ { inside = index($0, kind) == 1 }
  inside && $1 == name && $2 != "--" { found = 1 }
  END { exit !found }'; }
for component in "device cpu" "model tiny_cnn"; do
  # shellcheck disable=SC2086  # two words
  if ! is_built $component; then
    echo "skipped: this penstock has no $component; see \`penstock list\`"
    exit 77
  fi
done

mkdir -p "$folder"
"$penstock" dataset make --brief --data-dir "$folder/data"
"$penstock" run --device cpu --model tiny_cnn --fake-location queue --data-dir "$folder/data/train" \
  --classes 8 --batch-size 32 --optimizer momentum --init-learning-rate 0.01 \
  --num-warmup-batches 0 --num-epochs 20 --eval-during-training-every-n-epochs 1 \
  --stop-at-top-1-accuracy "$goal" | tee "$folder/log.txt"

reached=$(sed -n 's/^Accuracy @ 1 = \([0-9.]*\).*/\1/p' "$folder/log.txt" | tail -n 1)
echo "top-1 accuracy on images that were not trained on: ${reached:-none}"
awk -v reached="${reached:-0}" -v goal="$goal" 'BEGIN { exit !(reached >= goal) }'
