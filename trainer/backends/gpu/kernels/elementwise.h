// SPDX-License-Identifier: Apache-2.0
// Kernels that take one pass over memory: scaling, shifting, adding, ReLU and its backward pass,
// dropout, and the conversion of pixels.
#pragma once

#include "trainer/backends/gpu/kernel_calls.h"
#include "trainer/backends/gpu/kernels/columns.h"
#include "trainer/backends/gpu/kernels/select.h"
#include "trainer/dropout.h"

namespace penstock::gpu {

/// The lower limit of results: 0 for ReLU, else -infinity. NaN stays NaN, so that a failed step
/// remains visible.
PENSTOCK_DEVICE float floor_of(bool relu) { return relu ? 0.F : float_of_bits(0xff800000U); }

/// The bits of y > 0 for the first `count` lanes; y is compared as T stores it.
template <class T>
PENSTOCK_DEVICE std::uint8_t positive_bits(const Lanes<kWide>& y, std::int32_t count = kWide) {
  std::uint32_t bits = 0;
  PENSTOCK_UNROLL
  for (int k = 0; k < kWide; ++k) {
    bits |= (y.of[k] > kVanishes<T> && k < count ? 1U : 0U) << k;
  }
  return static_cast<std::uint8_t>(bits);
}

enum class Residual : std::uint8_t { none, plain, scaled };

template <class T, Residual Kind, bool HasMask>
struct ScaleShiftBody {
  static constexpr std::int32_t kThreads = kBlockThreads, kPerMultiprocessor = 3;
  struct Item {
    Packed<T, kWide> x, residual;
  };

  template <class Block>
  static PENSTOCK_DEVICE void run(Block& block, const ScaleShift& call) {
    const Tiling tiling = tiling_of(call.channels / kWide, kApplyTile);
    block.for_each_thread([&](std::int32_t thread) {
      const Column column = column_of<kWide>(block, tiling, thread, call.rows, call.channels);
      if (column.first < column.last) apply(call, column);
    });
  }

 private:
  static PENSTOCK_DEVICE void apply(const ScaleShift& call, const Column& column) {
    const Lanes<kWide> multiplier = load_or<kWide>(call.multiplier, column.channel, 1);
    Lanes<kWide> addend = load_or<kWide>(call.addend, column.channel, 0), by_residual = {};
    if constexpr (Kind == Residual::scaled) {
      by_residual = load_or<kWide>(call.residual_multiplier, column.channel, 1);
      const Lanes<kWide> other = load_or<kWide>(call.residual_addend, column.channel, 0);
      PENSTOCK_UNROLL
      for (int k = 0; k < kWide; ++k) addend.of[k] += other.of[k];
    }
    const float floor = floor_of(call.relu);
    walk<at_once<T>(4)>(
        column,
        [&](std::int64_t row) {
          const std::int64_t at = row * call.channels + column.channel;
          Item item;
          item.x = load<kWide>(static_cast<const T*>(call.x) + at);
          if constexpr (Kind != Residual::none) {
            item.residual = load<kWide>(static_cast<const T*>(call.residual) + at);
          }
          return item;
        },
        [&](std::int64_t row, const Item& item) {
          const std::int64_t at = row * call.channels + column.channel;
          Lanes<kWide> y = unpack<T, kWide>(item.x), residual = {};
          if constexpr (Kind != Residual::none) residual = unpack<T, kWide>(item.residual);
          PENSTOCK_UNROLL
          for (int k = 0; k < kWide; ++k) {
            y.of[k] = y.of[k] * multiplier.of[k] + addend.of[k];
            if constexpr (Kind == Residual::plain) y.of[k] += residual.of[k];
            if constexpr (Kind == Residual::scaled) y.of[k] += residual.of[k] * by_residual.of[k];
            y.of[k] = larger(y.of[k], floor);
          }
          store_lanes(static_cast<T*>(call.y) + at, y);
          if constexpr (HasMask) call.mask[at / kWide] = positive_bits<T>(y);
        });
  }
};

/// For any number of channels: a thread processes eight neighbouring elements, one byte of the
/// mask.
template <class T>
struct ScaleShiftAnyBody {
  static constexpr std::int32_t kThreads = kBlockThreads, kPerMultiprocessor = 3;

