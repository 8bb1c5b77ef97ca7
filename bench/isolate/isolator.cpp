// SPDX-License-Identifier: Apache-2.0
#include "bench/isolate/isolator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "bench/config/comparable.h"
#include "bench/isolate/ladder.h"
#include "bench/isolate/message_ladder.h"

namespace penstock::isolate {
namespace {

bool keeps_failing(const Row& row) {
  constexpr std::size_t kFailures = 2;
  return row.repetitions.size() - analysis::usable_runs(row).size() >= kFailures;
}

/// Did the row's first run end, with a rate?
bool has_rate(const Row& row) {
  return !row.repetitions.empty() && row.repetitions.front().result.img_per_s > 0 &&
         (row.status == Status::ok || row.status == Status::draining);
}

/// The additional share of the budget that trying a recommendation may take.
constexpr double kVerifyShare = 0.6;
/// The share of the budget that is kept for a profile, and its blocks.
constexpr double kProfileShare = 0.25;
constexpr std::int32_t kProfileBlocks = 3;
/// The share of the budget by which a profile may exceed it.
constexpr double kOvertime = 0.2;
/// The share of the time for settings in which the chosen one is tried again.
constexpr double kVerifyVaryShare = 0.35;

std::string budget_ended(const IsolatePlan& plan) {
  return fmt::format("the budget of {:.0f} s ended", to_seconds(plan.budget));
}

/// Whether a block has a cost that is worth a profile.
bool has_cost(std::span<const analysis::BlockPair> blocks) {
  constexpr double kWorthAProfile = 1.05;
  return std::ranges::any_of(blocks, [](const analysis::BlockPair& block) {
    return block.coupled.kept_up_ms > kWorthAProfile * block.ceiling.kept_up_ms;
  });
}

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

/// Appends the rows and rounds of `more` to `all`, and summarises it again. Keeps the warnings of
/// `all`.
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
class Watch final : public SweepListener {
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

class Isolator {
 public:
  Isolator(const IsolatePlan& plan, const SweepRunner::Run& run, const NoiseMeter& meter,
           Clock& clock, IsolateListener& listener, const std::stop_token& stop)
      : plan_(plan), run_(run), meter_(meter), clock_(clock), listener_(listener), stop_(stop) {}

  Isolation run() {
    began_ = clock_.now() - plan_.spent;
    measure_blocks();
    if (!analysis::pair_blocks(measured_.ceiling(), measured_.coupled()).empty()) {
      profile();
      if (plan_.ladder) climb();
      if (!plan_.settings.empty()) vary();
      if (plan_.verify || !plan_.settings.empty()) verify();
    }
    measured_.interrupted = stop_.stop_requested();
    return analyse(measured_, plan_);
  }

 private:
  /// Rows that are measured together, in blocks.
  struct Phase {
    std::string_view name;
    std::vector<RunConfig> configs;
    double seconds = 0;
    std::int32_t blocks = 1000;                        ///< at most
    std::function<bool(const SweepResult&)> enough{};  ///< asked after each block; null: never
    bool kept = true;                                  ///< its rows are results
  };
  /// Short runs, which are no results. Rows and times are in the order of the runs; times are zeros
  /// for runs without a rate.
  struct Pilot {
    const SweepResult& sweep;
    std::vector<PilotTime> times;
    double left_s = 0;  ///< of the budget
  };

  /// Of the budget.
  double left_s() const {
    return std::max(0.0, to_seconds(plan_.budget - (clock_.now() - began_)));
  }

  const SweepResult& measure(const Phase& phase) {
    listener_.phase_begins(phase.name, phase.seconds);
    const std::size_t first_block = measured_.sweep.rounds.size();
    NoiseReading before;
    const auto on_round = [&](std::int32_t round, bool ended) {
      if (!ended) before = meter_();
      if (!ended || !phase.kept) return;
      measured_.noise.push_back(
          noise_between(before, meter_(), first_block + static_cast<std::size_t>(round)));
    };
    SweepPlan sweep{
        .configurations = phase.configs,
        .repetitions = phase.blocks,
        .time_budget =
            std::chrono::round<Nanoseconds>(std::chrono::duration<double>(phase.seconds)),
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
            to_seconds(clock_.now() - begin);
      }
      return result;
    };
    runner_.emplace(std::move(sweep), timed, clock_);
    Watch watch(measured_.sweep, listener_, phase.kept);
    return runner_->run(watch, stop_);
  }

