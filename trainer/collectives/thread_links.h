// SPDX-License-Identifier: Apache-2.0
// Links between ranks that are threads of one process. The receiver copies out of the sender's
// memory, so each byte is moved once and nothing is buffered.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <thread>
#include <vector>

#include "dataflow/clock.h"
#include "trainer/collectives/link.h"

namespace penstock::collectives {

/// The state that the ranks share. Outlives the links that it makes. Each ordered pair of ranks has
/// a place in which the sender shows one message at a time; only these two threads use it.
class ThreadLinks {
 public:
  /// A call of a link waits for its peer for at most `timeout`, which is above 0. A stop request
  /// makes every waiting rank leave with an Error.
  ///
  /// A separate thread checks the deadlines and takes part in simulated time. In simulated time,
  /// the thread that destroys the links must not take part, or no longer.
  ThreadLinks(std::int32_t ranks, Clock& clock, Nanoseconds timeout, std::stop_token stop);

  std::unique_ptr<Link> join(std::int32_t rank);

 private:
  friend class ThreadLink;
  enum class State : std::uint8_t { empty, shown, copying, taken };
  /// The message place from one rank to another.
  struct Place {
    std::mutex mutex;
    Gate gate;  // all below under mutex
    State state = State::empty;
    std::span<const std::byte> bytes;  // memory of the sender
    Time deadline = Time::max();       // of the waiting rank; max: no rank waits
    bool expired = false;
  };

  Place& place(std::int32_t from, std::int32_t to) {
    return places_[static_cast<std::size_t>(from * ranks_ + to)];
  }
  void watch_deadlines(const std::stop_token& stop);
  /// Wakes the ranks that waited beyond their deadlines. Returns the first deadline of the others.
  Time expire(Time now);
  /// Wakes the watcher when a rank begins to wait.
  void watch();

  const std::int32_t ranks_;
  Clock& clock_;
  const Nanoseconds timeout_;
  const std::stop_token stop_;
  std::vector<Place> places_;  // by sender, then by receiver
  std::mutex watch_mutex_;
  Gate watch_gate_;       // all below under watch_mutex_
  bool watched_ = false;  // true: the watcher looks again
  std::jthread watcher_;  // last, because it uses the others
};

}  // namespace penstock::collectives
