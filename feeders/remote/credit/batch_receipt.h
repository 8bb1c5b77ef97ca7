// SPDX-License-Identifier: Apache-2.0
// The credit and the lease that a consumer owes to a producer while it holds a batch.
#pragma once

#include <cstdint>
#include <optional>

namespace penstock::remote {

struct BatchReceipt {
  std::uint64_t producer = 0;          ///< its number in the CreditScheduler; 0: none
  std::optional<std::uint64_t> lease;  ///< set for a batch in shared memory
};

}  // namespace penstock::remote
