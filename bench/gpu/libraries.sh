#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Prints the folders, joined by ':', where Penstock's programs find what they need on this machine:
# the libraries that were packed with them, and those of CUDA, cuDNN and NCCL in the toolkit or in
# Python's packages.
#
# Usage: libraries.sh   (PYTHON: the Python to ask, default python3)
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
folders=()

add() {
  local folder=$1 known
  [ -d "$folder" ] || return 0
  for known in "${folders[@]}"; do [ "$known" = "$folder" ] && return 0; done
  folders+=("$folder")
}

# has NAME: whether one of the folders so far has the library.
has() {
  local folder
  for folder in "${folders[@]}"; do compgen -G "$folder/$1*" > /dev/null && return 0; done
  return 1
}

add "$root/lib"
for toolkit in "${CUDA_HOME:-}" /usr/local/cuda /usr/local/cuda-13*; do
  [ -n "$toolkit" ] || continue
  add "$toolkit/lib64"
  add "$toolkit/lib"
done
# Python's packages come second: a toolkit's cuDNN is the one that its owner chose.
if ! has libcudnn.so.9 || ! has libnccl.so.2 || ! has libcudart.so.13; then
  while read -r folder; do add "$folder"; done < <("${PYTHON:-python3}" - <<'FIND' 2> /dev/null
import glob, site, sys
for path in sys.path + site.getsitepackages():
    for folder in sorted(glob.glob(path + "/nvidia/*/lib")):
        if any(glob.glob(folder + "/" + name) for name in ("libcudnn*.so.9", "libnccl.so.2", "libcudart.so.13",
                                                           "libcublasLt.so.13", "libnvrtc.so.13")):
            print(folder)
FIND
  )
fi
# Where containers put the driver's.
add /usr/local/nvidia/lib64
[ -z "${LD_LIBRARY_PATH:-}" ] || folders+=("$LD_LIBRARY_PATH")
IFS=:
printf '%s\n' "${folders[*]}"
