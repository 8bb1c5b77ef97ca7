// SPDX-License-Identifier: Apache-2.0
// A parameter server on the ranks themselves. A home adds the gradients of all ranks for its part
// of the weights, applies them, and distributes the weights. Rank 0 is the only home unless a
// placement distributes the parts. A home is its rank's device.
#include <optional>

#include "dataflow/error.h"
#include "trainer/updates/arena_copy.h"
#include "trainer/updates/homes.h"
#include "trainer/updates/served.h"

namespace penstock::updates {
namespace {

class ParameterServer final : public UpdateStrategy {
 public:
  ParameterServer(const UpdateContext& context, Placement placement)
      : collective_(context.collective),
        optimizer_(context.optimizer),
        scale_(gradient_scale(context)),
        homes_(context, placement) {}

  KeptArenas kept(const ParameterSet& set) override {
    return {.weights = set.weights, .rank_0_knows_all = homes_.rank_0_knows_all()};
  }

  void start(Executable& executable, Stream& stream) override {
    collective_.broadcast(executable.parameters().weights, 0, stream);
    collective_.broadcast(executable.parameters().running, 0, stream);
  }
  void finish_step(Executable& executable, Stream& stream, StepResult& result) override {
    const ParameterSet& set = executable.parameters();
    homes_.reduce(set, stream);
    if (homes_.updates()) optimizer_.apply(set, scale_, stream, result);
    homes_.hand_out(set, set.weights, stream);
  }

 private:
  Collective& collective_;
  Optimizer& optimizer_;
  const float scale_;
  Homes homes_;
};

/// A parameter server whose clients read weights one update old: --staged-vars of
/// tf_cnn_benchmarks. With W_t the homes' weights before step t, from 0, and W_{-1} = W_0, step t
/// computes its gradients with W_{t-1}, and
///   W_{t+1} = update of W_t by the reduced gradients at W_{t-1}.
/// Staleness is exactly 1. The weights of a step are distributed while the homes apply the previous
/// step, so the transfer can overlap with it. An executable holds the weights of its next step, so
/// evaluations use weights one update older than the homes' weights. A checkpoint saves both; its
/// weights are the homes'.
///
/// Difference from tf_cnn_benchmarks: there, gradients also pass a staging area, which adds a
/// second step of delay.
class StagedServer final : public UpdateStrategy {
 public:
  StagedServer(const UpdateContext& context, Placement placement)
      : collective_(context.collective),
        optimizer_(context.optimizer),
        scale_(gradient_scale(context)),
        homes_(context, placement),
        current_(context) {}

  void start(Executable& executable, Stream& stream) override {
    const ParameterSet& set = executable.parameters();
    collective_.broadcast(set.weights, 0, stream);
    collective_.broadcast(set.running, 0, stream);
    current_set_.emplace(in_arenas(set, current_.beside(set.weights), set.gradients));
    if (!resumed_) copy(current_set_->weights, set.weights, stream);
  }
  KeptArenas kept(const ParameterSet& set) override {
    return {.weights = current_.beside(set.weights),
            .carried = set.weights,
            .carries = "staged_weight",
            .rank_0_knows_all = homes_.rank_0_knows_all()};
  }
  void resume() override { resumed_ = true; }
  void finish_step(Executable& executable, Stream& stream, StepResult& result) override {
    const ParameterSet& set = executable.parameters();
    homes_.reduce(set, stream);
    // On every rank, the executable's weights become the homes' weights before this step.
    if (homes_.updates()) copy(set.weights, current_set_->weights, stream);
    homes_.hand_out(set, set.weights, stream);
    if (!homes_.updates()) return;
    copy(current_set_->weights, set.weights, stream);  // also the parts of other homes
    optimizer_.apply(*current_set_, scale_, stream, result);
  }

 private:
  Collective& collective_;
  Optimizer& optimizer_;
  const float scale_;
  Homes homes_;
  ArenaCopy current_;  ///< the homes' weights
  std::optional<ParameterSet> current_set_;
  bool resumed_ = false;
};

constexpr OptionValue kPlacements[] = {
    {"first", "rank 0 holds all weights"},
    {"greedy", "the rank with the fewest bytes so far holds the next tensor"},
    {"split",
     "tensors of at least a million elements are split evenly, the others placed greedily"},
};
constexpr OptionValue kSyncs[] = {
    {"mean", "the mean of all workers' gradients is applied once per step"},
    {"tf", "gradients are applied on arrival, then all workers wait, as in tf_cnn_benchmarks"},
    {"false", "gradients are applied on arrival; no worker waits"},
};
constexpr OptionSpec kOptions[] = {
    {"placement", "first", "which rank or server holds which weights", kPlacements},
    {"staged", "false",
     "a step reads weights that are one update old, as --staged-vars of tf_cnn_benchmarks"},
    {"sync", "mean", "with server processes: when gradients are applied and who waits", kSyncs},
    {"part_bytes", "4096000", "with server processes: largest message in bytes"},
};
constexpr OptionSpec kShadowOptions[] = {
    {"placement", "greedy", "with server processes: which server holds which weights", kPlacements},
    {"part_bytes", "4096000", "with server processes: largest message in bytes"},
};

}  // namespace

extern constinit const UpdateEntry parameter_server_update{
    .name = "parameter_server",
    .summary = "a parameter server adds the gradients, applies them and returns the weights",
    .options = kOptions,
    .make = [](const UpdateContext& context) -> std::unique_ptr<UpdateStrategy> {
      const Placement placement =
          parse_placement(context.options.text("placement"), "parameter_server:placement");
      if (context.options.flag("staged")) return std::make_unique<StagedServer>(context, placement);
      return std::make_unique<ParameterServer>(context, placement);
    },
    .make_served =
        [](const UpdateContext& context, const ServerLink& link) {
          const Options& options = context.options;
          return make_served(context, link, options.text("sync"), options.flag("staged"));
        },
};

/// The shadow copy of tf_cnn_benchmarks corresponds to rank 0's weights: its workers are processes,
/// and each takes the mean of its devices' gradients if the reduction says so. This equals a
/// parameter server whose clients hold copies, as all clients do here.
extern constinit const UpdateEntry distributed_replicated_update{
    .name = "distributed_replicated",
    .summary =
        "tf_cnn_benchmarks': replicas and a shadow copy that gradients are applied to; processes "
        "are workers, or servers and workers",
    .options = kShadowOptions,
    .make = [](const UpdateContext& context) -> std::unique_ptr<UpdateStrategy> {
      return std::make_unique<ParameterServer>(context, Placement::first);
    },
    .make_served = [](const UpdateContext& context,
                      const ServerLink& link) { return make_served(context, link, "tf", false); },
};

}  // namespace penstock::updates
