// SPDX-License-Identifier: Apache-2.0
// `penstock serve --processes N`: starts N producer processes, each with a share of the data, which
// end together.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "bench/config/flags.h"
#include "bench/serve/serve_totals.h"

namespace penstock::serve {

/// Identifies this producer in a group of producers.
struct ServeGroup {
  std::int32_t processes = 1;        ///< number of processes to start; 1: this process serves
  std::int32_t rank = 0, ranks = 1;  ///< its share of the data
  int report_fd = -1;                ///< file descriptor for a line with the totals at the end

  /// "penstock serve", "penstock serve 1/4".
  std::string name() const;
  /// Reports to the process that started this one. Does nothing without report_fd.
  void report(const ServeTotals& totals) const;
};

/// Flags that write to `group`.
std::vector<Flag> serve_group_flags(ServeGroup& group);

/// The work that the processes share.
struct ServeShare {
  std::int64_t batches = 0;         ///< of all processes; 0: until stopped
  double img_per_s = 0;             ///< of all processes; 0: as fast as consumers take them
  std::string unit = "img";         ///< of rates, in a second
  std::int32_t feeder_threads = 0;  ///< per process; 0: each process decides
  bool bind = false;
  bool dropped = false;  ///< no process has a socket
};

/// Starts `command`, a program with its flags, once for each process, with that process's share,
/// and waits until all have ended. If one fails or a stop is requested, it ends the others. Prints
/// their totals on standard error. Returns the exit code of the process that failed. Throws
/// ConfigError for options that several processes cannot share.
int serve_processes(const std::vector<std::string>& command, const ServeGroup& group,
                    const ServeShare& share, const std::stop_token& stop);

}  // namespace penstock::serve
