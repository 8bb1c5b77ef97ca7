// SPDX-License-Identifier: Apache-2.0
// Producers and consumers that connect, leave and return during the transfer.
#include "feeders/remote/send/zmq_push.h"
#include "tests/feeders/remote/zmq_consume_fixture.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

/// Batches with different numbers.
constexpr std::uint64_t kNumbers = 25;
constexpr std::int64_t kHwm = 2;

/// A producer like `penstock serve`: batches 0 to 24, repeatedly.
class Server {
 public:
  Server(const std::string& endpoint, bool bind, BatchSpec spec = kSmall)
      : spec_(spec),
        ring_(spec, kHwm + 2, memory_, MemoryKind::pinned, std::span(&reader_, 1), Order::relaxed,
              clock_),
        push_(ring_, net::parse_endpoint(endpoint),
              {.role = remote::ZmqSocketOptions::Role::push, .bind = bind, .hwm = kHwm}, clock_,
              probe_) {}

  /// Sends this many batches; 0: until stopped. Unless stopped, all of them have been received on
  /// return.
  void run(std::int64_t batches, const std::stop_token& stop = {}) {
    const std::jthread feeding([&](const std::stop_token& end) {
      for (std::uint64_t i = 0; WriteLease lease = ring_.acquire(end); ++i) {
        lease.await();
        fill_closed_form(lease.batch(), spec_, i % kNumbers);
        std::move(lease).publish();
      }
    });
    push_.run({.batches = batches, .timeout = 20s}, stop);
  }

 private:
  const BatchSpec spec_;
  SteadyClock clock_;
  Probe probe_;
  HostDevice host_{clock_};
  remote::FrameMemory memory_{host_};
  Device* const reader_ = &memory_;
  BatchRing ring_;
  remote::ZmqPush push_;
};

/// The parameter: do consumers bind?
class ZmqChurn : public ZmqConsume, public ::testing::WithParamInterface<bool> {
 protected:
  std::string ends() const {
    return "endpoint=" + endpoint() + ",hwm=" + std::to_string(kHwm) +
           (GetParam() ? "" : ",bind=false");
  }
};

INSTANTIATE_TEST_SUITE_P(Binds, ZmqChurn, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "Consumer" : "Producer"; });

TEST_P(ZmqChurn, ProducersThatComeAndGoLoseNothing) {
  constexpr int kProducers = 4;
  std::string text;
  EXPECT_TRUE(with_patience(
      [&](std::chrono::milliseconds timeout) {
        Consumer consumer(ends(), timeout);
        consumer.start();
        const std::jthread producing([&](const std::stop_token& stop) {
          for (int i = 0; i < kProducers; ++i) Server(endpoint(), !GetParam()).run(kNumbers, stop);
        });
        for (std::uint64_t i = 0; i < kNumbers * kProducers; ++i) {
          if (!comes(consumer, i % kNumbers)) return false;
        }
        text = thrown_by<TimeoutError>([&] { consumer.next(); });
        return contains(text, "100 messages came; 4 of 4 connections of producers have ended");
      },
      1s))
      << text;
}

TEST_P(ZmqChurn, TheNextConsumerGoesOnBehindWhatTheLastOneHeld) {
  // Larger than the kernel's buffers of a connection.
  constexpr BatchSpec kLarge{.images = 4, .image = {160, 160, 3}, .classes = 100};
  const ConsumerRing ring{.spec = kLarge};
  std::jthread producing(
      [&](const std::stop_token& stop) { Server(endpoint(), !GetParam(), kLarge).run(0, stop); });
  std::uint64_t expected = 0;
  for (int i = 0; i < 3; ++i) {
    Consumer consumer(ends(), 20s, {}, ring);
    consumer.start();
    const std::uint64_t first = consumer.next().value();
    const std::uint64_t lost = (first + kNumbers - expected) % kNumbers;
    EXPECT_LE(lost, static_cast<std::uint64_t>(consumer.outside_reserve()) + ring.slots);
    for (std::uint64_t k = 1; k < 30; ++k) ASSERT_EQ(consumer.next(), (first + k) % kNumbers);
    expected = (first + 30) % kNumbers;
  }
}

TEST_F(ZmqConsume, AProducerThatStaysIsNotDisturbedByOthersThatLeave) {
  Consumer consumer("endpoint=" + endpoint());
  consumer.start();
  std::jthread staying(
      [&](const std::stop_token& stop) { Server(endpoint(), false).run(0, stop); });
  for (int i = 0; i < 5; ++i) {
    std::jthread leaving([&] {  // without an end message, and in the middle of a transfer
      Producer producer(endpoint(), false);
      producer.abandon();
      for (int k = 0; k < 5; ++k) producer.try_send(message_of(kSmall, 0));
    });
    for (int k = 0; k < 50; ++k) ASSERT_TRUE(consumer.next().has_value());
  }
  consumer.stop();
  EXPECT_EQ(consumer.counter("messages_rejected"), 0);
}

}  // namespace
}  // namespace penstock
