# SPDX-License-Identifier: Apache-2.0
"""The metrics that Nsight Compute should measure for each kernel, and the ten kernels that take longest.

Usage: ncu --query-metrics | kernel_profile.py metrics
       kernel_profile.py longest FILE.csv [--json FILE]     FILE.csv: Nsight Compute's raw page as CSV
       kernel_profile.py longest FILE.json [--json FILE]    FILE.json: from `penstock run --trace-file`
"""
import argparse
import collections
import csv
import json
import os
import sys

DURATION = "gpu__time_duration.sum"
DRAM = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
BYTES = "dram__bytes.sum"
# Metrics of how busy the matrix units are. The first one that this chip offers is used.
TENSOR = ["sm__pipe_tensor_cycles_active", "sm__inst_executed_pipe_tensor", "sm__pipe_tensor_op_hmma_cycles_active"]
TENSOR_SUFFIX = ".avg.pct_of_peak_sustained_active"
SECONDS = {"ns": 1e-9, "nsecond": 1e-9, "us": 1e-6, "usecond": 1e-6, "ms": 1e-3, "msecond": 1e-3, "s": 1, "second": 1}
SIZES = {"byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}
LONGEST = 10


def metrics(text):
    known = {line.split()[0] for line in text.splitlines() if line.strip()}
    tensor = [name for name in TENSOR if name in known][:1]
    return ",".join([DURATION, DRAM, BYTES] + [name + TENSOR_SUFFIX for name in tensor])


def read(path):
    """Rows of kernels: name, seconds, and percentages of the peak."""
    with open(path, newline="") as file:
        lines = [line for line in file if line.startswith('"')]
    rows = list(csv.DictReader(lines))
    if not rows:
        return []
    units, rows = rows[0], rows[1:]
    tensor = next((name + TENSOR_SUFFIX for name in TENSOR if name + TENSOR_SUFFIX in units), None)

    def number(row, column):
        try:
            return float(row[column].replace(",", ""))
        except (KeyError, ValueError, AttributeError):
            return float("nan")

    return [{"name": row["Kernel Name"],
             "seconds": number(row, DURATION) * SECONDS.get(units[DURATION], 1e-9),
             "bytes": counted(number(row, BYTES)) * SIZES.get(units.get(BYTES), 1),
             "dram_percent": number(row, DRAM),
             "tensor_percent": number(row, tensor) if tensor else float("nan")} for row in rows]


def read_trace(path):
    """Rows of kernels from a trace, and the number of steps. A trace has no bytes and no percentages of the peak."""
    with open(path) as file:
        events = json.load(file)["traceEvents"]
    processes = {event["pid"] for event in events if event["name"] == "process_name" and event["args"]["name"].startswith("device ")}
    steps = sum(event["ph"] == "X" and event["name"] == "step" for event in events)
    nothing = float("nan")
    return [{"name": event["name"], "seconds": event["dur"] / 1e6, "bytes": event["args"].get("bytes", 0),
             "dram_percent": nothing, "tensor_percent": nothing}
            for event in events if event["ph"] == "X" and event["pid"] in processes], steps


def counted(value):
    return value if value == value else 0


def by_name(kernels):
    groups = collections.defaultdict(list)
    for kernel in kernels:
        groups[kernel["name"]].append(kernel)
    table = []
    for name, group in groups.items():
        seconds = sum(kernel["seconds"] for kernel in group)
        row = {"name": name, "launches": len(group), "seconds": seconds, "bytes": sum(kernel["bytes"] for kernel in group)}
        for share in ("dram_percent", "tensor_percent"):  # weighted by time
            row[share] = sum(kernel[share] * kernel["seconds"] for kernel in group) / seconds if seconds else float("nan")
        table.append(row)
    return sorted(table, key=lambda row: -row["seconds"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["metrics", "longest"])
    parser.add_argument("file", nargs="?")
    parser.add_argument("--json", help="file for the results")
    arguments = parser.parse_args()
    if arguments.what == "metrics":
        print(metrics(sys.stdin.read()))
        return 0
    try:
        kernels, steps = read_trace(arguments.file) if arguments.file.endswith(".json") else (read(arguments.file), 1)
    except (OSError, ValueError, KeyError) as error:
        print(f"no profile: {error}")
        return 1
    if not kernels:
        print(f"no kernel was profiled: see {arguments.file}")
        return 1
    table = by_name(kernels)
    total = sum(row["seconds"] for row in table)
    print(f"{steps or '?'} steps: {len(kernels)} launches of {len(table)} kernels, {total * 1e3:.2f} ms, "
          f"{sum(row['bytes'] for row in table) / 1e9:.1f} GB")
    for row in table[:LONGEST]:
        print(f"{row['seconds'] * 1e3:7.3f} ms {row['seconds'] / total:5.1%} x{row['launches']:<3} dram {row['dram_percent']:3.0f} % "
              f"tensor {row['tensor_percent']:3.0f} %  {row['name'][:90]}")
    if arguments.json:
        finite = json.loads(json.dumps(table).replace("NaN", "null"))
        with open(arguments.json + ".new", "w") as file:
            json.dump({"steps": steps, "total_s": total, "kernels": finite}, file)
        os.replace(arguments.json + ".new", arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
