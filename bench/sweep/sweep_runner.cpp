// SPDX-License-Identifier: Apache-2.0
#include "bench/sweep/sweep_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>

#include "bench/config/comparable.h"
#include "bench/sweep/sweep.h"
#include "dataflow/entry.h"
#include "dataflow/options.h"
#include "dataflow/random.h"
#include "feeders/feeder.h"

namespace penstock {
namespace {

/// Fewer repetitions give no useful spread.
constexpr std::int32_t kMinRepetitions = 3;

/// The order of rows in a round: a shuffle that depends only on the seed and the round.
std::vector<std::size_t> shuffled(std::vector<std::size_t> rows, std::uint64_t seed,
                                  std::int32_t round) {
  Random random(seed, static_cast<std::uint64_t>(round));
  for (std::size_t left = rows.size(); left > 1; --left) {  // Fisher and Yates
    std::swap(rows[left - 1], rows[random.below(left)]);
  }
  return rows;
}

Row make_row(const RunConfig& config) {
  Row row;
  row.config = config;
  row.unavailable = unavailable_reason(config);
  if (row.unavailable.empty()) {
    const std::string name = parse_component(config.fake_location).name;
    row.is_ceiling = find_entry(feeder_table(), name).is_ceiling;
  }
  return row;
}

/// Repetitions of a row have different seeds. Runs of one round have the same seed offset.
std::uint64_t seed_of(const RunConfig& config, std::int32_t round) {
  constexpr auto kLargest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  return (config.seed + static_cast<std::uint64_t>(round)) & kLargest;
}

std::vector<std::string> warnings_before(const SweepPlan& plan, const Environment& environment) {
  std::vector<std::string> warnings = warnings_of(environment);
  std::int32_t threads = 0;
  for (const RunConfig& config : plan.configurations)
    threads = std::max(threads, config.feeder_threads);
  if (threads > environment.usable_cores) {
    warnings.push_back(
        fmt::format("--feeder-threads is {}, more than the {} usable cores: threads take "
                    "turns",
                    threads, environment.usable_cores));
  }
  if (plan.repetitions < kMinRepetitions) {
    warnings.push_back(
        fmt::format("{} repetition{} of each row: at least {} are needed to see how much "
                    "the numbers spread",
                    plan.repetitions, plan.repetitions == 1 ? "" : "s", kMinRepetitions));
  }
  return warnings;
}

}  // namespace

SweepRunner::SweepRunner(SweepPlan plan, Run run, Clock& clock)
    : plan_(std::move(plan)), run_(std::move(run)), clock_(clock) {
  result_.environment = read_environment();
  result_.command = plan_.command;
  result_.seed = plan_.seed;
  result_.repetitions = plan_.repetitions;
  result_.varied = varied_keys(plan_.configurations);
  result_.warnings = warnings_before(plan_, result_.environment);
  for (const RunConfig& config : plan_.configurations) result_.rows.push_back(make_row(config));
  run_s_.resize(result_.rows.size());
  summarise(result_);
}

const SweepResult& SweepRunner::run(SweepListener& listener, const std::stop_token& stop) {
  listener.results_changed(result_);
  wait_for_rest(listener, stop);
  began_ = clock_.now();
  ticks_ = read_cpu_ticks();
  bool complete = true;
  for (std::int32_t round = 0; complete && round < plan_.repetitions; ++round) {
    if (plan_.on_round) plan_.on_round(round, false);
    complete = run_round(round, listener, stop);
    if (plan_.on_round) plan_.on_round(round, true);
    if (plan_.enough && plan_.enough(result_)) break;
  }
  if (complete && plan_.repeat_outlier) repeat_outlier(listener, stop);
  if (stop.stop_requested() && !plan_.enough) {
    std::string what = fmt::format("the sweep was stopped after {} of {} runs", runs_done_, runs());
    const std::size_t cut = complete ? 0 : set_aside_incomplete_round();
    if (cut > 0) {
      what += fmt::format(
          "; {} run{} of its last round, which is incomplete, {} in results.json under "
          "'set_aside', and no figure counts {}",
          cut, cut == 1 ? "" : "s", cut == 1 ? "is" : "are", cut == 1 ? "it" : "them");
    }
    result_.warnings.push_back(std::move(what));
  }
  conclude(listener);
  return result_;
}

/// Requires two quiet seconds in a row, because a build pauses between its steps.
void SweepRunner::wait_for_rest(SweepListener& listener, const std::stop_token& stop) {
  if (plan_.rest <= Nanoseconds{}) return;
  constexpr auto kSample = std::chrono::seconds(1);
  constexpr int kQuietSamples = 2;
  const Time end = clock_.now() + plan_.rest;
  CpuTicks before = read_cpu_ticks();
  int quiet = 0;
  while (quiet < kQuietSamples && clock_.now() < end && !stop.stop_requested()) {
    clock_.sleep_until(clock_.now() + kSample, stop);
    const CpuTicks after = read_cpu_ticks();
    const double busy = plan_.busy_percent ? plan_.busy_percent() : busy_percent(before, after);
    before = after;
    quiet = busy <= kAtRestPercent ? quiet + 1 : 0;
    result_.environment.busy_percent = busy;
    if (quiet == 0) listener.rests(busy);
  }
  result_.warnings = warnings_before(plan_, result_.environment);
}

/// Runs one more round in place of the outlying one.
void SweepRunner::repeat_outlier(SweepListener& listener, const std::stop_token& stop) {
  const std::optional<OutlyingRound> outlier = outlying_round(result_);
  if (!outlier || has_failures(result_)) return;  // a failure must stay visible
  const std::string what =
      fmt::format("with {} round {} reached {:.0f} img/s, the others {:.0f} to {:.0f}",
                  outlier->row->config.fake_location, outlier->round + 1, outlier->img_per_s,
                  outlier->low, outlier->high);
  if (!round_fits()) {
    result_.warnings.push_back(what + "; there was no time to measure that round again");
    return;
  }
  set_aside(outlier->round);
  result_.warnings.push_back(
      fmt::format("{}: that round was measured again; results.json keeps its runs under "
                  "'set_aside', and no figure counts them",
                  what));
  static_cast<void>(run_round(plan_.repetitions, listener, stop));
}

/// Keeps the round's runs out of the figures. Returns how many they are.
std::size_t SweepRunner::set_aside(std::int32_t round) {
  std::size_t runs = 0;
  for (Row& row : result_.rows) {
    const auto out = std::stable_partition(
        row.repetitions.begin(), row.repetitions.end(),
        [&](const Repetition& repetition) { return repetition.round != round; });
    runs += static_cast<std::size_t>(row.repetitions.end() - out);
    row.set_aside.insert(row.set_aside.end(), std::make_move_iterator(out),
                         std::make_move_iterator(row.repetitions.end()));
    row.repetitions.erase(out, row.repetitions.end());
  }
  return runs;
}

/// After a stop: the rows then have the same rounds, so that their rates and costs compare. The
/// first round stays, because there is nothing else; so does one with a failure.
std::size_t SweepRunner::set_aside_incomplete_round() {
  auto& rounds = result_.rounds;
  if (!rounds.empty() && rounds.back().empty()) rounds.pop_back();  // stopped before its first run
  if (rounds.size() < 2 || has_failures(result_)) return 0;
  const auto last = static_cast<std::int32_t>(rounds.size()) - 1;
  const bool all_whole = std::all_of(result_.rows.begin(), result_.rows.end(), [&](const Row& row) {
    const bool is_last = !row.repetitions.empty() && row.repetitions.back().round == last;
    return is_last ? row.repetitions.back().result.status != Status::partial
                   : !row.unavailable.empty();
  });
  if (all_whole) return 0;
  const std::size_t runs = set_aside(last);
  summarise(result_);
  return runs;
}

/// Returns false if the sweep ends here.
bool SweepRunner::run_round(std::int32_t round, SweepListener& listener,
                            const std::stop_token& stop) {
  std::vector<std::size_t> rows;
  for (std::size_t row = 0; row < result_.rows.size(); ++row) {
    if (result_.rows[row].unavailable.empty()) rows.push_back(row);
  }
  if (rows.empty()) return false;
  if (round > 0 && !round_fits()) {
    if (plan_.enough) return false;
    result_.warnings.push_back(fmt::format(
        "the time budget of {:.0f} s ended after {} of {} runs; give --time-budget more for the "
        "rest",
        to_seconds(plan_.time_budget), runs_done_, runs()));
    return false;
  }
  result_.rounds.emplace_back();
  for (const std::size_t row : shuffled(std::move(rows), plan_.seed, round)) {
    if (stop.stop_requested()) return false;
    run_row(row, round, listener, stop);
  }
  return true;
}

void SweepRunner::run_row(std::size_t index, std::int32_t round, SweepListener& listener,
                          const std::stop_token& stop) {
  Row& row = result_.rows[index];
  const auto moment = [&] {
    return SweepMoment{row, runs_done_, runs(), round, elapsed_s(), left_s()};
  };
  listener.run_begins(moment());
  const double begin_s = elapsed_s();
  RunConfig config = row.config;
  config.seed = seed_of(row.config, round);
  result_.rounds.back().push_back(index);
  RunResult result = run_(config, stop);
  run_s_[index] = std::max(run_s_[index], elapsed_s() - begin_s);
  if (result.status == Status::skipped) {
    row.unavailable =
        result.reason.empty() ? "the run was skipped without a reason" : result.reason;
  }
  if (result.status == Status::ok || result.status == Status::draining) {
    const std::uint64_t seed = row.config.seed;
    row.config = result.config;
    row.config.seed = seed;
  }
  row.repetitions.push_back({round, std::move(result)});
  summarise(result_);
  const CpuTicks now = read_cpu_ticks();
  result_.environment.steal_percent = steal_percent(ticks_, now);
  listener.run_ended(moment(), row.repetitions.back().result);
  ++runs_done_;
  listener.results_changed(result_);
}

/// Adds the final warnings.
void SweepRunner::conclude(SweepListener& listener) {
  for (std::string& warning : warnings_of(result_.environment)) {
    const auto known = std::find(result_.warnings.begin(), result_.warnings.end(), warning);
    if (known == result_.warnings.end()) result_.warnings.push_back(std::move(warning));
  }
  listener.results_changed(result_);
}

bool SweepRunner::round_fits() const {
  const double round_s = std::accumulate(run_s_.begin(), run_s_.end(), 0.0);
  return elapsed_s() + round_s <= to_seconds(plan_.time_budget);
}

std::size_t SweepRunner::runs() const {
  std::size_t runs = 0;
  for (const Row& row : result_.rows) {
    runs += row.set_aside.size();
    runs += row.unavailable.empty() ? static_cast<std::size_t>(plan_.repetitions)
                                    : row.repetitions.size();
  }
  return runs;
}

double SweepRunner::elapsed_s() const { return to_seconds(clock_.now() - began_); }

double SweepRunner::left_s() const {
  const double budget_left = to_seconds(plan_.time_budget) - elapsed_s();
  double known_sum = 0, all_left = 0;
  std::size_t known = 0;
  for (const double seconds : run_s_) {
    known_sum += seconds;
    known += seconds > 0 ? 1 : 0;
  }
  if (known == 0) return budget_left;
  const double mean = known_sum / static_cast<double>(known);
  for (std::size_t row = 0; row < result_.rows.size(); ++row) {
    if (!result_.rows[row].unavailable.empty()) continue;
    const auto done = static_cast<double>(result_.rows[row].repetitions.size());
    all_left += (plan_.repetitions - done) * (run_s_[row] > 0 ? run_s_[row] : mean);
  }
  return std::clamp(all_left, 0.0, std::max(0.0, budget_left));
}

}  // namespace penstock
