// SPDX-License-Identifier: Apache-2.0
// What a worker's connection consists of; see connection.h. Its own thread's part is in
// connection_thread.cpp, that of its callers in connection.cpp.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <queue>
#include <thread>
#include <utility>

#include "trainer/processes.h"
#include "trainer/servers/connection.h"
#include "trainer/servers/message.h"
#include "trainer/servers/sockets.h"

namespace penstock {

struct ServerConnection::State {
  /// Something to send; what lies elsewhere is sent from there.
  struct Outgoing {
    std::size_t server = 0;
    ServerHeader header{};
    std::string text{};
    std::span<const std::byte> borrowed{};
    std::int32_t priority = 0;
    std::uint64_t order = 0;
  };
  struct LaterFirst {
    bool operator()(const Outgoing& a, const Outgoing& b) const {
      return a.priority != b.priority ? a.priority < b.priority : a.order > b.order;
    }
  };
  struct PartState {
    State* owner = nullptr;
    std::size_t server = 0;
    std::size_t bytes = 0;
    std::span<float> into{};
    bool asked = false;
    std::uint64_t version = 0, step = 0;  // of the weights here; of the next push
  };
  struct ServerState {
    bool welcome = false;
    Time heard{};
  };

  State(Wish the_wish, Clock& the_clock)
      : wish(std::move(the_wish)),
        clock(the_clock),
        beat(std::min(Nanoseconds(std::chrono::seconds(1)), wish.silence / 4)),
        servers(wish.cluster.ps_hosts.size()),
        on_stop(wish.stop, [this] { stop_within(stop_at, Processes::kGrace); }) {
    sockets.emplace(wish.cluster.ps_hosts, Security{.curve = read_curve(wish.curve)},
                    wish.io_threads);
  }

  // ---- of callers' threads ----

  void stop_within(Time& moment, Nanoseconds grace) {
    const std::lock_guard lock(mutex);
    moment = std::min(moment, clock.now() + grace);
    wake.signal();
  }
  /// Blocks until `ready()`. Throws what made that impossible; Error once `stops` has passed,
  /// TimeoutError with `late()` once `deadline` has.
  void wait(std::unique_lock<std::mutex>& lock, Time deadline, const Time& stops,
            const std::function<bool()>& ready, const std::function<std::string()>& late);
  void throw_failure() const {
    if (failure != nullptr) std::rethrow_exception(failure);
  }
  void enqueue(Outgoing message) {
    message.order = next_order++;
    message.header.task = static_cast<std::uint32_t>(wish.task);
    message.header.length = message.text.size() + message.borrowed.size();
    outgoing.push(std::move(message));
  }
  std::string where() const { return fmt::format("while {}, at step {}", to_string(phase), step); }

  // ---- of the connection's thread ----

  /// Until this process leaves. A failure of its own is told to those who wait.
  void run() noexcept;
  void run_until_left();
  void receive_all();
  void send_what_may_go();
  void send(Outgoing& message);
  /// libzmq has sent what was lent to it: called on its thread.
  void take_back(std::size_t bytes) noexcept {
    unsent.fetch_sub(bytes);
    lent.fetch_sub(1);
    wake.signal();
  }
  void take(std::size_t server, std::span<const std::byte> bytes, Frame data);
  void take_answer(const ServerHeader& header, const Frame& data);
  void send_beats(Time now);
  void look_at_servers(Time now);
  void fail(std::exception_ptr why) {
    const std::lock_guard lock(mutex);
    fail_locked(std::move(why));
  }
  void fail_locked(std::exception_ptr why) {
    if (failure == nullptr) failure = std::move(why);
    clock.wake(gate);
  }
  void lose(std::size_t server, const std::string& how);

  const Wish wish;
  Clock& clock;
  const Nanoseconds beat;

  std::mutex mutex;
  Gate gate;
  // All below under the mutex, up to the line.
  std::priority_queue<Outgoing, std::vector<Outgoing>, LaterFirst> outgoing;
  std::uint64_t next_order = 0;
  std::exception_ptr failure;
  Time wait_until = Time::max();
  /// When waits end because of a stop: all of them, and those of training.
  Time stop_at = Time::max(), training_stops_at = Time::max();
  std::vector<ServerState> servers;
  WorkerPhase phase = WorkerPhase::joining;
  std::uint64_t step = 0;
  std::uint64_t meeting = 0;
  std::optional<std::vector<std::string>> texts;  // of the meeting under way
  std::vector<PartState> parts;                   // by key
  std::size_t unanswered = 0, credit = 0;
  Time progress{};  // the last answer
  Answers answers{};
  bool leaving = false, releasing = false, dropping = false, dropped = false;
  // ----

  std::atomic<std::int64_t> lent{0};   // frames that libzmq still reads
  std::atomic<std::size_t> unsent{0};  // their bytes
  WakeSignal wake;
  std::optional<DealerSockets> sockets;  // of the connection's thread, once it runs
  Time beaten{};
  std::stop_callback<std::function<void()>> on_stop;
  std::optional<std::stop_callback<std::function<void()>>> on_stopping, on_abandon;
  std::jthread thread;  // last: it uses the others
};

}  // namespace penstock
