// SPDX-License-Identifier: Apache-2.0
#include "dataflow/images/jpeg/idct.h"

#include <algorithm>
#include <cstring>

namespace penstock::jpeg {
namespace {

// The compiler's own vectors, with one lane for each of eight columns or rows. They are unsigned,
// so that sums of invalid coefficients may wrap around.
using Shorts8 = std::int16_t __attribute__((vector_size(16)));
using UnsignedShorts8 = std::uint16_t __attribute__((vector_size(16)));
using Ints8 = std::int32_t __attribute__((vector_size(32)));
using Words8 = std::uint32_t __attribute__((vector_size(32)));
using Longs4 = std::uint64_t __attribute__((vector_size(32)));

constexpr int kConstBits = 13, kPassBits = 2;

constexpr std::uint32_t fixed(double value) {
  const double scaled = value * (1 << kConstBits);
  return static_cast<std::uint32_t>(static_cast<std::int32_t>(scaled + (scaled < 0 ? -0.5 : 0.5)));
}

/// One pass over all lanes: v[0..7] in frequency to v[0..7] in space. Only the first `used` are not
/// zero. Results are rounded to `shift` fewer bits.
template <int used, int shift>
[[gnu::always_inline]] inline void transform(Words8* v) {
  static_assert(used == 4 || used == 8);
  Words8 even2, even3, sum04, difference04;
  if constexpr (used == 8) {
    const Words8 z1 = (v[2] + v[6]) * fixed(0.541196100);
    even2 = z1 - v[6] * fixed(1.847759065);
    even3 = z1 + v[2] * fixed(0.765366865);
    sum04 = (v[0] + v[4]) << kConstBits;
    difference04 = (v[0] - v[4]) << kConstBits;
  } else {
    even2 = v[2] * fixed(0.541196100);
    even3 = v[2] * (fixed(0.541196100) + fixed(0.765366865));
    sum04 = difference04 = v[0] << kConstBits;
  }
  constexpr std::uint32_t kHalf = 1U << (shift - 1);
  sum04 += kHalf;
  difference04 += kHalf;
  const Words8 even[4] = {sum04 + even3, difference04 + even2, difference04 - even2, sum04 - even3};
  Words8 odd[4];
  if constexpr (used == 8) {
    const Words8 z1 = (v[7] + v[1]) * fixed(-0.899976223);
    const Words8 z2 = (v[5] + v[3]) * fixed(-2.562915447);
    const Words8 z3 = v[7] + v[3], z4 = v[5] + v[1];
    const Words8 z5 = (z3 + z4) * fixed(1.175875602);
    const Words8 z35 = z3 * fixed(-1.961570560) + z5, z45 = z4 * fixed(-0.390180644) + z5;
    odd[3] = v[7] * fixed(0.298631336) + (z1 + z35);
    odd[2] = v[5] * fixed(2.053119869) + (z2 + z45);
    odd[1] = v[3] * fixed(3.072711026) + (z2 + z35);
    odd[0] = v[1] * fixed(1.501321110) + (z1 + z45);
  } else {
    // The same integer sums without the zero terms.
    const Words8 z5 = (v[3] + v[1]) * fixed(1.175875602);
    const Words8 z1 = v[1] * fixed(-0.899976223), z2 = v[3] * fixed(-2.562915447);
    const Words8 z35 = v[3] * fixed(-1.961570560) + z5, z45 = v[1] * fixed(-0.390180644) + z5;
    odd[3] = z1 + z35;
    odd[2] = z2 + z45;
    odd[1] = v[3] * fixed(3.072711026) + (z2 + z35);
    odd[0] = v[1] * fixed(1.501321110) + (z1 + z45);
  }
  for (int i = 0; i < 4; ++i) {
    v[i] = (Words8)((Ints8)(even[i] + odd[i]) >> shift);
    v[7 - i] = (Words8)((Ints8)(even[i] - odd[i]) >> shift);
  }
}

[[gnu::always_inline]] inline Words8 low_pairs(Words8 a, Words8 b) {
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13);
}
[[gnu::always_inline]] inline Words8 high_pairs(Words8 a, Words8 b) {
  return __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
}
[[gnu::always_inline]] inline Words8 low_quads(Words8 a, Words8 b) {
  return (Words8)__builtin_shufflevector((Longs4)a, (Longs4)b, 0, 4, 2, 6);
}
[[gnu::always_inline]] inline Words8 high_quads(Words8 a, Words8 b) {
  return (Words8)__builtin_shufflevector((Longs4)a, (Longs4)b, 1, 5, 3, 7);
}
[[gnu::always_inline]] inline Words8 low_halves(Words8 a, Words8 b) {
  return (Words8)__builtin_shufflevector((Longs4)a, (Longs4)b, 0, 1, 4, 5);
}
[[gnu::always_inline]] inline Words8 high_halves(Words8 a, Words8 b) {
  return (Words8)__builtin_shufflevector((Longs4)a, (Longs4)b, 2, 3, 6, 7);
}

/// Swaps rows and columns. With 4 used columns it makes only the first four results.
template <int used>
[[gnu::always_inline]] inline void transpose(Words8* v) {
  Words8 quads[8];  // [i], [i + 4]: columns i of rows 0 to 3 and of rows 4 to 7
  for (int h = 0; h < 2; ++h) {
    const Words8* const r = v + std::ptrdiff_t{4} * h;
    const Words8 low01 = low_pairs(r[0], r[1]), low23 = low_pairs(r[2], r[3]);
    const Words8 high01 = high_pairs(r[0], r[1]), high23 = high_pairs(r[2], r[3]);
    Words8* const q = quads + std::ptrdiff_t{4} * h;
    q[0] = low_quads(low01, low23);    // columns 0 and 4
    q[1] = high_quads(low01, low23);   // 1 and 5
    q[2] = low_quads(high01, high23);  // 2 and 6
    q[3] = high_quads(high01, high23);
  }
  for (int i = 0; i < 4; ++i) {
    v[i] = low_halves(quads[i], quads[i + 4]);
    if constexpr (used == 8) v[i + 4] = high_halves(quads[i], quads[i + 4]);
  }
}

[[gnu::always_inline]] inline Shorts8 load(const std::int16_t* from, int row) {
  Shorts8 shorts;
  std::memcpy(&shorts, from + std::ptrdiff_t{8} * row, sizeof shorts);
  return shorts;
}

template <int used>
struct Inverse {
  [[gnu::always_inline]] static void run(const std::int16_t* coefficients,
                                         const Quantisation& quantisation, std::uint8_t* to,
                                         std::ptrdiff_t stride, Idct::Beyond& beyond) {
    Words8 v[8], outside;
    std::memcpy(&outside, beyond.data(), sizeof outside);
    for (int row = 0; row < used; ++row) {
      // Unsigned, so that values beyond their limit may wrap around.
      const auto products = (UnsignedShorts8)load(coefficients, row) *
                            (UnsignedShorts8)load(quantisation.steps.data(), row);
      v[row] = (Words8) __builtin_convertvector((Shorts8)products, Ints8);
    }
    if (quantisation.coarse) {
      Shorts8 large{};
      for (int row = 0; row < used; ++row) {
        const Shorts8 values = load(coefficients, row);
        const Shorts8 limits = load(quantisation.limits.data(), row);
        large |= (values > limits) | (values < -limits);
      }
      outside |= (Words8) __builtin_convertvector(large, Ints8);  // all bits, or none
    }
    transform<used, kConstBits - kPassBits>(v);  // columns
    for (int row = 0; row < 8; ++row) outside |= v[row] + 0x4000U;
    std::memcpy(beyond.data(), &outside, sizeof outside);
    transpose<used>(v);
    // Adds the middle of the sample range to the first term.
    v[0] += 128U << (kPassBits + 3);
    transform<used, kConstBits + kPassBits + 3>(v);  // rows
    for (Words8& column : v) {
      auto samples = (Ints8)column;
      samples = samples < 0 ? Ints8{} : samples;
      samples = samples > 255 ? Ints8{} + 255 : samples;
      column = (Words8)samples;
    }
    const Words8 left = v[0] | v[1] << 8 | v[2] << 16 | v[3] << 24;
    const Words8 right = v[4] | v[5] << 8 | v[6] << 16 | v[7] << 24;
    const auto even = (Longs4)low_pairs(left, right);  // rows 0, 1, 4, 5
    const auto odd = (Longs4)high_pairs(left, right);  // rows 2, 3, 6, 7
    std::uint64_t rows[8];
    std::memcpy(rows, &even, sizeof even);
    std::memcpy(rows + 4, &odd, sizeof odd);
    static constexpr int kRows[8] = {0, 1, 4, 5, 2, 3, 6, 7};
    for (int i = 0; i < 8; ++i) std::memcpy(to + kRows[i] * stride, rows + i, sizeof rows[i]);
  }
};

/// Both passes for a block that has only its mean.
void inverse_flat(const std::int16_t* coefficients, const Quantisation& quantisation,
                  std::uint8_t* to, std::ptrdiff_t stride, Idct::Beyond&) {
  const std::int32_t mean = coefficients[0] * quantisation.steps[0];
  constexpr int kShift = kPassBits + 3;
  const std::int32_t sample = (((mean << kPassBits) + (1 << (kShift - 1))) >> kShift) + 128;
  const auto byte = static_cast<std::uint64_t>(std::clamp(sample, 0, 255));
  const std::uint64_t row = byte * 0x0101010101010101;
  for (int i = 0; i < 8; ++i) std::memcpy(to + i * stride, &row, sizeof row);
}

}  // namespace

bool Quantisation::assign(const std::uint16_t* table) {
  constexpr std::int32_t kLargest = (1 << 10) - 1;
  coarse = false;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (table[i] < 1 || table[i] > 255) return false;
    steps[i] = static_cast<std::int16_t>(table[i]);
    limits[i] = static_cast<std::int16_t>(kMaxCoefficient / table[i]);
    coarse = coarse || (i > 0 && limits[i] < kLargest);
  }
  return true;
}

const Idct& Idct::choose(InstructionSet set) {
  static constexpr Idct kAll[] = {{portable<Inverse<8>>, portable<Inverse<4>>, inverse_flat},
                                  {avx2<Inverse<8>>, avx2<Inverse<4>>, inverse_flat},
                                  {avx512<Inverse<8>>, avx512<Inverse<4>>, inverse_flat}};
  return kAll[static_cast<std::size_t>(set)];
}

bool Idct::any(const Beyond& beyond) {
  return std::any_of(beyond.begin(), beyond.end(),
                     [](std::uint32_t value) { return value > 0x7FFF; });
}

}  // namespace penstock::jpeg
