// SPDX-License-Identifier: Apache-2.0
// What goes over the wire.
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "dataflow/values/crc32c.h"
#include "tests/feeders/remote/producer/producer_fixture.h"

namespace penstock {
namespace {

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::system_clock::now().time_since_epoch())
                                        .count());
}

/// Images, height, width and channels of kShape.
const std::string kShapeBytes("\x02\0\0\0\x03\0\0\0\x04\0\0\0\x03\0\0\0", 16);

TEST_F(ProducerTest, ARunIsAHelloItsBatchesAndAnEnd) {
  Puller puller(endpoint_);
  ProducerOptions options;
  options.name = "loader \"7\"\n\xc3\xa4";
  Producer producer(endpoint_, options);
  const std::uint64_t before = now_ns();
  for (std::size_t batch = 0; batch < 3; ++batch) {
    if (batch == 1) producer.begin();
    producer.send_pixels(pixels_of(batch).data(), kShape, labels_.data());
  }
  producer.end();
  const Frames hello = puller.next();
  const std::uint64_t number = u64(hello[0], 16);
  EXPECT_NE(number, 0U);
  for (std::size_t batch = 0; batch < 3; ++batch) {
    const Frames message = puller.next();
    ASSERT_EQ(message.size(), 3U);
    const std::string& header = message[0];
    ASSERT_EQ(header.size(), 96U);
    EXPECT_EQ(header.substr(0, 16), std::string("PENSTOCK\x01\0\x01\0\x01\0\0\0", 16));
    EXPECT_EQ(u64(header, 16), number);
    EXPECT_EQ(u64(header, 24), batch);
    const std::uint64_t begun = u64(header, 32), ready = u64(header, 40), sent = u64(header, 48);
    if (batch == 1) {
      EXPECT_LE(before, begun);
      EXPECT_LE(begun, ready);
    } else {
      EXPECT_EQ(begun, 0U);
    }
    EXPECT_LE(before, ready);
    EXPECT_LE(ready, sent);
    EXPECT_LE(sent, now_ns());
    EXPECT_EQ(header.substr(56, 24), kShapeBytes + std::string(8, '\0'));
    EXPECT_EQ(u64(header, 80), kBytes + 8);
    EXPECT_EQ(u64(header, 88), 2 * batch);
    EXPECT_EQ(message[1], text_of(pixels_of(batch)));
    EXPECT_EQ(message[2], std::string("\x07\0\0\0\xff\xff\xff\xff", 8));
  }
  const Frames end = puller.next();
  ASSERT_EQ(end.size(), 1U);
  EXPECT_EQ(end[0].size(), 96U);
  EXPECT_EQ(kind_of(end), kEnd);
  EXPECT_EQ(u16(end[0], 12), 0U);
  EXPECT_EQ(u64(end[0], 16), number);
  EXPECT_EQ(u64(end[0], 24), 3U);
  EXPECT_EQ(u64(end[0], 80), 0U);
  EXPECT_EQ(u64(end[0], 88), 6U);
  EXPECT_EQ(producer.close(), 0);

  ASSERT_EQ(hello.size(), 2U);
  EXPECT_EQ(kind_of(hello), kHello);
  EXPECT_EQ(u16(hello[0], 12), 1U);
  EXPECT_EQ(hello[0].substr(56, 16), kShapeBytes);
  EXPECT_EQ(u64(hello[0], 80), hello[1].size());
  const auto text = nlohmann::json::parse(hello[1]);
  EXPECT_EQ(text.at("name"), "loader \"7\"???");
  EXPECT_EQ(text.at("pid"), getpid());
  std::string boot;
  if (std::ifstream("/proc/sys/kernel/random/boot_id") >> boot) {
    EXPECT_EQ(text.at("boot"), boot);
  }
}

TEST_F(ProducerTest, JpegFilesGoOutWithTheirLengths) {
  Puller puller(endpoint_);
  Producer producer(endpoint_);
  const std::string first(300, 'a'), second = "b";
  producer.send_jpegs({first, second}, labels_);
  const Frames hello = puller.next(), message = puller.next();
  EXPECT_EQ(u16(hello[0], 12), 2U);
  ASSERT_EQ(message.size(), 4U);
  EXPECT_EQ(u16(message[0], 12), 2U);
  EXPECT_EQ(u32(message[0], 56), 2U);
  EXPECT_EQ(message[0].substr(60, 12), std::string(12, '\0'));
  EXPECT_EQ(u64(message[0], 80), 8U + 301U + 8U);
  EXPECT_EQ(message[1], std::string("\x2c\x01\0\0\x01\0\0\0", 8));
  EXPECT_EQ(message[2], first + second);
  EXPECT_EQ(message[3], std::string("\x07\0\0\0\xff\xff\xff\xff", 8));
}

TEST_F(ProducerTest, AChecksumIsTakenOverAllFramesButTheHeader) {
  Puller puller(endpoint_);
  ProducerOptions options;
  options.checksum = 1;
  Producer pixels(endpoint_, options), files(endpoint_, options);
  pixels.send_pixels(pixels_of(0).data(), kShape, labels_.data());
  files.send_jpegs({"one", "three"}, labels_);
  for (int i = 0; i < 4; ++i) {
    const Frames message = puller.next();
    std::string rest;
    for (std::size_t frame = 1; frame < message.size(); ++frame) rest += message[frame];
    EXPECT_EQ(u16(message[0], 14), 1U);
    EXPECT_EQ(u32(message[0], 72), values::crc32c_by_table(std::as_bytes(std::span(rest))));
  }
  files.end();
  EXPECT_EQ(u16(puller.next()[0], 14), 0U);  // nothing is behind it
}

TEST_F(ProducerTest, EachProducerDrawsItsOwnNumber) {
  Puller puller(endpoint_);
  Producer one(endpoint_), other(endpoint_);
  one.send_pixels(pixels_of(0).data(), kShape, labels_.data());
  other.send_pixels(pixels_of(0).data(), kShape, labels_.data());
  const Frames a = puller.next_batch(), b = puller.next_batch();
  EXPECT_NE(u64(a[0], 16), u64(b[0], 16));
}

}  // namespace
}  // namespace penstock
