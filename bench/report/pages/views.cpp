// SPDX-License-Identifier: Apache-2.0
#include "bench/report/pages/views.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "bench/record/report_text.h"
#include "bench/report/figures/figures.h"
#include "bench/report/figures/quantity.h"
#include "dataflow/entry.h"

namespace penstock::report {
namespace {

bool counts(const Repetition& run) {
  const Status status = run.result.status;
  const bool ended = status == Status::ok || status == Status::draining;
  return ended && !run.result.step_ms.empty();
}

std::string per_image(double total, std::int64_t images, double factor) {
  return images > 0 ? number_text(factor * total / static_cast<double>(images)) : "-";
}

/// "312", or "-" if it was not recorded.
std::string peak_text(const RunResult& run, std::string_view name) {
  const auto use = std::ranges::find(run.memory, name, &MemoryUse::name);
  return use == run.memory.end() ? "-" : fixed_text(use->peak_mib, 0);
}

std::string share(double part_s, double whole_s) {
  return whole_s > 0 ? fixed_text(100 * part_s / whole_s, 0) : "-";
}

}  // namespace

const Repetition* typical_run(const Row& row) {
  std::vector<const Repetition*> runs;
  for (const Repetition& run : row.repetitions) {
    if (counts(run)) runs.push_back(&run);
  }
  if (runs.empty()) return nullptr;
  std::sort(runs.begin(), runs.end(), [](const Repetition* a, const Repetition* b) {
    return kept_up_img_per_s(a->result) < kept_up_img_per_s(b->result);
  });
  return runs[(runs.size() - 1) / 2];
}

std::string which_run(const Row& row, const Repetition& run, std::string_view round) {
  if (row.repetitions.size() == 1) return "the only run";
  return fmt::format("{} {}, whose rate is the middle one", round, run.round + 1);
}

std::optional<double> usual_step_ms(const Row& row) {
  const Repetition* const run = typical_run(row);
  if (run == nullptr) return std::nullopt;
  return median(run->result.step_ms);
}

document::Figure step_times_of(const Row& row, const Row* ceiling, std::string_view round) {
  document::Figure figure{.file = "steps.svg"};
  const Repetition* const run = typical_run(row);
  if (run == nullptr) return figure;
  const RunResult& result = run->result;
  StepSeries times{result.step_ms, result.starved_ms,     result.copy_exposed_ms,
                   result.late_ms, result.device_idle_ms, {}};
  if (ceiling != nullptr && ceiling != &row) times.ceiling_ms = usual_step_ms(*ceiling);
  figure.caption = fmt::format("{}: every step of the window of {}.", row.config.fake_location,
                               which_run(row, *run, round));
  figure.draw = drawn<step_times_figure>(std::move(times));
  return figure;
}

document::Figure queue_occupancy_of(const Row& row, std::string_view round) {
  document::Figure figure{.file = "queues.svg"};
  const Repetition* const run = typical_run(row);
  if (run == nullptr) return figure;
  std::vector<QueueTrack> tracks;
  for (const QueueUse& queue : run->result.queues) {
    if (queue.filled.empty()) continue;
    tracks.push_back({queue.name, queue.slots, queue.mean_filled, queue.empty_percent,
                      queue.full_percent, queue.filled});
  }
  if (tracks.empty()) return figure;
  figure.caption = fmt::format(
      "{}: {}. Ready: filled batches that wait for the next stage. None ready: the next stage "
      "waits. Full: no slot is free, and the stage before waits.",
      row.config.fake_location, which_run(row, *run, round));
  figure.draw = drawn<queue_occupancy_figure>(std::move(tracks), run->result.window_s);
  return figure;
}

document::Figure memory_of(const Row& row, std::string_view round) {
  document::Figure figure{.file = "memory.svg"};
  const Repetition* const run = typical_run(row);
  if (run == nullptr || run->result.memory.empty()) return figure;
  std::vector<MemoryTrack> tracks;
  for (const MemoryUse& use : run->result.memory)
    tracks.push_back({use.name, use.peak_mib, use.mib});
  figure.caption = fmt::format(
      "{}: {}. Process: resident memory of the run. Machine: memory that is not available to other "
      "programs. A device's memory is that of the whole GPU; on other devices, what the run "
      "allocated there.",
      row.config.fake_location, which_run(row, *run, round));
  figure.draw = drawn<memory_figure>(std::move(tracks), run->result.window_s);
  return figure;
}

document::Table stages_of(const Row& row) {
  document::Table table{{{"stage"},
                         {"run by"},
                         {"images", true},
                         {"CPU us/image", true},
                         {"us/image", true},
                         {"kB/image", true},
                         {"working %", true},
                         {"waiting for input %", true},
                         {"waiting for room %", true}},
                        {}};
  const Repetition* const run = typical_run(row);
  if (run == nullptr) return table;
  for (const StageUse& stage : run->result.stages) {
    const double time = stage.threads * run->result.window_s;
    table.rows.push_back(
        {stage.name, fmt::format("{} ({})", stage.workers, stage.threads),
         fixed_text(static_cast<double>(stage.images), 0),
         per_image(stage.cpu_s, stage.images, 1e6), per_image(stage.wall_s, stage.images, 1e6),
         per_image(static_cast<double>(stage.bytes), stage.images, 1e-3), share(stage.wall_s, time),
         share(stage.wait_in_s, time), share(stage.wait_out_s, time)});
  }
  return table;
}

document::Section repetitions_of(const SweepResult& sweep, std::string_view round) {
  document::Section section{
      "Each repetition",
      {document::Paragraphs{
          {"Sustained: images that the feeder finished in the window. Batches ready: those that "
           "lay "
           "in all rings when it began and when it ended. Input wait: how long a step waited for "
           "its batch. Device idle: no step to compute."},
          "",
          document::Look::soft}}};
  for (const Row& row : sweep.rows) {
    if (row.repetitions.empty()) continue;
    document::Table table{{{std::string(round)},
                           {"seed", true},
                           {"started"},
                           {"status"},
                           {"img/s", true},
                           {"sustained img/s", true},
                           {"batches ready, start to end", true},
                           {"steps", true},
                           {"step ms, median", true},
                           {"input wait ms, median", true},
                           {"device idle %", true},
                           {"process MiB, peak", true}},
                          {}};
    for (const Repetition& repetition : row.repetitions) {
      const RunResult& run = repetition.result;
      table.rows.push_back(
          {fmt::format("{} {}", round, repetition.round + 1), fmt::format("{}", run.config.seed),
           run.started, std::string(to_string(run.status)), fixed_text(run.img_per_s, 1),
           fixed_text(run.sustained_img_per_s, 1),
           fmt::format("{} to {}", fixed_text(run.reserve_start, 0),
                       fixed_text(run.reserve_end, 0)),
           fixed_text(static_cast<double>(run.step_ms.size()), 0),
           fixed_text(median(run.step_ms), 2), fixed_text(median(run.input_wait_ms), 2),
           fixed_text(run.device_idle_percent, 1), peak_text(run, "process")});
    }
    section.blocks.push_back(
        document::Section{label_of(sweep, row), {std::move(table)}, /*collapsed=*/true});
  }
  return section;
}

document::Document surroundings_of(const SweepResult& sweep) {
  return {document::Section{"Where it ran", {document::Facts{environment_lines(sweep)}}},
          document::Section{"To measure it again", {document::Verbatim{"", sweep.command, true}}}};
}

namespace {

std::string counted(std::int32_t count, std::string noun) {
  if (noun.ends_with('s')) noun.pop_back();
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

/// "2 decode threads"; without a number for a stage outside the run.
std::string workers_of(const RunResult* run, const analysis::StageFinding& finding) {
  if (run != nullptr) {
    for (const StageUse& stage : run->stages) {
      if (stage.name == finding.name && stage.workers == finding.workers) {
        return counted(stage.threads, stage.workers);
      }
    }
  }
  return finding.workers;
}

/// The curve of the training rate over device rates up to `to`, limited by the feeder's supply.
Curve curve_of(const FeederSupply& feeder, CurveLook look, double to) {
  const statistics::Estimate& supply = feeder.img_per_s;
  Curve curve;
  curve.name = fmt::format("{}: up to {}", feeder.label, quantity_text(supply.value, "img/s", 4));
  curve.look = look;
  const double start = 1e-6 * to, knee = supply.value;
  curve.points = {{start, start}, {knee, knee, supply.low, supply.high}, {to, knee}};
  return curve;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    text += i == 0 ? "" : i + 1 == names.size() ? " and " : ", ";
    text += names[i];
  }
  return text;
}

}  // namespace

document::Figure pipeline_of(const Row& row, const std::vector<analysis::StageFinding>& stages,
                             std::optional<std::size_t> bottleneck, bool trainer_is_narrow,
                             double demand_img_per_s) {
  document::Figure figure{.file = "pipeline.svg"};
  if (stages.empty()) return figure;
  const Repetition* const run = typical_run(row);
  const RunResult* const result = run == nullptr ? nullptr : &run->result;
  std::vector<PipelineStage> boxes;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const analysis::StageFinding& stage = stages[i];
    boxes.push_back({stage.name, workers_of(result, stage),
                     fmt::format("busy {} %", fixed_text(stage.utilisation_percent, 0)),
                     stage.capacity_img_per_s, bottleneck == i});
  }
  boxes.push_back({.name = "train",
                   .workers = counted(std::max(1, row.config.num_gpus), "device"),
                   .img_per_s = demand_img_per_s,
                   .narrow = trainer_is_narrow && !bottleneck});
  if (result != nullptr && !result->step_ms.empty()) {
    boxes.back().use = fmt::format("busy {} %", fixed_text(100 - result->device_idle_percent, 0));
  }
  figure.caption = fmt::format(
      "{}, from source to device. On each arrow: what the stage before it could do if its threads "
      "did nothing else and nothing held them up; arrows are as thick as that, up to twice the "
      "demand. Busy: the share of its threads' time that a stage takes; 100 % is all of them, all "
      "the time.",
      row.config.fake_location);
  figure.draw = drawn<pipeline_figure>(std::move(boxes), demand_img_per_s);
  return figure;
}

