// SPDX-License-Identifier: Apache-2.0
#include "bench/report/pages/sweep_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bench/config/comparable.h"
#include "bench/record/rank_skew.h"
#include "bench/record/rate_unit.h"
#include "bench/record/report_text.h"
#include "bench/record/step_parts.h"
#include "bench/report/figures/figures.h"
#include "bench/report/pages/flow_views.h"
#include "bench/report/pages/page.h"
#include "bench/report/pages/run_views.h"
#include "bench/report/pages/sweep_costs.h"

namespace penstock::report {
namespace {

struct SweepFigures {
  document::Figure pipeline{.file = "pipeline.svg"}, supply{.file = "supply.svg"},
      curve{.file = "bottleneck.svg"}, cost, split, steps{.file = "steps.svg"},
      queues{.file = "queues.svg"}, memory{.file = "memory.svg"};
  const Row* shown = nullptr;  ///< the row of `steps`, `queues` and `memory`
};

using Rows = std::vector<const Row*>;

document::Figure cost_figure(const SweepResult& sweep, const Rows& rows) {
  document::Figure figure{.file = "cost.svg", .heading = "What is lost"};
  if (rows.empty()) return figure;
  std::vector<CostDot> dots;
  for (const Row* row : rows) {
    dots.push_back({label_of(sweep, *row), row->input_cost->percent, row->input_cost->rounds});
  }
  figure.caption =
      "The share of the devices' speed that is lost with each feeder; below 0 a round was faster "
      "than the ceiling's run beside it.";
  figure.draw = drawn<cost_dots_figure>(std::move(dots));
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
  const Row* const worst = rows.empty() ? nullptr : rows.front();
  const Row* const ceiling = worst == nullptr ? nullptr : ceiling_of(sweep, *worst);
  if (ceiling == nullptr || !ceiling->img_per_s) return;
  const double demand = ceiling->img_per_s->median;
  if (const std::optional<analysis::Diagnosis> diagnosis = diagnosis_of(sweep, *worst)) {
    figures.pipeline =
        pipeline_of(*worst, diagnosis->stages, diagnosis->bottleneck,
                    worst->input_cost->verdict == statistics::Verdict::equal, demand);
  }
  std::vector<FeederSupply> supplies, slower;
  std::vector<std::string> kept_up;
  for (const Row* row : rows) {
    if (!same_trainer(row->config, worst->config)) continue;
    supplies.push_back(supply_of(sweep, *row, demand));
    const statistics::Verdict verdict = row->input_cost->verdict;
    if (verdict == statistics::Verdict::slower) slower.push_back(supplies.back());
    if (verdict == statistics::Verdict::equal) kept_up.push_back(supplies.back().label);
  }
  figures.supply = supply_bars_of(
      supplies, demand, "What each feeder supplied to the devices: the rate that it kept up.");
  figures.curve = bottleneck_curve_of(std::move(slower), demand, kept_up);
}

document::Figure split_of(const SweepResult& sweep, Rows rows) {
  constexpr std::size_t kMostBars = 6;
  std::erase_if(
      rows, [](const Row* row) { return row->input_cost->verdict == statistics::Verdict::equal; });
  if (rows.size() > kMostBars) rows.resize(kMostBars);
  return cost_split_of(splits_of(sweep, rows));
}

SweepFigures figures_of(const SweepResult& sweep) {
  const Rows rows = rows_by_cost(sweep);
  SweepFigures figures;
  figures.cost = cost_figure(sweep, rows);
  add_flow(sweep, rows, figures);
  figures.split = split_of(sweep, rows);
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
  figures.memory = memory_of(*figures.shown);
  figures.memory.heading = "Its memory";
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

document::Section explanations(const SweepResult& sweep) {
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
  return {"How to read it", {document::List{"", std::move(lines)}}, /*collapsed=*/true};
}

/// The answer. Its tone comes from the worst row.
document::Verdict verdict_lines(const SweepResult& sweep) {
  const std::vector<document::VerdictLine> rows = verdict_of(sweep);
  document::Verdict verdict{.answers = true};
  for (std::string& sentence : answer_of(sweep)) {
    const auto row = std::ranges::find(rows, sentence, &document::VerdictLine::text);
    verdict.lines.push_back({row == rows.end() ? "open" : row->tone, std::move(sentence)});
  }
  if (verdict.lines.empty()) {
    verdict.lines.push_back({"open", "No feeder was measured beside a ceiling."});
  }
  if (!rows.empty()) verdict.lines.front().tone = rows.front().tone;
  return verdict;
}

/// One sentence for each row. Empty if `answer` has all of them, because no row has a verdict or
/// the rows have several ceilings.
document::Section each_feeder(const SweepResult& sweep, const document::Verdict& answer) {
  std::vector<document::VerdictLine> rows = verdict_of(sweep);
  const bool repeats = std::ranges::all_of(rows, [&](const document::VerdictLine& row) {
    return std::ranges::find(answer.lines, row.text, &document::VerdictLine::text) !=
           answer.lines.end();
  });
  if (repeats) return {};
  return {"Each feeder", {document::Verdict{std::move(rows)}}};
}

document::Section lines_to_paste(const SweepResult& sweep) {
  std::string lines;
  for (const Row* row : rows_by_cost(sweep)) {
    lines += paste_line(label_of(sweep, *row), *row->input_cost, sweep.environment,
                        was_busy(sweep.environment)) +
             "\n";
  }
  return {"To paste", {document::Verbatim{"", std::move(lines)}}};
}

document::Section stages_shown(const SweepResult& sweep, const Row* row) {
  if (row == nullptr) return {};
  document::Table stages = stages_of(*row);
  if (stages.rows.empty()) return {};
  return {"Stages of " + label_of(sweep, *row),
          {std::move(stages),
           document::Paragraphs{{std::string(stage_terms())}, "", document::Look::soft}}};
}

}  // namespace

void write_sweep_page(const SweepResult& sweep, const document::TerminalStyle&, std::ostream& out) {
  SweepFigures figures = figures_of(sweep);
  const std::string about = sweep.rows.empty() ? "" : headline(sweep);
  document::Verdict answer = verdict_lines(sweep);
  document::Section feeders = each_feeder(sweep, answer);
  document::Document page{
      std::move(answer),
      std::move(figures.pipeline),
      document::Paragraphs{sweep.warnings, "", document::Look::warning},
      std::move(figures.supply),
      std::move(feeders),
      std::move(figures.cost),
      std::move(figures.curve),
      std::move(figures.split),
      std::move(figures.steps),
      std::move(figures.queues),
      std::move(figures.memory),
      document::Section{
          "All rows",
          {table_of(sweep), document::List{"", notes_of(sweep)},
           document::Paragraphs{about.empty() ? std::vector<std::string>() : std::vector{about}, "",
                                document::Look::soft}}},
      document::Section{"Parts of a step", {parts_table(sweep)}},
      ranks_section(sweep),
      explanations(sweep),
      stages_shown(sweep, figures.shown),
      lines_to_paste(sweep),
      repetitions_of(sweep)};
  for (document::Block& block : surroundings_of(sweep)) page.push_back(std::move(block));
  write_page("What input costs", in_unit_of(sweep, std::move(page)), out);
}

extern constinit const ReportEntry html_report{
    .name = "html",
    .summary = "one self-contained HTML page",
    .file = "report.html",
    .write = write_sweep_page,
};

void write_sweep_figures(const SweepResult& sweep, const std::filesystem::path& folder) {
  SweepFigures figures = figures_of(sweep);
  write_figure_files(
      {std::move(figures.pipeline), std::move(figures.supply), std::move(figures.curve),
       std::move(figures.cost), std::move(figures.split), std::move(figures.steps),
       std::move(figures.queues), std::move(figures.memory)},
      folder);
}

}  // namespace penstock::report
