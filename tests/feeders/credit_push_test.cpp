// SPDX-License-Identifier: Apache-2.0
// Both ends by credit, over the socket and through shared memory; and the sending one against bare
// consumers that go, come back, or misbehave.
#include "feeders/credit_push.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "feeders/shared_frame_memory.h"
#include "tests/feeders/credit_fixture.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

constexpr PushPlan kForEver{.timeout = 20s};

/// A ring, sent by credit.
class CreditServer {
 public:
  CreditServer(const std::string& endpoint, bool bind, bool shared, std::size_t slots = 4,
               const BatchSpec& spec = kSmall)
      : shared_(host_, spec.bytes(), slots),
        memory_(shared ? static_cast<Device&>(shared_) : host_),
        ring_(spec, slots, memory_, MemoryKind::pinned, std::span(&reader_, 1), Order::relaxed,
              clock_),
        push_(ring_, shared ? &shared_.pool() : nullptr, parse_endpoint(endpoint),
              {.role = ZmqSocketOptions::Role::dealer, .bind = bind}, clock_, probe_) {}
  ~CreditServer() { stop(); }

  /// Fills batches from `first` on, for ever or `count` of them, and then ends.
  void feed(std::uint64_t first, std::uint64_t count = 0) {
    feeding_ = std::jthread([this, first, count](const std::stop_token& stop) {
      for (std::uint64_t i = first; count == 0 || i < first + count; ++i) {
        WriteLease lease = ring_.acquire(stop);
        if (!lease) return;
        lease.await();
        fill_closed_form(lease.batch(), ring_.spec(), i % 25);  // whose labels tell its number
        std::move(lease).publish();
      }
      ring_.close();
    });
  }
  void start(const PushPlan& plan = kForEver) {
    sending_ = std::jthread([this, plan](const std::stop_token& stop) {
      try {
        push_.run(plan, stop);
      } catch (...) {
        failure_ = std::current_exception();
      }
    });
  }
  /// Waits for the end of what start() began, and rethrows what it failed with.
  void join() {
    sending_.join();
    if (failure_) std::rethrow_exception(failure_);
  }
  void stop() {
    sending_ = {};
    feeding_ = {};
  }
  CreditPush& push() { return push_; }
  BatchRing& ring() { return ring_; }
  std::int64_t counter(const std::string& name) const { return probe_.values().at(name); }
  /// Whether a counter gets there within some seconds, and not beyond.
  bool stays_at(const std::string& name, std::int64_t value) const {
    return reaches(name, value) && counter(name) == value;
  }
  bool reaches(const std::string& name, std::int64_t value) const {
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    while (counter(name) < value && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(2ms);
    }
    return counter(name) >= value;
  }

 private:
  SteadyClock clock_;
  Probe probe_;
  HostDevice host_{clock_};
  SharedFrameMemory shared_;
  Device& memory_;
  Device* const reader_ = &host_;
  BatchRing ring_;
  CreditPush push_;
  std::exception_ptr failure_;
  std::jthread feeding_, sending_;
};

class CreditPushTest : public ::testing::Test {
 protected:
  TempFolder folder_;
  const std::string endpoint_ = "ipc://" + folder_.path().string() + "/feed";
};

struct Way {
  bool shared, consumer_binds;
};
class CreditWays : public CreditPushTest, public ::testing::WithParamInterface<Way> {};

TEST_P(CreditWays, EveryBatchOfAFiniteFeederArrivesOnce) {
  const auto [shared, consumer_binds] = GetParam();
  std::optional<Consumer> consumer;
  std::optional<CreditServer> server;
  const auto consume = [&] {
    consumer.emplace("credit=3,endpoint=" + endpoint_ +
                     ",bind=" + (consumer_binds ? "true" : "false"));
    consumer->start();
  };
  if (consumer_binds) consume();
  server.emplace(endpoint_, !consumer_binds, shared);
  if (!consumer_binds) consume();
  server->feed(0, 25);
  server->start();
  for (std::uint64_t i = 0; i < 25; ++i) EXPECT_EQ(consumer->next(), i);
  server->join();
  EXPECT_EQ(server->counter("batches_sent"), 25);
  EXPECT_EQ(server->counter("images_sent"), 25 * kSmall.images);
  EXPECT_EQ(server->counter("leases_lost"), 0);
  server.reset();
  EXPECT_EQ(consumer->counter("batches_missing"), 0);
  EXPECT_EQ(consumer->counter("pools_mapped"), shared ? 1 : 0);
  EXPECT_EQ(consumer->facts().at("producer_0_clock_offset_us"), 0);  // the machine's own
}

