// SPDX-License-Identifier: Apache-2.0
#include "bench/isolate/isolation_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bench/figures/quantity.h"
#include "bench/isolate/isolation_figures.h"
#include "bench/isolate/verdict.h"
#include "bench/pages/figure_files.h"
#include "bench/pages/flow_views.h"
#include "bench/pages/page.h"
#include "bench/pages/run_views.h"
#include "bench/report_text.h"

namespace penstock {
namespace {

std::string_view tone_of(const std::optional<InputCostFinding>& cost) {
  if (!cost) return "open";
  if (cost->verdict == Verdict::slower) return "bad";
  return cost->verdict == Verdict::equal ? "good" : "open";
}

void write_answer(const Isolation& isolation, std::ostream& out) {
  std::vector<VerdictLine> lines;
  for (const std::string& sentence : isolation.verdict) lines.push_back({"open", sentence});
  if (lines.empty()) lines.push_back({"open", "Nothing could be concluded."});
  lines.front().tone = tone_of(isolation.cost);
  write_verdict(out, lines);
}

void write_rates(const Isolation& isolation, std::ostream& out) {
  std::vector<Tile> tiles;
  const auto add = [&](std::string name, const Estimate& estimate, std::string_view unit,
                       int decimals) {
    const int shown = decimals_of(estimate, decimals);
    tiles.push_back({std::move(name), fmt::format("{} {}", fixed_text(estimate.value, shown), unit),
                     interval_text(estimate, shown)});
  };
  if (isolation.cost) {
    add("The device alone", isolation.cost->ceiling_img_per_s, "img/s", 0);
    add("The feeder with it", isolation.cost->coupled_img_per_s, "img/s", 0);
  }
  if (isolation.supply_img_per_s) {
    add("The feeder alone", *isolation.supply_img_per_s, "img/s", 0);
  }
  if (isolation.cost && isolation.cost->verdict == Verdict::slower) {
    add("Cost of a step", isolation.cost->ms_per_step, "ms", 2);
  }
  write_tiles(out, tiles);
}

std::string basis_of(const Isolation& isolation) {
  std::string text = blocks_text(isolation) + " of fresh processes in random order";
  if (!isolation.stopped_because.empty()) text += "; ended because " + isolation.stopped_because;
  if (!isolation.cost) return text + ".";
  return fmt::format("{}. In parentheses: {}.", text, ends_of(isolation.cost->percent));
}

void write_cures(const Isolation& isolation, std::ostream& out) {
  if (!isolation.cures.empty()) {
    write_heading(out, "What would help");
    write_list(out, isolation.cures);
  }
  if (!isolation.verification) return;
  const Verification& check = *isolation.verification;
  write_heading(out, "Predicted and tried");
  write_paragraph(out,
                  fmt::format("With {}: predicted {}, achieved {}. The prediction was {} % {}: {}.",
                              check.change, quantity_text(check.predicted_img_per_s, "img/s"),
                              estimate_text(check.achieved_img_per_s, "img/s", 0),
                              number_text(std::abs(check.error_percent), 2),
                              check.error_percent < 0 ? "too low" : "too high",
                              check.agrees ? "they agree" : "they do not agree"));
}

void write_ladder(const Isolation& isolation, std::ostream& out) {
  if (isolation.ladder.empty()) return;
  write_heading(out, "The ladder");
  PageTable table{{{"rung"},
                   {"adds"},
                   {"ms added", true},
                   {"lost to the ceiling %", true},
                   {"supply img/s", true}},
                  {}};
  std::vector<std::string> notes = unmeasured_rungs(isolation.ladder);
  for (const RungFinding& rung : isolation.ladder) {
    if (!rung.unavailable.empty()) continue;
    if (rung.branch) notes.push_back(rung.name + ": compared with the ceiling only.");
    table.rows.push_back(
        {rung.name, rung.adds, rung.added_ms ? estimate_text(*rung.added_ms, "") : "-",
         rung.cost ? format_estimate(rung.cost->percent, 1) : "-",
         rung.supply_img_per_s ? estimate_text(*rung.supply_img_per_s, "", 0) : "-"});
  }
  if (!table.rows.empty()) write_table(out, table);
  write_list(out, notes);
}

void write_delivery(const Isolation& isolation, std::ostream& out) {
  if (!isolation.delivery) return;
  const DeliveryFinding& delivery = *isolation.delivery;
  PageTable table{{{"a batch was"}, {"side"}, {"ms", true}, {"%", true}}, {}};
  for (const DeliveryPart& part : delivery.parts) {
    table.rows.push_back(
        {part.name, part.side, estimate_text(part.ms, ""), fixed_text(part.percent, 0)});
  }
  write_table(out, table);
  if (!delivery.not_known.empty()) {
    write_paragraph(out, fmt::format("Not known: {}.", delivery.not_known), "soft");
  }
}

std::string role_of(const Isolation& isolation, std::size_t stage) {
  if (isolation.bottleneck == stage) return "bottleneck";
  return isolation.next_bottleneck == stage ? "next" : "";
}

void write_stages(const Isolation& isolation, std::ostream& out) {
  if (isolation.stages.empty()) return;
  write_heading(out, "Stages from source to device");
  PageTable table{{{"stage"},
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
  for (std::size_t i = 0; i < isolation.stages.size(); ++i) {
    const StageFinding& stage = isolation.stages[i];
    table.rows.push_back(
        {stage.name, stage.workers,
         stage.capacity_img_per_s > 0 ? number_text(stage.capacity_img_per_s) : "-",
         fixed_text(stage.utilisation_percent, 0), fixed_text(stage.waits_in_percent, 0),
         fixed_text(stage.waits_out_percent, 0), number_text(stage.cpu_us_per_image),
         number_text(stage.wall_us_per_image), number_text(stage.bytes_per_image / 1e3),
         role_of(isolation, i)});
  }
  write_table(out, table);
  write_paragraph(out,
                  fmt::format("{} Timing the stages took {} % of the processor time spent in "
                              "them.",
                              stage_terms(), number_text(isolation.instrumentation_percent, 2)),
                  "soft");
}

void write_depths(const Isolation& isolation, std::ostream& out) {
  if (isolation.depths.empty()) return;
  begin_details(out, "What other queue depths would do");
  PageTable table{{{"change"}, {"expected img/s", true}}, {}};
  for (const Prediction& depth : isolation.depths) {
    table.rows.push_back(
        {depth.change.empty() ? "as measured" : depth.change, number_text(depth.img_per_s, 4)});
  }
  write_table(out, table);
  write_paragraph(out, "By replaying the measured times of feeder and device.", "soft");
  end_details(out);
}

std::string or_dash(const std::optional<double>& value) {
  return value ? fixed_text(*value, 1) : "-";
}

void write_noise(const Isolation& isolation, std::ostream& out) {
  const std::vector<BlockNoise> noise = noise_of_blocks(isolation);
  if (noise.empty()) return;
  const auto noisy = std::count_if(noise.begin(), noise.end(),
                                   [](const BlockNoise& block) { return block.throttled; });
  begin_details(out, fmt::format("Noise around each block{}",
                                 noisy > 0 ? ": processors were throttled" : ""));
  PageTable table{{{"block"},
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
                          fixed_text(block.steal_percent, 1),
                          fixed_text(block.foreign_cpu_percent, 1),
                          or_dash(block.cpu_pressure_percent), or_dash(block.io_pressure_percent),
                          clocked ? fmt::format("{} to {}", fixed_text(*block.mhz_low, 0),
                                                fixed_text(*block.mhz_high, 0))
                                  : "-",
                          block.throttled ? "yes" : "no"});
  }
  write_table(out, table);
  end_details(out);
}

}  // namespace

void write_isolation_page(const Isolation& isolation, std::ostream& out) {
  const IsolationFigures figures = figures_of(isolation);
  begin_page(out, "What input costs this trainer");
  write_answer(isolation, out);
  write_figure(out, figures.pipeline);
  write_rates(isolation, out);
  write_paragraph(out, basis_of(isolation), "soft");
  std::vector<std::string> doubts = isolation.doubts;
  doubts.insert(doubts.end(), isolation.sweep.warnings.begin(), isolation.sweep.warnings.end());
  write_warnings(out, doubts);
  write_figure(out, figures.supply);
  write_cures(isolation, out);
  write_figure(out, figures.curve);
  write_figure(out, figures.waterfall);
  write_figure(out, figures.split);
  write_figure(out, figures.delivery);
  write_delivery(isolation, out);
  write_figure(out, figures.supply_demand);
  write_figure(out, figures.steps);
  write_figure(out, figures.queues);
  write_depths(isolation, out);
  write_ladder(isolation, out);
  write_stages(isolation, out);
  write_noise(isolation, out);
  if (isolation.cost) {
    write_heading(out, "To paste");
    write_lines(out, {paste_line(feeder_label(isolation.sweep.rows[isolation.coupled_row].config),
                                 *isolation.cost, isolation.sweep.environment)});
  }
  write_repetitions(isolation.sweep, out, "block");
  write_surroundings(isolation.sweep, out);
  end_page(out);
}

void write_isolation_figures(const Isolation& isolation, const std::filesystem::path& folder) {
  IsolationFigures figures = figures_of(isolation);
  write_figure_files(
      {std::move(figures.pipeline), std::move(figures.supply), std::move(figures.curve),
       std::move(figures.waterfall), std::move(figures.split), std::move(figures.delivery),
       std::move(figures.supply_demand), std::move(figures.steps), std::move(figures.queues)},
      folder);
}

}  // namespace penstock
