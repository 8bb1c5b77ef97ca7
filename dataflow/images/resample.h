// SPDX-License-Identifier: Apache-2.0
// Resampling, by any Filter, of an image that arrives row by row and never exists as a whole.
//
//   decoded rows (RGBX, a ring of a few) -> blend 4 output rows -> stretch their columns -> RGB out
//
// Rows are blended before columns are stretched: the first runs along memory, so the part that does
// not is done once for each row of the output and for four rows at a time. Weights and sums are
// float, and are rounded once, at the end; results are the same on every instruction set. One
// resampler belongs to one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "dataflow/filter_taps.h"
#include "dataflow/sample.h"

namespace penstock {

class Resampler {
 public:
  /// best: the widest vectors that this processor has. portable: those of the build.
  enum class Code : std::uint8_t { best, portable };
  /// How far ahead of rows_ready() rows may be written.
  static constexpr std::int32_t kRowsAhead = 4;

  explicit Resampler(Code code = Code::best);

  /// Begins an image that goes to `to`: u8, three channels. `to` is written until the last row.
  void begin(const Stretch& columns, const Stretch& rows, bool mirrored, const ImageView& to,
             Filter filter = Filter::bilinear);

  PixelRange columns() const noexcept { return columns_.reads(); }  ///< source columns it reads
  PixelRange rows() const noexcept { return rows_.reads(); }        ///< source rows it reads

  /// Source rows will hold columns [left, left + width), which include columns(). Call after
  /// begin().
  void set_row_layout(std::int32_t left, std::int32_t width);

  /// Where to write source row `row`: four bytes a pixel, the fourth ignored. Any row up to
  /// kRowsAhead beyond the last rows_ready(); rows before rows().first are scratch.
  std::uint8_t* row_buffer(std::int32_t row) noexcept {
    return first_row_ + static_cast<std::size_t>(row % ring_rows_) * row_bytes_;
  }

  /// All source rows before `end` are written; those from rows().first to rows().end are needed.
  void rows_ready(std::int32_t end);

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
  std::vector<const std::uint8_t*> taken_;  // the rows of one run
  std::vector<float> blocks_;               // [column][kGroup][RGBX]
  std::vector<std::byte> scratch_;          // output rows that do not exist, in the last group
};

}  // namespace penstock
