// SPDX-License-Identifier: Apache-2.0
#include "bench/isolate/isolator.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/config/comparable.h"
#include "bench/isolate/ladder.h"
#include "bench/isolate/message_ladder.h"

namespace penstock::isolate {
namespace {

double seconds(Nanoseconds time) { return std::chrono::duration<double>(time).count(); }

Nanoseconds duration(double seconds) {
  return std::chrono::round<Nanoseconds>(std::chrono::duration<double>(seconds));
}

bool has_failed(const Row& row, std::size_t times) {
  const auto failed = [](const Repetition& repetition) {
    return !analysis::is_usable(repetition.result);
  };
  return static_cast<std::size_t>(
             std::count_if(row.repetitions.begin(), row.repetitions.end(), failed)) >= times;
}

/// Did the row's first run end, with a rate?
bool has_rate(const Row& row) {
  return !row.repetitions.empty() && row.repetitions.front().result.img_per_s > 0 &&
         (row.status == Status::ok || row.status == Status::draining);
}

/// The additional share of the budget that trying a recommendation may take.
constexpr double kVerifyShare = 0.6;
/// The share of the time for settings in which the chosen one is tried again.
constexpr double kVerifyVaryShare = 0.35;

/// Sets the window to `steps`. A run is never repeated in the same process.
RunConfig with_steps(RunConfig config, std::int64_t steps, std::int64_t warm_up) {
  config.num_batches = steps;
  config.num_warmup_batches = warm_up;
  config.extend_window = false;
  return config;
}

/// Removes a last round in which not every row ran, because no figure would count its blocks.
void drop_incomplete_round(SweepResult& sweep) {
  const auto available = std::count_if(sweep.rows.begin(), sweep.rows.end(),
                                       [](const Row& row) { return row.unavailable.empty(); });
  if (sweep.rounds.size() < 2 ||
      static_cast<std::ptrdiff_t>(sweep.rounds.back().size()) >= available) {
    return;
  }
  sweep.rounds.pop_back();
  for (Row& row : sweep.rows) {
    std::erase_if(row.repetitions, [&](const Repetition& repetition) {
      return static_cast<std::size_t>(repetition.round) >= sweep.rounds.size();
    });
  }
}

}  // namespace

void append_sweep(SweepResult& all, const SweepResult& more) {
  const std::size_t first_row = all.rows.size();
  const auto first_round = static_cast<std::int32_t>(all.rounds.size());
  if (first_row == 0) {
    all = more;
  } else {
    for (Row row : more.rows) {
      for (Repetition& repetition : row.repetitions) repetition.round += first_round;
      all.rows.push_back(std::move(row));
    }
    for (std::vector<std::size_t> round : more.rounds) {
      for (std::size_t& row : round) row += first_row;
      all.rounds.push_back(std::move(round));
    }
    all.environment.steal_percent = std::max(all.environment.steal_percent.value_or(0),
                                             more.environment.steal_percent.value_or(0));
  }
  std::vector<RunConfig> configs;
  std::size_t most = 0;
  for (const Row& row : all.rows) {
    configs.push_back(row.config);
    most = std::max(most, row.repetitions.size());
  }
  all.varied = varied_keys(configs);
  all.repetitions = static_cast<std::int32_t>(most);
  summarise(all);
  analysis::restate(all);
}

/// Passes on the events of a phase. Its results are added to those of earlier phases.
class Isolator::Watch final : public SweepListener {
 public:
  Watch(const SweepResult& before, IsolateListener& listener, bool kept)
      : before_(before), listener_(listener), kept_(kept) {}

  void run_begins(const SweepMoment& moment) override { listener_.run_begins(moment); }
  void run_ended(const SweepMoment& moment, const RunResult& result) override {
    listener_.run_ended(moment, result);
  }
  void results_changed(const SweepResult& sweep) override {
    if (!kept_) return;
    SweepResult all = before_;
    append_sweep(all, sweep);
    listener_.results_changed(all);
  }

