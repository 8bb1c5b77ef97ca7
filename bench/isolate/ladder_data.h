// SPDX-License-Identifier: Apache-2.0
// What a ladder has to know of the data set that its rungs read.
#pragma once

#include <cstdint>
#include <stop_token>

#include "bench/run_config.h"
#include "dataflow/source.h"

namespace penstock {

struct LadderData {
  /// A folder of class folders, which the source `memory` can hold.
  bool is_folder = true;
  SampleKind kind = SampleKind::encoded;
  std::uint64_t examples = 0;  ///< of a set that is no such folder
};

/// Of the set that `queue` reads with this configuration, whose files are there. Throws ConfigError
/// where they are of no format that is known, or not usable; Error if a stop is requested
/// meanwhile.
LadderData ladder_data(const RunConfig& config, const std::stop_token& stop = {});

}  // namespace penstock
