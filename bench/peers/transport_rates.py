#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Batches of bytes from one process to another, in turns: Penstock over each transport and in each format, upper
limits, and other systems.

    bench/peers/transport_rates.py build/penstock /path/to/python --json out/transports.json --results bench/results

The limits are one memcpy of a batch, and bare libzmq without a copy by the sender and with that memcpy by the receiver;
the fastest way to run libzmq over a transport counts (transports/cases.py lists the ways, and all cases). Penstock's
case is `penstock serve --fake-location host` and a run of the model `null` with a free copy to the device. So both
sides do the same: constant batches, one copy into recycled slots. Each turn starts separate processes, in another order
in each round; shares are of the limit in the same round. If this build or that Python cannot run a case, or the case
fails, the reason is printed and the others continue. Prints Markdown; --results also keeps it in a file with the date.

CPU time of producers is counted from when they begin to wait for a consumer until it ends, and divided by the batches
that they sent. CPU time of consumers is counted within the window. Latencies begin when a message is given to the
socket and end when it is copied; in rows that are not paced, messages spend most of that time in both sockets.
"""
import argparse
import datetime
import json
import os
import platform
import shlex
import signal
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "transports"))
# pylint: disable=wrong-import-position
from cases import Abilities, all_cases
from processes import Failed
from report import absolute, cpu_model, say
from table import best_ways, hand_off_table, latency_table, main_table, ways_table
from turns import Turns


def first_line(path):
    try:
        with open(path, encoding="utf-8") as file:
            return " ".join(file.readline().split())
    except OSError:
        return "?"


def machine(arguments):
    return {"cpu": cpu_model(), "cores": len(os.sched_getaffinity(0)), "system": platform.platform(),
            "libc": " ".join(platform.libc_ver()), "load_before": os.getloadavg()[0],
            "wmem_max": first_line("/proc/sys/net/core/wmem_max"),
            "tcp_wmem": first_line("/proc/sys/net/ipv4/tcp_wmem"),
            "huge_pages": first_line("/sys/kernel/mm/transparent_hugepage/enabled"),
            "penstock": Abilities.output([arguments.penstock, "--version"]).strip()}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("penstock", help="the program; penstock_zmq_limit must be in the same folder")
    parser.add_argument("python", help="a Python with the peers, see transports/requirements.txt")
    parser.add_argument("--only", nargs="+", default=[""], metavar="TEXT",
                        help="cases that have any of these in their names")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=5, help="measured seconds of a turn")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--image", type=int, default=224, help="height and width of images")
    parser.add_argument("--hwm", type=int, default=8, help="most messages that wait in each socket")
    parser.add_argument("--slots", type=int, default=3, help="number of slots that batches are copied into")
    parser.add_argument("--pace", type=float, default=20, help="batches per second of paced cases")
    parser.add_argument("--hand-off-rate", type=float, default=86800,
                        help="images per second at which the CPU time of a hand-off is taken")
    parser.add_argument("--limit", type=float, default=120, help="time limit of a turn, in seconds")
    parser.add_argument("--json", help="file for all results")
    parser.add_argument("--results", help="folder for a dated copy of the printed output")
    arguments = parser.parse_args()
    arguments.penstock, arguments.python = absolute(arguments.penstock), absolute(arguments.python)
    return arguments


def measure(arguments, cases, abilities):
    """Turns of each case by round, and the reasons of the excluded cases."""
    results, failed = {}, {}
    for case in cases:
        if why := abilities.reason_to_skip(case):
            failed[case.name] = f"skipped: {why}"
    turns = Turns(arguments, abilities)
    try:
        for number in range(arguments.rounds):
            able = [case for case in cases if case.name not in failed]
            first = number * 7 % max(len(able), 1)
            for case in able[first:] + able[:first]:
                try:
                    answer = turns.run(case)
                except Failed as error:
                    failed[case.name] = f"failed: {error}"
                    say(f"{case.name}: {error}")
                    continue
                results.setdefault(case.name, {})[number] = answer
                say(f"round {number + 1} of {arguments.rounds}, {case.name}: {answer['img_per_s']:.0f} img/s")
    finally:
        turns.close()
    return results, failed


def rates_by_transport(cases, results):
    """The results in the form that rates_figure.py reads."""
    rates = {}
    for case in cases:
        if case.name in results and not case.paced:
            turns = results[case.name].values()
            rates.setdefault(case.transport, {})[case.name] = [turn["img_per_s"] for turn in turns]
    return rates


def versions(results):
    """Versions of the libraries that the consumers report, each once."""
    found = {}
    for turns in results.values():
        for turn in turns.values():
            about = turn["about"]
            found.update(about.get("versions", {}))
            if "libzmq" in about:
                found["libzmq"] = about["libzmq"]
    return ", ".join(f"{name} {version}" for name, version in sorted(found.items())) or "no libraries"


def document(arguments, about, cases, results, failed):
    own = arguments
    size = own.batch * own.image * own.image * 3 / 1e6
    best = best_ways(cases, results)
    limits = "; ".join(f"{transport}: {case.way}" for transport, case in best.items()) or "none was measured"
    date = datetime.date.today().isoformat()
    ways = section("Ways to run bare libzmq", "", ways_table(cases, results, failed))
    pace = f"\nPaced: {own.pace:g} batches a second. In the others most of it is waiting in both sockets.\n"
    latencies = section("From sent to received", pace, latency_table(cases, results, failed))
    rate = f"\nAll at {own.hand_off_rate:g} img/s, into a device whose copies are free.\n"
    hand_offs = section("What a hand-off costs", rate, hand_off_table(cases, results, failed, own.batch))
    rounds = f"{own.rounds} round{'s' if own.rounds != 1 else ''} of {own.seconds:g} s"
    return f"""# Batches between processes, {date}

