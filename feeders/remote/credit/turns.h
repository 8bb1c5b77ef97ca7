// SPDX-License-Identifier: Apache-2.0
// Lets threads start work in an order, do it in parallel, and finish it in the same order.
//
//   Turn turn(turns, number);  // 1, 2, 3, ...: each number once, without gaps
//   ...; turn.await(); publish;
//
// Thread-safety: any thread may use Turns; only one thread may use a Turn. Turns must outlive each
// Turn.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <utility>

namespace penstock::remote {

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

/// A place in the order. Its destructor waits for the turn and passes it on.
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
