#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# produce.py --jpeg sends the folder's files unchanged, in the format of feeders/remote/framed_format.md.
# Usage: jpeg_test.sh PENSTOCK PRODUCE_PY
set -eu
penstock=$1 producers=$(dirname "$2")/..
set -- python3 "$2" --endpoint FEED --jpeg IMAGES --batch 5 --count 7
. "$producers/start_producer.sh"
"$1" "$(dirname "$0")/read_jpegs.py" "ipc://$folder/feed" "$folder/images/train" 7
