#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The library for producers is installed, found by CMake and by pkg-config, and what is built with it feeds a run.
# Usage: install_test.sh PENSTOCK BUILD SOURCE CMAKE CXX
set -eu
penstock=$1 build=$2 source=$3 cmake=$4 cxx=$5
feed_test=$source/examples/producers/feed_test.sh

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$cmake" --install "$build" --prefix "$folder/built" > "$folder/installed"
mv "$folder/built" "$folder/prefix" # it may be moved
(cd "$folder/prefix" && find . -type f | sort)

"$cmake" -S "$source/examples/producers/cpp" -B "$folder/cpp" -DCMAKE_CXX_COMPILER="$cxx" \
  -DCMAKE_PREFIX_PATH="$folder/prefix" > "$folder/configured"
"$cmake" --build "$folder/cpp" > "$folder/built.log" || { cat "$folder/built.log"; exit 1; }
sh "$feed_test" "$penstock" format=framed "$folder/cpp/producer" FEED 8

export PKG_CONFIG_PATH="$folder/prefix/lib/pkgconfig:$folder/prefix/lib64/pkgconfig"
cc -std=c99 -pedantic -Wall -Wextra -Werror -o "$folder/c_user" "$source/tests/producer/c_user.c" \
  $(pkg-config --cflags --libs penstock_producer)
LD_LIBRARY_PATH=$(pkg-config --variable=libdir penstock_producer)
export LD_LIBRARY_PATH
sh "$feed_test" "$penstock" format=framed "$folder/c_user" FEED 8