  /// Measures the phase and appends its rows to those of earlier phases. Returns the index of the
  /// first.
  std::size_t append(const Phase& phase) {
    const std::size_t first_row = measured_.sweep.rows.size();
    const std::size_t first_round = measured_.sweep.rounds.size();
    SweepResult sweep = measure(phase);
    drop_incomplete_round(sweep);
    append_sweep(measured_.sweep, sweep);
    std::erase_if(measured_.noise, [&](const BlockNoise& noise) {
      return noise.block >= first_round + sweep.rounds.size();
    });
    return first_row;
  }

  Pilot pilot(std::span<const PlannedRun> runs, double budget_s) {
    const Time began = clock_.now();
    Phase phase{.name = "pilot", .configs = {}, .seconds = budget_s, .blocks = 1, .kept = false};
    for (const PlannedRun& run : runs) {
      phase.configs.push_back(with_steps(run.config, kPilotSteps, kPilotWarmup));
    }
    Pilot pilot{.sweep = measure(phase), .times = {}};
    for (std::size_t i = 0; i < pilot.sweep.rows.size(); ++i) {
      const Row& row = pilot.sweep.rows[i];
      pilot.times.push_back(has_rate(row) ? pilot_time(row.repetitions.front().result, wall_s_[i])
                                          : PilotTime{});
    }
    pilot.left_s = std::max(0.0, budget_s - to_seconds(clock_.now() - began));
    return pilot;
  }

  /// Adds the runs to the phase, with windows that fit into its time.
  void add_runs(Phase& phase, std::span<const PlannedRun> runs,
                std::span<const PilotTime> times) const {
    const std::vector<std::int64_t> steps = plan_steps(runs, times, phase.seconds);
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const std::int64_t window = plan_.steps > 0 ? plan_.steps : steps[i];
      phase.configs.push_back(with_steps(runs[i].config, window, kWarmupSteps));
    }
  }

  void measure_blocks() {
    std::vector<PlannedRun> runs = planned_runs(plan_);
    bool waits = runs.size() > 3 && runs[3].rung == Rung::waiting;
    constexpr std::ptrdiff_t kPiloted = 3;  // the times of the others follow
    const double budget_s = to_seconds(plan_.budget);
    const double profile_s = plan_.has_loader ? kProfileShare * budget_s : 0;
    measured_.ceiling_row = 0;
    measured_.coupled_row = 1;
    Pilot first = pilot(std::span(runs).first(kPiloted), std::max(0.0, left_s() - profile_s));
    if (!has_rate(first.sweep.rows[0]) || !has_rate(first.sweep.rows[1])) {
      append_sweep(measured_.sweep, first.sweep);  // the pilot's runs say why
      measured_.stopped_because = stop_.stop_requested() ? "it was interrupted" : "a run failed";
      return;
    }
    const RunResult& piloted = first.sweep.rows[1].repetitions.front().result;
    if (piloted.unit != "img") {  // batches differ in samples; steps of the ceiling have the mean
      RunConfig& ceiling = runs[0].config;
      ceiling.batch_size = static_cast<std::int32_t>(
          std::max<std::int64_t>(1, piloted.images_per_step / ceiling.num_gpus));
    }
    if (waits) {
      PilotTime time = first.times[1];
      time.step_s += first.times[0].step_s;
      first.times.push_back(time);
      // Three blocks are worth more than a second kind of loop.
      if (first.left_s / shortest_block_s(runs, first.times) < kMinBlocks) {
        waits = false;
        runs.erase(runs.begin() + kPiloted);
        first.times.pop_back();
      }
    }
    for (std::size_t i = first.times.size(); i < runs.size(); ++i) {
      PilotTime time = first.times[2];
      time.step_s *=
          static_cast<double>(runs[2].config.feeder_threads) / runs[i].config.feeder_threads;
      first.times.push_back(time);
    }
    const double block_s = shortest_block_s(runs, first.times), blocks = first.left_s / block_s;
    if (blocks < kMinBlocks) {
      const double spent_s = budget_s - profile_s - first.left_s;
      measured_.three_blocks_s =
          std::ceil((spent_s + kMinBlocks * block_s) * budget_s / (budget_s - profile_s));
      listener_.budget_is_short(
          fmt::format("--budget {:.0f}s suffices for {:.0f} block{}; three, which show a spread, "
                      "take about {:.0f}s",
                      budget_s, std::max(1.0, std::floor(blocks)), blocks < 2 ? "" : "s",
                      measured_.three_blocks_s));
    }
    Phase phase{.name = "blocks",
                .configs = {},
                .seconds = first.left_s,
                .enough = [this](const SweepResult& sweep) { return enough(sweep); }};
    add_runs(phase, runs, first.times);
    for_profile_s_ = profile_s;
    phase.seconds += profile_s;  // enough() keeps them if a profile will be needed
    append(phase);
    coupled_s_ = wall_s_[measured_.coupled_row];
    measured_.measured_blocks = measured_.sweep.rounds.size();
    measured_.supply_row = 2;
    if (waits) measured_.waiting_row = 3;
    if (stop_.stop_requested()) {
      measured_.stopped_because = "it was interrupted";
    } else if (measured_.stopped_because.empty()) {
      measured_.stopped_because = budget_ended(plan_);
    }
  }

