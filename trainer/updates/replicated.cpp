// SPDX-License-Identifier: Apache-2.0
// Every replica holds the weights; gradients are summed over all ranks, and every rank applies
// them, so that ranks step together. Buckets of gradients are exchanged while backward goes on,
// where there is such an exchange, else all of them behind it.
#include "trainer/exchange.h"
#include "trainer/update_strategy.h"

namespace penstock {
namespace {

class Replicated final : public UpdateStrategy {
 public:
  explicit Replicated(const UpdateContext& context)
      : collective_(context.collective),
        exchange_(context.exchange),
        optimizer_(context.optimizer),
        scale_(gradient_scale(context)) {}

  void start(Executable& executable, Stream& stream) override {
    collective_.broadcast(executable.parameters().weights, 0, stream);
    collective_.broadcast(executable.parameters().running, 0, stream);
    if (exchange_ != nullptr) exchange_->start();
  }
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
  Collective& collective_;
  GradientExchange* const exchange_;
  Optimizer& optimizer_;
  const float scale_;
};

std::unique_ptr<UpdateStrategy> make(const UpdateContext& context) {
  return std::make_unique<Replicated>(context);
}

}  // namespace

extern constinit const UpdateEntry replicated_update{
    .name = "replicated",
    .summary = "every replica holds the weights; gradients are all-reduced, ranks step together",
    .make = make,
};

extern constinit const UpdateEntry horovod_update{
    .name = "horovod",
    .summary = "the same over processes with one device each, which mpirun or srun starts",
    .ranks = RankKind::processes,
    .make = make,
};

}  // namespace penstock
