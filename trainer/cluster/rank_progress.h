// SPDX-License-Identifier: Apache-2.0
// The progress of a rank. The threads that prepare and train write it; the thread that informs the
// other processes of the run reads it.
//
// Thread-safety: one thread calls begin_step, one thread at a time waits; any thread may call the
// others.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "dataflow/clock.h"

namespace penstock::cluster {

/// All ranks meet before each phase except `gathering`.
enum class RankPhase : std::uint8_t { joining, preparing, training, gathering, leaving };

/// The least phase of the other ranks, given that this rank is in `phase`.
constexpr RankPhase least_of_others(RankPhase phase) {
  return phase > RankPhase::training ? static_cast<RankPhase>(static_cast<int>(phase) - 1) : phase;
}

/// What ranks tell each other.
struct RankState {
  RankPhase phase = RankPhase::joining;
  bool waiting = false;       ///< for the other ranks
  std::int64_t step = -1;     ///< the last step that began, from 0; -1: none yet
  std::int64_t warm_up = 0;   ///< steps before the measured ones; -1: unknown
  std::int64_t meetings = 0;  ///< meetings with the other ranks that it has reached so far
};

class RankProgress {
 public:
  explicit RankProgress(std::int64_t warm_up = 0) : warm_up_(warm_up) {}

  void enter(RankPhase phase) noexcept { phase_ = phase; }
  /// Steps count from 0.
  void begin_step(std::int64_t step, Time now) noexcept {
    const Time::rep begun = now.time_since_epoch().count();
    const Time::rep before = step_begun_.exchange(begun, std::memory_order_relaxed);
    if (step_.exchange(step, std::memory_order_relaxed) >= 0) {
      const std::size_t at = intervals_known_++ % intervals_.size();
      intervals_[at].store(begun - before, std::memory_order_relaxed);
    }
  }

  /// The rank has reached a meeting of all ranks and waits for the others.
  void begin_wait(Time deadline) noexcept {
    deadline_.store(deadline.time_since_epoch().count(), std::memory_order_relaxed);
    ++meetings_;
  }
  void end_wait() noexcept { deadline_.store(kNone, std::memory_order_relaxed); }
  bool is_overdue(Time now) const noexcept {
    const Time::rep deadline = deadline_.load(std::memory_order_relaxed);
    return deadline != kNone && now.time_since_epoch().count() > deadline;
  }

  /// The median over the last steps, from the start of a step to the start of the next; 0 in the
  /// first step.
  Nanoseconds median_step() const {
    const std::size_t known = std::min(intervals_known_.load(), intervals_.size());
    if (known == 0) return {};
    std::vector<Time::rep> sorted(intervals_.begin(),
                                  intervals_.begin() + static_cast<std::ptrdiff_t>(known));
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(known / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    return Nanoseconds(*middle);
  }

  RankState state() const noexcept {
    return {.phase = phase_,
            .waiting = deadline_.load(std::memory_order_relaxed) != kNone,
            .step = step_.load(std::memory_order_relaxed),
            .warm_up = warm_up_,
            .meetings = meetings_};
  }

 private:
  static constexpr Time::rep kNone = 0;
  const std::int64_t warm_up_;
  std::atomic<RankPhase> phase_{RankPhase::joining};
  std::atomic<std::int64_t> step_{-1}, meetings_{0};
  std::atomic<Time::rep> step_begun_{0}, deadline_{kNone};
  std::array<std::atomic<Time::rep>, 15> intervals_{};
  std::atomic<std::size_t> intervals_known_{0};
};

/// Marks the rank as waiting for the others during its lifetime. `progress` may be null.
class RankWait {
 public:
  RankWait(RankProgress* progress, Time deadline) noexcept : progress_(progress) {
    if (progress_ != nullptr) progress_->begin_wait(deadline);
  }
  RankWait(const RankWait&) = delete;
  ~RankWait() {
    if (progress_ != nullptr) progress_->end_wait();
  }

 private:
  RankProgress* const progress_;
};

}  // namespace penstock::cluster
