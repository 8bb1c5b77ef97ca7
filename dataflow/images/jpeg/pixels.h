// SPDX-License-Identifier: Apache-2.0
// Turns the samples of components into pixels: upsamples chroma, and converts YCbCr to RGB.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dataflow/images/instruction_set.h"

namespace penstock::jpeg {

/// Upsamples rows of chroma from half the image's size to the full size. It repeats every sample,
/// or applies a triangle filter with the rounding of the Independent JPEG Group's library ("fancy
/// upsampling"): an output is three quarters of the nearer sample and a quarter of the farther one,
/// in each direction. Functions work on whole vectors: they read and write up to kOver elements
/// beyond `count`.
struct Upsample {
  static const Upsample& choose(InstructionSet set);
  static constexpr std::size_t kOver = 32;

  /// Computes `count` sums of two rows: 3 * near + far.
  void (*blend)(const std::uint8_t* near, const std::uint8_t* far, std::uint16_t* sums,
                std::size_t count);
  /// The same layout from one row: just the samples.
  void (*widen)(const std::uint8_t* row, std::uint16_t* sums, std::size_t count);
  /// Makes 2 * count outputs from `count` sums of two rows. Reads sums[-1] and sums[count]; at the
  /// image's sides these repeat their neighbours.
  void (*smooth_blended)(const std::uint16_t* sums, std::uint8_t* to, std::size_t count);
  /// The same from one widened row.
  void (*smooth)(const std::uint16_t* sums, std::uint8_t* to, std::size_t count);
  /// Makes `count` outputs between two rows: (3 * near + far + bias) / 4.
  void (*between)(const std::uint8_t* near, const std::uint8_t* far, std::uint8_t* to,
                  std::size_t count, std::uint16_t bias);
  /// Makes 2 * count outputs: each sample twice.
  void (*repeat)(const std::uint8_t* row, std::uint8_t* to, std::size_t count);
};

/// Converts YCbCr to RGB by JFIF 1.02 (ITU-R BT.601 at full range), with factors of 16 fractional
/// bits and the rounding of the Independent JPEG Group's library.
struct Ycc {
  static const Ycc& choose(InstructionSet set);
  /// Pixels are processed in groups of this size: `count` is rounded up, for reading and for
  /// writing.
  static constexpr std::size_t kStep = 16;

  /// Writes `count` pixels of four bytes: red, green, blue, 0.
  void (*to_rgbx)(const std::uint8_t* y, const std::uint8_t* blue, const std::uint8_t* red,
                  std::uint8_t* to, std::size_t count);
  void (*grey_to_rgbx)(const std::uint8_t* y, std::uint8_t* to, std::size_t count);
};

}  // namespace penstock::jpeg
