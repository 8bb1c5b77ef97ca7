// SPDX-License-Identifier: Apache-2.0
// IEEE binary16 as bits: 5 of exponent, 10 of fraction. Rounding is to nearest, ties to even, and
// the same on every machine. NaN stays NaN.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace penstock::values {

struct Fp16 {
  std::uint16_t bits;
};

namespace float16 {
constexpr std::uint32_t kSign = 0x80000000U, kInfinity = 0x7f800000U;
constexpr std::uint32_t kRebias = (127U - 15U) << 23;  // between the exponents of f32 and f16
constexpr std::uint32_t kFirstNormal = kRebias + (1U << 23);  // 2^-14
constexpr std::uint32_t kFirstTooLarge = 0x47800000U;         // 2^16
/// Its last bit equals the smallest step of f16, so a sum with it is rounded to such steps.
constexpr float kStepper = 0.5F;
}  // namespace float16

/// Has no branches, so that compilers can vectorise loops.
[[gnu::always_inline]] inline void store(Fp16& to, float value) {
  using namespace float16;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & ~kSign;
  // Rounds the lower 13 bits away; a carry raises the exponent as it should.
  const std::uint32_t normal = (magnitude - kRebias + 0xfffU + ((magnitude >> 13) & 1U)) >> 13;
  const std::uint32_t small =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + kStepper) -
      std::bit_cast<std::uint32_t>(kStepper);
  const std::uint32_t no_number = 0x7e00U | ((magnitude >> 13) & 0x3ffU);
  const std::uint32_t large = magnitude > kInfinity ? no_number : 0x7c00U;
  std::uint32_t half = magnitude < kFirstNormal ? small : normal;
  half = magnitude < kFirstTooLarge ? half : large;
  to.bits = static_cast<std::uint16_t>(half | ((bits & kSign) >> 16));
}

[[gnu::always_inline]] inline float load(const Fp16& value) {
  using namespace float16;
  const std::uint32_t shifted = (value.bits & 0x7fffU) << 13;
  const std::uint32_t exponent = shifted & 0x0f800000U;
  const std::uint32_t normal = shifted + kRebias;
  const std::uint32_t large = normal + kRebias;  // infinity or NaN
  const auto small = std::bit_cast<std::uint32_t>(std::bit_cast<float>(normal + (1U << 23)) -
                                                  std::bit_cast<float>(kFirstNormal));
  std::uint32_t bits = exponent == 0x0f800000U ? large : normal;
  bits = exponent == 0 ? small : bits;
  return std::bit_cast<float>(bits | ((value.bits & 0x8000U) << 16));
}

/// Convert many values at a time, with the processor's own instructions if it has them.
void narrow(const float* values, Fp16* to, std::size_t count);
void widen(const Fp16* values, float* to, std::size_t count);

}  // namespace penstock::values
