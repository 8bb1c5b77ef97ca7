// SPDX-License-Identifier: Apache-2.0
// Runs the same work on several threads, and lets them start pieces of it in an order, do them in
// parallel, and finish them in the same order.
//
//   Turn turn(turns, number);  // 1, 2, 3, ...: each number once, without gaps
//   ...; turn.await(); publish;
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <stop_token>
#include <utility>

namespace penstock::remote {

/// Runs `work` on the calling thread and on `threads` - 1 more, and returns when all have returned.
/// Each gets a token that asks it to stop when `stop` does, or when one of them has returned.
/// Rethrows the first exception. Throws ConfigError if the system cannot start the threads.
void run_together(std::int32_t threads, const std::stop_token& stop,
                  const std::function<void(const std::stop_token&)>& work);

/// An order. Any thread may use it; it must outlive each Turn.
class Turns {
 public:
  bool has_come(std::int64_t number) const {
    const std::lock_guard lock(mutex_);
    return next_ == number;
  }
  void await(std::int64_t number) const {
    std::unique_lock lock(mutex_);
    passed_.wait(lock, [&] { return next_ == number; });
  }
  /// Only for the thread that has the turn.
  void pass() {
    const std::lock_guard lock(mutex_);
    ++next_;
    passed_.notify_all();
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable passed_;
  std::int64_t next_ = 1;  // under mutex_
};

/// A place in the order, used by one thread at a time. Its destructor waits for the turn and passes
/// it on.
class Turn {
 public:
  /// No place: the turn has always come.
  Turn() = default;
  Turn(Turns& turns, std::int64_t number) : turns_(&turns), number_(number) {}
  Turn(Turn&& other) noexcept
      : turns_(std::exchange(other.turns_, nullptr)), number_(other.number_) {}
  Turn& operator=(Turn&& other) noexcept {
    end();
    turns_ = std::exchange(other.turns_, nullptr);
    number_ = other.number_;
    return *this;
  }
  ~Turn() { end(); }

  bool has_come() const { return turns_ == nullptr || turns_->has_come(number_); }
  /// Blocks until all earlier turns have ended.
  void await() const {
    if (turns_ != nullptr) turns_->await(number_);
  }

 private:
  void end() {
    if (turns_ == nullptr) return;
    turns_->await(number_);
    std::exchange(turns_, nullptr)->pass();
  }

  Turns* turns_ = nullptr;
  std::int64_t number_ = 0;
};

}  // namespace penstock::remote
