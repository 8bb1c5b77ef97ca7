// SPDX-License-Identifier: Apache-2.0
// Rows of chroma at half the size to rows of the image's size: every sample twice, or by a triangle
// filter with the roundings of the Independent JPEG Group's library ("fancy upsampling"): an output
// takes three quarters of the nearer sample and a quarter of the farther one, in each direction.
//
// Functions work on whole vectors: up to kOver elements beyond `count` are read and written.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dataflow/jpeg/instruction_set.h"

namespace penstock::jpeg {

struct Upsample {
  static const Upsample& choose(InstructionSet set);
  static constexpr std::size_t kOver = 32;

  /// `count` sums of two rows: 3 * near + far.
  void (*blend)(const std::uint8_t* near, const std::uint8_t* far, std::uint16_t* sums,
                std::size_t count);
  /// The same with one row: no more than the samples.
  void (*widen)(const std::uint8_t* row, std::uint16_t* sums, std::size_t count);
  /// 2 * count outputs of `count` sums of two rows. Reads sums[-1] and sums[count], which at the
  /// image's sides are those beside them once more.
  void (*smooth_blended)(const std::uint16_t* sums, std::uint8_t* to, std::size_t count);
  /// The same from one row, widened.
  void (*smooth)(const std::uint16_t* sums, std::uint8_t* to, std::size_t count);
  /// `count` outputs between two rows: (3 * near + far + bias) / 4.
  void (*between)(const std::uint8_t* near, const std::uint8_t* far, std::uint8_t* to,
                  std::size_t count, std::uint16_t bias);
  /// 2 * count outputs, each sample twice.
  void (*repeat)(const std::uint8_t* row, std::uint8_t* to, std::size_t count);
};

}  // namespace penstock::jpeg
