// SPDX-License-Identifier: Apache-2.0
// In what form gradients travel between ranks: as they are, or rounded to 16 bits. Conversions, and
// the loops that add tensors of several ranks; vectorised for the machine that they run on.
//
// Rounding is to nearest, ties to even, on every machine alike; a number that a format holds is
// left as it is, so that rounding twice is rounding once. Sums are kept in f32 while they grow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace penstock {

/// f16: IEEE binary16. bf16: the upper half of an f32.
enum class WireFormat : std::uint8_t { f32, f16, bf16 };

/// "fp32", "fp16", "bf16".
std::string_view to_string(WireFormat format);
/// Throws ConfigError, which names `flag`, for other words.
WireFormat parse_wire_format(std::string_view text, std::string_view flag);

constexpr std::size_t element_bytes(WireFormat format) {
  return format == WireFormat::f32 ? sizeof(float) : sizeof(std::uint16_t);
}

/// How far rounding a number once may take it, as a share of the number: f16 2^-11, bf16 2^-8.
/// Numbers below 2^-14 are taken at most kSmallestStep / 2 away by f16, and those of 65520 and more
/// become infinite.
double unit_roundoff(WireFormat format);
inline constexpr double kSmallestStep = 0x1p-24;

/// `wire` has element_bytes(format) for each of `values`. The format is not f32.
void narrow(WireFormat format, std::span<const float> values, std::span<std::byte> wire);
/// Returns how many of them are not finite.
std::size_t widen(WireFormat format, std::span<const std::byte> wire, std::span<float> values);
/// Makes `values` what the format holds of them; how many of them are not finite then. The format
/// is not f32.
std::size_t round_to(WireFormat format, std::span<float> values);

/// Elements [first, first + count) of every tensor become their sum over all tensors, added in
/// their order. Each is rounded to the format before, and the sum after. Every element is read from
/// memory once and written once. Returns how many sums are not finite; of f32, 0 unseen.
std::size_t add_into_all(WireFormat format, std::span<float* const> tensors, std::size_t first,
                         std::size_t count);

/// The sum over `parts`, of `count` elements in the format, added in their order. In the place of
/// part `own` stand `values`: they are rounded to the format before, and become the sum; `sum`,
/// where it is not null, gets it in the format. Returns how many sums are not finite; of f32, 0
/// unseen.
std::size_t add_parts(WireFormat format, std::span<const std::byte* const> parts, std::size_t own,
                      float* values, std::byte* sum, std::size_t count);

}  // namespace penstock
