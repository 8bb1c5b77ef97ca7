// SPDX-License-Identifier: Apache-2.0
// Counters that components raise while they run, and that the harness reads before and after the
// measurement window: images decoded, bytes received, messages rejected. To raise one is a relaxed
// atomic add.
//
// Thread-safety: Counter from any thread. Probe::counter and Probe::note take a lock. Call the
// first while components are made, and the second only for rare events (a bad file, a hostile
// message).
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "dataflow/clock.h"

namespace penstock {

class Counter {
 public:
  void add(std::int64_t amount = 1) noexcept {
    value_.fetch_add(amount, std::memory_order_relaxed);
  }
  std::int64_t value() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::int64_t> value_{0};
};

/// The total time that threads have waited. It is exact at any moment, even while threads still
/// wait, so the difference between two moments is exactly the wait between them. Thread-safety: any
/// thread. It holds an internal lock for some nanoseconds.
class WaitTime {
 public:
  struct Sum {
    std::int64_t ns = 0;
    std::int64_t waits = 0;  ///< waits that have begun
  };

  /// `threads` more threads wait from `now` on. Calls may come out of time order.
  void begin(Time now, std::int64_t threads = 1) noexcept {
    const std::lock_guard lock(mutex_);
    waiting_ += threads;
    waits_ += threads;
    ns_ -= threads * ns_of(now);
  }
  /// `threads` waiting threads stop waiting at `now`.
  void end(Time now, std::int64_t threads = 1) noexcept {
    const std::lock_guard lock(mutex_);
    waiting_ -= threads;
    ns_ += threads * ns_of(now);
  }
  /// Adds a wait that is already over.
  void add(Nanoseconds waited) noexcept {
    const std::lock_guard lock(mutex_);
    ++waits_;
    ns_ += waited.count();
  }

  /// The sum up to `now`, which must not be before any moment so far.
  Sum until(Time now) const noexcept {
    const std::lock_guard lock(mutex_);
    return {ns_ + waiting_ * ns_of(now), waits_};
  }

 private:
  static std::int64_t ns_of(Time moment) noexcept {
    return std::chrono::duration_cast<Nanoseconds>(moment.time_since_epoch()).count();
  }

  mutable std::mutex mutex_;
  // mutex_ protects everything below.
  std::int64_t waiting_ = 0, waits_ = 0;
  std::int64_t ns_ = 0;  // for waits in progress, holds minus their start times
};

/// What a stage does with a batch. Reports and the diagnosis use it; they never compare names.
enum class StageRole : std::uint8_t {
  other,          ///< reports say its name
  reads_storage,  ///< its threads may wait for storage
  decodes,        ///< JPEG images
  crops,          ///< stored pixels
  draws,          ///< pixels, without any input
  receives,       ///< messages from other processes
  unpacks,        ///< messages: checks them, and copies them into slots
  copies,         ///< to a device, which measures its wall time
  // In the user's own loader, by its workers or by the process that asks it for batches:
  loads,
  collates,
  pins,
  asks,  ///< waits until the loader yields the next batch
  // Outside this process. Batches carry these times, and no local thread is charged:
  queues,    ///< from a loader's worker to the process that asks for the batch
  produces,  ///< a producer works on the batch
  holds,     ///< the batch waits for the producer's socket
  carries,   ///< the network, with both sockets' buffers
  sends      ///< the producer or the network: it is not known which
};
constexpr bool is_outside(StageRole role) noexcept { return role >= StageRole::queues; }

/// Identifies a stage of a feeder: its name, and the threads that run it.
struct StageName {
  std::string_view name;     ///< "decode"; a literal
  std::string_view workers;  ///< "decode threads"; a literal. Stages of the same workers share time
  std::int32_t threads = 1;  ///< how many of the workers may run it at once
  StageRole role = StageRole::other;
  bool operator==(const StageName&) const = default;
};

/// Begins the names of counters of the ns that the code of a loader takes for samples; the rest
/// names the code.
inline constexpr std::string_view kLoadTime = "load_ns: ";
/// The same by what the processes that load did: "computing", or what they waited for.
inline constexpr std::string_view kLoadState = "load_state_ns: ";

/// Running sums of one stage, in nanoseconds. Items are what the stage takes at once: images or
/// batches. CPU and wall time are sums over the timed items alone; waits are sums over all items. A
/// StageTimer (stage_timer.h) keeps them. If a thread runs several stages, a wait for input counts
/// for the stage that takes the input, and a wait for room for the last stage.
struct StageCounters {
  StageName stage{};
  bool on = true;  ///< false: the stage is not timed
  Counter items, images, timed_items, cpu_ns, wall_ns, bytes;
  WaitTime wait_in, wait_out;
};

class Probe {
 public:
  /// If `instrument` is false, stages are not timed.
  explicit Probe(bool instrument = true) : instrument_(instrument) {}

