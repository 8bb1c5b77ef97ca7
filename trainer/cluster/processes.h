// SPDX-License-Identifier: Apache-2.0
// The processes of a run that spans several, each with a rank of its own: who they are, what they
// tell each other before and after measuring, and the exchange that their replicas train through.
#pragma once

#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "dataflow/clock.h"
#include "trainer/collective.h"
#include "trainer/collectives/exchange_choice.h"
#include "trainer/launch.h"
#include "trainer/rank_progress.h"

namespace penstock {

class Processes {
 public:
  /// Leaves the run. Where other processes do not come to the end within kGoodbye, all are ended.
  virtual ~Processes() = default;
  virtual const Launch& launch() const noexcept = 0;
  /// Where the ranks' preparing and training tell how far they are; null: nobody wants to know.
  RankProgress* progress() const noexcept { return progress_; }
  /// `progress` outlives the object.
  void tell(RankProgress& progress) noexcept { progress_ = &progress; }
  /// Every process's text, by rank. All processes call it in the same order. Throws TimeoutError,
  /// with `what` in its words, where one does not come in time.
  virtual std::vector<std::string> all_gather(std::string_view text, Nanoseconds patience,
                                              std::string_view what) = 0;
  /// The exchange of the ranks, one for each process; its group is joined with the process's rank.
  /// A step that others do not come to within `patience` throws TimeoutError. After a request to
  /// `stopping`, a rank that waits leaves with an Error within kGrace; after one to `abandon`, at
  /// once. Tensors lie in memory that the CPU can reach.
  struct Exchange {
    Device& device;
    Nanoseconds patience;
    std::stop_token stopping, abandon;
    ExchangeChoice choice{};
  };
  /// Called by all processes together, with the same choice; throws Unavailable where that cannot
  /// be had. The devices outlive the group.
  virtual std::unique_ptr<CollectiveGroup> make_group(const Exchange& exchange) = 0;
  /// Ends this process with `exit_code`, and the launcher the others.
  [[noreturn]] virtual void abort(int exit_code) = 0;
  /// The same where the launcher is ending all of them already; ranks beside rank 0 linger, so that
  /// it can save what was measured.
  [[noreturn]] virtual void exit_stopped(int exit_code) = 0;

  static constexpr Nanoseconds kRendezvous = std::chrono::seconds(60);  ///< to find each other
  static constexpr Nanoseconds kGoodbye = std::chrono::seconds(10);
  static constexpr Nanoseconds kGrace = std::chrono::milliseconds(300);

 private:
  RankProgress* progress_ = nullptr;
};

/// Joins the processes that the launcher started; `clock` outlives them. Throws Unavailable where
/// this program was built without MPI, or MPI cannot be called from several threads. Processes that
/// do not find each other within `rendezvous` end with a message and exit code 5.
std::unique_ptr<Processes> join_processes(const Launch& launch, Clock& clock,
                                          Nanoseconds rendezvous = Processes::kRendezvous);

}  // namespace penstock
