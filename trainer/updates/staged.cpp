// SPDX-License-Identifier: Apache-2.0
#include "trainer/updates/staged.h"

#include <optional>

#include "trainer/updates/arena_copy.h"
#include "trainer/updates/homes.h"

namespace penstock::updates {
namespace {

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

}  // namespace

std::unique_ptr<UpdateStrategy> make_staged_server(const UpdateContext& context,
                                                   Placement placement) {
  return std::make_unique<StagedServer>(context, placement);
}

}  // namespace penstock::updates