 private:
  const SweepResult& before_;
  IsolateListener& listener_;
  const bool kept_;
};

Isolator::Isolator(IsolatePlan plan, SweepRunner::Run run, NoiseMeter meter, Clock& clock)
    : plan_(std::move(plan)), run_(std::move(run)), meter_(std::move(meter)), clock_(clock) {}

const Isolation& Isolator::run(IsolateListener& listener, const std::stop_token& stop) {
  measure_blocks(listener, stop);
  analyse(found_, plan_);
  if (plan_.ladder && found_.cost) {
    const std::size_t known = found_.warnings.size();
    climb(listener, stop);
    if (found_.delivery) {  // its rungs say more precisely which side is too slow
      const std::vector<std::string> of_ladder(
          found_.warnings.begin() + static_cast<std::ptrdiff_t>(known), found_.warnings.end());
      analyse(found_, plan_);
      found_.warnings.insert(found_.warnings.end(), of_ladder.begin(), of_ladder.end());
    }
  }
  const bool varies = !plan_.settings.empty() && found_.cost;
  if (varies) vary(listener, stop);
  if ((plan_.verify || varies) && found_.cost) {
    verify(varies ? kVerifyVaryShare * seconds(plan_.vary_budget)
                  : kVerifyShare * seconds(plan_.budget),
           listener, stop);
  }
  return found_;
}

const SweepResult& Isolator::measure(const Phase& phase, IsolateListener& listener,
                                     const std::stop_token& stop) {
  listener.phase_begins(phase.name, phase.seconds);
  const std::size_t first_block = found_.measurement.sweep.rounds.size();
  NoiseReading before;
  const auto on_round = [&](std::int32_t round, bool ended) {
    if (!ended) before = meter_();
    if (!ended || !phase.kept) return;
    found_.measurement.noise.push_back(
        noise_between(before, meter_(), first_block + static_cast<std::size_t>(round)));
  };
  SweepPlan sweep{
      .configurations = phase.configs,
      .repetitions = phase.blocks,
      .time_budget = duration(phase.seconds),
      .seed = plan_.config.seed,
      .command = plan_.command,
      .on_round = on_round,
      .enough = [&](const SweepResult& so_far) { return phase.enough && phase.enough(so_far); }};
  wall_s_.assign(phase.configs.size(), 0);
  const auto timed = [&](const RunConfig& config, const std::stop_token& ending) {
    const Time begin = clock_.now();
    RunResult result = run_(config, ending);
    RunConfig of_row = config;
    of_row.seed = plan_.config.seed;
    const auto row = std::find(phase.configs.begin(), phase.configs.end(), of_row);
    if (row != phase.configs.end()) {
      wall_s_[static_cast<std::size_t>(row - phase.configs.begin())] =
          seconds(clock_.now() - begin);
    }
    return result;
  };
  runner_.emplace(std::move(sweep), timed, clock_);
  Watch watch(found_.measurement.sweep, listener, phase.kept);
  return runner_->run(watch, stop);
}

std::size_t Isolator::append(const Phase& phase, IsolateListener& listener,
                             const std::stop_token& stop) {
  const std::size_t first_row = found_.measurement.sweep.rows.size();
  const std::size_t first_round = found_.measurement.sweep.rounds.size();
  SweepResult sweep = measure(phase, listener, stop);
  drop_incomplete_round(sweep);
  append_sweep(found_.measurement.sweep, sweep);
  std::erase_if(found_.measurement.noise, [&](const BlockNoise& noise) {
    return noise.block >= first_round + sweep.rounds.size();
  });
  return first_row;
}

const SweepResult& Isolator::pilot(std::span<const PlannedRun> runs, double budget_s,
                                   IsolateListener& listener, const std::stop_token& stop) {
  Phase phase{.name = "pilot", .configs = {}, .seconds = budget_s, .blocks = 1, .kept = false};
  for (const PlannedRun& run : runs) {
    phase.configs.push_back(with_steps(run.config, kPilotSteps, kPilotWarmup));
  }
  return measure(phase, listener, stop);
}

/// Returns zeros for rows that did not run or did not end.
std::vector<PilotTime> Isolator::times_of(const SweepResult& pilot) const {
  std::vector<PilotTime> times;
  for (std::size_t i = 0; i < pilot.rows.size(); ++i) {
    times.push_back(has_rate(pilot.rows[i])
                        ? pilot_time(pilot.rows[i].repetitions.front().result, wall_s_[i])
                        : PilotTime{});
  }
  return times;
}

void Isolator::measure_blocks(IsolateListener& listener, const std::stop_token& stop) {
  const std::vector<PlannedRun> runs = planned_runs(plan_);
  // Other numbers of threads follow from those of the plan's.
  const bool waits = runs.size() > 3 && runs[3].rung == Rung::waiting;
  const std::size_t piloted = waits ? 4 : 3;
  const double budget_s = seconds(plan_.budget);
  const Time began = clock_.now();
  found_.measurement.ceiling_row = 0;
  found_.measurement.coupled_row = 1;
  const SweepResult& first = pilot(std::span(runs).first(piloted), budget_s, listener, stop);
  if (!has_rate(first.rows[0]) || !has_rate(first.rows[1])) {
    append_sweep(found_.measurement.sweep, first);  // the pilot's runs say why
    found_.measurement.stopped_because =
        stop.stop_requested() ? "it was interrupted" : "a run failed";
    return;
  }
  std::vector<PilotTime> times = times_of(first);
  for (std::size_t i = piloted; i < runs.size(); ++i) {
    PilotTime time = times[2];
    time.step_s *=
        static_cast<double>(runs[2].config.feeder_threads) / runs[i].config.feeder_threads;
    times.push_back(time);
  }
  const double left_s = std::max(0.0, budget_s - seconds(clock_.now() - began));
  const std::vector<std::int64_t> steps = plan_steps(runs, times, left_s);
  Phase phase{.name = "blocks",
              .configs = {},
              .seconds = left_s,
              .enough = [this](const SweepResult& sweep) { return enough(sweep); }};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::int64_t window = plan_.steps > 0 ? plan_.steps : steps[i];
    phase.configs.push_back(with_steps(runs[i].config, window, kWarmupSteps));
  }
  append(phase, listener, stop);
  found_.measurement.measured_blocks = found_.measurement.sweep.rounds.size();
  found_.measurement.supply_row = 2;
  if (waits) found_.measurement.waiting_row = 3;
  if (stop.stop_requested()) {
    found_.measurement.stopped_because = "it was interrupted";
  } else if (found_.measurement.stopped_because.empty()) {
    found_.measurement.stopped_because = fmt::format("the budget of {:.0f} s ended", budget_s);
  }
}

