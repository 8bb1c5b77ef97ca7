// SPDX-License-Identifier: Apache-2.0
// Every replica holds the weights. Gradients are summed over all ranks, and every rank applies the
// sum, so ranks step together. If there is an overlapped exchange, buckets of gradients are
// exchanged during backward; otherwise all are exchanged after it. Several systems have this update
// under different names.
#include <optional>
#include <utility>

#include "dataflow/error.h"
#include "dataflow/probe.h"
#include "trainer/exchange.h"
#include "trainer/update_strategy.h"
#include "trainer/updates/arena_copy.h"
#include "trainer/updates/served.h"

namespace penstock::updates {
namespace {

class Replicated final : public RankUpdate {
 public:
  explicit Replicated(const UpdateContext& context)
      : RankUpdate(context), exchange_(context.exchange), scale_(gradient_scale(context)) {}

  void start(Executable& executable, Stream& stream) override {
    RankUpdate::start(executable, stream);
    if (exchange_ == nullptr) return;
    executable.group_gradients(exchange_->plan().parameters());
    exchange_->start();
  }
  /// The exchange is enqueued after each backward pass and begins on that pass's events.
  bool recordable() const noexcept override { return exchange_ == nullptr; }
  GradientReady gradient_ready(Stream& stream) override {
    return exchange_ != nullptr ? exchange_->ready(stream) : GradientReady();
  }
  void finish_step(Executable& executable, Stream& stream, StepResult& result) override {
    if (exchange_ != nullptr) {
      exchange_->finish(stream);
    } else {
      collective_.all_reduce_sum(executable.parameters().gradients, stream);
    }
    optimizer_.apply(executable.parameters(), scale_, stream, result);
  }

 private:
  GradientExchange* const exchange_;
  const float scale_;
};

/// Replicas that apply the gradients of the previous step: --variable-consistency relaxed of
/// tf_cnn_benchmarks. With G_t the reduced gradients that step t, from 0, computes with weights
/// w_t,
///   w_1 = w_0,  w_{t+1} = update of w_t by G_{t-1}.
/// Staleness is exactly 1. The last step's gradients are never applied. Weight decay uses the
/// weights that are being updated, as in all updates of Penstock; in tf_cnn_benchmarks it is part
/// of the gradients and as old as they are. A checkpoint saves the gradients that are not yet
/// applied.
class Deferred final : public RankUpdate {
 public:
  explicit Deferred(const UpdateContext& context)
      : RankUpdate(context), scale_(gradient_scale(context)), before_(context) {}

  /// The first step differs from later steps.
  bool recordable() const noexcept override { return false; }

  KeptArenas kept(const ParameterSet& set) override {
    return {.weights = set.weights,
            .carried = before_.beside(set.gradients),
            .carries = "deferred_gradient"};
  }
  void resume() override { has_before_ = true; }
  void finish_step(Executable& executable, Stream& stream, StepResult& result) override {
    const ParameterSet& set = executable.parameters();
    if (!before_set_) {
      before_set_.emplace(in_arenas(set, set.weights, before_.beside(set.gradients)));
    }
    collective_.all_reduce_sum(set.gradients, stream);
    if (std::exchange(has_before_, true)) {
      optimizer_.apply(*before_set_, scale_, stream, result);
    } else {
      optimizer_.report_decay(set, stream, result);
    }
    copy(before_set_->gradients, set.gradients, stream);
  }

 private:
  const float scale_;
  ArenaCopy before_;  ///< reduced gradients of the previous step
  std::optional<ParameterSet> before_set_;
  bool has_before_ = false;
};

std::unique_ptr<UpdateStrategy> make_replicated(const UpdateContext& context) {
  return std::make_unique<Replicated>(context);
}
/// The same, with a note on how it differs from the system whose name it has.
std::unique_ptr<UpdateStrategy> make_noted(const UpdateContext& context, const char* note) {
  if (context.probe != nullptr && context.collective.world().rank == 0) context.probe->note(note);
  return make_replicated(context);
}

constexpr OptionValue kConsistencies[] = {
    {"strong", "each step applies its own gradients"},
    {"relaxed", "each step applies the gradients of the step before: a staleness of 1"},
};
constexpr OptionSpec kReplicatedOptions[] = {
    {"consistency", "strong",
     "which gradients a step applies, as --variable-consistency of tf_cnn_benchmarks",
     kConsistencies},
};

constexpr OptionSpec kBytePsOptions[] = {
    {"partition_bytes", "4096000", "largest message in bytes, as BYTEPS_PARTITION_BYTES"},
    {"credit_bytes", "16384000",
     "bytes in flight, so that urgent tensors can overtake; 0: no limit, the default of BytePS"},
};

}  // namespace

extern constinit const UpdateEntry replicated_update{
    .name = "replicated",
    .summary = "every replica holds the weights; an all-reduce adds the gradients of each step",
    .all_reduces = true,
    .options = kReplicatedOptions,
    .make = [](const UpdateContext& context) -> std::unique_ptr<UpdateStrategy> {
      const std::string& consistency = context.options.text("consistency");
      if (consistency == "relaxed") return std::make_unique<Deferred>(context);
      if (consistency == "strong") return make_replicated(context);
      throw ConfigError("replicated:consistency is '{}'; expected strong or relaxed", consistency);
    },
};

extern constinit const UpdateEntry horovod_update{
    .name = "horovod",
    .summary = "as replicated, over processes with one device each, started by mpirun or srun",
    .ranks = RankKind::processes,
    .all_reduces = true,
    .make = make_replicated,
};

/// KungFu's divides by the number of ranks; so does this one unless --gradient-reduction is sum.
extern constinit const UpdateEntry sync_sgd_update{
    .name = "sync-sgd",
    .summary = "KungFu's: an all-reduce of gradients; every rank applies their mean",
    .all_reduces = true,
    .make = make_replicated,
};

extern constinit const UpdateEntry byteps_update{
    .name = "byteps",
    .summary =
        "BytePS': server processes add the gradients, every rank applies the sum; without servers "
        "as replicated",
    .options = kBytePsOptions,
    .make =
        [](const UpdateContext& context) {
          return make_noted(
              context,
              "byteps has no servers that are processes: ranks exchange as replicated's do");
        },
    .make_served = make_byteps,
};

extern constinit const UpdateEntry distributed_all_reduce_update{
    .name = "distributed_all_reduce",
    .summary = "tf_cnn_benchmarks': as replicated, over the devices of all processes",
    .all_reduces = true,
    .make =
        [](const UpdateContext& context) {
          return make_noted(
              context,
              "distributed_all_reduce: every process drives its devices; in tf_cnn_benchmarks one "
              "session of a controller drives those of all workers, which are passive");
        },
};

extern constinit const UpdateEntry collective_all_reduce_update{
    .name = "collective_all_reduce",
    .summary = "tf_cnn_benchmarks': as replicated, with every process as a worker",
    .all_reduces = true,
    .make =
        [](const UpdateContext& context) {
          return make_noted(
              context,
              "collective_all_reduce: ranks exchange as replicated's do; in tf_cnn_benchmarks the "
              "exchange is a part of one graph, in which workers find each other by keys");
        },
};

}  // namespace penstock::updates
