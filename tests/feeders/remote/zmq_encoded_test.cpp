// SPDX-License-Identifier: Apache-2.0
// Image files over real sockets: a Sender sends the source's files, and the pixels of
// zmq-consume:encoded=true equal those of the feeder `queue`.
#include <algorithm>
#include <thread>

#include "dataflow/error.h"
#include "feeders/image_source.h"
#include "feeders/remote/receive/message_images.h"
#include "feeders/remote/wire/framed_texts.h"
#include "tests/feeders/remote/zmq_encoded_fixture.h"
#include "tests/support/message_puller.h"

namespace penstock {
namespace {

TEST_F(ZmqEncoded, FilesAndLabelsAreTheSources) {
  MessagePuller puller(endpoint_);
  std::jthread serving([&] { serve(7); });
  const FrameList hello = puller.next();
  EXPECT_EQ(remote::parse_framed(views_of(hello)).header.kind, remote::FramedKind::hello);
  EXPECT_EQ(remote::parse_framed_hello(remote::parse_framed(views_of(hello))).pid, getpid());

  const FeederEntry& entry = find_entry(feeder_table(), "queue");
  const Options options(entry.name, entry.options, parse_component("queue"));
  const std::unique_ptr<Source> source = make_image_source(context(options));
  Sample sample;
  for (std::uint64_t taken = 0, sequence = 0; taken < kFiles; ++sequence) {
    const FrameList frames = puller.next();
    const auto views = views_of(frames);
    const remote::FramedMessage message = remote::parse_framed(views);
    const remote::FramedHeader& header = message.header;
    EXPECT_EQ(header.sequence, sequence);
    EXPECT_EQ(header.images_before, taken);
    EXPECT_LE(header.begun_ns, header.ready_ns);
    EXPECT_LE(header.ready_ns, header.sent_ns);
    const remote::FramedImages images(message, spec_);
    ASSERT_EQ(images.size(), std::min<std::uint64_t>(7, kFiles - taken));
    for (std::size_t i = 0; i < images.size(); ++i, ++taken) {
      ASSERT_TRUE(source->next(sample));
      source->load(sample);
      EXPECT_TRUE(std::ranges::equal(images.file(i), sample.content()));
      EXPECT_EQ(images.label(i), sample.label);
    }
  }
  const FrameList last = puller.next();
  const remote::FramedHeader end = remote::parse_framed(views_of(last)).header;
  EXPECT_EQ(end.kind, remote::FramedKind::end);
  EXPECT_EQ(end.sequence, (kFiles + 6) / 7);
  EXPECT_EQ(end.images_before, kFiles);
}

TEST_F(ZmqEncoded, ChecksumsAreOfWhatWasSent) {
  MessagePuller puller(endpoint_);
  std::jthread serving([&] { serve(25, "queue", remote::ZmqSocketOptions::Role::push, {}, true); });
  remote::FramedKind kind = remote::FramedKind::hello;
  while (kind != remote::FramedKind::end) {
    const FrameList frames = puller.next();
    ASSERT_FALSE(frames.empty());
    const auto views = views_of(frames);
    const remote::FramedHeader header = remote::parse_framed(views).header;  // parsing checks it
    kind = header.kind;
    EXPECT_EQ(header.flags, remote::kFramedChecksum);
    if (kind != remote::FramedKind::batch) continue;
    for (std::size_t frame = 1; frame < frames.size(); ++frame) {
      FrameList changed = frames;
      changed[frame].front() ^= std::byte{1};
      const auto changed_views = views_of(changed);
      EXPECT_THROW(static_cast<void>(remote::parse_framed(changed_views)), DataError) << frame;
    }
  }
}

/// The parameter: by credit?
class EncodedWays : public ZmqEncoded, public ::testing::WithParamInterface<bool> {
 protected:
  static std::string way() {
    return GetParam() ? ",encoded=true,credit=2" : ",encoded=true,held=2";
  }
};

INSTANTIATE_TEST_SUITE_P(All, EncodedWays, ::testing::Bool(), [](const auto& test) {
  return std::string(test.param ? "Credit" : "Push");
});

TEST_P(EncodedWays, PixelsEqualTheQueueFeeder) {
  const std::string decoding = "crop=center,flip=false";
  std::vector<std::byte> expected = pass("queue:" + decoding);
  const std::size_t whole = kFiles / spec_.images * spec_.images;
  expected.resize(whole * spec_.row_bytes());
  using Role = remote::ZmqSocketOptions::Role;
  for (const std::size_t images : {std::size_t{1}, std::size_t{7}, std::size_t{60}}) {
    const std::unique_ptr<Feeder> feeder = consumer(way() + "," + decoding);
    // The last four images are half a batch: by credit, without room, they remain queued.
    std::jthread serving([&](const std::stop_token& stop) {
      serve(images, "queue", GetParam() ? Role::dealer : Role::push, stop, images == 7);
    });
    EXPECT_EQ(consume(*feeder, static_cast<std::int32_t>(whole)), expected) << images;
  }
}

TEST_F(ZmqEncoded, StagesAreReceivingReadingAndDecoding) {
  const std::unique_ptr<Feeder> feeder = consumer(",encoded=true");
  std::vector<std::string> names;
  for (const StageCounters& stage : probe_.stages()) {
    if (!is_outside(stage.stage.role)) names.emplace_back(stage.stage.name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"receive", "read", "decode"}));
}

TEST_F(ZmqEncoded, DamagedImagesAreLeftOutAndNamed) {
  const std::unique_ptr<Feeder> feeder = consumer(",encoded=true");
  Producer sender(endpoint_, false);
  sender.send(batch_of(spec_.images, 1));
  // Images are decoded in parallel: those after the bad one may fill the other two slots first.
  for (std::uint64_t batch = 1; batch <= 3; ++batch) {
    sender.send(
        batch_of(spec_.images, 0, batch, batch * static_cast<std::uint64_t>(spec_.images) + 1));
  }
  EXPECT_EQ(consume(*feeder, spec_.images).size(), spec_.pixel_bytes());
  EXPECT_EQ(probe_.values().at("bad_samples"), 1);
  EXPECT_TRUE(mentions(probe_.notes(), "'image 1 of batch 0 of producer 0000000000000007'"));
}

TEST_F(ZmqEncoded, OptionsThatDoNotFitAreRefused) {
  const auto refusal = [&](const std::string& more) {
    return thrown_by<ConfigError>([&] { consumer(more); });
  };
  EXPECT_TRUE(says(refusal(",crop=center"), "use encoded=true"));
  EXPECT_TRUE(says(refusal(",held=2"), "use encoded=true"));
  EXPECT_TRUE(says(refusal(",encoded=true,held=0"), "expected 1 to"));
  EXPECT_TRUE(says(refusal(",encoded=true,decode=raw"), "leave encoded out"));
  EXPECT_TRUE(says(refusal(",encoded=true,format=pickle"), "leave format out"));
  EXPECT_TRUE(says(refusal(",encoded=true,crop=middle"), "middle"));
}

TEST(MessageImages, HoldsNoMoreThanItMay) {
  SteadyClock clock;
  constexpr BatchSpec kSpec{.images = 8, .image = {32, 32, 3}, .classes = 4};
  remote::MessageImages held(2, kSpec.classes, clock);
  const FrameList frames = batch_of(2, 0);
  const auto views = views_of(frames);
  const auto fill = [&](std::uint64_t number) {
    remote::ImageMessage* const message = held.free({});
    message->images.emplace(remote::parse_framed(views), kSpec);
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
  EXPECT_THROW(held.next(first), remote::MessageImages::Failed);
  EXPECT_THROW(held.rethrow(), TimeoutError);
}

}  // namespace
}  // namespace penstock
