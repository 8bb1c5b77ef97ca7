// SPDX-License-Identifier: Apache-2.0
// A model whose elements all have the same value, so that a test sees a mixture of two models.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "trainer/backend.h"
#include "trainer/cluster/model_store.h"

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

/// Publishes versions of the model of `rank`, and reads one of another rank after each. No model
/// that is read is a mixture of two, or older than the one before.
inline void expect_whole_models(cluster::ModelStore& store, std::int32_t rank, std::int32_t ranks,
                                std::int64_t versions, std::size_t count, Stream& stream) {
  UniformModel published(count, 0), other(count);
  std::vector<std::int64_t> seen(static_cast<std::size_t>(ranks), 0);
  for (std::int64_t version = 1; version <= versions; ++version) {
    published.fill(static_cast<float>(version));
    store.publish(rank, version, published.tensor(), stream);
    const auto owner = static_cast<std::int32_t>((rank + 1 + version % (ranks - 1)) % ranks);
    const auto read = store.read(rank, owner, other.tensor(), stream);
    ASSERT_TRUE(read.has_value());
    ASSERT_EQ(other.value(), static_cast<float>(*read));
    ASSERT_GE(*read, seen[static_cast<std::size_t>(owner)]);
    seen[static_cast<std::size_t>(owner)] = *read;
  }
}

}  // namespace penstock
