// SPDX-License-Identifier: Apache-2.0
#include "bench/isolate/isolation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "bench/config/training_loop.h"
#include "bench/isolate/verdict.h"
#include "bench/record/rate_unit.h"
#include "bench/record/report_text.h"

namespace penstock::isolate {
namespace {

/// With fewer kept steps in a run, its mean is a guess.
constexpr std::size_t kFewSteps = 20;
/// The share that timing of stages may cost.
constexpr double kInstrumentationPercent = 0.5;

class Warnings {
 public:
  Warnings(const Isolation& found, const IsolatePlan& plan) : found_(found), plan_(plan) {}

  void add(std::string_view sentence) { sentences_.emplace_back(sentence); }

  void failures() {
    for (const Row& row : found_.measurement.sweep.rows) {
      for (const Repetition& repetition : row.repetitions) {
        const RunResult& result = repetition.result;
        if (result.status != Status::failed && result.status != Status::partial) continue;
        add(fmt::format("a run of {} with --model {} is {} and left out: {}",
                        feeder_label(row.config), row.config.model, to_string(result.status),
                        result.reason));
        break;  // the first of each row
      }
    }
  }

  void few_blocks() {
    if (found_.blocks >= kMinBlocks) return;
    const bool is_clear = found_.cost && found_.cost->verdict == statistics::Verdict::slower;
    add(fmt::format("{}: fewer than {} {}; give --budget about {:.0f}s", blocks_text(found_),
                    kMinBlocks, is_clear ? "show no spread" : "support no verdict",
                    needed_budget_s()));
  }

  void few_steps() {
    for (const Row* row : both()) {
      std::size_t least = kFewSteps;
      for (const auto& run : analysis::steady_runs(*row)) least = std::min(least, run.steps);
      if (least >= kFewSteps) continue;
      add(
          fmt::format("runs of {} kept only {} steps after warm-up; expected at least {}: give "
                      "--budget more, or --num-batches",
                      feeder_label(row->config), least, kFewSteps));
    }
  }

  void reserves() {
    constexpr double kMatters = 0.02;
    double hidden = 0;
    for (const analysis::SteadyRun& run : analysis::steady_runs(coupled())) {
      hidden = std::max(hidden, run.kept_up_ms / run.step_ms - 1);
    }
    if (hidden <= kMatters) return;
    add(
        fmt::format("batches made before the window hid up to {:.0f} % of a step's time in windows "
                    "that never drained them; the rate at which the feeder published is used "
                    "instead. Give --budget more, or fewer slots (--prefetch)",
                    100 * hidden));
  }

  void drift() {
    for (const Row* row : both()) {
      const std::vector<analysis::SteadyRun> runs = analysis::steady_runs(*row);
      std::size_t drifting = 0;
      double most = 0;
      for (const analysis::SteadyRun& run : runs) {
        if (!run.drifting) continue;
        ++drifting;
        if (std::abs(run.drift_percent) > std::abs(most)) most = run.drift_percent;
      }
      if (2 * drifting <= runs.size()) continue;
      add(
          fmt::format("step times of {} still drifted ({:+.1f} % over a window) in {} of {} runs: "
                      "a steady state was not reached; measure longer (--num-batches)",
                      feeder_label(row->config), most, drifting, runs.size()));
    }
  }

  void split() {
    if (std::ranges::all_of(analysis::steady_runs(coupled()), &analysis::SteadyRun::split_known)) {
      return;
    }
    add("runs did not record what their devices waited for: starvation and transfer are in the "
        "residual");
  }

  /// Batches that differ in samples: a share of their mean.
  static constexpr double kUnlike = 0.02;

