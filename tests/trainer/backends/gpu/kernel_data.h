// SPDX-License-Identifier: Apache-2.0
// Data for tests of kernels: tensors of the types of activations, which loops in double can read
// too, and the tolerances of results.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "dataflow/batch.h"
#include "dataflow/random.h"
#include "tests/support/gpu/host_launch.h"
#include "tests/support/plain_operators.h"
#include "trainer/backends/gpu/kernels/element.h"

namespace penstock::gpu {

inline constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16};

inline std::size_t index_of(std::int64_t i) { return static_cast<std::size_t>(i); }

/// `count` elements of `type`, aligned like device memory. They are NaN until they are set, so that
/// a test notices an element that a kernel does not write or reads too early.
class Elements {
 public:
  Elements(DType type, std::size_t count)
      : type_(type),
        count_(count),
        data_(static_cast<std::byte*>(::operator new (bytes(), std::align_val_t{16}))) {
    std::memset(data_.get(), 0xff, bytes());
  }
  /// Random elements, uniform in [low, high), rounded to the type.
  static Elements random(DType type, std::size_t count, Random& random, double low = -2,
                         double high = 3) {
    Elements elements(type, count);
    for (std::size_t i = 0; i < count; ++i) elements.set(i, random.uniform(low, high));
    return elements;
  }
  Elements copy() const {
    Elements other(type_, count_);
    std::memcpy(other.data(), data(), bytes());
    return other;
  }

  DType type() const { return type_; }
  std::size_t size() const { return count_; }
  std::size_t bytes() const { return count_ * size_of(type_); }
  void* data() { return data_.get(); }
  const void* data() const { return data_.get(); }

  double operator[](std::size_t i) const {
    if (type_ == DType::f32) return double{as<float>(i)};
    return double{type_ == DType::f16 ? to_float(as<F16>(i)) : to_float(as<BF16>(i))};
  }
  void set(std::size_t i, double value) {
    const auto rounded = static_cast<float>(value);
    if (type_ == DType::f32) put(i, rounded);
    if (type_ == DType::f16) put(i, from_float<F16>(rounded));
    if (type_ == DType::bf16) put(i, from_float<BF16>(rounded));
  }
  bool same_bits(const Elements& other) const {
    return bytes() == other.bytes() && std::memcmp(data(), other.data(), bytes()) == 0;
  }

 private:
  struct Free {
    void operator()(std::byte* data) const { ::operator delete (data, std::align_val_t{16}); }
  };
  template <class T>
  T as(std::size_t i) const {
    T value;
    std::memcpy(&value, data_.get() + i * sizeof(T), sizeof(T));
    return value;
  }
  template <class T>
  void put(std::size_t i, T value) {
    std::memcpy(data_.get() + i * sizeof(T), &value, sizeof(T));
  }

  DType type_;
  std::size_t count_;
  std::unique_ptr<std::byte, Free> data_;
};

/// f32 per channel, or sums: Elements that are read as floats.
class Floats : public Elements {
 public:
  explicit Floats(std::size_t count) : Elements(DType::f32, count) {}
  explicit Floats(Elements elements) : Elements(std::move(elements)) {}
  float* floats() { return static_cast<float*>(data()); }
};
inline Floats random_floats(std::size_t count, Random& random, double low, double high) {
  return Floats(Elements::random(DType::f32, count, random, low, high));
}

/// Half a unit in the last place, for 24, 11 and 8 significant bits.
inline double half_unit(DType type) {
  return type == DType::f32 ? 0x1p-24 : type == DType::f16 ? 0x1p-11 : 0x1p-8;
}
/// Half the distance between the smallest numbers.
inline double half_smallest(DType type) {
  return type == DType::f32 ? 0x1p-150 : type == DType::f16 ? 0x1p-25 : 0x1p-134;
}

/// The tolerance of a result of float arithmetic that is rounded to `type` once. The sizes of its
/// terms add up to `size`; each term is rounded at most `roundings` times.
inline double tolerance(DType type, double expected, double size, double roundings = 8) {
  const double arithmetic = roundings * 0x1p-24 * size;
  return arithmetic + half_unit(type) * (std::abs(expected) + arithmetic) + half_smallest(type);
}
#define EXPECT_ROUNDED(actual, expected, type, size) \
  ASSERT_NEAR(actual, expected, tolerance(type, expected, size))

/// Rows and channels. Channels: odd numbers and multiples of eight. Sizes: one block and several in
/// both dimensions, and fewer rows than a block has lanes.
struct Matrix {
  std::int64_t rows;
  std::int32_t channels;
  std::size_t size() const { return index_of(rows * channels); }
};
inline constexpr Matrix kMatrices[] = {{1, 1},    {50, 7},   {4099, 3},  {33, 300}, {20, 8},
                                       {301, 64}, {70, 320}, {9001, 16}, {5, 2056}};

/// [N, H, W, C] in the form of the plain operators.
inline plain::Images images_of(const Elements& elements, std::int32_t count,
                               const ImageShape& shape) {
  plain::Images images(count, shape);
  const auto channels = index_of(shape.channels);
  for (std::int32_t n = 0; n < count; ++n) {
    for (std::int32_t c = 0; c < shape.channels; ++c) {
      for (std::size_t p = 0; p < images.plane(); ++p) {
        images.channel(n, c)[p] =
            elements[(index_of(n) * images.plane() + p) * channels + index_of(c)];
      }
    }
  }
  return images;
}
/// The reverse: element i of [N, H, W, C].
inline double value_at(const plain::Images& images, std::size_t i) {
  const auto channels = index_of(images.shape.channels);
  const std::size_t pixel = i / channels, n = pixel / images.plane();
  return images.channel(static_cast<std::int32_t>(n),
                        static_cast<std::int32_t>(i % channels))[pixel % images.plane()];
}

/// Mask bits for `count` elements; a share of them is set.
inline std::vector<std::uint8_t> random_mask(std::size_t count, Random& random) {
  std::vector<std::uint8_t> mask((count + 7) / 8);
  for (std::uint8_t& byte : mask) byte = static_cast<std::uint8_t>(random.bits());
  return mask;
}
inline bool bit_of(std::span<const std::uint8_t> mask, std::size_t i) {
  return (mask[i / 8] >> (i % 8) & 1) != 0;
}

}  // namespace penstock::gpu
