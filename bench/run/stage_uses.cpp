// SPDX-License-Identifier: Apache-2.0
#include "bench/run/stage_uses.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "dataflow/stage_timer.h"

namespace penstock {
namespace {

/// Tries, and repetitions per try, which make the cost of the clock itself negligible.
constexpr int kTries = 200, kRepeats = 16;

/// A mean of times that batches carry, and its name in the facts of a run.
struct OutsideFact {
  StageRole stage;
  std::string_view fact;
  bool counts = false;
};
constexpr std::array kOutsideFacts = {
    OutsideFact{StageRole::produces, "producing_window_mean_s"},
    OutsideFact{StageRole::holds, "socket_wait_window_mean_s"},
    OutsideFact{StageRole::carries, "hand_off_window_mean_s", true},
    OutsideFact{StageRole::queues, "worker_queue_window_mean_s"}};

/// Calls `call` for each timed stage, with its sums in the window.
template <typename Call>
void for_each_stage(const Probe& probe, std::span<const StageSums> window, const Call& call) {
  std::size_t index = 0;
  for (const StageCounters& stage : probe.stages()) {
    if (!stage.on || index == window.size()) continue;
    call(stage, window[index++]);
  }
}

template <typename Call>
Nanoseconds least_cost(const Call& call) {
  Nanoseconds least = Nanoseconds::max();
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const Nanoseconds begin = thread_cpu_time();
    for (int i = 0; i < kRepeats; ++i) call();
    least = std::min(least, thread_cpu_time() - begin);
  }
  return least / kRepeats;
}

}  // namespace

void StageSums::add(const StageSums& other, std::int64_t times) {
  items += times * other.items;
  images += times * other.images;
  timed_items += times * other.timed_items;
  bytes += times * other.bytes;
  cpu_ns += times * other.cpu_ns;
  wall_ns += times * other.wall_ns;
  wait_in.ns += times * other.wait_in.ns;
  wait_in.waits += times * other.wait_in.waits;
  wait_out.ns += times * other.wait_out.ns;
  wait_out.waits += times * other.wait_out.waits;
}

std::vector<StageSums> stage_sums(const Probe& probe, Time now) {
  std::vector<StageSums> sums;
  for (const StageCounters& stage : probe.stages()) {
    if (!stage.on) continue;
    sums.push_back({.items = stage.items.value(),
                    .images = stage.images.value(),
                    .timed_items = stage.timed_items.value(),
                    .bytes = stage.bytes.value(),
                    .cpu_ns = stage.cpu_ns.value(),
                    .wall_ns = stage.wall_ns.value(),
                    .wait_in = stage.wait_in.until(now),
                    .wait_out = stage.wait_out.until(now)});
  }
  return sums;
}

std::vector<StageUse> stage_uses(const Probe& probe, std::span<const StageSums> window) {
  std::vector<StageUse> uses;
  for_each_stage(probe, window, [&](const StageCounters& stage, const StageSums& sums) {
    if (is_outside(stage.stage.role)) return;
    const double scale = sums.timed_items > 0 ? static_cast<double>(sums.items) /
                                                    static_cast<double>(sums.timed_items)
                                              : 0;
    uses.push_back({.name = std::string(stage.stage.name),
                    .workers = std::string(stage.stage.workers),
                    .role = stage.stage.role,
                    .threads = stage.stage.threads,
                    .images = sums.images,
                    .items = sums.items,
                    .timed_items = sums.timed_items,
                    .cpu_s = scale * to_seconds(Nanoseconds(sums.cpu_ns)),
                    .wall_s = scale * to_seconds(Nanoseconds(sums.wall_ns)),
                    .wait_in_s = to_seconds(Nanoseconds(sums.wait_in.ns)),
                    .wait_out_s = to_seconds(Nanoseconds(sums.wait_out.ns)),
                    .bytes = sums.bytes});
  });
  return uses;
}

void add_outside_times(const Probe& probe, std::span<const StageSums> window,
                       std::map<std::string, double>& facts) {
  for_each_stage(probe, window, [&](const StageCounters& stage, const StageSums& sums) {
    if (sums.items == 0) return;
    const auto items = static_cast<double>(sums.items);
    const auto known = std::ranges::find(kOutsideFacts, stage.stage.role, &OutsideFact::stage);
    if (known == kOutsideFacts.end()) return;
    facts[std::string(known->fact)] = to_seconds(Nanoseconds(sums.wall_ns)) / items;
    if (known->counts) facts["batches_timed_in_window"] = items;
  });
}

TimingCost measure_timing_cost(const Clock& clock) {
  StageCounters counters;
  StageTimer counting(counters, clock, ~std::uint32_t{0}, 1), timing(counters, clock);
  const auto take_item = [](StageTimer& timer) { StageTimer::Item(timer).done(1, 1); };
  TimingCost cost;
  cost.item = least_cost([&] { take_item(counting); });
  cost.timing = least_cost([&] { take_item(timing); }) - cost.item;
  cost.wait = least_cost([&] { const auto wait = timing.wait_in(); });
  return cost;
}

double instrumentation_seconds(const TimingCost& cost, std::span<const StageSums> window) {
  Nanoseconds sum{};
  for (const StageSums& stage : window) {
    sum += stage.items * cost.item + stage.timed_items * cost.timing +
           (stage.wait_in.waits + stage.wait_out.waits) * cost.wait;
  }
  return to_seconds(sum);
}

QueueUse queue_use(std::string name, const BatchRing& ring) {
  const RingStats stats = ring.monitor().stats();
  const auto watched = static_cast<double>(std::max<std::int64_t>(1, stats.watched.count()));
  const auto share = [&](Nanoseconds time) { return static_cast<double>(time.count()) / watched; };
  return {.name = std::move(name),
          .slots = static_cast<std::int32_t>(ring.slots()),
          .mean_filled = share(stats.filled_time),
          .empty_percent = 100 * share(stats.empty_time),
          .full_percent = 100 * share(stats.full_time),
          .producer_wait_s = to_seconds(stats.producer_wait),
          .consumer_wait_s = to_seconds(stats.consumer_wait),
          .filled = ring.monitor().filled_over_time(kWindowParts)};
}

}  // namespace penstock
