#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a program of Python with an interpreter that has a module: python3 of the path, or Debian's.
# Usage: with_module.sh MODULE PROGRAM.py ARGUMENT...; exits with 77, and the reason, if no interpreter has it
set -u
module=$1
shift
for python in python3 /usr/bin/python3; do
  "$python" -c "import $module" 2> /dev/null && exec "$python" "$@"
done
echo "skipped: no python3 has the module $module"
exit 77
