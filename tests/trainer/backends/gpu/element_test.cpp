// SPDX-License-Identifier: Apache-2.0
// Tests the host's conversions, which replace the device's, against the definition of the formats.
#include "trainer/backends/gpu/kernels/element.h"

#include <gtest/gtest.h>

#include <cmath>

namespace penstock::gpu {
namespace {

/// A 16-bit format: sign, exponent, and `digits` bits of fraction.
struct Format {
  int digits, bias;
};
constexpr Format kF16{10, 15}, kBF16{7, 127};

/// The value of a pattern of finite bits.
double value_of(const Format& format, unsigned bits) {
  const int fraction = static_cast<int>(bits & ((1U << format.digits) - 1));
  const int exponent = static_cast<int>((bits & 0x7fffU) >> format.digits);
  const int whole = exponent == 0 ? fraction : fraction + (1 << format.digits);
  const double size = std::ldexp(whole, std::max(exponent, 1) - format.bias - format.digits);
  return bits >> 15 != 0 ? -size : size;
}
unsigned infinity_of(const Format& format) { return 0x7fffU >> format.digits << format.digits; }

template <class T>
void expect_values(const Format& format) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const float value = to_float(T{static_cast<std::uint16_t>(bits)});
    if ((bits & 0x7fffU) > infinity_of(format)) {
      ASSERT_TRUE(std::isnan(value)) << bits;
    } else if ((bits & 0x7fffU) == infinity_of(format)) {
      ASSERT_EQ(value, bits >> 15 != 0 ? -INFINITY : INFINITY);
      ASSERT_EQ(from_float<T>(value).bits, bits);
    } else {
      ASSERT_EQ(value, value_of(format, bits)) << bits;
      ASSERT_EQ(std::signbit(value), bits >> 15 != 0);
      ASSERT_EQ(from_float<T>(value).bits, bits);
    }
  }
}

/// Between each number and the next, the middle rounds to the even one, every other value to the
/// nearer one.
template <class T>
void expect_roundings(const Format& format) {
  for (unsigned low = 0; low < infinity_of(format); ++low) {
    const double above = low + 1 == infinity_of(format)
                             ? 2 * value_of(format, low) - value_of(format, low - 1)
                             : value_of(format, low + 1);
    const auto middle = static_cast<float>((value_of(format, low) + above) / 2);
    const unsigned even = low % 2 == 0 ? low : low + 1;
    ASSERT_EQ(from_float<T>(middle).bits, even) << low;
    ASSERT_EQ(from_float<T>(-middle).bits, even | 0x8000U) << low;
    ASSERT_EQ(from_float<T>(std::nextafter(middle, 0.F)).bits, low);
    ASSERT_EQ(from_float<T>(std::nextafter(middle, INFINITY)).bits, low + 1);
  }
}

TEST(GpuElement, F16IsItsDefinition) { expect_values<F16>(kF16); }
TEST(GpuElement, BF16IsItsDefinition) { expect_values<BF16>(kBF16); }
TEST(GpuElement, F16RoundsToNearestEven) { expect_roundings<F16>(kF16); }
TEST(GpuElement, BF16RoundsToNearestEven) { expect_roundings<BF16>(kBF16); }

TEST(GpuElement, WhatIsNotANumberStaysSo) {
  for (const float nan : {NAN, -NAN, float_of_bits(0x7f800001U), float_of_bits(0xffffffffU)}) {
    EXPECT_TRUE(std::isnan(to_float(from_float<F16>(nan))));
    EXPECT_TRUE(std::isnan(to_float(from_float<BF16>(nan))));
  }
}

TEST(GpuElement, WhatVanishesIsKnown) {
  EXPECT_EQ(to_float(from_float<F16>(kVanishes<F16>)), 0);
  EXPECT_GT(to_float(from_float<F16>(std::nextafter(kVanishes<F16>, 1.F))), 0);
  EXPECT_EQ(to_float(from_float<BF16>(kVanishes<BF16>)), 0);
  EXPECT_GT(to_float(from_float<BF16>(std::nextafter(kVanishes<BF16>, 1.F))), 0);
}

template <class T, int Width>
void expect_packs() {
  alignas(16) T from[Width], to[Width];
  Lanes<Width> lanes;
  for (int k = 0; k < Width; ++k) {
    lanes.of[k] = 1.5F * static_cast<float>(k) - 2;
    from[k] = from_float<T>(lanes.of[k]);
  }
  const Lanes<Width> loaded = load_lanes<Width>(static_cast<const T*>(from));
  store_lanes(to, lanes);
  for (int k = 0; k < Width; ++k) {
    EXPECT_EQ(loaded.of[k], lanes.of[k]);
    EXPECT_EQ(to_float(to[k]), lanes.of[k]);
  }
}

TEST(GpuElement, LanesKeepTheirOrder) {
  expect_packs<float, 8>();
  expect_packs<float, 4>();
  expect_packs<float, 1>();
  expect_packs<F16, 8>();
  expect_packs<F16, 4>();
  expect_packs<F16, 1>();
  expect_packs<BF16, 8>();
  expect_packs<BF16, 4>();
  expect_packs<BF16, 1>();
}

}  // namespace
}  // namespace penstock::gpu
