// SPDX-License-Identifier: Apache-2.0
// Climbs a ladder over ranks: each rung a run of so many processes, in rounds, so that what drifts
// meets all rungs. A rung that fails is not tried again; the others go on.
#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "bench/launch/mpirun.h"
#include "bench/scale/scale_result.h"
#include "dataflow/clock.h"

namespace penstock {

struct ScalePlan {
  RunConfig config;     ///< of all rungs; the number of processes is theirs
  std::string program;  ///< on all machines
  std::vector<Host> hosts;
  std::int32_t per_host = 1;  ///< ranks of a machine that does not say its slots
  std::string agent{kPlainSsh};
  std::vector<std::int32_t> ranks;  ///< ascending
  std::int32_t repetitions = 3;
  Nanoseconds run_timeout = std::chrono::minutes(10);
  bool as_root = false, verbose = false;
  bool shared_machine = false;  ///< as in MpirunPlan
};

/// The rungs of a plan, none of them run. Throws ConfigError where ranks do not fit.
std::vector<Rung> make_rungs(const ScalePlan& plan);

/// What starts a rung's run.
std::vector<std::string> rung_words(const ScalePlan& plan, const Rung& rung);

/// Told of what happens, on the thread that climbs.
class ScaleListener {
 public:
  virtual ~ScaleListener() = default;
  virtual void run_begins(const Rung& rung, std::int32_t repetition) = 0;
  /// It is the last of the rung's runs or failures; or it was stopped, and left nothing.
  virtual void run_ended(const Rung& rung, bool stopped) = 0;
  virtual void result_changed(const ScaleResult& result) = 0;
};

/// Runs all of it, into `result`, whose rungs are the plan's. A stop request ends the run under
/// way, which then counts for nothing.
void climb(const ScalePlan& plan, ScaleResult& result, ScaleListener& listener,
           const std::stop_token& stop);

}  // namespace penstock
