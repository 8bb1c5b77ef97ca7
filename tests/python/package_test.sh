#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a test of the Python package with an interpreter that has NumPy and pyzmq.
# Usage: package_test.sh PENSTOCK FOLDER_OF_THE_PRODUCER_LIBRARY TEST.py
set -eu
here=$(realpath "$(dirname "$0")")
PENSTOCK=$1 LD_LIBRARY_PATH=$2 PYTHONPATH=$here/../../python PYTHONDONTWRITEBYTECODE=1
export PENSTOCK LD_LIBRARY_PATH PYTHONPATH PYTHONDONTWRITEBYTECODE
set -- python3 -m unittest discover --start-directory "$here" --pattern "$3" --verbose
. "$here/../../examples/producers/find_interpreter.sh"
exec "$@"
