// SPDX-License-Identifier: Apache-2.0
// A ring that is sent over a socket, in each way.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <exception>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "feeders/remote/send/frame_memory.h"
#include "feeders/remote/send/sender.h"
#include "tests/feeders/remote/credit_fixture.h"

namespace penstock {

enum class Way : std::uint8_t { push, credit, shared };  // shared: by credit, in shared memory
constexpr Way by_credit(bool shared) { return shared ? Way::shared : Way::credit; }

inline constexpr remote::PushPlan kForEver{.timeout = std::chrono::seconds(20)};

class Server {
 public:
  /// `format`: of batches that are pushed.
  Server(const std::string& endpoint, bool bind, Way way, std::size_t slots = 4,
         const BatchSpec& spec = kSmall, net::CurveSetup curve = {},
         remote::MessageFormat format = remote::MessageFormat::zmq_op)
      : shared_(way == Way::shared ? std::optional<remote::SharedFrameMemory>(std::in_place, host_,
                                                                              spec.bytes(), slots)
                                   : std::nullopt),
        memory_(shared_ ? static_cast<Device&>(*shared_) : sent_),
        ring_(spec, slots, memory_, MemoryKind::pinned, std::span(&reader_, 1), Order::relaxed,
              clock_),
        sender_(remote::make_ring_supply(
                    ring_,
                    shared_ ? remote::make_lent_outgoing(spec, clock_, shared_->pool())
                            : remote::make_outgoing(
                                  way == Way::push ? format : remote::MessageFormat::framed, spec,
                                  clock_, format == remote::MessageFormat::framed),
                    clock_, probe_, way != Way::push),
                net::parse_endpoint(endpoint),
                {.role = way == Way::push ? remote::ZmqSocketOptions::Role::push
                                          : remote::ZmqSocketOptions::Role::dealer,
                 .bind = bind,
                 .curve = std::move(curve),
                 .hwm = 2},
                clock_, probe_) {}
  ~Server() { stop(); }

  /// Fills `count` batches from `first` on, or an endless number, and then ends.
  void feed(std::uint64_t first, std::uint64_t count = 0) {
    feeding_ = std::jthread([this, first, count](const std::stop_token& stop) {
      for (std::uint64_t i = first; count == 0 || i < first + count; ++i) {
        WriteLease lease = ring_.acquire(stop);
        if (!lease) return;
        lease.await();
        fill_closed_form(lease.batch(), ring_.spec(), i % 25);  // labels tell the batch number
        std::move(lease).publish();
      }
      ring_.close();
    });
  }
  /// Fills each slot once, with the batch of its number, and publishes it again and again.
  void feed_constant() {
    feeding_ = std::jthread([this](const std::stop_token& stop) {
      std::vector<bool> filled(ring_.slots());
      while (WriteLease lease = ring_.acquire(stop)) {
        const auto slot = static_cast<std::size_t>(lease.batch().slot);
        if (!filled[slot]) fill_closed_form(lease.batch(), ring_.spec(), slot);
        filled[slot] = true;
        std::move(lease).publish();
      }
    });
  }
  void run(const remote::PushPlan& plan, std::stop_token stop = {}) {
    sender_.run(plan, std::move(stop));
  }
  void start(const remote::PushPlan& plan = kForEver) {
    sending_ = std::jthread([this, plan](const std::stop_token& stop) {
      try {
        run(plan, stop);
      } catch (...) {
        failure_ = std::current_exception();
      }
    });
  }
  /// Waits for the end of start(), and rethrows its exception.
  void join() {
    sending_.join();
    if (failure_) std::rethrow_exception(failure_);
  }
  void stop() {
    sending_ = {};
    feeding_ = {};
  }
  remote::Sender& sender() { return sender_; }
  BatchRing& ring() { return ring_; }
  std::int64_t counter(const std::string& name) const { return probe_.values().at(name); }
  /// Does a counter reach a value within some seconds, and stay there?
  bool stays_at(const std::string& name, std::int64_t value) const {
    return reaches(name, value) && counter(name) == value;
  }
  bool reaches(const std::string& name, std::int64_t value) const {
    return await([&] { return counter(name) >= value; });
  }

 private:
  SteadyClock clock_;
  Probe probe_;
  HostDevice host_{clock_};
  remote::FrameMemory sent_{host_};
  std::optional<remote::SharedFrameMemory> shared_;
  Device& memory_;
  Device* const reader_ = &host_;
  BatchRing ring_;
  remote::Sender sender_;
  std::exception_ptr failure_;
  std::jthread feeding_, sending_;
};

using SenderTest = ZmqConsume;

/// A process that works until it is done or killed. Start it before this process has threads.
class Forked {
 public:
  template <typename Work>
  explicit Forked(const Work& work) : pid_(fork()) {
    if (pid_ != 0) return;
    work();
    _exit(0);
  }
  ~Forked() { kill_it(); }
  void kill_it() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(std::exchange(pid_, -1), nullptr, 0);
  }
  void signal(int number) const { ASSERT_EQ(kill(pid_, number), 0); }
  void await_stop() const {
    int status = 0;
    ASSERT_EQ(waitpid(pid_, &status, WUNTRACED), pid_);
    ASSERT_TRUE(WIFSTOPPED(status));
  }
  /// Its exit code.
  int join() {
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_;
};

}  // namespace penstock
