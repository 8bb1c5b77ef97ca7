// SPDX-License-Identifier: Apache-2.0
// Normalisation on the host against plain double arithmetic; all 16-bit values.
#include "dataflow/images/normalisation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "dataflow/values/float16.h"

namespace penstock {
namespace {

/// torchvision's values, for pixels of 0 to 1.
constexpr double kMean[] = {0.485, 0.456, 0.406}, kStd[] = {0.229, 0.224, 0.225};

std::vector<std::uint8_t> all_bytes(std::size_t count) {
  std::vector<std::uint8_t> bytes(count);
  for (std::size_t i = 0; i < count; ++i)
    bytes[i] = static_cast<std::uint8_t>(i / 3 * 7 + i % 3 + i / 768);
  return bytes;
}

double plain(std::uint8_t byte, std::size_t channel, std::int32_t channels) {
  if (channels != 3) return byte / 127.5 - 1;
  return (byte / 255.0 - kMean[channel]) / kStd[channel];
}

TEST(Normalisation, IsThatOfPlainArithmetic) {
  // Whole vectors and remainders, for vectors of any width.
  for (const std::size_t count : {3U, 45U, 48U, 51U, 768U, 1536U, 1539U, 3U * 1001U}) {
    for (const std::int32_t channels : {1, 3}) {
      const std::vector<std::uint8_t> bytes = all_bytes(count);
      std::vector<float> values(count);
      normalise(bytes, channels, DType::f32, reinterpret_cast<std::byte*>(values.data()));
      std::vector<values::Fp16> halves(count);
      normalise(bytes, channels, DType::f16, reinterpret_cast<std::byte*>(halves.data()));
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t channel = i % static_cast<std::size_t>(channels);
        const double expected = plain(bytes[i], channel, channels);
        ASSERT_NEAR(values[i], expected, 1e-6) << i << " of " << count;
        // Half a unit in the last place, plus the error of f32.
        ASSERT_NEAR(values::load(halves[i]), expected, std::abs(expected) * 0x1p-11 + 2e-6) << i;
      }
    }
  }
}

TEST(Normalisation, WhatAFeederDidIsNotDoneAgain) {
  BatchSpec batch;
  EXPECT_EQ(channel_scale(1, batch).factor, 1 / 57.12F);
  EXPECT_EQ(channel_scale(1, batch).offset, -116.28F / 57.12F);
  batch.normalised = true;
  EXPECT_EQ(channel_scale(1, batch).factor, 1);
  EXPECT_EQ(channel_scale(1, batch).offset, 0);
}

TEST(Float16, EveryNumberComesBack) {
  std::vector<values::Fp16> halves(0x10000), back(0x10000);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i].bits = static_cast<std::uint16_t>(i);
  std::vector<float> values(halves.size());
  values::widen(halves.data(), values.data(), values.size());
  values::narrow(values.data(), back.data(), back.size());
  for (std::size_t i = 0; i < halves.size(); ++i) {
    const bool is_number = (i & 0x7fffU) <= 0x7c00U;
    if (!is_number) {
      EXPECT_TRUE(std::isnan(values[i]) && std::isnan(values::load(halves[i]))) << i;
      continue;
    }
    ASSERT_EQ(back[i].bits, i);
    ASSERT_EQ(values::load(halves[i]), values[i]) << i;
  }
}

TEST(Float16, RoundsToNearestAndTiesToEven) {
  const float values[] = {1 + 0x1p-11F, 1 + 3 * 0x1p-11F, 1 + 0x1.1p-11F, 65519.F,
                          65520.F,      -0x1p-25F,        0x1.1p-25F,     -0.F};
  const std::uint16_t expected[] = {0x3c00, 0x3c02, 0x3c01, 0x7bff, 0x7c00, 0x8000, 0x0001, 0x8000};
  values::Fp16 many[8];
  values::narrow(values, many, 8);
  for (std::size_t i = 0; i < 8; ++i) {
    values::Fp16 one{};
    values::store(one, values[i]);
    EXPECT_EQ(one.bits, expected[i]) << values[i];
    EXPECT_EQ(many[i].bits, expected[i]) << values[i];
  }
}

}  // namespace
}  // namespace penstock