  template <class Block>
  static PENSTOCK_DEVICE void run(Block& block, const ScaleShift& call) {
    const std::int64_t count = call.rows * call.channels;
    block.for_each_thread([&](std::int32_t thread) {
      const std::int64_t step = std::int64_t{block.row_blocks()} * block.threads() * kWide;
      std::int64_t first = (std::int64_t{block.row_block()} * block.threads() + thread) * kWide;
      for (; first < count; first += step) {
        apply(call, first, static_cast<std::int32_t>(smaller<std::int64_t>(kWide, count - first)));
      }
    });
  }

 private:
  static PENSTOCK_DEVICE float at(const float* from, std::int32_t channel, float missing) {
    return from == nullptr ? missing : from[channel];
  }
  static PENSTOCK_DEVICE void apply(const ScaleShift& call, std::int64_t first,
                                    std::int32_t count) {
    auto channel = static_cast<std::int32_t>(first % call.channels);
    const float floor = floor_of(call.relu);
    Lanes<kWide> y = {};
    PENSTOCK_UNROLL
    for (int k = 0; k < kWide; ++k) {
      if (k >= count) continue;
      float value = to_float(static_cast<const T*>(call.x)[first + k]);
      value = value * at(call.multiplier, channel, 1) + at(call.addend, channel, 0);
      if (call.residual != nullptr) {
        value += to_float(static_cast<const T*>(call.residual)[first + k]) *
                     at(call.residual_multiplier, channel, 1) +
                 at(call.residual_addend, channel, 0);
      }
      y.of[k] = larger(value, floor);
      static_cast<T*>(call.y)[first + k] = from_float<T>(y.of[k]);
      channel = channel + 1 == call.channels ? 0 : channel + 1;
    }
    if (call.mask != nullptr) call.mask[first / kWide] = positive_bits<T>(y, count);
  }
};

template <class T, Residual Kind, class Launch>
void select_mask(const ScaleShift& call, const Launch& launch) {
  with_flags(
      [&]<class HasMask>(HasMask) {
        launch(Selected<ScaleShiftBody<T, Kind, HasMask::value>>{},
               apply_geometry(call.rows, call.channels / kWide), call);
      },
      call.mask != nullptr);
}
template <class Launch>
void select(const ScaleShift& call, const Launch& launch) {
  with_type(call.type, [&]<class T>(T) {
    if (width_of(call.channels) != kWide) {
      launch(Selected<ScaleShiftAnyBody<T>>{},
             linear_geometry(divide_up<std::int64_t>(call.rows * call.channels, kWide)), call);
    } else if (call.residual == nullptr) {
      select_mask<T, Residual::none>(call, launch);
    } else if (call.residual_multiplier == nullptr && call.residual_addend == nullptr) {
      select_mask<T, Residual::plain>(call, launch);
    } else {
      select_mask<T, Residual::scaled>(call, launch);
    }
  });
}

template <class T>
struct ReluBackwardBody {
  static constexpr std::int32_t kThreads = kBlockThreads, kPerMultiprocessor = 4;

  template <class Block>
  static PENSTOCK_DEVICE void run(Block& block, const ReluBackward& call) {
    block.for_each_thread([&](std::int32_t thread) {
      // First the groups of eight, as rows of one column, then the rest.
      const std::int64_t eights = call.count / kWide;
      const std::int32_t step = block.row_blocks() * block.threads();
      const std::int32_t place = block.row_block() * block.threads() + thread;
      if (call.mask != nullptr) {
        apply<true>(call, {0, step, place, eights});
      } else {
        apply<false>(call, {0, step, place, eights});
      }
      const std::int64_t at = eights * kWide + place;
      if (at < call.count) apply_one(call, at);
    });
  }

