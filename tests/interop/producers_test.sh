#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A producer of examples/producers that needs a package of PyPI feeds `penstock run`.
# Usage: producers_test.sh PENSTOCK VENV pytorch|tfdata|dali|tensorpack MODULES [OPTIONS OF THE PRODUCER...]
set -eu
penstock=$1 venv=$2 name=$3 modules=$4
shift 4
here=$(dirname "$0")
producers=$here/../../examples/producers

if [ ! -x "$venv/bin/python" ] || ! "$venv/bin/python" -c "import zmq, $modules" > /dev/null 2>&1; then
  echo "skipped: no $modules in $venv; run \`make interop\`"
  exit 77
fi
PYTHONPATH=$here/shim:$here/../../python
LD_LIBRARY_PATH=$(dirname "$penstock")/feeders/remote/producer # for penstock_bench
export PYTHONPATH LD_LIBRARY_PATH
exec "$producers/feed_test.sh" "$penstock" "" "$venv/bin/python" "$producers/$name/produce.py" --endpoint FEED \
  --batch 8 "$@"
