// SPDX-License-Identifier: Apache-2.0
// Producers and consumers in processes of their own that are killed, stopped, started anew or run
// wild, while a good producer sends: what was sent arrives once or is known to be lost.
#include "tests/transport/feed.h"
#include "tests/transport/peer.h"
#include "tests/transport/raw_producer.h"
#include "tests/transport/tcp.h"

namespace penstock::transport {
namespace {

class ZmqProcessFaults : public ZmqConsume {
 protected:
  static constexpr std::int32_t kGood = 40;
};

/// A proxy lets two messages and a half through, and then the producer is killed: what was not
/// whole never was.
TEST_F(ZmqProcessFaults, AProducerThatIsKilledInTheMiddleOfAMessage) {
  for (const Format format : {Format::zmq_op, Format::numpy_frames, Format::framed}) {
    SCOPED_TRACE(name_of(format));
    Feed feed("hwm=2,endpoint=tcp://127.0.0.1:*", kLarge);
    CuttingProxy proxy(port_of(feed.address()), 300'000);
    Peer victim({"produce", "tcp://127.0.0.1:" + std::to_string(proxy.port()), name_of(format), "1",
                 "1000"});
    Ledger accounts;
    feed.read(2, accounts);
    ASSERT_TRUE(await([&] { return proxy.has_cut(); }));
    ASSERT_TRUE(victim.await_lines(3));  // of the third a half is with the consumer
    EXPECT_LT(victim.lines(), 1000U);
    victim.kill_and_wait();
    proxy.end();
    const GoodStream good(feed.address(), kGood);
    feed.read(kGood, accounts);
    feed.stop();
    accounts.expect_once(0, 0, kGood);
    accounts.expect_once(1, 0, 2);
    EXPECT_EQ(feed.counter("messages_received"), kGood + 2);
    EXPECT_EQ(feed.counter("messages_rejected"), 0) << feed.all_notes();
  }
}

/// libzmq sends no frame of a message before it has all.
TEST_F(ZmqProcessFaults, AProducerThatIsKilledBetweenTwoFrames) {
  Feed feed("hwm=2,endpoint=" + endpoint(), kLarge);
  Peer victim({"half", endpoint()});
  ASSERT_TRUE(victim.await_lines(1));
  const GoodStream good(endpoint(), kGood);
  Ledger accounts;
  feed.read(10, accounts);
  victim.kill_and_wait();
  feed.read(kGood - 10, accounts);
  feed.stop();
  accounts.expect_once(0, 0, kGood);
  EXPECT_EQ(feed.counter("messages_received"), kGood);
}

TEST_F(ZmqProcessFaults, AProducerThatIsStoppedAndGoesOnDelaysNoOtherAndLosesNothing) {
  Feed feed("hwm=2,endpoint=" + endpoint(), kLarge);
  Peer sleeper({"produce", endpoint(), "msgpack", "1", "100"});
  Ledger accounts;
  feed.read(5, accounts);
  sleeper.signal(SIGSTOP);
  ASSERT_TRUE(sleeper.await_stop());
  ASSERT_LT(sleeper.lines(), 100U) << "it had sent all before it was stopped";
  const GoodStream good(endpoint(), kGood);
  while (accounts.total_of(0) < kGood) feed.read(1, accounts);
  EXPECT_LT(accounts.total_of(1), 100);
  sleeper.signal(SIGCONT);
  feed.read(kGood + 100 - accounts.total(), accounts);
  feed.stop();
  accounts.expect_once(0, 0, kGood);
  accounts.expect_once(1, 0, 100);
  EXPECT_EQ(feed.counter("messages_received"), kGood + 100);
}

TEST_F(ZmqProcessFaults, AProducerThatComesBackWithAnotherShape) {
  Feed feed("hwm=2,endpoint=" + endpoint(), kLarge);
  Ledger accounts;
  const GoodStream good(endpoint(), kGood);
  Peer first({"produce", endpoint(), "zmq_op", "1", "5"});
  while (accounts.total_of(1) < 5) feed.read(1, accounts);
  first.kill_and_wait();
  Peer shrunk({"shrunk", endpoint(), "zmq_op", "1", "5"});
  ASSERT_TRUE(shrunk.await_lines(1));
  feed.read(kGood + 5 - accounts.total(), accounts);
  ASSERT_TRUE(await([&] { return feed.counter("messages_rejected") == 5; })) << feed.all_notes();
  Peer third({"produce", endpoint(), "zmq_op", "2", "5"});
  feed.read(5, accounts);
  feed.stop();
  accounts.expect_once(0, 0, kGood);
  accounts.expect_once(1, 0, 5);
  accounts.expect_once(2, 0, 5);
  EXPECT_EQ(feed.counter("messages_received"), kGood + 15);
  for (const std::string& note : feed.notes()) {
    if (!says(note, " refused: ")) continue;
    EXPECT_TRUE(says(note, shrunk.process()) && says(note, "[4,99,100,3]")) << note;
  }
}

TEST_F(ZmqProcessFaults, AProducerThatFloodsIsCutOffEachTimeItComesBack) {
  Feed feed("hwm=2,endpoint=" + endpoint(), kLarge);
  Peer flooding({"flood", endpoint()});
  ASSERT_TRUE(flooding.await_lines(1));
  ASSERT_TRUE(await([&] { return feed.counter("producers_cut_off") >= 2; }));
  const GoodStream good(endpoint(), kGood);
  Ledger accounts;
  feed.read(kGood, accounts);
  flooding.kill_and_wait();
  feed.stop();
  accounts.expect_once(0, 0, kGood);
  EXPECT_EQ(feed.counter("images_received"), kGood * kLarge.images);
  EXPECT_EQ(feed.counter("messages_received"), kGood + feed.counter("messages_rejected"));
  EXPECT_TRUE(says(feed.all_notes(), "cut off " + flooding.process()));
}

/// What it had not read is lost, and nothing else: its successor, at the socket file that it left,
/// goes on in order to the end.
TEST_F(ZmqProcessFaults, AConsumerThatIsKilledWithMessagesInFlightAndItsSuccessor) {
  constexpr std::int32_t kSent = 100, kRead = 10;
  Peer victim({"consume", "hwm=2,endpoint=" + endpoint(), std::to_string(kRead)});
  const GoodStream sending(endpoint(), kSent, Format::framed);
  ASSERT_TRUE(victim.await_lines(kRead));
  victim.kill_and_wait();
  EXPECT_TRUE(std::filesystem::exists(folder_ / "feed"));
  Feed successor("hwm=2,endpoint=" + endpoint(), kLarge);
  Ledger accounts;
  for (const BatchName& name : victim.batches()) accounts.arrived(name);
  EXPECT_EQ(accounts.total(), kRead);
  accounts.expect_once(0, 0, kRead);
  std::optional<BatchName> last;
  std::int32_t first = -1;
  while (!last || last->batch < kSent - 1) {
    last = successor.next();
    ASSERT_TRUE(last);
    if (first < 0) first = last->batch;
    accounts.arrived(*last);
  }
  successor.stop();
  EXPECT_GE(first, kRead);
  EXPECT_LT(first, kSent - 1) << "no message came to wait for the successor";
  EXPECT_EQ(accounts.disorders(), 0);
  accounts.expect_once(0, first, kSent);
  const std::int32_t lost = first - kRead;
  EXPECT_EQ(accounts.total() + lost, kSent);
  EXPECT_EQ(successor.counter("messages_rejected"), 0) << successor.all_notes();
  // Its accounts have what its predecessor read and what was lost as missing.
  EXPECT_EQ(successor.counter("batches_missing"), first);
  EXPECT_EQ(successor.counter("images_sent"), kSent * kLarge.images);
}

}  // namespace
}  // namespace penstock::transport
