// SPDX-License-Identifier: Apache-2.0
// Reads batches from messages of every format, and refuses messages without a batch.
#include "feeders/remote/wire/batch_message.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "dataflow/error.h"
#include "feeders/remote/wire/zmq_op.h"
#include "tests/support/pickles.h"
#include "tests/support/text_bytes.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

using Bytes = std::vector<std::byte>;

constexpr BatchSpec kSpec{.images = 2, .image = {2, 3, 1}, .classes = 10};
constexpr std::string_view kHeader =
    R"([{"dtype":"uint8","shape":[2,2,3,1]},{"dtype":"int64","shape":[2],"name":"labels"}])";

Bytes counted(std::size_t size) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i);
  return bytes;
}

template <typename Number>
Bytes bytes_of_numbers(std::initializer_list<Number> numbers) {
  Bytes bytes(numbers.size() * sizeof(Number));
  std::memcpy(bytes.data(), numbers.begin(), bytes.size());
  return bytes;
}

std::vector<std::span<const std::byte>> views(const std::vector<Bytes>& frames) {
  return {frames.begin(), frames.end()};
}

/// The labels of the batch in a message with pixels 0, 1, 2, ...
std::vector<std::int32_t> labels_of(remote::MessageFormat format,
                                    const std::vector<Bytes>& frames) {
  remote::BatchMessageReader reader(kSpec);
  const remote::WireBatch view = reader.read(format, views(frames));
  Bytes pixels(kSpec.pixel_bytes());
  std::vector<std::int32_t> labels(2);
  Batch batch{.pixels = pixels, .labels = labels};
  remote::copy_batch(view, batch);
  EXPECT_EQ(pixels, counted(12));
  return labels;
}

std::string refusal(remote::MessageFormat format, const std::vector<Bytes>& frames) {
  return thrown_by<DataError>(
      [&] { remote::BatchMessageReader(kSpec).read(format, views(frames)); });
}

remote::MessageFormat detected(const std::vector<Bytes>& frames) {
  return remote::detect_message_format(views(frames));
}

TEST(BatchMessage, NumpyFramesOfEveryTypeOfLabels) {
  const auto labels = [](const char* dtype, const Bytes& bytes) {
    const std::string header = R"([{"dtype":"|u1","shape":[2,2,3,1]},{"shape":[2],"dtype":")" +
                               std::string(dtype) + "\"}]";
    return labels_of(remote::MessageFormat::numpy_frames,
                     {bytes_of_text(header), counted(12), bytes});
  };
  const std::vector<std::int32_t> expected = {3, 7};
  EXPECT_EQ(labels("int64", bytes_of_numbers<std::int64_t>({3, 7})), expected);
  EXPECT_EQ(labels("int32", bytes_of_numbers<std::int32_t>({3, 7})), expected);
  EXPECT_EQ(labels("uint8", bytes_of_numbers<std::uint8_t>({3, 7})), expected);
  EXPECT_EQ(labels("<u2", bytes_of_numbers<std::uint16_t>({3, 7})), expected);
  EXPECT_EQ(labels(">i2", bytes_of_hex("00030007")), expected);
}

TEST(BatchMessage, PixelsMayBeNumbersAndPlanar) {
  BatchSpec spec = kSpec;
  spec.image.channels = 3;
  spec.planar = spec.normalised = true;
  const Bytes labels = bytes_of_numbers<std::int64_t>({3, 7});
  for (const auto& [type, name] : {std::pair{DType::u8, "uint8"},
                                   {DType::f16, "float16"},
                                   {DType::bf16, "uint16"},
                                   {DType::f32, "<f4"}}) {
    spec.pixel = type;
    const std::string header = R"([{"shape":[2,3,2,3],"dtype":")" + std::string(name) +
                               R"("},{"dtype":"int64","shape":[2]}])";
    const std::vector<Bytes> frames{bytes_of_text(header), counted(36 * size_of(type)), labels};
    const remote::WireBatch batch =
        remote::BatchMessageReader(spec).read(remote::MessageFormat::numpy_frames, views(frames));
    EXPECT_EQ(batch.pixels.size(), spec.pixel_bytes()) << name;

    remote::BatchLayout layout(spec, spec.images);
    Bytes message(layout.size());
    const Bytes numbers = bytes_of_numbers<std::int32_t>({3, 7});
    std::memcpy(message.data() + layout.labels_at(), numbers.data(), numbers.size());
    layout.write_headers(message);
    EXPECT_EQ(remote::BatchMessageReader(spec)
                  .read(remote::MessageFormat::zmq_op, views({message}))
                  .pixels.size(),
              spec.pixel_bytes())
        << name;
  }
}

