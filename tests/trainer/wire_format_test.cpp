// SPDX-License-Identifier: Apache-2.0
// Tests 16 bits on the wire: each conversion against rounding in double, and sums against their
// bounds.
#include "trainer/wire_format.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/random.h"

namespace penstock {
namespace {

struct Format {
  WireFormat format;
  int digits;        // of the significand
  double smallest;   // step
  double too_large;  // the smallest value that rounds to infinity
};
constexpr Format kF16{WireFormat::f16, 11, 0x1p-24, 65520};
constexpr Format kBf16{WireFormat::bf16, 8, 0x1p-133, 0x1.ffp127};

/// Rounds to nearest, ties to even.
double rounded(const Format& format, double value) {
  if (!std::isfinite(value) || value == 0) return value;
  if (std::abs(value) >= format.too_large) {
    return std::copysign(std::numeric_limits<double>::infinity(), value);
  }
  int exponent = 0;
  std::frexp(value, &exponent);
  const double step = std::max(std::ldexp(1.0, exponent - format.digits), format.smallest);
  return std::nearbyint(value / step) * step;
}

std::vector<float> all_of(WireFormat format) {
  std::vector<std::uint16_t> bits(1 << 16);
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint16_t>(i);
  std::vector<float> values(bits.size());
  widen(format, std::as_bytes(std::span(bits)), values);
  return values;
}

/// f32 values of every magnitude and both signs, and values next to the limits of 16-bit formats.
std::vector<float> trying_numbers(const Format& format) {
  std::vector<float> values;
  Random random(7, 1);
  for (int i = 0; i < 200'000; ++i) {
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random.below(1ULL << 32))));
  }
  for (const float edge : all_of(format.format)) {
    values.push_back(edge);
    const float next = std::nextafter(edge, std::numeric_limits<float>::max());
    values.push_back((edge + next) / 2);
    values.push_back(next);
  }
  // Halfway between neighbours: ties.
  const std::vector<float> all = all_of(format.format);
  for (std::size_t i = 0; i + 1 < all.size(); ++i) {
    values.push_back(static_cast<float>((double{all[i]} + double{all[i + 1]}) / 2));
  }
  return values;
}

class WireFormats : public testing::TestWithParam<Format> {};

TEST_P(WireFormats, EveryPatternIsTheNumberThatItStandsFor) {
  const Format& format = GetParam();
  const std::vector<float> values = all_of(format.format);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool negative = i >= 0x8000;
    EXPECT_EQ(std::signbit(values[i]), negative) << i;
    if (std::isnan(values[i])) continue;
    EXPECT_EQ(double{values[i]}, rounded(format, values[i])) << i;
    const bool ascends = i % 0x8000 == 0 || std::abs(values[i]) > std::abs(values[i - 1]);
    EXPECT_TRUE(ascends) << i;
  }
  const std::size_t infinity = format.format == WireFormat::f16 ? 0x7c00 : 0x7f80;
  EXPECT_EQ(values[infinity], std::numeric_limits<float>::infinity());
  EXPECT_EQ(values[1], format.smallest);
  EXPECT_TRUE(std::isnan(values[infinity + 1]));
}

TEST_P(WireFormats, RoundsToNearestAndOnceOnly) {
  const Format& format = GetParam();
  std::vector<float> values = trying_numbers(format);
  const std::vector<float> given = values;
  const std::size_t nonfinite = round_to(format.format, values);
  std::size_t expected = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) ++expected;
    if (std::isnan(given[i])) {
      EXPECT_TRUE(std::isnan(values[i]));
      continue;
    }
    ASSERT_EQ(double{values[i]}, rounded(format, given[i])) << given[i];
    ASSERT_EQ(std::signbit(values[i]), std::signbit(given[i])) << given[i];
  }
  EXPECT_EQ(nonfinite, expected);
  std::vector<float> again = values;
  round_to(format.format, again);
  EXPECT_EQ(std::memcmp(again.data(), values.data(), values.size() * sizeof(float)), 0);

  std::vector<std::byte> wire(given.size() * element_bytes(format.format));
  narrow(format.format, given, wire);
  std::vector<float> back(given.size());
  EXPECT_EQ(widen(format.format, wire, back), expected);
  EXPECT_EQ(std::memcmp(back.data(), values.data(), values.size() * sizeof(float)), 0);
}

TEST_P(WireFormats, RoundsOneAsItRoundsManyAndStaysWithinItsUnit) {
  // The processor's instructions, if it has them, convert many values at once; plain code converts
  // a single one.
  const Format& format = GetParam();
  const std::vector<float> numbers = trying_numbers(format);
  std::vector<float> many = numbers;
  round_to(format.format, many);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const float given = numbers[i];
    float value = given;
    round_to(format.format, {&value, 1});
    ASSERT_EQ(std::bit_cast<std::uint32_t>(value), std::bit_cast<std::uint32_t>(many[i])) << given;
    if (!std::isfinite(value) || !std::isfinite(given)) continue;
    ASSERT_LE(std::abs(double{value} - given),
              std::max(unit_roundoff(format.format) * std::abs(given), format.smallest / 2))
        << given;
  }
}

