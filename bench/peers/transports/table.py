# SPDX-License-Identifier: Apache-2.0
"""Turns as Markdown: medians with the lowest and the highest, and shares of the limit in the same round."""
import statistics

from cases import HARNESS, LIMIT_WAYS, TRANSPORTS
from report import spread

HEAD = ("| feeding | transport | format | img/s (lowest to highest) | of libzmq and memcpy, % | "
        "CPU ms a batch, sent + received | peak MiB, sent + received |\n|---|---|---|---|---|---|---|")


def median(turns, key, digits, scale=1):
    values = [turn[key] for turn in turns.values() if key in turn]
    return f"{statistics.median(values) * scale:.{digits}f}" if values else "-"


def rates(turns):
    return {number: turn["img_per_s"] for number, turn in turns.items()}


def best_ways(cases, results):
    """For each transport the fastest way to run bare libzmq, as a case; none if none was measured."""
    found = {}
    for transport in TRANSPORTS:
        measured = [case for case in cases
                    if case.group == "limit" and case.transport == transport and results.get(case.name)]
        if measured:
            found[transport] = max(measured, key=lambda case: statistics.median(rates(results[case.name]).values()))
    return found


def share(turns, limit):
    """Percentage of the limit's rate in the same round."""
    parts = [100 * rate / limit[number] for number, rate in rates(turns).items() if number in limit]
    return spread(parts) if parts else "-"


def row(case, turns, limit, name):
    return (f"| {name} | {case.transport} | {case.format} | {spread(rates(turns).values())} | "
            f"{share(turns, limit) if case.copies else '-'} | "
            f"{median(turns, 'producer_cpu_ms', 2)} + {median(turns, 'consumer_cpu_ms', 2)} | "
            f"{median(turns, 'producer_peak_rss_bytes', 0, 2**-20)} + "
            f"{median(turns, 'consumer_peak_rss_bytes', 0, 2**-20)} |")


def reason_row(case, why, cells):
    return f"| {case.name} | {case.transport} | {case.format} | {why.replace('|', '/')} |" + " |" * cells


def main_table(cases, results, failed):
    best = best_ways(cases, results)
    limits = {transport: rates(results[case.name]) for transport, case in best.items()}
    lines = [HEAD]
    for case in cases:
        if case.group in ("latency", "hand-off") or (case.way and case.group == "limit" and case is not best.get(case.transport)):
            continue
        turns = results.get(case.name)
        if not turns:
            lines.append(reason_row(case, failed.get(case.name, "no turn ended"), 3))
            continue
        # Cases without a socket are compared with the fastest of all transports.
        limit = limits.get(case.transport) or max(limits.values(), default={},
                                                  key=lambda of: statistics.median(of.values()))
        name = f"**{case.name}**" if case.group == "limit" else case.name
        lines.append(row(case, turns, limit, name))
    return "\n".join(lines)


def ways_table(cases, results, failed):
    lines = ["| bare libzmq | transport | img/s (lowest to highest) | CPU ms a batch, sent + received | "
             "page faults a batch | switches a batch, waiting + preempted |\n|---|---|---|---|---|---|"]
    for case in cases:
        if case.group != "limit" or case.way not in LIMIT_WAYS:
            continue
        turns = results.get(case.name)
        if not turns:
            lines.append(f"| {case.way} | {case.transport} | {failed.get(case.name, 'no turn ended')} | | | |")
            continue
        lines.append(f"| {case.way} | {case.transport} | {spread(rates(turns).values())} | "
                     f"{median(turns, 'producer_cpu_ms', 2)} + {median(turns, 'consumer_cpu_ms', 2)} | "
                     f"{median(turns, 'minor_faults', 0)} | {median(turns, 'voluntary_switches', 1)} + "
                     f"{median(turns, 'involuntary_switches', 1)} |")
    return "\n".join(lines)


def latency_table(cases, results, failed):
    lines = ["| feeding | transport | img/s | median ms | 99th percentile ms |\n|---|---|---|---|---|"]
    for case in cases:
        turns = results.get(case.name)
        if case.group != "latency" and not (turns and any("latency_ms_median" in turn for turn in turns.values())):
            continue
        if not turns:
            lines.append(f"| {case.name} | {case.transport} | {failed.get(case.name, 'no turn ended')} | | |")
            continue
        cells = [spread([turn[key] for turn in turns.values() if key in turn], 2)
                 if any(key in turn for turn in turns.values()) else "-"
                 for key in ("latency_ms_median", "latency_ms_p99")]
        lines.append(f"| {case.name} | {case.transport} | {median(turns, 'img_per_s', 0)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def hand_off_table(cases, results, failed, batch):
    """The cost of feeding for the consuming process, beyond the cost of the harness at the same pace in the same round."""
    lines = ["| feeding | transport | img/s | consumer's CPU ms a batch | of them for the hand-off | of a core, % | "
             "MB a batch, copied + lent |\n|---|---|---|---|---|---|---|"]
    alone = {number: turn["consumer_cpu_ms"] for number, turn in results.get(HARNESS, {}).items()}
    for case in cases:
        if case.group != "hand-off":
            continue
        turns = results.get(case.name)
        if not turns:
            lines.append(f"| {case.name} | {case.transport} | {failed.get(case.name, 'no turn ended')} | | | | |")
            continue
        own = {number: turn["consumer_cpu_ms"] - alone[number] for number, turn in turns.items() if number in alone}
        cores = [100 * ms / 1e3 * turns[number]["img_per_s"] / batch for number, ms in own.items()]
        is_harness = case.name == HARNESS or not own
        lines.append(f"| {case.name} | {case.transport} | {median(turns, 'img_per_s', 0)} | "
                     f"{median(turns, 'consumer_cpu_ms', 4)} | {'-' if is_harness else spread(own.values(), 4)} | "
                     f"{'-' if is_harness else spread(cores, 1)} | {median(turns, 'copied_bytes', 4, 1e-6)} + "
                     f"{median(turns, 'lent_bytes', 4, 1e-6)} |")
    return "\n".join(lines)
