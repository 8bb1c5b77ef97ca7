// SPDX-License-Identifier: Apache-2.0
#include "bench/pages/sweep_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "bench/figures/quantity.h"
#include "bench/report_text.h"
#include "bench/statistics/paired.h"

namespace penstock {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double images_per_step(const Row& row) {
  std::int64_t images = 0;
  for (const Repetition& repetition : row.repetitions) {
    images = std::max(images, repetition.result.images_per_step);
  }
  return static_cast<double>(images);
}

Estimate without_interval(double value) { return {value, -kInfinity, kInfinity, 1}; }

/// The same ratio of step times as a share of the ceiling's rate.
double percent_of(double ratio) { return 100 * (1 - 1 / ratio); }

RowCost cost_of(const SweepResult& sweep, const Row& row) {
  RowCost cost{.row = &row, .ceiling = ceiling_of(sweep, row)};
  const double images = images_per_step(row);
  std::vector<Pair> steps;
  for (const RatePair& rates : paired_rates(*cost.ceiling, row)) {
    const Pair pair{1e3 * images / rates.without_img_per_s, 1e3 * images / rates.with_img_per_s};
    if (!std::isfinite(pair.a) || !std::isfinite(pair.b) || pair.a <= 0 || pair.b <= 0) continue;
    steps.push_back(pair);
    cost.rounds.push_back(percent_of(pair.b / pair.a));
    cost.ceiling_ms += pair.a;
  }
  const double ceiling_rate = cost.ceiling->img_per_s.value_or(Spread{}).median;
  cost.ceiling_ms = !steps.empty()     ? cost.ceiling_ms / static_cast<double>(steps.size())
                    : ceiling_rate > 0 ? 1e3 * images / ceiling_rate
                                       : 0;
  cost.percent = without_interval(row.input_cost->percent.median);
  cost.ms_per_step = without_interval(row.input_cost->ms_per_step);
  if (steps.size() < kLeastRounds) return cost;
  const Estimate ratio = paired_ratio(steps);
  cost.percent = {percent_of(ratio.value), percent_of(ratio.low), percent_of(ratio.high),
                  ratio.samples};
  cost.ms_per_step = paired_difference(steps);
  cost.verdict = judge(steps, kCostMargin);
  if (cost.verdict == Verdict::undecided) cost.more_rounds = more_pairs(steps, kCostMargin / 2);
  return cost;
}

std::string percent_text(const Estimate& percent) {
  const int decimals = std::fabs(percent.value) >= 10 ? 0 : 1;
  const std::string value = fixed_text(percent.value, decimals) + " %";
  return has_interval(percent) ? value + " " + interval_text(percent, decimals) : value;
}

std::string devices_of(const Row& row) {
  return row.config.num_gpus == 1 ? "the device" : "the devices";
}

std::string undecided_text(const std::string& label, const RowCost& cost) {
  const Estimate& percent = cost.percent;
  if (!has_interval(percent)) {
    const std::size_t rounds = cost.rounds.size();
    return fmt::format("{}: {} lost, {} of each step, in {} round{}; it takes {} for an interval.",
                       label, percent_text(percent), quantity_text(cost.ms_per_step.value, "ms"),
                       rounds, rounds == 1 ? "" : "s", kLeastRounds);
  }
  std::string text = fmt::format("{}: undecided, between {} and {} % lost", label,
                                 fixed_text(percent.low, 1), fixed_text(percent.high, 1));
  if (cost.more_rounds > 0 && cost.more_rounds < 200) {
    text += fmt::format("; about {} more round{} would tell", cost.more_rounds,
                        cost.more_rounds == 1 ? "" : "s");
  }
  return text + ".";
}

/// Where a step's time goes in the mean of a run, in ms.
struct MeanStep {
  double step = 0, starved = 0, copy = 0, late = 0, own = 0;
};

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

bool records_waits(const RunResult& run) {
  return run.status == Status::ok && !run.step_ms.empty() && !run.starved_ms.empty();
}

MeanStep mean_step(const RunResult& run) {
  const double step = mean_of(run.step_ms);
  return {step, mean_of(run.starved_ms), mean_of(run.copy_exposed_ms), mean_of(run.late_ms),
          step - mean_of(run.device_idle_ms)};
}

/// Differences to the ceiling in each round.
std::vector<MeanStep> differences(const RowCost& cost) {
  std::vector<MeanStep> result;
  for (const Repetition& with : cost.row->repetitions) {
    for (const Repetition& without : cost.ceiling->repetitions) {
      const bool both = records_waits(with.result) && records_waits(without.result);
      if (with.round != without.round || !both) continue;
      const MeanStep a = mean_step(without.result), b = mean_step(with.result);
      result.push_back({b.step - a.step, b.starved - a.starved, b.copy - a.copy, b.late - a.late,
                        b.own - a.own});
    }
  }
  return result;
}

template <typename Part>
Estimate mean_over(const std::vector<MeanStep>& rounds, Part part) {
  std::vector<double> values;
  for (const MeanStep& round : rounds) values.push_back(part(round));
  if (values.size() < kLeastRounds) return without_interval(mean_of(values));
  return mean_of_blocks(values);
}

}  // namespace