TEST(BatchMessage, AMisfitSaysWhichFlagsTakeIt) {
  BatchSpec spec = kSpec;
  spec.image.channels = 3;
  const auto said = [&](const std::string& dtype, std::array<int, 4> shape, std::size_t bytes) {
    const std::string header =
        fmt::format(R"([{{"dtype":"{}","shape":[{}]}},{{"dtype":"int64","shape":[2]}}])", dtype,
                    fmt::join(shape, ","));
    const std::vector<Bytes> frames{bytes_of_text(header), counted(bytes),
                                    bytes_of_numbers<std::int64_t>({3, 7})};
    return thrown_by<remote::MisfitError>([&] {
      remote::BatchMessageReader(spec).read(remote::MessageFormat::numpy_frames, views(frames));
    });
  };
  EXPECT_TRUE(says(said("float32", {2, 3, 4, 4}, 384),
                   "expected uint8 [2,2,3,3] and whole numbers [2]; a run with --image-size 4 and "
                   "zmq-consume:pixels=f32,planar=true takes it"));
  EXPECT_TRUE(says(said("uint8", {5, 4, 4, 3}, 240),
                   "; a run with --batch-size 5 and --image-size 4 takes it"));
  EXPECT_TRUE(says(said("float16", {1, 3, 8, 8}, 384),
                   "; a run with --batch-size 1, --image-size 8 and "
                   "zmq-consume:pixels=f16,planar=true takes it"));
  EXPECT_FALSE(says(said("float64", {2, 2, 3, 3}, 288), "takes it"));
  EXPECT_FALSE(says(said("uint8", {2, 4, 5, 3}, 120), "takes it")) << "no square";
  spec.planar = true;
  EXPECT_TRUE(
      says(said("uint8", {2, 4, 4, 3}, 96),
           "; a run with --image-size 4, --data-format NHWC and zmq-consume:pixels=u8 takes "
           "it"));
}

TEST(BatchMessage, NumpyFramesThatAreNoBatchAreNamed) {
  const Bytes pixels = counted(12), labels = bytes_of_numbers<std::int64_t>({3, 7});
  const auto said = [&](std::string_view header) {
    return refusal(remote::MessageFormat::numpy_frames, {bytes_of_text(header), pixels, labels});
  };
  remote::BatchMessageReader(kSpec).read(remote::MessageFormat::numpy_frames,
                                         views({bytes_of_text(kHeader), pixels, labels}));
  EXPECT_TRUE(says(said("[]"), "names 0 arrays, and 2 frames follow"));
  EXPECT_TRUE(says(said("{}"), "no JSON list"));
  EXPECT_TRUE(says(said("[[["), "no JSON list"));
  EXPECT_TRUE(says(said("[1,2]"), "array 0 has no dtype and shape"));
  EXPECT_TRUE(says(said(R"([{"dtype":"object","shape":[12]},{"dtype":"int64","shape":[2]}])"),
                   "array 0 has the dtype \"object\""));
  EXPECT_TRUE(says(said(R"([{"dtype":"uint8","shape":[-12]},{"dtype":"int64","shape":[2]}])"),
                   "no list of whole numbers"));
  EXPECT_TRUE(says(said(R"([{"dtype":"uint8","shape":[2.5]},{"dtype":"int64","shape":[2]}])"),
                   "no list of whole numbers"));
  EXPECT_TRUE(says(said(R"([{"dtype":"uint8","shape":[4294967296,4294967296]},)"
                        R"({"dtype":"int64","shape":[2]}])"),
                   "no more than 2^63"));
  EXPECT_TRUE(says(said(R"([{"dtype":"uint8","shape":[13]},{"dtype":"int64","shape":[2]}])"),
                   "array 0 has 12 bytes; expected 13"));
  EXPECT_EQ(said(R"([{"dtype":"uint8","shape":[2,3,2,1]},{"dtype":"int64","shape":[2]}])"),
            "numpy-frames message holds uint8 [2,3,2,1] and int64 [2]; expected uint8 [2,2,3,1] "
            "and whole numbers [2]");
  EXPECT_TRUE(says(said(R"([{"dtype":"uint8","shape":[4,1,3,1]},{"dtype":"int64","shape":[4]}])"),
                   "array 1 has 16 bytes"));
  EXPECT_TRUE(says(said(R"([{"dtype":"uint8","shape":[2,2,3,1]},{"dtype":"float64","shape":[2]}])"),
                   "and float64 [2]; expected"));
  EXPECT_TRUE(says(
      refusal(remote::MessageFormat::numpy_frames, {Bytes(4097, std::byte{'['}), pixels, labels}),
      "expected at most 4096"));
  EXPECT_TRUE(
      says(refusal(remote::MessageFormat::numpy_frames,
                   {bytes_of_text(kHeader), pixels, bytes_of_numbers<std::int64_t>({3, 10})}),
           "label 1 is 10; expected 0 to 9"));
}