TEST_P(CreditWays, SlotsThatAreFilledOnceKeepTheirLabels) {
  const auto [shared, consumer_binds] = GetParam();
  if (!consumer_binds) return;
  Consumer consumer("credit=2,endpoint=" + endpoint_);
  consumer.start();
  CreditServer server(endpoint_, false, shared, 3);
  std::jthread feeding([&](const std::stop_token& stop) {
    std::vector<bool> filled(3);
    while (WriteLease lease = server.ring().acquire(stop)) {
      const auto slot = static_cast<std::size_t>(lease.batch().slot);
      if (!filled[slot]) fill_closed_form(lease.batch(), kSmall, slot);
      filled[slot] = true;
      std::move(lease).publish();
    }
  });
  server.start({.batches = 30, .timeout = 20s});
  for (int i = 0; i < 30; ++i) EXPECT_LT(consumer.next().value(), 3U);
  server.join();
  EXPECT_EQ(server.counter("batches_sent"), 30);
}

TEST_P(CreditWays, AFullConsumerHoldsTheProducerUp) {
  const auto [shared, consumer_binds] = GetParam();
  if (!consumer_binds) return;
  BareConsumer consumer(endpoint_);
  CreditServer server(endpoint_, false, shared, 3);
  server.feed(0);
  server.start();
  consumer.welcome(consumer.await(FramedKind::hello));
  consumer.credit(2);
  const FramedLease first = [&] {
    const Heard heard = consumer.await(FramedKind::batch);
    EXPECT_EQ(heard.message.is_shared(), shared);
    return shared ? framed_lease(heard.message) : FramedLease{};
  }();
  EXPECT_EQ(consumer.await(FramedKind::batch).message.header.sequence, 1U);
  EXPECT_TRUE(server.stays_at("batches_sent", 2));  // not one more than the credit
  consumer.credit(2);                               // the same again
  consumer.credit(1);                               // and less, which means nothing
  consumer.credit(10);
  EXPECT_EQ(consumer.await(FramedKind::batch).message.header.sequence, 2U);
  if (shared) {
    // All three slots are lent: credit alone is no room.
    EXPECT_TRUE(server.stays_at("batches_sent", 3));
    consumer.credit(10, {first.lease, 12345, first.lease});  // unknown, and a second time
    EXPECT_EQ(consumer.await(FramedKind::batch).message.header.sequence, 3U);
    EXPECT_TRUE(server.stays_at("batches_sent", 4));
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, CreditWays,
                         ::testing::Values(Way{false, true}, Way{false, false}, Way{true, true},
                                           Way{true, false}),
                         [](const auto& test) {
                           return std::string(test.param.shared ? "Shared" : "Socket") +
                                  (test.param.consumer_binds ? "ConsumerBinds" : "ProducerBinds");
                         });

TEST_F(CreditPushTest, AConsumerThatGoesGivesItsLeasesBackAndTheNextTakesItsPlace) {
  auto first = std::make_unique<BareConsumer>(endpoint_);
  CreditServer server(endpoint_, false, true, 3);
  server.feed(0);
  server.start();
  first->welcome(first->await(FramedKind::hello));
  first->credit(8);
  for (int i = 0; i < 3; ++i) first->await(FramedKind::batch);  // every slot, never returned
  first.reset();
  ASSERT_TRUE(server.reaches("leases_lost", 3));
  Consumer second("credit=2,endpoint=" + endpoint_);
  second.start();
  for (std::uint64_t i = 3; i < 10; ++i) EXPECT_EQ(second.next(), i);
  EXPECT_EQ(second.counter("batches_missing"), 3);
}

TEST_F(CreditPushTest, ProducersTakeTurnsAndAreToldApart) {
  Consumer consumer("credit=2,endpoint=" + endpoint_);
  consumer.start();
  CreditServer shared(endpoint_, false, true), plain(endpoint_, false, false);
  shared.feed(0, 12);
  plain.feed(12, 12);
  shared.start();
  plain.start();
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 24; ++i) seen.insert(consumer.next().value());
  EXPECT_EQ(seen.size(), 24U);
  shared.join();
  plain.join();
  EXPECT_EQ(consumer.counter("producers_welcomed"), 2);
}

