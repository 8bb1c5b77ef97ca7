// SPDX-License-Identifier: Apache-2.0
// The state of a worker's connection; see connection.h. connection_thread.cpp has the functions of
// its thread, connection.cpp those of its callers.
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

#include "dataflow/machine/event_fd.h"
#include "trainer/cluster/processes.h"
#include "trainer/cluster/servers/connection.h"
#include "trainer/cluster/servers/message.h"
#include "trainer/cluster/servers/sockets.h"

namespace penstock::cluster {

struct ServerConnection::State {
  /// A message to send. Borrowed data are sent without a copy.
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
    std::uint64_t version = 0, step = 0;  // version of the local weights; step of the next push
  };
  struct ServerState {
    bool welcome = false;
    Time heard{};
  };

  State(Arguments the_arguments, Clock& the_clock)
      : arguments(std::move(the_arguments)),
        clock(the_clock),
        beat(std::min(Nanoseconds(std::chrono::seconds(1)), arguments.silence / 4)),
        servers(arguments.cluster.ps_hosts.size()),
        on_stop(arguments.stop, [this] { stop_within(stop_at, Processes::kGrace); }) {
    sockets = connect_to_servers(arguments.cluster.ps_hosts, net::read_curve(arguments.curve),
                                 arguments.io_threads);
  }

  // ---- of callers' threads ----

  void stop_within(Time& moment, Nanoseconds grace) {
    const std::lock_guard lock(mutex);
    moment = std::min(moment, clock.now() + grace);
    wake.signal();
  }
  /// Blocks until `ready()`. Throws the failure if that is impossible, Error once `stops` has
  /// passed, and TimeoutError with `late()` once `deadline` has passed.
  void wait(std::unique_lock<std::mutex>& lock, Time deadline, const Time& stops,
            const std::function<bool()>& ready, const std::function<std::string()>& late);
  void throw_failure() const {
    if (failure != nullptr) std::rethrow_exception(failure);
  }
  void enqueue(Outgoing message) {
    message.order = next_order++;
    message.header.task = static_cast<std::uint32_t>(arguments.task);
    message.header.length = message.text.size() + message.borrowed.size();
    outgoing.push(std::move(message));
  }
  std::string where() const { return fmt::format("while {}, at step {}", to_string(phase), step); }

  // ---- of the connection's thread ----

  /// Runs until this process leaves. Reports its own failures to waiting callers.
  void run() noexcept;
  void run_until_left();
  void receive_all();
  void send_what_may_go();
  void send(Outgoing& message);
  /// libzmq has sent borrowed data. Called on a libzmq thread.
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

  const Arguments arguments;
  Clock& clock;
  const Nanoseconds beat;

  std::mutex mutex;
  Gate gate;
  // All members up to the line are protected by the mutex.
  std::priority_queue<Outgoing, std::vector<Outgoing>, LaterFirst> outgoing;
  std::uint64_t next_order = 0;
  std::exception_ptr failure;
  Time wait_until = Time::max();
  /// When waits end because of a stop: all waits, and those of training.
  Time stop_at = Time::max(), training_stops_at = Time::max();
  std::vector<ServerState> servers;
  WorkerPhase phase = WorkerPhase::joining;
  std::uint64_t step = 0;
  std::uint64_t meeting = 0;
  std::optional<std::vector<std::string>> texts;  // of the current meeting
  std::vector<PartState> parts;                   // by key
  std::size_t unanswered = 0, credit = 0;
  Time progress{};  // time of the last answer
  Answers answers{};
  bool leaving = false, releasing = false, dropping = false, dropped = false;
  // ----

  std::atomic<std::int64_t> lent{0};   // frames that libzmq still reads
  std::atomic<std::size_t> unsent{0};  // bytes of those frames
  EventFd wake;
  std::unique_ptr<MessageSockets> sockets;  // used only by the connection's thread, once it runs
  Time beaten{};
  std::stop_callback<std::function<void()>> on_stop;
  std::optional<std::stop_callback<std::function<void()>>> on_stopping, on_abandon;
  std::jthread thread;  // last, because it uses the others
};

}  // namespace penstock::cluster
