#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The program is installed with its licence and documents, and runs from another folder. CMake and pkg-config find the
# library for producers, and programs built with it feed a run of the installed program.
# Usage: install_test.sh BUILD SOURCE CMAKE CXX
set -eu
build=$1 source=$2 cmake=$3 cxx=$4
feed_test=$source/examples/producers/feed_test.sh
fail() { echo "$*"; exit 1; }

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$cmake" --install "$build" --prefix "$folder/built" > "$folder/installed" || { cat "$folder/installed"; exit 1; }
mv "$folder/built" "$folder/prefix" # the installation may be moved
(cd "$folder/prefix" && find . -type f | sort)

penstock=$folder/prefix/bin/penstock
[ "$("$penstock" --version)" = "$("$build/penstock" --version)" ] || fail "another program was installed"
cmp "$source/LICENSE" "$folder/prefix/share/doc/penstock/LICENSE"
if "$penstock" completion bash > "$folder/completion" 2> /dev/null; then
  cmp "$folder/completion" "$folder/prefix/share/bash-completion/completions/penstock"
  grep -q '^#compdef penstock' "$folder/prefix/share/zsh/site-functions/_penstock"
fi
if command -v help2man > /dev/null; then
  pages=$folder/prefix/share/man/man1
  grep -q '^penstock \\- ' "$pages/penstock.1" || fail "the man page does not say what the program is"
  grep -q 'batch.*size' "$pages/penstock-run.1" || fail "the man page of run does not name its flags"
fi

"$cmake" --install "$build" --component penstock_producer --prefix "$folder/library" > "$folder/installed"
[ ! -e "$folder/library/bin" ] || fail "the library for producers brings programs"

# Programs that use the library: one with CMake, one with pkg-config.
"$cmake" -S "$source/examples/producers/cpp" -B "$folder/cpp" -DCMAKE_CXX_COMPILER="$cxx" \
  -DCMAKE_PREFIX_PATH="$folder/library" > "$folder/configured"
"$cmake" --build "$folder/cpp" > "$folder/built.log" || { cat "$folder/built.log"; exit 1; }
sh "$feed_test" "$penstock" format=framed "$folder/cpp/producer" FEED 8

export PKG_CONFIG_PATH="$folder/prefix/lib/pkgconfig:$folder/prefix/lib64/pkgconfig"
cc -std=c99 -pedantic -Wall -Wextra -Werror -o "$folder/c_user" "$source/tests/feeders/remote/producer/c_user.c" \
  $(pkg-config --cflags --libs penstock_producer)
LD_LIBRARY_PATH=$(pkg-config --variable=libdir penstock_producer)
export LD_LIBRARY_PATH
sh "$feed_test" "$penstock" format=framed "$folder/c_user" FEED 8
