// SPDX-License-Identifier: Apache-2.0
// Options, endpoints and keys; and calls that are wrong.
#include <array>
#include <limits>

#include "tests/feeders/remote/producer/producer_fixture.h"
#include "tests/support/patience.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

class ProducerArgumentsTest : public ProducerTest {
 protected:
  /// Why no producer is opened with such options.
  std::string refusal(const ProducerOptions& options) { return refusal(endpoint_, options); }
  static std::string refusal(const std::string& endpoint, const ProducerOptions& options = {}) {
    return thrown_by<std::runtime_error>([&] { Producer(endpoint, options); });
  }
};

TEST_F(ProducerArgumentsTest, OptionsAreChecked) {
  ProducerOptions options;
  options.hwm = 0;
  EXPECT_TRUE(says(refusal(options), "hwm is 0; expected 1 or more"));
  options = {};
  options.timeout_ms = 0;
  EXPECT_TRUE(says(refusal(options), "timeout_ms is 0; expected 1 or more"));
  options = {};
  options.size = 8;
  EXPECT_TRUE(says(refusal(options), "penstock_producer_options_init()"));
  EXPECT_TRUE(says(refusal("nowhere"), "expected ipc://PATH, ipc://@NAME or tcp://HOST:PORT"));
}

TEST_F(ProducerArgumentsTest, ATextOfAnErrorFitsIntoWhatThereIs) {
  std::array<char, 8> error{};
  error.fill('x');
  EXPECT_EQ(penstock_producer_open("nowhere", nullptr, error.data(), 7), nullptr);
  EXPECT_STREQ(error.data(), "cannot");
  EXPECT_EQ(error[7], 'x');
  EXPECT_EQ(penstock_producer_open(nullptr, nullptr, nullptr, 0), nullptr);
}

TEST_F(ProducerArgumentsTest, CallsAreChecked) {
  penstock_producer* const producer = penstock_producer_open("ipc://@x", nullptr, nullptr, 0);
  ASSERT_NE(producer, nullptr);
  const auto pixels = pixels_of(0);
  const auto send = [&](const void* from, std::uint32_t images, std::uint32_t height,
                        std::uint32_t width, std::uint32_t channels) {
    return penstock_producer_send_pixels(producer, from, images, height, width, channels,
                                         labels_.data());
  };
  constexpr std::uint32_t kMost = std::numeric_limits<std::uint32_t>::max();
  EXPECT_EQ(send(nullptr, 2, 3, 4, 3), PENSTOCK_PRODUCER_INVALID);
  EXPECT_EQ(send(pixels.data(), 0, 3, 4, 3), PENSTOCK_PRODUCER_INVALID);
  EXPECT_EQ(send(pixels.data(), 2, 3, 4, 1), PENSTOCK_PRODUCER_INVALID);
  EXPECT_EQ(send(pixels.data(), kMost, kMost, 1, 3), PENSTOCK_PRODUCER_INVALID);
  EXPECT_EQ(send(pixels.data(), kMost, kMost, kMost, 3), PENSTOCK_PRODUCER_INVALID);
  EXPECT_TRUE(says(penstock_producer_error(producer), "expected images x height x width x 3"));
  EXPECT_EQ(penstock_producer_lend_pixels(producer, pixels.data(), 2, 3, 4, 3, labels_.data(),
                                          nullptr, nullptr),
            PENSTOCK_PRODUCER_INVALID);
  const std::array<const void*, 2> files{pixels.data(), pixels.data()};
  const std::array<std::size_t, 2> lengths{3, 0};
  EXPECT_EQ(penstock_producer_send_jpegs(producer, files.data(), lengths.data(), 2, labels_.data()),
            PENSTOCK_PRODUCER_INVALID);
  EXPECT_TRUE(says(penstock_producer_error(producer), "a JPEG file of 0 bytes"));
  EXPECT_EQ(penstock_producer_send_jpegs(producer, files.data(), lengths.data(), 0, labels_.data()),
            PENSTOCK_PRODUCER_INVALID);
  EXPECT_EQ(penstock_producer_end(nullptr), PENSTOCK_PRODUCER_INVALID);
  EXPECT_TRUE(says(penstock_producer_error(nullptr), "penstock_producer_open() failed"));
  penstock_producer_close(producer, 0, nullptr);
}

TEST_F(ProducerArgumentsTest, NothingFollowsAnEnd) {
  Puller puller(endpoint_);
  Producer producer(endpoint_);
  producer.end();
  EXPECT_EQ(kind_of(puller.next()), kEnd);
  EXPECT_THROW(producer.end(), std::runtime_error);
  EXPECT_THROW(producer.send_pixels(pixels_of(0).data(), kShape, labels_.data()),
               std::runtime_error);
  EXPECT_THROW(producer.send_jpegs({"x"}, labels_), std::runtime_error);
}

