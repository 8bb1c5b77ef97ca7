// SPDX-License-Identifier: Apache-2.0
// Each way in which a framed message can be wrong, and what becomes of the number of a producer
// that starts anew: the rest goes on, and what producers sent is what was received, refused or is
// missing.
#include <algorithm>

#include "tests/transport/feed.h"
#include "tests/transport/raw_producer.h"

namespace penstock::transport {
namespace {

/// Changes fields or frames before payload and checksum are filled in, or the message behind that.
struct FramedFault {
  const char* name;
  void (*fields)(FramedFields&) = [](FramedFields&) {};
  void (*frames)(Message&) = [](Message&) {};
  void (*message)(Message&) = [](Message&) {};
};
void PrintTo(const FramedFault& fault, std::ostream* out) { *out << fault.name; }

constexpr FramedFault kFaults[] = {
    {"another_version", [](FramedFields& fields) { fields.version = 2; }},
    {"no_such_kind", [](FramedFields& fields) { fields.kind = 99; }},
    {"a_kind_for_producers", [](FramedFields& fields) { fields.kind = 17; }},
    {"no_such_encoding", [](FramedFields& fields) { fields.encoding = 9; }},
    {"no_encoding", [](FramedFields& fields) { fields.encoding = 0; }},
    {"no_such_flag", [](FramedFields& fields) { fields.flags = 0x8000; }},
    {"shared_memory_over_push", [](FramedFields& fields) { fields.flags = 2; }},
    {"no_producer", [](FramedFields& fields) { fields.producer = 0; }},
    {"a_reserved_byte", [](FramedFields& fields) { fields.reserved = 1; }},
    {.name = "big_endian",
     .message =
         [](Message& message) { std::reverse(message[0].begin() + 8, message[0].begin() + 10); }},
    {"one_image_more", [](FramedFields& fields) { ++fields.images; },
     [](Message& frames) {
       frames[0].resize(frames[0].size() / 4 * 5);
       frames[1].resize(frames[1].size() / 4 * 5);
     }},
    {"more_images_than_frames_hold", [](FramedFields& fields) { fields.images = 0xffffffffU; }},
    {"height_and_width_exchanged",
     [](FramedFields& fields) { std::swap(fields.height, fields.width); }},
    {"dimensions_whose_product_wraps",
     [](FramedFields& fields) { fields.height = fields.width = fields.channels = 0xffffffffU; }},
    {.name = "float32_pixels",
     .frames = [](Message& frames) { frames[0].resize(4 * frames[0].size()); }},
    {.name = "labels_of_64_bits",
     .frames = [](Message& frames) { frames[1].resize(2 * frames[1].size()); }},
    {.name = "labels_of_the_wrong_endian",
     .frames = [](Message& frames) { reverse_each(frames[1]); }},
    {.name = "a_checksum_that_does_not_hold",
     .fields = [](FramedFields& fields) { fields.flags = 1; },
     .message = [](Message& message) { message[1][17] ^= std::byte{4}; }},
    {"a_checksum_that_nobody_announced", [](FramedFields& fields) { fields.checksum = 1; }},
    {"a_payload_that_does_not_add_up", [](FramedFields& fields) { fields.payload = 1; }},
    {.name = "truncated_header", .message = [](Message& message) { message[0].pop_back(); }},
    {.name = "a_header_alone", .message = [](Message& message) { message.resize(1); }},
    {.name = "a_frame_missing", .message = [](Message& message) { message.pop_back(); }},
    {.name = "a_frame_too_many", .message = [](Message& message) { message.emplace_back(); }},
    {.name = "truncated_pixels", .message = [](Message& message) { message[1].pop_back(); }},
    {.name = "truncated_labels", .frames = [](Message& frames) { frames[1].pop_back(); }},
    {.name = "frames_exchanged",
     .frames = [](Message& frames) { std::swap(frames[0], frames[1]); }},
};

using ZmqFramed = ZmqConsume;

class ZmqFramedFaults : public ZmqConsume, public ::testing::WithParamInterface<FramedFault> {};

TEST_P(ZmqFramedFaults, AreCountedAndNamedAndTheRestGoesOn) {
  constexpr std::int32_t kGood = 30, kEach = 6;
  Feed feed("hwm=2,endpoint=" + endpoint());
  const GoodStream good(endpoint(), kGood, Format::framed, kTiny);
  RawProducer bad(endpoint(), RawProducer::Side::connects);
  // Even numbers are good; headers count what their producer believes to have sent.
  std::uint64_t images = 0;
  std::jthread sending_bad([&] {
    for (std::int32_t batch = 0; batch <= 2 * kEach; ++batch) {
      FramedFields fields = framed_fields(kTiny, {1, batch});
      fields.images_before = images;
      Message frames{pixels_of(kTiny, {1, batch}), labels_array(kTiny, {1, batch}).data};
      if (batch % 2 == 1) {
        GetParam().fields(fields);
        GetParam().frames(frames);
      }
      images += fields.images;
      Message message = framed_message(fields, std::move(frames));
      if (batch % 2 == 1) GetParam().message(message);
      bad.send(message);
    }
  });
  Ledger accounts;
  feed.read(kGood + kEach + 1, accounts);
  sending_bad.join();
  feed.stop();
  accounts.expect_once(0, 0, kGood);
  for (std::int32_t batch = 0; batch <= 2 * kEach; batch += 2)
    EXPECT_EQ(accounts.count({1, batch}), 1);
  EXPECT_EQ(accounts.disorders(), 0);
  EXPECT_EQ(feed.counter("messages_received"), kGood + 2 * kEach + 1);
  EXPECT_EQ(feed.counter("messages_rejected"), kEach) << feed.all_notes();
  EXPECT_EQ(feed.counter("images_received"), (kGood + kEach + 1) * kTiny.images);
  EXPECT_EQ(feed.counter("images_sent"), kGood * kTiny.images + static_cast<std::int64_t>(images));
  EXPECT_EQ(feed.counter("producers_seen"), 2);
  EXPECT_TRUE(feed.adds_up());
  feed.expect_named(kEach);
}

INSTANTIATE_TEST_SUITE_P(All, ZmqFramedFaults, ::testing::ValuesIn(kFaults),
                         ::testing::PrintToStringParamName());

/// A producer that starts anew under its old number and counts from 0 is refused until it is cut
/// off; under a new number it is another producer.
TEST_F(ZmqFramed, ANumberOfAProducerIsOfOneRunAlone) {
  Feed feed("hwm=2,endpoint=" + endpoint());
  RawProducer first(endpoint(), RawProducer::Side::connects);
  for (std::int32_t batch = 0; batch < 9; ++batch) {
    first.send(message_of(Format::framed, kTiny, {0, batch}));
    EXPECT_EQ(feed.next(), (BatchName{0, batch}));
  }
  RawProducer again(endpoint(), RawProducer::Side::connects);
  for (std::int32_t batch = 0; batch < 8; ++batch) {
    again.send(message_of(Format::framed, kTiny, {0, batch}));
  }
  ASSERT_TRUE(await([&] { return feed.counter("producers_cut_off") == 1; })) << feed.all_notes();
  RawProducer anew(endpoint(), RawProducer::Side::connects);
  anew.send(message_of(Format::framed, kTiny, {1, 0}));
  EXPECT_EQ(feed.next(), (BatchName{1, 0}));
  feed.stop();
  EXPECT_EQ(feed.counter("batches_duplicate"), 8);
  EXPECT_EQ(feed.counter("producers_seen"), 2);
  EXPECT_EQ(feed.counter("images_sent"), 10 * kTiny.images);
  EXPECT_TRUE(feed.adds_up());
}

}  // namespace
}  // namespace penstock::transport
