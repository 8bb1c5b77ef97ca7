// SPDX-License-Identifier: Apache-2.0
// Image files over real sockets: those that EncodedPush sends are the source's, and what
// zmq-consume:encoded=true makes of them are the pixels that the feeder `queue` makes.
#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <zmq.hpp>

#include "dataflow/error.h"
#include "feeders/encoded_push.h"
#include "feeders/image_source.h"
#include "feeders/message_images.h"
#include "tests/feeders/decode_queue_fixture.h"
#include "tests/support/framed_messages.h"
#include "tests/support/message_puller.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

class ZmqEncoded : public DecodeQueueTest {
 protected:
  ZmqEncoded() {
    data_.order = Order::strict;
    data_.epochs = 1;
  }

  FeederContext context(const Options& options, BadSamplePolicy policy = {}) {
    return {.spec = spec_,
            .device = device_,
            .clock = clock_,
            .options = options,
            .data = data_,
            .probe = probe_,
            .on_bad_sample = policy,
            .timeout = 20s,
            .threads = 2,
            .seed = data_.seed};
  }

  /// Sends an epoch of the source, `images` a message.
  void serve(std::size_t images, const std::string& text = "queue") {
    const FeederEntry& entry = find_entry(feeder_table(), "queue");
    const Options options(entry.name, entry.options, parse_component(text));
    Probe probe;
    const std::unique_ptr<Source> source = make_image_source(context(options));
    EncodedPush push(*source, {.images = images, .batches = 3}, parse_endpoint(endpoint_),
                     {.role = ZmqSocketOptions::Role::push, .bind = false, .hwm = 2}, clock_,
                     probe);
    push.run({.timeout = 20s}, {});
    EXPECT_EQ(probe.values().at("images_sent"), kFiles);
  }

  std::unique_ptr<Feeder> consumer(const std::string& more, BadSamplePolicy policy = {},
                                   Nanoseconds timeout = 20s) {
    const FeederEntry& entry = find_entry(feeder_table(), "zmq-consume");
    const Options options(entry.name, entry.options,
                          parse_component("zmq-consume:endpoint=" + endpoint_ + more));
    FeederContext all = context(options, policy);
    all.timeout = timeout;
    return entry.make(all);
  }

  /// The pixels of as many whole batches as `images` are, from the consumer.
  std::vector<std::byte> consume(Feeder& feeder, std::int32_t images) {
    std::vector<std::byte> pixels;
    std::int32_t left = images / spec_.images;
    run(feeder, [&](const Batch& batch) {
      if (left-- > 0) pixels.insert(pixels.end(), batch.pixels.begin(), batch.pixels.end());
      return left > 0;
    });
    return pixels;
  }

  std::string last_note() const {
    const std::vector<std::string> notes = probe_.notes();
    return notes.empty() ? "" : notes.back();
  }

  const TempFolder socket_folder_;
  const std::string endpoint_ = "ipc://" + (socket_folder_ / "feed").native();
};

/// A bare PUSH socket.
class Sender {
 public:
  explicit Sender(const std::string& endpoint) {
    socket_.set(zmq::sockopt::linger, 5000);
    socket_.set(zmq::sockopt::sndtimeo, 20000);
    socket_.connect(endpoint);
  }
  void send(const FrameList& frames) {
    for (std::size_t i = 0; i < frames.size(); ++i) {
      const bool last = i + 1 == frames.size();
      ASSERT_TRUE(socket_.send(zmq::buffer(frames[i]),
                               last ? zmq::send_flags::none : zmq::send_flags::sndmore));
    }
  }

 private:
  zmq::context_t context_;
  zmq::socket_t socket_{context_, ZMQ_PUSH};
};

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// A batch of `good` flat images, with `bad`, which are none, behind the first of them.
FrameList batch_of(int good, int bad, std::uint64_t sequence = 0, std::uint64_t before = 0) {
  std::vector<std::string> files;
  for (int i = 0; i < good; ++i)
    files.push_back(text_of(encode_jpeg(make_flat_image(40, 40, 9, 9, 9))));
  for (int i = 0; i < bad; ++i) files.insert(files.begin() + 1, "no image");
  const std::vector<std::string_view> views(files.begin(), files.end());
  FramedHeader header = jpeg_header(static_cast<std::uint32_t>(files.size()), 7, sequence);
  header.images_before = before;
  return framed_message(header, jpeg_payload(views, std::vector<std::int32_t>(files.size(), 1)));
}

