// SPDX-License-Identifier: Apache-2.0
#include "bench/report/pages/sweep_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bench/record/report_text.h"
#include "bench/report/figures/cost_dots.h"
#include "bench/report/pages/figure_files.h"
#include "bench/report/pages/flow_views.h"
#include "bench/report/pages/page.h"
#include "bench/report/pages/run_views.h"
#include "bench/report/pages/sweep_costs.h"
#include "bench/sweep/sweep.h"

namespace penstock::report {
namespace {

struct SweepFigures {
  PageFigure pipeline, supply, curve, cost, split, steps, queues;
  const Row* shown = nullptr;  ///< the row of `steps` and `queues`
};

using Rows = std::vector<const Row*>;

PageFigure cost_figure(const SweepResult& sweep, const Rows& rows) {
  PageFigure figure{.file = "cost.svg", .heading = "What is lost"};
  if (rows.empty()) return figure;
  std::vector<CostDot> dots;
  for (const Row* row : rows) {
    dots.push_back({label_of(sweep, *row), row->input_cost->percent, row->input_cost->rounds});
  }
  figure.caption =
      "The share of the devices' speed that is lost with each feeder; below 0 a round was faster "
      "than the ceiling's run beside it.";
  figure.draw = [dots = std::move(dots)](const FigureSize& size) {
    return cost_dots_figure(dots, size);
  };
  return figure;
}

/// The supply of a row: the share of its ceiling's rate that is not lost.
FeederSupply supply_of(const SweepResult& sweep, const Row& row, double demand) {
  const statistics::Estimate& lost = row.input_cost->percent;
  const auto rate = [demand](double percent) { return demand * (1 - percent / 100); };
  return {label_of(sweep, row),
          {rate(lost.value), rate(lost.high), rate(lost.low), lost.samples, lost.is_spread}};
}

/// Adds the pipeline of the row that costs most, and the supplies of all rows of its trainer.
void add_flow(const SweepResult& sweep, const Rows& rows, SweepFigures& figures) {
  figures.pipeline.file = "pipeline.svg";
  figures.supply.file = "supply.svg";
  figures.curve.file = "bottleneck.svg";
  const Row* const worst = rows.empty() ? nullptr : rows.front();
  const Row* const ceiling = worst == nullptr ? nullptr : ceiling_of(sweep, *worst);
  if (ceiling == nullptr || !ceiling->img_per_s) return;
  const double demand = ceiling->img_per_s->median;
  if (const std::optional<isolate::Diagnosis> diagnosis = diagnosis_of(sweep, *worst)) {
    figures.pipeline =
        pipeline_of(*worst, diagnosis->stages, diagnosis->bottleneck,
                    worst->input_cost->verdict == statistics::Verdict::equal, demand);
  }
  std::vector<FeederSupply> supplies, slower;
  std::vector<std::string> kept_up;
  for (const Row* row : rows) {
    if (!same_trainer(row->config, worst->config)) continue;
    supplies.push_back(supply_of(sweep, *row, demand));
    if (row->input_cost->verdict == statistics::Verdict::slower) slower.push_back(supplies.back());
    if (row->input_cost->verdict == statistics::Verdict::equal)
      kept_up.push_back(supplies.back().label);
  }
  figures.supply = supply_bars_of(
      supplies, demand, "What each feeder supplied to the devices: the rate that it kept up.");
  figures.curve = bottleneck_curve_of(std::move(slower), demand, kept_up);
}

PageFigure split_of(const SweepResult& sweep, Rows rows) {
  constexpr std::size_t kMostBars = 6;
  PageFigure figure{.file = "split.svg", .heading = "What the cost consists of"};
  std::erase_if(
      rows, [](const Row* row) { return row->input_cost->verdict == statistics::Verdict::equal; });
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
  add_flow(sweep, rows, figures);
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

/// The table of all rows, with the columns of the terminal.
document::Table table_of(const SweepResult& sweep) {
  document::Table table = text_table(sweep);
  table.columns.pop_back();  // notes are listed below, each once
  for (std::vector<std::string>& row : table.rows) row.pop_back();
  for (std::size_t i = sweep.varied.size(); i < table.columns.size(); ++i) {
    table.columns[i].number = i < sweep.varied.size() + 4;
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
                  statistics::kRoundsForInterval));
  lines.push_back(fmt::format(
      "loses: in {} rounds or more, Student's interval excludes 0 and the step is more than {:g} % "
      "longer. Keeps up: the 90 % interval lies within that. Anything else has no verdict.",
      statistics::kRoundsForVerdict, 100 * statistics::CostTargets{}.margin));
  write_list(out, lines);
  end_details(out);
}

/// The answer. Its tone comes from the worst row.
std::vector<VerdictLine> answer_lines(const SweepResult& sweep) {
  std::vector<VerdictLine> lines;
  for (std::string& sentence : answer_of(sweep)) lines.push_back({"open", std::move(sentence)});
  if (lines.empty()) lines.push_back({"open", "No feeder was measured beside a ceiling."});
  const std::vector<VerdictLine> rows = verdict_of(sweep);
  if (!rows.empty()) lines.front().tone = rows.front().tone;
  return lines;
}

void write_paste(const SweepResult& sweep, std::ostream& out) {
  std::vector<std::string> lines;
  for (const Row* row : rows_by_cost(sweep)) {
    lines.push_back(paste_line(label_of(sweep, *row), *row->input_cost, sweep.environment));
  }
  if (lines.empty()) return;
  write_heading(out, "To paste");
  write_lines(out, lines);
}

}  // namespace

void write_sweep_page(const SweepResult& sweep, std::ostream& out) {
  const SweepFigures figures = figures_of(sweep);
  begin_page(out, "What input costs");
  write_verdict(out, answer_lines(sweep));
  write_figure(out, figures.pipeline);
  write_figure(out, figures.supply);
  write_warnings(out, sweep.warnings);
  write_heading(out, "Each feeder");
  write_verdict_list(out, verdict_of(sweep));
  write_figure(out, figures.cost);
  write_figure(out, figures.curve);
  write_figure(out, figures.split);
  write_figure(out, figures.steps);
  write_figure(out, figures.queues);
  write_heading(out, "All rows");
  write_table(out, table_of(sweep));
  write_list(out, notes_of(sweep));
  if (!sweep.rows.empty()) write_paragraph(out, headline(sweep), "soft");
  write_how_to_read(sweep, out);
  if (figures.shown != nullptr) {
    const document::Table stages = stages_of(*figures.shown);
    if (!stages.rows.empty()) {
      write_heading(out, "Stages of " + label_of(sweep, *figures.shown));
      write_table(out, stages);
      write_paragraph(out, stage_terms(), "soft");
    }
  }
  write_paste(sweep, out);
  write_repetitions(sweep, out);
  write_surroundings(sweep, out);
  end_page(out);
}

void write_sweep_figures(const SweepResult& sweep, const std::filesystem::path& folder) {
  SweepFigures figures = figures_of(sweep);
  write_figure_files({std::move(figures.pipeline), std::move(figures.supply),
                      std::move(figures.curve), std::move(figures.cost), std::move(figures.split),
                      std::move(figures.steps), std::move(figures.queues)},
                     folder);
}

}  // namespace penstock::report
