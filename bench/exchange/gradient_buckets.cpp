// SPDX-License-Identifier: Apache-2.0
#include "bench/exchange/gradient_buckets.h"

#include <algorithm>

namespace penstock {

std::vector<std::size_t> gradient_sizes(const Graph& graph) {
  std::vector<std::size_t> sizes;
  for (const ParameterSpec& parameter : graph.parameters()) {
    sizes.push_back(static_cast<std::size_t>(parameter.count()));
  }
  std::reverse(sizes.begin(), sizes.end());
  return sizes;
}

std::vector<std::size_t> pack_buckets(std::span<const std::size_t> sizes, double bucket_bytes) {
  std::vector<std::size_t> buckets;
  for (const std::size_t size : sizes) {
    const bool fits = !buckets.empty() &&
                      static_cast<double>((buckets.back() + size) * sizeof(float)) <= bucket_bytes;
    if (fits) {
      buckets.back() += size;
    } else {
      buckets.push_back(size);
    }
  }
  return buckets;
}

}  // namespace penstock
