// SPDX-License-Identifier: Apache-2.0
#include "dataflow/values/float16.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace penstock::values {
namespace {

#if defined(__x86_64__)
/// Uses instructions that processors have since 2012. Returns how many values it converted.
[[gnu::target("avx,f16c")]] std::size_t narrow_f16c(const float* values, Fp16* to,
                                                    std::size_t count) {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(values + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), halves);
  }
  return i;
}
[[gnu::target("avx,f16c")]] std::size_t widen_f16c(const Fp16* values, float* to,
                                                   std::size_t count) {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(values + i));
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(halves));
  }
  return i;
}
/// Clang 14 knows no __builtin_cpu_supports("f16c").
bool has_f16c() {
  static const bool has = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __builtin_cpu_supports("avx") && __get_cpuid(1, &a, &b, &c, &d) != 0 &&
           (c & bit_F16C) != 0;
  }();
  return has;
}
#else
std::size_t narrow_f16c(const float*, Fp16*, std::size_t) { return 0; }
std::size_t widen_f16c(const Fp16*, float*, std::size_t) { return 0; }
bool has_f16c() { return false; }
#endif

}  // namespace

void narrow(const float* values, Fp16* to, std::size_t count) {
  std::size_t i = has_f16c() ? narrow_f16c(values, to, count) : 0;
  for (; i < count; ++i) store(to[i], values[i]);
}

void widen(const Fp16* values, float* to, std::size_t count) {
  std::size_t i = has_f16c() ? widen_f16c(values, to, count) : 0;
  for (; i < count; ++i) to[i] = load(values[i]);
}

}  // namespace penstock::values
