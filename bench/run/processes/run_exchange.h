// SPDX-License-Identifier: Apache-2.0
// Builds the gradient exchange between the ranks of a run, by its configuration and device. Ranks
// may be threads of this process or belong to other processes.
#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <vector>

#include "bench/config/run_config.h"
#include "dataflow/clock.h"
#include "dataflow/probe.h"
#include "trainer/backend.h"
#include "trainer/cluster/processes.h"
#include "trainer/collective.h"

namespace penstock {

/// References and devices must outlive the exchange.
struct RunExchange {
  const RunConfig& config;
  Backend& backend;
  std::vector<Device*> devices;             ///< of the ranks in this process
  bool on_host = false;                     ///< devices are host memory, whatever the backend
  cluster::Processes* processes = nullptr;  ///< null: this process is alone
  Clock& clock;
  Probe& probe;              ///< receives notes, and the count of sums that 16 bits could not hold
  std::stop_token stopping;  ///< requested when the run is ended from outside
  std::stop_token abandon;   ///< requested when ranks must leave at once
};

/// How long a rank may wait for another rank, by --timeout.
Nanoseconds patience_of(const RunConfig& config);

/// Builds the group that the ranks of this process join. Ranks are numbered over all processes. All
/// processes call this together. Throws ConfigError if update or device do not support the
/// exchange, and Unavailable or TimeoutError.
std::unique_ptr<CollectiveGroup> make_exchange(const RunExchange& exchange);

/// A barrier for processes, separate from the exchange of their ranks. The first process may tell
/// the others a number of steps.
class ProcessMeeting {
 public:
  /// All processes construct it together.
  explicit ProcessMeeting(const RunExchange& exchange);
  /// Blocks until all processes have called it. Returns the first process's `steps`, or kMostSteps
  /// if they are more. If the processes are watched, the watch may end the run after `patience`.
  /// Throws the same as an exchange.
  std::int64_t meet(Nanoseconds patience, std::int64_t steps);
  /// Up to here a float holds every number.
  static constexpr std::int64_t kMostSteps = std::int64_t{1} << 24;

 private:
  const bool is_first_;
  cluster::RankProgress* const progress_;  // null: the processes are not watched
  const std::unique_ptr<Stream> stream_;
  const std::unique_ptr<CollectiveGroup> group_;
  const std::unique_ptr<Collective> collective_;
};

}  // namespace penstock
