// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/wire/zmq_op.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "dataflow/error.h"
#include "tests/support/pickles.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

using Bytes = std::vector<std::byte>;

/// uint8 [[1,2,3],[4,5,6]] and int32 [7,-1], as tensorpack sends them.
const Bytes kExample = bytes_of_hex(
    "02000000"
    "04000000 02000000 02000000 03000000 0600000000000000 010203040506"
    "03000000 01000000 02000000 0800000000000000 07000000 ffffffff");

template <typename Integer>
Bytes with(Bytes bytes, std::size_t offset, Integer value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
  return bytes;
}

std::string error_of(std::span<const std::byte> bytes) {
  return thrown_by<DataError>([&] { remote::parse_zmq_op(bytes); });
}

constexpr BatchSpec kSpec{.images = 2, .image = {2, 3, 1}, .classes = 10};

/// The pixels and the labels of a batch of kSpec, copied out of its message.
std::pair<Bytes, std::vector<std::int32_t>> copied(const Bytes& bytes) {
  Bytes pixels(kSpec.pixel_bytes());
  std::vector<std::int32_t> labels(2);
  Batch batch{.pixels = pixels, .labels = labels};
  remote::copy_batch(remote::as_batch(remote::parse_zmq_op(bytes), kSpec), batch);
  return {pixels, labels};
}

/// A batch of kSpec with the labels 3 and 9.
Bytes batch_message() {
  const remote::BatchLayout layout(kSpec, kSpec.images);
  Bytes bytes(layout.size());
  for (std::size_t i = 0; i < kSpec.pixel_bytes(); ++i) {
    bytes[remote::BatchLayout::kPixelsAt + i] = static_cast<std::byte>(i + 1);
  }
  bytes[layout.labels_at()] = std::byte{3};
  bytes[layout.labels_at() + 4] = std::byte{9};
  layout.write_headers(bytes);
  return bytes;
}

std::string batch_error_of(const Bytes& bytes, const BatchSpec& spec = kSpec) {
  return thrown_by<DataError>([&] { remote::as_batch(remote::parse_zmq_op(bytes), spec); });
}

TEST(ZmqOp, TakesTheWorkedExampleApart) {
  ASSERT_EQ(kExample.size(), 62U);
  const remote::WireMessage message = remote::parse_zmq_op(kExample);
  ASSERT_EQ(message.tensors, 2U);
  const remote::WireTensor &x = message.tensor[0], &y = message.tensor[1];
  EXPECT_EQ(x.type, remote::WireType::u8);
  EXPECT_TRUE(std::ranges::equal(x.shape(), std::array{2, 3}));
  EXPECT_EQ(x.offset, 4U);
  EXPECT_EQ(x.data.data(), kExample.data() + 28) << "a view, not a copy";
  EXPECT_TRUE(std::ranges::equal(x.data, bytes_of_hex("010203040506")));
  EXPECT_EQ(y.type, remote::WireType::i32);
  EXPECT_TRUE(std::ranges::equal(y.shape(), std::array{2}));
  EXPECT_EQ(y.offset, 34U);
  EXPECT_TRUE(std::ranges::equal(y.data, bytes_of_hex("07000000 ffffffff")));
}

TEST(ZmqOp, WritesTheHeadersOfTheWorkedExample) {
  Bytes bytes(kExample);
  std::fill(bytes.begin() + 4, bytes.begin() + 28, std::byte{0});
  std::fill(bytes.begin() + 34, bytes.begin() + 54, std::byte{0});
  const std::int32_t x[] = {2, 3}, y[] = {2};
  EXPECT_EQ(remote::write_tensor_header(std::span(bytes).subspan(4), remote::WireType::u8, x), 24U);
  EXPECT_EQ(remote::write_tensor_header(std::span(bytes).subspan(34), remote::WireType::i32, y),
            20U);
  EXPECT_EQ(bytes, kExample);
}

TEST(ZmqOp, TakesAScalar) {
  const Bytes bytes = bytes_of_hex("01000000 03000000 00000000 0400000000000000 05000000");
  const remote::WireMessage message = remote::parse_zmq_op(bytes);
  ASSERT_EQ(message.tensors, 1U);
  EXPECT_EQ(message.tensor[0].dimensions, 0U);
  EXPECT_EQ(message.tensor[0].data.size(), 4U);
}