TEST_F(ZmqEncoded, FilesAndLabelsAreTheSources) {
  MessagePuller puller(endpoint_);
  std::jthread serving([&] { serve(7); });
  const FrameList hello = puller.next();
  EXPECT_EQ(parse_framed(views_of(hello)).header.kind, FramedKind::hello);
  EXPECT_EQ(parse_framed_hello(parse_framed(views_of(hello))).pid, getpid());

  const FeederEntry& entry = find_entry(feeder_table(), "queue");
  const Options options(entry.name, entry.options, parse_component("queue"));
  const std::unique_ptr<Source> source = make_image_source(context(options));
  Sample sample;
  for (std::uint64_t taken = 0, sequence = 0; taken < kFiles; ++sequence) {
    const FrameList frames = puller.next();
    const auto views = views_of(frames);
    const FramedMessage message = parse_framed(views);
    const FramedHeader& header = message.header;
    EXPECT_EQ(header.sequence, sequence);
    EXPECT_EQ(header.images_before, taken);
    EXPECT_LE(header.begun_ns, header.ready_ns);
    EXPECT_LE(header.ready_ns, header.sent_ns);
    const FramedImages images(message, spec_);
    ASSERT_EQ(images.size(), std::min<std::uint64_t>(7, kFiles - taken));
    for (std::size_t i = 0; i < images.size(); ++i, ++taken) {
      ASSERT_TRUE(source->next(sample));
      source->load(sample);
      EXPECT_TRUE(std::ranges::equal(images.file(i), sample.content()));
      EXPECT_EQ(images.label(i), sample.label);
    }
  }
  const FrameList last = puller.next();
  const FramedHeader end = parse_framed(views_of(last)).header;
  EXPECT_EQ(end.kind, FramedKind::end);
  EXPECT_EQ(end.sequence, (kFiles + 6) / 7);
  EXPECT_EQ(end.images_before, kFiles);
}

TEST_F(ZmqEncoded, PixelsAreThoseOfQueue) {
  const std::string decoding = "crop=center,flip=false";
  std::vector<std::byte> expected = pass("queue:" + decoding);
  const std::size_t whole = kFiles / spec_.images * spec_.images;
  expected.resize(whole * spec_.row_bytes());
  for (const std::size_t images : {std::size_t{1}, std::size_t{7}, std::size_t{60}}) {
    const std::unique_ptr<Feeder> feeder = consumer(",encoded=true,held=2," + decoding);
    std::jthread serving([&] { serve(images); });
    EXPECT_EQ(consume(*feeder, static_cast<std::int32_t>(whole)), expected) << images;
  }
}

TEST_F(ZmqEncoded, StagesAreReceivingReadingAndDecoding) {
  const std::unique_ptr<Feeder> feeder = consumer(",encoded=true");
  std::vector<std::string> names;
  for (const StageCounters& stage : probe_.stages()) {
    if (stage.stage.workers != kOutside) names.emplace_back(stage.stage.name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"receive", "read", "decode"}));
}

TEST_F(ZmqEncoded, DamagedImagesAreLeftOutAndNamed) {
  const std::unique_ptr<Feeder> feeder = consumer(",encoded=true");
  Sender sender(endpoint_);
  sender.send(batch_of(spec_.images, 1));
  EXPECT_EQ(consume(*feeder, spec_.images).size(), spec_.pixel_bytes());
  EXPECT_EQ(probe_.values().at("bad_samples"), 1);
  EXPECT_TRUE(contains(last_note(), "'image 1 of batch 0 of producer 0000000000000007'"))
      << last_note();
}

TEST_F(ZmqEncoded, DamagedImagesFailTheRunWhereTheUserSaysSo) {
  const std::unique_ptr<Feeder> feeder =
      consumer(",encoded=true", {.action = BadSamplePolicy::Action::fail});
  Sender sender(endpoint_);
  sender.send(batch_of(spec_.images, 1));
  const std::string why = thrown_by<DataError>([&] { consume(*feeder, spec_.images); });
  EXPECT_TRUE(contains(why, "image 1 of batch 0")) << why;
}

TEST_F(ZmqEncoded, DamagedMessagesAreSkippedAndCounted) {
  const std::unique_ptr<Feeder> feeder = consumer(",encoded=true");
  Sender sender(endpoint_);
  FrameList cut = batch_of(2, 0);
  cut[2].pop_back();
  sender.send(cut);
  sender.send(batch_of(spec_.images, 0, 1, 2));
  EXPECT_EQ(consume(*feeder, spec_.images).size(), spec_.pixel_bytes());
  EXPECT_EQ(probe_.values().at("messages_rejected"), 1);
}

TEST_F(ZmqEncoded, ABadMessageFailsTheRunWhereTheUserSaysSo) {
  const std::unique_ptr<Feeder> feeder =
      consumer(",encoded=true", {.action = BadSamplePolicy::Action::skip, .limit = 0});
  Sender sender(endpoint_);
  FrameList cut = batch_of(2, 0);
  cut[2].pop_back();
  sender.send(cut);
  const std::string why = thrown_by<DataError>([&] { consume(*feeder, spec_.images); });
  EXPECT_TRUE(contains(why, "limit=0")) << why;
}

