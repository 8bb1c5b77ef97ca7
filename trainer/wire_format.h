// SPDX-License-Identifier: Apache-2.0
// The format of gradients between ranks: f32, or rounded to 16 bits. Contains the conversions and
// the loops that add the tensors of several ranks, vectorised for the current machine.
//
// Rounding is to nearest, ties to even, on every machine. A number that the format can hold is
// unchanged, so rounding twice equals rounding once. Intermediate sums are f32.
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
/// Throws ConfigError, which names `flag`, for any other word.
WireFormat parse_wire_format(std::string_view text, std::string_view flag);

constexpr std::size_t element_bytes(WireFormat format) {
  return format == WireFormat::f32 ? sizeof(float) : sizeof(std::uint16_t);
}

/// The largest relative error of rounding once: f16 2^-11, bf16 2^-8. In f16, the error of numbers
/// below 2^-14 is at most 2^-25, and numbers of at least 65520 become infinite.
double unit_roundoff(WireFormat format);

/// `wire` has element_bytes(format) for each of `values`. The format is not f32.
void narrow(WireFormat format, std::span<const float> values, std::span<std::byte> wire);
/// Returns how many values are not finite.
std::size_t widen(WireFormat format, std::span<const std::byte> wire, std::span<float> values);
/// Rounds `values` to the format in place. Returns how many are not finite after that. The format
/// is not f32.
std::size_t round_to(WireFormat format, std::span<float> values);

/// Elements [first, first + count) of every tensor become their sum over all tensors, added in the
/// order of the tensors. Each term is rounded to the format before the addition, and the sum after
/// it. Every element is read from memory once and written once. Returns how many sums are not
/// finite; always 0 for f32, which is not checked.
std::size_t add_into_all(WireFormat format, std::span<float* const> tensors, std::size_t first,
                         std::size_t count);

/// The sum over `parts`, of `count` elements each in the format, added in their order. `values`
/// replace part `own`: they are rounded to the format first, and then become the sum. If `sum` is
/// not null, it gets the sum in the format. Returns how many sums are not finite; always 0 for f32,
/// which is not checked.
std::size_t add_parts(WireFormat format, std::span<const std::byte* const> parts, std::size_t own,
                      float* values, std::byte* sum, std::size_t count);

}  // namespace penstock
