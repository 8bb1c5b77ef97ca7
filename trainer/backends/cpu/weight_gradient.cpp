// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/cpu/weight_gradient.h"

#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "trainer/backends/cpu/kernels.h"
#include "trainer/simd.h"

// GCC 12 warns of placeholders in its header of intrinsics.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

namespace penstock::cpu {
namespace {

constexpr std::size_t kChannels = 16;   // of a tile
constexpr std::size_t kStep = 32;       // pixels of a tile
constexpr std::size_t kPairBytes = 64;  // two pixels of 16 channels
constexpr std::size_t kTileBytes = 1024;
/// Steps between two visits of the sums. The gradient's tiles of 16 steps take 32 KiB, and stay in
/// the first cache while all places of the filter are visited.
constexpr std::size_t kStepsAtOnce = 16;

#define PENSTOCK_AVX512 [[gnu::target("avx512f,avx512bw,avx512vl,avx512dq")]]
#define PENSTOCK_AMX [[gnu::target("avx512f,amx-tile,amx-bf16")]]

/// AMX-BF16, by the CPU's own list: not every compiler has a name for it.
bool has_tiles() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && ((edx >> 22) & 1U) != 0;
}

std::size_t blocks(std::int32_t channels) {
  return (static_cast<std::size_t>(channels) + kChannels - 1) / kChannels;
}

/// Layout of the CPU's tile configuration.
struct alignas(64) TileConfiguration {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

PENSTOCK_AMX void begin_tiles() {
  static const TileConfiguration configuration;  // GCC 12 would drop stores to a local one
  _tile_loadconfig(&configuration);
}
PENSTOCK_AMX void end_tiles() { _tile_release(); }

/// Where the operands and sums of up to 2 x 2 tiles lie. Distances are in bytes.
struct TileBlock {
  const std::byte *gradients, *inputs;
  std::size_t next_gradients, next_inputs;  // the second block of channels
  const std::size_t* steps;                 // of the inputs, for each step
  std::size_t count;
  std::byte* sums;
  std::size_t next_sums;  // the second block of output channels
  bool begins;
};

template <int Outputs, int Inputs>
PENSTOCK_AMX void multiply_tiles(const TileBlock& block) {
  std::byte* const below = block.sums + block.next_sums;
  if (block.begins) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, block.sums, kPairBytes);
    if constexpr (Inputs == 2) _tile_loadd(1, block.sums + kTileBytes, kPairBytes);
    if constexpr (Outputs == 2) _tile_loadd(2, below, kPairBytes);
    if constexpr (Outputs == 2 && Inputs == 2) _tile_loadd(3, below + kTileBytes, kPairBytes);
  }
  for (std::size_t step = 0; step < block.count; ++step) {
    const std::byte* const gradients = block.gradients + step * kTileBytes;
    const std::byte* const inputs = block.inputs + block.steps[step];
    _tile_loadd(4, gradients, kPairBytes);
    _tile_loadd(6, inputs, kPairBytes);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (Inputs == 2) {
      _tile_loadd(7, inputs + block.next_inputs, kPairBytes);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (Outputs == 2) {
      _tile_loadd(5, gradients + block.next_gradients, kPairBytes);
      _tile_dpbf16ps(2, 5, 6);
    }
    if constexpr (Outputs == 2 && Inputs == 2) _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, block.sums, kPairBytes);
  if constexpr (Inputs == 2) _tile_stored(1, block.sums + kTileBytes, kPairBytes);
  if constexpr (Outputs == 2) _tile_stored(2, below, kPairBytes);
  if constexpr (Outputs == 2 && Inputs == 2) _tile_stored(3, below + kTileBytes, kPairBytes);
}

/// The pixels of one image. An offset from `end` on means a pixel of zeros.
struct Pixels {
  const std::uint16_t* first;
  std::size_t end;
};

/// 16 channels of a pixel, from `at` on.
PENSTOCK_AVX512 inline __m512i channels_of(const Pixels& pixels, std::uint32_t offset,
                                           std::size_t at, __mmask16 mask) {
  if (offset >= pixels.end) return _mm512_setzero_si512();
  return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, pixels.first + offset + at));
}

/// The channels of two pixels, in turn.
PENSTOCK_AVX512 inline __m512i pair_of(const Pixels& pixels, const std::uint32_t* offsets,
                                       std::size_t at, __mmask16 mask) {
  return _mm512_or_si512(channels_of(pixels, offsets[0], at, mask),
                         _mm512_slli_epi32(channels_of(pixels, offsets[1], at, mask), 16));
}

