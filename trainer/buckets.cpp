// SPDX-License-Identifier: Apache-2.0
#include "trainer/buckets.h"

#include <algorithm>
#include <limits>

#include "dataflow/error.h"

namespace penstock {
namespace {

/// The first element of each parameter's range of the arena, and the end of the last range. A gap
/// between two parameters belongs to the first of them; a gap before all parameters belongs to the
/// first parameter.
std::vector<std::size_t> bounds_of(const ParameterSet& set) {
  std::vector<std::size_t> bounds;
  for (const Parameter& parameter : set.parameters) {
    bounds.push_back(bounds.empty() ? 0 : offset_in(set.gradients, parameter.gradient));
  }
  bounds.push_back(set.gradients.count);
  for (std::size_t i = 1; i < bounds.size(); ++i) PENSTOCK_ASSERT(bounds[i - 1] <= bounds[i]);
  return bounds;
}

std::size_t limit_of(std::size_t bucket, const BucketLimits& limits) {
  if (limits.bytes == 0) return std::numeric_limits<std::size_t>::max();
  return bucket == 0 && limits.first_bytes > 0 ? limits.first_bytes : limits.bytes;
}

/// The first piece waits for all gradients; the others wait for no further ones.
std::vector<BucketRange> plan_pieces(std::span<const std::size_t> edges, std::size_t pieces) {
  const std::size_t elements = edges.back();
  const std::size_t count = std::clamp<std::size_t>(pieces, 1, std::max<std::size_t>(elements, 1));
  std::vector<BucketRange> ranges;
  for (std::size_t piece = 0; piece < count; ++piece) {
    const std::size_t first = elements * piece / count;
    ranges.push_back({first, elements * (piece + 1) / count - first, 0});
  }
  ranges.front().parameters = edges.size() - 1;
  return ranges;
}

/// Whether parameter `i` fits into the open bucket, the last of `ranges`.
bool fits(std::span<const std::size_t> edges, const BucketLimits& limits,
          const std::vector<BucketRange>& ranges, std::size_t i) {
  const BucketRange& open = ranges.back();
  if (limits.small_bytes == 0) {
    return (edges[i + 1] - open.first) * sizeof(float) <= limit_of(ranges.size() - 1, limits);
  }
  const auto is_small = [&](std::size_t parameter) {
    return (edges[parameter + 1] - edges[parameter]) * sizeof(float) <= limits.small_bytes;
  };
  return is_small(i) && is_small(i - 1) && open.parameters < limits.small_group;
}

}  // namespace

std::vector<BucketRange> plan_buckets(std::span<const std::size_t> edges,
                                      const BucketLimits& limits) {
  PENSTOCK_ASSERT(!edges.empty());
  if (limits.pieces > 0) return plan_pieces(edges, limits.pieces);
  std::vector<BucketRange> ranges;
  for (std::size_t i = 0; i + 1 < edges.size(); ++i) {
    if (ranges.empty() || !fits(edges, limits, ranges, i)) ranges.push_back({edges[i], 0, 0});
    ranges.back().count = edges[i + 1] - ranges.back().first;
    ++ranges.back().parameters;
  }
  if (ranges.empty()) ranges.push_back({0, edges.back(), 0});
  return ranges;
}

BucketPlan::BucketPlan(const ParameterSet& set, const BucketLimits& limits) {
  PENSTOCK_ASSERT(set.gradients.dtype == DType::f32);
  auto* const arena = static_cast<float*>(set.gradients.data);
  for (const BucketRange& range : plan_buckets(bounds_of(set), limits)) {
    bucket_of_.insert(bucket_of_.end(), range.parameters, buckets_.size());
    buckets_.push_back({{arena + range.first, range.count, DType::f32}, range.parameters});
    parameters_.push_back(range.parameters);
  }
}

void BucketProgress::begin() {
  missing_.assign(plan_.parameters().begin(), plan_.parameters().end());
  complete_ = 0;
}

std::size_t BucketProgress::complete(std::size_t parameter) {
  std::size_t& missing = missing_[plan_.bucket_of(parameter)];
  PENSTOCK_ASSERT(missing > 0);
  --missing;
  while (complete_ < missing_.size() && missing_[complete_] == 0) ++complete_;
  return complete_;
}

}  // namespace penstock
