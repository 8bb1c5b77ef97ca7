// SPDX-License-Identifier: Apache-2.0
#include "trainer/updates/homes.h"

#include <algorithm>

#include "dataflow/error.h"

namespace penstock::updates {
namespace {

Tensor part(const Tensor& tensor, const ArenaRange& range) {
  return {static_cast<float*>(tensor.data) + range.first, range.count};
}

}  // namespace

Homes::Homes(const UpdateContext& context, Placement placement)
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

bool Homes::updates() const noexcept {
  return placement_ != Placement::first || collective_.world().rank == 0;
}

void Homes::settle(const ParameterSet& set) {
  if (settled_) return;
  settled_ = true;
  const bool whole = placement_ == Placement::first || set.parameters.empty();
  ranges_ = whole ? std::vector<std::vector<ArenaRange>>{{{0, set.weights.count}}}
                  : place(placement_, parameter_ranges(set), collective_.world().size);
}

void Homes::reduce(const ParameterSet& set, Stream& stream) {
  settle(set);
  for (std::size_t home = 0; home < ranges_.size(); ++home) {
    for (const ArenaRange& range : ranges_[home]) {
      collective_.reduce_sum(part(set.gradients, range), static_cast<std::int32_t>(home), stream);
    }
  }
}

void Homes::hand_out(const ParameterSet& set, const Tensor& weights, Stream& stream) {
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

}  // namespace penstock::updates
