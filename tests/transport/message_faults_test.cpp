// SPDX-License-Identifier: Apache-2.0
// Each way in which a message can be wrong, in each format, from one producer while another sends
// good ones: the wrong ones are counted and named, all good ones arrive, and images sent are images
// received and images rejected.
#include <random>
#include <tuple>

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

/// What it makes of the batch of that name.
struct Fault {
  const char* name;
  Message (*make)(Format, BatchName);
};
void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }

Message with_pixels(Format format, BatchName name, const std::function<void(Array&)>& change) {
  Array pixels = pixels_array(kTiny, name);
  change(pixels);
  return write(format, pixels, labels_array(kTiny, name));
}
Message with_labels(Format format, BatchName name, const std::function<void(Array&)>& change) {
  Array labels = labels_array(kTiny, name);
  change(labels);
  return write(format, pixels_array(kTiny, name), labels);
}
Message with_frames(Format format, BatchName name, const std::function<void(Message&)>& change) {
  Message message = message_of(format, kTiny, name);
  change(message);
  return message;
}
Message of_spec(Format format, BatchName name, const std::function<void(BatchSpec&)>& change) {
  BatchSpec spec = kTiny;
  change(spec);
  return message_of(format, spec, name);
}

constexpr Fault kFaults[] = {
    {"truncated_by_a_byte",
     [](Format format, BatchName name) {
       return with_frames(format, name, [](Message& message) { message.back().pop_back(); });
     }},
    {"truncated_to_half",
     [](Format format, BatchName name) {
       return with_frames(format, name, [](Message& message) {
         for (Bytes& frame : message) frame.resize(frame.size() / 2);
       });
     }},
    {"a_byte_too_many",
     [](Format format, BatchName name) {
       return with_frames(format, name,
                          [](Message& message) { message.back().push_back(std::byte{7}); });
     }},
    {"empty",
     [](Format format, BatchName name) {
       return with_frames(format, name, [](Message& message) {
         for (Bytes& frame : message) frame.clear();
       });
     }},
    {"random_bytes",
     [](Format format, BatchName name) {
       return with_frames(format, name, [&](Message& message) {
         for (Bytes& frame : message) {
           frame = random_bytes(frame.size(), static_cast<std::uint32_t>(name.batch));
         }
       });
     }},
    {"surplus_frames",
     [](Format format, BatchName name) {
       return with_frames(format, name, [](Message& message) {
         for (int i = 0; i < 40; ++i) message.push_back(message.back());
       });
     }},
    {"one_image_more",
     [](Format format, BatchName name) {
       return of_spec(format, name, [](BatchSpec& spec) { ++spec.images; });
     }},
    {"one_image_less",
     [](Format format, BatchName name) {
       return of_spec(format, name, [](BatchSpec& spec) { --spec.images; });
     }},
    {"another_height",
     [](Format format, BatchName name) {
       return of_spec(format, name, [](BatchSpec& spec) { ++spec.image.height; });
     }},
    {"height_and_width_exchanged",
     [](Format format, BatchName name) {
       return of_spec(format, name,
                      [](BatchSpec& spec) { std::swap(spec.image.height, spec.image.width); });
     }},
    {"one_channel",
     [](Format format, BatchName name) {
       return of_spec(format, name, [](BatchSpec& spec) { spec.image.channels = 1; });
     }},
    {"pixels_of_float32",
     [](Format format, BatchName name) {
       return with_pixels(format, name, [](Array& pixels) {
         pixels.kind = 'f';
         pixels.bytes = 4;
         pixels.data.resize(pixels.data.size() * 4);
       });
     }},
    {"labels_of_float32",
     [](Format format, BatchName name) {
       return with_labels(format, name, [](Array& labels) { labels.kind = 'f'; });
     }},
    {"labels_of_the_wrong_endian",
     [](Format format, BatchName name) {
       return with_labels(format, name, [&](Array& labels) {
         labels.data = labels_array(kTiny, name, true).data;
       });
     }},
    {"labels_beyond_the_classes",
     [](Format format, BatchName name) {
       return with_labels(format, name, [](Array& labels) { labels.data[3] = std::byte{0x7f}; });
     }},
    {"labels_below_zero",
     [](Format format, BatchName name) {
       return with_labels(format, name, [](Array& labels) { labels.data[3] = std::byte{0xff}; });
     }},
    {"labels_for_fewer_images",
     [](Format format, BatchName name) {
       return with_labels(format, name, [](Array& labels) {
         --labels.shape[0];
         labels.data.resize(labels.data.size() - 4);
       });
     }},
};

