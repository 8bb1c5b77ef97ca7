// SPDX-License-Identifier: Apache-2.0
#include "bench/watch/loop_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "bench/statistics/series.h"
#include "dataflow/entry.h"

namespace penstock::watch {
namespace {

constexpr double kKeepsUpPercent = 2, kTakingPercent = 10, kMostly = 0.5, kEnough = 0.95;
constexpr double kMuchCoreWait = 0.3;  ///< of the time for samples
constexpr double kSpare = 1.2;         ///< more workers than just enough, because batches differ

/// The times of a loop after its very first batch.
struct Times {
  std::vector<double> waits_ms;  // of steady steps
  double computing_ms = 0;       // mean of a steady step outside of its wait
  double edges_ms = 0, all_ms = 0;
  std::size_t epochs = 0;

  double steady() const { return static_cast<double>(waits_ms.size()); }
  double wait_ms() const { return waits_ms.empty() ? 0 : statistics::mean(waits_ms); }
  /// What is saved, in per cent of all, if a steady step waits only for so long.
  double saved_percent(double new_wait_ms) const {
    return 100 * steady() * std::max(0.0, wait_ms() - new_wait_ms) / all_ms;
  }
};

Times times_of(const Loop& loop) {
  Times times;
  double computing_ms = 0;
  for (const Step& step : loop.steps) {
    if (step.begins_epoch) {
      if (++times.epochs == 1) continue;
      times.edges_ms += step.wait_us / 1e3;
    } else {
      times.waits_ms.push_back(step.wait_us / 1e3);
      computing_ms += (step.step_us - step.wait_us) / 1e3;
    }
    times.all_ms += step.step_us / 1e3;
  }
  for (const double end_us : loop.ends_us) {
    times.edges_ms += end_us / 1e3;
    times.all_ms += end_us / 1e3;
  }
  if (!times.waits_ms.empty()) times.computing_ms = computing_ms / times.steady();
  return times;
}

WaitCause cause_of(const Loop& loop, const Times& times, const LoaderWaits& waits) {
  const double waited_ms = times.edges_ms + times.steady() * times.wait_ms();
  if (!(100 * waited_ms >= kKeepsUpPercent * times.all_ms) || times.waits_ms.empty()) {
    return WaitCause::none;
  }
  if (times.edges_ms > kMostly * waited_ms) return WaitCause::edges;
  if (waits.growth) return WaitCause::growing;
  // Batches lie ready if the queue outlasts the slowest one.
  const double queue_ms = waits.workers * waits.prefetch_factor * times.computing_ms;
  const bool lie_ready = loop.loading.batches > 0 && waits.prefetch_factor > 0 &&
                         loop.loading.slowest_batch_us / 1e3 < queue_ms &&
                         waits.workers * times.computing_ms > 2 * loop.loading.batch_ms();
  // Taking a batch that lies ready is a cost of the loop, which a device that runs behind it hides.
  if (waits.workers != 0 && lie_ready && 100 * waited_ms < kTakingPercent * times.all_ms) {
    return WaitCause::none;
  }
  if (waits.workers == 0 || lie_ready) return WaitCause::in_turn;
  const bool makes_enough = loop.loading.batches > 0 ? waits.workers * times.computing_ms >=
                                                           kEnough * loop.loading.batch_ms()
                                                     : !waits.spread.is_even();
  return makes_enough ? WaitCause::uneven : WaitCause::work;
}

/// "a sample takes 4.1 ms, 2 % of it on a processor; its workers spend 70 % of the time waiting for
/// a lock and 27 % sleeping". Empty: not known.
std::string describe(const Loop& loop) {
  const Loading& loading = loop.loading;
  if (loading.batches == 0) return {};
  if (loading.collate_ms() > kMostly * loading.batch_ms()) {
    return fmt::format("collating a batch takes {:.1f} ms", loading.collate_ms());
  }
  const double computing = loading.computing(), core = loading.waiting_for_core();
  std::string text = fmt::format("a sample takes {:.1f} ms, {:.0f} % of it on a processor",
                                 loading.sample_ms(), 100 * computing);
  if (core >= kMuchCoreWait) {
    return text + fmt::format(" and {:.0f} % waiting for one", 100 * core);
  }
  if (computing > kMostly) return text;
  const std::string states = describe_states(loop, "of the time ");
  if (!states.empty()) return text + "; its workers spend " + states;
  // A kernel that counts no waits for a processor says 0.
  return text + ": it waits for storage, a network, a lock" +
         (loading.core_wait_us > 0 ? " or a sleep" : ", a sleep or a processor");
}

/// Sets the remedy against too few workers, or against samples that are too slow for any number.
void add_workers(const Loop& loop, const Times& times, double cores, LoopAnswer& answer) {
  constexpr double kLeastComputing = 0.1, kMostWorkers = 1024;
  const Loading& loading = loop.loading;
  const std::int32_t now = answer.waits.workers;
  const bool share_lock =
      are_held_up_by_lock(loop.loading_percent()[std::string(kWaitsForLock)], now);
  const double batch_ms = loading.batches > 0 ? loading.batch_ms() : times.wait_ms();
  // What a worker needs of a core; a wait for a core would need one.
  const double computing =
      loading.batches > 0
          ? ((loading.computing() + loading.waiting_for_core()) * loading.samples_us +
             loading.collate_us) /
                std::max(1.0, loading.samples_us + loading.collate_us)
          : 1;
  const double most = std::max(1.0, std::floor(cores / std::max(kLeastComputing, computing)));
  const double needed = std::ceil(kSpare * batch_ms / std::max(1e-3, times.computing_ms));
  const double workers = std::min({needed, most, kMostWorkers});
  if (now >= 0 && workers > now && !share_lock) {
    answer.remedy = fmt::format("num_workers={:.0f} (now {})", workers, now);
    answer.saves_percent =
        times.saved_percent(std::max(0.0, batch_ms / workers - times.computing_ms));
    return;
  }
  answer.is_bound = true;
  if (const double core = loading.waiting_for_core(); core >= kMuchCoreWait && !share_lock) {
    answer.saves_percent = times.saved_percent(
        std::max(0.0, batch_ms * (1 - core) / std::max(1, now) - times.computing_ms));
    answer.remedy = fmt::format("a free processor for its samples ({} on {:g} cores{})",
                                now > 1 ? fmt::format("{} workers", now) : "1 worker", cores,
                                now > cores ? "" : ", beside other programs");
    return;
  }
  answer.saves_percent = times.saved_percent(0);
  answer.remedy =
      share_lock             ? "less time under the lock that its workers share"
      : loading.batches == 0 ? std::string(usual_remedy(WaitCause::work))
      : loading.collate_ms() > kMostly * batch_ms
          ? "a faster collate_fn, or fewer bytes to copy"
          : fmt::format("samples that take {:.1f} ms at most",
                        loading.sample_ms() *
                            std::max(0.0, now * times.computing_ms - loading.collate_ms()) /
                            std::max(1e-3, batch_ms - loading.collate_ms()));
}

}  // namespace

std::string describe_states(const Loop& loop, std::string_view first) {
  constexpr double kLeast = 5;
  std::multimap<double, std::string, std::greater<>> largest;
  for (const auto& [name, percent] : loop.loading_percent()) largest.emplace(percent, name);
  std::vector<std::string> parts;
  for (const auto& [percent, name] : largest) {
    if (percent < kLeast) break;
    parts.push_back(fmt::format("{:.0f} % {}{}", percent, parts.empty() ? first : "", name));
  }
  return join(parts);
}

LoopAnswer answer_of(const Loop& loop, const WatchRecord& record) {
  return answer_of(loop, std::max(1, record.environment.usable_cores) /
                             static_cast<double>(std::max<std::size_t>(1, record.ranks.size())));
}

LoopAnswer answer_of(const Loop& loop, double cores) {
  const Times times = times_of(loop);
  LoopAnswer answer;
  LoaderWaits& waits = answer.waits;
  static_cast<LoaderSettings&>(waits) = loop.settings;
  waits.spread = spread_of_waits(times.waits_ms);
  waits.growth = growth_of_waits(times.waits_ms);
  waits.cause = cause_of(loop, times, waits);
  const double edges = std::max(1.0, static_cast<double>(times.epochs) - 1);
  waits.steady_ms = times.computing_ms + times.wait_ms();
  waits.edge_longer_ms = times.edges_ms / edges;
  waits.steps_per_epoch = (times.steady() + edges) / (edges + 1);
  waits.made_in_turn_ms = times.wait_ms();
  const std::string work = describe(loop), in_brackets = work.empty() ? "" : " (" + work + ")";
  const double step_ms = std::max(1e-3, times.computing_ms);
  const bool has_setting = !changes_against(waits, step_ms).empty();
  answer.remedy = remedy_of(waits, step_ms);
  switch (waits.cause) {
    case WaitCause::none:
      break;
    case WaitCause::edges:
      answer.why = fmt::format(
          "mostly for the first batch of each epoch, {:.0f} ms each{}", waits.edge_longer_ms,
          has_setting ? ", because the workers end with the epoch and start anew" : "");
      answer.is_bound = !has_setting;
      answer.saves_percent =
          100 * std::max(0.0, times.edges_ms - edges * loop.loading.batch_ms()) / times.all_ms;
      break;
    case WaitCause::growing:
      answer.why =
          fmt::format("and waits longer and longer: {}{}", to_string(*waits.growth), in_brackets);
      answer.saves_percent = times.saved_percent(waits.growth->first_ms);
      break;
    case WaitCause::in_turn:
      if (waits.workers > 0) {
        answer.why = fmt::format(
            "although its workers make batches in time, {:.1f} ms each: the loop's process takes "
            "{:.1f} ms to get one",
            loop.loading.batch_ms(), times.wait_ms());
        answer.remedy = "a core for that process, or fewer bytes in a batch,";
        answer.saves_percent = times.saved_percent(0);
        answer.is_bound = true;
        break;
      }
      answer.why = fmt::format("because its batches are made between two steps, {:.1f} ms each{}",
                               times.wait_ms(), in_brackets);
      add_workers(loop, times, cores, answer);
      break;
    case WaitCause::uneven:
      answer.why = fmt::format(
          "because batches come unevenly: {}{}", to_string(waits.spread),
          loop.loading.batches > 0
              ? fmt::format(
                    ", and the slowest batch took {:.0f} ms to make, the mean one {:.0f} ms",
                    loop.loading.slowest_batch_us / 1e3, loop.loading.batch_ms())
              : "");
      answer.is_bound = true;
      answer.saves_percent = times.saved_percent(0);
      break;
    case WaitCause::work:
      answer.why =
          fmt::format("because {} fewer batches than are trained{}",
                      waits.workers < 0    ? "its loader makes"
                      : waits.workers == 1 ? "its worker makes"
                                           : fmt::format("its {} workers make", waits.workers),
                      in_brackets);
      add_workers(loop, times, cores, answer);
      break;
  }
  return answer;
}

}  // namespace penstock::watch
