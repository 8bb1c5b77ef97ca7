// SPDX-License-Identifier: Apache-2.0
// A model whose elements all have the same value, so that a test sees a mixture of two models.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "trainer/backend.h"

namespace penstock {

class UniformModel {
 public:
  explicit UniformModel(std::size_t count, float value = -2) : values_(count, value) {}
  Tensor tensor() { return {values_.data(), values_.size()}; }
  void fill(float value) { std::fill(values_.begin(), values_.end(), value); }
  /// The value of all elements, or -1 if they differ.
  float value() const {
    const bool same = std::all_of(values_.begin(), values_.end(),
                                  [&](float value) { return value == values_.front(); });
    return same ? values_.front() : -1;
  }

 private:
  std::vector<float> values_;
};

}  // namespace penstock