document::Figure supply_bars_of(const std::vector<FeederSupply>& feeders, double demand_img_per_s,
                                std::string how) {
  document::Figure figure{.file = "supply.svg", .heading = "Supply against demand"};
  if (feeders.empty() || !(demand_img_per_s > 0)) return figure;
  std::vector<SupplyBar> bars;
  for (const FeederSupply& feeder : feeders) {
    bars.push_back({feeder.label, feeder.img_per_s, demand_img_per_s});
  }
  figure.caption = std::move(how);
  figure.draw = drawn<supply_bars_figure>(std::move(bars));
  return figure;
}

document::Figure bottleneck_curve_of(std::vector<FeederSupply> feeders, double demand_img_per_s,
                                     const std::vector<std::string>& kept_up) {
  constexpr std::array kLooks = {CurveLook::first, CurveLook::second, CurveLook::third,
                                 CurveLook::fourth};
  document::Figure figure{.file = "bottleneck.svg",
                          .heading = "From which device rate on is the feeder the bottleneck?"};
  std::erase_if(feeders, [](const FeederSupply& feeder) {
    return !std::isfinite(feeder.img_per_s.value) || !(feeder.img_per_s.value > 0);
  });
  if (feeders.size() > kLooks.size()) feeders.resize(kLooks.size());
  if (feeders.empty() || !(demand_img_per_s > 0)) return figure;
  double to = demand_img_per_s;
  for (const FeederSupply& feeder : feeders) to = std::max(to, feeder.img_per_s.value);
  to *= 1.25;
  const double start = 1e-6 * to;
  ScalingCurves data;
  data.title = "Images trained, over what the devices could train";
  data.ranks_title = "img/s that the devices could train";
  data.value_title = "img/s trained";
  data.curves.push_back({.name = "a feeder without cost",
                         .look = CurveLook::ideal,
                         .points = {{start, start}, {to, to}}});
  for (std::size_t i = 0; i < feeders.size(); ++i) {
    data.curves.push_back(curve_of(feeders[i], kLooks[i], to));
    const statistics::Estimate& supply = feeders[i].img_per_s;
    const std::string ends = interval_text(supply, 0);
    figure.caption +=
        fmt::format("{}{} is the bottleneck of devices that train more than {} img/s {}.",
                    i == 0 ? "" : " ", feeders[i].label, fixed_text(supply.value, 0), ends);
  }
  data.curves.push_back(
      {.name = fmt::format("these devices: {} img/s", fixed_text(demand_img_per_s, 0)),
       .look = CurveLook::fifth,
       .points = {{demand_img_per_s, 0}, {demand_img_per_s, demand_img_per_s}}});
  data.description = figure.caption;
  if (!kept_up.empty()) {
    figure.caption +=
        fmt::format(" {} keep{} up with these devices; a larger number was not measured.",
                    joined(kept_up), kept_up.size() == 1 ? "s" : "");
  }
  figure.draw = drawn<scaling_curves_figure>(std::move(data));
  return figure;
}

document::Figure cost_split_of(std::vector<SplitBar> bars) {
  document::Figure figure{.file = "split.svg", .heading = "What the cost consists of"};
  if (bars.empty()) return figure;
  figure.caption =
      "Starvation: the device had no batch. Transfer: it waited for the copy of one that was "
      "ready. Interference: steps themselves got longer, or were enqueued late. Residual: what "
      "these do not explain.";
  figure.draw = drawn<cost_split_figure>(std::move(bars));
  return figure;
}

std::string_view stage_terms() {
  return "Working: the share of its threads' time that a stage takes; 78 % of two threads is as "
         "much as one thread that works 156 % of the time. Waiting for input: nothing came from "
         "the stage before. Waiting for room: the stage behind had not taken what was ready. CPU "
         "us/image: microseconds of computing; us/image: with waits for a core or for storage.";
}

}  // namespace penstock::report
