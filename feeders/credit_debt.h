// SPDX-License-Identifier: Apache-2.0
// What a consumer owes to the producer of a batch, by credit, as long as it holds the batch.
#pragma once

#include <cstdint>
#include <optional>

namespace penstock {

struct CreditDebt {
  std::uint64_t producer = 0;          ///< as its CreditBook knows it; 0: nobody
  std::optional<std::uint64_t> lease;  ///< of a batch in shared memory
};

}  // namespace penstock
