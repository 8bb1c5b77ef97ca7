#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A project adds Penstock by add_subdirectory, and builds its program with Penstock's libraries.
# Usage: subproject_test.sh SOURCE CMAKE CXX
set -eu
source=$1 cmake=$2 cxx=$3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "$*"; exit 1; }
cached() { sed -n "s/^$1:[A-Z]*=//p" "$folder/build/CMakeCache.txt"; }
quietly() { "$@" > "$folder/said" 2>&1 || { cat "$folder/said"; fail "failed: $*"; }; }

quietly "$cmake" -S "$source/tests/package/subproject" -B "$folder/build" -G Ninja -DPENSTOCK_SOURCE="$source" \
  -DCMAKE_CXX_COMPILER="$cxx"
[ "$(cached PENSTOCK_TESTS)$(cached PENSTOCK_EXAMPLES)$(cached PENSTOCK_MICRO)" = OFFOFFOFF ] ||
  fail "the outer project gets tests, examples or micro-benchmarks that it did not ask for"
[ -z "$(cached CMAKE_BUILD_TYPE)" ] || fail "the outer project's build type is changed"
[ ! -e "$folder/build/generated/penstock_build.h" ] || fail "files are generated outside Penstock's part of the build"

# The build has a rule for everything that the programs need. Only small parts are compiled.
quietly "$cmake" --build "$folder/build" --target penstock penstock_custom -- -n
quietly "$cmake" --build "$folder/build" --target penstock_producer
[ -e "$folder/build/penstock/feeders/remote/producer/libpenstock_producer.so" ] || fail "the library for producers was not built"
quietly "$cmake" --build "$folder/build" --target components/CMakeFiles/penstock_custom.dir/stripes.cpp.o
