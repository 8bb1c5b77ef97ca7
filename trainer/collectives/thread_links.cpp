// SPDX-License-Identifier: Apache-2.0
#include "trainer/collectives/thread_links.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "dataflow/error.h"

namespace penstock::collectives {

ThreadLinks::ThreadLinks(std::int32_t ranks, Clock& clock, Nanoseconds timeout,
                         std::stop_token stop)
    : ranks_(ranks),
      clock_(clock),
      timeout_(timeout),
      stop_(std::move(stop)),
      places_(static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks)) {
  PENSTOCK_ASSERT(ranks > 0 && timeout > Nanoseconds::zero());
  watcher_ = std::jthread([this, participant = Clock::Participant(clock)](
                              const std::stop_token& done) { watch_deadlines(done); });
}

void ThreadLinks::watch_deadlines(const std::stop_token& stop) {
  for (;;) {
    {
      std::unique_lock lock(watch_mutex_);
      if (!clock_.wait(lock, watch_gate_, stop, [&] { return watched_; })) return;
      watched_ = false;
    }
    // Waits that begin while this thread sleeps have later deadlines.
    for (Time next = expire(clock_.now()); next != Time::max(); next = expire(clock_.now())) {
      clock_.sleep_until(next, stop);
      if (stop.stop_requested()) return;
    }
  }
}

Time ThreadLinks::expire(Time now) {
  Time next = Time::max();
  for (Place& place : places_) {
    const std::lock_guard lock(place.mutex);
    if (place.deadline > now) {
      next = std::min(next, place.deadline);
    } else {
      place.expired = true;
      clock_.wake(place.gate);
    }
  }
  return next;
}

void ThreadLinks::watch() {
  const std::lock_guard lock(watch_mutex_);
  if (watched_) return;
  watched_ = true;
  clock_.wake(watch_gate_);
}

class ThreadLink final : public Link {
 public:
  ThreadLink(ThreadLinks& links, std::int32_t rank) : links_(links), rank_(rank) {}

  World world() const noexcept override { return {rank_, links_.ranks_}; }

  void send_receive(std::int32_t to, std::span<const std::byte> sent, std::int32_t from,
                    std::span<std::byte> received) override {
    show(to, sent);
    try {
      take(from, received);
    } catch (...) {
      withdraw(to, sent);
      throw;
    }
    await_taken(to, sent);
  }

 private:
  using Place = ThreadLinks::Place;
  using State = ThreadLinks::State;

  Place& place_of(std::int32_t from, std::int32_t to) {
    PENSTOCK_ASSERT(from != to && std::min(from, to) >= 0 && std::max(from, to) < links_.ranks_);
    return links_.place(from, to);
  }

  void take(std::int32_t from, std::span<std::byte> bytes) {
    if (bytes.empty()) return;
    Place& place = place_of(from, rank_);
    std::unique_lock lock(place.mutex);
    if (!await(place, lock, State::shown)) fail(lock, "receive", bytes.size(), "from", from);
    const std::span<const std::byte> sent = place.bytes;
    place.state = State::copying;
    lock.unlock();
    if (sent.size() == bytes.size()) std::memcpy(bytes.data(), sent.data(), sent.size());
    lock.lock();
    place.state = State::taken;
    links_.clock_.wake(place.gate);
    if (sent.size() != bytes.size()) {
      throw Error(
          "rank {} receives {} bytes from rank {}, which sent {}; expected equal sizes; give all "
          "ranks the same model and flags",
          rank_, bytes.size(), from, sent.size());
    }
  }

  void show(std::int32_t to, std::span<const std::byte> bytes) {
    if (bytes.empty()) return;
    Place& place = place_of(rank_, to);
    const std::lock_guard lock(place.mutex);
    PENSTOCK_ASSERT(place.state == State::empty);
    place.bytes = bytes;
    place.state = State::shown;
    links_.clock_.wake(place.gate);
  }

  void await_taken(std::int32_t to, std::span<const std::byte> bytes) {
    if (bytes.empty()) return;
    Place& place = place_of(rank_, to);
    std::unique_lock lock(place.mutex);
    const bool taken = await(place, lock, State::taken);
    if (!taken) hide(place, lock);
    place.state = State::empty;
    if (!taken) fail(lock, "send", bytes.size(), "to", to);
  }

  /// Called after a failure. Afterwards no rank reads the memory.
  void withdraw(std::int32_t to, std::span<const std::byte> bytes) {
    if (bytes.empty()) return;
    Place& place = place_of(rank_, to);
    std::unique_lock lock(place.mutex);
    hide(place, lock);
    place.state = State::empty;
  }

  /// Waits until a copy that has begun is done.
  void hide(Place& place, std::unique_lock<std::mutex>& lock) {
    links_.clock_.wait(lock, place.gate, {}, [&] { return place.state != State::copying; });
  }

  /// False: stopped, or the deadline has passed.
  bool await(Place& place, std::unique_lock<std::mutex>& lock, State expected) {
    if (place.state == expected) return true;
    place.deadline = links_.clock_.now() + links_.timeout_;
    links_.watch();
    links_.clock_.wait(lock, place.gate, links_.stop_,
                       [&] { return place.state == expected || place.expired; });
    place.deadline = Time::max();
    place.expired = false;
    return place.state == expected;
  }

  [[noreturn]] void fail(std::unique_lock<std::mutex>& lock, std::string_view what,
                         std::size_t bytes, std::string_view direction, std::int32_t peer) const {
    lock.unlock();
    if (links_.stop_.stop_requested()) {
      throw Error(
          "rank {} could not {} {} bytes {} rank {}: the exchange was abandoned, as the run is "
          "stopping",
          rank_, what, bytes, direction, peer);
    }
    throw TimeoutError(
        "rank {} waited {:.3g} s to {} {} bytes {} rank {}; expected it to take part by then; see "
        "what rank {} does, or allow more time",
        rank_, to_seconds(links_.timeout_), what, bytes, direction, peer, peer);
  }

  ThreadLinks& links_;
  const std::int32_t rank_;
};

std::unique_ptr<Link> ThreadLinks::join(std::int32_t rank) {
  PENSTOCK_ASSERT(rank >= 0 && rank < ranks_);
  return std::make_unique<ThreadLink>(*this, rank);
}

}  // namespace penstock::collectives
