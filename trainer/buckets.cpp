// SPDX-License-Identifier: Apache-2.0
#include "trainer/buckets.h"

#include <limits>

#include "dataflow/error.h"

namespace penstock {
namespace {

/// Where each parameter's range of the arena begins, in elements, and where the last one ends.
/// What lies between two parameters belongs to the first of them, what lies before all to the
/// first of all.
std::vector<std::size_t> bounds_of(const ParameterSet& set) {
  const auto* const arena = static_cast<const float*>(set.gradients.data);
  std::vector<std::size_t> bounds;
  for (const Parameter& parameter : set.parameters) {
    const auto* const gradient = static_cast<const float*>(parameter.gradient.data);
    bounds.push_back(bounds.empty() ? 0 : static_cast<std::size_t>(gradient - arena));
  }
  bounds.push_back(set.gradients.count);
  for (std::size_t i = 1; i < bounds.size(); ++i) PENSTOCK_ASSERT(bounds[i - 1] <= bounds[i]);
  return bounds;
}

std::size_t limit_of(std::size_t bucket, const BucketLimits& limits) {
  if (limits.bytes == 0) return std::numeric_limits<std::size_t>::max();
  return bucket == 0 && limits.first_bytes > 0 ? limits.first_bytes : limits.bytes;
}

}  // namespace

BucketPlan::BucketPlan(const ParameterSet& set, const BucketLimits& limits) {
  PENSTOCK_ASSERT(set.gradients.dtype == DType::f32);
  auto* const arena = static_cast<float*>(set.gradients.data);
  const std::vector<std::size_t> bounds = bounds_of(set);
  std::size_t first = 0;  // element of the arena that the open bucket begins with
  for (std::size_t i = 0; i < set.parameters.size(); ++i) {
    const std::size_t bytes = (bounds[i + 1] - first) * sizeof(float);
    if (buckets_.empty() || bytes > limit_of(buckets_.size() - 1, limits)) {
      first = bounds[i];
      buckets_.push_back({{arena + first, 0, DType::f32}, 0});
    }
    Bucket& open = buckets_.back();
    open.gradients.count = bounds[i + 1] - first;
    ++open.parameters;
    bucket_of_.push_back(buckets_.size() - 1);
  }
  if (buckets_.empty()) buckets_.push_back({set.gradients, 0});
}

}  // namespace penstock
