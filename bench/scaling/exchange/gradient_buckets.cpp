// SPDX-License-Identifier: Apache-2.0
#include "bench/scaling/exchange/gradient_buckets.h"

#include <algorithm>

namespace penstock::scaling {

std::vector<std::size_t> gradient_sizes(const Graph& graph) {
  std::vector<std::size_t> sizes;
  for (const ParameterSpec& parameter : graph.parameters()) {
    sizes.push_back(static_cast<std::size_t>(parameter.count()));
  }
  std::reverse(sizes.begin(), sizes.end());
  return sizes;
}

std::vector<std::size_t> bucket_sizes(std::span<const std::size_t> sizes,
                                      const BucketLimits& limits) {
  std::vector<std::size_t> edges{0};
  for (const std::size_t size : sizes) edges.push_back(edges.back() + size);
  std::vector<std::size_t> buckets;
  for (const BucketRange& range : plan_buckets(edges, limits)) buckets.push_back(range.count);
  return buckets;
}

}  // namespace penstock::scaling
