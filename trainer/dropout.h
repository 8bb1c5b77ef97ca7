// SPDX-License-Identifier: Apache-2.0
// Decides which elements dropout keeps, equally on every backend. The decision depends on the seed,
// the step, the node and the element, so that backward computes it again and keeps no mask.
#pragma once

#include <cstdint>

#include "dataflow/device_code.h"
#include "dataflow/random.h"

namespace penstock {

class DropoutMask {
 public:
  PENSTOCK_HOST_DEVICE DropoutMask(std::uint64_t seed, std::int64_t step, std::int32_t node,
                                   float rate) noexcept
      : key_(Random(seed, static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(node))
                 .bits()),
        threshold_(static_cast<std::uint64_t>(static_cast<double>(rate) * 0x1p32)) {}

  /// `element` counts in the order N, C, H, W.
  PENSTOCK_HOST_DEVICE bool keeps(std::uint64_t element) const noexcept {
    return (mix64(key_ + element * 0x9e3779b97f4a7c15U) >> 32) >= threshold_;
  }

 private:
  std::uint64_t key_, threshold_;
};

}  // namespace penstock
