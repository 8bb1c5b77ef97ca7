# SPDX-License-Identifier: Apache-2.0
# The beginning of a test in shell, to be sourced: it works in a new folder, $folder, that is removed at the end.
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1

expect() {  # expect WHAT WANTED FOUND
  if [ "$2" != "$3" ]; then echo "$1: expected $2, found $3"; exit 1; fi
  echo "$1: $3"
}
said() {  # said FILE TEXT
  grep -q -e "$2" "$1"
  expect "$1 says '$2' (grep)" 0 $?
}