  void unlike_runs() {
    const double of_ceiling = images_per_step(found_.measurement.ceiling());
    const double of_coupled = images_per_step(coupled());
    const bool differ = of_ceiling > 0 && of_coupled > 0 && of_ceiling != of_coupled;
    if (differ && trains_images(coupled().config)) {
      add(
          fmt::format("steps of the ceiling have {} images and those of {} have {}: the runs are "
                      "not comparable; set --batch-size",
                      of_ceiling, feeder_label(coupled().config), of_coupled));
    } else if (differ && std::abs(of_ceiling - of_coupled) > kUnlike * of_coupled) {
      add(
          fmt::format("steps of the ceiling have {} {} and those of the loader have {} on average, "
                      "because its batches differ: the cost may be wrong by that difference; a "
                      "longer --budget brings them closer",
                      of_ceiling, samples_name(coupled().config), of_coupled));
    }
    std::int64_t bad = 0;
    for (const Repetition& repetition : coupled().repetitions) {
      if (repetition.result.status == Status::failed) continue;  // at that image
      const auto found = repetition.result.counters.find("bad_samples");
      if (found != repetition.result.counters.end()) bad += found->second;
    }
    if (bad > 0) {
      add(
          fmt::format("{} damaged images were skipped, so the measured data set is incomplete; "
                      "`penstock dataset inspect` names them",
                      bad));
    }
  }

  void noise() {
    std::vector<std::size_t> noisy;
    double steal = 0, foreign = 0;
    bool throttled = false;
    for (const BlockNoise& block : noise_of_blocks(found_.measurement)) {
      if (!block.noisy()) continue;
      noisy.push_back(block.block);
      steal = std::max(steal, block.steal_percent);
      foreign = std::max(foreign, block.foreign_cpu_percent);
      throttled = throttled || block.throttled;
    }
    if (noisy.empty()) return;
    std::string text = fmt::format(
        "the machine was not quiet in {} of {} blocks (others used up to {:.0f} % of its cores, "
        "the hypervisor took up to {:.1f} %{})",
        noisy.size(), found_.measurement.measured_blocks, foreign, steal,
        throttled ? ", it was throttled" : "");
    text += without(noisy);
    add(text + "; end other work, or measure again");
  }

  void inconsistencies() {
    constexpr double kMuch = 0.1;
    const double unexplained_share = found_.predictions.unexplained_share;
    if (!found_.cost) return;
    if (found_.cost->verdict == statistics::Verdict::faster) {
      add("the feeder was faster than batches that cost nothing, which is impossible: the two rows "
          "were not measured under the same conditions");
    }
    const double coupled_rate = found_.cost->coupled_img_per_s.value;
    if (found_.supply_img_per_s && found_.supply_img_per_s->value < (1 - kMuch) * coupled_rate) {
      add(
          fmt::format("the feeder alone supplied {:.0f} img/s, less than the {:.0f} that the "
                      "trainer took from it: its rate was not steady",
                      found_.supply_img_per_s->value, coupled_rate));
    }
    // What is predicted for a loader comes from its workers' times, not from the replay.
    if (std::abs(unexplained_share) > kMuch && !plan_.has_loader) {
      add(fmt::format(
          "replaying the feeder's and the trainer's times gives a rate {:.0f} % {} than measured: "
          "they affect each other, so predictions are rough",
          std::abs(100 * unexplained_share), unexplained_share > 0 ? "higher" : "lower"));
    }
    if (found_.diagnosis.instrumentation_percent > kInstrumentationPercent) {
      add(fmt::format("timing the stages took {:.2f} % of their CPU time",
                      found_.diagnosis.instrumentation_percent));
    }
  }

  void no_profile() {
    const double needed_s = found_.measurement.without_profile_s;
    if (needed_s == 0) return;
    std::string text =
        "which code takes the time for samples was not measured, because the budget ended";
    if (found_.measurement.three_blocks_s == 0) {  // else the budget for blocks has room for it
      text += fmt::format("; --budget {:.0f}s suffices", needed_s);
    }
    add(text);
  }

  void few_ladder_blocks() {
    if (found_.ladder.empty()) return;
    const auto ceiling = found_.measurement.rungs.front().row;
    const std::size_t blocks =
        ceiling ? found_.measurement.sweep.rows[*ceiling].repetitions.size() : 0;
    if (blocks >= kMinBlocks) return;
    add(fmt::format(
        "the ladder has {} block{}: fewer than {} are inconclusive; raise --ladder-budget", blocks,
        blocks == 1 ? "" : "s", kMinBlocks));
  }

