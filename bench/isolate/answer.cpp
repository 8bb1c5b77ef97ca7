// SPDX-License-Identifier: Apache-2.0
#include "bench/isolate/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "bench/record/report_text.h"
#include "dataflow/probe.h"

namespace penstock::isolate {
namespace {

Figure one_figure(double value) { return {value, value, value, "one figure"}; }

Figure figure_of(const statistics::Estimate& estimate) {
  return {estimate.value, estimate.low, estimate.high, std::string(ends_of(estimate))};
}

/// A rate's gain over another, in per cent.
double gain(double img_per_s, double now) { return 100 * (img_per_s / now - 1); }

class AnswerMaker {
 public:
  explicit AnswerMaker(const Isolation& found)
      : found_(found),
        cost_(*found.cost),
        now_(cost_.coupled_img_per_s),
        demand_(cost_.ceiling_img_per_s.value),
        margin_percent_(100 * cost_.margin) {}

  Answer make() {
    answer_.cause = cause_of(found_);
    if (cost_.verdict == statistics::Verdict::slower) {
      for (const Recommendation& each : found_.predictions.recommendations) add_predicted(each);
    }
    add_settings();
    add_cost_parts();
    add_stages();
    std::ranges::stable_sort(answer_.candidates, [](const Candidate& a, const Candidate& b) {
      const bool a_is_bound = a.basis == Basis::at_most, b_is_bound = b.basis == Basis::at_most;
      return a_is_bound != b_is_bound ? b_is_bound : a.gain_percent.value > b.gain_percent.value;
    });
    decide_next();
    return std::move(answer_);
  }

 private:
  /// Of a measured rate over the present one, in per cent.
  Figure gain_of(const statistics::Estimate& rate) const {
    return {gain(rate.value, now_.value), gain(rate.low, now_.value), gain(rate.high, now_.value),
            std::string(ends_of(rate))};
  }

  void rule_out(RuledOut::Kind kind, std::string name, Figure figure, double limit) {
    answer_.ruled_out.push_back({kind, std::move(name), std::move(figure), limit});
  }

  bool is_setting(const std::string& change) const {
    return found_.variation && std::ranges::any_of(found_.variation->settings, [&](auto& each) {
             return !change.empty() && each.change == change;
           });
  }

  void add_predicted(const Recommendation& recommendation) {
    if (is_setting(recommendation.change)) return;  // has a measured gain
    Candidate candidate{.settings = recommendation.settings,
                        .text = recommendation.text,
                        .img_per_s = recommendation.img_per_s,
                        .gain_percent = {},
                        .basis = Basis::predicted};
    const double value = gain(recommendation.img_per_s, now_.value);
    if (recommendation.is_bound) {
      candidate.basis = Basis::at_most;
      candidate.gain_percent = {value, 0, value, "0 and the bound"};
    } else {
      const double error = kToleratedPercent / 100;
      const double low = gain((1 - error) * recommendation.img_per_s, now_.high);
      const double high = std::min(gain((1 + error) * recommendation.img_per_s, now_.low),
                                   gain(demand_, now_.value));
      candidate.gain_percent = {value, low, std::max(value, high),
                                fmt::format("{:g} % of the prediction", kToleratedPercent)};
    }
    add(std::move(candidate), recommendation.change);
  }

  /// With what was measured of it, if it was tried.
  void add(Candidate candidate, const std::string& change) {
    if (found_.verification && found_.verification->change == change) {
      const statistics::Estimate& rate = found_.verification->achieved_img_per_s;
      candidate.img_per_s = rate.value;
      candidate.gain_percent = gain_of(rate);
      const bool is_sure = candidate.gain_percent.low > margin_percent_;
      candidate.basis = is_sure ? Basis::confirmed : Basis::measured;
    }
    const bool is_measured =
        candidate.basis == Basis::measured || candidate.basis == Basis::confirmed;
    if (is_measured && candidate.gain_percent.high <= margin_percent_) {
      rule_out(RuledOut::Kind::setting, change, candidate.gain_percent, margin_percent_);
    } else if (candidate.gain_percent.value > margin_percent_) {
      answer_.candidates.push_back(std::move(candidate));
    }
  }

  void add_settings() {
    if (!found_.variation) return;
    const auto& findings = found_.variation->settings;
    for (std::size_t i = 1; i < findings.size(); ++i) {
      if (!findings[i].img_per_s) continue;
      const statistics::Estimate& rate = *findings[i].img_per_s;
      add({.settings = with_present(found_.measurement.settings[i].changes),
           .text = findings[i].change,
           .img_per_s = rate.value,
           .gain_percent = gain_of(rate),
           .basis = Basis::measured},
          findings[i].change);
    }
  }

  /// The loader reports values that the command line does not give.
  std::vector<SettingChange> with_present(std::vector<SettingChange> changes) const {
    for (SettingChange& change : changes) {
      const auto now = mean_fact(found_.measurement.coupled(), "loader_" + change.name);
      if (!change.now.empty() || !now) continue;
      const bool is_truth = change.value == "True" || change.value == "False";
      change.now = !is_truth ? fmt::format("{:g}", *now) : *now > 0 ? "True" : "False";
    }
    return changes;
  }

