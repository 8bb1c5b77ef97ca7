// SPDX-License-Identifier: Apache-2.0
// Arrays of f32, f16 and bf16 as bytes: random ones, their values, and how far two of them are
// apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "dataflow/batch.h"
#include "dataflow/random.h"

namespace penstock::gpu {

using Bytes = std::vector<std::byte>;

/// The kind of elements, which decides how two of them are compared.
enum class Content : std::uint8_t { f32, f16, bf16, bits, result };

Content content_of(DType type);
std::string_view name_of_type(DType type);

/// Numbers, rounded to the type: f32, f16 or bf16.
Bytes elements_from(DType type, std::span<const float> values);
/// Random elements, uniform in [low, high).
Bytes random_elements(DType type, std::size_t count, Random& random, double low, double high);
/// Bytes that are NaN in each of the types.
Bytes poison(std::size_t bytes);
/// Element `i` of an array.
double element_of(const void* data, Content content, std::size_t i);
/// Elements as numbers: f32, f16 or bf16, or single bytes.
std::vector<double> values_of(std::span<const std::byte> bytes, Content content);

/// ||found - expected|| / ||expected||; infinite if one element is NaN and the other is another bit
/// pattern. For `bits`: the share of bytes that differ. For `result`: the distance of two
/// StepResults.
double distance_of(std::span<const std::byte> found, std::span<const std::byte> expected,
                   Content content);

}  // namespace penstock::gpu
