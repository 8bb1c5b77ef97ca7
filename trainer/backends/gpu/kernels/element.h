// SPDX-License-Identifier: Apache-2.0
// Elements of tensors: f32, f16 and bf16, one or several at once. Arithmetic is in float. Device
// code converts in hardware; host code computes the same rounding to nearest even.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "trainer/backends/gpu/kernels/block.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace penstock::gpu {

struct F16 {
  std::uint16_t bits;
};
struct BF16 {
  std::uint16_t bits;
};

PENSTOCK_HOST_DEVICE inline float float_of_bits(std::uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
#endif
}
PENSTOCK_HOST_DEVICE inline std::uint32_t bits_of_float(float value) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(value);
#else
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
#endif
}

PENSTOCK_HOST_DEVICE inline float to_float(float value) { return value; }
PENSTOCK_HOST_DEVICE inline float to_float(BF16 value) {
  return float_of_bits(static_cast<std::uint32_t>(value.bits) << 16);
}
PENSTOCK_HOST_DEVICE inline float to_float(F16 value) {
#ifdef __CUDA_ARCH__
  return __half2float(__ushort_as_half(value.bits));
#else
  const std::uint32_t sign = (value.bits & 0x8000U) << 16, magnitude = value.bits & 0x7fffU;
  if (magnitude >= 0x7c00U) return float_of_bits(sign | 0x7f800000U | (magnitude & 0x3ffU) << 13);
  if (magnitude >= 0x400U) return float_of_bits(sign | ((magnitude << 13) + (112U << 23)));
  const float tiny = static_cast<float>(magnitude) * 0x1p-24F;
  return sign == 0 ? tiny : -tiny;
#endif
}

/// Rounds to nearest, ties to even. A value that is too large becomes infinite.
template <class T>
PENSTOCK_HOST_DEVICE inline T from_float(float value);
template <>
PENSTOCK_HOST_DEVICE inline float from_float<float>(float value) {
  return value;
}
template <>
PENSTOCK_HOST_DEVICE inline BF16 from_float<BF16>(float value) {
#ifdef __CUDA_ARCH__
  return {__bfloat16_as_ushort(__float2bfloat16_rn(value))};
#else
  const std::uint32_t bits = bits_of_float(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return {0x7fff};
  return {static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16)};
#endif
}
template <>
PENSTOCK_HOST_DEVICE inline F16 from_float<F16>(float value) {
#ifdef __CUDA_ARCH__
  return {__half_as_ushort(__float2half_rn(value))};
#else
  const std::uint32_t bits = bits_of_float(value), magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return {0x7fff};
  std::uint32_t half = 0x7c00;    // infinity, from 65520 on
  if (magnitude < 0x38800000U) {  // below 2^-14: units of 2^-24, the last place of 0.5
    half = bits_of_float(float_of_bits(magnitude) + 0.5F) - bits_of_float(0.5F);
  } else if (magnitude < 0x477ff000U) {
    half = (magnitude - (112U << 23) + 0xfffU + (magnitude >> 13 & 1U)) >> 13;
  }
  return {static_cast<std::uint16_t>((bits >> 16 & 0x8000U) | half)};
#endif
}

/// Values up to this one become 0 (or stay below 0) when they are stored.
template <class T>
inline constexpr float kVanishes = 0;
template <>
inline constexpr float kVanishes<F16> = 0x1p-25F;
template <>
inline constexpr float kVanishes<BF16> = 0x1p-134F;

/// `Width` neighbouring elements as stored in memory.
template <class T, int Width>
struct Packed {
  static constexpr int kWords = static_cast<int>(sizeof(T)) * Width / 4;
  std::uint32_t words[kWords];
};
template <class T>
struct Packed<T, 1> {
  T value;
};

/// `Width` numbers to compute with.
template <int Width>
struct Lanes {
  float of[Width];
};

