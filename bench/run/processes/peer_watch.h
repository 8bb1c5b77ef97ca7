// SPDX-License-Identifier: Apache-2.0
// Watches the other processes of a run, and waits for them no longer than --timeout allows.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "bench/config/run_config.h"
#include "trainer/cluster/exchange_wait.h"
#include "trainer/cluster/liveness/liveness.h"
#include "trainer/cluster/processes.h"

namespace penstock {

/// Timeouts derived from --timeout. For the default of 30 s: 30 s of silence, 60 s to join, 300 s
/// for the first step.
liveness::RankDeadlines rank_deadlines(const RunConfig& config);
cluster::StepPatience step_patience(const RunConfig& config);

/// Watches the other processes of a run, from joining to the end. If one is lost, one rank reports
/// which and saves the measurements, and every process ends with exit code 5.
///
/// Thread-safety: any thread.
class PeerWatch {
 public:
  /// Construct before the processes join. If the launcher gives the job a name and all ranks are on
  /// this host, they watch each other from now on. Throws Unavailable.
  PeerWatch(const RunConfig& config, const cluster::Launch& launch,
            const cluster::FindVariable& find);

  /// Call after joining: the processes then report their progress. Blocks until every rank has
  /// called it. `processes` must be destroyed before this object.
  void follow(cluster::Processes& processes);

  /// Tells the others that this process ends regularly.
  void leave();

  /// Saves the measurements, with the reason, and returns their place; empty: there were none.
  using Keep = std::function<std::string(const std::string& reason)>;
  /// Sets what a loss saves, for the lifetime of this object; `watch` may be null.
  class Keeping {
   public:
    Keeping(PeerWatch* watch, Keep keep);
    Keeping(const Keeping&) = delete;
    ~Keeping();

   private:
    PeerWatch* const watch_;
  };

 private:
  void start(liveness::FrameListener listener, std::string key, std::vector<std::string> addresses);
  /// Prints the reason, after saving the measurements.
  void tell(std::string text);

  const liveness::RankDeadlines deadlines_;
  const cluster::Launch launch_;
  cluster::RankProgress progress_;
  std::mutex mutex_;
  Keep keep_;                                     // under mutex_
  std::unique_ptr<liveness::Liveness> liveness_;  // last member: its thread uses the others
};

/// A watched run waits this much longer, because the watch knows the reason for a delay and should
/// report first.
inline constexpr Nanoseconds kAheadOfWait = std::chrono::seconds(5);

/// Processes::all_gather, and tells the other ranks that this rank waits.
std::vector<std::string> gather(cluster::Processes& processes, std::string_view text,
                                Nanoseconds patience, std::string_view what);

}  // namespace penstock
