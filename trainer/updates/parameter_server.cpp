// SPDX-License-Identifier: Apache-2.0
// A parameter server on the ranks themselves. A home adds the gradients of all ranks for its part
// of the weights, applies them, and distributes the weights. Rank 0 is the only home unless a
// placement distributes the parts. A home is its rank's device.
#include <cstdint>
#include <optional>
#include <vector>

#include "dataflow/error.h"
#include "trainer/placement.h"
#include "trainer/updates/arena_copy.h"
#include "trainer/updates/served.h"

namespace penstock::updates {
namespace {

Tensor part(const Tensor& tensor, const ArenaRange& range) {
  return {static_cast<float*>(tensor.data) + range.first, range.count};
}

/// The homes of a parameter server whose ranks are also its clients. A home is the rank that adds
/// the gradients of a part of the arenas, applies them and distributes the weights. Every rank
/// calls the same members in the same order.
class Homes {
 public:
  /// Throws ConfigError if the placement gives the context's optimizer less than it needs.
  Homes(const UpdateContext& context, Placement placement)
      : collective_(context.collective), optimizer_(context.optimizer), placement_(placement) {
    if (placement == Placement::split && optimizer_.layer_wise()) {
      throw ConfigError(
          "parameter_server:placement is split, which cuts tensors, and the optimizer scales its "
          "steps by the norms of whole ones; use placement=greedy or placement=first");
    }
    if (placement != Placement::first && optimizer_.state().loss_scale.count > 0) {
      throw ConfigError(
          "--fp16-enable-auto-loss-scale needs a home that sees all gradients, so that all weights "
          "skip the same updates; use parameter_server:placement=first, or leave it out");
    }
  }

  /// Gives the home of each range the sum over all ranks. On other ranks the gradients of the range
  /// are undefined.
  void reduce(const ParameterSet& set, Stream& stream) {
    settle(set);
    for (std::size_t home = 0; home < ranges_.size(); ++home) {
      for (const ArenaRange& range : ranges_[home]) {
        collective_.reduce_sum(part(set.gradients, range), static_cast<std::int32_t>(home), stream);
      }
    }
  }
  /// Gives every rank each range of `weights`, laid out as the set's weights, from its home. Also
  /// copies an automatic loss scale from rank 0.
  void hand_out(const ParameterSet& set, const Tensor& weights, Stream& stream) {
    settle(set);
    for (std::size_t home = 0; home < ranges_.size(); ++home) {
      for (const ArenaRange& range : ranges_[home]) {
        collective_.broadcast(part(weights, range), static_cast<std::int32_t>(home), stream);
      }
    }
    if (const Tensor scale = optimizer_.state().loss_scale; scale.count > 0) {
      collective_.broadcast(scale, 0, stream);
    }
  }

  /// Whether this rank updates its arenas between the two calls. With one home, only the home does.
  /// With several, every rank updates all of its arenas, but only its own ranges are distributed:
  /// an optimizer cannot update parts of a set, and replicas also update all weights.
  bool updates() const noexcept {
    return placement_ != Placement::first || collective_.world().rank == 0;
  }
  /// Whether rank 0's optimizer has the state of all weights.
  bool rank_0_knows_all() const noexcept { return placement_ == Placement::first; }

 private:
  void settle(const ParameterSet& set) {
    if (settled_) return;
    settled_ = true;
    const bool whole = placement_ == Placement::first || set.parameters.empty();
    ranges_ = whole ? std::vector<std::vector<ArenaRange>>{{{0, set.weights.count}}}
                    : place(placement_, parameter_ranges(set), collective_.world().size);
  }

  Collective& collective_;
  Optimizer& optimizer_;
  const Placement placement_;
  bool settled_ = false;
  std::vector<std::vector<ArenaRange>> ranges_;  // by home
};

class ParameterServer final : public RankUpdate {
 public:
  ParameterServer(const UpdateContext& context, Placement placement)
      : RankUpdate(context), scale_(gradient_scale(context)), homes_(context, placement) {}

  KeptArenas kept(const ParameterSet& set) override {
    return {.weights = set.weights, .rank_0_knows_all = homes_.rank_0_knows_all()};
  }

  void finish_step(Executable& executable, Stream& stream, StepResult& result) override {
    const ParameterSet& set = executable.parameters();
    homes_.reduce(set, stream);
    if (homes_.updates()) optimizer_.apply(set, scale_, stream, result);
    homes_.hand_out(set, set.weights, stream);
  }

 private:
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
class StagedServer final : public RankUpdate {
 public:
  StagedServer(const UpdateContext& context, Placement placement)
      : RankUpdate(context),
        scale_(gradient_scale(context)),
        homes_(context, placement),
        current_(context) {}

  void start(Executable& executable, Stream& stream) override {
    RankUpdate::start(executable, stream);
    const ParameterSet& set = executable.parameters();
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
constexpr OptionValue kMemories[] = {
    {"device", "that of the home's device, which also applies the gradients"},
    {"host", "the host's, where the CPU applies them: --local_parameter_device=cpu"},
};
constexpr OptionValue kSyncs[] = {
    {"mean", "the mean of all workers' gradients is applied once per step"},
    {"tf", "gradients are applied on arrival, then all workers wait, as in tf_cnn_benchmarks"},
    {"false", "gradients are applied on arrival; no worker waits"},
};
/// Throws ConfigError.
cluster::ServerRule parse_sync(const std::string& text) {
  using cluster::ServerRule;
  constexpr ServerRule kRules[] = {ServerRule::together, ServerRule::one_by_one,
                                   ServerRule::on_arrival};
  return kRules[parse_choice(text == "true" ? "mean" : text, kSyncs, "parameter_server:sync")];
}

constexpr OptionSpec kOptions[] = {
    {"placement", "first", "which rank or server holds which weights", kPlacements},
    {"memory", "device", "memory that holds the weights and the optimizer's state", kMemories},
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
    .steps_apart = [](const Options& options,
                      bool served) { return served && options.text("sync") == "false"; },
    .in_host_memory =
        [](const Options& options) {
          return parse_choice(options.text("memory"), kMemories, "parameter_server:memory") == 1;
        },
    .options = kOptions,
    .make = [](const UpdateContext& context) -> std::unique_ptr<UpdateStrategy> {
      const Placement placement =
          parse_placement(context.options.text("placement"), "parameter_server:placement");
      parse_sync(context.options.text("sync"));  // refused without servers, too
      if (context.options.flag("staged")) return std::make_unique<StagedServer>(context, placement);
      return std::make_unique<ParameterServer>(context, placement);
    },
    .make_served =
        [](const UpdateContext& context, const ServerLink& link) {
          const Options& options = context.options;
          return make_served(context, link, parse_sync(options.text("sync")),
                             options.flag("staged"));
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
    .make_served =
        [](const UpdateContext& context, const ServerLink& link) {
          return make_served(context, link, cluster::ServerRule::one_by_one, false);
        },
};

}  // namespace penstock::updates
