// SPDX-License-Identifier: Apache-2.0
// Converts quantised coefficients to 8x8 samples: the accurate integer IDCT of the Independent JPEG
// Group's library ("islow"), after Loeffler, Ligtenberg and Moschytz, ICASSP 1989, with the same
// rounding after each of the two passes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "dataflow/images/instruction_set.h"

namespace penstock::jpeg {

/// Up to this dequantised coefficient the results equal libjpeg-turbo's. Beyond it, libjpeg-turbo's
/// 16-bit vectors wrap around, unlike its plain code. Images made from 8-bit samples have no such
/// coefficients.
constexpr std::int32_t kMaxCoefficient = 8191;

/// A quantisation table, row * 8 + column.
struct Quantisation {
  alignas(64) std::array<std::int16_t, 64> steps{};   ///< 1 to 255
  alignas(64) std::array<std::int16_t, 64> limits{};  ///< of coefficients, by kMaxCoefficient
  /// True if a coefficient of 10 bits, the largest except the first one, can exceed its limit. The
  /// caller must check the first coefficient itself.
  bool coarse = false;

  /// False if a step is not 1 to 255.
  bool assign(const std::uint16_t* table);
};

struct Idct {
  static const Idct& choose(InstructionSet set);

  /// Collects whether a value left the range in which libjpeg-turbo's vectors give the same result.
  /// If so, a bit above the lowest 15 is set in one element.
  using Beyond = std::array<std::uint32_t, 8>;
  static bool any(const Beyond& beyond);

  /// Writes eight rows of eight samples. `coefficients`: row * 8 + column, aligned to 16 bytes.
  using Function = void(const std::int16_t* coefficients, const Quantisation& quantisation,
                        std::uint8_t* to, std::ptrdiff_t stride, Beyond& beyond);
  Function* full;
  Function* corner;  ///< needs: only the first four columns of the first four rows are not zero
  Function* flat;    ///< needs: only the first coefficient is not zero

  /// The function for blocks whose coefficients end at this position in zigzag order.
  Function* for_last(unsigned place) const noexcept {
    return place == 0 ? flat : place <= 9 ? corner : full;
  }
};

}  // namespace penstock::jpeg
