// SPDX-License-Identifier: Apache-2.0
// Counters that components raise while they run, and that the harness reads before and after the
// window: images decoded, bytes received, messages rejected. Raising one is a relaxed atomic add.
//
// Thread-safety: Counter from any thread. Probe::counter and Probe::note take a lock: the first
// while components are made, the second for rare events only (a bad file, a hostile message).
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

#include "dataflow/wait_time.h"

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

/// What a stage of a feeder is: its name, and the threads that run it.
struct StageName {
  std::string_view name;     ///< "decode"; a literal
  std::string_view workers;  ///< "decode threads"; a literal. Stages of the same workers share time
  std::int32_t threads = 1;  ///< of its workers, that may run it at once
  bool operator==(const StageName&) const = default;
};

/// Workers of stages that other processes run, or the way between: their times are those that
/// batches tell, a worker's time is nobody's here.
inline constexpr std::string_view kOutside = "outside";

/// Running sums of one stage, in nanoseconds. Items are what it takes at once, images or batches;
/// CPU and wall time are sums over the timed items alone, waits over all. A StageTimer
/// (stage_timer.h) keeps them. Of a thread that runs several stages, waiting for input is of the
/// one whose input it is, waiting for room of the last one.
struct StageCounters {
  StageName stage{};
  bool on = true;  ///< false: nobody keeps them
  Counter items, images, timed_items, cpu_ns, wall_ns, bytes;
  WaitTime wait_in, wait_out;
};

class Probe {
 public:
  /// Without `instrument` stages are not timed.
  explicit Probe(bool instrument = true) : instrument_(instrument) {}

  /// The counters of that stage, made on first use, in the order in which stages are made: upstream
  /// first. They live as long as the probe. Each component that runs the stage asks once: its
  /// threads are added to those that are there.
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

  /// All stages; the list grows while components are made only.
  const std::deque<StageCounters>& stages() const noexcept { return stages_; }

  /// The counter of that name, made on first use; it lives as long as the probe. Names close with
  /// their unit: "bytes_received", "decode_ns".
  Counter& counter(std::string_view name) {
    const std::lock_guard lock(mutex_);
    return counters_[std::string(name)];
  }

  /// The same, of a class of a histogram: left out of values() as long as it has counted nothing.
  Counter& histogram_class(std::string_view name) {
    const std::lock_guard lock(mutex_);
    Counter& made = counters_[std::string(name)];
    histogram_classes_.insert(&made);
    return made;
  }

  /// Keeps a sentence for the result; only the first kMaxNotes are kept, the rest are counted.
  void note(std::string sentence) {
    const std::lock_guard lock(mutex_);
    if (notes_.size() < kMaxNotes) {
      notes_.push_back(std::move(sentence));
    } else {
      ++notes_dropped_;
    }
  }

  /// Keeps a figure for the result that is found out once, and does not grow: a place, a choice.
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
  std::map<std::string, Counter> counters_;  // nodes do not move
  std::set<const Counter*> histogram_classes_;
  std::deque<StageCounters> stages_;  // the same as counters_
  std::deque<std::string> notes_;
  std::map<std::string, double> facts_;
  std::int64_t notes_dropped_ = 0;
};

}  // namespace penstock
