// SPDX-License-Identifier: Apache-2.0
// How the ranks of a run exchange, as its configuration and its device have it: ranks that are
// threads of this process, and those of other processes.
#pragma once

#include <memory>
#include <stop_token>
#include <vector>

#include "bench/run_config.h"
#include "dataflow/clock.h"
#include "dataflow/probe.h"
#include "trainer/backend.h"
#include "trainer/collective.h"
#include "trainer/processes.h"

namespace penstock {

/// References, and devices, outlive the exchange.
struct RunExchange {
  const RunConfig& config;
  Backend& backend;
  std::vector<Device*> devices;    ///< of this process's ranks
  Processes* processes = nullptr;  ///< null: this one alone
  Clock& clock;
  Probe& probe;              ///< gets notes, and sums that 16 bits could not hold
  std::stop_token stopping;  ///< someone outside ends the run
  std::stop_token abandon;   ///< ranks leave at once
};

/// How long the configuration lets a rank wait for another one.
Nanoseconds patience_of(const RunConfig& config);

/// Joined by the ranks of this process, which count over all processes. All processes call it
/// together. Throws ConfigError for what update and device cannot do, Unavailable, TimeoutError.
std::unique_ptr<CollectiveGroup> make_exchange(const RunExchange& exchange);

/// Where processes wait for each other, beside what their ranks exchange.
class ProcessMeeting {
 public:
  /// All processes call it together.
  explicit ProcessMeeting(const RunExchange& exchange);
  /// Blocks until every process got here; whoever watches them may end the run once `patience` is
  /// over. Throws as exchanges do.
  void meet(Nanoseconds patience);

 private:
  RankProgress* const progress_;  // null: nobody watches
  const std::unique_ptr<Stream> stream_;
  const std::unique_ptr<CollectiveGroup> group_;
  const std::unique_ptr<Collective> collective_;
};

}  // namespace penstock
