// SPDX-License-Identifier: Apache-2.0
#include "dataflow/images/jpeg/pixels.h"

#include <bit>
#include <cstring>

namespace penstock::jpeg {
namespace {

constexpr std::size_t kLanes = 16;
using Bytes = std::uint8_t __attribute__((vector_size(kLanes)));
using Shorts = std::uint16_t __attribute__((vector_size(kLanes * 2)));
static_assert(kLanes * 2 <= Upsample::kOver && kLanes == Ycc::kStep);

[[gnu::always_inline]] inline Shorts load(const std::uint8_t* from) {
  Bytes bytes;
  std::memcpy(&bytes, from, sizeof bytes);
  return __builtin_convertvector(bytes, Shorts);
}
[[gnu::always_inline]] inline Shorts load(const std::uint16_t* from) {
  Shorts shorts;
  std::memcpy(&shorts, from, sizeof shorts);
  return shorts;
}
/// Stores two bytes per lane, the even one first in memory.
[[gnu::always_inline]] inline void store_pairs(Shorts even, Shorts odd, std::uint8_t* to) {
  const Shorts pairs =
      std::endian::native == std::endian::little ? even | odd << 8 : even << 8 | odd;
  std::memcpy(to, &pairs, sizeof pairs);
}

struct Blend {
  [[gnu::always_inline]] static void run(const std::uint8_t* near, const std::uint8_t* far,
                                         std::uint16_t* sums, std::size_t count) {
    for (std::size_t i = 0; i < count; i += kLanes) {
      const Shorts sum = load(near + i) * 3 + load(far + i);
      std::memcpy(sums + i, &sum, sizeof sum);
    }
  }
};

struct Widen {
  [[gnu::always_inline]] static void run(const std::uint8_t* row, std::uint16_t* sums,
                                         std::size_t count) {
    for (std::size_t i = 0; i < count; i += kLanes) {
      const Shorts sum = load(row + i);
      std::memcpy(sums + i, &sum, sizeof sum);
    }
  }
};

template <std::uint16_t even_bias, std::uint16_t odd_bias, int shift>
struct Smooth {
  [[gnu::always_inline]] static void run(const std::uint16_t* sums, std::uint8_t* to,
                                         std::size_t count) {
    for (std::size_t i = 0; i < count; i += kLanes) {
      const Shorts sum = load(sums + i) * 3;
      store_pairs((sum + load(sums + i - 1) + even_bias) >> shift,
                  (sum + load(sums + i + 1) + odd_bias) >> shift, to + 2 * i);
    }
  }
};

struct Between {
  [[gnu::always_inline]] static void run(const std::uint8_t* near, const std::uint8_t* far,
                                         std::uint8_t* to, std::size_t count, std::uint16_t bias) {
    for (std::size_t i = 0; i < count; i += kLanes) {
      const Shorts sum = (load(near + i) * 3 + load(far + i) + bias) >> 2;
      const auto bytes = __builtin_convertvector(sum, Bytes);
      std::memcpy(to + i, &bytes, sizeof bytes);
    }
  }
};

struct Repeat {
  [[gnu::always_inline]] static void run(const std::uint8_t* row, std::uint8_t* to,
                                         std::size_t count) {
    for (std::size_t i = 0; i < count; i += kLanes) {
      const Shorts samples = load(row + i);
      store_pairs(samples, samples, to + 2 * i);
    }
  }
};

using SmoothBlended = Smooth<8, 7, 4>;
using SmoothOne = Smooth<1, 2, 2>;

using Ints = std::int32_t __attribute__((vector_size(kLanes * 4)));
using Floats = float __attribute__((vector_size(kLanes * 4)));

constexpr int kBits = 16;
constexpr float fixed(double value) {
  return static_cast<float>(static_cast<std::int32_t>(value * (1 << kBits) + 0.5));
}

[[gnu::always_inline]] inline Ints load_ints(const std::uint8_t* from) {
  Bytes bytes;
  std::memcpy(&bytes, from, sizeof bytes);
  // Converts in steps of two: the compiler splits wider conversions element by element.
  return __builtin_convertvector(__builtin_convertvector(bytes, Shorts), Ints);
}

/// y plus a product with 16 fractional bits. The float values are below 2^24, and exact.
[[gnu::always_inline]] inline Ints channel(Ints y, Floats product) {
  constexpr float kHalf = 1 << (kBits - 1);
  Ints value = y + (__builtin_convertvector(product + kHalf, Ints) >> kBits);
  value = value < 0 ? Ints{} : value;
  return value > 255 ? Ints{} + 255 : value;
}

[[gnu::always_inline]] inline void store(Ints red, Ints green, Ints blue, std::uint8_t* to) {
  const Ints pixels = std::endian::native == std::endian::little
                          ? red | green << 8 | blue << 16
                          : red << 24 | green << 16 | blue << 8;
  std::memcpy(to, &pixels, sizeof pixels);
}

struct ToRgbx {
  [[gnu::always_inline]] static void run(const std::uint8_t* y, const std::uint8_t* blue,
                                         const std::uint8_t* red, std::uint8_t* to,
                                         std::size_t count) {
    for (std::size_t i = 0; i < count; i += kLanes) {
      const Ints light = load_ints(y + i);
      const auto cb = __builtin_convertvector(load_ints(blue + i) - 128, Floats);
      const auto cr = __builtin_convertvector(load_ints(red + i) - 128, Floats);
      store(channel(light, cr * fixed(1.402)),
            channel(light, cb * -fixed(0.34414) - cr * fixed(0.71414)),
            channel(light, cb * fixed(1.772)), to + 4 * i);
    }
  }
};

struct GreyToRgbx {
  [[gnu::always_inline]] static void run(const std::uint8_t* y, std::uint8_t* to,
                                         std::size_t count) {
    for (std::size_t i = 0; i < count; i += kLanes) {
      const Ints light = load_ints(y + i);
      store(light, light, light, to + 4 * i);
    }
  }
};

}  // namespace

const Upsample& Upsample::choose(InstructionSet set) {
  static constexpr Upsample kAll[] = {
      {portable<Blend>, portable<Widen>, portable<SmoothBlended>, portable<SmoothOne>,
       portable<Between>, portable<Repeat>},
      {avx2<Blend>, avx2<Widen>, avx2<SmoothBlended>, avx2<SmoothOne>, avx2<Between>, avx2<Repeat>},
      {avx512<Blend>, avx512<Widen>, avx512<SmoothBlended>, avx512<SmoothOne>, avx512<Between>,
       avx512<Repeat>}};
  return kAll[static_cast<std::size_t>(set)];
}

const Ycc& Ycc::choose(InstructionSet set) {
  static constexpr Ycc kAll[] = {{portable<ToRgbx>, portable<GreyToRgbx>},
                                 {avx2<ToRgbx>, avx2<GreyToRgbx>},
                                 {avx512<ToRgbx>, avx512<GreyToRgbx>}};
  return kAll[static_cast<std::size_t>(set)];
}

}  // namespace penstock::jpeg
