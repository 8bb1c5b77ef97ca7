#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Packs what a GPU machine needs for a visit: the built programs, their scripts, and the shared
# libraries that neither its system nor CUDA provides.
#
# Usage: bundle.sh OUT.tar.gz [--build DIR] [--without-cuda] [--without-nvjpeg]
#   --build           the build folder (default: build, beside bench)
#   --without-cuda    if libpenstock_cuda.so was not built
#   --without-nvjpeg  if the program was built without nvjpeg.h
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
most=$((40 << 20))  # largest size of the archive, in bytes
out='' build=$root/build cuda=1 nvjpeg=1
while [ $# -gt 0 ]; do
  case $1 in
    --build) build=$2; shift ;;
    --without-cuda) cuda='' nvjpeg='' ;;
    --without-nvjpeg) nvjpeg='' ;;
    -*) sed -n 's/^# \{0,1\}//; 6,9p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
    *) out=$1 ;;
  esac
  shift
done
[ -n "$out" ] || { echo "bundle.sh: name the archive to write, such as visit.tar.gz" >&2; exit 2; }
fail() { echo "bundle.sh: $*" >&2; exit 1; }

programs=(penstock penstock_gpu_check)
[ -z "$cuda" ] || programs+=(libpenstock_cuda.so libpenstock_gpu_gemm.so)
# Libraries to leave out: the machine's system must supply its own version, or they come with the GPU.
system='^(linux-vdso|ld-linux-x86-64|libc|libm|libpthread|libdl|librt|libresolv|libutil|libstdc\+\+|libgcc_s)\.so'
vendor='^lib(cuda|cudart|cudnn[a-z_]*|nccl|cublas|cublasLt|nvrtc|cupti|nvToolsExt)\.so'

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
top=$scratch/penstock-gpu
mkdir -p "$top"/{bin,lib,bench/gpu,bench/peers,tests/trainer/backends/gpu}

for program in "${programs[@]}"; do
  [ -e "$build/$program" ] || fail "$build/$program is not there: build the targets penstock and penstock_gpu_check first${cuda:+, or pack --without-cuda}"
  cp "$build/$program" "$top/bin/"
  strip --strip-unneeded "$top/bin/$program"
done

# A program refuses a library of another revision. Detect that here, before the visit.
if [ -n "$cuda" ]; then
  for attempt in "penstock run --device gpu --model trivial --num-batches 1" "penstock_gpu_check device"; do
    # shellcheck disable=SC2086
    says=$(PENSTOCK_PROGRAMS=$build "$here/with_libraries.sh" $attempt 2>&1) || true
    [[ $says != *"of revision"* ]] || fail "the programs and libpenstock_cuda.so are of different revisions: build the targets penstock and penstock_gpu_check again"
  done
fi

# Names and paths of all libraries that the programs load, each once.
closure() {
  local program
  for program in "${programs[@]}"; do ldd "$build/$program"; done | awk '$2 == "=>" { print $1, $3 ($4 ~ /found/ ? " missing" : "") }' | sort -u
}
while read -r name place missing; do
  [[ $name =~ $system || $name =~ $vendor || $name == libpenstock_* ]] && continue
  if [ -n "$missing" ] || [ "$place" = not ]; then fail "$name is not found on this machine either: install what has it"; fi
  cp -L "$place" "$top/lib/$name"
  strip --strip-unneeded "$top/lib/$name" 2> /dev/null || true
done < <(closure)

# The program opens nvJPEG by its name, and the machine need not have it.
if [ -n "$nvjpeg" ]; then
  if grep -qaF 'was built without nvjpeg.h' "$build/penstock"; then
    fail "$build/penstock has no engine=nvjpeg: run make configure, which gets nvjpeg.h, and build again, or pack --without-nvjpeg"
  fi
  place=$(find "$build/pypi" "${CUDA_HOME:-/usr/local/cuda}/" -name libnvjpeg.so.13 -print -quit 2> /dev/null) || true
  [ -n "$place" ] || fail "libnvjpeg.so.13 is neither in $build/pypi nor in the CUDA toolkit: run make configure, or pack --without-nvjpeg"
  cp -L "$place" "$top/lib/"
fi

cp "$here"/*.sh "$here"/*.py "$here/README.md" "$top/bench/gpu/"
cp "$root"/bench/peers/*.py "$top/bench/peers/"
cp "$root/tests/trainer/backends/gpu/h200.json" "$top/tests/trainer/backends/gpu/"
cp "$root/LICENSE" "$top/"
cat > "$top/run" <<'RUN'
#!/bin/bash
# Usage: run PROGRAM [ARGUMENTS...], such as `run penstock list`; `run visit 1` is a visit's first call.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
case ${1:-} in
  "") echo "usage: run PROGRAM [ARGUMENTS...]; programs: $(cd "$here/bin" && echo *), visit" >&2; exit 2 ;;
  visit) exec "$here/bench/gpu/visit.sh" "${@:2}" ;;
  *) exec "$here/bench/gpu/with_libraries.sh" "$@" ;;
esac
RUN
chmod +x "$top/run"

tar -C "$scratch" --owner=0 --group=0 --sort=name -caf "$out" penstock-gpu
size=$(stat -c %s "$out")
[ "$size" -le "$most" ] || fail "$out has $size bytes, more than $most: compress it (.tar.gz, .tar.xz), or find what grew in $(du -ah "$top" | sort -rh | head -n 6 | awk '{ print $2 " " $1 }' | tr '\n' ',')"
echo "$out: $size bytes, $(find "$top/lib" -type f | wc -l) libraries"
