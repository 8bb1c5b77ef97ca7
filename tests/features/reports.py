# SPDX-License-Identifier: Apache-2.0
"""Measurement and reports."""
import json
import os
import re
import statistics

import urllib.request

from harness import CPU, EMULATED, PAIR, TRAIN, expect, expect_losses, expect_near, expect_said, feature, free_ports, named


@feature(62, "--algorithm")
def reductions_run_alone(penstock):
    said = penstock.call("allreduce --model tiny_cnn --ranks 2 --num-iters 2 --algorithm ring,tree --json").stdout
    checked = sorted(row["algorithm"] for row in json.loads(said)["rows"] if row["sums_checked"])
    expect("algorithms whose sums were checked", checked, ["ring", "tree"])


@feature(63, "num_warmup_batches", "num_batches")
def warm_up_steps_do_not_count(penstock):
    for words, steps in (("", 10), ("--num-warmup-batches 0", 0), ("--num-warmup-batches 3", 3)):
        result = penstock.run("--fake-location gpu --device emulated:img_per_s=4000 --model trivial --batch-size 8 "
                              f"--num-batches 4 {words}")
        expect("steps of warm-up", (result["discarded_steps"], len(result["step_ms"])), (steps, 4))


STEPS = "--fake-location gpu --device emulated:img_per_s=4000 --model trivial --batch-size 8 --num-batches 12 --display-every 1"
UNEVEN = "--device emulated:img_per_s=4000,distribution=uniform,cv=0.5"
STEP_LINE = re.compile(r"^(\d+)\timages/sec: ([\d.]+) \+/- ([\d.]+) \(jitter = ([\d.]+)\)\t", re.M)


def lines_and_times(penstock, words=""):
    """The printed table of steps, and the record of the same run."""
    said = penstock.call(f"run {STEPS} --out steps.json {words}").stdout
    result = json.loads((penstock.folder / "steps.json").read_text())
    lines = [tuple(map(float, line)) for line in STEP_LINE.findall(said)]
    expect("lines", len(lines), len(result["step_ms"]))
    return lines, result, said


@feature(64)
def each_line_has_mean_uncertainty_and_jitter(penstock):
    lines, result, _ = lines_and_times(penstock, UNEVEN)
    for number, (step, *found) in enumerate(lines, 1):
        times = [ms / 1000 for ms in result["step_ms"][:number]]
        rates = [8 / seconds for seconds in times]
        middle = statistics.median(rates)
        expected = (8 * number / sum(times), statistics.pstdev(rates) / number ** 0.5,
                  1.4826 * statistics.median(abs(rate - middle) for rate in rates))
        if max(abs(one - other) for one, other in zip(found, expected)) > 0.06:
            raise AssertionError(f"mean, uncertainty and jitter at step {step}: found {found}, expected {expected}")


@feature(65, "display_perf_ewma")
def the_mean_may_follow_the_newest_steps(penstock):
    lines, result, _ = lines_and_times(penstock, f"{UNEVEN} --display-perf-ewma 0.3")
    for number, (_, found, _, _) in enumerate(lines, 1):
        weights = [0.7 ** age for age in reversed(range(number))]
        mean = sum(weight * ms for weight, ms in zip(weights, result["step_ms"])) / sum(weights)
        expect_near(f"mean at step {number}", found, 8000 / mean, 1e-3)


@feature(64, "display_every", "print_training_accuracy", "loss_type_to_report")
def the_table_has_the_columns_and_steps_that_are_asked_for(penstock):
    def table(words):
        lines = penstock.call(f"run {TRAIN} --weight-decay 0.5 {words}").stdout.splitlines()
        head = next(number for number, line in enumerate(lines) if line.startswith("Step"))
        return lines[head].split("\t")[2:], [line.split("\t") for line in lines[head + 1:] if line[0].isdigit()]
    columns, rows = table("--display-every 2")
    expect("columns and steps", (columns, [row[0] for row in rows]), (["total_loss"], ["1", "2", "4"]))
    columns, base = table("--display-every 2 --loss-type-to-report base_loss --print-training-accuracy")
    expect("columns", columns, ["base_loss", "top_1_accuracy", "top_5_accuracy"])
    expect("a loss without weight decay", float(base[0][2]) < 10 < float(rows[0][2]), True)


@feature(66)
def the_total_is_images_over_wall_time(penstock):
    _, result, said = lines_and_times(penstock)
    total = float(re.search(r"total images/sec: ([\d.]+)", said)[1])
    expect_near("total", total, 12 * 8 / result["window_s"], 1e-3)


@feature(70)
@feature(71, "--out")
@feature(91, "--repetitions")
def a_sweep_writes_csv_json_and_figures(penstock):
    penstock.call(f"sweep --fake-location gpu,host {EMULATED} --repetitions 2 --rest 0s --out batches")
    folder = penstock.folder / "batches"
    names, *rows = [line.split(",") for line in (folder / "results.csv").read_text().splitlines()]
    runs = json.loads((folder / "results.json").read_text())["runs"]
    expect("rows", len(rows), 2)
    expect("images of each repetition", [len(run["repetitions"]) for run in runs], [2, 2])
    for row, run in zip(rows, runs):
        expect_near("rate in CSV", float(row[names.index("img_per_s_median")]), run["img_per_s"]["median"], 1e-9)
    expect("figures", any((folder / "figures").glob("*.svg")), True)


