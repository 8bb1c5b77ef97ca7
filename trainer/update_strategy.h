// SPDX-License-Identifier: Apache-2.0
// The update strategy interface. A strategy decides which ranks hold the weights and which add the
// gradients. It is written as the code of one rank; the collective hides whether ranks are threads
// or processes.
//
// To add one: a file in updates/ that ends in `extern constinit const UpdateEntry
// NAME_update{...}`, and one line `penstock_component(update NAME)` there.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "dataflow/entry.h"
#include "dataflow/options.h"
#include "trainer/collective.h"
#include "trainer/optimizer.h"

namespace penstock::cluster {
class ModelStore;
class ServerConnection;
}  // namespace penstock::cluster

namespace penstock {

class GradientExchange;
class Probe;

/// How the gradients of several ranks are combined. mean_sum: the mean inside a process, summed
/// over processes, as the parameter servers of tf_cnn_benchmarks do it.
enum class GradientReduction : std::uint8_t { sum, mean, mean_sum };

/// References outlive the strategy.
struct UpdateContext {
  Collective& collective;
  Optimizer& optimizer;
  GradientReduction reduction = GradientReduction::mean;
  std::int32_t local_ranks = 1;  ///< ranks of this process
  const Options& options;
  /// Exchanges buckets during backward. Null: gradients are exchanged after each backward pass, or
  /// there is only one rank.
  GradientExchange* exchange = nullptr;
  Device* device = nullptr;  ///< for the strategy's arenas; null if the strategy needs none
  Probe* probe = nullptr;    ///< for counters of the result; null: no counters
};

/// The models that ranks publish for each other. References outlive the strategy.
struct PeerModels {
  cluster::ModelStore& store;
  Clock& clock;            ///< for the thread that reads ahead
  std::uint64_t seed = 1;  ///< of the choice of ranks
};

/// Parameter servers in other processes. The connection outlives the strategy.
struct ServerLink {
  cluster::ServerConnection& servers;
  /// The values for the update with that number, from 0.
  std::function<Hyper(std::int64_t)> hyper{};
  std::int64_t first_step = 0;  ///< steps taken before this run was resumed
};

/// The factor for a sum over all ranks. mean_sum divides by the ranks of this process.
inline float gradient_scale(const UpdateContext& context) {
  if (context.reduction == GradientReduction::sum) return 1;
  const std::int32_t ranks = context.reduction == GradientReduction::mean
                                 ? context.collective.world().size
                                 : context.local_ranks;
  return 1 / static_cast<float>(ranks);
}

/// The state that a checkpoint saves in addition to the optimizer's state, in arenas laid out as
/// the weights.
struct KeptArenas {
  Tensor weights;                 ///< after all updates that the run has applied
  Tensor carried{};               ///< other state carried from step to step; empty: none
  std::string_view carries = {};  ///< name of that state, for the names of its tensors
  /// True: rank 0's optimizer has the state of all weights, so a checkpoint of rank 0 is a
  /// checkpoint of the run.
  bool rank_0_knows_all = true;
};

class UpdateStrategy {
 public:
  virtual ~UpdateStrategy() = default;
  /// Called once on the rank's thread, before the first step. Gives every rank the weights and
  /// running statistics of rank 0.
  virtual void start(Executable&, Stream&) = 0;
  /// Called before each training step, or before its recording, on the rank's thread. Returns the
  /// callback that backward calls for each gradient that is complete on the stream. Empty: the
  /// strategy needs no calls.
  virtual GradientReady gradient_ready(Stream&) { return {}; }
  /// Called after each backward pass, on the rank's thread. Enqueues the exchange and the update.
  /// May block the thread until other ranks get here. Blocks it until the device has done the step
  /// only if the update works in host memory.
  virtual void finish_step(Executable&, Stream&, StepResult&) = 0;
  /// True: every step enqueues the same work, so it may be part of a Program, if the collective's
  /// calls may. False: finish_step is called again for each step.
  virtual bool recordable() const noexcept { return true; }
  /// Called between steps. A resumed run also calls it before start() and then writes its arenas.
  /// If servers hold the newest weights and the optimizer's state, blocks until the rank has them
  /// too.
  virtual KeptArenas kept(const ParameterSet& set) { return {.weights = set.weights}; }
  /// Called before start() in a resumed run, after the arenas of kept() were filled from a
  /// checkpoint.
  virtual void resume() {}
};

/// Where ranks can run. threads: in one process. processes: one device each, started by mpirun or
/// srun. either: both, and several threads in each of several processes.
enum class RankKind : std::uint8_t { threads, processes, either };

/// How the ranks' weights relate after a step. identical: the same bits. own: each rank has
/// different weights. mixed: as own, but mixed with the current weights of other ranks, so that two
/// runs differ.
enum class Agreement : std::uint8_t { identical, own, mixed };

struct UpdateEntry {
  std::string_view name{}, summary{};
  Agreement agreement = Agreement::identical;
  RankKind ranks = RankKind::either;
  /// Whether ranks take steps without waiting for each other; `served`: in a run with parameter
  /// servers. Null: they wait in each step.
  bool (*steps_apart)(const Options& options, bool served) = nullptr;
  /// Whether the weights and the optimizer's state lie in host memory, whatever the device: the
  /// update then works on the arenas of updates/host_weights.h. Null: they never do.
  bool (*in_host_memory)(const Options& options) = nullptr;
  /// Every rank gets the sum of all ranks' gradients from the collective.
  bool all_reduces = false;
  std::span<const OptionSpec> options{};
  std::unique_ptr<UpdateStrategy> (*make)(const UpdateContext&) = nullptr;
  /// Called instead of `make` in a run with parameter servers in other processes; null: the update
  /// does not use them.
  std::unique_ptr<UpdateStrategy> (*make_served)(const UpdateContext&, const ServerLink&) = nullptr;
  /// Called instead of `make` in a run whose ranks publish models, which the run then provides;
  /// null: the update reads no models of other ranks.
  std::unique_ptr<UpdateStrategy> (*make_reading)(const UpdateContext&,
                                                  const PeerModels&) = nullptr;
};

/// Every update of this program. Generated from the component lists.
const Table<UpdateEntry>& update_table();

}  // namespace penstock
