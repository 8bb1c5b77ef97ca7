// SPDX-License-Identifier: Apache-2.0
// The gradient of a convolution's weights on AMX tiles, for bf16 activations with channels last.
// Sums are f32.
//
// One tile product takes 32 pixels: 16 channels of the output's gradient by those pixels, times
// those pixels by 16 channels of the input. A place (row, column) of the filter moves the pixels of
// the input. If both images are padded to one width, that is a constant shift of the pixel's
// number, so all places use the same packed pixels. A stride first divides the input into one grid
// for each remainder of row and column.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "trainer/graph.h"

namespace penstock::cpu {

/// A convolution without groups; `in` and `out` are the shapes of one image. out.channels is a
/// multiple of 16.
struct ConvolutionShape {
  std::int32_t images = 0;
  ImageShape in{}, out{};
  Window window{};
};

class WeightGradient {
 public:
  /// Whether the CPU has AMX tiles for bf16 and the kernel lets this process use them.
  static bool is_available();
  /// The work is divided for `threads` threads.
  WeightGradient(const ConvolutionShape& shape, std::int32_t threads);

  std::size_t scratch_bytes() const noexcept { return parts_ * part_bytes_; }
  /// x and gradient_y are bf16 in the order N, H, W, C. gradient is f32 in the order of output
  /// channel, row, column, input channel; bias is f32, or null. Runs on the calling thread's team.
  void run(const void* x, const void* gradient_y, std::byte* scratch, float* gradient,
           float* bias) const;

 private:
  /// Where pixels lie in an image, in elements; kNone: beside it, so that the pixel is zero.
  using Offsets = std::vector<std::uint32_t>;
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  struct Grid {
    std::int32_t row = 0, column = 0;  // of its first pixel in the image
    /// Pairs of pixels are packed together. There are pairs that begin with even pixels and pairs
    /// that begin with odd ones, for even and odd shifts.
    std::array<bool, 2> is_used{};
    std::array<std::size_t, 2> at{};  // in the scratch of a part, in bytes
    Offsets pixels{};
  };
  struct Tap {
    std::size_t grid = 0, shift = 0;
  };

  void make_grids();
  void divide(std::int32_t threads);
  void run_part(const std::uint16_t* x, const std::uint16_t* gradient_y, std::byte* scratch,
                std::size_t part) const;
  void pack(const std::uint16_t* x, const std::uint16_t* gradient_y, std::size_t image,
            std::size_t slot, std::byte* scratch) const;
  void multiply(std::size_t images, bool begins, std::byte* scratch) const;
  void add_parts(const std::byte* scratch, float* gradient) const;

  ConvolutionShape shape_;
  std::size_t all_pixels_ = 0;  // in folded images, of which the last may be shorter; else 0
  std::size_t inputs_ = 0, outputs_ = 0;  // blocks of 16 channels
  std::vector<Grid> grids_;
  Offsets outputs_at_;  // in the width of the grids
  std::vector<Tap> taps_;
  std::size_t width_ = 0;        // of grids
  std::size_t image_steps_ = 0;  // steps of 32 pixels
  std::size_t image_pairs_ = 0;
  std::size_t images_at_once_ = 1;
  std::size_t parts_ = 1, part_bytes_ = 0;
  std::size_t gradients_at_ = 0, sums_at_ = 0;  // in the scratch of a part, in bytes
};

}  // namespace penstock::cpu
