// SPDX-License-Identifier: Apache-2.0
// The ladder of a feeder that receives from other processes: the consumer's work without a network,
// then constant batches over the same transport by a `penstock serve` of the ladder's own, then the
// feeder as it is. Whose share each rung bounds is in LadderRung::part.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "bench/isolate/ladder.h"

namespace penstock {

struct MessageLadder {
  std::string program;           ///< penstock, which serves
  std::filesystem::path folder;  ///< private, for sockets and keys; outlives the ladder
  /// Where the user serves constant batches, on the producers' machine; empty: the ladder does it
  /// on this one.
  std::string endpoint;
};

/// Makes keys in the folder where the feeder of `base` has some. Throws ConfigError.
std::vector<LadderRung> message_rungs(const RunConfig& base, const MessageLadder& ladder);

}  // namespace penstock
