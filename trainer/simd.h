// SPDX-License-Identifier: Apache-2.0
// Vectorises kernels. A loop is written once, over an element type, as an overload of
//   loop(const Arguments&, std::size_t first, std::size_t count)
// and compiled for AVX-512, for AVX2 and for the baseline. The first request decides which one
// runs. Only sources of kernels include this file.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

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