INSTANTIATE_TEST_SUITE_P(Of16Bits, WireFormats, testing::Values(kF16, kBf16),
                         [](const testing::TestParamInfo<Format>& format) {
                           return std::string(to_string(format.param.format));
                         });

std::vector<std::vector<float>> tensors_of(std::size_t ranks, std::size_t count) {
  std::vector<std::vector<float>> tensors(ranks, std::vector<float>(count));
  Random random(3, 9);
  for (std::vector<float>& tensor : tensors) {
    for (float& value : tensor) {
      value = static_cast<float>(static_cast<double>(random.below(2001)) - 1000) / 777.0F;
    }
  }
  return tensors;
}

/// The result of adding in the order of ranks, with f32 sums.
float plain_sum(WireFormat format, const std::vector<std::vector<float>>& tensors, std::size_t i) {
  const auto through = [format](float value) {
    if (format != WireFormat::f32) round_to(format, {&value, 1});
    return value;
  };
  float sum = through(tensors[0][i]);
  for (std::size_t rank = 1; rank < tensors.size(); ++rank) sum += through(tensors[rank][i]);
  return through(sum);
}

TEST(WireSums, AreOfTheOrderOfRanksAndTouchNothingBeside) {
  for (const WireFormat format : {WireFormat::f32, WireFormat::f16, WireFormat::bf16}) {
    for (const std::size_t ranks : {1U, 2U, 3U, 7U}) {
      for (const std::size_t count : {1U, 15U, 64U, 513U, 2001U}) {
        const std::vector<std::vector<float>> given = tensors_of(ranks, count + 2);
        std::vector<std::vector<float>> tensors = given;
        std::vector<float*> pointers;
        for (std::vector<float>& tensor : tensors) pointers.push_back(tensor.data());
        EXPECT_EQ(add_into_all(format, pointers, 1, count), 0U);
        for (std::size_t rank = 0; rank < ranks; ++rank) {
          ASSERT_EQ(tensors[rank].front(), given[rank].front());
          ASSERT_EQ(tensors[rank].back(), given[rank].back());
          for (std::size_t i = 1; i <= count; ++i) {
            ASSERT_EQ(tensors[rank][i], plain_sum(format, given, i))
                << to_string(format) << ", " << ranks << " ranks, element " << i;
          }
        }
        std::vector<std::vector<std::byte>> parts(
            ranks, std::vector<std::byte>(count * element_bytes(format)));
        std::vector<const std::byte*> begins;
        for (std::size_t rank = 0; rank < ranks; ++rank) {
          const std::span<const float> values = std::span(given[rank]).first(count);
          if (format == WireFormat::f32) {
            std::memcpy(parts[rank].data(), values.data(), values.size_bytes());
          } else {
            narrow(format, values, parts[rank]);
          }
          begins.push_back(parts[rank].data());
        }
        std::vector<std::byte> sum(count * element_bytes(format));
        const std::size_t own = ranks / 2;
        begins[own] = nullptr;  // in its place:
        std::vector<float> values(given[own].begin(), given[own].end() - 2);
        EXPECT_EQ(add_parts(format, begins, own, values.data(), sum.data(), count), 0U);
        std::vector<float> sums(count);
        if (format == WireFormat::f32) {
          std::memcpy(sums.data(), sum.data(), sum.size());
        } else {
          widen(format, sum, sums);
        }
        EXPECT_EQ(values, sums);
        for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(sums[i], plain_sum(format, given, i));
      }
    }
  }
}

TEST(WireSums, CountWhatOverflows) {
  std::vector<float> a(1000, 1), b(1000, 1);
  a[10] = b[10] = 40000;  // each fits fp16, their sum does not
  a[999] = 1e6F;
  b[500] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float*> tensors{a.data(), b.data()};
  EXPECT_EQ(add_into_all(WireFormat::f16, tensors, 0, a.size()), 3U);
  EXPECT_EQ(a[10], std::numeric_limits<float>::infinity());
  EXPECT_EQ(b[10], a[10]);
  EXPECT_TRUE(std::isnan(a[500]));
  EXPECT_EQ(a[11], 2);
}

TEST(WireFormat, IsAWordOfThree) {
  EXPECT_EQ(parse_wire_format("bf16", "--wire"), WireFormat::bf16);
  EXPECT_EQ(parse_wire_format("fp32", "--wire"), WireFormat::f32);
  EXPECT_THROW(parse_wire_format("float16", "--wire"), ConfigError);
}

}  // namespace
}  // namespace penstock
