// SPDX-License-Identifier: Apache-2.0
// A variable update in one file: ranks exchange gradients only in every k-th step.
//   penstock_custom run --variable-update every-second:steps=4
#include "dataflow/error.h"
#include "trainer/update_strategy.h"

namespace penstock {
namespace {

constexpr OptionSpec kOptions[] = {{"steps", "2", "steps from one exchange to the next"}};

class EverySecond final : public UpdateStrategy {
 public:
  explicit EverySecond(const UpdateContext& context)
      : collective_(context.collective),
        optimizer_(context.optimizer),
        scale_(gradient_scale(context)),
        steps_(context.options.integer("steps")) {
    if (steps_ < 1) throw ConfigError("every-second:steps is below 1; expected a number of steps");
  }
  void start(Executable& executable, Stream& stream) override {
    collective_.broadcast(executable.parameters().weights, 0, stream);
  }
  void finish_step(Executable& executable, Stream& stream, StepResult& result) override {
    const ParameterSet& set = executable.parameters();
    const bool exchanges = ++count_ % steps_ == 0;
    if (exchanges) collective_.all_reduce_sum(set.gradients, stream);
    optimizer_.apply(set, exchanges ? scale_ : 1, stream, result);
  }

 private:
  Collective& collective_;
  Optimizer& optimizer_;
  const float scale_;
  const std::int64_t steps_;
  std::int64_t count_ = 0;
};

}  // namespace

extern constinit const UpdateEntry every_second_update{
    .name = "every-second",
    .summary = "gradients are all-reduced in every second step",
    .agreement = Agreement::own,
    .options = kOptions,
    .make = [](const UpdateContext& context) -> std::unique_ptr<UpdateStrategy> {
      return std::make_unique<EverySecond>(context);
    },
};

}  // namespace penstock