TEST(ZmqOp, KnowsTheSizeOfARealBatch) {
  const remote::BatchLayout layout(BatchSpec{}, 64);
  EXPECT_EQ(layout.size(), 9'634'104U);
  EXPECT_EQ(layout.labels_at(), 9'634'104U - 256);
}

TEST(ZmqOp, RefusesEveryTruncation) {
  for (const Bytes& whole : {kExample, batch_message()}) {
    for (std::size_t size = 0; size < whole.size(); ++size) {
      const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
      EXPECT_THROW(remote::parse_zmq_op(cut), DataError) << size << " bytes";
    }
  }
}

TEST(ZmqOp, RefusesTrailingBytes) {
  Bytes bytes = kExample;
  bytes.push_back(std::byte{0});
  EXPECT_EQ(error_of(bytes),
            "zmq_op message of 63 bytes: 1 bytes follow its last tensor at byte 62; expected none");
}

TEST(ZmqOp, NamesFieldValueExpectationAndOffset) {
  EXPECT_EQ(
      error_of(with(kExample, 4, std::int32_t{7})),
      "zmq_op message, tensor 0 at byte 4: dtype is 7; expected a number of TensorFlow's, such "
      "as 4 (uint8) or 3 (int32)");
  EXPECT_EQ(error_of(with(kExample, 8, std::int32_t{9})),
            "zmq_op message, tensor 0 at byte 8: ndim is 9; expected 0 to 8");
  EXPECT_EQ(error_of(with(kExample, 42, std::int32_t{-2})),
            "zmq_op message, tensor 1 at byte 42: dimension 0 is -2; expected at least 1");
  EXPECT_EQ(error_of(with(kExample, 20, std::int64_t{7})),
            "zmq_op message, tensor 0 at byte 20: nbytes is 7; expected 6, the product of its "
            "dimensions and the size of uint8");
}

TEST(ZmqOp, RefusesTensorCountsItCannotHold) {
  for (const std::int32_t count : {0, -1, 9, std::numeric_limits<std::int32_t>::max(),
                                   std::numeric_limits<std::int32_t>::min()}) {
    EXPECT_TRUE(says(error_of(with(kExample, 0, count)), "tensor count")) << count;
  }
}

TEST(ZmqOp, RefusesNegativeCountsEverywhere) {
  for (const std::size_t offset : {4U, 8U, 12U, 16U, 34U, 38U, 42U}) {
    EXPECT_THROW(remote::parse_zmq_op(with(kExample, offset, std::int32_t{-1})), DataError)
        << offset;
    EXPECT_THROW(
        remote::parse_zmq_op(with(kExample, offset, std::numeric_limits<std::int32_t>::min())),
        DataError);
  }
  EXPECT_THROW(remote::parse_zmq_op(with(kExample, 20, std::int64_t{-6})), DataError);
}

TEST(ZmqOp, RefusesDimensionsWhoseProductOverflows) {
  // 2^31-1 to the power of eight, of float64.
  Bytes bytes = bytes_of_hex("01000000 02000000 08000000");
  for (int i = 0; i < 8; ++i) {
    const Bytes dim = bytes_of_hex("ffffff7f");
    bytes.insert(bytes.end(), dim.begin(), dim.end());
  }
  const Bytes nbytes = bytes_of_hex("0800000000000000 0000000000000000");
  bytes.insert(bytes.end(), nbytes.begin(), nbytes.end());
  EXPECT_TRUE(says(error_of(bytes), "multiply to more than 2^63 bytes"));
  // 2^16 x 2^16 x 2^16 x 2^16 is 0 modulo 2^64.
  bytes = bytes_of_hex(
      "01000000 04000000 04000000 00000100 00000100 00000100 00000100 0000000000000000");
  EXPECT_TRUE(says(error_of(bytes), "multiply to more than 2^63 bytes"));
}

