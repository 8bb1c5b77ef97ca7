// SPDX-License-Identifier: Apache-2.0
// Each way in which a message can be wrong, in each format, from one producer while another sends
// good ones: the wrong ones are counted and named, all good ones arrive, and images sent are images
// received and images rejected.
#include <random>
#include <tuple>

#include "tests/support/entry_names.h"
#include "tests/transport/feed.h"
#include "tests/transport/raw_producer.h"

namespace penstock::transport {
namespace {

Bytes random_bytes(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  Bytes bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

/// Changes the shape of the batches, one of their arrays, or the frames of the message.
struct Fault {
  const char* name;
  void (*spec)(BatchSpec&) = nullptr;
  void (*pixels)(Array&) = nullptr;
  void (*labels)(Array&) = nullptr;
  void (*frames)(Message&, BatchName) = nullptr;

  /// What it makes of the batch of that name.
  Message make(Format format, BatchName of) const {
    BatchSpec batches = kTiny;
    if (spec != nullptr) spec(batches);
    Array images = pixels_array(batches, of), numbers = labels_array(batches, of);
    if (pixels != nullptr) pixels(images);
    if (labels != nullptr) labels(numbers);
    Message message = write(format, images, numbers);
    if (frames != nullptr) frames(message, of);
    return message;
  }
};
void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }

constexpr Fault kFaults[] = {
    {.name = "truncated_by_a_byte",
     .frames = [](Message& message, BatchName) { message.back().pop_back(); }},
    {.name = "truncated_to_half",
     .frames =
         [](Message& message, BatchName) {
           for (Bytes& frame : message) frame.resize(frame.size() / 2);
         }},
    {.name = "a_byte_too_many",
     .frames = [](Message& message, BatchName) { message.back().push_back(std::byte{7}); }},
    {.name = "empty",
     .frames =
         [](Message& message, BatchName) {
           for (Bytes& frame : message) frame.clear();
         }},
    {.name = "random_bytes",
     .frames =
         [](Message& message, BatchName name) {
           for (Bytes& frame : message) {
             frame = random_bytes(frame.size(), static_cast<std::uint32_t>(name.batch));
           }
         }},
    {.name = "surplus_frames",
     .frames = [](Message& message,
                  BatchName) { message.resize(message.size() + 40, message.back()); }},
    {.name = "one_image_more", .spec = [](BatchSpec& spec) { ++spec.images; }},
    {.name = "one_image_less", .spec = [](BatchSpec& spec) { --spec.images; }},
    {.name = "another_height", .spec = [](BatchSpec& spec) { ++spec.image.height; }},
    {.name = "height_and_width_exchanged",
     .spec = [](BatchSpec& spec) { std::swap(spec.image.height, spec.image.width); }},
    {.name = "one_channel", .spec = [](BatchSpec& spec) { spec.image.channels = 1; }},
    {.name = "pixels_of_float32",
     .pixels =
         [](Array& pixels) {
           pixels.kind = 'f';
           pixels.bytes = 4;
           pixels.data.resize(pixels.data.size() * 4);
         }},
    {.name = "labels_of_float32", .labels = [](Array& labels) { labels.kind = 'f'; }},
    {.name = "labels_of_the_wrong_endian",
     .labels = [](Array& labels) { reverse_each(labels.data); }},
    {.name = "labels_beyond_the_classes",
     .labels = [](Array& labels) { labels.data[3] = std::byte{0x7f}; }},
    {.name = "labels_below_zero",
     .labels = [](Array& labels) { labels.data[3] = std::byte{0xff}; }},
    {.name = "labels_for_fewer_images",
     .labels =
         [](Array& labels) {
           --labels.shape[0];
           labels.data.resize(labels.data.size() - 4);
         }},
};

class ZmqMessageFaults : public ZmqConsume,
                         public ::testing::WithParamInterface<std::tuple<Format, Fault>> {};

TEST_P(ZmqMessageFaults, AreCountedAndNamedAndTheRestGoesOn) {
  const auto [format, fault] = GetParam();
  constexpr std::int32_t kGood = 30, kEach = 6;
  Feed feed("hwm=2,endpoint=" + endpoint());
  const GoodStream good(endpoint(), kGood, format, kTiny);
  RawProducer bad(endpoint(), RawProducer::Side::connects);
  // Never so many bad ones in a row that it is cut off.
  const std::jthread sending_bad([&bad, form = format, made = fault] {
    for (std::int32_t batch = 0; batch < kEach; ++batch) {
      bad.send(message_of(form, kTiny, {1, batch}));
      bad.send(made.make(form, {2, batch}));
    }
    bad.send(message_of(form, kTiny, {1, kEach}));
  });
  Ledger accounts;
  feed.read(kGood + kEach + 1, accounts);
  feed.stop();
  accounts.expect_once(0, 0, kGood);
  accounts.expect_once(1, 0, kEach + 1);
  EXPECT_EQ(accounts.disorders(), 0);
  EXPECT_EQ(feed.counter("messages_rejected"), kEach) << feed.all_notes();
  EXPECT_EQ(feed.counter("messages_received"), kGood + 2 * kEach + 1);
  EXPECT_EQ(feed.counter("producers_cut_off"), 0);
  EXPECT_EQ(feed.counter("images_received") + feed.counter("messages_rejected") * kTiny.images,
            (kGood + 2 * kEach + 1) * kTiny.images);
  feed.expect_named(kEach);
}

std::string case_name(const ::testing::TestParamInfo<std::tuple<Format, Fault>>& one) {
  return test_name(name_of(std::get<Format>(one.param))) + "_" + std::get<Fault>(one.param).name;
}

INSTANTIATE_TEST_SUITE_P(All, ZmqMessageFaults,
                         ::testing::Combine(::testing::ValuesIn(kArrayFormats),
                                            ::testing::ValuesIn(kFaults)),
                         case_name);

using ZmqByteOrder = ZmqConsume;
using ZmqOversized = ZmqConsume;
using ZmqRandomMessages = ZmqConsume;

/// One of them is declared, all are sent.
class ZmqFormatFaults : public ZmqConsume, public ::testing::WithParamInterface<Format> {};

TEST_P(ZmqFormatFaults, MessagesOfAnotherFormatThanTheDeclaredOneAreRefused) {
  Feed feed("hwm=2,format=" + name_of(GetParam()) + ",endpoint=" + endpoint());
  RawProducer producer(endpoint(), RawProducer::Side::connects);
  for (const Format format : kFormats) {
    if (format != GetParam()) producer.send(message_of(format, kTiny, {1, 1}));
  }
  producer.send(message_of(GetParam(), kTiny, {0, 0}));
  EXPECT_EQ(feed.next(), (BatchName{0, 0}));
  feed.stop();
  EXPECT_EQ(feed.counter("messages_rejected"), std::ssize(kFormats) - 1) << feed.all_notes();
}

std::string format_name(const ::testing::TestParamInfo<Format>& one) {
  return test_name(name_of(one.param));
}

INSTANTIATE_TEST_SUITE_P(All, ZmqFormatFaults, ::testing::ValuesIn(kFormats), format_name);

/// Where a message says the order of its bytes, either is read.
TEST_F(ZmqByteOrder, OfLabelsIsWhatTheMessageSays) {
  Feed feed("endpoint=" + endpoint());
  RawProducer producer(endpoint(), RawProducer::Side::connects);
  for (const Format format : {Format::pickle, Format::msgpack, Format::numpy_frames}) {
    producer.send(write(format, pixels_array(kTiny, {3, 5}), labels_array(kTiny, {3, 5}, true)));
    EXPECT_EQ(feed.next(), (BatchName{3, 5})) << name_of(format);
  }
}

/// libzmq ends its connection at the header of the frame; what it sends when it has come back is
/// read.
TEST_F(ZmqOversized, CostsTheMessageAndTheConnection) {
  constexpr std::int32_t kGood = 30, kRounds = 3;
  Feed feed("hwm=2,endpoint=" + endpoint() + ",max_message=2kB");
  const GoodStream good(endpoint(), kGood, Format::zmq_op, kTiny);
  RawProducer bad(endpoint(), RawProducer::Side::connects);
  const std::jthread sending_bad([&] {
    bad.await_peers(1);
    for (std::int32_t batch = 0; batch < kRounds; ++batch) {
      bad.send(Bytes(100'000), false);
      bad.await_peers(1);
      bad.send(message_of(Format::zmq_op, kTiny, {1, batch}));
    }
  });
  Ledger accounts;
  feed.read(kGood + kRounds, accounts);
  feed.stop();
  accounts.expect_once(0, 0, kGood);
  accounts.expect_once(1, 0, kRounds);
  EXPECT_EQ(feed.counter("messages_received"), kGood + kRounds);
  EXPECT_EQ(feed.counter("messages_rejected"), 0) << feed.all_notes();
}

/// No message in a thousand of them is taken for a batch, and none ends the feeder.
TEST_F(ZmqRandomMessages, AreAllRefused) {
  Feed feed("endpoint=" + endpoint());
  RawProducer producer(endpoint(), RawProducer::Side::connects);
  std::mt19937 random(20261122);
  constexpr std::int32_t kRounds = 200, kBad = 5;
  Ledger accounts;
  for (std::int32_t round = 0; round < kRounds; ++round) {
    for (std::int32_t i = 0; i < kBad; ++i) {
      const Format format = kArrayFormats[random() % std::size(kArrayFormats)];
      Message message = message_of(format, kTiny, {1, round});
      for (Bytes& frame : message) {
        // Of long ones from a random place on: readers find good beginnings.
        const std::size_t from = frame.size() < 100 ? 0 : random() % 120;
        for (std::size_t at = from; at < frame.size(); ++at) {
          frame[at] = static_cast<std::byte>(random());
        }
      }
      producer.send(message);
    }
    producer.send(message_of(Format::zmq_op, kTiny, {0, round}));
    feed.read(1, accounts);
  }
  feed.stop();
  accounts.expect_once(0, 0, kRounds);
  EXPECT_EQ(feed.counter("messages_rejected"), kRounds * kBad);
}

}  // namespace
}  // namespace penstock::transport
