// SPDX-License-Identifier: Apache-2.0
#include "dataflow/images/resample.h"

#include <algorithm>
#include <cstring>

#include "dataflow/error.h"

namespace penstock {

// ---- kernels ----------------------------------------------------------------

namespace {

// The compiler's own vectors, which it lowers to the function's target. Sixteen elements are four
// RGBX pixels of one row, or one pixel of four rows.
using Bytes16 = std::uint8_t __attribute__((vector_size(16)));
using Shorts16 = std::uint16_t __attribute__((vector_size(32)));
using Ints16 = std::int32_t __attribute__((vector_size(64)));
using Floats16 = float __attribute__((vector_size(64)));
constexpr std::size_t kPixelBytes = 4;
constexpr std::size_t kBlock = 16;

/// blocks[x][r] = sum over k of weights[k] * rows[k][x], for four pixels at a time.
struct Blend {
  [[gnu::always_inline]] static void run(const std::uint8_t* const* rows, const float* weights,
                                         std::int32_t count, std::size_t pixels, float* blocks) {
    for (std::size_t x = 0; x < pixels; x += 4) {
      Floats16 sum{};
      for (std::int32_t k = 0; k < count; ++k) {
        Bytes16 bytes;
        std::memcpy(&bytes, rows[k] + x * kPixelBytes, sizeof bytes);
        // Converts in steps of two: the compiler splits wider conversions element by element.
        const auto shorts = __builtin_convertvector(bytes, Shorts16);
        const auto ints = __builtin_convertvector(shorts, Ints16);
        sum += __builtin_convertvector(ints, Floats16) * weights[k];
      }
      float quads[kBlock];
      std::memcpy(quads, &sum, sizeof sum);
      for (std::size_t p = 0; p < 4; ++p) {
        std::memcpy(blocks + (x + p) * kBlock, quads + p * 4, 4 * sizeof(float));
      }
    }
  }
};

/// Makes four rows of `outputs` RGB pixels from blocks[x]. All outputs read as many blocks as the
/// longest run, with zero weights beyond their own: a varying count costs more than it saves.
/// Weights add up to one, so sums with positive weights leave [0, 255] by no more than rounding;
/// `clamps` is for negative weights.
template <bool clamps>
struct StretchColumns {
  [[gnu::always_inline]] static void run(const float* blocks, const FilterTaps& taps,
                                         std::int32_t low, std::int32_t outputs,
                                         std::byte* const* to) {
    const std::int32_t count = taps.max_count();
    for (std::int32_t i = 0; i < outputs; ++i) {
      const FilterTaps::Run run = taps.run(i);
      const float* block = blocks + static_cast<std::size_t>(run.first - low) * kBlock;
      Floats16 sum = Floats16{} + 0.5F;
      for (std::int32_t k = 0; k < count; ++k, block += kBlock) {
        Floats16 pixel;
        std::memcpy(&pixel, block, sizeof pixel);
        sum += pixel * run.weights[k];
      }
      if constexpr (clamps) {
        sum = sum < 0.0F ? Floats16{} : sum;
        sum = sum > 255.5F ? Floats16{} + 255.5F : sum;
      }
      const auto shorts = __builtin_convertvector(__builtin_convertvector(sum, Ints16), Shorts16);
      const auto bytes = __builtin_convertvector(shorts, Bytes16);
      std::uint8_t quads[kBlock];
      std::memcpy(quads, &bytes, sizeof bytes);
      // The fourth byte is overwritten by the next pixel; the last pixel must not write one.
      const std::size_t offset = static_cast<std::size_t>(i) * 3;
      if (i + 1 < outputs) {
        for (std::size_t r = 0; r < 4; ++r) std::memcpy(to[r] + offset, quads + r * 4, 4);
      } else {
        for (std::size_t r = 0; r < 4; ++r) std::memcpy(to[r] + offset, quads + r * 4, 3);
      }
    }
  }
};

}  // namespace

struct Resampler::Kernels {
  void (*blend)(const std::uint8_t* const*, const float*, std::int32_t, std::size_t, float*);
  using Columns = void (*)(const float*, const FilterTaps&, std::int32_t, std::int32_t,
                           std::byte* const*);
  Columns stretch, stretch_clamped;

