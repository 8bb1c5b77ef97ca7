#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the missing ones of these Debian packages, if it runs as root. Otherwise it prints the command that installs
# them, and exits with 1. Services of these packages are not started.
# Usage: install_packages.sh PACKAGE...
set -eu
if ! command -v dpkg-query > /dev/null; then
  echo "No package is installed, since this is not Debian. The build needs what these packages of Debian 12 or 13 hold: $*" >&2
  exit 0
fi
installed=$(dpkg-query -W -f='${db:Status-Abbrev}${Package}\n' "$@" 2> /dev/null | sed -n 's/^.i //p') || true
missing=$(printf '%s\n' "$@" | LC_ALL=C sort -u | grep -vxF -e "${installed:-none}" | tr '\n' ' ') || true
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ]; then
  printf '%s\n' "These Debian packages are missing. Install them, then repeat the command:" \
    "  sudo apt-get install --no-install-recommends ${missing% }" >&2
  exit 1
fi
echo "Installing these Debian packages: ${missing% }"
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ] && { printf '#!/bin/sh\nexit 101\n' > $policy && chmod +x $policy; } 2> /dev/null; then
  trap 'rm -f "$policy"' EXIT
fi
apt-get update -qq
# shellcheck disable=SC2086
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing > /dev/null
