# SPDX-License-Identifier: Apache-2.0
"""Measurement and reports."""
import json
import re
import statistics

from harness import (CPU, EMULATED, PAIR, TRAIN, expect, expect_losses, expect_near, expect_said, feature, named,
                     tested_elsewhere)


tested_elsewhere(62, "allreduce_program", "MpirunAllReduce.EveryWayAddsRightlyAndOneRankPrints")


@feature(62)
def reductions_run_alone(penstock):
    rows = json.loads(penstock.call("allreduce --model tiny_cnn --ranks 2 --num-iters 2 --json").stdout)["rows"]
    expect("algorithms whose sums are wrong", [row["algorithm"] for row in rows if not row["sums_checked"]], [])


@feature(63)
def warm_up_steps_do_not_count(penstock):
    for words, steps in (("", 10), ("--num-warmup-batches 0", 0), ("--num-warmup-batches 3", 3)):
        result = penstock.run("--fake-location gpu --device emulated:img_per_s=4000 --model trivial --batch-size 8 "
                              f"--num-batches 4 {words}")
        expect("steps of warm-up", (result["discarded_steps"], len(result["step_ms"])), (steps, 4))


STEPS = "--fake-location gpu --device emulated:img_per_s=4000 --model trivial --batch-size 8 --num-batches 12 --display-every 1"
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
    lines, result, _ = lines_and_times(penstock)
    for number, (step, *found) in enumerate(lines, 1):
        times = [ms / 1000 for ms in result["step_ms"][:number]]
        rates = [8 / seconds for seconds in times]
        middle = statistics.median(rates)
        wanted = (8 * number / sum(times), statistics.pstdev(rates) / number ** 0.5,
                  1.4826 * statistics.median(abs(rate - middle) for rate in rates))
        if max(abs(one - other) for one, other in zip(found, wanted)) > 0.06:
            raise AssertionError(f"mean, uncertainty and jitter at step {step}: found {found}, expected {wanted}")


@feature(65)
def the_mean_may_follow_the_newest_steps(penstock):
    lines, result, _ = lines_and_times(penstock, "--display-perf-ewma 0.3")
    for number, (_, found, _, _) in enumerate(lines, 1):
        weights = [0.7 ** age for age in reversed(range(number))]
        mean = sum(weight * ms for weight, ms in zip(weights, result["step_ms"])) / sum(weights)
        expect_near(f"mean at step {number}", found, 8000 / mean, 1e-3)


@feature(66)
def the_total_is_images_over_wall_time(penstock):
    _, result, said = lines_and_times(penstock)
    total = float(re.search(r"total images/sec: ([\d.]+)", said)[1])
    expect_near("total", total, 12 * 8 / result["window_s"], 1e-3)


tested_elsewhere(67, "Mpirun.PrintsOneTableAndALineForEachRank")
tested_elsewhere(68, "MpirunScale.ClimbsOnThisMachine")
tested_elsewhere(69, "Scale.IdealComesFromTheSmallestRungThatRan")
tested_elsewhere(70, "Scale.FilesAreLaidOutAsTfperftestsWithoutTheRungThatFailed", "CsvReport.QuotesAndRoundsNothing")


@feature(70)
@feature(71)
def a_sweep_writes_csv_json_and_figures(penstock):
    penstock.call(f"sweep --fake-location gpu,host {EMULATED} --repetitions 1 --rest 0s --out batches")
    folder = penstock.folder / "batches"
    names, *rows = [line.split(",") for line in (folder / "results.csv").read_text().splitlines()]
    runs = json.loads((folder / "results.json").read_text())["runs"]
    expect("rows", len(rows), 2)
    for row, run in zip(rows, runs):
        expect_near("rate in CSV", float(row[names.index("img_per_s_median")]), run["img_per_s"]["median"], 1e-9)
    expect("figures", any((folder / "figures").glob("*.svg")), True)


@feature(75)
def the_record_says_how_full_queues_were(penstock):
    fast = penstock.run(f"--fake-location host {EMULATED} --num-batches 40")
    slow = penstock.run(f"--fake-location host:img_per_s=400 {EMULATED} --num-batches 40")
    full, empty = (named(result["queues"], "host ring")["mean_filled"] for result in (fast, slow))
    expect("a fast feeder fills its queue more than a slow one", full > empty, True)


tested_elsewhere(72, "StepTable.TheHeaderReadsOptionsAsTheRunDoes",
                 "StepTable.UnderHorovodTheHeaderSaysWhereGradientsAreAdded")


@feature(72)
def the_header_says_what_runs(penstock):
    said = penstock.call(f"run {PAIR} --variable-update parameter_server --staged_vars --data-dir ds/train").stdout
    for words in ("Model:       lenet", "Num batches: 4", "NUMA bind:   False", "Staged vars: True", "cpu:1"):
        expect_said(said, words)


tested_elsewhere(73, "OperationProfile.SumsTypesAndNamesWhatIsLeftOfTheStep", "ProfiledRun.OnThisMachinesCoresTimesEveryOperation", "TraceTest.ShowsWhatHostStagerAndFeederDo")