  /// Sets stopped_because if it returns true.
  bool enough(const SweepResult& sweep) {
    const Row& ceiling = sweep.rows[measured_.ceiling_row];
    const Row& coupled = sweep.rows[measured_.coupled_row];
    if (keeps_failing(ceiling) || keeps_failing(coupled)) {
      measured_.stopped_because = "runs kept failing";
      return true;
    }
    const std::vector<analysis::BlockPair> blocks = analysis::pair_blocks(ceiling, coupled);
    const double round_s = std::accumulate(wall_s_.begin(), wall_s_.end(), 0.0);
    if (has_cost(blocks) && left_s() < for_profile_s_ + round_s) {
      measured_.stopped_because = budget_ended(plan_);
      return true;
    }
    if (blocks.size() < kTargetBlocks) return false;
    if (analysis::ratio_half_width(blocks) > plan_.targets.half_width) return false;
    measured_.stopped_because =
        fmt::format("the interval is within {:g} %", 100 * plan_.targets.half_width);
    return true;
  }

  /// Finds out which code the time for samples goes to, if that limits the rate.
  void profile() {
    if (stop_.stop_requested()) return;
    const Isolation so_far = analyse(measured_, plan_);
    const analysis::StageFinding* const loads =
        analysis::find_stage(so_far.diagnosis, StageRole::loads);
    const std::optional<std::size_t> bottleneck = so_far.diagnosis.bottleneck;
    const bool loads_too_slowly = bottleneck && loads == &so_far.diagnosis.stages[*bottleneck];
    const bool loads_too_late =
        so_far.waits.cause != WaitCause::none && so_far.waits.cause != WaitCause::work;
    if (loads == nullptr || !(loads_too_slowly || loads_too_late)) return;
    const RunConfig plain = measured_.coupled().config;
    const std::optional<RunConfig> profiled = profiled_config(plain);
    if (!profiled) return;
    // A profile without a plain run beside it still tells code apart.
    const double over_s = kOvertime * to_seconds(plan_.budget), left = left_s() + over_s;
    if (left < coupled_s_) {
      measured_.without_profile_s = std::ceil(to_seconds(clock_.now() - began_) + 2 * coupled_s_);
      return;
    }
    const bool alone = left < 2 * coupled_s_;
    const std::size_t first =
        append({.name = "profile",
                .configs = alone ? std::vector{*profiled} : std::vector{plain, *profiled},
                .seconds = left_s(),
                .blocks = alone ? 1 : kProfileBlocks});
    measured_.profile = {.plain = first, .profiled = alone ? first : first + 1};
  }

