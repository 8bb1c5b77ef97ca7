#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# produce.py --jpeg sends the folder's files unchanged, in the format of feeders/remote/framed_format.md.
# Usage: jpeg_test.sh PENSTOCK PRODUCE_PY
set -eu
penstock=$1 produce=$2
here=$(dirname "$0")

python=
for candidate in python3 /usr/bin/python3; do
  if "$candidate" -c 'import zmq, numpy' 2> /dev/null; then python=$candidate; break; fi
done
if [ -z "$python" ]; then
  echo "skipped: no python3 has both zmq and numpy; install python3-zmq and python3-numpy"
  exit 77
fi

folder=$(mktemp -d)
producer=
trap 'test -z "$producer" || kill "$producer" 2>/dev/null || true; rm -rf "$folder"' EXIT
"$penstock" dataset make --data-dir "$folder/images" --images 24 --val-images 3 > /dev/null 2>&1
"$python" "$produce" --endpoint "ipc://$folder/feed" --jpeg "$folder/images/train" --batch 5 --count 7 &
producer=$!
"$python" "$here/read_jpegs.py" "ipc://$folder/feed" "$folder/images/train" 7