 private:
  struct Item {
    Packed<T, kWide> dy, y;
    std::uint32_t bits;
  };
  template <bool HasMask>
  static PENSTOCK_DEVICE void apply(const ReluBackward& call, const Column& column) {
    walk<at_once<T>(4)>(
        column,
        [&](std::int64_t eight) {
          Item item;
          item.dy = load<kWide>(static_cast<const T*>(call.dy) + eight * kWide);
          if constexpr (HasMask) {
            item.bits = call.mask[eight];
          } else {
            item.y = load<kWide>(static_cast<const T*>(call.y) + eight * kWide);
          }
          return item;
        },
        [&](std::int64_t eight, const Item& item) {
          T* const to = static_cast<T*>(call.dx) + eight * kWide;
          Lanes<kWide> dx = unpack<T, kWide>(item.dy);
          std::uint32_t bits = 0;
          if constexpr (HasMask) {
            bits = item.bits;
          } else {
            bits = positive_bits<float>(unpack<T, kWide>(item.y));
          }
          PENSTOCK_UNROLL
          for (int k = 0; k < kWide; ++k) dx.of[k] = (bits >> k & 1U) != 0 ? dx.of[k] : 0.F;
          store_or_add(to, dx, call.accumulate);
        });
  }
  static PENSTOCK_DEVICE void apply_one(const ReluBackward& call, std::int64_t at) {
    const bool passes = call.mask != nullptr ? (call.mask[at / 8] >> (at % 8) & 1) != 0
                                             : to_float(static_cast<const T*>(call.y)[at]) > 0;
    T& to = static_cast<T*>(call.dx)[at];
    const float old = call.accumulate ? to_float(to) : 0.F;
    to = from_float<T>(old + (passes ? to_float(static_cast<const T*>(call.dy)[at]) : 0.F));
  }
};
template <class Launch>
void select(const ReluBackward& call, const Launch& launch) {
  select_typed<ReluBackwardBody>(
      call, linear_geometry(divide_up<std::int64_t>(call.count, 4 * kWide)), launch);
}

// ---- dropout ----------------------------------------------------------------

template <class T, int Width>
struct DropoutApplyBody {
  static constexpr std::int32_t kThreads = kBlockThreads, kPerMultiprocessor = 4;

  template <class Block>
  static PENSTOCK_DEVICE void run(Block& block, const DropoutApply& call) {
    const Tiling tiling = tiling_of(call.channels / Width, kApplyTile);
    const std::int64_t rows = call.images * call.pixels_per_image;
    block.for_each_thread([&](std::int32_t thread) {
      const DropoutMask mask(call.seed, call.scalars->step, call.node, call.rate);
      const float kept_share = 1.F - call.rate;
      const Column column = column_of<Width>(block, tiling, thread, rows, call.channels);
      for (std::int64_t row = column.first; row < column.last; row += column.step) {
        const std::int64_t image = row / call.pixels_per_image;
        const std::int64_t plane = image * call.channels + column.channel;
        const std::int64_t pixel = row - image * call.pixels_per_image;
        const std::int64_t at = row * call.channels + column.channel;
        Lanes<Width> y = load_lanes<Width>(static_cast<const T*>(call.x) + at);
        Lanes<Width> old = {};
        if (call.accumulate) old = load_lanes<Width>(static_cast<const T*>(call.y) + at);
        PENSTOCK_UNROLL
        for (int k = 0; k < Width; ++k) {
          const std::int64_t element = (plane + k) * call.pixels_per_image + pixel;
          const bool keeps = mask.keeps(static_cast<std::uint64_t>(element));
          y.of[k] = old.of[k] + (keeps ? y.of[k] / kept_share : 0.F);
        }
        store_lanes(static_cast<T*>(call.y) + at, y);
      }
    });
  }
};
template <class Launch>
void select(const DropoutApply& call, const Launch& launch) {
  const std::int32_t width = width_of(call.channels);
  select_wide<DropoutApplyBody>(
      call, width, apply_geometry(call.images * call.pixels_per_image, call.channels / width),
      launch);
}

// ---- pixels of images to normalised activations with padded channels --------

PENSTOCK_HOST_DEVICE inline float to_float(std::uint8_t value) { return value; }

/// The element of Normalise::to at which the pixel begins.
PENSTOCK_HOST_DEVICE inline std::int64_t place_of(const Normalise& call, std::int64_t pixel) {
  if (call.blocks_width == 0) return pixel * call.padded_channels;
  const std::int64_t row = pixel / call.blocks_width, column = pixel - row * call.blocks_width;
  const std::int64_t block = row / 2 * (call.blocks_width / 2) + column / 2;
  return (block * 4 + row % 2 * 2 + column % 2) * call.padded_channels;
}

/// Converts byte images of three channels to four channels of a short type. A thread converts four
/// pixels of a row: it reads 12 bytes and writes twice 16, side by side or to two blocks.
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
    T* const to = static_cast<T*>(call.to) + place_of(call, pixel);
    const int next = call.blocks_width == 0 ? kWide : 2 * kWide;
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
      store_lanes(to + half * next, lanes);
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
        const std::int64_t plane = call.pixels_per_image;
        const From* const from = static_cast<const From*>(call.pixels) +
                                 (call.planar ? pixel + pixel / plane * (call.channels - 1) * plane
                                              : pixel * call.channels);
        const std::int64_t next = call.planar ? plane : 1;
        T* const to = static_cast<T*>(call.to) + place_of(call, pixel);
        for (std::int32_t c = 0; c < call.padded_channels; ++c) {
          const std::int32_t of = smaller(c, 3);
          const bool counts = c < call.channels && pixel < valid;
          to[c] = from_float<T>(
              counts ? to_float(from[c * next]) * call.factor[of] + call.offset[of] : 0.F);
        }
      }
    });
  }
};