@feature(75, "instrument", "host:img_per_s")
def the_record_says_how_full_queues_were(penstock):
    run = f"{EMULATED.replace('4000', '400')} --num-batches 20 --fake-location host"
    fast, slow = penstock.run(run), penstock.run(f"{run}:img_per_s=100")
    full, empty = (named(result["queues"], "host ring")["mean_filled"] for result in (fast, slow))
    expect("a fast feeder fills its queue, and a slow one does not", full > 1 > empty, True)
    unseen = penstock.run(f"--fake-location host {EMULATED} --instrument=false")
    expect("queues and stages without instruments", (unseen["queues"], unseen["stages"]), ([], []))


@feature(75, "--prometheus_port", "--prometheus_address")
def a_running_measurement_is_read_over_http(penstock):
    port = free_ports(1)[0]
    run = penstock.start(f"run --fake-location host {EMULATED.replace('4000', '80')} --num-batches 30 --prometheus-port {port} "
                         "--prometheus-address 127.0.0.2")
    page = ""
    while run.poll() is None and "penstock_" not in page:
        try:
            page = urllib.request.urlopen(f"http://127.0.0.2:{port}/metrics", timeout=5).read().decode()
        except OSError:
            pass  # it does not listen yet
    run.communicate()
    expect_said(page, "penstock_")


@feature(72, "--staged_vars")
def the_header_says_what_runs(penstock):
    said = penstock.call(f"run {PAIR} --variable-update parameter_server --staged_vars --data-dir ds/train").stdout
    for words in ("Model:       lenet", "Num batches: 4", "NUMA bind:   False", "Staged vars: True", "cpu:1"):
        expect_said(said, words)


@feature(73, "--profile_file", "--trace_file")
def a_profile_by_operation_and_a_timeline_are_written(penstock):
    penstock.call(f"run {TRAIN} --tfprof_file profile.txt --trace-file trace.json")
    expect_said((penstock.folder / "profile.txt").read_text(), "conv2d")
    events = json.loads((penstock.folder / "trace.json").read_text())["traceEvents"]
    expect("a timeline has spans", any(event["ph"] == "X" for event in events), True)


@feature(74, "--graph_file")
def the_graph_is_written_as_dot_json_and_text(penstock):
    for suffix in ("dot", "json", "txt"):
        penstock.call(f"run --fake-location gpu {EMULATED} --graph_file graph.{suffix}")
    graph = json.loads((penstock.folder / "graph.json").read_text())
    expect("parameters of the trivial model", sum(node["parameters"] for node in graph["nodes"]), 4_259_780)
    expect_said((penstock.folder / "graph.dot").read_text(), "digraph")


@feature(76)
def the_record_has_the_memory_in_use(penstock):
    memory = penstock.run(TRAIN)["memory"]
    expect("kinds of memory", {entry["name"] for entry in memory} >= {"process", "machine"}, True)


@feature(77, "queue:cores", "queue:numa")
def decoding_threads_are_placed(penstock):
    core = min(os.sched_getaffinity(0))
    facts = penstock.run(TRAIN.replace("queue", f"queue:cores={core}"))["facts"]
    expect("core of the thread", facts["decode_thread_0_core"], core)
    node = facts["decode_thread_0_node"]
    facts = penstock.run(TRAIN.replace("queue", f"queue:numa={node:.0f}"))["facts"]
    expect("node of the thread", facts["decode_thread_0_node"], node)


@feature(80, "seed")
def the_seed_decides_pixels_and_weights(penstock):
    one, same, other = (penstock.losses(f"--fake-location cpu {CPU} --seed {seed}") for seed in (1, 1, 2))
    expect_losses(one, same)
    expect("losses of another seed differ", one != other, True)


@feature(82)
def each_part_of_a_step_has_percentiles(penstock):
    result = penstock.run(f"--fake-location host {EMULATED}")
    steps = sorted(result["step_ms"])
    part = named(result["parts"], "step")
    expect_near("largest step", part["max_ms"], steps[-1], 1e-6)
    expect("order of percentiles", part["p50_ms"] <= part["p95_ms"] <= part["p99_ms"] <= part["max_ms"], True)


@feature(83, "extend_window")
def a_window_that_the_reserve_decides_is_extended(penstock):
    run = f"--fake-location host --prefetch 6 {EMULATED.replace('4000', '1600')} --num-warmup-batches 40"
    short, extended = (penstock.run(f"{run} {words}") for words in ("", "--extend-window"))
    expect("the reserve at the start", short["reserve_start"] > 0, True)
    expect_said(" ".join(short["notes"]), "let --extend-window do it")
    expect("steps", (len(short["step_ms"]), len(extended["step_ms"]) > 4), (4, True))


@feature(85, "page_cache")
def data_are_in_the_page_cache_or_not(penstock):
    facts = penstock.run(f"{TRAIN} --page-cache warm")["facts"]
    expect("warm", (facts["page_cache_warm"], facts["page_cache_resident_percent_before"]), (1, 100))
    said = penstock.call(f"run {TRAIN} --page-cache cold --num-batches 20").stderr
    expect_said(said, "asked for a cold page cache")


@feature(89, "emulated:img_per_s")
def an_emulated_device_takes_its_stated_time(penstock):
    result = penstock.run(f"--fake-location host:img_per_s=100 {EMULATED.replace('4000', '400')} --num-batches 8")
    facts = result["facts"]
    expect("stated step", facts["emulated_step_ms"], 20)
    expect("no step is shorter", min(result["step_ms"]) >= 19.99, True)
    expect("a feeder of a quarter leaves it idle", result["device_idle_percent"] > 60 and facts["au_percent_rule"] < 40, True)


@feature(90, "queue:coverage")
def which_samples_were_seen_is_checked(penstock):
    penstock.call(f"run {TRAIN.replace('queue', 'queue:coverage=seen')} --num-batches 10")
    expect_said(penstock.call("dataset coverage seen").stdout, "80")
