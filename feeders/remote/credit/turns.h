// SPDX-License-Identifier: Apache-2.0
// Work that is taken up in an order, done side by side, and ended in that order again.
//
//   Turn turn(turns, number);  // 1, 2, 3, ...: each number once, none left out
//   ...; turn.await(); publish;
//
// Thread-safety: Turns from any thread; a Turn belongs to one. Turns outlive theirs.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <utility>

namespace penstock {

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
  /// Only by whoever has the turn.
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

/// A place in the order. At its end it is passed on, once it has come.
class Turn {
 public:
  /// None: its turn is always.
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
  /// Blocks until all before it have ended.
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

}  // namespace penstock
