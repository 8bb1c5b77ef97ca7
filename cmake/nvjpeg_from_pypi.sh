#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Puts nvJPEG's header and library from PyPI into BUILD/pypi, where CMake and bench/gpu/bundle.sh find them, if this
# machine has a CUDA toolkit without nvjpeg.h. Without a network, engine=nvjpeg is left out of the build.
# Usage: nvjpeg_from_pypi.sh BUILD
set -eu
target=$1/pypi
nvcc=$(PATH=$PATH:/usr/local/cuda/bin command -v nvcc) || exit 0
toolkit=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
[ ! -e "$toolkit/include/nvjpeg.h" ] && [ ! -e "$toolkit/targets/x86_64-linux/include/nvjpeg.h" ] || exit 0
[ -z "$(find "$target" -name nvjpeg.h 2> /dev/null)" ] || exit 0

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
version=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
python=python3
python3 -m pip --version > /dev/null 2>&1 || { python3 -m venv "$folder/venv" > /dev/null 2>&1 && python=$folder/venv/bin/python; } || true
if "$python" -m pip download --quiet --disable-pip-version-check --retries 1 --timeout 10 --no-deps --dest "$folder" \
  "nvidia-nvjpeg==$version.*" 2> "$folder/problem"; then
  mkdir -p "$target"
  python3 -m zipfile -e "$folder"/nvidia_nvjpeg-*.whl "$target"
else
  echo "nvJPEG is not taken from PyPI: $(tail -n 1 "$folder/problem" 2> /dev/null)"
fi