/// Sets stopped_because if it returns true.
bool Isolator::enough(const SweepResult& sweep) {
  constexpr std::size_t kFailures = 2;
  const Row& ceiling = sweep.rows[found_.measurement.ceiling_row];
  const Row& coupled = sweep.rows[found_.measurement.coupled_row];
  if (has_failed(ceiling, kFailures) || has_failed(coupled, kFailures)) {
    found_.measurement.stopped_because = "runs kept failing";
    return true;
  }
  const std::vector<analysis::BlockPair> blocks = analysis::pair_blocks(ceiling, coupled);
  if (blocks.size() < kWantedBlocks) return false;
  if (analysis::ratio_half_width(blocks) > plan_.targets.half_width) return false;
  found_.measurement.stopped_because =
      fmt::format("the interval is within {:g} %", 100 * plan_.targets.half_width);
  return true;
}

/// Measures every rung beside the ceiling, with and without the trainer.
void Isolator::climb(IsolateListener& listener, const std::stop_token& stop) {
  std::vector<LadderRung> rungs = plan_.messages     ? message_rungs(plan_.config, *plan_.messages)
                                  : plan_.has_loader ? loader_rungs(plan_.config)
                                                     : ladder_rungs(plan_.config, plan_.data);
  std::vector<PlannedRun> runs;
  const auto plan_run = [&](const RunConfig& config, Rung rung) {
    runs.push_back({config, rung});
    return runs.size() - 1;
  };
  for (LadderRung& rung : rungs) {
    if (!rung.unavailable.empty()) continue;
    rung.row = plan_run(rung.config, Rung::step);
    if (!rung.is_ceiling) rung.supply_row = plan_run(supply_config(rung.config), Rung::supply);
  }
  const double budget_s = seconds(plan_.ladder_budget);
  const Time began = clock_.now();
  const SweepResult& first = pilot(runs, budget_s, listener, stop);
  if (stop.stop_requested()) return;
  const double left_s = std::max(0.0, budget_s - seconds(clock_.now() - began));
  std::vector<std::int64_t> steps = plan_steps(runs, times_of(first), left_s);
  Phase phase{.name = "ladder", .configs = {}, .seconds = left_s};
  for (LadderRung& rung : rungs) {
    if (!rung.row) continue;
    const Row& piloted = first.rows[*rung.row];
    if (!has_rate(piloted)) {
      rung.unavailable = piloted.repetitions.empty() && piloted.unavailable.empty()
                             ? kBudgetEnded
                             : piloted.reason;
      rung.row = rung.supply_row = std::nullopt;
      continue;
    }
    const auto most = longest_window(rung, piloted.repetitions.front().result);
    const auto add = [&](std::optional<std::size_t>& row) {
      const std::int64_t window = std::min(steps[*row], most.value_or(steps[*row]));
      phase.configs.push_back(with_steps(runs[*row].config, window, kWarmupSteps));
      row = found_.measurement.sweep.rows.size() + phase.configs.size() - 1;
    };
    add(rung.row);
    if (rung.supply_row) add(rung.supply_row);
  }
  append(phase, listener, stop);
  found_.ladder = find_rungs(found_.measurement.sweep, rungs, plan_.targets);
  const auto ceiling = rungs.front().row;
  const std::size_t blocks =
      ceiling ? found_.measurement.sweep.rows[*ceiling].repetitions.size() : 0;
  if (blocks < kMinBlocks) {
    found_.warnings.push_back(fmt::format(
        "the ladder has {} block{}: fewer than {} are inconclusive; raise --ladder-budget", blocks,
        blocks == 1 ? "" : "s", kMinBlocks));
  }
  // The same configuration, in other blocks.
  found_.ladder.front().row = found_.measurement.ceiling_row;
}