{about['cpu']}, {about['cores']} cores, {about['system']}, {about['libc']}; {about['penstock']}; {versions(results)}.
net.core.wmem_max {about['wmem_max']}, net.ipv4.tcp_wmem {about['tcp_wmem']}, huge pages {about['huge_pages']};
load before {about['load_before']:.2f}.

`{shlex.join(['bench/peers/transport_rates.py', *sys.argv[1:]])}`: {rounds}, batches of
{own.batch} x {own.image} x {own.image} x 3 bytes ({size:.2f} MB), hwm {own.hwm} on both sides, {own.slots} slots.
The fastest way to run bare libzmq is the limit: {limits}.

{main_table(cases, results, failed)}
{ways}{latencies}{hand_offs}"""


def section(title, words, table):
    """A section; empty if its table has no rows."""
    return f"\n## {title}\n{words}\n{table}\n" if table.count("\n") > 1 else ""


def main():
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # ends the turn's processes, too
    about = machine(arguments)
    abilities = Abilities(arguments.penstock, arguments.python)
    cases = [case for case in all_cases() if any(text in case.name for text in arguments.only)]
    if not cases:
        sys.exit(f"no case has {' or '.join(arguments.only)} in its name")
    results, failed = measure(arguments, cases, abilities)
    text = document(arguments, about, cases, results, failed)
    print(text)
    if arguments.json:
        settings = {key: getattr(arguments, key)
                    for key in ("rounds", "seconds", "batch", "image", "hwm", "slots", "pace", "hand_off_rate")}
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"machine": about | {"load_after": os.getloadavg()[0]}, "settings": settings, "failed": failed,
                       "limits": {transport: case.name for transport, case in best_ways(cases, results).items()},
                       "turns": {name: list(turns.values()) for name, turns in results.items()},
                       "img_per_s": rates_by_transport(cases, results)}, file, indent=1)
    if arguments.results:
        with open(os.path.join(arguments.results, f"{datetime.date.today()}-zmq-transports.md"), "w",
                  encoding="utf-8") as file:
            file.write(text)
    return 0 if results else 1


if __name__ == "__main__":
    sys.exit(main())
