// SPDX-License-Identifier: Apache-2.0
// An update strategy says who holds the weights and who adds the gradients. It is written as one
// rank's code; the collective hides whether ranks are threads or processes.
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

namespace penstock {

class GradientExchange;
class ModelStore;
class Probe;
class ServerConnection;

/// How the gradients of several ranks become one. mean_sum: the mean inside a process, summed over
/// processes, as tf_cnn_benchmarks' parameter servers do it.
enum class GradientReduction : std::uint8_t { sum, mean, mean_sum };

/// References outlive the strategy.
struct UpdateContext {
  Collective& collective;
  Optimizer& optimizer;
  GradientReduction reduction = GradientReduction::mean;
  std::int32_t local_ranks = 1;  ///< ranks of this process
  const Options& options;
  /// Of buckets, while backward goes on. Null: gradients are exchanged behind each backward pass,
  /// or the rank is alone.
  GradientExchange* exchange = nullptr;
  Device* device = nullptr;      ///< for arenas of a strategy's own; null: it may need none
  ModelStore* models = nullptr;  ///< where ranks read each other's models; null: nowhere
  Probe* probe = nullptr;        ///< for counters of the result; null: nobody reads them
  std::uint64_t seed = 1;        ///< of what a strategy draws
  Clock* clock = nullptr;        ///< for threads of a strategy's own; null: it may need none
  /// To parameter servers that are processes; null: there are none.
  ServerConnection* servers = nullptr;
  /// Of the update with that number, from 0, for those who apply elsewhere; empty: nobody asks.
  std::function<Hyper(std::int64_t)> hyper{};
};

/// What a sum over `ranks` ranks is multiplied by. mean_sum divides by those of this process.
inline float gradient_scale(const UpdateContext& context) {
  if (context.reduction == GradientReduction::sum) return 1;
  const std::int32_t ranks = context.reduction == GradientReduction::mean
                                 ? context.collective.world().size
                                 : context.local_ranks;
  return 1 / static_cast<float>(ranks);
}

/// What a checkpoint keeps of a run beside the optimizer's state, in arenas laid out as the
/// weights.
struct KeptArenas {
  Tensor weights;                 ///< after as many updates as the run has applied
  Tensor carried{};               ///< what else goes from step to step; empty: nothing
  std::string_view carries = {};  ///< what that is, for the names of its tensors
};

class UpdateStrategy {
 public:
  virtual ~UpdateStrategy() = default;
  /// Called once on the rank's thread, before the first step: every rank leaves with rank 0's
  /// weights and running statistics.
  virtual void start(Executable&, Stream&) = 0;
  /// Called in front of each training step, or of its recording, on the rank's thread: what the
  /// step tells, while backward goes on, of each gradient that is complete on the stream. Empty:
  /// nobody wants to know.
  virtual GradientReady gradient_ready(Stream&) { return {}; }
  /// Called behind each backward pass, on the rank's thread: enqueues the exchange and the update.
  /// May block the thread until other ranks get here, not until a device does.
  virtual void finish_step(Executable&, Stream&, StepResult&) = 0;
  /// Every step enqueues the same, so that it may be part of a Program, as far as the collective's
  /// calls may. Otherwise finish_step is called anew for each step.
  virtual bool recordable() const noexcept { return true; }
  /// Rank 0's optimizer remembers what belongs to all weights, so that a checkpoint of rank 0 is
  /// one of the run.
  virtual bool rank_0_knows_all() const noexcept { return true; }
  /// Called between steps, and before start() of a run that goes on: its arenas are then written.
  virtual KeptArenas kept(const ParameterSet& set) { return {.weights = set.weights}; }
  /// Called before start(): what kept() returned holds what a checkpoint kept of another run.
  virtual void resume() {}
};

/// Where ranks can run: as threads of one process; as processes with one device each, which mpirun
/// or srun starts; or either way, and as several threads in each of several processes.
enum class RankKind : std::uint8_t { threads, processes, either };

/// What the ranks' weights are after a step: the same bits; each rank's own; or its own and mixed
/// with what others happened to have got to, so that two runs differ.
enum class Agreement : std::uint8_t { identical, own, mixed };

struct UpdateEntry {
  std::string_view name{}, summary{};
  Agreement agreement = Agreement::identical;
  RankKind ranks = RankKind::either;
  bool reads_models = false;  ///< its context has models
  std::span<const OptionSpec> options{};
  std::unique_ptr<UpdateStrategy> (*make)(const UpdateContext&) = nullptr;
};

/// Every update of this program; generated from the component lists.
const Table<UpdateEntry>& update_table();

}  // namespace penstock
