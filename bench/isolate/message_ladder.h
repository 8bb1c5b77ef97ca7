// SPDX-License-Identifier: Apache-2.0
// The ladder of a feeder that receives from other processes. Its rungs are: the consumer's work
// without a network; constant batches over the same transport, sent by a `penstock serve` that the
// ladder starts; and the user's feeder. LadderRung::part names the side that each rung bounds.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "bench/config/run_config.h"
#include "bench/isolate/ladder.h"

namespace penstock::isolate {

struct MessageLadder {
  std::string program;           ///< path of penstock, which serves
  std::filesystem::path folder;  ///< private folder for sockets and keys; outlives the ladder
  /// Where the user serves constant batches, on the producers' machine. If empty, the ladder serves
  /// them on this machine.
  std::string endpoint;
};

/// Creates keys in the folder if the feeder of `base` uses keys. Throws ConfigError.
std::vector<LadderRung> message_rungs(const RunConfig& base, const MessageLadder& ladder);

}  // namespace penstock::isolate
