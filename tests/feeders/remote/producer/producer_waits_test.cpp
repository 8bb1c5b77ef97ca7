// SPDX-License-Identifier: Apache-2.0
// Consumers that are slow, late, gone, or were never there; and who holds memory meanwhile.
#include <atomic>
#include <functional>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

#include "tests/feeders/remote/producer/producer_fixture.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

/// More than kernels keep of a connection.
constexpr BatchShape kLarge{.images = 2, .height = 512, .width = 1024, .channels = 3};
constexpr std::size_t kLargeBytes = std::size_t{2} * 512 * 1024 * 3;

class ProducerWaitsTest : public ProducerTest {
 protected:
  /// Until libzmq has found the consumer.
  static void send_when_found(const std::function<void()>& send) {
    while (true) {
      try {
        return send();
      } catch (const std::runtime_error&) {
      }
    }
  }
  static ProducerOptions timeout(std::int64_t milliseconds, int hwm = 4) {
    ProducerOptions options;
    options.timeout_ms = milliseconds;
    options.hwm = hwm;
    return options;
  }
};

TEST_F(ProducerWaitsTest, AnUnreadBatchIsNoLoss) {
  Producer producer(endpoint_, timeout(100));
  const auto pixels = pixels_of(0);
  const auto send = [&] { producer.send_pixels(pixels.data(), kShape, labels_.data()); };
  const std::string text = thrown_by<std::runtime_error>(send);
  EXPECT_TRUE(says(text, "no consumer took a batch at " + endpoint_ + " within 0.1 s"));
  EXPECT_TRUE(says(text, "no consumer ever connected"));
  EXPECT_TRUE(says(text, "`penstock run --fake-location zmq-consume:endpoint=" + endpoint_ + "`"));
  Puller puller(endpoint_);
  send_when_found(send);
  const Frames hello = puller.next(), batch = puller.next();
  EXPECT_EQ(kind_of(hello), kHello);
  EXPECT_EQ(sequence_of(batch), 0U);
}

TEST_F(ProducerWaitsTest, ABatchThatIsSentAgainWasReadyAtTheFirstTry) {
  Producer producer(endpoint_, timeout(100));
  const auto pixels = pixels_of(0);
  const auto send = [&] { producer.send_pixels(pixels.data(), kShape, labels_.data()); };
  producer.begin();
  EXPECT_THROW(send(), std::runtime_error);
  Puller puller(endpoint_);
  send_when_found(send);
  producer.begin();
  send_when_found(send);
  const auto waited_ns = [](const Frames& batch) { return u64(batch[0], 48) - u64(batch[0], 40); };
  EXPECT_GE(waited_ns(puller.next_batch()), 100'000'000U);
  EXPECT_LT(waited_ns(puller.next_batch()), 100'000'000U);
}

TEST_F(ProducerWaitsTest, NoMoreBatchesWaitThanTheHwmSays) {
  Puller puller(endpoint_, true, 1);
  Producer producer(endpoint_, timeout(2000, 2));
  const auto pixels = pixels_of(0, kLargeBytes);
  std::uint64_t sent = 0;
  const auto send = [&] { producer.send_pixels(pixels.data(), kLarge, labels_.data()); };
  EXPECT_THROW(for (; sent < 100; ++sent) send(), std::runtime_error);
  // Two here with the hello, one on its way, and what libzmq takes in at the other end.
  EXPECT_GE(sent, 1U);
  EXPECT_LE(sent, 6U);
  for (std::uint64_t batch = 0; batch < sent; ++batch) {
    EXPECT_EQ(sequence_of(puller.next_batch()), batch);
  }
}

