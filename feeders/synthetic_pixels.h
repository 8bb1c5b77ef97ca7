// SPDX-License-Identifier: Apache-2.0
// Random pixels and labels: never zeros, which compress, deduplicate and draw less power than
// images.
#pragma once

#include <cstdint>

#include "dataflow/batch.h"
#include "dataflow/random.h"

namespace penstock {

/// Fills a u8 batch with uniform pixels and labels, as a function of (seed, stream, index).
inline void fill_random(const Batch& batch, std::int32_t classes, std::uint64_t seed,
                        std::uint64_t stream, std::uint64_t index) {
  Random random(seed, stream, index);
  random.fill(batch.pixels);
  for (std::int32_t& label : batch.labels) {
    label = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(classes)));
  }
}

}  // namespace penstock
