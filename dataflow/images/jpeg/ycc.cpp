// SPDX-License-Identifier: Apache-2.0
#include "dataflow/images/jpeg/ycc.h"

#include <bit>
#include <cstring>

#include "dataflow/images/jpeg/kernel_variants.h"

namespace penstock::jpeg {
namespace {

constexpr std::size_t kLanes = Ycc::kStep;
using Bytes = std::uint8_t __attribute__((vector_size(kLanes)));
using Shorts = std::uint16_t __attribute__((vector_size(kLanes * 2)));
using Ints = std::int32_t __attribute__((vector_size(kLanes * 4)));
using Floats = float __attribute__((vector_size(kLanes * 4)));

constexpr int kBits = 16;
constexpr float fixed(double value) {
  return static_cast<float>(static_cast<std::int32_t>(value * (1 << kBits) + 0.5));
}

[[gnu::always_inline]] inline Ints load(const std::uint8_t* from) {
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
      const Ints light = load(y + i);
      const auto cb = __builtin_convertvector(load(blue + i) - 128, Floats);
      const auto cr = __builtin_convertvector(load(red + i) - 128, Floats);
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
      const Ints light = load(y + i);
      store(light, light, light, to + 4 * i);
    }
  }
};

}  // namespace

const Ycc& Ycc::choose([[maybe_unused]] InstructionSet set) {
  static constexpr Ycc kPortable{portable<ToRgbx>, portable<GreyToRgbx>};
#if defined(__x86_64__)
  static constexpr Ycc kAvx2{avx2<ToRgbx>, avx2<GreyToRgbx>};
  static constexpr Ycc kAvx512{avx512<ToRgbx>, avx512<GreyToRgbx>};
  if (set == InstructionSet::avx512) return kAvx512;
  if (set == InstructionSet::avx2) return kAvx2;
#endif
  return kPortable;
}

}  // namespace penstock::jpeg
