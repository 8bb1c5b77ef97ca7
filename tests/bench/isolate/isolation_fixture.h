// SPDX-License-Identifier: Apache-2.0
// A made-up isolation: a JPEG feeder on two cores and a device that could take 3,571 img/s. The
// figures are consistent, as those of a real isolation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bench/isolate/isolation.h"
#include "tests/bench/record/sweep_rows.h"

namespace penstock {

/// Values around `mean` that look measured, and are the same every time.
inline std::vector<double> wobbly(std::size_t count, double mean, double spread, unsigned seed) {
  std::vector<double> values;
  std::uint32_t state = seed * 2654435761U + 1;
  double drift = 0;
  for (std::size_t i = 0; i < count; ++i) {
    state = state * 1664525U + 1013904223U;
    const double noise = static_cast<double>(state >> 8) / 16777216.0 - 0.5;
    drift = 0.7 * drift + noise;
    values.push_back(mean + spread * drift);
  }
  return values;
}

inline std::vector<QueueUse> make_queues(bool starved, unsigned seed) {
  QueueUse host, device;
  host.name = "host ring";
  host.slots = 3;
  device.name = "device ring 0";
  device.slots = 2;
  host.mean_filled = starved ? 0.2 : 2.6;
  host.empty_percent = starved ? 84 : 0;
  host.full_percent = starved ? 0 : 71;
  host.filled = wobbly(200, host.mean_filled, 0.25, seed);
  device.mean_filled = starved ? 0.5 : 1.9;
  device.empty_percent = starved ? 52 : 1;
  device.full_percent = starved ? 3 : 90;
  device.filled = wobbly(200, device.mean_filled, 0.3, seed + 1);
  for (QueueUse* queue : {&host, &device}) {
    for (double& filled : queue->filled) filled = std::max(0.0, filled);
  }
  return {host, device};
}

inline std::vector<StageUse> make_stages() {
  const auto stage = [](std::string name, std::string workers, StageRole role, std::int32_t threads,
                        double cpu_s, double wait_in_s, double wait_out_s, std::int64_t bytes) {
    return StageUse{.name = std::move(name),
                    .workers = std::move(workers),
                    .role = role,
                    .threads = threads,
                    .images = 30720,
                    .items = 30720,
                    .timed_items = 3840,
                    .cpu_s = cpu_s,
                    .wall_s = cpu_s * 1.02,
                    .wait_in_s = wait_in_s,
                    .wait_out_s = wait_out_s,
                    .bytes = bytes};
  };
  return {stage("read", "decode threads", StageRole::reads_storage, 2, 1.01, 0, 0, 3449856000),
          stage("decode", "decode threads", StageRole::decodes, 2, 29.2, 0, 0.06, 3449856000),
          stage("copy", "stager", StageRole::copies, 1, 0.58, 14.1, 0.09, 4624220160)};
}

/// The feeder adds `lost_ms` to steps of 35.84 ms.
inline RunResult make_long_result(double lost_ms, unsigned seed) {
  RunResult result;
  const std::size_t steps = 240;
  result.images_per_step = 128;
  result.started = "2026-01-02T03:04:05Z";
  result.starved_ms = wobbly(steps, lost_ms * 0.9, lost_ms * 0.12, seed);
  result.copy_exposed_ms = wobbly(steps, lost_ms * 0.04, lost_ms * 0.004, seed + 1);
  result.late_ms = wobbly(steps, 0.02, 0.01, seed + 2);
  const std::vector<double> device = wobbly(steps, 35.84 + 0.05 * lost_ms, 0.06, seed + 3);
  for (std::size_t i = 0; i < steps; ++i) {
    const double idle = result.starved_ms[i] + result.copy_exposed_ms[i] + result.late_ms[i];
    result.device_idle_ms.push_back(idle);
    result.step_ms.push_back(device[i] + idle);
    result.input_wait_ms.push_back(result.starved_ms[i]);
    result.window_s += result.step_ms.back() / 1e3;
  }
  if (lost_ms > 1) {  // a stall in the middle
    result.step_ms[130] += 95;
    result.starved_ms[130] += 95;
    result.device_idle_ms[130] += 95;
  }
  result.device_idle_percent = 100 * lost_ms / (lost_ms + 35.84);
  result.img_per_s = result.sustained_img_per_s = 128e3 / (35.84 + lost_ms);
  result.stages = make_stages();
  result.queues = make_queues(lost_ms > 1, seed);
  return result;
}

inline Row make_long_row(std::string feeder, double lost_ms, bool is_ceiling = false) {
  Row row = make_row(std::move(feeder), is_ceiling);
  for (std::int32_t round = 0; round < 5; ++round) {
    const double lost = lost_ms * (1 + 0.03 * (round - 2));
    add_repetition(row, round, make_long_result(lost, 7U + static_cast<unsigned>(round)));
  }
  return row;
}

inline Environment make_environment() {
  Environment environment;
  environment.cpu_model = "AMD EPYC 9R14 96-Core Processor";
  environment.usable_cores = 2;
  environment.online_cores = 2;
  environment.memory_bytes = 25229049856;
  environment.virtual_machine = true;
  environment.steal_percent = 0.2;
  environment.load_average = 0.4;
  environment.kernel = "6.1.0-28-amd64";
  environment.version = "0.5.0";
  environment.revision = "0123456789abcdef";
  environment.compiler = "GNU 12.2.0";
  environment.compiler_flags = "-O3 -DNDEBUG";
  environment.build_type = "Release";
  environment.libraries = {{"libjpeg-turbo", "2.1.5"}, {"libzmq", "4.3.4"}, {"oneTBB", "2021.8"}};
  environment.date = "2026-01-02T03:04:05Z";
  return environment;
}

inline analysis::InputCostFinding make_cost() {
  analysis::InputCostFinding cost;
  cost.ceiling_img_per_s = {3571.4, 3571.2, 3571.6, 5};
  cost.coupled_img_per_s = {2019.2, 1991.0, 2048.1, 5};
  cost.percent = {43.5, 42.6, 44.3, 5};
  cost.img_per_s_lost = {1552.2, 1523, 1580, 5};
  cost.split = {.total_ms = {27.55, 26.6, 28.5, 5},
                .starvation_ms = {24.9, 24.0, 25.8, 5},
                .transfer_ms = {1.1, 1.0, 1.2, 5},
                .interference_ms = {1.4, 0.9, 1.9, 5},
                .residual_ms = 0.15};
  cost.ms_per_step = cost.split.total_ms;
  cost.rounds = {42.7, 43.1, 43.5, 43.9, 44.2};
  cost.verdict = statistics::Verdict::slower;
  return cost;
}

/// `total` in ms, on a step of 35.84 ms.
inline analysis::InputCostFinding make_cost_of(double total) {
  analysis::InputCostFinding cost = make_cost();
  const auto percent = [](double ms) { return 100 * ms / (35.84 + ms); };
  cost.percent = {percent(total), percent(total - 0.8), percent(total + 0.8), 5};
  cost.split.total_ms = {total, total - 0.8, total + 0.8, 5};
  return cost;
}

inline std::vector<isolate::RungFinding> make_ladder() {
  std::vector<isolate::RungFinding> ladder;
  double total = 0;
  const auto rung = [&](std::string name, std::string adds, statistics::Estimate added,
                        statistics::Estimate supply) {
    total += added.value;
    isolate::RungFinding finding;
    finding.name = std::move(name);
    finding.adds = std::move(adds);
    finding.row = 1;
    finding.cost = make_cost_of(total);
    finding.added_ms = added;
    finding.supply_img_per_s = supply;
    ladder.push_back(std::move(finding));
  };
  rung("host", "the copy to the device", {0.02, -0.01, 0.05, 5}, {21000, 20500, 21400, 5});
  rung("cpu", "drawing pixels", {0.1, 0.02, 0.18, 5}, {63700, 61000, 66000, 5});
  rung("raw pixels", "reading pixels from memory", {0.3, 0.1, 0.5, 5}, {12800, 12500, 13100, 5});
  rung("decode, centre crop", "JPEG decoding of whole images", {29.1, 27.7, 30.5, 5},
       {1990, 1950, 2030, 5});
  rung("decode, random crop", "random crop and resize", {5.2, 4.4, 6.0, 5}, {1740, 1700, 1780, 5});
  rung("region decode", "decoding only what is cropped", {-8.2, -9.1, -7.3, 5},
       {2030, 2000, 2060, 5});
  rung("warm files", "reading files in the page cache", {1.03, 0.5, 1.6, 5}, {2010, 1980, 2040, 5});
  isolate::RungFinding cold;
  cold.name = "cold files";
  cold.adds = "reading files from the disk";
  cold.unavailable = "pages stay resident on this file system (87 % after eviction)";
  ladder.push_back(cold);
  rung("over ZeroMQ", "a producer process", {}, {1950, 1900, 2000, 5});
  ladder.back().added_ms.reset();
  ladder.back().branch = true;
  return ladder;
}

inline isolate::Isolation make_isolation() {
  isolate::Isolation isolation;
  SweepResult& sweep = isolation.measurement.sweep;
  sweep.environment = make_environment();
  sweep.command =
      "penstock isolate --fake-location queue --data-dir data/train --device emulated --num-gpus 2 "
      "--ladder --verify";
  sweep.seed = 42;
  sweep.repetitions = 5;
  sweep.varied = {&find_config_key("fake_location")};
  sweep.rows.push_back(make_long_row("gpu", 0, true));
  sweep.rows.push_back(make_long_row("queue", 27.55));
  summarise(sweep);
  isolation.measurement.coupled_row = 1;
  isolation.blocks = isolation.measurement.measured_blocks = 5;
  isolation.measurement.stopped_because = "the interval of the cost is within 1 % of the ceiling";
  for (std::size_t block = 0; block < 5; ++block) {
    isolate::BlockNoise noise;
    noise.block = block;
    noise.steal_percent = 0.1 + 0.1 * static_cast<double>(block);
    noise.cpu_pressure_percent = 12.5;
    noise.foreign_cpu_percent = 0.4;
    isolation.measurement.noise.push_back(noise);
  }
  isolation.warnings = {
      "the supply curve was measured to 2 threads, the 4 that are needed lie beyond: repeat it on "
      "a "
      "machine with more cores before buying"};
  isolation.cost = make_cost();
  isolation.supply_img_per_s = statistics::Estimate{2031, 2003, 2059, 5};
  isolation.diagnosis.stages = {
      {"read", "decode threads", StageRole::reads_storage, 2, 60952, 3.3, 0, 0.2, 33, 33, 112300},
      {"decode", "decode threads", StageRole::decodes, 2, 2105, 96.1, 0, 0.2, 950, 969, 112300},
      {"copy", "stager", StageRole::copies, 1, 53333, 3.8, 93, 0.6, 19, 19, 150528}};
  isolation.diagnosis.bottleneck = 1;
  isolation.diagnosis.gain_until_next = 1.769;
  isolation.predictions.supply_curve = {{1, {1052, 1047, 1060, 1049, 1055}},
                                        {2, {2031, 1990, 2059, 2040, 2022}}};
  isolation.predictions.law = statistics::ScalingLaw{1052, 0.036, 0};
  isolation.predictions.cores_per_device = statistics::ThreadsNeeded{.reachable = true,
                                                                     .threads = {3.81, 3.5, 4.3, 5},
                                                                     .whole = 4,
                                                                     .peak_img_per_s = {},
                                                                     .measured_to = 2};
  isolation.predictions.depths = {{"--prefetch 1", 1985}, {"", 2019}, {"--prefetch 6", 2024}};
  isolation.verdict = {
      "The queue feeder costs 43 % of what the devices could train: 27.6 ms of each step of 63.4 "
      "ms.",
      "JPEG decoding is the bottleneck: its threads work 96 % of the time, at 950 us an image.",
      "To feed this trainer takes 4 cores (3.5 to 4.3) in place of 2; behind them, the device "
      "itself "
      "is next."};
  isolation.predictions.recommendations = {
      {.text = "give the feeder 4 cores: expected 3,571 img/s, 1.77 times as many",
       .change = {},
       .config = {}},
      {.text = "store images at 256 pixels: decoding takes a third of the time",
       .change = {},
       .config = {}},
      {.text = "a deeper queue does not help: 0.2 % more with 6 slots",
       .change = {},
       .config = {}}};
  isolation.verification = isolate::Verification{.change = "--feeder-threads 1",
                                                 .predicted_img_per_s = 1049,
                                                 .achieved_img_per_s = {1041, 1020, 1062, 3},
                                                 .error_percent = 0.8,
                                                 .agrees = true};
  isolation.ladder = make_ladder();
  isolation.diagnosis.instrumentation_percent = 0.11;
  return isolation;
}

}  // namespace penstock
