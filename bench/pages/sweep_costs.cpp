// SPDX-License-Identifier: Apache-2.0
#include "bench/pages/sweep_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bench/report_text.h"

namespace penstock {
namespace {

std::string_view tone_of(Verdict verdict) {
  if (verdict == Verdict::slower) return "bad";
  return verdict == Verdict::equal ? "good" : "open";
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

/// A round in which both recorded what their devices waited for.
struct SplitRound {
  MeanStep ceiling, coupled;
};
std::vector<SplitRound> split_rounds(const Row& ceiling, const Row& row) {
  std::vector<SplitRound> rounds;
  for (const Repetition& with : row.repetitions) {
    for (const Repetition& without : ceiling.repetitions) {
      const bool both = records_waits(with.result) && records_waits(without.result);
      if (with.round != without.round || !both) continue;
      const SplitRound round{mean_step(without.result), mean_step(with.result)};
      if (round.ceiling.step > 0 && round.coupled.step > 0) rounds.push_back(round);
    }
  }
  return rounds;
}

SplitBar split_of(const std::vector<SplitRound>& rounds) {
  std::vector<Pair> steps;
  for (const SplitRound& round : rounds) steps.push_back({round.ceiling.step, round.coupled.step});
  const RoundSummary summary(steps);
  const auto longer = [&](const auto& part) {
    std::vector<double> values;
    for (const SplitRound& round : rounds)
      values.push_back(part(round.coupled) - part(round.ceiling));
    return summary.of(values);
  };
  SplitBar bar{
      .label = {},
      .total_ms = longer([](const MeanStep& mean) { return mean.step; }),
      .starvation_ms = longer([](const MeanStep& mean) { return mean.starved; }),
      .transfer_ms = longer([](const MeanStep& mean) { return mean.copy; }),
      .interference_ms = longer([](const MeanStep& mean) { return mean.own + mean.late; })};
  bar.residual_ms = bar.total_ms.value - bar.starvation_ms.value - bar.transfer_ms.value -
                    bar.interference_ms.value;
  return bar;
}

}  // namespace

std::vector<VerdictLine> verdict_of(const SweepResult& sweep) {
  std::vector<VerdictLine> lines;
  for (const Row* row : rows_by_cost(sweep)) {
    lines.push_back({tone_of(row->input_cost->verdict), cost_sentence(sweep, *row)});
  }
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

std::vector<SplitBar> splits_of(const SweepResult& sweep, const std::vector<const Row*>& rows) {
  std::vector<SplitBar> bars;
  for (const Row* row : rows) {
    const std::vector<SplitRound> rounds = split_rounds(*ceiling_of(sweep, *row), *row);
    if (rounds.empty()) continue;
    bars.push_back(split_of(rounds));
    bars.back().label = label_of(sweep, *row);
  }
  return bars;
}

std::vector<std::string> notes_of(const SweepResult& sweep) {
  constexpr std::size_t kMostLabels = 4;
  std::vector<std::pair<std::string, std::vector<std::string>>> notes;
  for (const Row& row : sweep.rows) {
    std::vector<std::string> texts = row.notes;
    if (!row.reason.empty() && row.input_cost) texts.insert(texts.begin(), row.reason);
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
