// SPDX-License-Identifier: Apache-2.0
// Why a watched loop waits for its loader, and what would help. Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "bench/record/wait_cause.h"
#include "bench/watch/watch_record.h"

namespace penstock::watch {

struct LoopAnswer {
  LoaderWaits waits;         ///< cause none: the loader keeps up, or there are no steady steps
  std::string why{};         ///< ", because its 2 workers make fewer batches than are trained"
  std::string remedy{};      ///< "num_workers=8 (now 2)"; empty for cause none
  double saves_percent = 0;  ///< of the loop's time; predicted
  bool is_bound = false;     ///< the remedy saves at most as much
};
/// `cores`: those that the loop's process and its workers may use.
LoopAnswer answer_of(const Loop& loop, double cores);
/// With the record's cores, shared by its ranks.
LoopAnswer answer_of(const Loop& loop, const WatchRecord& record);

/// "70 % {first}waiting for a lock and 27 % sleeping": what its workers did while they loaded.
/// Empty: not known.
std::string describe_states(const Loop& loop, std::string_view first = "");

}  // namespace penstock::watch
