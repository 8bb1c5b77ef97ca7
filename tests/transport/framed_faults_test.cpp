// SPDX-License-Identifier: Apache-2.0
// Each way in which a framed message can be wrong, and what becomes of the number of a producer
// that starts anew: the rest goes on, and what producers sent is what was received, refused or is
// missing.
#include <algorithm>

#include "tests/transport/feed.h"
#include "tests/transport/raw_producer.h"

namespace penstock::transport {
namespace {

/// Changes fields and frames before payload and checksum are filled in, or the message behind that.
struct FramedFault {
  const char* name;
  void (*before)(FramedFields&, Message&);
  void (*after)(Message&);
};
void PrintTo(const FramedFault& fault, std::ostream* out) { *out << fault.name; }

constexpr auto kNothingBefore = [](FramedFields&, Message&) {};
constexpr auto kNothingAfter = [](Message&) {};

constexpr FramedFault kFaults[] = {
    {"another_version", [](FramedFields& fields, Message&) { fields.version = 2; }, kNothingAfter},
    {"no_such_kind", [](FramedFields& fields, Message&) { fields.kind = 99; }, kNothingAfter},
    {"a_kind_for_producers", [](FramedFields& fields, Message&) { fields.kind = 17; },
     kNothingAfter},
    {"no_such_encoding", [](FramedFields& fields, Message&) { fields.encoding = 9; },
     kNothingAfter},
    {"no_encoding", [](FramedFields& fields, Message&) { fields.encoding = 0; }, kNothingAfter},
    {"no_such_flag", [](FramedFields& fields, Message&) { fields.flags = 0x8000; }, kNothingAfter},
    {"shared_memory_over_push", [](FramedFields& fields, Message&) { fields.flags = 2; },
     kNothingAfter},
    {"no_producer", [](FramedFields& fields, Message&) { fields.producer = 0; }, kNothingAfter},
    {"a_reserved_byte", [](FramedFields& fields, Message&) { fields.reserved = 1; }, kNothingAfter},
    {"big_endian", kNothingBefore,
     [](Message& message) { std::reverse(message[0].begin() + 8, message[0].begin() + 10); }},
    {"one_image_more",
     [](FramedFields& fields, Message& frames) {
       ++fields.images;
       frames[0].resize(frames[0].size() / 4 * 5);
       frames[1].resize(frames[1].size() / 4 * 5);
     },
     kNothingAfter},
    {"more_images_than_frames_hold",
     [](FramedFields& fields, Message&) { fields.images = 0xffffffffU; }, kNothingAfter},
    {"height_and_width_exchanged",
     [](FramedFields& fields, Message&) { std::swap(fields.height, fields.width); }, kNothingAfter},
    {"dimensions_whose_product_wraps",
     [](FramedFields& fields, Message&) {
       fields.height = fields.width = fields.channels = 0xffffffffU;
     },
     kNothingAfter},
    {"float32_pixels",
     [](FramedFields&, Message& frames) { frames[0].resize(4 * frames[0].size()); }, kNothingAfter},
    {"labels_of_64_bits",
     [](FramedFields&, Message& frames) { frames[1].resize(2 * frames[1].size()); }, kNothingAfter},
    {"labels_of_the_wrong_endian",
     [](FramedFields&, Message& frames) {
       for (auto at = frames[1].begin(); at != frames[1].end(); at += 4) std::reverse(at, at + 4);
     },
     kNothingAfter},
    {"a_checksum_that_does_not_hold", [](FramedFields& fields, Message&) { fields.flags = 1; },
     [](Message& message) { message[1][17] ^= std::byte{4}; }},
    {"a_checksum_that_nobody_announced",
     [](FramedFields& fields, Message&) { fields.checksum = 1; }, kNothingAfter},
    {"a_payload_that_does_not_add_up", [](FramedFields& fields, Message&) { fields.payload = 1; },
     kNothingAfter},
    {"truncated_header", kNothingBefore, [](Message& message) { message[0].pop_back(); }},
    {"a_header_alone", kNothingBefore, [](Message& message) { message.resize(1); }},
    {"a_frame_missing", kNothingBefore, [](Message& message) { message.pop_back(); }},
    {"a_frame_too_many", kNothingBefore, [](Message& message) { message.emplace_back(); }},
    {"truncated_pixels", kNothingBefore, [](Message& message) { message[1].pop_back(); }},
    {"truncated_labels", [](FramedFields&, Message& frames) { frames[1].pop_back(); },
     kNothingAfter},
    {"frames_exchanged", [](FramedFields&, Message& frames) { std::swap(frames[0], frames[1]); },
     kNothingAfter},
};

class ZmqFramed : public ::testing::Test {
 protected:
  std::string endpoint() const { return "ipc://" + (folder_ / "feed").native(); }
  static void expect_sums(const Feed& feed) {
    EXPECT_EQ(feed.counter("images_sent"), feed.counter("images_received") +
                                               feed.counter("images_rejected") +
                                               feed.counter("images_missing"));
  }
  TempFolder folder_;
};

class ZmqFramedFaults : public ZmqFramed, public ::testing::WithParamInterface<FramedFault> {};

TEST_P(ZmqFramedFaults, AreCountedAndNamedAndTheRestGoesOn) {
  constexpr std::int32_t kGood = 30, kEach = 6;
  Feed feed("hwm=2,endpoint=" + endpoint());
  RawProducer good(endpoint(), RawProducer::Side::connects);
  RawProducer bad(endpoint(), RawProducer::Side::connects);
  const std::jthread sending_good([&good] {
    for (std::int32_t batch = 0; batch < kGood; ++batch) {
      good.send(message_of(Format::framed, kTiny, {0, batch}));
    }
  });
  // Even numbers are good; headers count what their producer believes to have sent.
  std::uint64_t images = 0;
  std::jthread sending_bad([&] {
    for (std::int32_t batch = 0; batch <= 2 * kEach; ++batch) {
      FramedFields fields = framed_fields(kTiny, {1, batch});
      fields.images_before = images;
      Message frames{pixels_of(kTiny, {1, batch}), labels_array(kTiny, {1, batch}).data};
      if (batch % 2 == 1) GetParam().before(fields, frames);
      images += fields.images;
      Message message = framed_message(fields, std::move(frames));
      if (batch % 2 == 1) GetParam().after(message);
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
  expect_sums(feed);
  std::int64_t named = 0;
  for (const std::string& note : feed.notes()) {
    named += says(note, " refused: ") && says(note, "of process ") ? 1 : 0;
  }
  EXPECT_GE(named, 1) << feed.all_notes();  // equal refusals of a sender once
  EXPECT_LE(named, kEach) << feed.all_notes();
}

std::string fault_name(const ::testing::TestParamInfo<FramedFault>& one) { return one.param.name; }

INSTANTIATE_TEST_SUITE_P(All, ZmqFramedFaults, ::testing::ValuesIn(kFaults), fault_name);

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
  expect_sums(feed);
}

}  // namespace
}  // namespace penstock::transport
