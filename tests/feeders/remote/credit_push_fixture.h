// SPDX-License-Identifier: Apache-2.0
// A ring that is sent by credit.
#pragma once

#include <chrono>
#include <string>
#include <thread>

#include "feeders/remote/credit/credit_push.h"
#include "feeders/remote/receive/shared_frame_memory.h"
#include "tests/feeders/remote/credit_fixture.h"

namespace penstock {

inline constexpr remote::PushPlan kForEver{.timeout = std::chrono::seconds(20)};

/// A ring, sent by credit.
class CreditServer {
 public:
  CreditServer(const std::string& endpoint, bool bind, bool shared, std::size_t slots = 4,
               const BatchSpec& spec = kSmall)
      : shared_(host_, spec.bytes(), slots),
        memory_(shared ? static_cast<Device&>(shared_) : host_),
        ring_(spec, slots, memory_, MemoryKind::pinned, std::span(&reader_, 1), Order::relaxed,
              clock_),
        push_(ring_, shared ? &shared_.pool() : nullptr, net::parse_endpoint(endpoint),
              {.role = remote::ZmqSocketOptions::Role::dealer, .bind = bind}, clock_, probe_) {}
  ~CreditServer() { stop(); }

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
  void start(const remote::PushPlan& plan = kForEver) {
    sending_ = std::jthread([this, plan](const std::stop_token& stop) {
      try {
        push_.run(plan, stop);
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
  remote::CreditPush& push() { return push_; }
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
  remote::SharedFrameMemory shared_;
  Device& memory_;
  Device* const reader_ = &host_;
  BatchRing ring_;
  remote::CreditPush push_;
  std::exception_ptr failure_;
  std::jthread feeding_, sending_;
};

class CreditPushTest : public ::testing::Test {
 protected:
  TempFolder folder_;
  const std::string endpoint_ = "ipc://" + folder_.path().string() + "/feed";
};

}  // namespace penstock
