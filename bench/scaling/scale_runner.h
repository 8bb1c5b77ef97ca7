// SPDX-License-Identifier: Apache-2.0
// Runs a ladder over ranks. Each rung is a run with a given number of processes. Rungs run in
// rounds, so that drift affects all of them. A failed rung is not repeated; the others continue.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "bench/scaling/launch/mpirun.h"
#include "bench/scaling/scale_result.h"
#include "dataflow/clock.h"

namespace penstock::scaling {

struct ScalePlan {
  RunConfig config;     ///< of all rungs; rungs set the number of processes
  std::string program;  ///< path on all machines
  std::vector<Host> hosts;
  std::int32_t per_host = 1;  ///< ranks of a machine without stated slots
  std::string agent{kPlainSsh};
  std::vector<std::int32_t> ranks;  ///< ascending
  std::int32_t repetitions = 3;
  Nanoseconds run_timeout = std::chrono::minutes(10);
  bool as_root = false, verbose = false;
  SharedMachine shared_machine = SharedMachine::none;  ///< as in MpirunPlan
};

/// Returns the rungs of a plan, before any run. Throws ConfigError if ranks do not fit.
std::vector<Rung> make_rungs(const ScalePlan& plan);

/// Receives events, on the calling thread of climb().
class ScaleListener {
 public:
  virtual ~ScaleListener() = default;
  virtual void run_begins(const Rung& rung, std::int32_t repetition) = 0;
  /// The run is the last of the rung's runs or failures. If `stopped`, it left no result.
  virtual void run_ended(const Rung& rung, bool stopped) = 0;
  virtual void result_changed(const ScaleResult& result) = 0;
};

/// Runs the whole plan, into `result`, which has the plan's rungs. A stop request ends the run
/// under way and discards it.
void climb(const ScalePlan& plan, ScaleResult& result, ScaleListener& listener,
           const std::stop_token& stop);

/// 1, 2, 4, ... up to `most`: tfperftest's ladder.
std::vector<std::int32_t> doublings(std::int32_t most);

/// Parses "1,2,6": ascending, without repetition. Throws ConfigError.
std::vector<std::int32_t> parse_ranks(std::string_view text);

/// Replaces tfperftest's short flags by their long flags: -m, -g, -b, -r, -x, and -h if a value
/// follows it. -h alone asks for the help text.
std::vector<std::string> spell_out(const std::vector<std::string>& arguments);

}  // namespace penstock::scaling
