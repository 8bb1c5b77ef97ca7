// SPDX-License-Identifier: Apache-2.0
// Messages of every format from producers with Python's libraries, over real sockets.
#include <set>

#include "tests/feeders/remote/zmq_fixture.h"
#include "tests/support/python.h"

namespace penstock {
namespace {

/// Sends the closed-form batches [first, end) of zmq_fixture.h.
constexpr const char* kProducer = R"(
import json, os, pickle, struct, sys
import numpy, zmq

endpoint, form, first, end = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
order = sys.argv[5]

def crc32c(data):  # RFC 3720, bit by bit
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff

producer = int.from_bytes(os.urandom(8), "little") | 1
sent = 0

def framed_header(kind, encoding, shape, payload):
    return struct.pack("<8sHHHHQQqqqIIIIIIQQ", b"PENSTOCK", 1, kind, encoding, 1, producer, sent,
                       0, 0, 0, *shape, crc32c(b"".join(payload)), 0, sum(map(len, payload)),
                       4 * sent)

def message(images, labels):
    if form == "framed":
        payload = [images.tobytes(), labels.astype("<i4").tobytes()]
        return [framed_header(1, 1, images.shape, payload), *payload]
    if form == "numpy-frames":
        header = [{"dtype": a.dtype.name, "shape": a.shape} for a in (images, labels)]
        return [json.dumps(header).encode(), images, labels]
    if form == "msgpack":
        import msgpack, msgpack_numpy
        return [msgpack.packb([images, labels], default=msgpack_numpy.encode)]
    return [pickle.dumps((images, labels), protocol=int(form[-1]))]

context = zmq.Context()
socket = context.socket(zmq.PUSH)
socket.connect(endpoint)
if form == "framed":
    hello = [b'{"name": "a script", "pid": %d}' % os.getpid()]
    socket.send_multipart([framed_header(2, 1, (4, 5, 6, 3), hello), *hello])
for index in range(first, end):
    numbers = numpy.arange(index * 4, index * 4 + 4)
    images = numpy.empty((4, 5, 6, 3), numpy.uint8)
    images[:] = ((numbers * 7 + 1) % 256).reshape(4, 1, 1, 1)
    if order == "F":
        images = numpy.asfortranarray(images)
    socket.send_multipart(message(images, numbers % 100))
    sent += 1
if form == "framed":
    socket.send_multipart([framed_header(3, 0, (0, 0, 0, 0), [])])
socket.close(linger=20000)
context.term()
)";

std::vector<std::string> formats() {
  std::vector<std::string> all = {"numpy-frames", "pickle-2", "pickle-3", "pickle-4", "pickle-5"};
  if (python_has("msgpack, msgpack_numpy")) all.emplace_back("msgpack");
  return all;
}

class ZmqFormats : public ZmqConsume {
 protected:
  void SetUp() override {
    if (!python_has("zmq, numpy")) {
      GTEST_SKIP() << "no /usr/bin/python3 with zmq and numpy; install python3-zmq python3-numpy";
    }
  }
  void produce(const std::string& format, std::uint64_t first, std::uint64_t end,
               const std::string& order = "C") const {
    run_python(kProducer, {endpoint(), format, std::to_string(first), std::to_string(end), order});
  }
};

TEST_F(ZmqFormats, EachIsFoundByItsFirstBytesAndReadBitForBit) {
  RunningConsumer consumer("endpoint=" + endpoint());
  std::uint64_t next = 0;
  for (const std::string& format : formats()) {
    std::jthread producing([&, first = next] { produce(format, first, first + 3); });
    for (int batch = 0; batch < 3; ++batch) EXPECT_EQ(consumer.next(), next++) << format;
  }
  consumer.stop();
  EXPECT_EQ(consumer.counter("messages_rejected"), 0);
  EXPECT_EQ(consumer.counter("messages_received"), static_cast<std::int64_t>(next));
  std::set<std::string> notes;
  for (const std::string& note : consumer.notes()) notes.insert(note);
  EXPECT_EQ(notes.size(), consumer.notes().size()) << "a format was noted twice";
  EXPECT_TRUE(notes.count("messages have the format pickle"));
}

TEST_F(ZmqFormats, OurOwnIsWrittenByItsSpecificationAlone) {
  RunningConsumer consumer("endpoint=" + endpoint() + ",format=framed,producers=1");
  std::jthread producing([&] { produce("framed", 2, 7); });
  for (std::uint64_t batch = 2; batch < 7; ++batch) EXPECT_EQ(consumer.next(), batch);
  EXPECT_EQ(consumer.next(), std::nullopt);
  consumer.stop();
  EXPECT_EQ(consumer.counter("messages_rejected"), 0);
  EXPECT_EQ(consumer.counter("images_sent"), 20);
  EXPECT_EQ(consumer.counter("images_missing"), 0);
}

TEST_F(ZmqFormats, ArraysInFortranOrderAreReadAsTheSamePixels) {
  RunningConsumer consumer("endpoint=" + endpoint());
  std::uint64_t next = 0;
  for (const std::string& format : formats()) {
    if (format == "numpy-frames") continue;  // its frames are row-major by definition
    std::jthread producing([&, number = next] { produce(format, number, number + 1, "F"); });
    EXPECT_EQ(consumer.next(), next++) << format;
  }
  consumer.stop();
  EXPECT_EQ(consumer.counter("messages_rejected"), 0);
}

}  // namespace
}  // namespace penstock
