// SPDX-License-Identifier: Apache-2.0
// Decodes a window of a baseline JPEG image (ITU T.81, sequential DCT, Huffman coding, 8 bits):
// grey, or YCbCr with luma once or twice as wide and as high as chroma, in one scan of all
// components.
//
//   bits -> coefficients of what the window needs -> samples, two rows of units -> RGBX, row by row
//
// Pixels are bit-identical to libjpeg-turbo's accurate decode. The decoder does not repair damage:
// it stops, and the caller may decode again with libjpeg. One decoder belongs to one thread. Its
// memory grows with the widest image and is kept.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "dataflow/images/filter_taps.h"
#include "dataflow/images/instruction_set.h"
#include "dataflow/images/jpeg/entropy.h"
#include "dataflow/images/jpeg/huffman_tables.h"
#include "dataflow/images/jpeg/idct.h"
#include "dataflow/images/jpeg/pixels.h"

struct jpeg_decompress_struct;

namespace penstock::jpeg {

/// What the headers of a file contain.
struct Frame {
  std::int32_t width = 0, height = 0;         ///< in pixels
  std::int32_t components = 3;                ///< 1: grey; 3: YCbCr
  std::int32_t horizontal = 1, vertical = 1;  ///< luma samples for each chroma sample: 1 or 2
  std::uint32_t restart_interval = 0;         ///< in minimum coded units; 0: none
  std::array<const std::uint16_t*, 3> quantisation{};  ///< per component: 64, row * 8 + column
  std::array<HuffmanSpec, 3> dc, ac;                   ///< per component
  std::span<const std::byte> data;                     ///< the data after the scan's header
};

/// Describes the image whose headers jpeg_read_header() of libjpeg has read from memory. The frame
/// points into that memory. False if BaselineDecoder does not support this kind of image.
bool read_frame(const jpeg_decompress_struct& headers, Frame& frame);

class BaselineDecoder {
 public:
  explicit BaselineDecoder(InstructionSet set = best_instruction_set());

  /// Prepares the window of `frame`. The window must not be empty, and the frame's memory must
  /// outlive the decoding. `smooth`: upsample chroma with a triangle filter; otherwise repeat each
  /// sample. False: this decoder does not support such a frame.
  bool begin(const Frame& frame, const PixelRange& columns, const PixelRange& rows, bool smooth);

  /// The columns of the written rows, which include the window's. Pixels beyond the image may have
  /// any colour.
  std::int32_t left() const noexcept { return left_; }
  std::int32_t width() const noexcept { return width_; }

  /// Gives the address for row `row` of the window: four bytes a pixel, width() pixels from left()
  /// on. It is called for each row from the top, when all rows before are written.
  using PlaceOfRow = std::function<std::uint8_t*(std::int32_t row)>;
  /// Decodes from the first unit to the last row that the window needs. False if the data are
  /// damaged; some rows may have been written.
  bool decode(const PlaceOfRow& place);

 private:
  /// Samples of a component: the columns of the window's units, and the last two rows of units.
  struct Plane {
    std::int32_t horizontal = 1, vertical = 1;  // blocks per unit
    std::int32_t first_block = 0;               // index of its first block in a unit
    PixelRange columns{}, rows{};               // samples that the window needs
    Quantisation quantisation{};
    std::vector<std::uint8_t> samples;
    std::ptrdiff_t stride = 0;
    std::int32_t first_column = 0, ring_rows = 0;

    std::uint8_t* at(std::int32_t column, std::int32_t row) {
      return samples.data() + (row & (ring_rows - 1)) * stride + (column - first_column);
    }
  };
  static constexpr std::size_t kSumsBefore = 16;

  std::span<Plane> planes() { return std::span(planes_).first(plane_count_); }
  std::span<const Plane> planes() const { return std::span(planes_).first(plane_count_); }
  std::int32_t chroma_row(std::int32_t row, bool farther) const;
  void choose_samples(Plane& plane, const Frame& frame, const PixelRange& columns);
  void make_room();
  void mark_columns();
  std::uint8_t rows_mask(std::int32_t unit_row) const;
  bool wants_all(std::uint8_t all) const;
  void take(std::uint32_t column, std::uint32_t needed, const Unit& unit);
  void write_row(std::int32_t row, std::uint8_t* to);
  const std::uint8_t* chroma(Plane& plane, std::int32_t row, std::vector<std::uint8_t>& room);

  const Idct& idct_;
  const Upsample& upsample_;
  const Ycc& ycc_;
  EntropyDecoder entropy_;
  std::array<DcTable, 2> dc_;  // luma, chroma
  std::array<AcTable, 2> ac_;
  std::array<Plane, 3> planes_;
  std::uint32_t plane_count_ = 0;
  std::array<std::uint8_t, kMaxUnitBlocks> components_{};  // the component of each block of a unit
  PixelRange rows_{};
  std::int32_t left_ = 0, width_ = 0, chroma_height_ = 0;
  std::int32_t units_across_ = 0, first_unit_ = 0;    // columns of units
  std::int32_t unit_row_ = 0, end_row_ = 0;           // rows of units
  bool wide_ = false, high_ = false;                  // chroma is upsampled in this direction
  bool smooth_across_ = false, smooth_down_ = false;  // by the filter
  std::vector<std::uint8_t> needed_;                  // a mask of blocks for each column of units
  std::vector<std::uint16_t> sums_;  // one row of chroma, and the samples next to it
  std::array<std::vector<std::uint8_t>, 2> chroma_;  // one row of blue and red chroma, upsampled
  Idct::Beyond beyond_{};
};

}  // namespace penstock::jpeg
