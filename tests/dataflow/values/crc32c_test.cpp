// SPDX-License-Identifier: Apache-2.0
// CRC32C by known answers; both implementations against each other and against the definition.
#include "dataflow/values/crc32c.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "dataflow/random.h"

namespace penstock {
namespace {

using Bytes = std::vector<std::byte>;

/// The definition: division by the polynomial, bit by bit.
std::uint32_t crc32c_by_bits(std::span<const std::byte> bytes) {
  std::uint32_t crc = ~0U;
  for (const std::byte byte : bytes) {
    crc ^= static_cast<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78U : 0);
  }
  return ~crc;
}

void expect_crc(const Bytes& bytes, std::uint32_t expected) {
  EXPECT_EQ(values::crc32c(bytes), expected);
  EXPECT_EQ(values::crc32c_by_table(bytes), expected);
}

TEST(Crc32c, GivesTheAnswersOfRfc3720) {
  if (!values::has_crc32c_instruction())
    GTEST_LOG_(INFO) << "this processor has no instruction for it";
  expect_crc({}, 0);
  expect_crc(Bytes(32, std::byte{0}), 0x8a9136aaU);
  expect_crc(Bytes(32, std::byte{0xff}), 0x62a8ab43U);
  Bytes rising(32);
  for (std::size_t i = 0; i < 32; ++i) rising[i] = static_cast<std::byte>(i);
  expect_crc(rising, 0x46dd794eU);
  constexpr std::string_view kDigits = "123456789";
  const std::span<const std::byte> digits = std::as_bytes(std::span(kDigits));
  expect_crc({digits.begin(), digits.end()}, 0xe3069283U);
}

TEST(Crc32c, IsTheSameInEveryWayForEveryLengthAndPlace) {
  Bytes bytes(10'000);
  Random(7).fill(bytes);
  for (std::size_t length : {1, 7, 8, 9, 63, 1024, 3071, 3072, 3073, 3080, 6143, 6144, 9999}) {
    for (const std::size_t begin : {0, 1, 5}) {
      const auto part = std::span(bytes).subspan(begin, std::min(length, bytes.size() - begin));
      const std::uint32_t expected = crc32c_by_bits(part);
      EXPECT_EQ(values::crc32c(part), expected) << length << " from " << begin;
      EXPECT_EQ(values::crc32c_by_table(part), expected) << length << " from " << begin;
    }
  }
}

TEST(Crc32c, GoesOnFromTheBytesInFront) {
  Bytes bytes(8'000);
  Random(8).fill(bytes);
  const std::uint32_t whole = values::crc32c(bytes);
  for (const std::size_t cut : {0, 1, 100, 3072, 7999, 8000}) {
    const auto front = std::span(bytes).first(cut), back = std::span(bytes).subspan(cut);
    EXPECT_EQ(values::crc32c(back, values::crc32c(front)), whole) << cut;
    EXPECT_EQ(values::crc32c_by_table(back, values::crc32c_by_table(front)), whole) << cut;
  }
}

}  // namespace
}  // namespace penstock