  void add_cost_parts() {
    if (answer_.cause.kind == CauseKind::unknown) return;
    const double step_ms = 1e3 * images_per_step(found_.measurement.coupled()) / now_.value;
    const auto add_part = [&](std::string name, const statistics::Estimate& ms) {
      Figure percent = figure_of(ms);
      for (double* const each : {&percent.value, &percent.low, &percent.high})
        *each *= 100 / step_ms;
      if (percent.high > margin_percent_) return;
      rule_out(RuledOut::Kind::cost_part, std::move(name), std::move(percent), margin_percent_);
    };
    add_part("starvation", cost_.split.starvation_ms);
    add_part("transfer", cost_.split.transfer_ms);
    add_part("interference", cost_.split.interference_ms);
    const EpochEdges& epochs = found_.epochs;
    if (epochs.seen == 0 || !(epochs.steps_per_epoch > 0)) return;
    const double percent = 100 * epochs.longer_ms / epochs.steps_per_epoch / step_ms;
    if (percent > margin_percent_) return;
    rule_out(RuledOut::Kind::cost_part, "edges", one_figure(percent), margin_percent_);
  }

  void add_stages() {
    const auto& stages = found_.diagnosis.stages;
    for (std::size_t i = 0; i < stages.size(); ++i) {
      const double rate = stages[i].capacity_img_per_s;
      if (i == found_.diagnosis.bottleneck || rate < demand_ / (1 - cost_.margin)) continue;
      rule_out(RuledOut::Kind::stage, stages[i].name, one_figure(rate), demand_);
    }
  }

  void decide_next() {
    switch (cost_.verdict) {
      case statistics::Verdict::equal:
        answer_.candidates.clear();
        answer_.next = NextStep::stop;
        break;
      case statistics::Verdict::undecided:
      case statistics::Verdict::faster:
        answer_.next = NextStep::measure_again;
        return;
      case statistics::Verdict::slower:
        answer_.next = std::ranges::any_of(answer_.candidates,
                                           [](auto& each) { return !each.settings.empty(); })
                           ? NextStep::try_setting
                           : NextStep::change_code;
        break;
    }
    answer_.done = answer_.candidates.empty();
  }

  const Isolation& found_;
  const analysis::InputCostFinding& cost_;
  const statistics::Estimate& now_;
  const double demand_, margin_percent_;
  Answer answer_;
};

/// The kind and the place of a cause; `part_ms`: what it adds to a step.
std::pair<Cause, double> place_cause(const Isolation& found) {
  const analysis::CostSplit& split = found.cost->split;
  const double waits_ms = split.starvation_ms.value;
  const LoaderWaits& waits = found.waits;
  switch (waits.cause) {
    case WaitCause::edges:
      return {{CauseKind::edges, "first batch of an epoch"},
              waits.steps_per_epoch > 0 ? waits.edge_longer_ms / waits.steps_per_epoch : waits_ms};
    case WaitCause::in_turn:
      return {{CauseKind::in_turn, "process that asks"}, waits_ms};
    case WaitCause::uneven:
      return {{CauseKind::uneven, "late batches"}, waits_ms};
    case WaitCause::growing:
      return {{CauseKind::growing, "later batches"}, waits_ms};
    case WaitCause::none:
    case WaitCause::work:
      break;
  }
  if (found.diagnosis.bottleneck) {
    const analysis::StageFinding& stage = found.diagnosis.stages[*found.diagnosis.bottleneck];
    if (is_outside(stage.role)) {
      const bool is_known = found.delivery && found.delivery->blame != Side::none;
      return {{CauseKind::delivery,
               std::string(is_known ? to_string(found.delivery->blame) : stage.name)},
              waits_ms};
    }
    return {{unpacks_many_arrays(found) ? CauseKind::many_arrays : CauseKind::stage, stage.name},
            stage.role == StageRole::copies ? split.transfer_ms.value : waits_ms};
  }
  if (unpacks_many_arrays(found)) return {{CauseKind::many_arrays, "collate"}, waits_ms};
  if (split.interference_ms.value > waits_ms + split.transfer_ms.value)
    return {{CauseKind::interference, "steps"}, split.interference_ms.value};
  return {{CauseKind::unsaturated, "feeder"}, waits_ms + split.transfer_ms.value};
}

}  // namespace

std::string_view to_string(CauseKind kind) {
  constexpr std::array<std::string_view, 11> kNames = {
      "none",        "unknown", "edges",    "in_turn",      "uneven",     "growing",
      "many_arrays", "stage",   "delivery", "interference", "unsaturated"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view to_string(Basis basis) {
  constexpr std::array<std::string_view, 4> kNames = {"predicted", "at_most", "measured",
                                                      "confirmed"};
  return kNames[static_cast<std::size_t>(basis)];
}

std::string_view to_string(RuledOut::Kind kind) {
  constexpr std::array<std::string_view, 3> kNames = {"cost_part", "stage", "setting"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view to_string(NextStep step) {
  constexpr std::array<std::string_view, 4> kNames = {"stop", "measure_again", "try_setting",
                                                      "change_code"};
  return kNames[static_cast<std::size_t>(step)];
}

Cause cause_of(const Isolation& found) {
  if (!found.cost) return {};
  if (found.cost->verdict == statistics::Verdict::equal)
    return {.kind = CauseKind::none, .where = {}};
  if (found.cost->verdict != statistics::Verdict::slower) return {};
  auto [cause, part_ms] = place_cause(found);
  const double total_ms = found.cost->split.total_ms.value;
  if (total_ms > 0) cause.share_percent = std::clamp(100 * part_ms / total_ms, 0.0, 100.0);
  return cause;
}

Answer answer_of(const Isolation& found) {
  return found.cost ? AnswerMaker(found).make() : Answer{};
}

}  // namespace penstock::isolate
