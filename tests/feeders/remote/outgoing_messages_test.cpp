// SPDX-License-Identifier: Apache-2.0
// Outgoing messages of each format: read back bit for bit, sent without a copy, and complete over
// sockets.
#include "feeders/remote/send/outgoing_messages.h"

#include "feeders/remote/send/frame_memory.h"
#include "feeders/remote/send/sender.h"
#include "feeders/remote/wire/framed.h"
#include "feeders/remote/wire/framed_texts.h"
#include "tests/feeders/remote/sender_fixture.h"
#include "tests/support/entry_names.h"
#include "tests/support/python.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

using Frames = std::span<const remote::OutgoingFrame>;

std::vector<std::span<const std::byte>> spans_of(Frames frames) {
  std::vector<std::span<const std::byte>> views;
  for (const remote::OutgoingFrame& frame : frames) views.emplace_back(frame.bytes);
  return views;
}

class OutgoingFormats : public SenderTest,
                        public ::testing::WithParamInterface<remote::MessageFormat> {
 protected:
  SteadyClock clock_;
  HostDevice host_{clock_};
  remote::FrameMemory memory_{host_};
  Device* const reader_ = &memory_;
  BatchRing ring_{kSmall,         4,     memory_, MemoryKind::pinned, std::span(&reader_, 1),
                  Order::relaxed, clock_};
};

TEST_P(OutgoingFormats, ABatchIsReadBackAndItsSlotIsAsItWas) {
  const auto messages = remote::make_outgoing(GetParam(), kSmall, clock_);
  remote::BatchMessageReader reader(kSmall);
  const WriteLease lease = ring_.acquire({});
  for (std::uint64_t index = 0; index < 3; ++index) {
    const Batch& batch = lease.batch();
    fill_closed_form(batch, kSmall, index);
    const Frames frames = messages->batch(batch, {}, {});
    const auto views = spans_of(frames);
    ASSERT_LE(views.size(), remote::kMaxMessageFrames);
    EXPECT_EQ(remote::detect_message_format(views), GetParam());
    const remote::WireBatch read = reader.read(GetParam(), views);
    EXPECT_EQ(read.pixels.data(), batch.pixels.data()) << "pixels were copied";
    EXPECT_TRUE(frames[frames.size() == 1 ? 0 : 1].in_slot);
    std::vector<std::byte> pixels(kSmall.pixel_bytes());
    std::vector<std::int32_t> labels(batch.labels.size());
    Batch copy{.pixels = pixels, .labels = labels};
    remote::copy_batch(read, copy);
    messages->give_back(batch);
    for (std::size_t i = 0; i < labels.size(); ++i) {
      EXPECT_EQ(labels[i], label_of(index * labels.size() + i));
      EXPECT_EQ(batch.labels[i], labels[i]);
      EXPECT_EQ(pixels[i * kSmall.row_bytes()], pixel_of(index * labels.size() + i));
    }
  }
}

TEST_P(OutgoingFormats, EveryBatchOfAFiniteFeederArrivesOnce) {
  const bool framed = GetParam() == remote::MessageFormat::framed;
  RunningConsumer consumer("endpoint=" + endpoint() + (framed ? ",producers=1" : ""));
  Server server(endpoint(), false, Way::push, 4, kSmall, {}, GetParam());
  server.feed(0, 25);
  server.start();
  for (std::uint64_t i = 0; i < 25; ++i) EXPECT_EQ(consumer.next(), i);
  if (framed) {
    EXPECT_EQ(consumer.next(), std::nullopt);
    consumer.stop();
    EXPECT_EQ(consumer.counter("images_missing"), 0);
    EXPECT_EQ(consumer.counter("images_sent"), 100);
    EXPECT_GE(consumer.fact("hand_off_median_s"), 0);
  }
  server.join();
  EXPECT_EQ(server.counter("batches_sent"), 25);
  consumer.stop();
  EXPECT_EQ(consumer.counter("messages_rejected"), 0);
}

TEST_P(OutgoingFormats, DroppedBatchesAreMadeEncodedAndCounted) {
  Probe probe(false);
  const std::unique_ptr<remote::BatchSupply> supply = remote::make_ring_supply(
      ring_, remote::make_outgoing(GetParam(), kSmall, clock_), clock_, probe);
  std::jthread feeding([&](const std::stop_token& stop) {
    for (std::uint64_t index = 0; WriteLease lease = ring_.acquire(stop); ++index) {
      fill_closed_form(lease.batch(), kSmall, index % 25);
      std::move(lease).publish();
    }
  });
  remote::drop_batches(*supply, {.batches = 20}, probe, {});
  EXPECT_EQ(probe.counter("batches_sent").value(), 20);
  EXPECT_EQ(probe.counter("images_sent").value(), 80);
  EXPECT_GT(probe.counter("bytes_sent").value(), 20 * static_cast<std::int64_t>(kSmall.bytes()));
  EXPECT_EQ(supply->held(), 0U);
}

