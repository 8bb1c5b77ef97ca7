// SPDX-License-Identifier: Apache-2.0
// Random pixels and labels. Random, because zeros compress, deduplicate and draw less power than
// images.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stop_token>

#include "dataflow/batch.h"
#include "dataflow/random.h"

namespace penstock {

/// Fills a u8 batch with uniform pixels and labels, as a function of (seed, stream, index). After a
/// stop request the rest of the batch stays unchanged.
inline void fill_random(const Batch& batch, std::int32_t classes, std::uint64_t seed,
                        std::uint64_t stream, std::uint64_t index,
                        const std::stop_token& stop = {}) {
  constexpr std::size_t kPart = std::size_t{16} << 20;  // bytes between two stop checks
  Random random(seed, stream, index);
  for (std::span<std::byte> left = batch.pixels; !left.empty() && !stop.stop_requested();) {
    const std::size_t part = std::min(left.size(), kPart);
    random.fill(left.first(part));
    left = left.subspan(part);
  }
  for (std::int32_t& label : batch.labels) {
    label = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(classes)));
  }
}

}  // namespace penstock
