// SPDX-License-Identifier: Apache-2.0
// Measures what one feeder costs one trainer, and decides what to measure next. A pilot finds out
// how long runs take. Then blocks of fresh processes run in random order, until the interval is
// narrow enough or the budget ends. analyse() (isolation.h) says what the measurement shows.
//
// Used by one thread. Waits and measures with the given clock.
#pragma once

#include <string>
#include <string_view>

#include "bench/isolate/isolation.h"
#include "bench/isolate/noise.h"
#include "bench/sweep/sweep_runner.h"

namespace penstock::isolate {

/// Receives progress, on the measuring thread. Results are of all phases so far; results of the
/// pilot do not count.
class IsolateListener : public SweepListener {
 public:
  /// "pilot", "blocks", "profile", "ladder", "settings", "verification"
  virtual void phase_begins(std::string_view /*phase*/, double /*budget_s*/) {}
  /// The pilot showed that the budget is too short; a sentence.
  virtual void budget_is_short(const std::string& /*sentence*/) {}
};

/// Runs the plan. `run` runs one configuration and returns failures as results. After a stop
/// request, the run under way is the last one, and the results so far are analysed. Throws
/// ConfigError for a plan that cannot work.
Isolation isolate(const IsolatePlan& plan, const SweepRunner::Run& run, const NoiseMeter& meter,
                  Clock& clock, IsolateListener& listener, const std::stop_token& stop);

}  // namespace penstock::isolate