  /// Measures every rung beside the ceiling, with and without the trainer.
  void climb() {
    std::vector<LadderRung> rungs = plan_.messages ? message_rungs(plan_.config, *plan_.messages)
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
    const Pilot first = pilot(runs, to_seconds(plan_.ladder_budget));
    if (stop_.stop_requested()) return;
    const std::vector<std::int64_t> steps = plan_steps(runs, first.times, first.left_s);
    Phase phase{.name = "ladder", .configs = {}, .seconds = first.left_s};
    for (LadderRung& rung : rungs) {
      if (!rung.row) continue;
      const Row& piloted = first.sweep.rows[*rung.row];
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
        row = measured_.sweep.rows.size() + phase.configs.size() - 1;
      };
      add(rung.row);
      if (rung.supply_row) add(rung.supply_row);
    }
    append(phase);
    measured_.rungs = std::move(rungs);
  }

  /// Measures all settings in the same blocks.
  void vary() {
    std::vector<Setting> settings = plan_.settings;
    std::vector<PlannedRun> runs;
    for (const Setting& setting : settings) runs.push_back({setting.config, Rung::coupled});
    const double budget_s = (1 - kVerifyVaryShare) * to_seconds(plan_.vary_budget);
    const Pilot first = pilot(runs, budget_s);
    if (stop_.stop_requested()) return;
    std::vector<PlannedRun> possible;
    std::vector<PilotTime> times_of_possible;
    std::optional<std::size_t> present;  // under a change that names what the loader has anyway
    const auto result_of = [&](std::size_t i) -> const RunResult& {
      return first.sweep.rows[i].repetitions.front().result;
    };
    for (std::size_t i = 0; i < settings.size(); ++i) {
      const Row& row = first.sweep.rows[i];
      if (has_rate(row) && has_rate(first.sweep.rows[0]) && !present &&
          is_present(settings[i], result_of(i), result_of(0))) {
        present = i;
        settings[0].values = settings[i].change;
      } else if (has_rate(row)) {
        settings[i].row = measured_.sweep.rows.size() + possible.size();
        possible.push_back(runs[i]);
        times_of_possible.push_back(first.times[i]);
      } else {
        settings[i].unavailable = row.repetitions.empty() ? kBudgetEnded : row.reason;
      }
    }
    Phase phase{.name = "settings", .configs = {}, .seconds = first.left_s};
    add_runs(phase, possible, times_of_possible);
    append(phase);
    for (Setting& setting : settings) {
      if (setting.row) setting.config = measured_.sweep.rows[*setting.row].config;
    }
    if (present) settings.erase(settings.begin() + static_cast<std::ptrdiff_t>(*present));
    measured_.settings = std::move(settings);
  }

  /// Measures the best recommendation beside the present configuration, if it can be tried.
  void verify() {
    if (stop_.stop_requested()) return;
    const double budget_s = plan_.settings.empty()
                                ? kVerifyShare * to_seconds(plan_.budget)
                                : kVerifyVaryShare * to_seconds(plan_.vary_budget);
    const Isolation so_far = analyse(measured_, plan_);
    const std::vector<Recommendation>& recommendations = so_far.predictions.recommendations;
    const auto best = std::ranges::find_if(recommendations, can_be_tried);
    if (best == recommendations.end()) return;
    const std::size_t first = append({.name = "verification",
                                      .configs = {measured_.coupled().config, best->config},
                                      .seconds = budget_s,
                                      .blocks = static_cast<std::int32_t>(kTargetBlocks)});
    measured_.trial = {.tried = *best, .before_row = first, .after_row = first + 1};
  }

  const IsolatePlan& plan_;
  const SweepRunner::Run& run_;
  const NoiseMeter& meter_;
  Clock& clock_;
  IsolateListener& listener_;
  const std::stop_token& stop_;
  Time began_{};
  std::optional<SweepRunner> runner_;  // of the phase under way
  std::vector<double> wall_s_;         // of the runs of a phase, by its rows
  double coupled_s_ = 0;               // of the last run with the feeder in a block
  double for_profile_s_ = 0;           // kept of the budget while blocks have a cost
  Measurement measured_;
};

}  // namespace

Isolation isolate(const IsolatePlan& plan, const SweepRunner::Run& run, const NoiseMeter& meter,
                  Clock& clock, IsolateListener& listener, const std::stop_token& stop) {
  return Isolator(plan, run, meter, clock, listener, stop).run();
}

}  // namespace penstock::isolate
