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

using Rows = std::vector<const Row*>;

/// What the lines of these rows are.
std::string_view line_words(const Rows& rows) {
  const auto spreads = std::count_if(
      rows.begin(), rows.end(), [](const Row* row) { return row->input_cost->percent.is_spread; });
  if (spreads == 0) return "Lines: 95 % intervals over rounds.";
  if (spreads == static_cast<std::ptrdiff_t>(rows.size())) {
    return "Lines: from the lowest round to the highest.";
  }
  return "Lines: 95 % intervals over rounds, or, with '..', from the lowest round to the highest.";
}

PageFigure cost_figure(const SweepResult& sweep, const Rows& rows) {
  PageFigure figure{.file = "cost.svg", .heading = "What is lost"};
  if (rows.empty()) return figure;
  std::vector<CostDot> dots;
  for (const Row* row : rows) {
    dots.push_back({label_of(sweep, *row), row->input_cost->percent, row->input_cost->rounds});
  }
  figure.caption = fmt::format("Dots: what the table says; pale: each round. {}", line_words(rows));
  figure.draw = [dots = std::move(dots)](const FigureSize& size) {
    return cost_dots_figure(dots, size);
  };
  return figure;
}

/// A step of the row's ceiling, in ms: the mean over rounds.
double ceiling_ms(const SweepResult& sweep, const Row& row) {
  const Row& ceiling = *ceiling_of(sweep, row);
  const std::vector<Pair> steps = paired_steps(ceiling, row);
  double sum = 0;
  for (const Pair& step : steps) sum += step.a;
  if (!steps.empty()) return sum / static_cast<double>(steps.size());
  return 1e3 * images_per_step(row) / ceiling.img_per_s.value_or(Spread{}).median;
}

PageFigure waterfall_of(const SweepResult& sweep, const Rows& rows) {
  PageFigure figure{.file = "waterfall.svg", .heading = "What each step takes"};
  if (rows.empty()) return figure;
  Waterfall waterfall;
  for (const Row* row : rows) {
    const std::string label = label_of(sweep, *row);
    const Estimate& added = row->input_cost->ms_per_step;
    const double device = ceiling_ms(sweep, *row);
    waterfall.description += fmt::format("{}: {} on top of {}. ", label, estimate_text(added, "ms"),
                                         quantity_text(device, "ms"));
    waterfall.bars.push_back(
        {.label = label, .from_ms = device, .added_ms = added, .over_device = true});
  }
  figure.caption =
      fmt::format("Blue: a step of the device alone. Red: what feeding adds. {}", line_words(rows));
  figure.draw = [waterfall = std::move(waterfall)](const FigureSize& size) {
    return waterfall_figure(waterfall, size);
  };
  return figure;
}

PageFigure split_of(const SweepResult& sweep, Rows rows) {
  constexpr std::size_t kMostBars = 6;
  PageFigure figure{.file = "split.svg", .heading = "What the cost consists of"};
  std::erase_if(rows, [](const Row* row) { return row->input_cost->verdict == Verdict::equal; });
  if (rows.size() > kMostBars) rows.resize(kMostBars);
  std::vector<SplitBar> bars = splits_of(sweep, rows);
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

SweepFigures figures_of(const SweepResult& sweep) {
  const Rows rows = rows_by_cost(sweep);
  SweepFigures figures;
  figures.cost = cost_figure(sweep, rows);
  figures.waterfall = waterfall_of(sweep, rows);
  figures.split = split_of(sweep, rows);
  figures.steps.file = "steps.svg";
  figures.queues.file = "queues.svg";
  if (!rows.empty()) {
    figures.shown = rows.front();
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

/// The table of all rows, as on a terminal.
PageTable table_of(const SweepResult& sweep) {
  PageTable table;
  const std::vector<std::string> columns = text_columns(sweep);
  const std::size_t keys = sweep.varied.size();
  for (std::size_t i = 0; i + 1 < columns.size(); ++i) {  // notes stand below, each once
    table.columns.push_back({columns[i], i >= keys && i < keys + 4});
  }
  for (const Row& row : sweep.rows) {
    std::vector<std::string> cells = text_cells(sweep, row);
    cells.pop_back();
    table.rows.push_back(std::move(cells));
  }
  return table;
}

void write_how_to_read(const SweepResult& sweep, std::ostream& out) {
  begin_details(out, "How to read it");
  std::vector<std::string> lines = how_to_read(sweep);
  lines.push_back(
      fmt::format("Rounds: every row runs once in each, in random order, and is compared with the "
                  "ceiling's run of the same round. From {} rounds on, costs are means over rounds "
                  "(of logarithms of step times) with 95 % intervals by Student's t; with fewer, "
                  "the middle round with the lowest and the highest.",
                  kRoundsForInterval));
  lines.push_back(fmt::format(
      "loses: in {} rounds or more, Student's interval excludes 0 and the step is more than {:g} % "
      "longer. Keeps up: the 90 % interval lies within that. Anything else has no verdict.",
      kRoundsForVerdict, 100 * CostTargets{}.margin));
  write_list(out, lines);
  end_details(out);
}

}  // namespace

void write_sweep_page(const SweepResult& sweep, std::ostream& out) {
  const SweepFigures figures = figures_of(sweep);
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
  write_table(out, table_of(sweep));
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
  SweepFigures figures = figures_of(sweep);
  write_figure_files(
      {std::move(figures.cost), std::move(figures.waterfall), std::move(figures.split),
       std::move(figures.steps), std::move(figures.queues)},
      folder);
}

}  // namespace penstock
