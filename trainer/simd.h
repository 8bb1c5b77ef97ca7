// SPDX-License-Identifier: Apache-2.0
// Vectorises kernels. A loop is written once, over an element type, as an overload of
//   loop(const Arguments&, std::size_t first, std::size_t count)
// and compiled for AVX-512, for AVX2 and for the baseline. The first request decides which one
// runs. Only sources of kernels include this file.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "dataflow/batch.h"
#include "dataflow/error.h"

namespace penstock::cpu {

/// The upper half of an f32.
struct Bf16 {
  std::uint16_t bits;
};

[[gnu::always_inline]] inline float load(const float& value) { return value; }
[[gnu::always_inline]] inline float load(const std::uint8_t& value) { return value; }
[[gnu::always_inline]] inline float load(const Bf16& value) {
  return std::bit_cast<float>(std::uint32_t{value.bits} << 16);
}
[[gnu::always_inline]] inline void store(float& to, float value) { to = value; }
/// Rounds to nearest, ties to even; NaN stays NaN.
[[gnu::always_inline]] inline void store(Bf16& to, float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const std::uint32_t quiet = (bits >> 16) | 0x40U;
  to.bits = static_cast<std::uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? quiet : rounded);
}

/// 16 consecutive elements as f32, for loops that the compiler would vectorise badly by itself. The
/// compiler divides it where registers are shorter.
struct Sixteen {
  static constexpr std::size_t kSize = 16;
  using Floats = float __attribute__((vector_size(kSize * sizeof(float))));
  Floats v{};
};

namespace vectors {
using Words = std::uint32_t __attribute__((vector_size(Sixteen::kSize * sizeof(std::uint32_t))));
using Halves = std::uint16_t __attribute__((vector_size(Sixteen::kSize * sizeof(std::uint16_t))));
}  // namespace vectors

[[gnu::always_inline]] inline void load(const float* from, Sixteen& to) {
  std::memcpy(&to.v, from, sizeof(to.v));
}
[[gnu::always_inline]] inline void load(const Bf16* from, Sixteen& to) {
  vectors::Halves halves;
  std::memcpy(&halves, from, sizeof(halves));
  const vectors::Words words = __builtin_convertvector(halves, vectors::Words) << 16;
  std::memcpy(&to.v, &words, sizeof(words));
}
[[gnu::always_inline]] inline void store(float* to, const Sixteen& value) {
  std::memcpy(to, &value.v, sizeof(value.v));
}
/// Rounds as the store of one element.
[[gnu::always_inline]] inline void store(Bf16* to, const Sixteen& value) {
  vectors::Words bits;
  std::memcpy(&bits, &value.v, sizeof(bits));
  const vectors::Words upper = bits >> 16;
  const vectors::Words rounded = (bits + 0x7fffU + (upper & 1U)) >> 16;
  const vectors::Words result = value.v == value.v ? rounded : upper | 0x40U;
  const vectors::Halves halves = __builtin_convertvector(result, vectors::Halves);
  std::memcpy(to, &halves, sizeof(halves));
}

using Loop = void (*)(const void* arguments, std::size_t first, std::size_t count);
template <typename A>
void run_baseline(const void* arguments, std::size_t first, std::size_t count) {
  loop(*static_cast<const A*>(arguments), first, count);
}
template <typename A>
[[gnu::target("avx2,fma")]] void run_avx2(const void* arguments, std::size_t first,
                                          std::size_t count) {
  loop(*static_cast<const A*>(arguments), first, count);
}
template <typename A>
[[gnu::target("avx512f,avx512bw,avx512vl,avx512dq,fma,prefer-vector-width=512")]] void run_avx512(
    const void* arguments, std::size_t first, std::size_t count) {
  loop(*static_cast<const A*>(arguments), first, count);
}

template <typename A>
Loop best_loop() {
  static const Loop best = [] {
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq")) {
      return &run_avx512<A>;
    }
    return __builtin_cpu_supports("avx2") ? &run_avx2<A> : &run_baseline<A>;
  }();
  return best;
}

template <typename Body>
void with_type(DType dtype, Body body) {
  PENSTOCK_ASSERT(dtype == DType::f32 || dtype == DType::bf16);
  if (dtype == DType::f32) {
    body(float{});
  } else {
    body(Bf16{});
  }
}

}  // namespace penstock::cpu
