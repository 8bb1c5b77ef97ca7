// SPDX-License-Identifier: Apache-2.0
// In which order the samples of a source come, epoch after epoch: shuffled as a function of (seed,
// epoch), shared out over ranks, beginning where the plan says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "dataflow/source.h"

namespace penstock {

class SampleOrder {
 public:
  struct Turn {
    std::uint32_t sample = 0;  ///< below the number of samples
    std::uint64_t epoch = 0;
  };

  /// Of `samples` samples over all ranks. Throws ConfigError where some rank would have none.
  SampleOrder(const DataPlan& plan, std::size_t samples);

  /// Empty: the last epoch is over.
  std::optional<Turn> next();

  /// Samples in one epoch of this rank's share.
  std::uint64_t size() const noexcept;
  /// Samples in one epoch of all ranks.
  std::uint64_t size_over_ranks() const noexcept { return order_.size(); }

 private:
  void begin_epoch();

  const DataPlan plan_;
  std::vector<std::uint32_t> order_;  // of all ranks' samples, in this epoch
  std::size_t position_ = 0;          // in order_
  std::uint64_t epoch_ = 0;
};

}  // namespace penstock