/// `from` is aligned to the smaller of Width elements and 16 bytes.
template <int Width, class T>
PENSTOCK_DEVICE Packed<T, Width> load(const T* from) {
  Packed<T, Width> packed;
#ifdef __CUDA_ARCH__
  if constexpr (Width == 1) {
    packed.value = *from;
  } else if constexpr (Packed<T, Width>::kWords == 2) {
    const uint2 words = *reinterpret_cast<const uint2*>(from);
    packed.words[0] = words.x;
    packed.words[1] = words.y;
  } else {
    PENSTOCK_UNROLL
    for (int k = 0; k < Packed<T, Width>::kWords; k += 4) {
      const uint4 words = reinterpret_cast<const uint4*>(from)[k / 4];
      packed.words[k] = words.x;
      packed.words[k + 1] = words.y;
      packed.words[k + 2] = words.z;
      packed.words[k + 3] = words.w;
    }
  }
#else
  std::memcpy(&packed, from, sizeof(packed));
#endif
  return packed;
}
template <int Width, class T>
PENSTOCK_DEVICE void store(T* to, const Packed<T, Width>& packed) {
#ifdef __CUDA_ARCH__
  if constexpr (Width == 1) {
    *to = packed.value;
  } else if constexpr (Packed<T, Width>::kWords == 2) {
    *reinterpret_cast<uint2*>(to) = make_uint2(packed.words[0], packed.words[1]);
  } else {
    PENSTOCK_UNROLL
    for (int k = 0; k < Packed<T, Width>::kWords; k += 4) {
      reinterpret_cast<uint4*>(to)[k / 4] = make_uint4(packed.words[k], packed.words[k + 1],
                                                       packed.words[k + 2], packed.words[k + 3]);
    }
  }
#else
  std::memcpy(to, &packed, sizeof(packed));
#endif
}

template <class T, int Width>
PENSTOCK_DEVICE Lanes<Width> unpack(const Packed<T, Width>& packed) {
  Lanes<Width> lanes;
  if constexpr (Width == 1) {
    lanes.of[0] = to_float(packed.value);
  } else if constexpr (sizeof(T) == 4) {
    PENSTOCK_UNROLL
    for (int k = 0; k < Width; ++k) lanes.of[k] = float_of_bits(packed.words[k]);
  } else {
    PENSTOCK_UNROLL
    for (int k = 0; k < Width; k += 2) {
      const std::uint32_t word = packed.words[k / 2];
      lanes.of[k] = to_float(T{static_cast<std::uint16_t>(word & 0xffffU)});
      lanes.of[k + 1] = to_float(T{static_cast<std::uint16_t>(word >> 16)});
    }
  }
  return lanes;
}

/// Packs two values of a short type into one word, the first in the low half.
template <class T>
PENSTOCK_DEVICE std::uint32_t pack_two(float first, float second) {
#ifdef __CUDA_ARCH__
  std::uint32_t word;
  if constexpr (std::is_same_v<T, F16>) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  } else {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  }
  return word;
#else
  return from_float<T>(first).bits | static_cast<std::uint32_t>(from_float<T>(second).bits) << 16;
#endif
}

template <class T, int Width>
PENSTOCK_DEVICE Packed<T, Width> pack(const Lanes<Width>& lanes) {
  Packed<T, Width> packed;
  if constexpr (Width == 1) {
    packed.value = from_float<T>(lanes.of[0]);
  } else if constexpr (sizeof(T) == 4) {
    PENSTOCK_UNROLL
    for (int k = 0; k < Width; ++k) packed.words[k] = bits_of_float(lanes.of[k]);
  } else {
    PENSTOCK_UNROLL
    for (int k = 0; k < Width; k += 2) {
      packed.words[k / 2] = pack_two<T>(lanes.of[k], lanes.of[k + 1]);
    }
  }
  return packed;
}

/// Loads elements from memory and converts them to float.
template <int Width, class T>
PENSTOCK_DEVICE Lanes<Width> load_lanes(const T* from) {
  return unpack<T, Width>(load<Width>(from));
}
template <class T, int Width>
PENSTOCK_DEVICE void store_lanes(T* to, const Lanes<Width>& lanes) {
  store<Width>(to, pack<T, Width>(lanes));
}
/// Stores elements, or adds them to those in memory.
template <class T, int Width>
PENSTOCK_DEVICE void store_or_add(T* to, Lanes<Width> lanes, bool adds) {
  if (adds) {
    const Lanes<Width> old = load_lanes<Width>(static_cast<const T*>(to));
    PENSTOCK_UNROLL
    for (int k = 0; k < Width; ++k) lanes.of[k] += old.of[k];
  }
  store_lanes(to, lanes);
}
/// Loads values per channel; `missing` everywhere if `from` is null.
template <int Width>
PENSTOCK_DEVICE Lanes<Width> load_or(const float* from, std::int32_t channel, float missing) {
  if (from != nullptr) return load_lanes<Width>(from + channel);
  Lanes<Width> lanes;
  PENSTOCK_UNROLL
  for (int k = 0; k < Width; ++k) lanes.of[k] = missing;
  return lanes;
}

/// Loads `Width` mask bits, beginning at element `at`, which is a multiple of Width.
template <int Width>
PENSTOCK_DEVICE std::uint32_t mask_bits(const std::uint8_t* mask, std::int64_t at) {
  static_assert(Width == 1 || Width == 8);
  const std::uint32_t byte = mask[at / 8];
  return Width == 8 ? byte : byte >> (at % 8);
}

}  // namespace penstock::gpu