  std::vector<std::string> take() { return std::move(sentences_); }

 private:
  const Row& coupled() const { return found_.measurement.coupled(); }
  std::array<const Row*, 2> both() const { return {&found_.measurement.ceiling(), &coupled()}; }

  /// The cost in quiet blocks, if there are enough of them.
  std::string without(const std::vector<std::size_t>& noisy) const {
    std::vector<analysis::BlockPair> quiet =
        analysis::pair_blocks(found_.measurement.ceiling(), coupled());
    std::erase_if(quiet, [&](const analysis::BlockPair& pair) {
      return std::ranges::count(noisy, static_cast<std::size_t>(pair.block)) > 0;
    });
    if (quiet.size() < kMinBlocks) return "";
    const auto cost = analysis::find_cost(quiet, images_per_step(coupled()), plan_.targets);
    return "; without them the cost is " + cost_text(*cost, "block");
  }

  /// A budget that would probably suffice for enough blocks.
  double needed_budget_s() const {
    if (found_.measurement.three_blocks_s > 0) return found_.measurement.three_blocks_s;
    const auto blocks = static_cast<double>(std::max<std::size_t>(found_.blocks, 1));
    return std::ceil(to_seconds(plan_.budget) * 1.3 * static_cast<double>(kTargetBlocks) / blocks);
  }

