// SPDX-License-Identifier: Apache-2.0
// The order of a source's samples, epoch after epoch. It is shuffled as a function of (seed,
// epoch), split over ranks, and starts where the plan says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "dataflow/source.h"

namespace penstock::datasets {

class SampleOrder {
 public:
  struct Turn {
    std::uint32_t sample = 0;  ///< less than the number of samples
    std::uint64_t epoch = 0;
  };

  /// Orders `samples` samples, counted over all ranks. Throws ConfigError if some rank would have
  /// none.
  SampleOrder(const DataPlan& plan, std::size_t samples);

  /// Empty: the last epoch is over.
  std::optional<Turn> next();

  /// The number of samples in one epoch of this rank's share.
  std::uint64_t size() const noexcept;
  /// The number of samples in one epoch of all ranks.
  std::uint64_t size_over_ranks() const noexcept { return order_.size(); }

 private:
  void begin_epoch();

  const DataPlan plan_;
  std::vector<std::uint32_t> order_;  // the samples of all ranks, in this epoch's order
  std::size_t position_ = 0;          // in order_
  std::uint64_t epoch_ = 0;
};

}  // namespace penstock::datasets
