#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs a program of Penstock's with the libraries that libraries.sh finds. Without a folder, it is
# one of those beside this repository's or bundle's own.
#
# Usage: with_libraries.sh PROGRAM [ARGUMENTS...]
set -eu
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
program=$1
shift
case $program in
  */*) ;;
  *)
    for folder in "${PENSTOCK_PROGRAMS:-}" "$here/../../bin" "$here/../../build"; do
      if [ -n "$folder" ] && [ -x "$folder/$program" ]; then
        program=$(cd "$folder" && pwd)/$program
        break
      fi
    done
    ;;
esac
# Asking Python takes time: who starts many programs asks once.
LD_LIBRARY_PATH=${PENSTOCK_LIBRARIES:-$("$here/libraries.sh")} exec "$program" "$@"
