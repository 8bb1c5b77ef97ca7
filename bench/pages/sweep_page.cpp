// SPDX-License-Identifier: Apache-2.0
#include "bench/pages/sweep_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bench/figures/cost_dots.h"
#include "bench/figures/quantity.h"
#include "bench/figures/waterfall.h"
#include "bench/pages/figure_files.h"
#include "bench/pages/page.h"
#include "bench/pages/run_views.h"
#include "bench/pages/sweep_costs.h"
#include "bench/report_text.h"

namespace penstock {
namespace {

struct SweepFigures {
  PageFigure cost, waterfall, split, steps, queues;
  const Row* shown = nullptr;  ///< the row whose steps and queues these are
};

/// How to read the intervals of these.
std::string interval_words(const std::vector<RowCost>& costs) {
  const bool all = std::all_of(costs.begin(), costs.end(),
                               [](const RowCost& cost) { return has_interval(cost.percent); });
  return all ? "Lines: 95 % intervals over rounds."
             : fmt::format("Lines: 95 % intervals over rounds, where there are {} or more.",
                           kLeastRounds);
}

PageFigure cost_figure(const SweepResult& sweep, const std::vector<RowCost>& costs) {
  PageFigure figure{.file = "cost.svg", .heading = "What is lost"};
  if (costs.empty()) return figure;
  std::vector<CostDot> dots;
  for (const RowCost& cost : costs) {
    dots.push_back({label_of(sweep, *cost.row), cost.percent, cost.rounds});
  }
  figure.caption = "Dots: the mean; pale: each round. " + interval_words(costs);
  figure.draw = [dots = std::move(dots)](const FigureSize& size) {
    return cost_dots_figure(dots, size);
  };
  return figure;
}

PageFigure waterfall_of(const SweepResult& sweep, const std::vector<RowCost>& costs) {
  PageFigure figure{.file = "waterfall.svg", .heading = "What each step takes"};
  if (costs.empty()) return figure;
  Waterfall waterfall;
  for (const RowCost& cost : costs) {
    const std::string label = label_of(sweep, *cost.row);
    waterfall.description +=
        fmt::format("{}: {} on top of {}. ", label, estimate_text(cost.ms_per_step, "ms"),
                    quantity_text(cost.ceiling_ms, "ms"));
    waterfall.bars.push_back({.label = label,
                              .from_ms = cost.ceiling_ms,
                              .added_ms = cost.ms_per_step,
                              .over_device = true});
  }
  figure.caption =
      "Blue: a step of the device alone. Red: what feeding adds. " + interval_words(costs);
  figure.draw = [waterfall = std::move(waterfall)](const FigureSize& size) {
    return waterfall_figure(waterfall, size);
  };
  return figure;
}

PageFigure split_of(const SweepResult& sweep, std::vector<RowCost> costs) {
  constexpr std::size_t kMostBars = 6;
  PageFigure figure{.file = "split.svg", .heading = "What the cost consists of"};
  std::erase_if(costs, [](const RowCost& cost) { return cost.verdict == Verdict::equal; });
  if (costs.size() > kMostBars) costs.resize(kMostBars);
  std::vector<SplitBar> bars = splits_of(sweep, costs);
  if (bars.empty()) return figure;
  figure.caption =
      "Starvation: the device had no batch. Transfer: it waited for the copy of one that was "
      "ready. "
      "Interference: steps themselves got longer, or were enqueued late. Residual: what these do "
      "not "
      "explain.";
  figure.draw = [bars = std::move(bars)](const FigureSize& size) {
    return cost_split_figure(bars, size);
  };
  return figure;
}

SweepFigures figures_of(const SweepResult& sweep, const std::vector<RowCost>& costs) {
  SweepFigures figures;
  figures.cost = cost_figure(sweep, costs);
  figures.waterfall = waterfall_of(sweep, costs);
  figures.split = split_of(sweep, costs);
  figures.steps.file = "steps.svg";
  figures.queues.file = "queues.svg";
  if (!costs.empty()) {
    figures.shown = costs.front().row;
  } else if (!sweep.rows.empty()) {
    figures.shown = &sweep.rows.front();
  }
  if (figures.shown == nullptr) return figures;
  figures.steps = step_times_of(*figures.shown, ceiling_of(sweep, *figures.shown));
  figures.steps.heading = "Every step with " + label_of(sweep, *figures.shown);
  figures.queues = queue_occupancy_of(*figures.shown);
  figures.queues.heading = "Its queues";
  return figures;
}

/// The table of all rows; costs as in the sentences above it.
PageTable table_of(const SweepResult& sweep, const std::vector<RowCost>& costs) {
  PageTable table;
  const std::vector<std::string> columns = text_columns(sweep);
  const std::size_t keys = sweep.varied.size();
  for (std::size_t i = 0; i + 1 < columns.size(); ++i) {  // notes stand below, each once
    table.columns.push_back({columns[i], i >= keys && i < keys + 4});
  }
  for (const Row& row : sweep.rows) {
    std::vector<std::string> cells = text_cells(sweep, row);
    cells.pop_back();
    const auto cost = std::find_if(costs.begin(), costs.end(),
                                   [&](const RowCost& each) { return each.row == &row; });
    if (row.img_per_s) {
      const Spread& rate = *row.img_per_s;
      cells[keys] = fmt::format("{} ({} to {})", fixed_text(rate.median, 1),
                                fixed_text(rate.low, 1), fixed_text(rate.high, 1));
    }
    if (cost != costs.end()) {
      cells[keys + 1] = estimate_text(cost->percent, "", 1);
      cells[keys + 2] = estimate_text(cost->ms_per_step, "");
    }
    table.rows.push_back(std::move(cells));
  }
  return table;
}

void write_how_to_read(const SweepResult& sweep, std::ostream& out) {
  begin_details(out, "How to read it");
  std::vector<std::string> lines = how_to_read(sweep);
  lines.push_back(fmt::format(
      "Rounds: every row runs once in each, in random order, and is compared with the "
      "ceiling's run of the same round. From {0} rounds on, costs are means over rounds "
      "(of logarithms of step times) with 95 % intervals by Student's t; with fewer, "
      "medians without an interval.",
      kLeastRounds));
  lines.push_back(fmt::format(
      "loses: the interval excludes 0 and the step is more than {0:.0f} % longer. Keeps "
      "up: the 90 % interval lies within {0:.0f} %. Undecided: anything else.",
      100 * kCostMargin));
  write_list(out, lines);
  end_details(out);
}

}  // namespace

void write_sweep_page(const SweepResult& sweep, std::ostream& out) {
  const std::vector<RowCost> costs = row_costs(sweep);
  const SweepFigures figures = figures_of(sweep, costs);
  begin_page(out, "What input costs");
  write_verdict(out, verdict_of(sweep));
  if (!sweep.rows.empty()) write_paragraph(out, headline(sweep), "soft");
  write_warnings(out, sweep.warnings);
  write_figure(out, figures.cost);
  write_figure(out, figures.waterfall);
  write_figure(out, figures.split);
  write_figure(out, figures.steps);
  write_figure(out, figures.queues);
  write_heading(out, "All rows");
  write_table(out, table_of(sweep, costs));
  write_list(out, notes_of(sweep));
  write_how_to_read(sweep, out);
  if (figures.shown != nullptr) {
    const PageTable stages = stages_of(*figures.shown);
    if (!stages.rows.empty()) {
      write_heading(out, "Stages of " + label_of(sweep, *figures.shown));
      write_table(out, stages);
    }
  }
  write_repetitions(sweep, out);
  write_surroundings(sweep, out);
  end_page(out);
}

void write_sweep_figures(const SweepResult& sweep, const std::filesystem::path& folder) {
  SweepFigures figures = figures_of(sweep, row_costs(sweep));
  write_figure_files(
      {std::move(figures.cost), std::move(figures.waterfall), std::move(figures.split),
       std::move(figures.steps), std::move(figures.queues)},
      folder);
}

}  // namespace penstock