INSTANTIATE_TEST_SUITE_P(All, OutgoingFormats,
                         ::testing::Values(remote::MessageFormat::zmq_op,
                                           remote::MessageFormat::pickle,
                                           remote::MessageFormat::msgpack,
                                           remote::MessageFormat::numpy_frames,
                                           remote::MessageFormat::framed),
                         [](const auto& test) { return test_name(to_string(test.param)); });

TEST_F(SenderTest, PythonsOwnPickleAndMsgpackReadWhatIsSent) {
  if (!python_has("zmq, numpy, msgpack, msgpack_numpy")) {
    GTEST_SKIP() << "no /usr/bin/python3 with zmq, numpy, msgpack and msgpack_numpy; install "
                    "python3-zmq python3-msgpack-numpy";
  }
  for (const auto format : {remote::MessageFormat::pickle, remote::MessageFormat::msgpack}) {
    Server server(endpoint() + std::string(to_string(format)), false, Way::push, 4, kSmall, {},
                  format);
    server.feed(0, 3);
    server.start();
    EXPECT_EQ(
        run_python(R"(
import pickle, sys, warnings
import msgpack, msgpack_numpy, numpy, zmq

warnings.simplefilter("error")
socket = zmq.Context().socket(zmq.PULL)
socket.bind(sys.argv[1])
for index in range(3):
    assert socket.poll(20000), "nothing arrives"
    frames = socket.recv_multipart()
    assert len(frames) == 1
    if sys.argv[2] == "pickle":
        point = pickle.loads(frames[0])
    else:
        point = msgpack.unpackb(frames[0], object_hook=msgpack_numpy.decode)
    images, labels = point
    numbers = numpy.arange(index * 4, index * 4 + 4)
    assert isinstance(point, list) and images.shape == (4, 5, 6, 3), images.shape
    assert images.dtype == numpy.uint8 and labels.dtype == numpy.int32, labels.dtype
    assert images.flags.c_contiguous
    numpy.testing.assert_array_equal(images, numpy.broadcast_to(
        ((numbers * 7 + 1) % 256).reshape(4, 1, 1, 1), images.shape))
    numpy.testing.assert_array_equal(labels, numbers % 100)
print("equal")
)",
                   {endpoint() + std::string(to_string(format)), std::string(to_string(format))}),
        "equal\n");
    server.join();
  }
}

TEST(OutgoingFramed, HellosNumbersTimesAndEnds) {
  SteadyClock clock;
  const auto messages = remote::make_outgoing(remote::MessageFormat::framed, kSmall, clock, true);
  std::vector<std::byte> pixels(kSmall.pixel_bytes());
  std::vector<std::int32_t> labels(4);
  Batch batch{.pixels = pixels, .labels = labels};

  auto views = spans_of(messages->hello());
  remote::FramedMessage message = remote::parse_framed(views);
  EXPECT_EQ(message.header.kind, remote::FramedKind::hello);
  EXPECT_EQ(message.header.images, 4U);
  const std::uint64_t producer = message.header.producer;
  EXPECT_EQ(remote::parse_framed_hello(message).boot, remote::boot_id());
  EXPECT_EQ(remote::parse_framed_hello(message).pid, getpid());

  std::uint64_t images = 0;
  for (std::uint64_t i = 0; i < 3; ++i) {
    batch.valid = i == 2 ? 3 : 4;
    const std::int64_t before = remote::wall_clock_ns();
    const Time now = clock.now();
    const Frames frames = messages->batch(batch, now - 5ms, now - 2ms);
    messages->stamp();
    views = spans_of(frames);
    const remote::FramedHeader header = remote::parse_framed(views).header;
    EXPECT_EQ(header.sequence, i);
    EXPECT_EQ(header.images_before, images);
    EXPECT_EQ(header.producer, producer);
    EXPECT_NE(header.flags & remote::kFramedChecksum, 0);
    EXPECT_EQ(header.ready_ns - header.begun_ns, 3'000'000);
    EXPECT_GE(header.sent_ns, before);
    EXPECT_GE(header.sent_ns - header.ready_ns, 0);
    images += header.images;
  }
  views = spans_of(messages->end());
  message = remote::parse_framed(views);
  EXPECT_EQ(message.header.kind, remote::FramedKind::end);
  EXPECT_EQ(message.header.sequence, 3U);
  EXPECT_EQ(message.header.images_before, 11U);
  EXPECT_EQ(message.header.producer, producer);
  const auto another = remote::make_outgoing(remote::MessageFormat::framed, kSmall, clock);
  views = spans_of(another->hello());
  EXPECT_NE(remote::parse_framed(views).header.producer, producer);

  EXPECT_THROW(remote::make_outgoing(remote::MessageFormat::zmq_op, kSmall, clock, true),
               ConfigError);
}

}  // namespace
}  // namespace penstock
