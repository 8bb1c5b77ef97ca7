// SPDX-License-Identifier: Apache-2.0
// Over the other processes of a run: where one is lost, from joining to the end, one rank says
// which and saves what was measured, and every process ends with exit code 5.
//
// Thread-safety: any thread.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "bench/run_config.h"
#include "trainer/liveness/liveness.h"
#include "trainer/processes.h"
#include "trainer/watched_group.h"

namespace penstock {

/// Those of a run with that --timeout: 30 s there are 30 s of silence, 60 s to join, 300 s for the
/// first step.
RankDeadlines rank_deadlines(const RunConfig& config);
StepPatience step_patience(const RunConfig& config);

class PeerWatch {
 public:
  /// Before the processes have joined. Where the launcher tells a name of the job, and all ranks
  /// are on this host, they watch each other from now on. Throws Unavailable.
  PeerWatch(const RunConfig& config, const Launch& launch, const FindVariable& find);

  /// Behind joining: the processes tell how far they are. Blocks until every rank has called it.
  /// `processes` ends before the object does.
  void follow(Processes& processes);

  /// This process ends on its own account.
  void leave();

  /// Saves what was measured, for the reason given, and returns where; empty: nothing was.
  using Keep = std::function<std::string(const std::string& reason)>;
  /// What a loss saves, as long as it lives; `watch` may be null.
  class Keeping {
   public:
    Keeping(PeerWatch* watch, Keep keep);
    Keeping(const Keeping&) = delete;
    ~Keeping();

   private:
    PeerWatch* const watch_;
  };

 private:
  void start(FrameListener listener, std::string key, std::vector<std::string> addresses);
  void tell(std::span<const LostRank> lost);

  const RankDeadlines deadlines_;
  const Launch launch_;
  RankProgress progress_;
  std::mutex mutex_;
  Keep keep_;                           // under mutex_
  std::unique_ptr<Liveness> liveness_;  // last: its thread uses the others
};

}  // namespace penstock
