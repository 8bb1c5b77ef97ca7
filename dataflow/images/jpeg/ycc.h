// SPDX-License-Identifier: Apache-2.0
// Converts YCbCr to RGB by JFIF 1.02 (ITU-R BT.601 at full range), with factors of 16 fractional
// bits and the rounding of the Independent JPEG Group's library.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dataflow/images/jpeg/instruction_set.h"

namespace penstock::jpeg {

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
