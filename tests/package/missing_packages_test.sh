#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# If packages are missing, a build by a user who is not root stops and names them, and root gets them installed. If none
# is missing, nothing is printed about packages. Commands that would change this machine are stand-ins.
# Usage: missing_packages_test.sh SOURCE
set -eu
source=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "$*"; cat "$folder/said"; exit 1; }
mkdir "$folder/bin"
stand_in() { printf '#!/bin/sh\n%s\n' "$2" > "$folder/bin/$1"; chmod +x "$folder/bin/$1"; }
stand_in id 'echo $PLAYED_USER'
stand_in dpkg-query 'for package; do case " $PLAYED_MISSING " in *" $package "*) ;; *) echo "ii $package" ;; esac; done'
stand_in apt-get "echo \"\$@\" >> '$folder/apt-get'"
stand_in cmake "echo \"\$@\" >> '$folder/cmake'"
all=$(sed '/^#/d' "$source/cmake/debian-packages.txt")

# configure USER MISSING: the first step of `make run` and `make test`
configure() {
  rm -f "$folder/apt-get" "$folder/cmake"
  env -u MAKEFLAGS -u MAKELEVEL PATH="$folder/bin:$PATH" PLAYED_USER="$1" PLAYED_MISSING="$2" \
    make -C "$source" configure BUILD="$folder/build" > "$folder/said" 2>&1
}

! configure 1000 "ninja-build g++" || fail "a build without its packages goes on"
grep -qx '  sudo apt-get install --no-install-recommends g++ ninja-build' "$folder/said" ||
  fail "the command that installs the packages is not printed"
[ ! -e "$folder/apt-get" ] && [ ! -e "$folder/cmake" ] || fail "something runs in spite of missing packages"

! configure 1000 "$(echo $all)" || fail "a build without any package goes on"
grep -q "  sudo apt-get install --no-install-recommends $(echo $all)\$" "$folder/said" || fail "packages are left out"

configure 1000 "" || fail "a build without root fails though it has its packages"
! grep -q apt-get "$folder/said" || fail "packages are named though none is missing"
[ -e "$folder/cmake" ] || fail "the build does not go on"

configure 0 "ninja-build g++" || fail "root's build fails"
grep -q 'g++ ninja-build' "$folder/said" || fail "the packages that root gets are not named"
grep -qx 'install .* g++ ninja-build' "$folder/apt-get" || fail "root does not get the packages"
[ -e "$folder/cmake" ] || fail "root's build does not go on"