/// rows[i][j] = columns[j][i], for words of 32 bits.
PENSTOCK_AVX512 inline void transpose(__m512i (&m)[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(m[i], m[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(m[i], m[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    m[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    m[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    m[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    m[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(m[i], m[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(m[i], m[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(m[i + 8], m[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(m[i + 8], m[i + 12], 0xdd);
  }
  for (int i = 0; i < 4; ++i) {
    m[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    m[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
    m[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    m[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
  }
}

/// Packs pairs of pixels; blocks of channels are `block` bytes
/// apart.
PENSTOCK_AVX512 void pack_pairs(const Pixels& pixels, const std::uint32_t* offsets,
                                std::size_t pairs, std::int32_t channels, std::byte* to,
                                std::size_t block) {
  const auto last = static_cast<std::size_t>(channels) / kChannels;  // the incomplete block
  const auto rest = static_cast<__mmask16>((1U << (channels % 16)) - 1);
  for (std::size_t pair = 0; pair < pairs; ++pair) {
    for (std::size_t b = 0; b < blocks(channels); ++b) {
      const __m512i packed = pair_of(pixels, offsets + 2 * pair, b * kChannels,
                                     b == last ? rest : static_cast<__mmask16>(0xffff));
      _mm512_store_si512(to + b * block + pair * kPairBytes, packed);
    }
  }
}

/// Packs tiles of [16 channels][32 pixels]; blocks of channels are `block` bytes apart.
PENSTOCK_AVX512 void pack_tiles(const Pixels& pixels, const std::uint32_t* offsets,
                                std::size_t steps, std::size_t channel_blocks, std::byte* to,
                                std::size_t block) {
  for (std::size_t step = 0; step < steps; ++step) {
    const std::uint32_t* const from = offsets + step * kStep;
    for (std::size_t b = 0; b < channel_blocks; ++b) {
      __m512i rows[kStep / 2];
      for (std::size_t pair = 0; pair < kStep / 2; ++pair) {
        rows[pair] = pair_of(pixels, from + 2 * pair, b * kChannels, 0xffff);
      }
      transpose(rows);
      std::byte* const tile = to + b * block + step * kTileBytes;
      for (std::size_t row = 0; row < kChannels; ++row) {
        _mm512_store_si512(tile + row * kPairBytes, rows[row]);
      }
    }
  }
}

}  // namespace

bool WeightGradient::is_available() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XTILEDATA
  static const bool available = has_tiles() && __builtin_cpu_supports("avx512bw") != 0 &&
                                syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return available;
}

WeightGradient::WeightGradient(const ConvolutionShape& shape, std::int32_t threads)
    : shape_(shape), inputs_(blocks(shape.in.channels)), outputs_(blocks(shape.out.channels)) {
  const Window& window = shape.window;
  const bool is_product = window.kernel_h == 1 && window.kernel_w == 1 && window.stride == 1 &&
                          window.top == 0 && window.left == 0 &&
                          shape.in.height == shape.out.height && shape.in.width == shape.out.width;
  if (is_product) {  // all pixels of all images are one row, cut into parts
    constexpr std::int32_t kWidth = kStep * kStepsAtOnce;
    all_pixels_ = static_cast<std::size_t>(shape.images) * shape.in.elements() /
                  static_cast<std::size_t>(shape.in.channels);
    shape_.images = static_cast<std::int32_t>((all_pixels_ + kWidth - 1) / kWidth);
    shape_.in.height = shape_.out.height = 1;
    shape_.in.width = shape_.out.width = kWidth;
  }
  make_grids();
  divide(threads);
}

void WeightGradient::make_grids() {
  const auto stride = static_cast<std::size_t>(shape_.window.stride);
  const auto rows = static_cast<std::size_t>(shape_.window.kernel_h),
             columns = static_cast<std::size_t>(shape_.window.kernel_w);
  const std::size_t grid_rows = std::min(rows, stride), grid_columns = std::min(columns, stride);
  width_ = static_cast<std::size_t>(shape_.out.width) + (columns - 1) / stride;
  for (std::size_t row = 0; row < grid_rows; ++row) {
    for (std::size_t column = 0; column < grid_columns; ++column) {
      grids_.push_back({.row = static_cast<std::int32_t>(row) - shape_.window.top,
                        .column = static_cast<std::int32_t>(column) - shape_.window.left});
    }
  }
  std::size_t last_shift = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t column = 0; column < columns; ++column) {
      const Tap tap{row % stride * grid_columns + column % stride,
                    row / stride * width_ + column / stride};
      grids_[tap.grid].is_used[tap.shift % 2] = true;
      last_shift = std::max(last_shift, tap.shift);
      taps_.push_back(tap);
    }
  }
  const auto height = static_cast<std::size_t>(shape_.out.height),
             width = static_cast<std::size_t>(shape_.out.width);
  image_steps_ = ((height - 1) * width_ + width + kStep - 1) / kStep;
  image_pairs_ = (image_steps_ * kStep + last_shift) / 2 + 1;
  const auto offsets = [&](const ImageShape& shape, std::size_t count, std::int32_t first_row,
                           std::int32_t first_column, std::int32_t step) {
    Offsets found(count, kNone);
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t image_row = static_cast<std::int64_t>(i / width_) * step + first_row,
                         image_column = static_cast<std::int64_t>(i % width_) * step + first_column;
      if (image_row < 0 || image_row >= shape.height || image_column < 0 ||
          image_column >= shape.width) {
        continue;
      }
      found[i] =
          static_cast<std::uint32_t>((image_row * shape.width + image_column) * shape.channels);
    }
    return found;
  };
  for (Grid& grid : grids_) {
    grid.pixels =
        offsets(shape_.in, 2 * image_pairs_ + 1, grid.row, grid.column, shape_.window.stride);
  }
  outputs_at_ = offsets(shape_.out, image_steps_ * kStep, 0, 0, 1);
}

void WeightGradient::divide(std::int32_t threads) {
  constexpr std::size_t kMostSums = std::size_t{512} << 20;  // bytes, of all parts
  const auto images = static_cast<std::size_t>(shape_.images);
  images_at_once_ = std::min(images, (kStepsAtOnce + image_steps_ - 1) / image_steps_);
  const std::size_t sums = outputs_ * kChannels * taps_.size() * inputs_ * kPairBytes;
  parts_ =
      std::min({static_cast<std::size_t>(threads), (images + images_at_once_ - 1) / images_at_once_,
                std::max<std::size_t>(1, kMostSums / sums)});
  std::size_t at = 0;
  for (Grid& grid : grids_) {
    for (const std::size_t odd : {0U, 1U}) {
      if (!grid.is_used[odd]) continue;
      grid.at[odd] = at;
      at += inputs_ * images_at_once_ * image_pairs_ * kPairBytes;
    }
  }
  gradients_at_ = at;
  sums_at_ = gradients_at_ + outputs_ * images_at_once_ * image_steps_ * kTileBytes;
  part_bytes_ = sums_at_ + sums;
}

void WeightGradient::pack(const std::uint16_t* x, const std::uint16_t* gradient_y,
                          std::size_t image, std::size_t slot, std::byte* scratch) const {
  const auto image_of = [&](const std::uint16_t* images, const ImageShape& shape) {
    const auto channels = static_cast<std::size_t>(shape.channels);
    const std::size_t first = image * shape.elements();
    const std::size_t end = all_pixels_ > 0 ? all_pixels_ * channels : first + shape.elements();
    return Pixels{images + first, std::min<std::size_t>(end - first, kNone)};
  };
  const Pixels inputs = image_of(x, shape_.in), outputs = image_of(gradient_y, shape_.out);
  const std::size_t block = images_at_once_ * image_pairs_ * kPairBytes;
  for (const Grid& grid : grids_) {
    for (const std::size_t odd : {0U, 1U}) {
      if (!grid.is_used[odd]) continue;
      pack_pairs(inputs, grid.pixels.data() + odd, image_pairs_, shape_.in.channels,
                 scratch + grid.at[odd] + slot * image_pairs_ * kPairBytes, block);
    }
  }
  pack_tiles(outputs, outputs_at_.data(), image_steps_, outputs_,
             scratch + gradients_at_ + slot * image_steps_ * kTileBytes,
             images_at_once_ * image_steps_ * kTileBytes);
}

void WeightGradient::multiply(std::size_t images, bool begins, std::byte* scratch) const {
  const std::size_t all_steps = images * image_steps_;
  TileBlock block{};
  block.next_gradients = images_at_once_ * image_steps_ * kTileBytes;
  block.next_inputs = images_at_once_ * image_pairs_ * kPairBytes;
  block.next_sums = taps_.size() * inputs_ * kTileBytes;
  std::array<std::size_t, kStepsAtOnce> steps{};
  block.steps = steps.data();
  for (std::size_t first = 0; first < all_steps; first += kStepsAtOnce) {
    block.count = std::min(kStepsAtOnce, all_steps - first);
    block.begins = begins && first == 0;
    for (std::size_t i = 0; i < block.count; ++i) {
      const std::size_t image = (first + i) / image_steps_, step = (first + i) % image_steps_;
      steps[i] = (image * image_pairs_ + step * kStep / 2) * kPairBytes;
    }
    for (std::size_t output = 0; output < outputs_; output += 2) {
      block.gradients =
          scratch + gradients_at_ + output * block.next_gradients + first * kTileBytes;
      for (std::size_t t = 0; t < taps_.size(); ++t) {
        const Tap& tap = taps_[t];
        const std::byte* const pairs =
            scratch + grids_[tap.grid].at[tap.shift % 2] + tap.shift / 2 * kPairBytes;
        for (std::size_t input = 0; input < inputs_; input += 2) {
          block.inputs = pairs + input * block.next_inputs;
          block.sums =
              scratch + sums_at_ + output * block.next_sums + (t * inputs_ + input) * kTileBytes;
          const bool two_outputs = output + 1 < outputs_, two_inputs = input + 1 < inputs_;
          const auto run = two_outputs
                               ? (two_inputs ? &multiply_tiles<2, 2> : &multiply_tiles<2, 1>)
                               : (two_inputs ? &multiply_tiles<1, 2> : &multiply_tiles<1, 1>);
          run(block);
        }
      }
    }
  }
}

void WeightGradient::run_part(const std::uint16_t* x, const std::uint16_t* gradient_y,
                              std::byte* scratch, std::size_t part) const {
  const auto images = static_cast<std::size_t>(shape_.images);
  const std::size_t rounds = (images + images_at_once_ - 1) / images_at_once_;
  const std::size_t begin = rounds * part / parts_, end = rounds * (part + 1) / parts_;
  begin_tiles();
  for (std::size_t round = begin; round < end; ++round) {
    const std::size_t first = round * images_at_once_;
    const std::size_t count = std::min(images_at_once_, images - first);
    for (std::size_t slot = 0; slot < count; ++slot) {
      pack(x, gradient_y, first + slot, slot, scratch);
    }
    multiply(count, round == begin, scratch);
  }
  end_tiles();
}

void WeightGradient::add_parts(const std::byte* scratch, float* gradient) const {
  const auto channels = static_cast<std::size_t>(shape_.in.channels);
  const std::size_t taps = taps_.size(), tile = kChannels * kChannels;
  parallel_for(outputs_ * kChannels, [&](std::size_t output) {
    for (std::size_t at = 0; at < taps * inputs_; ++at) {
      const std::size_t first = at % inputs_ * kChannels;
      const std::size_t count = std::min(kChannels, channels - first);
      float* const to = gradient + (output * taps + at / inputs_) * channels + first;
      for (std::size_t part = 0; part < parts_; ++part) {
        const auto* const from =
            reinterpret_cast<const float*>(scratch + part * part_bytes_ + sums_at_) +
            (output / kChannels * taps * inputs_ + at) * tile + output % kChannels * kChannels;
        for (std::size_t c = 0; c < count; ++c) to[c] = part == 0 ? from[c] : to[c] + from[c];
      }
    }
  });
}

void WeightGradient::run(const void* x, const void* gradient_y, std::byte* scratch, float* gradient,
                         float* bias) const {
  const auto* const inputs = static_cast<const std::uint16_t*>(x);
  const auto* const gradients = static_cast<const std::uint16_t*>(gradient_y);
  parallel_for(parts_, [&](std::size_t part) {
    run_part(inputs, gradients, scratch + part * part_bytes_, part);
  });
  add_parts(scratch, gradient);
  if (bias == nullptr) return;
  const std::size_t channels = outputs_ * kChannels;
  const std::size_t pixels =
      all_pixels_ > 0 ? all_pixels_
                      : static_cast<std::size_t>(shape_.images) * shape_.out.elements() / channels;
  parallel_for(outputs_, [&](std::size_t block) {
    std::array<double, kChannels> sums{};
    for (std::size_t pixel = 0; pixel < pixels; ++pixel) {
      Sixteen values;
      load(static_cast<const Bf16*>(gradient_y) + pixel * channels + block * kChannels, values);
      for (std::size_t c = 0; c < kChannels; ++c) sums[c] += double{values.v[c]};
    }
    std::copy(sums.begin(), sums.end(), bias + block * kChannels);
  });
}

}  // namespace penstock::cpu
