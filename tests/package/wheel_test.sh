#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A wheel of the build is installed into an empty virtual environment. Its program starts, measures, gets signals and
# returns exit codes. All its libraries are in the wheel or belong to every Linux by manylinux's rules.
# Usage: wheel_test.sh BUILD SOURCE
set -eu
build=$1 source=$2
fail() { echo "$*"; exit 1; }

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$source/python/make_wheel.sh" "$build" "$folder/wheel" || exit $?
wheel=$(ls "$folder"/wheel/*.whl)
"$build/wheel-tools/bin/auditwheel" show "$wheel" | tr '\n' ' ' > "$folder/audit"
grep -q 'platform tag: *"manylinux_2_' "$folder/audit" || { cat "$folder/audit"; fail "not a manylinux wheel"; }

python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-index --no-deps "$wheel"
cd "$folder" # away from the sources
penstock=$folder/venv/bin/penstock
[ "$("$penstock" --version)" = "$("$build/penstock" --version)" ] || fail "another program was packed"
[ "$(venv/bin/python -m penstock_bench --version)" = "$("$penstock" --version)" ] || fail "python -m starts another program"

# Three lines of Python, in this environment without any other package, and a verdict within a minute.
cat > three.py << 'END'
import penstock_bench
found = penstock_bench.isolate([{"input_ids": memoryview(bytes(4096)).cast("B", (16, 256))}] * 50, samples_per_s=3000, budget=20)
print(found.cost_percent, found.verdict[0])
END
timeout 60 venv/bin/python three.py > answer 2> said || { cat answer said; fail "no verdict in 60 s"; }
grep -q '%' answer || { cat answer; fail "the verdict has no cost"; }

# libc and the like, and what the libraries of the wheel load from there; nothing else may come from the machine.
everywhere='linux-vdso|/ld-linux|/lib(c|m|gcc_s|stdc\+\+|pthread|dl|rt|resolv|z)\.so\.'
package=$(venv/bin/python -c 'import penstock_bench; print(penstock_bench.__path__[0])')
for file in "$package/bin/penstock" "$package/lib/libpenstock_producer.so"; do
  ldd "$file" > loaded
  ! grep 'not found' loaded || fail "$file misses libraries"
  ! grep -vE "$everywhere|=> $folder/venv/" loaded || fail "$file loads libraries that are not in the wheel"
  ! grep -q libmpi loaded || fail "$file needs MPI"
done

# Each bundled library has the licence text of its Debian package, and the common licences that this refers to.
venv/bin/python - << 'END' || fail "licence texts are missing"
import importlib.metadata, pathlib, re
files = {str(file).split(".dist-info/")[-1]: file.locate() for file in importlib.metadata.files("penstock-bench")}
texts = {name.rpartition("/")[2]: pathlib.Path(file).read_text(errors="replace") for name, file in files.items()
         if name.startswith("licenses/libraries/")}
bundled = [name for name in files if name.startswith("penstock_bench.libs/")]
assert len(bundled) > 3, bundled
for name in bundled:
    text = texts[re.sub(r"-[0-9a-f]{8}(?=\.)", "", name.rpartition("/")[2]) + ".txt"]
    assert re.search("copyright", text, re.I), name
    for licence in re.findall(r"common-licenses/([\w+-]+)", text):
        assert any(each.startswith(f"common-{licence}") for each in texts), (name, licence)
END

venv/bin/python -c 'from penstock_bench.producer import load_library; load_library()'

run() { timeout 60 "$penstock" run --device emulated:img_per_s=4000 --batch-size 8 --image-size 32 "$@"; }
run --fake-location queue --data-dir images/train --num-batches 5 > said 2>&1 && fail "a run without its data passes"
"$penstock" dataset make --data-dir images --images 24 --val-images 3 > said 2>&1
run --fake-location queue --data-dir images/train --num-batches 20 --json > result.json
python3 -c 'import json; assert len(json.load(open("result.json"))["step_ms"]) == 20'

code=0
"$penstock" run --no-such-flag > said 2>&1 || code=$?
[ "$code" = 2 ] || fail "a wrong flag ends with $code"
code=0
OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 run --fake-location cpu > said 2>&1 || code=$?
[ "$code" = 3 ] && grep -q 'without MPI.*--rendezvous' said || { cat said; fail "a rank of mpirun ends with $code"; }
"$penstock" run --device emulated --fake-location host --num-batches 100000 --timeout 60s > said 2>&1 &
running=$!
until grep -q Step said; do kill -0 $running || { cat said; fail "a run ends before it is stopped"; }; sleep 0.1; done
kill -TERM $running
code=0
wait $running || code=$?
[ "$code" = 143 ] || { cat said; fail "a terminated run ends with $code"; }
ls -l "$wheel"