  const Isolation& found_;
  const IsolatePlan& plan_;
  std::vector<std::string> sentences_;
};

/// Returns what a reader must know before believing `found`, one sentence each; empty if there is
/// no doubt. `found` must contain all measurements, but not necessarily a verdict.
std::vector<std::string> find_warnings(const Isolation& found, const IsolatePlan& plan) {
  Warnings warnings(found, plan);
  warnings.failures();
  warnings.few_blocks();
  warnings.few_steps();
  warnings.reserves();
  warnings.drift();
  warnings.split();
  warnings.unlike_runs();
  warnings.noise();
  warnings.inconsistencies();
  warnings.no_profile();
  warnings.few_ladder_blocks();
  return warnings.take();
}

/// Adds what causes the cost, and what would help.
void add_causes(Isolation& found, const IsolatePlan& plan) {
  const Row& coupled = found.measurement.coupled();
  found.diagnosis = analysis::diagnose({.coupled = coupled,
                                        .cost = *found.cost,
                                        .has_producer = plan.has_producer,
                                        .crowded = is_crowded(found.measurement)});
  if (plan.has_loader) {
    found.waits = find_waits(found);
    found.traits = find_traits(coupled);
  }
  if (plan.has_producer) found.delivery = find_delivery(coupled, found.ladder, found.diagnosis);
  found.predictions = predict(found, plan);
}

/// Adds what the settings and the verification show. The best setting replaces predicted changes,
/// because the user did not ask for them.
void add_trials(Isolation& found) {
  const Measurement& measurement = found.measurement;
  if (!measurement.settings.empty()) {
    found.variation = find_variation(measurement.sweep, measurement.settings, *found.cost);
    std::vector<Recommendation>& recommendations = found.predictions.recommendations;
    std::erase_if(recommendations, &can_be_tried);
    if (auto best = recommendation_of(*found.variation, measurement.settings, *found.cost)) {
      recommendations.insert(recommendations.begin(), std::move(*best));
    }
  }
  if (measurement.trial) {
    found.verification =
        verification_of(measurement.sweep.rows[measurement.trial->before_row],
                        measurement.sweep.rows[measurement.trial->after_row],
                        found.cost->coupled_img_per_s.value, measurement.trial->tried);
  }
}

/// Did other programs leave too little for a loader in every block? Then it may have waited for a
/// processor in one block and not in the next, so that few blocks show nothing but a large cost.
bool is_overrun(const Measurement& measurement, std::int32_t cores) {
  constexpr double kTooLittle = 0.6;  // of a processor
  const std::vector<BlockNoise> noise = noise_of_blocks(measurement);
  return !noise.empty() && std::ranges::all_of(noise, [&](const BlockNoise& block) {
    return cores * (1 - (block.foreign_cpu_percent + block.steal_percent) / 100) < kTooLittle;
  });
}

/// Takes back a verdict that only waits decided, of a machine that had no processor left.
void doubt(analysis::InputCostFinding& cost, std::span<const analysis::BlockPair> blocks,
           const Measurement& measurement, std::int32_t cores) {
  if (cost.verdict != statistics::Verdict::slower || !is_overrun(measurement, cores) ||
      std::ranges::min(cost.rounds) > statistics::kBeyondNoisePercent ||
      statistics::judge(analysis::step_pairs(blocks), cost.margin) == statistics::Verdict::slower) {
    return;
  }
  cost.verdict = statistics::Verdict::undecided;
  cost.more_rounds =
      statistics::kRoundsForVerdict - std::min(statistics::kRoundsForVerdict, blocks.size());
}

}  // namespace

bool supply_decides(const Isolation& found) {
  constexpr double kMostly = 0.85;
  if (!found.cost || !found.supply_img_per_s) return false;
  const double expected =
      std::min(found.cost->ceiling_img_per_s.value, found.supply_img_per_s->value);
  return subject_of(found.waits.cause).empty() &&
         found.cost->coupled_img_per_s.value >= kMostly * expected;
}

std::vector<BlockNoise> noise_of_blocks(const Measurement& measurement) {
  std::vector<BlockNoise> noise = measurement.noise;
  std::erase_if(noise,
                [&](const BlockNoise& each) { return each.block >= measurement.measured_blocks; });
  return noise;
}

bool is_crowded(const Measurement& measurement) {
  constexpr double kCrowdedPercent = 10;
  const std::vector<BlockNoise> noise = noise_of_blocks(measurement);
  const auto crowded = std::count_if(noise.begin(), noise.end(), [](const BlockNoise& block) {
    return block.foreign_cpu_percent + block.steal_percent > kCrowdedPercent;
  });
  return 2 * crowded > static_cast<std::ptrdiff_t>(noise.size());
}

Isolation analyse(const Measurement& measurement, const IsolatePlan& plan) {
  Isolation found;
  found.measurement = measurement;
  const SweepResult& sweep = measurement.sweep;
  const Row &ceiling = measurement.ceiling(), &coupled = measurement.coupled();
  const auto cost_of = [&](const Row& row) {
    return analysis::find_cost(analysis::pair_blocks(ceiling, row), images_per_step(row),
                               plan.targets);
  };
  const std::vector<analysis::BlockPair> blocks = analysis::pair_blocks(ceiling, coupled);
  found.blocks = blocks.size();
  found.cost = cost_of(coupled);
  if (found.cost) doubt(*found.cost, blocks, measurement, plan.cores);
  if (measurement.waiting_row)
    found.cost_if_waiting = cost_of(sweep.rows[*measurement.waiting_row]);
  found.epochs = epoch_edges(analysis::usable_runs(coupled));
  if (measurement.supply_row) {
    found.supply_img_per_s = analysis::supply_of(sweep.rows[*measurement.supply_row]);
  }
  if (!measurement.rungs.empty()) {
    found.ladder = find_rungs(sweep, measurement.rungs, plan.targets);
    found.ladder.front().row = measurement.ceiling_row;  // the same configuration, in other blocks
  }
  if (measurement.profile) {
    found.code = find_code_profile(sweep, *measurement.profile, plan.targets);
  }
  if (found.cost) {
    add_causes(found, plan);
    add_trials(found);
  }
  found.warnings = find_warnings(found, plan);
  found.verdict = verdict_of(found, plan);
  const auto in_unit = [&](std::string& text) {
    text = in_unit_of(coupled.config, std::move(text));
  };
  std::ranges::for_each(found.warnings, in_unit);
  std::ranges::for_each(found.verdict, in_unit);
  std::ranges::for_each(found.predictions.recommendations, in_unit, &Recommendation::text);
  return found;
}

}  // namespace penstock::isolate
