// SPDX-License-Identifier: Apache-2.0
#include "bench/isolate/isolation_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bench/isolate/isolation_tables.h"
#include "bench/isolate/verdict.h"
#include "bench/record/report_text.h"
#include "bench/report/figures/quantity.h"
#include "bench/report/pages/flow_views.h"
#include "bench/report/pages/run_views.h"

namespace penstock::isolate {
namespace {

std::string_view tone_of(const std::optional<InputCostFinding>& cost) {
  if (!cost) return "open";
  if (cost->verdict == statistics::Verdict::slower) return "bad";
  return cost->verdict == statistics::Verdict::equal ? "good" : "open";
}

void write_answer(const Isolation& isolation, std::ostream& out) {
  std::vector<report::VerdictLine> lines;
  for (const std::string& sentence : isolation.verdict) lines.push_back({"open", sentence});
  if (lines.empty()) lines.push_back({"open", "Nothing could be concluded."});
  lines.front().tone = tone_of(isolation.cost);
  report::write_verdict(out, lines);
}

void write_rates(const Isolation& isolation, std::ostream& out) {
  std::vector<report::Tile> tiles;
  const auto add = [&](std::string name, const statistics::Estimate& estimate,
                       std::string_view unit, int decimals) {
    const int shown = report::decimals_of(estimate, decimals);
    tiles.push_back({std::move(name),
                     fmt::format("{} {}", report::fixed_text(estimate.value, shown), unit),
                     report::interval_text(estimate, shown)});
  };
  if (isolation.cost) {
    add("The device alone", isolation.cost->ceiling_img_per_s, "img/s", 0);
    add("The feeder with it", isolation.cost->coupled_img_per_s, "img/s", 0);
  }
  if (isolation.supply_img_per_s) {
    add("The feeder alone", *isolation.supply_img_per_s, "img/s", 0);
  }
  if (isolation.cost && isolation.cost->verdict == statistics::Verdict::slower) {
    add("Cost of a step", isolation.cost->ms_per_step, "ms", 2);
  }
  report::write_tiles(out, tiles);
}

std::string basis_of(const Isolation& isolation) {
  std::string text = blocks_text(isolation.measurement) + " of fresh processes in random order";
  if (!isolation.measurement.stopped_because.empty()) {
    text += "; ended because " + isolation.measurement.stopped_because;
  }
  if (!isolation.cost) return text + ".";
  return fmt::format("{}. In parentheses: {}.", text, ends_of(isolation.cost->percent));
}

void write_recommendations(const Isolation& isolation, std::ostream& out) {
  if (!isolation.predictions.recommendations.empty()) {
    report::write_heading(out, "What would help");
    report::write_list(out, texts_of(isolation.predictions.recommendations));
  }
  if (!isolation.verification) return;
  const Verification& check = *isolation.verification;
  report::write_heading(out, "Predicted and tried");
  report::write_paragraph(
      out, fmt::format("With {}: predicted {}, achieved {}. The prediction was {} % {}: {}.",
                       check.change, report::quantity_text(check.predicted_img_per_s, "img/s"),
                       report::estimate_text(check.achieved_img_per_s, "img/s", 0),
                       report::number_text(std::abs(check.error_percent), 2),
                       check.error_percent < 0 ? "too low" : "too high",
                       check.agrees ? "they agree" : "they do not agree"));
}

void write_ladder(const std::vector<RungFinding>& ladder, std::ostream& out) {
  if (ladder.empty()) return;
  report::write_heading(out, "The ladder");
  report::write_table(out, ladder_table(ladder));
  std::vector<std::string> notes = unmeasured_rungs(ladder);
  const bool branches = std::any_of(ladder.begin(), ladder.end(),
                                    [](const RungFinding& rung) { return rung.branch; });
  if (branches) notes.emplace_back("Branches are compared with the ceiling only.");
  report::write_list(out, notes);
}

void write_delivery(const std::optional<DeliveryFinding>& delivery, std::ostream& out) {
  if (!delivery) return;
  report::write_table(out, delivery_table(delivery));
  if (!delivery->not_known.empty()) {
    report::write_paragraph(out, fmt::format("Not known: {}.", delivery->not_known), "soft");
  }
}

std::string role_of(const Diagnosis& diagnosis, std::size_t stage) {
  if (diagnosis.bottleneck == stage) return "bottleneck";
  return diagnosis.next_bottleneck == stage ? "next" : "";
}

void write_stages(const Diagnosis& diagnosis, std::ostream& out) {
  if (diagnosis.stages.empty()) return;
  report::write_heading(out, "Stages from source to device");
  document::Table table{{{"stage"},
                         {"run by"},
                         {"could do img/s", true},
                         {"working %", true},
                         {"waiting for input %", true},
                         {"waiting for room %", true},
                         {"CPU us/image", true},
                         {"us/image", true},
                         {"kB/image", true},
                         {"role"}},
                        {}};
  for (std::size_t i = 0; i < diagnosis.stages.size(); ++i) {
    const StageFinding& stage = diagnosis.stages[i];
    table.rows.push_back(
        {stage.name, stage.workers,
         stage.capacity_img_per_s > 0 ? report::number_text(stage.capacity_img_per_s) : "-",
         report::fixed_text(stage.utilisation_percent, 0),
         report::fixed_text(stage.waits_in_percent, 0),
         report::fixed_text(stage.waits_out_percent, 0),
         report::number_text(stage.cpu_us_per_image), report::number_text(stage.wall_us_per_image),
         report::number_text(stage.bytes_per_image / 1e3), role_of(diagnosis, i)});
  }
  report::write_table(out, table);
  report::write_paragraph(
      out,
      fmt::format("{} Timing the stages took {} % of the processor time spent in "
                  "them.",
                  report::stage_terms(), report::number_text(diagnosis.instrumentation_percent, 2)),
      "soft");
}

void write_depths(const std::vector<Prediction>& depths, std::ostream& out) {
  if (depths.empty()) return;
  report::begin_details(out, "What other queue depths would do");
  report::write_table(out, depth_table(depths));
  report::write_paragraph(out, "By replaying the measured times of feeder and device.", "soft");
  report::end_details(out);
}

std::string or_dash(const std::optional<double>& value) {
  return value ? report::fixed_text(*value, 1) : "-";
}

void write_noise(const std::vector<BlockNoise>& noise, std::ostream& out) {
  if (noise.empty()) return;
  const auto noisy = std::count_if(noise.begin(), noise.end(),
                                   [](const BlockNoise& block) { return block.throttled; });
  report::begin_details(out, fmt::format("Noise around each block{}",
                                         noisy > 0 ? ": processors were throttled" : ""));
  document::Table table{{{"block"},
                         {"taken by the hypervisor %", true},
                         {"other processes %", true},
                         {"CPU pressure %", true},
                         {"I/O pressure %", true},
                         {"MHz", true},
                         {"throttled"}},
                        {}};
  for (const BlockNoise& block : noise) {
    const bool clocked = block.mhz_low && block.mhz_high;
    table.rows.push_back({fmt::format("block {}", block.block + 1),
                          report::fixed_text(block.steal_percent, 1),
                          report::fixed_text(block.foreign_cpu_percent, 1),
                          or_dash(block.cpu_pressure_percent), or_dash(block.io_pressure_percent),
                          clocked ? fmt::format("{} to {}", report::fixed_text(*block.mhz_low, 0),
                                                report::fixed_text(*block.mhz_high, 0))
                                  : "-",
                          block.throttled ? "yes" : "no"});
  }
  report::write_table(out, table);
  report::end_details(out);
}

}  // namespace

void write_isolation_page(const Isolation& isolation, std::ostream& out) {
  const IsolationFigures figures = figures_of(isolation);
  report::begin_page(out, "What input costs this trainer");
  write_answer(isolation, out);
  report::write_figure(out, figures.pipeline);
  write_rates(isolation, out);
  report::write_paragraph(out, basis_of(isolation), "soft");
  std::vector<std::string> warnings = isolation.warnings;
  warnings.insert(warnings.end(), isolation.measurement.sweep.warnings.begin(),
                  isolation.measurement.sweep.warnings.end());
  report::write_warnings(out, warnings);
  report::write_figure(out, figures.supply);
  write_recommendations(isolation, out);
  report::write_figure(out, figures.curve);
  report::write_figure(out, figures.waterfall);
  report::write_figure(out, figures.split);
  report::write_figure(out, figures.delivery);
  write_delivery(isolation.delivery, out);
  report::write_figure(out, figures.supply_demand);
  report::write_figure(out, figures.steps);
  report::write_figure(out, figures.queues);
  write_depths(isolation.predictions.depths, out);
  write_ladder(isolation.ladder, out);
  write_stages(isolation.diagnosis, out);
  write_noise(noise_of_blocks(isolation.measurement), out);
  if (isolation.cost) {
    report::write_heading(out, "To paste");
    report::write_lines(
        out, {paste_line(feeder_label(isolation.measurement.coupled().config), *isolation.cost,
                         isolation.measurement.sweep.environment)});
  }
  report::write_repetitions(isolation.measurement.sweep, out, "block");
  report::write_surroundings(isolation.measurement.sweep, out);
  report::end_page(out);
}

}  // namespace penstock::isolate
