// SPDX-License-Identifier: Apache-2.0
// `penstock serve --processes N`: producers as processes of their own, each with a share of the
// data, that end together.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/cli.h"
#include "bench/serve_report.h"

namespace penstock {

/// Which of several producers this one is.
struct ServeGroup {
  std::int32_t processes = 1;        ///< that this one starts; 1: it serves itself
  std::int32_t rank = 0, ranks = 1;  ///< its share of the data
  int report_fd = -1;                ///< gets a line with the totals at the end

  /// "penstock serve", "penstock serve 1/4".
  std::string name() const;
  /// For whoever started this process. Writes nothing where nobody asked.
  void report(const ServeTotals& totals) const;
};

/// Flags that write to `group`.
std::vector<Flag> serve_group_flags(ServeGroup& group);

/// What the processes share out.
struct ServeShare {
  std::int64_t batches = 0;         ///< of all; 0: until stopped
  double img_per_s = 0;             ///< of all; 0: as many as are taken
  std::int32_t feeder_threads = 0;  ///< of each; 0: what each finds
  bool bind = false;
};

/// Starts the processes with the flags of `invocation` and shares of their own, and waits until all
/// have ended; where one fails or a stop is requested it ends the others. Says on standard error
/// what they did in all. Returns the exit code: that of the process that failed. Throws ConfigError
/// for what several processes cannot do.
int serve_processes(const Invocation& invocation, const ServeGroup& group, const ServeShare& share);

}  // namespace penstock
