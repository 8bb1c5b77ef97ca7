// SPDX-License-Identifier: Apache-2.0
// One home for the weights, on rank 0: it adds the gradients of all ranks, applies them, and hands
// the weights back. In one process the home is rank 0's device.
#include "trainer/update_strategy.h"

namespace penstock {
namespace {

constexpr std::int32_t kHome = 0;

class ParameterServer final : public UpdateStrategy {
 public:
  explicit ParameterServer(const UpdateContext& context)
      : collective_(context.collective),
        optimizer_(context.optimizer),
        scale_(gradient_scale(context)) {}

  void start(Executable& executable, Stream& stream) override {
    collective_.broadcast(executable.parameters().weights, kHome, stream);
    collective_.broadcast(executable.parameters().running, kHome, stream);
  }
  void finish_step(Executable& executable, Stream& stream, StepResult& result) override {
    const ParameterSet& set = executable.parameters();
    collective_.reduce_sum(set.gradients, kHome, stream);
    if (collective_.world().rank == kHome) optimizer_.apply(set, scale_, stream, result);
    collective_.broadcast(set.weights, kHome, stream);
  }

 private:
  Collective& collective_;
  Optimizer& optimizer_;
  const float scale_;
};

}  // namespace

extern constinit const UpdateEntry parameter_server_update{
    .name = "parameter_server",
    .summary = "one home adds the gradients, applies them and hands the weights back",
    .make = [](const UpdateContext& context) -> std::unique_ptr<UpdateStrategy> {
      return std::make_unique<ParameterServer>(context);
    },
};

}  // namespace penstock