/// Takes batches, which next() looks at, until the consumer, which a full ring holds up, has
/// counted so many producers.
bool take_until(Consumer& consumer, const std::string& counter, std::int64_t producers) {
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  while (consumer.counter(counter) < producers && std::chrono::steady_clock::now() < deadline) {
    if (!consumer.next()) return false;
  }
  return consumer.counter(counter) == producers;
}

TEST_F(CreditPushTest, AProducerThatIsStoppedInTheMiddleLosesItsOwnAlone) {
  Consumer consumer("credit=2,endpoint=" + endpoint_);
  consumer.start();
  auto doomed = std::make_unique<CreditServer>(endpoint_, false, true);
  doomed->feed(0);
  doomed->start();
  ASSERT_TRUE(consumer.next().has_value());
  doomed.reset();
  CreditServer other(endpoint_, false, true);
  other.feed(20);
  other.start();
  // What the first left in the ring is whole: next() looks.
  while (consumer.next() < 20U) {
  }
  EXPECT_TRUE(take_until(consumer, "producers_lost", 1));
}

/// A process that does something until it is killed. Started before this one has threads.
class Doomed {
 public:
  template <typename Work>
  explicit Doomed(const Work& work) : pid_(fork()) {
    if (pid_ != 0) return;
    work();
    while (true) pause();
  }
  ~Doomed() { kill_it(); }
  void kill_it() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_;
};

TEST_F(CreditPushTest, AProducerThatIsKilledLosesItsOwnBatchesAlone) {
  const auto produce = [&] {
    CreditServer server(endpoint_, false, true);
    server.feed(0);
    server.start();
    while (true) pause();
  };
  Doomed first(produce), second(produce);
  Consumer consumer("credit=2,endpoint=" + endpoint_);
  consumer.start();
  ASSERT_TRUE(take_until(consumer, "producers_welcomed", 2));
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(consumer.next().has_value());
  first.kill_it();
  EXPECT_TRUE(take_until(consumer, "producers_lost", 1));
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(consumer.next().has_value());
  EXPECT_EQ(consumer.counter("messages_rejected"), 0);
}

TEST_F(CreditPushTest, AConsumerThatIsKilledGivesItsLeasesBack) {
  Doomed first([&] {
    BareConsumer consumer(endpoint_);
    consumer.welcome(consumer.await(FramedKind::hello));
    consumer.credit(8);
    while (true) pause();
  });
  CreditServer server(endpoint_, false, true, 3);
  server.feed(0);
  server.start();
  ASSERT_TRUE(server.stays_at("batches_sent", 3));  // every slot is out
  first.kill_it();
  ASSERT_TRUE(server.reaches("leases_lost", 3));
  Consumer second("credit=2,endpoint=" + endpoint_);
  second.start();
  for (std::uint64_t i = 3; i < 10; ++i) EXPECT_EQ(second.next(), i);
}

TEST_F(CreditPushTest, ConsumersOfOtherBatchesAreNamed) {
  Consumer consumer("credit=2,endpoint=" + endpoint_, 20s,
                    {.action = BadSamplePolicy::Action::skip});
  consumer.start();
  BatchSpec wide = kSmall;
  wide.image.width = 7;
  CreditServer server(endpoint_, false, true, 2, wide);
  server.start();
  const std::string text = thrown_by<ConfigError>([&] { server.join(); });
  EXPECT_TRUE(contains(text, "does not want these batches")) << text;
  EXPECT_TRUE(contains(text, "[4,5,7,3]; expected [4,5,6,3]")) << text;
}

TEST_F(CreditPushTest, AWelcomeToOtherBatchesIsRefused) {
  BareConsumer consumer(endpoint_);
  CreditServer server(endpoint_, false, false);
  server.start();
  BatchSpec other = kSmall;
  other.classes = 10;
  consumer.welcome(consumer.await(FramedKind::hello), other);
  const std::string text = thrown_by<ConfigError>([&] { server.join(); });
  EXPECT_TRUE(contains(text, "of 10 classes; these are 4 x 5x6x3 of 100 classes")) << text;
}

