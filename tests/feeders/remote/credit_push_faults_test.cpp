// SPDX-License-Identifier: Apache-2.0
// Feeding by credit while either end is stopped or killed.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/feeders/remote/credit_push_fixture.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

/// Takes batches and checks them by next(), because a full ring blocks the consumer, until the
/// consumer has counted this many producers.
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
  // Batches that the first producer left in the ring are intact: next() checks them.
  while (consumer.next() < 20U) {
  }
  EXPECT_TRUE(take_until(consumer, "producers_lost", 1));
}

/// A process that works until it is killed. Start it before this process has threads.
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
    consumer.welcome(consumer.await(remote::FramedKind::hello));
    consumer.credit(8);
    while (true) pause();
  });
  CreditServer server(endpoint_, false, true, 3);
  server.feed(0);
  server.start();
  ASSERT_TRUE(server.stays_at("batches_sent", 3));  // every slot is in use
  first.kill_it();
  ASSERT_TRUE(server.reaches("leases_lost", 3));
  Consumer second("credit=2,endpoint=" + endpoint_);
  second.start();
  for (std::uint64_t i = 3; i < 10; ++i) EXPECT_EQ(second.next(), i);
}

}  // namespace
}  // namespace penstock
