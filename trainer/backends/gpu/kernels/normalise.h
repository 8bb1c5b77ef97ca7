// SPDX-License-Identifier: Apache-2.0
// Converts the pixels of images to normalised activations with padded channels.
#pragma once

#include "trainer/backends/gpu/kernel_calls.h"
#include "trainer/backends/gpu/kernels/columns.h"
#include "trainer/backends/gpu/kernels/select.h"

namespace penstock::gpu {

PENSTOCK_HOST_DEVICE inline float to_float(std::uint8_t value) { return value; }

/// Converts byte images of three channels to four channels of a short type. A thread converts four
/// pixels: it reads 12 bytes and writes 32.
template <class T>
struct NormaliseBytesBody {
  static constexpr std::int32_t kThreads = kBlockThreads, kPerMultiprocessor = 8;
  static constexpr std::int32_t kPixels = 4, kChannels = 3, kPadded = 4;

  template <class Block>
  static PENSTOCK_DEVICE void run(Block& block, const Normalise& call) {
    block.for_each_thread([&](std::int32_t thread) {
      const std::int64_t fours = call.images * call.pixels_per_image / kPixels;
      const std::int64_t valid = call.scalars->valid * call.pixels_per_image;
      const std::int64_t step = std::int64_t{block.row_blocks()} * block.threads();
      std::int64_t four = std::int64_t{block.row_block()} * block.threads() + thread;
      for (; four < fours; four += step) normalise(call, four * kPixels, valid);
    });
  }

 private:
  static PENSTOCK_DEVICE void normalise(const Normalise& call, std::int64_t pixel,
                                        std::int64_t valid) {
    const auto* const from = static_cast<const std::uint8_t*>(call.pixels) + pixel * kChannels;
    Packed<std::uint8_t, 4> words[kChannels] = {};
    if (pixel < valid) {
      PENSTOCK_UNROLL
      for (int w = 0; w < kChannels; ++w) words[w].words[0] = load_word(from + 4 * w);
    }
    T* const to = static_cast<T*>(call.to) + pixel * kPadded;
    PENSTOCK_UNROLL
    for (int half = 0; half < 2; ++half) {
      Lanes<kWide> lanes = {};
      PENSTOCK_UNROLL
      for (int k = 0; k < kWide; ++k) {
        const int p = half * 2 + k / kPadded, c = k % kPadded, byte = p * kChannels + c;
        if (c == kChannels || pixel + p >= valid) continue;
        const std::uint32_t value = words[byte / 4].words[0] >> (byte % 4 * 8) & 0xffU;
        lanes.of[k] = static_cast<float>(value) * call.factor[c] + call.offset[c];
      }
      store_lanes(to + half * kWide, lanes);
    }
  }
  /// `from` is aligned to four bytes.
  static PENSTOCK_DEVICE std::uint32_t load_word(const std::uint8_t* from) {
#ifdef __CUDA_ARCH__
    return *reinterpret_cast<const std::uint32_t*>(from);
#else
    std::uint32_t word;
    std::memcpy(&word, from, sizeof(word));
    return word;
#endif
  }
};

/// Any types and channels: one thread per pixel.
template <class From, class T>
struct NormaliseAnyBody {
  static constexpr std::int32_t kThreads = kBlockThreads, kPerMultiprocessor = 4;

  template <class Block>
  static PENSTOCK_DEVICE void run(Block& block, const Normalise& call) {
    block.for_each_thread([&](std::int32_t thread) {
      const std::int64_t pixels = call.images * call.pixels_per_image;
      const std::int64_t valid = call.scalars->valid * call.pixels_per_image;
      const std::int64_t step = std::int64_t{block.row_blocks()} * block.threads();
      std::int64_t pixel = std::int64_t{block.row_block()} * block.threads() + thread;
      for (; pixel < pixels; pixel += step) {
        const From* const from = static_cast<const From*>(call.pixels) + pixel * call.channels;
        T* const to = static_cast<T*>(call.to) + pixel * call.padded_channels;
        for (std::int32_t c = 0; c < call.padded_channels; ++c) {
          const std::int32_t of = smaller(c, 3);
          const bool counts = c < call.channels && pixel < valid;
          to[c] =
              from_float<T>(counts ? to_float(from[c]) * call.factor[of] + call.offset[of] : 0.F);
        }
      }
    });
  }
};

template <class T, class Launch>
void select_from(const Normalise& call, const Launch& launch) {
  const std::int64_t pixels = call.images * call.pixels_per_image;
  if (call.from == DType::u8) {
    launch(Selected<NormaliseAnyBody<std::uint8_t, T>>{}, linear_geometry(pixels), call);
  } else if (call.from == DType::f16) {
    launch(Selected<NormaliseAnyBody<F16, T>>{}, linear_geometry(pixels), call);
  } else if (call.from == DType::f32) {
    launch(Selected<NormaliseAnyBody<float, T>>{}, linear_geometry(pixels), call);
  }
}
template <class Launch>
void select(const Normalise& call, const Launch& launch) {
  const std::int64_t pixels = call.images * call.pixels_per_image;
  const bool bytes =
      call.from == DType::u8 && call.channels == 3 && call.padded_channels == 4 && pixels % 4 == 0;
  with_type(call.type, [&]<class T>(T) {
    if (bytes) {
      launch(Selected<NormaliseBytesBody<T>>{}, linear_geometry(pixels / 4, 8 * kMultiprocessors),
             call);
    } else {
      select_from<T>(call, launch);
    }
  });
}

}  // namespace penstock::gpu
