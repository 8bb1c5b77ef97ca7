// SPDX-License-Identifier: Apache-2.0
// MessagePack messages byte by byte, from the specification and from msgpack-numpy.
#include "dataflow/values/value_tree.h"

#include <gtest/gtest.h>

#include <string>

#include "dataflow/error.h"
#include "tests/support/pickles.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

using Bytes = std::vector<std::byte>;

values::ValueTree parse(const Bytes& bytes) { return values::parse_msgpack(bytes); }
std::string refusal(std::string_view hex) {
  const Bytes bytes = bytes_of_hex(hex);
  return thrown_by<DataError>([&] { values::parse_msgpack(bytes); });
}

TEST(Msgpack, NumbersOfEveryWidth) {
  for (const auto& [hex, expected] : {std::pair{"07", INT64_C(7)},
                                      {"7f", 127},
                                      {"ff", -1},
                                      {"e0", -32},
                                      {"ccff", 255},
                                      {"cdffff", 65535},
                                      {"ceffffffff", 4294967295},
                                      {"cf7fffffffffffffff", INT64_MAX},
                                      {"d080", -128},
                                      {"d18000", -32768},
                                      {"d280000000", INT32_MIN},
                                      {"d38000000000000000", INT64_MIN}}) {
    const Bytes bytes = bytes_of_hex(hex);
    const values::ValueTree tree = parse(bytes);
    EXPECT_EQ(tree.root().kind, values::ValueKind::integer) << hex;
    EXPECT_EQ(tree.root().integer, expected) << hex;
  }
  EXPECT_EQ(parse(bytes_of_hex("ca3fc00000")).root().real, 1.5);
  EXPECT_EQ(parse(bytes_of_hex("cbbff8000000000000")).root().real, -1.5);
  EXPECT_EQ(parse(bytes_of_hex("c0")).root().kind, values::ValueKind::none);
  EXPECT_EQ(parse(bytes_of_hex("c3")).root().integer, 1);
  EXPECT_EQ(parse(bytes_of_hex("c2")).root().integer, 0);
}

TEST(Msgpack, TextBytesListsAndDicts) {
  EXPECT_NE(refusal("dc0003a2616282a161c4026263d90162de0000"), "nothing was thrown");
  const Bytes whole = bytes_of_hex("dc0003a2616282a161c4026263d90162de00009090");
  EXPECT_TRUE(says(thrown_by<DataError>([&] { parse(whole); }), "followed by more bytes"));
  const Bytes good = bytes_of_hex("dc0003a2616282a161c4026263d90162de000090");
  const values::ValueTree tree = parse(good);
  ASSERT_EQ(tree.root().items.size(), 3U);
  EXPECT_EQ(values::text_of(tree.at(tree.root().items[0])), "ab");
  const values::Value& dict = tree.at(tree.root().items[1]);
  ASSERT_NE(tree.find(dict, "a"), nullptr);
  EXPECT_EQ(tree.find(dict, "a")->kind, values::ValueKind::bytes);
  EXPECT_EQ(values::text_of(*tree.find(dict, "a")), "bc");
  EXPECT_EQ(tree.find(dict, "b")->kind, values::ValueKind::dict);
  EXPECT_EQ(tree.at(tree.root().items[2]).kind, values::ValueKind::list);
  for (const char* hex : {"c50001ff", "c600000001ff", "da0001ff", "db00000001ff"}) {
    const Bytes one = bytes_of_hex(hex);
    EXPECT_EQ(parse(one).root().bytes.size(), 1U) << hex;
  }
}

/// [uint8 [[1,2,3],[4,5,6]], int32 [7,-1]] as msgpack-numpy writes it.
TEST(Msgpack, ArraysOfNumpyAreViewsOfTheInput) {
  const Bytes bytes = bytes_of_hex(
      "9285c4026e64c3c40474797065a37c7531c4046b696e64c400c4057368617065920203c40464617461c406010203"
      "04050685c4026e64c3c40474797065a33c6934c4046b696e64c400c40573686170659102c40464617461c4080700"
      "0000ffffffff");
  ASSERT_EQ(bytes.size(), 98U);
  const values::ValueTree tree = parse(bytes);
  const values::Value &x = tree.at(tree.root().items[0]), &y = tree.at(tree.root().items[1]);
  ASSERT_EQ(x.kind, values::ValueKind::array);
  EXPECT_EQ(x.array.shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(x.array.data.data(), bytes.data() + 43);
  EXPECT_EQ(y.array.type, (values::NumpyType{'i', 4, false}));
  EXPECT_EQ(values::numpy_integer(y.array.type, y.array.data.subspan(4)), -1);
  Bytes wrong = bytes;
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    if (wrong[i] == std::byte{0x92} && i > 0) wrong[i + 1] = std::byte{3};
  }
  EXPECT_TRUE(says(thrown_by<DataError>([&] { parse(wrong); }), "of a shape that its 6 bytes"));
}

TEST(Msgpack, NumbersOfNumpyAreNumbers) {
  // {nd: false, type: '<i4', data: 5}
  const Bytes bytes = bytes_of_hex("83c4026e64c2c40474797065a33c6934c40464617461c40405000000");
  const values::ValueTree tree = parse(bytes);
  EXPECT_EQ(values::integer_of(tree.root()), 5);
}

TEST(Msgpack, WhatIsNoMessageIsRefused) {
  EXPECT_TRUE(says(refusal(""), "wants 1 bytes of the 0"));
  EXPECT_TRUE(says(refusal("c6ffffffff00"), "wants 4294967295 bytes of the 1"));
  EXPECT_TRUE(says(refusal("ddffffffff00"), "wants 1 bytes"));
  EXPECT_TRUE(says(refusal("dfffffffff00"), "wants 1 bytes"));
  EXPECT_TRUE(says(refusal("c1"), "of no plain type"));
  EXPECT_TRUE(says(refusal("d40100"), "of no plain type"));
  EXPECT_TRUE(says(refusal("cfffffffffffffffff"), "more than 63 bits"));
  std::string deep;
  for (int i = 0; i < 40; ++i) deep += "91";
  EXPECT_TRUE(says(refusal(deep + "c0"), "nested deeper than 32"));
  const Bytes many = [] {
    Bytes bytes = bytes_of_hex("dd000493e0");
    bytes.resize(5 + 300'000, std::byte{0xc0});
    return bytes;
  }();
  EXPECT_TRUE(says(thrown_by<DataError>([&] { parse(many); }), "more than 262144"));
  EXPECT_TRUE(says(refusal("82c4026e64c3c40474797065a24f38"), "no plain type"));
}

}  // namespace
}  // namespace penstock