class ZmqMessageFaults : public ::testing::TestWithParam<std::tuple<Format, Fault>> {
 protected:
  std::string endpoint() const { return "ipc://" + (folder_ / "feed").native(); }
  TempFolder folder_;
};

TEST_P(ZmqMessageFaults, AreCountedAndNamedAndTheRestGoesOn) {
  const auto [format, fault] = GetParam();
  constexpr std::int32_t kGood = 30, kEach = 6;
  Feed feed("hwm=2,endpoint=" + endpoint());
  RawProducer good(endpoint(), RawProducer::Side::connects);
  RawProducer bad(endpoint(), RawProducer::Side::connects);
  const std::jthread sending_good([&good, form = format] {
    for (std::int32_t batch = 0; batch < kGood; ++batch) {
      good.send(message_of(form, kTiny, {0, batch}));
    }
  });
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
  std::int64_t named = 0;
  for (const std::string& note : feed.notes()) {
    const bool is_named = says(note, " refused: ") && says(note, "of process ");
    named += is_named ? 1 : 0;
  }
  EXPECT_GE(named, 1) << feed.all_notes();  // equal refusals of a sender once
  EXPECT_LE(named, kEach) << feed.all_notes();
}

std::string plain(std::string name) {
  for (char& c : name) c = c == '-' ? '_' : c;
  return name;
}
std::string case_name(const ::testing::TestParamInfo<std::tuple<Format, Fault>>& one) {
  return plain(name_of(std::get<Format>(one.param))) + "_" + std::get<Fault>(one.param).name;
}

INSTANTIATE_TEST_SUITE_P(All, ZmqMessageFaults,
                         ::testing::Combine(::testing::ValuesIn(kArrayFormats),
                                            ::testing::ValuesIn(kFaults)),
                         case_name);

/// One of them is declared, all are sent.
class ZmqFormatFaults : public ::testing::TestWithParam<Format> {};

TEST_P(ZmqFormatFaults, MessagesOfAnotherFormatThanTheDeclaredOneAreRefused) {
  const TempFolder folder;
  const std::string endpoint = "ipc://" + (folder / "feed").native();
  Feed feed("hwm=2,format=" + name_of(GetParam()) + ",endpoint=" + endpoint);
  RawProducer producer(endpoint, RawProducer::Side::connects);
  for (const Format format : kFormats) {
    if (format != GetParam()) producer.send(message_of(format, kTiny, {1, 1}));
  }
  producer.send(message_of(GetParam(), kTiny, {0, 0}));
  EXPECT_EQ(feed.next(), (BatchName{0, 0}));
  feed.stop();
  EXPECT_EQ(feed.counter("messages_rejected"), std::ssize(kFormats) - 1) << feed.all_notes();
}

std::string format_name(const ::testing::TestParamInfo<Format>& one) {
  return plain(name_of(one.param));
}

INSTANTIATE_TEST_SUITE_P(All, ZmqFormatFaults, ::testing::ValuesIn(kFormats), format_name);

/// Where a message says the order of its bytes, either is read.
TEST(ZmqByteOrder, OfLabelsIsWhatTheMessageSays) {
  const TempFolder folder;
  const std::string endpoint = "ipc://" + (folder / "feed").native();
  Feed feed("endpoint=" + endpoint);
  RawProducer producer(endpoint, RawProducer::Side::connects);
  for (const Format format : {Format::pickle, Format::msgpack, Format::numpy_frames}) {
    producer.send(write(format, pixels_array(kTiny, {3, 5}), labels_array(kTiny, {3, 5}, true)));
    EXPECT_EQ(feed.next(), (BatchName{3, 5})) << name_of(format);
  }
}

/// libzmq ends its connection at the header of the frame; what it sends when it has come back is
/// read.
TEST(ZmqOversized, CostsTheMessageAndTheConnection) {
  constexpr std::int32_t kGood = 30, kRounds = 3;
  const TempFolder folder;
  const std::string endpoint = "ipc://" + (folder / "feed").native();
  Feed feed("hwm=2,endpoint=" + endpoint + ",max_message=2kB");
  RawProducer good(endpoint, RawProducer::Side::connects);
  RawProducer bad(endpoint, RawProducer::Side::connects);
  const std::jthread sending_good([&] {
    for (std::int32_t batch = 0; batch < kGood; ++batch) {
      good.send(message_of(Format::zmq_op, kTiny, {0, batch}));
    }
  });
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
TEST(ZmqRandomMessages, AreAllRefused) {
  const TempFolder folder;
  const std::string endpoint = "ipc://" + (folder / "feed").native();
  Feed feed("endpoint=" + endpoint);
  RawProducer producer(endpoint, RawProducer::Side::connects);
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
