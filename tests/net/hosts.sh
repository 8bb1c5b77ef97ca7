#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a command on a machine that has several "hosts": network namespaces joined by a bridge, each with a
# host name, an address and a shaped link.
#
#   hosts.sh COUNT COMMAND...     sets up COUNT hosts, runs COMMAND, removes the hosts
#   hosts.sh check                exits with 0 if this machine can do that; else with 77, and prints the reason
#
# COMMAND's environment has
#   PENSTOCK_HOSTS        the names in order: "pnX-0 pnX-1"
#   PENSTOCK_HOST_LINK    prefix of a host's name that gives the bridge's end of its link: for
#                         `ip link set "$PENSTOCK_HOST_LINK$host" down`
# and the settings that Open MPI needs to start ranks there: `mpirun -np 4 -H pnX-0:2,pnX-1:2 PROGRAM`. To run a
# command on one host: `hosts.sh on HOST COMMAND...`. PENSTOCK_LINK_RATE (1gbit) is the rate of each link, in
# tc's syntax. The hosts share files, processes and memory with this machine.
set -u

skip() {
  echo "skipped: $1"
  exit 77
}

check() {
  [ "$(id -u)" = 0 ] || skip "network namespaces need root"
  for tool in ip tc unshare; do
    command -v "$tool" > /dev/null || skip "there is no $tool; install iproute2 and util-linux"
  done
  probe=pnprobe$$
  trap 'ip link del "$probe" 2> /dev/null; ip netns del "$probe" 2> /dev/null' EXIT
  reason=$( { ip netns add "$probe" && ip link add "$probe" type veth peer name eth0 netns "$probe" &&
    tc qdisc add dev "$probe" root tbf rate 1gbit burst 512kb latency 100ms &&
    ip netns exec "$probe" unshare --uts true; } 2>&1) || skip "the kernel forbids it: $reason"
}

on() {
  host=$1
  shift
  exec ip netns exec "$host" unshare --uts sh -c 'hostname "$0"; exec "$@"' "$host" "$@"
}

case ${1:-} in
  check) check; exit 0 ;;
  on) shift; on "$@" ;;
  agent)  # mpirun calls this to start its daemon, with a host's name and a shell command line
    shift
    host=$1
    shift
    on "$host" sh -c "$*"
    ;;
esac

count=$1
shift
check
trap - EXIT
ip link del "$probe"
ip netns del "$probe"

# Interface names have at most 15 characters.
run=$(printf '%x' $$)
bridge=pn$run-br
subnet=10.77.$(( $$ % 200 + 20 ))
link=v
hosts=
command=
clean_up() {
  [ -n "$command" ] && kill -9 "$command" 2> /dev/null
  for host in $hosts; do
    for process in $(ip netns pids "$host" 2> /dev/null); do kill -9 "$process" 2> /dev/null; done
    ip link del "$link$host" 2> /dev/null
    ip netns del "$host" 2> /dev/null
  done
  ip link del "$bridge" 2> /dev/null
  rm -f "${agent:-}"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

set -e
rate=${PENSTOCK_LINK_RATE:-1gbit}
ip link add "$bridge" type bridge
ip addr add "$subnet.254/24" dev "$bridge"
ip link set "$bridge" up
number=0
while [ "$number" -lt "$count" ]; do
  host=pn$run-$number
  hosts="${hosts:+$hosts }$host"
  ip netns add "$host"
  ip link add "$link$host" type veth peer name eth0 netns "$host"
  ip link set "$link$host" master "$bridge" up
  ip -n "$host" addr add "$subnet.$((number + 1))/24" dev eth0
  ip -n "$host" link set eth0 up
  ip -n "$host" link set lo up
  tc qdisc add dev "$link$host" root tbf rate "$rate" burst 512kb latency 100ms
  ip netns exec "$host" tc qdisc add dev eth0 root tbf rate "$rate" burst 512kb latency 100ms
  number=$((number + 1))
done
# mpirun expects the agent to be one word.
agent=$(mktemp)
printf '#!/bin/sh\nexec "%s" agent "$@"\n' "$(readlink -f "$0")" > "$agent"
chmod +x "$agent"

export PENSTOCK_HOSTS="$hosts" PENSTOCK_HOST_LINK="$link"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_plm_rsh_agent="$agent" OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1
export PRTE_MCA_plm_ssh_agent="$agent" PRTE_MCA_hwloc_default_binding_policy=none  # the same for Open MPI 5
export PRTE_MCA_prte_if_include="$subnet.0/24"
export OMPI_MCA_oob_tcp_if_include="$subnet.0/24" OMPI_MCA_btl_tcp_if_include="$subnet.0/24"
set +e
"$@" &
command=$!
wait "$command"
exit $?
