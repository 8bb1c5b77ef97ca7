// SPDX-License-Identifier: Apache-2.0
// Image files by credit: a message counts as in flight until all its images are decoded.

#include <thread>

#include "dataflow/error.h"
#include "feeders/remote/wire/framed_texts.h"
#include "tests/feeders/remote/credit_fixture.h"
#include "tests/feeders/remote/zmq_encoded_fixture.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

constexpr remote::ZmqSocketOptions::Role kByCredit = remote::ZmqSocketOptions::Role::dealer;

/// A DEALER that sends image files as a test wants.
class BareFiles : public BareProducer {
 public:
  explicit BareFiles(const std::string& endpoint, std::uint64_t number = 7)
      : BareProducer(endpoint, number), number_(number) {}

  void say_hello(const remote::FramedHello& hello = bare_hello()) {
    remote::FramedHeader header = jpeg_header(8, number_);
    header.kind = remote::FramedKind::hello;
    send_hello(header, hello);
  }
  void enter(std::uint64_t credits) {
    say_hello();
    await_welcome();
    await_credit(credits);
  }
  /// A message of `good` images, with bad ones after the first.
  void send_files(int good, int bad = 0) {
    FrameList frames = batch_of(good, bad, sequence_++, images_);
    remote::FramedHeader header = *remote::read_framed_header(frames[0]);
    header.producer = number_;
    remote::write_framed_header(std::span<std::byte, remote::kFramedHeaderBytes>(frames[0]),
                                header);
    images_ += header.images;
    send(frames);
  }

 private:
  const std::uint64_t number_;
  std::uint64_t sequence_ = 0, images_ = 0;
};

class CreditEncoded : public ZmqEncoded {
 protected:
  std::int64_t count(const std::string& name) const { return probe_.values().at(name); }
  bool reaches(const std::string& name, std::int64_t value) const {
    return await([&] { return count(name) >= value; });
  }
};

/// A working consumer with a ring of three slots, which the test reads when it wants.
class Working {
 public:
  Working(std::unique_ptr<Feeder> feeder, const BatchSpec& spec, Device& device, Clock& clock)
      : reader_(&device),
        ring_(spec, 3, device, MemoryKind::host, std::span(&reader_, 1), Order::relaxed, clock),
        feeder_(std::move(feeder)),
        thread_([this](const std::stop_token& stop) { run_to_end(*feeder_, ring_, stop); }) {}
  ReadLease next() { return ring_.next(0, {}); }

 private:
  Device* const reader_;
  BatchRing ring_;
  const std::unique_ptr<Feeder> feeder_;
  std::jthread thread_;
};

TEST_F(CreditEncoded, ACreditComesBackWhenAllImagesAreDecodedAndNotBefore) {
  Working working(consumer(",encoded=true,credit=2"), spec_, device_, clock_);
  BareFiles producer(endpoint_);
  producer.enter(2);
  // Two messages are a batch and a half; the ring has room for three batches of 8.
  std::uint64_t sent = 0;
  for (; sent < 6; ++sent) {
    producer.await_credit(sent + 1);
    producer.send_files(6);
  }
  // 24 of 36 images have room, and two threads may hold images: four messages, not five.
  EXPECT_TRUE(reaches("images_decoded", 24));
  while (producer.hear_any(200ms)) {
  }
  EXPECT_EQ(producer.credit(), 6U);
  EXPECT_EQ(count("images_decoded"), 24);
  EXPECT_TRUE(working.next());  // 32 have room; 30 of them are five messages
  producer.await_credit(7);
  while (producer.hear_any(200ms)) {
  }
  EXPECT_EQ(producer.credit(), 7U);
}