TEST_F(ZmqEncoded, PixelsAreRefusedWithWhatToChange) {
  const std::unique_ptr<Feeder> feeder =
      consumer(",encoded=true", {.action = BadSamplePolicy::Action::fail});
  Sender sender(endpoint_);
  sender.send(framed_message(pixels_header(spec_),
                             {FrameBytes(spec_.pixel_bytes()), FrameBytes(spec_.label_bytes())}));
  const std::string why = thrown_by<DataError>([&] { consume(*feeder, spec_.images); });
  EXPECT_TRUE(contains(why, "serve --encoded")) << why;
}

TEST_F(ZmqEncoded, ImageFilesAreRefusedWithWhatToChange) {
  const std::unique_ptr<Feeder> feeder = consumer("", {.action = BadSamplePolicy::Action::fail});
  Sender sender(endpoint_);
  sender.send(batch_of(spec_.images, 0));
  const std::string why = thrown_by<DataError>([&] { consume(*feeder, spec_.images); });
  EXPECT_TRUE(contains(why, "encoded=true")) << why;
}

TEST_F(ZmqEncoded, OptionsThatDoNotFitAreRefused) {
  const auto refusal = [&](const std::string& more) {
    return thrown_by<ConfigError>([&] { consumer(more); });
  };
  EXPECT_TRUE(contains(refusal(",crop=center"), "say encoded=true"));
  EXPECT_TRUE(contains(refusal(",held=2"), "say encoded=true"));
  EXPECT_TRUE(contains(refusal(",encoded=true,held=0"), "expected 1 to"));
  EXPECT_TRUE(contains(refusal(",encoded=true,decode=raw"), "leave encoded out"));
  EXPECT_TRUE(contains(refusal(",encoded=true,format=pickle"), "leave format out"));
  EXPECT_TRUE(contains(refusal(",encoded=true,crop=middle"), "middle"));
}

TEST_F(ZmqEncoded, SilenceEndsInATimeOut) {
  const std::unique_ptr<Feeder> feeder = consumer(",encoded=true", {}, 50ms);
  const std::string why = thrown_by<TimeoutError>([&] { consume(*feeder, spec_.images); });
  EXPECT_TRUE(contains(why, "no producer ever connected")) << why;
}

TEST_F(ZmqEncoded, StopsWhileNothingComes) {
  const std::unique_ptr<Feeder> feeder = consumer(",encoded=true");
  BatchRing ring(spec_, 3, device_, MemoryKind::host, readers_, Order::relaxed, clock_);
  std::stop_source stop;
  std::jthread running([&] { run_to_end(*feeder, ring, stop.get_token()); });
  stop.request_stop();
  running.join();
  EXPECT_FALSE(ring.next(0, {}));
}

TEST(MessageImages, HoldsNoMoreThanItMay) {
  SteadyClock clock;
  constexpr BatchSpec kSpec{.images = 8, .image = {32, 32, 3}, .classes = 4};
  MessageImages held(2, kSpec.classes, clock);
  const FrameList frames = batch_of(2, 0);
  const auto views = views_of(frames);
  const auto fill = [&](std::uint64_t number) {
    ImageMessage* const message = held.free({});
    message->images.emplace(parse_framed(views), kSpec);
    message->name = "batch " + std::to_string(number);
    held.put(*message);
  };
  EXPECT_FALSE(held.is_ready());
  fill(0);
  fill(1);
  EXPECT_TRUE(held.is_ready());
  std::stop_source stopped;
  stopped.request_stop();
  EXPECT_EQ(held.free(stopped.get_token()), nullptr);

  Sample first, second;
  ASSERT_TRUE(held.next(first) && held.next(second));
  EXPECT_EQ(second.file, "image 1 of batch 0");
  EXPECT_EQ(second.index, 1U);
  EXPECT_EQ(second.content().size(), frames[2].size() - first.content().size());
  second.owner.reset();
  EXPECT_EQ(held.free(stopped.get_token()), nullptr) << "one image of the first is still used";
  first.owner.reset();
  EXPECT_NE(held.free({}), nullptr);

  held.end(std::make_exception_ptr(TimeoutError("late")));
  ASSERT_TRUE(held.next(first) && held.next(second)) << "what came before the end is there";
  EXPECT_THROW(held.next(first), MessageImages::Failed);
  EXPECT_THROW(held.rethrow(), TimeoutError);
}

}  // namespace
}  // namespace penstock