TEST_F(ProducerWaitsTest, ClosingWaitsForASlowConsumer) {
  constexpr std::uint64_t kBatches = 40;
  Puller puller(endpoint_, true, 1);
  std::jthread sending([&] {
    Producer producer(endpoint_, timeout(20'000));
    const auto pixels = pixels_of(0, std::size_t{2} * 64 * 64 * 3);
    const BatchShape shape{.images = 2, .height = 64, .width = 64, .channels = 3};
    for (std::uint64_t batch = 0; batch < kBatches; ++batch) {
      producer.send_pixels(pixels.data(), shape, labels_.data());
    }
    producer.end();
    EXPECT_EQ(producer.close(20'000), 0);
  });
  for (std::uint64_t batch = 0; batch < kBatches; ++batch) {
    EXPECT_EQ(sequence_of(puller.next_batch()), batch);
    std::this_thread::yield();
  }
  const Frames end = puller.next();
  EXPECT_EQ(kind_of(end), kEnd);
  EXPECT_EQ(sequence_of(end), kBatches);
}

TEST_F(ProducerWaitsTest, ClosingSaysWhatDidNotArrive) {
  Puller puller(endpoint_, true, 1);
  Producer producer(endpoint_, timeout(20'000));
  const auto pixels = pixels_of(0, kLargeBytes);
  for (int batch = 0; batch < 3; ++batch) {
    producer.send_pixels(pixels.data(), kLarge, labels_.data());
  }
  const std::int64_t undelivered = producer.close(0);
  EXPECT_GE(undelivered, 1);
  EXPECT_LE(undelivered, 3);
}

TEST_F(ProducerWaitsTest, ClosingInCSaysItInItsResult) {
  char error[256];
  penstock_producer* producer = penstock_producer_open(endpoint_.c_str(), nullptr, error, 256);
  ASSERT_NE(producer, nullptr) << error;
  std::int64_t undelivered = -1;
  EXPECT_EQ(penstock_producer_close(producer, 0, &undelivered), PENSTOCK_PRODUCER_OK);
  EXPECT_EQ(undelivered, 0);
  EXPECT_EQ(penstock_producer_close(nullptr, 0, nullptr), PENSTOCK_PRODUCER_OK);

  Puller puller(endpoint_, true, 1);
  producer = penstock_producer_open(endpoint_.c_str(), nullptr, error, 256);
  const auto pixels = pixels_of(0, kLargeBytes);
  for (int batch = 0; batch < 3; ++batch) {
    EXPECT_EQ(penstock_producer_send_pixels(producer, pixels.data(), kLarge.images, kLarge.height,
                                            kLarge.width, 3, labels_.data()),
              PENSTOCK_PRODUCER_OK);
  }
  EXPECT_EQ(penstock_producer_close(producer, 0, &undelivered), PENSTOCK_PRODUCER_TIMEOUT);
}

/// Pixels that say when they are let go.
struct Lent {
  explicit Lent(std::atomic<int>& count) : released(count) {}
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;
  ~Lent() { ++released; }
  std::atomic<int>& released;
  std::vector<std::uint8_t> pixels = std::vector<std::uint8_t>(kLargeBytes, 42);
};

TEST_F(ProducerWaitsTest, LentPixelsAreReleasedOnceEach) {
  std::atomic<int> released = 0;
  Puller puller(endpoint_);
  Producer producer(endpoint_);
  for (int batch = 0; batch < 3; ++batch) {
    auto lent = std::make_shared<Lent>(released);
    const void* const pixels = lent->pixels.data();
    producer.lend_pixels(std::move(lent), pixels, kLarge, labels_.data());
  }
  for (int batch = 0; batch < 3; ++batch) {
    EXPECT_EQ(puller.next_batch()[1], std::string(kLargeBytes, 42));
  }
  EXPECT_EQ(producer.close(), 0);
  EXPECT_EQ(released, 3);
}

TEST_F(ProducerWaitsTest, LentPixelsThatWereDroppedAreReleasedToo) {
  std::atomic<int> released = 0;
  Puller puller(endpoint_, true, 1);
  {
    Producer producer(endpoint_, timeout(20'000));
    for (int batch = 0; batch < 3; ++batch) {
      auto lent = std::make_shared<Lent>(released);
      const void* const pixels = lent->pixels.data();
      producer.lend_pixels(std::move(lent), pixels, kLarge, labels_.data());
    }
    EXPECT_LT(released, 3);
    producer.close(0);
  }
  EXPECT_EQ(released, 3);
}

TEST_F(ProducerWaitsTest, UnreadLentPixelsStayWithTheCaller) {
  ProducerOptions options = timeout(50);
  char error[256];
  penstock_producer* producer = penstock_producer_open(endpoint_.c_str(), &options, error, 256);
  const auto pixels = pixels_of(0);
  int released = 0;
  EXPECT_EQ(penstock_producer_lend_pixels(
                producer, pixels.data(), 2, 3, 4, 3, labels_.data(),
                [](void* hint) { ++*static_cast<int*>(hint); }, &released),
            PENSTOCK_PRODUCER_TIMEOUT);
  EXPECT_NE(penstock_producer_error(producer), std::string());
  penstock_producer_close(producer, 0, nullptr);
  EXPECT_EQ(released, 0);
}

TEST_F(ProducerWaitsTest, AConsumerThatWentAwayIsNamed) {
  Producer producer(endpoint_, timeout(300));
  const auto pixels = pixels_of(0);
  const auto send = [&] { producer.send_pixels(pixels.data(), kShape, labels_.data()); };
  {
    Puller puller(endpoint_);
    send_when_found(send);
    puller.next_batch();
  }
  const std::string text = thrown_by<std::runtime_error>([&] {
    while (true) send();
  });
  EXPECT_TRUE(says(text, "(1 consumers connected, 1 went away)"));
}

TEST_F(ProducerWaitsTest, ConsumersThatComeAndGoFindWholeMessages) {
  std::jthread sending([&](const std::stop_token& stop) {
    Producer producer(endpoint_, timeout(100));
    const auto pixels = pixels_of(0, kLargeBytes);
    while (!stop.stop_requested()) {
      try {
        producer.send_pixels(pixels.data(), kLarge, labels_.data());
      } catch (const std::runtime_error&) {
        // None is there at the moment.
      }
    }
    producer.close(0);
  });
  std::int64_t last = -1;
  for (int consumer = 0; consumer < 10; ++consumer) {
    Puller puller(endpoint_, true, 1 + consumer % 3);
    for (int batch = 0; batch < 3; ++batch) {
      const Frames message = puller.next_batch();
      ASSERT_EQ(message.size(), 3U);
      EXPECT_EQ(message[1].size(), kLargeBytes);
      EXPECT_EQ(message[2].size(), 8U);
      EXPECT_GT(static_cast<std::int64_t>(sequence_of(message)), last);
      last = static_cast<std::int64_t>(sequence_of(message));
    }
  }
}

TEST_F(ProducerWaitsTest, BothEndsMayCloseInTheMidstOfAMessage) {
  const auto pixels = pixels_of(0, kLargeBytes);
  for (int round = 0; round < 100; ++round) {
    std::optional<Puller> puller(std::in_place, endpoint_, true, 1);
    Producer producer(endpoint_, timeout(20'000));
    producer.send_pixels(pixels.data(), kLarge, labels_.data());
    puller->next();  // the hello: the batch is under way
    const std::jthread closing([&] { producer.close(0); });
    puller.reset();
  }
}

}  // namespace
}  // namespace penstock