template <class T, class Launch>
void select_from(const Normalise& call, const Launch& launch) {
  const std::int64_t pixels = call.images * call.pixels_per_image;
  const auto launch_from = [&]<class From>(From) {
    launch(Selected<NormaliseAnyBody<From, T>>{}, linear_geometry(pixels), call);
  };
  if (call.from == DType::u8) launch_from(std::uint8_t{});
  with_type(call.from, launch_from);
}
template <class Launch>
void select(const Normalise& call, const Launch& launch) {
  const std::int64_t pixels = call.images * call.pixels_per_image;
  const bool bytes = call.from == DType::u8 && !call.planar && call.channels == 3 &&
                     call.padded_channels == 4 && pixels % 4 == 0 && call.blocks_width % 4 == 0;
  with_type(call.type, [&]<class T>(T) {
    if (bytes) {
      launch(Selected<NormaliseBytesBody<T>>{}, linear_geometry(pixels / 4, 8 * kMultiprocessors),
             call);
    } else {
      select_from<T>(call, launch);
    }
  });
}

/// One thread per element of the result.
template <class T>
struct ReorderStemBody {
  static constexpr std::int32_t kThreads = kBlockThreads, kPerMultiprocessor = 4;

  template <class Block>
  static PENSTOCK_DEVICE void run(Block& block, const ReorderStem& call) {
    const std::int32_t side = call.to_blocks ? 2 * kBlockKernel : kStemKernel;
    const std::int32_t channels = call.to_blocks ? kBlockChannels : call.channels;
    const std::int32_t count = call.filters * side * side * channels;
    block.for_each_thread([&](std::int32_t thread) {
      std::int32_t i = block.row_block() * block.threads() + thread;
      for (; i < count; i += block.row_blocks() * block.threads()) {
        if (call.to_blocks) {
          write(call, i, stem_element(call, i));
        } else {
          write(call, i, block_element(call, i));
        }
      }
    });
  }

 private:
  static PENSTOCK_DEVICE void write(const ReorderStem& call, std::int32_t i, std::int32_t from) {
    static_cast<T*>(call.to)[i] =
        from < 0 ? from_float<T>(0) : static_cast<const T*>(call.from)[from];
  }
  /// The element that belongs to element `i` of the kernel for blocks; -1: none.
  static PENSTOCK_DEVICE std::int32_t stem_element(const ReorderStem& call, std::int32_t i) {
    const std::int32_t c = i % kBlockChannels, pixel = i / kBlockChannels;
    const std::int32_t block = pixel / 4;
    const std::int32_t row = block / kBlockKernel % kBlockKernel * 2 + pixel / 2 % 2 - 1;
    const std::int32_t column = block % kBlockKernel * 2 + pixel % 2 - 1;
    const std::int32_t filter = block / (kBlockKernel * kBlockKernel);
    if (row < 0 || column < 0 || c >= call.channels) return -1;
    return ((filter * kStemKernel + row) * kStemKernel + column) * call.channels + c;
  }
  /// The reverse.
  static PENSTOCK_DEVICE std::int32_t block_element(const ReorderStem& call, std::int32_t i) {
    const std::int32_t c = i % call.channels, pixel = i / call.channels;
    const std::int32_t column = pixel % kStemKernel + 1;
    const std::int32_t row = pixel / kStemKernel % kStemKernel + 1;
    const std::int32_t filter = pixel / (kStemKernel * kStemKernel);
    if (c >= kBlockChannels) return -1;
    const std::int32_t block = (filter * kBlockKernel + row / 2) * kBlockKernel + column / 2;
    return (block * 4 + row % 2 * 2 + column % 2) * kBlockChannels + c;
  }
};
template <class Launch>
void select(const ReorderStem& call, const Launch& launch) {
  const std::int64_t pixels = std::int64_t{call.filters} * kStemKernel * kStemKernel;
  select_typed<ReorderStemBody>(call, linear_geometry(pixels * kBlockChannels), launch);
}

}  // namespace penstock::gpu
