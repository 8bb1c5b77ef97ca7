// SPDX-License-Identifier: Apache-2.0
// Arrays that are written around their data and read back by the parsers. What Python reads is
// tested with the messages of `serve` (feeders/remote/outgoing_messages_test.cpp).
#include "dataflow/values/array_pieces.h"

#include <gtest/gtest.h>

#include <numeric>

#include "dataflow/values/value_tree.h"

namespace penstock {
namespace {

using values::NumpyArray;

/// The arrays' data are 0, 1, 2, ...
std::vector<std::byte> message_of(const values::ArrayPieces& pieces,
                                  std::span<const NumpyArray> arrays) {
  std::string text = pieces[0];
  char next = 0;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    std::string data(*values::numpy_bytes(arrays[i].type, arrays[i].shape), 0);
    std::iota(data.begin(), data.end(), next);
    next = static_cast<char>(next + static_cast<char>(data.size()));
    text += data + pieces[i + 1];
  }
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

void expect_equal(const values::ValueTree& tree, std::span<const NumpyArray> arrays) {
  ASSERT_EQ(tree.root().kind, values::ValueKind::list);
  ASSERT_EQ(tree.root().items.size(), arrays.size());
  int next = 0;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const NumpyArray& read = tree.at(tree.root().items[i]).array;
    EXPECT_EQ(read.type, arrays[i].type);
    EXPECT_EQ(read.shape, arrays[i].shape);
    for (const std::byte byte : read.data) EXPECT_EQ(std::to_integer<int>(byte), next++);
  }
}

TEST(ArrayPieces, EveryTypeAndShapeIsReadBack) {
  const std::vector<NumpyArray> arrays{
      {.type = {.kind = 'u', .bytes = 1}, .shape = {2, 3, 1, 4}},
      {.type = {.kind = 'i', .bytes = 4}, .shape = {2}},
      {.type = {.kind = 'f', .bytes = 2}, .shape = {3, 2}},
      {.type = {.kind = 'i', .bytes = 8, .big_endian = true}, .shape = {1}},
      {.type = {.kind = 'f', .bytes = 4}, .shape = {0, 300}}};
  const auto msgpack = message_of(values::msgpack_pieces(arrays), arrays);
  expect_equal(values::parse_msgpack(msgpack), arrays);
  const auto pickle = message_of(values::pickle_pieces(arrays), arrays);
  expect_equal(values::parse_pickle(pickle), arrays);
}

TEST(ArrayPieces, LengthsDoNotDependOnTheNumberOfImages) {
  const auto of = [](std::int64_t images) {
    return std::vector<NumpyArray>{{.shape = {images, 224, 224, 3}},
                                   {.type = {.kind = 'i', .bytes = 4}, .shape = {images}}};
  };
  for (const auto pieces : {values::pickle_pieces, values::msgpack_pieces}) {
    const values::ArrayPieces few = pieces(of(1)), many = pieces(of(20'000));
    ASSERT_EQ(few.size(), 3U);
    for (std::size_t i = 0; i < few.size(); ++i) EXPECT_EQ(few[i].size(), many[i].size());
  }
}

}  // namespace
}  // namespace penstock
