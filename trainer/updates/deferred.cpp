// SPDX-License-Identifier: Apache-2.0
#include "trainer/updates/deferred.h"

#include <optional>
#include <utility>

#include "trainer/updates/arena_copy.h"

namespace penstock::updates {
namespace {

class Deferred final : public UpdateStrategy {
 public:
  explicit Deferred(const UpdateContext& context)
      : collective_(context.collective),
        optimizer_(context.optimizer),
        scale_(gradient_scale(context)),
        before_(context) {}

  /// The first step differs from later steps.
  bool recordable() const noexcept override { return false; }

  void start(Executable& executable, Stream& stream) override {
    collective_.broadcast(executable.parameters().weights, 0, stream);
    collective_.broadcast(executable.parameters().running, 0, stream);
  }
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
  Collective& collective_;
  Optimizer& optimizer_;
  const float scale_;
  ArenaCopy before_;  ///< reduced gradients of the previous step
  std::optional<ParameterSet> before_set_;
  bool has_before_ = false;
};

}  // namespace

std::unique_ptr<UpdateStrategy> make_deferred(const UpdateContext& context) {
  return std::make_unique<Deferred>(context);
}

}  // namespace penstock::updates