TEST_F(CreditEncoded, AFullRingIsNoSilence) {
  Working working(consumer(",encoded=true,credit=2"), spec_, device_, clock_);
  BareFiles producer(endpoint_);
  producer.enter(2);
  for (std::uint64_t sent = 0; sent < 5; ++sent) {
    producer.await_credit(sent + 1);
    producer.send_files(8);
  }
  ASSERT_TRUE(reaches("images_received", 40));
  clock_.advance(1h);  // longer than the silence allowed for producers
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(working.next()) << i;
  producer.await_credit(7);  // all five are decoded
  clock_.advance(1h);        // now the silence counts
  EXPECT_THROW(static_cast<void>(working.next()), TimeoutError);
}

TEST_F(CreditEncoded, ADamagedImageIsLeftOutAndItsMessageGivesItsCreditBack) {
  Working working(consumer(",encoded=true,credit=1"), spec_, device_, clock_);
  BareFiles producer(endpoint_);
  producer.enter(1);
  producer.send_files(2, 1);
  producer.await_credit(2);
  EXPECT_EQ(count("bad_samples"), 1);
  EXPECT_EQ(count("messages_rejected"), 0);
  EXPECT_EQ(count("images_sent"), 3);
  EXPECT_TRUE(mentions(probe_.notes(), "image 1 of batch 0 of bare"));
}

TEST_F(CreditEncoded, ProducersOfPixelsAreToldWhatToChangeAndTheOtherWayRound) {
  {
    Working working(consumer(",encoded=true,credit=2"), spec_, device_, clock_);
    BareProducer pixels(endpoint_);
    pixels.send_hello();
    EXPECT_TRUE(says(pixels.hear_refusal(), "serve --encoded --credit"));
  }
  Working working(consumer(",credit=2"), spec_, device_, clock_);
  const std::string why = thrown_by<ConfigError>([&] { serve(8, "queue", kByCredit); });
  EXPECT_TRUE(says(why, "zmq-consume:encoded=true"));
}

TEST_F(CreditEncoded, MessagesOfALostProducerAreDecoded) {
  Working working(consumer(",encoded=true,credit=8,credit_together=8"), spec_, device_, clock_);
  auto first = std::make_unique<BareFiles>(endpoint_, 1);
  first->enter(8);
  for (int i = 0; i < 8; ++i) first->send_files(8);
  ASSERT_TRUE(reaches("images_received", 64));  // five of them wait for a slot
  first.reset();
  ASSERT_TRUE(reaches("producers_lost", 1));
  BareFiles second(endpoint_, 2);
  second.enter(8);
  second.send_files(8);
  for (int i = 0; i < 9; ++i) EXPECT_TRUE(working.next()) << i;
  second.await_credit(9);
}

TEST_F(CreditEncoded, TheNextConsumerGetsTheRest) {
  std::jthread serving([&] { serve(1, "queue", kByCredit); });
  {
    BareConsumer first(endpoint_);
    first.welcome(first.await(remote::FramedKind::hello), spec_);
    first.credit(3);
    for (std::uint64_t i = 0; i < 3; ++i) {
      EXPECT_EQ(first.await(remote::FramedKind::batch).message.header.sequence, i);
    }
  }
  BareConsumer second(endpoint_);
  second.welcome(second.await(remote::FramedKind::hello), spec_);
  second.credit(kFiles);
  for (std::uint64_t i = 3; i < kFiles; ++i) {
    EXPECT_EQ(second.await(remote::FramedKind::batch).message.header.sequence, i);
  }
  EXPECT_EQ(second.await(remote::FramedKind::end).message.header.sequence, std::uint64_t{kFiles});
}

TEST_F(CreditEncoded, OptionsThatDoNotFitAreRefused) {
  const auto refusal = [&](const std::string& more) {
    return thrown_by<ConfigError>([&] { consumer(",encoded=true,credit=2" + more); });
  };
  EXPECT_TRUE(says(refusal(",shared_memory=true"), "image files come in messages"));
  EXPECT_TRUE(says(refusal(",max_pool=1GiB"), "image files come in messages"));
  EXPECT_TRUE(says(refusal(",held=2"), "leave it out, or credit"));
  EXPECT_TRUE(says(refusal(",decode=raw"), "leave encoded out"));
}

}  // namespace
}  // namespace penstock