TEST_F(CreditPushTest, WhatNoConsumerSaysEndsIt) {
  BareConsumer consumer(endpoint_);
  CreditServer server(endpoint_, false, false);
  server.start();
  consumer.await(FramedKind::hello);
  consumer.send({bytes_of_text("nonsense")});
  const std::string text = thrown_by<DataError>([&] { server.join(); });
  EXPECT_TRUE(contains(text, "is no consumer by credit")) << text;
}

TEST_F(CreditPushTest, CreditsBeforeAWelcomeAndOfOthersSayNothing) {
  BareConsumer consumer(endpoint_);
  CreditServer server(endpoint_, false, false);
  server.feed(0);
  server.start();
  const Heard hello = consumer.await(FramedKind::hello);
  consumer.credit(5);
  consumer.welcome(hello);
  FramedHeader other = header_of(FramedKind::credit, consumer.producer() + 1);
  other.sequence = 5;
  consumer.send(framed_message(other, {}));
  consumer.credit(1);
  consumer.await(FramedKind::batch);
  EXPECT_TRUE(server.stays_at("batches_sent", 1));
}

TEST_F(CreditPushTest, TheConsumersClockIsKnownWithinItsBound) {
  BareConsumer consumer(endpoint_);
  CreditServer server(endpoint_, false, false);
  server.feed(0, 1);
  server.start();
  constexpr std::int64_t kAhead = 5'000'000'000;
  const Heard hello = consumer.await(FramedKind::hello);
  const std::string text = write_framed_welcome(
      {.images = 4, .height = 5, .width = 6, .channels = 3, .classes = 100, .boot = {}});
  FramedHeader header = header_of(FramedKind::welcome, consumer.producer());
  header.begun_ns = hello.message.header.sent_ns;
  header.ready_ns = header.sent_ns = wall_clock_ns() + kAhead;
  consumer.send(framed_message(header, {bytes_of_text(text)}));
  consumer.credit(1);
  consumer.await(FramedKind::batch);
  server.join();
  const std::optional<ClockBounds::Estimate> clock = server.push().clock();
  ASSERT_TRUE(clock.has_value());
  EXPECT_LE(std::abs(clock->offset_ns - static_cast<double>(kAhead)), clock->bound_ns);
}

TEST_F(CreditPushTest, NobodyIsATimeOut) {
  CreditServer server(endpoint_, true, true);
  server.feed(0);
  server.start({.timeout = 200ms});
  const std::string text = thrown_by<TimeoutError>([&] { server.join(); });
  EXPECT_TRUE(contains(text, "no consumer ever connected")) << text;
}

TEST_F(CreditPushTest, AConsumerThatKeepsItsLeasesIsATimeOut) {
  BareConsumer consumer(endpoint_);
  CreditServer server(endpoint_, false, true, 2);
  server.feed(0, 2);
  server.start({.timeout = 300ms});
  consumer.welcome(consumer.await(FramedKind::hello));
  consumer.credit(4);
  const std::string text = thrown_by<TimeoutError>([&] { server.join(); });
  EXPECT_TRUE(contains(text, "the consumer holds 2 leases")) << text;
}

TEST_F(CreditPushTest, AStopEndsTheWaitAtOnce) {
  CreditServer server(endpoint_, true, true);
  server.feed(0);
  server.start();
  const auto asked = std::chrono::steady_clock::now();
  server.stop();
  EXPECT_LT(std::chrono::steady_clock::now() - asked, 1s);
}

TEST_F(CreditPushTest, TheFeedersFailureIsRethrown) {
  CreditServer server(endpoint_, true, false);
  server.ring().fail(std::make_exception_ptr(DataError("file 7 is damaged")));
  server.start();
  EXPECT_THROW(server.join(), DataError);
}

TEST_F(CreditPushTest, TwoConsumersAreOneTooMany) {
  CreditServer server(endpoint_, true, false);
  server.feed(0);
  server.start();
  Consumer first("credit=2,bind=false,endpoint=" + endpoint_);
  Consumer second("credit=2,bind=false,endpoint=" + endpoint_);
  const std::string text = thrown_by<ConfigError>([&] { server.join(); });
  EXPECT_TRUE(contains(text, "2 consumers are connected")) << text;
}

}  // namespace
}  // namespace penstock
