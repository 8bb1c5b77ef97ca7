// SPDX-License-Identifier: Apache-2.0
#include "bench/isolate/isolation_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bench/document/document.h"
#include "bench/isolate/isolation_tables.h"
#include "bench/isolate/steady.h"
#include "bench/isolate/verdict.h"
#include "bench/record/report_text.h"
#include "bench/record/statistics.h"

namespace penstock::isolate {
namespace {

constexpr std::size_t kWidth = 100;

using document::Document, document::List, document::Paragraphs, document::Table, document::Verbatim;

std::string percent(double value) { return format_fixed(value, 0); }

/// Formats a time, a rate or a size without needless digits.
std::string short_number(double value) { return format_fixed(value, value < 10 ? 2 : 0); }

Table rate_table(const Isolation& found) {
  if (!found.cost) return {};
  const Row& ceiling = found.measurement.ceiling();
  const std::string feeder = feeder_label(found.measurement.coupled().config);
  Table table{
      {{}, {fmt::format("img/s ({})", ends_of(found.cost->percent)), true}, {"blocks", true}}, {}};
  const auto add = [&](const std::string& name, const statistics::Estimate& rate) {
    table.rows.push_back({name, format_estimate(rate, 1), std::to_string(rate.samples)});
  };
  add("ceiling (" + ceiling.config.fake_location + ")", found.cost->ceiling_img_per_s);
  if (found.supply_img_per_s) add("supply (" + feeder + " alone)", *found.supply_img_per_s);
  add("coupled (" + feeder + ")", found.cost->coupled_img_per_s);
  add("lost", found.cost->img_per_s_lost);
  return table;
}

Table cost_table(const std::optional<InputCostFinding>& cost) {
  if (!cost) return {};
  const CostSplit& split = cost->split;
  return {{{"per step"}, {fmt::format("ms ({})", ends_of(cost->percent)), true}},
          {{"input cost", format_estimate(split.total_ms, 2)},
           {"  starvation", format_estimate(split.starvation_ms, 2)},
           {"  transfer", format_estimate(split.transfer_ms, 2)},
           {"  interference", format_estimate(split.interference_ms, 2)},
           {"  residual", format_fixed(split.residual_ms, 2)}}};
}

Table stage_table(const Diagnosis& diagnosis) {
  Table table{{{"stage"},
               {"workers", true},
               {"busy %", true},
               {"waits in %", true},
               {"out %", true},
               {"max img/s", true},
               {"CPU us/img", true},
               {"bytes/img", true},
               {"", true}},
              {}};
  for (std::size_t i = 0; i < diagnosis.stages.size(); ++i) {
    const StageFinding& stage = diagnosis.stages[i];
    const bool is_bottleneck = diagnosis.bottleneck == i;
    const bool is_next = diagnosis.bottleneck && diagnosis.next_bottleneck == i;
    const std::string mark = is_bottleneck ? "<- bottleneck" : is_next ? "<- then" : "";
    table.rows.push_back(
        {stage.name, stage.workers, percent(stage.utilisation_percent),
         percent(stage.waits_in_percent), percent(stage.waits_out_percent),
         stage.capacity_img_per_s > 0 ? format_fixed(stage.capacity_img_per_s, 0) : "?",
         short_number(stage.cpu_us_per_image), format_fixed(stage.bytes_per_image, 0), mark});
  }
  return table;
}

/// Queue levels of the last usable coupled run.
Table queue_table(const Row& coupled) {
  const RunResult* last = nullptr;
  for (const Repetition& repetition : coupled.repetitions) {
    if (is_usable(repetition.result)) last = &repetition.result;
  }
  Table table{
      {{"queue"}, {"slots", true}, {"mean filled", true}, {"empty %", true}, {"full %", true}}, {}};
  if (last == nullptr) return table;
  for (const QueueUse& queue : last->queues) {
    table.rows.push_back({queue.name, std::to_string(queue.slots),
                          format_fixed(queue.mean_filled, 2), percent(queue.empty_percent),
                          percent(queue.full_percent)});
  }
  return table;
}

Table curve_table(const Predictions& predictions) {
  Table table{{{"feeder threads"}, {"supply img/s", true}, {"scaling law", true}}, {}};
  if (!predictions.law) return table;
  for (const statistics::ScalingPoint& point : predictions.supply_curve) {
    table.rows.push_back({format_fixed(point.threads, 0),
                          format_fixed(spread(point.img_per_s).median, 1),
                          format_fixed(predictions.law->rate(point.threads), 1)});
  }
  return table;
}

/// Without the column "adds", which terminals have no room for.
Table narrow_ladder_table(const std::vector<RungFinding>& ladder) {
  Table table = ladder_table(ladder);
  table.columns.erase(table.columns.begin() + 1);
  for (std::vector<std::string>& row : table.rows) row.erase(row.begin() + 1);
  return table;
}

/// How the figures were measured: blocks, why they ended, warm-up, noise.
Document method(const Isolation& found) {
  std::size_t kept = 0, dropped = 0;
  for (const Row* row : {&found.measurement.ceiling(), &found.measurement.coupled()}) {
    for (const Repetition& repetition : row->repetitions) {
      if (!is_usable(repetition.result)) continue;
      const SteadyRun run = steady_state(repetition.result);
      kept += run.steps;
      dropped += run.dropped;
    }
  }
  std::string text = fmt::format(
      "{} of fresh processes in random order; ended because {}. Warm-up (MSER-5): {} of {} steps "
      "left out.",
      blocks_text(found.measurement), found.measurement.stopped_because, dropped, kept + dropped);
  double steal = 0, foreign = 0;
  const std::vector<BlockNoise> noises = noise_of_blocks(found.measurement);
  for (const BlockNoise& noise : noises) {
    steal = std::max(steal, noise.steal_percent);
    foreign = std::max(foreign, noise.foreign_cpu_percent);
  }
  if (!noises.empty()) {
    text += fmt::format(
        " Beside it, others used up to {:.1f} % of the cores and the hypervisor "
        "took up to {:.1f} %.",
        foreign, steal);
  }
  if (found.diagnosis.instrumentation_percent > 0) {
    text += fmt::format(" Timing the stages took {:.2f} % of their CPU time.",
                        found.diagnosis.instrumentation_percent);
  }
  std::string pasted;
  if (found.cost) {
    pasted = paste_line(feeder_label(found.measurement.coupled().config), *found.cost,
                        found.measurement.sweep.environment);
  }
  return {Paragraphs{{text}}, Verbatim{"To paste: ", pasted},
          Verbatim{"Again: ", found.measurement.sweep.command}};
}

}  // namespace

void write_isolation_text(const Isolation& found, std::ostream& out) {
  std::vector<std::string> answer = found.verdict, warnings = found.warnings;
  const std::vector<std::string> details(answer.begin() + (answer.empty() ? 0 : 1), answer.end());
  answer.resize(std::min<std::size_t>(answer.size(), 1));
  const std::vector<std::string>& of_sweep = found.measurement.sweep.warnings;
  warnings.insert(warnings.end(), of_sweep.begin(), of_sweep.end());
  Document document{
      Paragraphs{answer},
      Paragraphs{details},
      rate_table(found),
      cost_table(found.cost),
      delivery_table(found.delivery),
      stage_table(found.diagnosis),
      queue_table(found.measurement.coupled()),
      curve_table(found.predictions),
      depth_table(found.predictions.depths),
      narrow_ladder_table(found.ladder),
      Paragraphs{unmeasured_rungs(found.ladder)},
      List{"What would help, best first:", texts_of(found.predictions.recommendations)},
      List{"Doubts:", warnings}};
  for (document::Block& block : method(found)) document.push_back(std::move(block));
  document::write_text(document, out, kWidth);
}

}  // namespace penstock::isolate
