// SPDX-License-Identifier: Apache-2.0
// Resamples an image with any Filter, row by row. The whole image is never in memory.
//
//   decoded rows (RGBX, a ring of a few) -> blend 4 output rows -> stretch their columns -> RGB out
//
// Rows are blended before columns are stretched. Blending runs along memory; stretching does not,
// so it happens once per output row and for four rows at a time. Weights and sums are float and are
// rounded once, at the end. Results are the same on every instruction set. One resampler belongs to
// one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "dataflow/images/filter_taps.h"
#include "dataflow/images/instruction_set.h"
#include "dataflow/sample.h"

namespace penstock {

class Resampler {
 public:
  /// Rows may be written up to this far ahead of rows_ready().
  static constexpr std::int32_t kRowsAhead = 4;

  explicit Resampler(InstructionSet set = best_instruction_set());

  /// Starts an image with the destination `to`: u8, three channels. `to` is written until the last
  /// row.
  void begin(const Stretch& columns, const Stretch& rows, bool mirrored, const ImageView& to,
             Filter filter = Filter::bilinear);

  PixelRange columns() const noexcept { return columns_.reads(); }  ///< source columns it reads
  PixelRange rows() const noexcept { return rows_.reads(); }        ///< source rows it reads

  /// Says that source rows will hold columns [left, left + width), which must include columns().
  /// Call it after begin().
  void set_row_layout(std::int32_t left, std::int32_t width);

  /// The address for source row `row`: four bytes a pixel, the fourth ignored. `row` may be up to
  /// kRowsAhead beyond the last rows_ready(). Rows before rows().first are scratch.
  std::uint8_t* row_buffer(std::int32_t row) noexcept {
    return first_row_ + static_cast<std::size_t>(row % ring_rows_) * row_bytes_;
  }

  /// Says that all source rows before `end` are written. Only rows().first to rows().end are
  /// needed.
  void rows_ready(std::int32_t end);

  /// Resamples an image that is in memory. Call it after begin(), in place of the members above.
  /// `fill(row, to)` writes columns() of a source row to `to`.
  template <typename Fill>
  void run(const Fill& fill) {
    set_row_layout(columns().first, columns().end - columns().first);
    for (std::int32_t row = rows().first; row < rows().end; ++row) {
      fill(row, row_buffer(row));
      rows_ready(row + 1);
    }
  }

 private:
  static constexpr std::int32_t kGroup = 4;  // output rows made at a time
  struct Kernels;

  PixelRange group_reads(std::int32_t first_output) const noexcept;
  void write_group();

  const Kernels& kernels_;
  FilterTaps columns_, rows_;
  bool clamps_ = false;  // sums may leave [0, 255]
  ImageView to_;
  std::int32_t next_output_ = 0;
  std::vector<std::uint8_t> ring_;
  std::uint8_t* first_row_ = nullptr;  // in ring_
  std::int32_t ring_rows_ = 1;
  std::size_t row_bytes_ = 0, left_bytes_ = 0;
  std::vector<const std::uint8_t*> taken_;  // the source rows of one run
  std::vector<float> blocks_;               // [column][kGroup][RGBX]
  std::vector<std::byte> scratch_;  // for rows of the last group that the output does not have
};

}  // namespace penstock
