// SPDX-License-Identifier: Apache-2.0
#include "tests/support/gpu/elements.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "dataflow/error.h"
#include "trainer/backend.h"
#include "trainer/backends/gpu/kernels/select.h"

namespace penstock::gpu {
namespace {

std::size_t size_of_element(Content content) {
  if (content == Content::f32) return sizeof(float);
  return content == Content::bits ? 1 : sizeof(std::uint16_t);
}

template <typename T>
double number_at(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return double{to_float(value)};
}

double element_at(const std::byte* at, Content content) {
  if (content == Content::f32) return number_at<float>(at);
  if (content == Content::bits) return static_cast<double>(std::to_integer<int>(*at));
  return content == Content::f16 ? number_at<F16>(at) : number_at<BF16>(at);
}

/// Compares losses by their values, and counts exactly.
double distance_of_results(std::span<const std::byte> found, std::span<const std::byte> expected) {
  StepResult a, b;
  std::memcpy(static_cast<void*>(&a), found.data(), sizeof a);
  std::memcpy(static_cast<void*>(&b), expected.data(), sizeof b);
  if (a.top1 != b.top1 || a.top5 != b.top5 || a.images != b.images || a.finite != b.finite) {
    return std::numeric_limits<double>::infinity();
  }
  const double scale = std::max({1e-30, double{std::abs(b.loss)}, double{std::abs(b.l2_loss)}});
  const double difference =
      std::max(std::abs(double{a.loss} - b.loss), std::abs(double{a.l2_loss} - b.l2_loss)) / scale;
  return std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference;
}

}  // namespace

Content content_of(DType type) {
  switch (type) {
    case DType::f32:
      return Content::f32;
    case DType::f16:
      return Content::f16;
    case DType::bf16:
      return Content::bf16;
    default:
      return Content::bits;
  }
}

std::string_view name_of_type(DType type) {
  constexpr std::array<std::string_view, 5> kNames{"u8", "i32", "f16", "bf16", "f32"};
  return kNames.at(static_cast<std::size_t>(type));
}

Bytes elements_from(DType type, std::span<const float> values) {
  Bytes bytes(values.size() * size_of(type));
  with_type(type, [&]<class T>(T) {
    std::ranges::transform(values, reinterpret_cast<T*>(bytes.data()), from_float<T>);
  });
  return bytes;
}

Bytes random_elements(DType type, std::size_t count, Random& random, double low, double high) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random.uniform(low, high));
  return elements_from(type, values);
}

Bytes poison(std::size_t bytes) { return Bytes(bytes, std::byte{0xff}); }

double element_of(const void* data, Content content, std::size_t i) {
  return element_at(static_cast<const std::byte*>(data) + i * size_of_element(content), content);
}

std::vector<double> values_of(std::span<const std::byte> bytes, Content content) {
  const std::size_t size = size_of_element(content);
  std::vector<double> values(bytes.size() / size);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = element_of(bytes.data(), content, i);
  }
  return values;
}

double distance_of(std::span<const std::byte> found, std::span<const std::byte> expected,
                   Content content) {
  PENSTOCK_ASSERT(found.size() == expected.size());
  if (std::ranges::equal(found, expected)) return 0;
  if (content == Content::result) return distance_of_results(found, expected);
  const std::size_t size = size_of_element(content);
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < found.size(); i += size) {
    if (std::equal(found.data() + i, found.data() + i + size, expected.data() + i)) {
      const double same = element_at(found.data() + i, content);
      if (std::isfinite(same)) norm += same * same;
      continue;
    }
    const double a = element_at(found.data() + i, content);
    const double b = element_at(expected.data() + i, content);
    difference += content == Content::bits ? 1 : (a - b) * (a - b);
    norm += b * b;
  }
  if (content == Content::bits) return difference / static_cast<double>(found.size());
  const double distance = std::sqrt(difference / norm);
  return std::isnan(distance) ? std::numeric_limits<double>::infinity() : distance;
}

}  // namespace penstock::gpu
