#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs one of Penstock's programs with the libraries that it needs: the packed ones, and CUDA, cuDNN and
# NCCL from the toolkit or from Python's packages. The newest cuDNN and the newest NCCL are used,
# wherever they are.
#
# Usage: with_libraries.sh [PROGRAM [ARGUMENTS...]]
#   Without a program, it prints the libraries' folders, joined by ':', and their versions on standard error.
#   A program name without a folder means a program beside this repository or bundle.
#   PENSTOCK_LIBRARIES  the folders, if they are known; a search takes seconds
#   PENSTOCK_UNDER      a tool to run the program under, with its arguments
#   PYTHON              the Python whose packages are searched (default: python3)
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
PYTHON=${PYTHON:-python3}

folders=()
add() {
  local folder=$1 known
  [ -d "$folder" ] || return 0
  for known in "${folders[@]}"; do [ "$known" = "$folder" ] && return 0; done
  folders+=("$folder")
}

# A library's version as a number, from the library itself; 0 if it cannot be loaded.
version_of() {
  timeout 30 "$PYTHON" - "$1" <<'ASK' 2> /dev/null || echo 0
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
if "libcudnn" in sys.argv[1]:
    library.cudnnGetVersion.restype = ctypes.c_size_t
    print(library.cudnnGetVersion())
else:
    number = ctypes.c_int()
    library.ncclGetVersion(ctypes.byref(number))
    print(number.value)
ASK
}

# newest LIBRARY FOLDER...: sets `chosen` to the folder with the newest version; the first one of equals.
newest() {
  local folder version best=-1
  chosen=
  for folder in "${@:2}"; do
    [ -e "$folder/$1" ] || continue
    version=$(version_of "$folder/$1")
    echo "$1 $version in $folder" >&2
    if [ "$version" -gt "$best" ]; then best=$version chosen=$folder; fi
  done
}

find_libraries() {
  local toolkits=() packages=() toolkit folder library chosen
  for toolkit in "${CUDA_HOME:-}" /usr/local/cuda /usr/local/cuda-13*; do
    for folder in "$toolkit"/{lib64,lib,extras/CUPTI/lib64}; do
      if [ -d "$folder" ]; then toolkits+=("$(realpath "$folder")"); fi
    done
  done
  mapfile -t toolkits < <(printf '%s\n' "${toolkits[@]}" | awk 'NF && !known[$0]++')
  mapfile -t packages < <(timeout 30 "$PYTHON" - <<'FIND' 2> /dev/null
import glob, site, sys
found = [folder for path in sys.path + site.getsitepackages() for folder in sorted(glob.glob(path + "/nvidia/*/lib"))]
print("\n".join(dict.fromkeys(found)))
FIND
  )
  add "$root/lib"
  # A package's folder holds only one set of libraries, so it can precede the toolkit's folder, which holds all.
  local first=() second=()
  for library in libcudnn.so.9 libnccl.so.2; do
    newest "$library" "${toolkits[@]}" "${packages[@]}"
    case " ${packages[*]} " in
      *" $chosen "*) first+=("$chosen") ;;
      *) second+=("$chosen") ;;
    esac
  done
  for folder in "${first[@]}" "${second[@]}" "${toolkits[@]}"; do add "$folder"; done
  for library in libcudart.so.13 libcublasLt.so.13 libnvrtc.so.13 libcupti.so.13 libnvjpeg.so.13; do
    for folder in "${folders[@]}" "${packages[@]}"; do
      if [ -e "$folder/$library" ]; then add "$folder"; break; fi
    done
  done
  add /usr/local/nvidia/lib64  # the driver's folder, in containers
  [ -z "${LD_LIBRARY_PATH:-}" ] || folders+=("$LD_LIBRARY_PATH")
  (IFS=:; printf '%s\n' "${folders[*]}")
}

if [ $# -eq 0 ]; then
  find_libraries
  exit
fi
program=$1
shift
case $program in
  */*) ;;
  *)
    for folder in "${PENSTOCK_PROGRAMS:-}" "$root/bin" "$root/build"; do
      if [ -n "$folder" ] && [ -x "$folder/$program" ]; then
        program=$(cd "$folder" && pwd)/$program
        break
      fi
    done
    ;;
esac
libraries=${PENSTOCK_LIBRARIES:-$(find_libraries 2> /dev/null)}
# shellcheck disable=SC2086
exec ${PENSTOCK_UNDER:-} env LD_LIBRARY_PATH="$libraries" "$program" "$@"
