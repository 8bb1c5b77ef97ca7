// SPDX-License-Identifier: Apache-2.0
// The processes of a run, as one of them sees them: their ranks, the texts that they exchange
// before and after the measurement, and the exchange that their replicas train with.
#pragma once

#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "dataflow/clock.h"
#include "trainer/cluster/launch.h"
#include "trainer/cluster/rank_progress.h"
#include "trainer/collective.h"
#include "trainer/collectives/exchange_choice.h"

namespace penstock::cluster {

class Processes {
 public:
  /// Leaves the run. If other processes do not finish within kGoodbye, all processes are ended.
  virtual ~Processes() = default;
  virtual const Launch& launch() const noexcept = 0;
  /// The ranks' preparation and training report their progress here; null: no reports.
  RankProgress* progress() const noexcept { return progress_; }
  /// `progress` outlives the object.
  void tell(RankProgress& progress) noexcept { progress_ = &progress; }
  /// Called on another thread, with the reason, before the end of another rank ends this process.
  /// Not with MPI, whose launcher stops the ranks.
  void on_end(std::function<void(const std::string& why)> save) {
    const std::lock_guard lock(mutex_);
    save_ = std::move(save);
  }
  /// Returns every process's text, by rank. All processes call it in the same order. Throws
  /// TimeoutError, with `what` in its message, if a text does not arrive in time.
  virtual std::vector<std::string> all_gather(std::string_view text, Nanoseconds patience,
                                              std::string_view what) = 0;
  /// The exchange of the ranks, one rank per process; the group is joined with the process's rank.
  /// Throws TimeoutError if other ranks do not reach a step within `patience`. On a request to
  /// `stopping`, a waiting rank leaves with an Error within kGrace; on a request to `abandon`, at
  /// once. Tensors lie in memory that the CPU can reach.
  struct Exchange {
    Device& device;
    Nanoseconds patience;
    std::stop_token stopping, abandon;
    collectives::ExchangeChoice choice{};
  };
  /// Called by all processes together, with the same choice. Throws Unavailable if the choice is
  /// impossible. The devices outlive the group.
  virtual std::unique_ptr<CollectiveGroup> make_group(const Exchange& exchange) = 0;
  /// Ends this process with `exit_code`; the launcher ends the others.
  [[noreturn]] virtual void abort(int exit_code) = 0;
  /// The same, if the launcher is already ending all processes. Ranks other than 0 wait a little,
  /// so that rank 0 can save the measurements.
  [[noreturn]] virtual void exit_stopped(int exit_code) = 0;

  static constexpr Nanoseconds kRendezvous = std::chrono::seconds(60);  ///< to find each other
  static constexpr Nanoseconds kGoodbye = std::chrono::seconds(10);
  static constexpr Nanoseconds kGrace = std::chrono::milliseconds(300);

 protected:
  /// Says why this process ends, and saves what it measured.
  void save_at_end(const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (save_) return save_(why);
    std::fputs(("penstock: " + why + "\n").c_str(), stderr);
  }

 private:
  RankProgress* progress_ = nullptr;
  std::mutex mutex_;
  std::function<void(const std::string& why)> save_;  // under mutex_
};

/// Joins the other processes of the run: through MPI if they are an MPI job and this program has
/// MPI, else over TCP at `launch.meeting`. `clock` outlives the result. Throws Unavailable if
/// neither is possible, or if MPI cannot be called from several threads; Error on a request to
/// `stop` (TCP only). If processes do not find each other within `rendezvous`, they end with a
/// message and exit code 5.
std::unique_ptr<Processes> join_processes(const Launch& launch, Clock& clock,
                                          Nanoseconds rendezvous = Processes::kRendezvous,
                                          const std::stop_token& stop = {});

/// False: this program was built without MPI.
extern const bool kHasMpi;
/// The part of join_processes for an MPI job.
std::unique_ptr<Processes> join_mpi_job(const Launch& launch, Clock& clock, Nanoseconds rendezvous);

}  // namespace penstock::cluster
