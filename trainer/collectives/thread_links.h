// SPDX-License-Identifier: Apache-2.0
// Links between ranks that are threads of one process: the receiver copies out of the sender's
// memory, so that each byte is moved once and nothing is buffered.
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

namespace penstock {

/// What the ranks share. Outlives the links that it makes. Each ordered pair of ranks has a place
/// of its own where the sender shows one message at a time; only those two threads meet there.
class ThreadLinks {
 public:
  /// No call of a link waits longer than `timeout` for its peer, above 0. A stop request lets every
  /// waiting rank leave with an Error.
  ///
  /// Deadlines are seen to by a thread of its own, which takes part in simulated time: there, the
  /// links are destroyed by a thread that does not, or that no longer does.
  ThreadLinks(std::int32_t ranks, Clock& clock, Nanoseconds timeout, std::stop_token stop);

  std::unique_ptr<Link> join(std::int32_t rank);

 private:
  friend class ThreadLink;
  enum class State : std::uint8_t { empty, shown, copying, taken };
  /// From one rank to another.
  struct Place {
    std::mutex mutex;
    Gate gate;  // all below under mutex
    State state = State::empty;
    std::span<const std::byte> bytes;  // the sender's
    Time deadline = Time::max();       // of who waits here; max: nobody does
    bool expired = false;
  };

  Place& place(std::int32_t from, std::int32_t to) {
    return places_[static_cast<std::size_t>(from * ranks_ + to)];
  }
  void watch_deadlines(const std::stop_token& stop);
  /// Tells those that wait beyond their deadlines; returns the first deadline of the others.
  Time expire(Time now);
  /// Somebody begins to wait.
  void watch();

  const std::int32_t ranks_;
  Clock& clock_;
  const Nanoseconds timeout_;
  const std::stop_token stop_;
  std::vector<Place> places_;  // by sender, then by receiver
  std::mutex watch_mutex_;
  Gate watch_gate_;       // all below under watch_mutex_
  bool watched_ = false;  // the watcher looks again
  std::jthread watcher_;  // last: it uses the others
};

}  // namespace penstock
