// SPDX-License-Identifier: Apache-2.0
// zmq-consume by credit, with memory that producers share, and with faulty shares.
#include <fcntl.h>
#include <sys/mman.h>

#include "feeders/remote/wire/framed_texts.h"
#include "tests/feeders/remote/credit_fixture.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

TEST_F(CreditConsume, SharedMemoryIsCopiedOutAndItsLeasesReturned) {
  RunningConsumer consumer(options());
  Lender producer(endpoint());
  for (std::uint64_t i = 0; i < 12; ++i) {
    producer.await_credit(i + 1);
    producer.lend(i, producer.fill(i, i % 4, 100 + i));
    EXPECT_EQ(consumer.next(), i);
  }
  ASSERT_TRUE(producer.returns(12));
  for (std::uint64_t i = 0; i < 12; ++i) EXPECT_EQ(producer.returned()[i], 100 + i);
  EXPECT_EQ(consumer.counter("pools_mapped"), 1);
  EXPECT_EQ(consumer.counter("bytes_shared"), 12 * (384 + 16));  // 360 of pixels, rounded up to a
                                                                 // multiple of 64
}

TEST_F(CreditConsume, BatchesOfAPoolWhoseOwnerIsGoneAreStillRead) {
  RunningConsumer consumer(options());
  {
    Lender producer(endpoint());
    producer.lend(0, producer.fill(0, 0, 1));
    EXPECT_EQ(consumer.next(), 0U);
    producer.await_credit(2);
    producer.lend(1, producer.fill(1, 1, 2));
    ASSERT_TRUE(producer.returns(2));
  }
  EXPECT_EQ(consumer.next(), 1U);
  EXPECT_TRUE(reaches(consumer, "producers_lost", 1));
  BareProducer other(endpoint(), 8);
  other.enter(2);
  other.send_batch(5);
  EXPECT_EQ(consumer.next(), 5U);
}

TEST_F(CreditConsume, InvalidPoolsAreRefusedByName) {
  RunningConsumer consumer(options(",max_pool=16384"), 20s, kSkip);
  const auto refusal_of = [&](const remote::FramedHello& hello) {
    BareProducer producer(endpoint(), 7 + hello.pool.size());
    producer.send_hello(hello);
    return producer.hear_refusal();
  };
  remote::FramedHello hello = bare_hello({}, "@penstock-test-nobody-is-there");
  EXPECT_TRUE(says(refusal_of(hello), "cannot be reached"));
  hello.boot = "another machine";
  EXPECT_TRUE(says(refusal_of(hello), "runs on another machine"));
  const BarePool large(5);
  EXPECT_TRUE(says(refusal_of(large.hello()), "at most 16384"));
  const FileDescriptor unsealed(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), 4096), 0);
  const net::PoolListener listener(unsealed.get(), geteuid());
  hello = bare_hello({}, listener.name());
  EXPECT_TRUE(says(refusal_of(hello), "F_SEAL_SHRINK"));
  EXPECT_TRUE(reaches(consumer, "producers_refused", 4));
  EXPECT_EQ(consumer.counter("producers_welcomed"), 0);
}

TEST_F(CreditConsume, ProducersWithoutAPoolAreRefusedIfSharedMemoryIsRequired) {
  RunningConsumer consumer(options(",shared_memory=true"), 20s, kSkip);
  BareProducer plain(endpoint());
  plain.send_hello();
  EXPECT_TRUE(says(plain.hear_refusal(), "it shares no memory"));
  const Lender sharing(endpoint(), 4, 8);
}

}  // namespace
}  // namespace penstock