  /// The counters of that stage. The first call makes them. Stages are listed in the order in which
  /// they are made, upstream first. The counters live as long as the probe. Each component that
  /// runs the stage calls this once, and adds its threads.
  StageCounters& stage(const StageName& name) {
    const std::lock_guard lock(mutex_);
    for (StageCounters& known : stages_) {
      if (known.stage.name != name.name || known.stage.workers != name.workers) continue;
      known.stage.threads += name.threads;
      return known;
    }
    StageCounters& made = stages_.emplace_back();
    made.stage = name;
    made.on = instrument_;
    return made;
  }

  /// All stages. The list grows only while components are made.
  const std::deque<StageCounters>& stages() const noexcept { return stages_; }

  /// The counter of that name. The first call makes it, and it lives as long as the probe. A name
  /// ends with its unit: "bytes_received", "decode_ns".
  Counter& counter(std::string_view name) {
    const std::lock_guard lock(mutex_);
    return counters_[std::string(name)];
  }

  /// As counter(), for one class of a histogram: values() omits it while it is 0.
  Counter& histogram_class(std::string_view name) {
    const std::lock_guard lock(mutex_);
    Counter& made = counters_[std::string(name)];
    histogram_classes_.insert(&made);
    return made;
  }

  /// Keeps a sentence for the result. Only the first kMaxNotes are kept; the rest are counted.
  void note(std::string sentence) {
    const std::lock_guard lock(mutex_);
    if (notes_.size() < kMaxNotes) {
      notes_.push_back(std::move(sentence));
    } else {
      ++notes_dropped_;
    }
  }

  /// Keeps a figure for the result that is set once and does not grow: a place, a choice.
  void fact(std::string name, double value) {
    const std::lock_guard lock(mutex_);
    facts_[std::move(name)] = value;
  }

  std::map<std::string, double> facts() const {
    const std::lock_guard lock(mutex_);
    return facts_;
  }

  std::map<std::string, std::int64_t> values() const {
    const std::lock_guard lock(mutex_);
    std::map<std::string, std::int64_t> result;
    for (const auto& [name, counter] : counters_) {
      const std::int64_t value = counter.value();
      if (value != 0 || !histogram_classes_.contains(&counter)) result[name] = value;
    }
    return result;
  }

  std::vector<std::string> notes() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> result(notes_.begin(), notes_.end());
    if (notes_dropped_ > 0) result.push_back("and " + std::to_string(notes_dropped_) + " more");
    return result;
  }

 private:
  static constexpr std::size_t kMaxNotes = 20;
  const bool instrument_;
  mutable std::mutex mutex_;
  std::map<std::string, Counter> counters_;  // a map, since its nodes do not move
  std::set<const Counter*> histogram_classes_;
  std::deque<StageCounters> stages_;  // a deque: its elements do not move either
  std::deque<std::string> notes_;
  std::map<std::string, double> facts_;
  std::int64_t notes_dropped_ = 0;
};

}  // namespace penstock