/// Measures all settings in the same blocks, and recommends the best one.
void Isolator::vary(IsolateListener& listener, const std::stop_token& stop) {
  std::vector<Setting> settings = plan_.settings;
  std::vector<PlannedRun> runs;
  for (const Setting& setting : settings) runs.push_back({setting.config, Rung::coupled});
  const double budget_s = (1 - kVerifyVaryShare) * seconds(plan_.vary_budget);
  const Time began = clock_.now();
  const SweepResult& first = pilot(runs, budget_s, listener, stop);
  if (stop.stop_requested()) return;
  const double left_s = std::max(0.0, budget_s - seconds(clock_.now() - began));
  const std::vector<PilotTime> times = times_of(first);
  std::vector<PlannedRun> possible;
  std::vector<PilotTime> times_of_possible;
  for (std::size_t i = 0; i < settings.size(); ++i) {
    if (has_rate(first.rows[i])) {
      settings[i].row = found_.measurement.sweep.rows.size() + possible.size();
      possible.push_back(runs[i]);
      times_of_possible.push_back(times[i]);
    } else {
      const Row& row = first.rows[i];
      settings[i].unavailable = row.repetitions.empty() ? kBudgetEnded : row.reason;
    }
  }
  const std::vector<std::int64_t> steps = plan_steps(possible, times_of_possible, left_s);
  Phase phase{.name = "settings", .configs = {}, .seconds = left_s};
  for (std::size_t i = 0; i < possible.size(); ++i) {
    const std::int64_t window = plan_.steps > 0 ? plan_.steps : steps[i];
    phase.configs.push_back(with_steps(possible[i].config, window, kWarmupSteps));
  }
  append(phase, listener, stop);
  for (Setting& setting : settings) {
    if (setting.row) setting.config = found_.measurement.sweep.rows[*setting.row].config;
  }
  const double now = found_.cost->coupled_img_per_s.value, margin = plan_.targets.margin;
  found_.variation = find_variation(found_.measurement.sweep, settings, now, margin);
  found_.verdict.push_back(sentence_of(*found_.variation, margin));
  // Replayed predictions are not what the user asked to try.
  std::erase_if(found_.predictions.recommendations,
                [](const Recommendation& other) { return !other.change.empty(); });
  if (auto best = recommendation_of(*found_.variation, settings, now, margin)) {
    found_.predictions.recommendations.insert(found_.predictions.recommendations.begin(),
                                              std::move(*best));
  }
}

void Isolator::verify(double budget_s, IsolateListener& listener, const std::stop_token& stop) {
  const std::vector<Recommendation>& recommendations = found_.predictions.recommendations;
  const auto applicable = std::find_if(
      recommendations.begin(), recommendations.end(),
      [](const Recommendation& recommendation) { return !recommendation.change.empty(); });
  if (applicable == recommendations.end() || stop.stop_requested()) {
    if (found_.variation && !stop.stop_requested()) return;  // nothing is better
    found_.verdict.push_back(why_unverified(!recommendations.empty(), stop.stop_requested()));
    return;
  }
  const RunConfig before = found_.measurement.coupled().config;
  const std::size_t first = append({.name = "verification",
                                    .configs = {before, applicable->config},
                                    .seconds = budget_s,
                                    .blocks = static_cast<std::int32_t>(kWantedBlocks)},
                                   listener, stop);
  const double now = found_.cost->coupled_img_per_s.value;
  found_.verification = verification_of(found_.measurement.sweep.rows[first],
                                        found_.measurement.sweep.rows[first + 1], now, *applicable);
  found_.verdict.push_back(found_.verification
                               ? sentence_of(*found_.verification)
                               : fmt::format("Trying {} failed: {}.", applicable->change,
                                             found_.measurement.sweep.rows[first + 1].reason));
}

}  // namespace penstock::isolate