TEST_F(ProducerArgumentsTest, BatchesOfAProducerAreAlike) {
  Puller puller(endpoint_);
  Producer producer(endpoint_);
  const std::vector<std::uint8_t> pixels(100'000);
  producer.send_pixels(pixels.data(), kShape, labels_.data());
  for (const BatchShape& other : {BatchShape{.images = 1, .height = 3, .width = 4},
                                  BatchShape{.images = 2, .height = 4, .width = 3}}) {
    const std::string text = thrown_by<std::runtime_error>(
        [&] { producer.send_pixels(pixels.data(), other, labels_.data()); });
    EXPECT_TRUE(says(text, "after one of 2 x 3 x 4 x 3 bytes"));
  }
  EXPECT_THROW(producer.send_jpegs({"a", "b"}, labels_), std::runtime_error);
  producer.send_pixels(pixels.data(), kShape, labels_.data());
  puller.next_batch();
  EXPECT_EQ(sequence_of(puller.next_batch()), 1U);

  Producer files(endpoint_);
  files.send_jpegs({"a", "b"}, labels_);
  files.send_jpegs({"a"}, {5});
  puller.next_batch();
  EXPECT_EQ(sequence_of(puller.next_batch()), 1U);
}

TEST_F(ProducerArgumentsTest, AProducerMayBind) {
  ProducerOptions options;
  options.bind = 1;
  Producer producer("tcp://127.0.0.1:*", options);
  Puller puller(producer.address(), false);
  producer.send_pixels(pixels_of(0).data(), kShape, labels_.data());
  EXPECT_EQ(puller.next_batch()[1], text_of(pixels_of(0)));
  Producer moved = std::move(producer);
  EXPECT_EQ(moved.close(), 0);
}

TEST_F(ProducerArgumentsTest, NoSocketFileIsTakenFromALiveProcessOrLeftBehind) {
  ProducerOptions options;
  options.bind = 1;
  {
    Producer producer(endpoint_, options);
    EXPECT_TRUE(says(refusal(options), "in use"));
    EXPECT_FALSE(folder_.empty());
  }
  EXPECT_TRUE(folder_.empty());
}

/// A public key and a secret one.
std::array<std::string, 2> key_pair() {
  std::array<char, 41> open{}, secret{};
  zmq_curve_keypair(open.data(), secret.data());
  return {open.data(), secret.data()};
}

TEST_F(ProducerArgumentsTest, KeysLetAProducerIn) {
  if (zmq_has("curve") == 0) GTEST_SKIP() << "libzmq was built without CURVE";
  const auto server = key_pair(), own = key_pair(), other = key_pair();
  Puller puller("");
  puller.socket().set(zmq::sockopt::curve_server, true);
  puller.socket().set(zmq::sockopt::curve_secretkey, server[1]);
  puller.socket().bind(endpoint_);
  ProducerOptions options;
  options.server_key = server[0].c_str();
  options.public_key = own[0].c_str();
  options.secret_key = own[1].c_str();
  Producer producer(endpoint_, options);
  producer.send_pixels(pixels_of(0).data(), kShape, labels_.data());
  EXPECT_EQ(puller.next_batch()[1], text_of(pixels_of(0)));

  options.server_key = other[0].c_str();
  std::string text;
  EXPECT_TRUE(with_patience([&](std::chrono::milliseconds time) {
    options.timeout_ms = time.count();
    Producer stranger(endpoint_, options);
    text = thrown_by<std::runtime_error>(
        [&] { stranger.send_pixels(pixels_of(0).data(), kShape, labels_.data()); });
    return says(text, "handshakes failed");
  })) << text;
  EXPECT_TRUE(says(text, "server_key"));
}

TEST_F(ProducerArgumentsTest, KeysAreChecked) {
  if (zmq_has("curve") == 0) GTEST_SKIP() << "libzmq was built without CURVE";
  const auto server = key_pair(), own = key_pair();
  ProducerOptions options;
  options.server_key = server[0].c_str();
  EXPECT_TRUE(says(refusal(options), "public_key is not a key"));
  options.public_key = server[0].c_str();
  options.secret_key = own[1].c_str();
  EXPECT_TRUE(says(refusal(options), "public_key and secret_key are not a pair"));
  options.public_key = own[0].c_str();
  options.server_key = "short";
  EXPECT_TRUE(says(refusal(options), "server_key is not a key"));
}

}  // namespace
}  // namespace penstock