TEST(BatchMessage, MsgpackAndZmqOp) {
  const Bytes msgpack = bytes_of_hex(
      "92"
      "85c4026e64c3c40474797065a37c7531c4046b696e64c400c40573686170659402020301"
      "c40464617461c40c000102030405060708090a0b"
      "85c4026e64c3c40474797065a33c6934c4046b696e64c400c40573686170659102"
      "c40464617461c4080300000007000000");
  EXPECT_EQ(labels_of(remote::MessageFormat::msgpack, {msgpack}),
            (std::vector<std::int32_t>{3, 7}));

  const remote::BatchLayout layout(kSpec, kSpec.images);
  Bytes zmq_op(layout.size());
  const Bytes pixels = counted(12), labels = bytes_of_numbers<std::int32_t>({3, 7});
  std::memcpy(zmq_op.data() + remote::BatchLayout::kPixelsAt, pixels.data(), pixels.size());
  std::memcpy(zmq_op.data() + layout.labels_at(), labels.data(), labels.size());
  layout.write_headers(zmq_op);
  EXPECT_EQ(labels_of(remote::MessageFormat::zmq_op, {zmq_op}), (std::vector<std::int32_t>{3, 7}));
  EXPECT_EQ(detected({msgpack}), remote::MessageFormat::msgpack);
  EXPECT_EQ(detected({zmq_op}), remote::MessageFormat::zmq_op);
}

TEST(BatchMessage, ValuesThatAreNoBatchAreNamed) {
  EXPECT_EQ(refusal(remote::MessageFormat::pickle, {pickle_of_arrays()}),
            "pickle message holds uint8 [2,3] and int32 [2]; expected uint8 [2,2,3,1] and whole "
            "numbers [2]");
  EXPECT_TRUE(says(refusal(remote::MessageFormat::pickle, {pickle_of_python2()}), "holds no list"));
  EXPECT_TRUE(
      says(refusal(remote::MessageFormat::msgpack, {bytes_of_hex("93010203")}), "a list of 3"));
  EXPECT_TRUE(says(refusal(remote::MessageFormat::msgpack, {bytes_of_hex("920102")}),
                   "something other than an array at place 0"));
  EXPECT_TRUE(
      says(refusal(remote::MessageFormat::msgpack, {bytes_of_hex("c0"), {}}), "of 2 frames"));
}

TEST(BatchMessage, PyarrowsMessagesAreRefusedWithTheRemedy) {
  // The beginning of pyarrow.serialize([array, array]) of pyarrow 11.
  const std::vector<Bytes> message = {
      bytes_of_hex("00000000 00000000 02000000 00000000 ffffffff 80010000 10000000 00000a00")};
  const std::string said = refusal(remote::detect_message_format(views(message)), message);
  EXPECT_TRUE(says(said, "pyarrow.serialize(), which is unsupported")) << said;
  EXPECT_TRUE(says(said, "TENSORPACK_SERIALIZE=pickle"));
}

TEST(BatchMessage, FormatsAreFoundByTheirFirstBytes) {
  EXPECT_EQ(detected({pickle_of_arrays()}), remote::MessageFormat::pickle);
  EXPECT_EQ(detected({pickle_of_python2()}), remote::MessageFormat::pickle);
  EXPECT_EQ(detected({bytes_of_hex("dc0002")}), remote::MessageFormat::msgpack);
  EXPECT_EQ(detected({bytes_of_hex("82")}), remote::MessageFormat::msgpack);
  EXPECT_EQ(detected({bytes_of_text(kHeader), {}, {}}), remote::MessageFormat::numpy_frames);
  EXPECT_EQ(detected({bytes_of_text(kHeader)}), remote::MessageFormat::numpy_frames);
  EXPECT_EQ(detected({bytes_of_hex("02000000")}), remote::MessageFormat::zmq_op);
  EXPECT_EQ(detected({bytes_of_text("GET / HTTP/1.1")}), remote::MessageFormat::zmq_op);
  EXPECT_EQ(detected({{}}), remote::MessageFormat::zmq_op);
  EXPECT_EQ(detected({}), remote::MessageFormat::zmq_op);
}

TEST(BatchMessage, FormatsHaveNames) {
  for (const remote::MessageFormat format :
       {remote::MessageFormat::zmq_op, remote::MessageFormat::pickle,
        remote::MessageFormat::msgpack, remote::MessageFormat::numpy_frames,
        remote::MessageFormat::framed}) {
    EXPECT_EQ(remote::message_format_of(to_string(format)), format);
  }
  EXPECT_EQ(remote::message_format_of("zmq_ops"), remote::MessageFormat::zmq_op);
  EXPECT_EQ(remote::message_format_of("numpy_frames"), remote::MessageFormat::numpy_frames);
  EXPECT_EQ(remote::message_format_of("pyarrow"), std::nullopt);
}

}  // namespace
}  // namespace penstock
