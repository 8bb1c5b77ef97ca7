// SPDX-License-Identifier: Apache-2.0
// The 16-bit floating-point types as bits, and rounding to them: to the nearest value, ties to
// even, overflow to infinity. NaN stays NaN.
#pragma once

#include <bit>
#include <cstdint>

namespace penstock::gpu {

inline std::uint16_t to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16U & 0x8000U;
  std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return static_cast<std::uint16_t>(sign | 0x7E00U);
  if (magnitude >= std::bit_cast<std::uint32_t>(65520.F)) {  // halfway from 65504 to 65536
    return static_cast<std::uint16_t>(sign | 0x7C00U);
  }
  if (magnitude < std::bit_cast<std::uint32_t>(0x1p-14F)) {
    // Below this value, the last place of f16 is 2^-24, like the last place of an f32 in [0.5, 1).
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    magnitude = std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(0.5F);
    return static_cast<std::uint16_t>(sign | magnitude);
  }
  magnitude += 0xFFFU + (magnitude >> 13U & 1U);
  return static_cast<std::uint16_t>(sign | ((magnitude >> 13U) - (112U << 10U)));
}

inline float from_f16(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000U) << 16U, magnitude = half & 0x7FFFU;
  if (magnitude >= 0x7C00U) {
    return std::bit_cast<float>(sign | 0x7F800000U | (magnitude & 0x3FFU) << 13U);
  }
  const float value = std::bit_cast<float>(magnitude << 13U) * 0x1p112F;  // biases 15 and 127
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
}

inline std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<std::uint16_t>(bits >> 16U | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + (bits >> 16U & 1U)) >> 16U);
}

inline float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
}

/// Keeps f32's range and ten fraction bits, as matrix units round f32 operands.
inline float round_to_tf32(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7F800000U) == 0x7F800000U) return value;
  return std::bit_cast<float>((bits + 0xFFFU + (bits >> 13U & 1U)) & ~0x1FFFU);
}

}  // namespace penstock::gpu
