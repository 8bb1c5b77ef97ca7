#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# PyTorch still computes the values in the fixture of ResNet-50.
# Usage: resnet50_test.sh VENV FIXTURE
set -eu
venv=$1 fixture=$2
here=$(dirname "$0")

if [ ! -x "$venv/bin/python" ] || ! "$venv/bin/python" -c 'import numpy, torch' 2> /dev/null; then
  echo "skipped: no PyTorch in $venv; run \`make interop\`"
  exit 77
fi
exec "$venv/bin/python" "$here/resnet50_gradients.py" check "$fixture"