TEST(ZmqOp, RefusesMoreDataThanTheMessageHas) {
  Bytes bytes = with(kExample, 12, std::int32_t{2'000'000'000});
  bytes = with(bytes, 16, std::int32_t{2'000'000'000});
  bytes = with(bytes, 20, std::int64_t{4'000'000'000'000'000'000});
  EXPECT_EQ(error_of(bytes),
            "zmq_op message, tensor 0 at byte 20: nbytes is 4000000000000000000; only 34 bytes are "
            "left in the message");
}

TEST(ZmqOpBatch, CopiesPixelsAndLabels) {
  const auto [pixels, labels] = copied(batch_message());
  EXPECT_EQ(pixels[0], std::byte{1});
  EXPECT_EQ(pixels[11], std::byte{12});
  EXPECT_EQ(labels, (std::vector<std::int32_t>{3, 9}));
}

TEST(ZmqOpBatch, TakesLabelsOf64Bits) {
  Bytes bytes = batch_message();
  bytes.resize(remote::BatchLayout::kPixelsAt + kSpec.pixel_bytes());
  Bytes tail(20 + 16);
  const std::int32_t shape[] = {2};
  remote::write_tensor_header(tail, remote::WireType::i64, shape);
  tail = with(tail, 20, std::int64_t{4});
  tail = with(tail, 28, std::int64_t{8});
  bytes.insert(bytes.end(), tail.begin(), tail.end());
  EXPECT_EQ(copied(bytes).second, (std::vector<std::int32_t>{4, 8}));

  const std::size_t last = bytes.size() - 8;
  EXPECT_TRUE(
      says(batch_error_of(with(bytes, last, std::int64_t{1} << 32)), "label 1 is 4294967296"));
}

TEST(ZmqOpBatch, NamesExpectedAndFoundShapes) {
  EXPECT_EQ(
      batch_error_of(kExample),
      "zmq_op message holds uint8 [2,3] and int32 [2]; expected uint8 [2,2,3,1] and int32 [2]");
  BatchSpec larger = kSpec;
  larger.images = 4;
  EXPECT_EQ(
      batch_error_of(batch_message(), larger),
      "zmq_op message holds uint8 [2,2,3,1] and int32 [2]; expected uint8 [4,2,3,1] and int32 "
      "[4]; a run with --batch-size 2 takes it");
  const Bytes signed_pixels =
      with(batch_message(), 4, static_cast<std::int32_t>(remote::WireType::i8));
  EXPECT_EQ(batch_error_of(signed_pixels),
            "zmq_op message holds int8 [2,2,3,1] and int32 [2]; expected uint8 [2,2,3,1] and int32 "
            "[2]");
  const Bytes real_labels = with(batch_message(), remote::BatchLayout::kPixelsAt + 12,
                                 static_cast<std::int32_t>(remote::WireType::f32));
  EXPECT_TRUE(says(batch_error_of(real_labels), "and float32 [2]; expected"));
  EXPECT_TRUE(
      says(batch_error_of(bytes_of_hex("01000000 03000000 00000000 0400000000000000 05000000")),
           "holds int32 scalar; expected"));
}

TEST(ZmqOpBatch, RefusesLabelsOutOfRange) {
  const Bytes bytes = batch_message();
  const std::size_t labels = bytes.size() - 8;
  EXPECT_EQ(batch_error_of(with(bytes, labels, std::int32_t{10})),
            "zmq_op message: label 0 is 10; expected 0 to 9");
  EXPECT_EQ(batch_error_of(with(bytes, labels + 4, std::int32_t{-1})),
            "zmq_op message: label 1 is -1; expected 0 to 9");
}

TEST(ZmqOpBatch, LayoutOfASmallerLastBatchParses) {
  const remote::BatchLayout layout(kSpec, 1);
  Bytes bytes(layout.size());
  layout.write_headers(bytes);
  const remote::WireMessage message = remote::parse_zmq_op(bytes);
  EXPECT_EQ(message.tensor[0].dims[0], 1);
  EXPECT_EQ(message.tensor[0].data.size(), 6U);
  EXPECT_EQ(message.tensor[1].data.size(), 4U);
}

}  // namespace
}  // namespace penstock