@feature(73)
def a_profile_by_operation_and_a_timeline_are_written(penstock):
    penstock.call(f"run {TRAIN} --tfprof_file profile.txt --trace-file trace.json")
    expect_said((penstock.folder / "profile.txt").read_text(), "conv2d")
    events = json.loads((penstock.folder / "trace.json").read_text())["traceEvents"]
    expect("a timeline has spans", any(event["ph"] == "X" for event in events), True)


@feature(74)
def the_graph_is_written_as_dot_json_and_text(penstock):
    for suffix in ("dot", "json", "txt"):
        penstock.call(f"run --fake-location gpu {EMULATED} --graph_file graph.{suffix}")
    graph = json.loads((penstock.folder / "graph.json").read_text())
    expect("parameters of the trivial model", sum(node["parameters"] for node in graph["nodes"]), 4_259_780)
    expect_said((penstock.folder / "graph.dot").read_text(), "digraph")


tested_elsewhere(76, "MemoryWatch.KeepsThePeakAndTheLevelsOfTheWindow", "WatchTest.TellsTheMostMemoryInUseOfEachGpu")


@feature(76)
def the_record_has_the_memory_in_use(penstock):
    memory = penstock.run(TRAIN)["memory"]
    expect("kinds of memory", {entry["name"] for entry in memory} >= {"process", "machine"}, True)


tested_elsewhere(77, "PlacesTest.AutoTakesNodesInTurnAndWholeCoresFirst", "PlacesTest.NodesCanBeChosen")
tested_elsewhere(78, "MpirunScale.ClimbsOverSshWithTfperftestsFlagsAndNodeFile",
                 "ScaleProgram.AMachineThatDoesNotAnswerIsNamedBeforeAnythingStarts")


@feature(80)
def the_seed_decides_pixels_and_weights(penstock):
    one, same, other = (penstock.losses(f"--fake-location cpu {CPU} --seed {seed}") for seed in (1, 1, 2))
    expect_losses(one, same)
    expect("losses of another seed differ", one != other, True)


tested_elsewhere(79, "MpirunScale.ClimbsOneLadderForEachModel", "ScaleOfModels.RefusesWhatWouldWriteTheSameFilesOrNamesNoModel")
tested_elsewhere(81, "UpdateContract.WeightsAreWhatItsAgreementSays", "Replicas.TogetherAreOneReplicaOfTheGlobalBatch")
tested_elsewhere(82, "ReportProgram.ARunEndsWithPercentilesOfItsSteps", "WhereTimeGoes.IdleTimeIsSplitByWhatTheDeviceWaitedFor")


@feature(82)
def each_part_of_a_step_has_percentiles(penstock):
    result = penstock.run(f"--fake-location host {EMULATED}")
    steps = sorted(result["step_ms"])
    part = named(result["parts"], "step")
    expect_near("largest step", part["max_ms"], steps[-1], 1e-6)
    expect("order of percentiles", part["p50_ms"] <= part["p95_ms"] <= part["p99_ms"] <= part["max_ms"], True)


tested_elsewhere(83, "KnownAnswers.AFeederOfAQuarterStarvesTheDeviceForTheRest",
                 "IsolatorTest.BatchesThatLayReadyDoNotHideASlowFeeder")
tested_elsewhere(84, "Mpirun.ThreeRanksGiveOneResult")
tested_elsewhere(85, "PageCacheRun.AColdRunIsProvedColdUnlessItReadsFilesTwice", "PageCacheRun.AWarmRunIsProvedWarm")
tested_elsewhere(86, "ZmqConsume.FramedBatchesComeWholeAndTheirEndEndsTheData", "ZmqFramedFaults.AreCountedAndNamedAndTheRestGoesOn")
tested_elsewhere(89, "AcceleratorUtilisation.TheRuleCountsStatedTimesAndLeavesOutTheFirstStepsInput",
                 "KnownAnswers.AFeederOfATenthLessThanTheDeviceCostsATenth")
tested_elsewhere(90, "Mpirun.RanksTogetherSeeEverySampleOnce", "ShardCoverage.OfTwoShardsIsExactAndOneShardAloneIsReported")


@feature(90)
def which_samples_were_seen_is_checked(penstock):
    penstock.call(f"run {TRAIN.replace('queue', 'queue:coverage=seen')} --num-batches 10")
    expect_said(penstock.call("dataset coverage seen").stdout, "80")


tested_elsewhere(91, "UnpairedRatio.IsWelchsIntervalOfLogarithms", "Coverage.IntervalsCoverTheTruthAboutAsOftenAsTheySay")
tested_elsewhere(92, "ZmqReceivers.TheBufferSetsTheHighWaterMark")


@feature(92)
def buffers_are_bounded_in_bytes(penstock):
    refused = penstock.call(f"run --fake-location zmq-consume:endpoint=ipc://bounded,buffer=1 {CPU}", code=2)
    expect_said(refused.stderr, "expected")
