// SPDX-License-Identifier: Apache-2.0
// Messages of Penstock's format over real sockets: batches, accounts of producers, ends.
#include "feeders/remote/receive/delivery_times.h"
#include "tests/feeders/remote/credit_fixture.h"

namespace penstock {
namespace {

/// Batch `index` of producer `producer`, with the images of closed-form batch `content`.
FrameList batch_message(std::uint64_t producer, std::uint64_t index, std::uint64_t content,
                        bool with_checksum = false) {
  remote::FramedHeader header = pixels_header(kSmall, producer, index);
  header.sent_ns = remote::wall_clock_ns();
  header.ready_ns = header.sent_ns - 1000;
  header.begun_ns = header.sent_ns - 1'001'000;
  return framed_message(header, BareProducer::payload_of(content), with_checksum);
}

FrameList hello_message(std::uint64_t producer, const std::string& name) {
  remote::FramedHeader header = pixels_header(kSmall, producer);
  header.kind = remote::FramedKind::hello;
  const remote::FramedHello hello{
      .name = name, .host = "here", .pid = 4711, .boot = remote::boot_id(), .pool = {}};
  return framed_message(header, {bytes_of_text(remote::write_framed_hello(hello))});
}

TEST_F(ZmqConsume, FramedBatchesComeWholeAndTheirEndEndsTheData) {
  RunningConsumer consumer("endpoint=" + endpoint() + ",producers=1");
  Producer producer(endpoint(), false);
  std::jthread sending([&] {
    producer.send(hello_message(7, "loader"));
    for (std::uint64_t i = 0; i < 20; ++i) producer.send(batch_message(7, i, i, i % 2 == 0));
    producer.send(end_message(20, 7));
  });
  for (std::uint64_t i = 0; i < 20; ++i) EXPECT_EQ(consumer.next(), i);
  EXPECT_EQ(consumer.next(), std::nullopt);
  consumer.stop();
  EXPECT_EQ(consumer.counter("messages_received"), 22);
  EXPECT_EQ(consumer.counter("messages_rejected"), 0);
  EXPECT_EQ(consumer.counter("images_sent"), 80);
  EXPECT_EQ(consumer.counter("images_missing"), 0);
  EXPECT_EQ(consumer.counter("producers_seen"), 1);
  EXPECT_EQ(consumer.counter("producers_ended"), 1);
  EXPECT_TRUE(consumer.adds_up());
  EXPECT_TRUE(says(consumer.all_notes(), "messages have the format framed"));
  EXPECT_TRUE(says(consumer.all_notes(), "by one clock"));
  EXPECT_DOUBLE_EQ(consumer.fact("producing_median_s"), 1e-3);
  EXPECT_DOUBLE_EQ(consumer.fact("socket_wait_p99_s"), 1e-6);
  EXPECT_GE(consumer.fact("hand_off_p99_s"), consumer.fact("hand_off_median_s"));
}

TEST_F(ZmqConsume, BatchesThatAProducerSentSinceTheWindowBeganAreCountedByTheirTimes) {
  Consumer consumer("endpoint=" + endpoint() + ",producers=1");
  Producer producer(endpoint(), false);
  producer.send(hello_message(7, "loader"));
  for (std::uint64_t i = 0; i < 3; ++i)
    producer.send(batch_message(7, i, i));  // waiting in
                                            // sockets
  consumer.window_begins();
  consumer.start();
  for (std::uint64_t i = 3; i < 8; ++i) producer.send(batch_message(7, i, i));
  producer.send(end_message(8, 7));
  for (std::uint64_t i = 0; i < 8; ++i) EXPECT_EQ(consumer.next(), i);
  EXPECT_EQ(consumer.next(), std::nullopt);
  consumer.stop();
  EXPECT_EQ(consumer.fact("producer_window_batches"), 5);
  EXPECT_GT(consumer.fact("producer_window_s"), 0);
}

TEST_F(ZmqConsume, LostAndDamagedBatchesAreCountedAndNamed) {
  RunningConsumer consumer("endpoint=" + endpoint() + ",producers=2");
  Producer first(endpoint(), false), second(endpoint(), false);
  first.send(hello_message(1, "first"));
  first.send(batch_message(1, 0, 0));
  EXPECT_EQ(consumer.next(), 0U);
  first.send(batch_message(1, 0, 9));  // again
  FrameList spoilt = batch_message(1, 1, 9, true);
  spoilt[1][5] ^= std::byte{1};
  first.send(spoilt);
  first.send(batch_message(1, 4, 4));  // 2 and 3 are lost
  first.send(end_message(5, 1));
  EXPECT_EQ(consumer.next(), 4U);
  second.send(batch_message(2, 1, 11));  // batch 0 went elsewhere
  second.send(end_message(2, 2));
  EXPECT_EQ(consumer.next(), 11U);
  EXPECT_EQ(consumer.next(), std::nullopt);  // no batch follows
  consumer.stop();
  EXPECT_EQ(consumer.counter("images_sent"), 4 * 7);
  EXPECT_EQ(consumer.counter("images_received"), 4 * 3);
  EXPECT_EQ(consumer.counter("images_rejected"), 4);
  EXPECT_EQ(consumer.counter("images_missing"), 4 * 3);
  EXPECT_EQ(consumer.counter("batches_missing"), 3);
  EXPECT_EQ(consumer.counter("batches_duplicate"), 1);
  EXPECT_EQ(consumer.counter("messages_rejected"), 2);
  EXPECT_EQ(consumer.counter("producers_ended"), 2);
  EXPECT_TRUE(consumer.adds_up());
  EXPECT_TRUE(says(consumer.all_notes(), "batch 0 of first on here, pid 4711 came a second time"));
  EXPECT_TRUE(says(consumer.all_notes(),
                   "first on here, pid 4711: framed message: the checksum of batch 1"));
  EXPECT_TRUE(says(consumer.all_notes(),
                   "of 28 images that producers sent, 12 are missing: lost, or received by "
                   "another consumer; of first on here, pid 4711: 8 of 20; of producer"));
}

TEST_F(ZmqConsume, ATimeoutReportsThatAllProducersHaveEnded) {
  std::string said;
  EXPECT_TRUE(with_patience([&](std::chrono::milliseconds timeout) {
    Consumer consumer("endpoint=" + endpoint(), timeout);
    Producer producer(endpoint(), false);
    producer.send(batch_message(5, 0, 2));
    producer.send(end_message(1, 5));
    consumer.start();
    if (!comes(consumer, 2)) return false;
    said = thrown_by<TimeoutError>([&] { consumer.next(); });
    return static_cast<bool>(
        says(said, "all of them have sent their end; producers=1 ends the data after"));
  })) << said;
}

TEST_F(ZmqConsume, OtherFormatsHaveNoAccounts) {
  RunningConsumer consumer("endpoint=" + endpoint());
  Producer producer(endpoint(), false);
  producer.send(message_of(kSmall, 1));
  EXPECT_EQ(consumer.next(), 1U);
  consumer.stop();
  EXPECT_FALSE(consumer.has_counter("images_missing"));
  EXPECT_THROW(Consumer("producers=-1"), ConfigError);
}

}  // namespace
}  // namespace penstock
