// SPDX-License-Identifier: Apache-2.0
// Every replica holds the weights; gradients are summed over all ranks, so that ranks step
// together.
#include "trainer/update_strategy.h"

namespace penstock {
namespace {

class Replicated final : public UpdateStrategy {
 public:
  explicit Replicated(Collective& collective) : collective_(collective) {}
  void finish_step(Executable& executable, Stream& stream) override {
    collective_.all_reduce_sum(executable.gradients(), stream);
  }

 private:
  Collective& collective_;
};

}  // namespace

extern constinit const UpdateEntry replicated_update{
    .name = "replicated",
    .summary = "every replica holds the weights; gradients are all-reduced, ranks step together",
    .make = [](const UpdateContext& context) -> std::unique_ptr<UpdateStrategy> {
      return std::make_unique<Replicated>(context.collective);
    },
};

}  // namespace penstock