std::vector<RowCost> row_costs(const SweepResult& sweep) {
  std::vector<RowCost> costs;
  for (const Row& row : sweep.rows) {
    if (row.is_ceiling || !row.input_cost || ceiling_of(sweep, row) == nullptr) continue;
    costs.push_back(cost_of(sweep, row));
  }
  std::stable_sort(costs.begin(), costs.end(), [](const RowCost& a, const RowCost& b) {
    return a.percent.value > b.percent.value;
  });
  return costs;
}

VerdictLine sentence_of(const SweepResult& sweep, const RowCost& cost) {
  const std::string label = label_of(sweep, *cost.row);
  switch (cost.verdict) {
    case Verdict::slower:
      return {"bad", fmt::format("{} loses {} of what {} could train: {} of each step.", label,
                                 percent_text(cost.percent), devices_of(*cost.row),
                                 quantity_text(cost.ms_per_step.value, "ms"))};
    case Verdict::equal:
      return {"good", fmt::format("{} keeps up: it loses no more than {} %.", label,
                                  fixed_text(std::max(cost.percent.high, 0.1), 1))};
    case Verdict::faster:
      return {"open",
              fmt::format("{} was {} % faster than {} alone. Feeding cannot do that: "
                          "something else differed between their runs.",
                          label, fixed_text(-cost.percent.value, 1), devices_of(*cost.row))};
    case Verdict::undecided:
      break;
  }
  return {"open", undecided_text(label, cost)};
}

std::vector<VerdictLine> verdict_of(const SweepResult& sweep) {
  std::vector<VerdictLine> lines;
  for (const RowCost& cost : row_costs(sweep)) lines.push_back(sentence_of(sweep, cost));
  std::vector<std::pair<std::string, std::string>> unknown;  // why, and whom it concerns
  for (const Row& row : sweep.rows) {
    if (row.is_ceiling || row.input_cost) continue;
    const std::string why = row.reason.empty() ? row.unresolved : row.reason;
    const auto same = std::find_if(unknown.begin(), unknown.end(),
                                   [&](const auto& each) { return each.first == why; });
    const std::string label = label_of(sweep, row);
    if (same == unknown.end()) {
      unknown.emplace_back(why, label);
    } else {
      same->second += "; " + label;
    }
  }
  for (const auto& [why, labels] : unknown) {
    lines.push_back({"open", fmt::format("{}: no cost is known, {}.", labels, why)});
  }
  if (lines.empty()) lines.push_back({"open", "No feeder was measured beside a ceiling."});
  return lines;
}

std::vector<SplitBar> splits_of(const SweepResult& sweep, const std::vector<RowCost>& costs) {
  std::vector<SplitBar> bars;
  for (const RowCost& cost : costs) {
    const std::vector<MeanStep> rounds = differences(cost);
    if (rounds.empty()) continue;
    SplitBar bar{
        .label = label_of(sweep, *cost.row),
        .total_ms = mean_over(rounds, [](const MeanStep& d) { return d.step; }),
        .starvation_ms = mean_over(rounds, [](const MeanStep& d) { return d.starved; }),
        .transfer_ms = mean_over(rounds, [](const MeanStep& d) { return d.copy; }),
        .interference_ms = mean_over(rounds, [](const MeanStep& d) { return d.own + d.late; })};
    bar.residual_ms = bar.total_ms.value - bar.starvation_ms.value - bar.transfer_ms.value -
                      bar.interference_ms.value;
    bars.push_back(std::move(bar));
  }
  return bars;
}

std::vector<std::string> notes_of(const SweepResult& sweep) {
  constexpr std::size_t kMostLabels = 4;
  std::vector<std::pair<std::string, std::vector<std::string>>> notes;
  for (const Row& row : sweep.rows) {
    std::vector<std::string> texts = row.notes;
    if (!row.reason.empty()) texts.insert(texts.begin(), row.reason);
    const auto ran = static_cast<std::int32_t>(row.repetitions.size());
    if (ran > 0 && ran < sweep.repetitions) {
      texts.push_back(fmt::format("{} of {} repetitions ran", ran, sweep.repetitions));
    }
    for (const std::string& text : texts) {
      auto same = std::find_if(notes.begin(), notes.end(),
                               [&](const auto& note) { return note.first == text; });
      if (same == notes.end()) same = notes.insert(notes.end(), {text, {}});
      same->second.push_back(label_of(sweep, row));
    }
  }
  std::vector<std::string> lines;
  for (auto& [text, labels] : notes) {
    const std::size_t others = labels.size() - std::min(labels.size(), kMostLabels);
    labels.resize(labels.size() - others);
    const std::string more = others == 0 ? "" : fmt::format(" and {} more", others);
    lines.push_back(fmt::format("{}{}: {}.", fmt::join(labels, "; "), more, text));
  }
  return lines;
}

}  // namespace penstock
