// SPDX-License-Identifier: Apache-2.0
// Ways in which ranks that are threads of this process can add their gradients, by the names that
// users type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "dataflow/clock.h"
#include "trainer/collective.h"
#include "trainer/collectives/all_reduce.h"

namespace penstock {

/// The group that adds in shared memory, in the order of ranks: what `penstock run` uses for
/// devices without links of their own.
inline constexpr std::string_view kSharedMemory = "shared-memory";

struct ExchangeWay {
  std::string name{};
  /// One device per rank, which outlive the group, as the clock does.
  std::function<std::unique_ptr<CollectiveGroup>(std::span<Device* const>, Clock&, std::stop_token)>
      make{};
  std::optional<AllReducePlan> plan{};  ///< none: without messages
};

struct ExchangeWish {
  std::string algorithms = "all";  ///< names, separated by commas
  std::string all_reduce_spec{};   ///< empty: none
  std::int32_t local_ranks = 1;
  Nanoseconds timeout = std::chrono::minutes(1);
};

/// Every name once, in the order wished for; the spec last, by its text. Throws ConfigError for
/// names that are none.
std::vector<ExchangeWay> exchange_ways(const ExchangeWish& wish);

/// What the messages of one exchange of all buckets come to, without those by which ranks meet.
ExchangeCost exchange_cost(const AllReducePlan& plan, std::span<const std::size_t> buckets,
                           std::int32_t ranks, std::int32_t local_ranks);

}  // namespace penstock
