// SPDX-License-Identifier: Apache-2.0
#include "bench/report/pages/run_views.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bench/record/report_text.h"
#include "bench/report/figures/figures.h"
#include "bench/report/figures/quantity.h"

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
  figure.caption = fmt::format("{}: every step of the window of {}.", full_label(row.config),
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
      full_label(row.config), which_run(row, *run, round));
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
      full_label(row.config), which_run(row, *run, round));
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

std::string_view stage_terms() {
  return "Working: the share of its threads' time that a stage takes; 78 % of two threads is as "
         "much as one thread that works 156 % of the time. Waiting for input: nothing came from "
         "the stage before. Waiting for room: the stage behind had not taken what was ready. CPU "
         "us/image: microseconds of computing; us/image: with waits for a core or for storage.";
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

}  // namespace penstock::report