  static const Kernels& choose(InstructionSet set) {
    static constexpr Kernels kAll[] = {
        {portable<Blend>, portable<StretchColumns<false>>, portable<StretchColumns<true>>},
        {avx2<Blend>, avx2<StretchColumns<false>>, avx2<StretchColumns<true>>},
        {avx512<Blend>, avx512<StretchColumns<false>>, avx512<StretchColumns<true>>}};
    return kAll[static_cast<std::size_t>(set)];
  }
};

// ---- Resampler --------------------------------------------------------------

Resampler::Resampler(InstructionSet set) : kernels_(Kernels::choose(set)) {}

void Resampler::begin(const Stretch& columns, const Stretch& rows, bool mirrored,
                      const ImageView& to, Filter filter) {
  PENSTOCK_ASSERT(to.dtype == DType::u8 && to.shape.channels == 3);
  to_ = to;
  next_output_ = 0;
  clamps_ = overshoots(filter);
  columns_.build(columns, to.shape.width, mirrored, filter);
  rows_.build(rows, to.shape.height, false, filter);
  scratch_.resize(static_cast<std::size_t>(to.shape.width) * 3);
}

PixelRange Resampler::group_reads(std::int32_t first_output) const noexcept {
  const std::int32_t last = std::min(first_output + kGroup, to_.shape.height) - 1;
  const FilterTaps::Run bottom = rows_.run(last);
  return {rows_.run(first_output).first, bottom.first + bottom.count};
}

void Resampler::set_row_layout(std::int32_t left, std::int32_t width) {
  const PixelRange reads = columns_.reads();
  PENSTOCK_ASSERT(left >= 0 && left <= reads.first && left + width >= reads.end);
  left_bytes_ = static_cast<std::size_t>(reads.first - left) * kPixelBytes;
  // blend() reads whole vectors, up to three pixels beyond the last column. Rows begin half-way
  // between 32-byte lines: libjpeg-turbo writes aligned lines past the cache, but blend() reads
  // them next.
  constexpr std::size_t kLine = 32;
  row_bytes_ =
      (static_cast<std::size_t>(width) * kPixelBytes + sizeof(Bytes16)) / kLine * kLine + kLine;
  std::int32_t span = 0;
  for (std::int32_t output = 0; output < to_.shape.height; output += kGroup) {
    const PixelRange group = group_reads(output);
    span = std::max(span, group.end - group.first);
  }
  ring_rows_ = span + kRowsAhead;
  const std::size_t ring_bytes = static_cast<std::size_t>(ring_rows_) * row_bytes_ + kLine;
  if (ring_.size() < ring_bytes) ring_.resize(ring_bytes);
  const auto address = reinterpret_cast<std::uintptr_t>(ring_.data());
  first_row_ = ring_.data() + (kLine + kLine / 2 - address % kLine) % kLine;
  taken_.resize(static_cast<std::size_t>(span));
  // blend() writes up to three pixels beyond the last column, stretch() reads up to max_count - 1.
  const auto block_count =
      static_cast<std::size_t>(reads.end - reads.first + std::max(4, columns_.max_count()));
  if (blocks_.size() < block_count * kBlock) blocks_.resize(block_count * kBlock);
}

void Resampler::rows_ready(std::int32_t end) {
  while (next_output_ < to_.shape.height && group_reads(next_output_).end <= end) write_group();
}

void Resampler::write_group() {
  const std::int32_t outputs = std::min(kGroup, to_.shape.height - next_output_);
  const PixelRange reads = columns_.reads();
  const auto pixels = static_cast<std::size_t>(reads.end - reads.first);
  std::byte* lines[kGroup];
  for (std::int32_t r = 0; r < kGroup; ++r) {
    lines[r] = scratch_.data();
    if (r >= outputs) continue;
    lines[r] = to_.data + (next_output_ + r) * to_.row_bytes;
    const FilterTaps::Run run = rows_.run(next_output_ + r);
    for (std::int32_t k = 0; k < run.count; ++k) {
      taken_[static_cast<std::size_t>(k)] = row_buffer(run.first + k) + left_bytes_;
    }
    kernels_.blend(taken_.data(), run.weights, run.count, pixels,
                   blocks_.data() + static_cast<std::size_t>(r) * kPixelBytes);
  }
  (clamps_ ? kernels_.stretch_clamped : kernels_.stretch)(blocks_.data(), columns_, reads.first,
                                                          to_.shape.width, lines);
  next_output_ += outputs;
}

}  // namespace penstock
