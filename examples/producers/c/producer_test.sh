#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks that producer.c is valid C99 and feeds `penstock run`.
# Usage: producer_test.sh PENSTOCK
set -eu
here=$(dirname "$0")

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cc -std=c99 -pedantic -Wall -Wextra -Werror -o "$folder/producer" "$here/producer.c" -lzmq
"$here/../feed_test.sh" "$1" format=framed "$folder/producer" FEED 8
