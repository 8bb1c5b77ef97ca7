// SPDX-License-Identifier: Apache-2.0
#include "trainer/updates/homes.h"

#include <algorithm>

namespace penstock {
namespace {

/// Of the parameters, in the order of the graph's nodes, as systems place variables in the order in
/// which a model makes them; the arenas have them in the order of backward.
std::vector<ArenaRange> tensors_of(const ParameterSet& set) {
  std::vector<const Parameter*> parameters;
  for (const Parameter& parameter : set.parameters) parameters.push_back(&parameter);
  std::reverse(parameters.begin(), parameters.end());
  std::stable_sort(
      parameters.begin(), parameters.end(),
      [](const Parameter* a, const Parameter* b) { return a->spec.node < b->spec.node; });
  std::vector<ArenaRange> tensors;
  const auto* const arena = static_cast<const float*>(set.gradients.data);
  for (const Parameter* parameter : parameters) {
    const auto first = static_cast<const float*>(parameter->gradient.data) - arena;
    tensors.push_back({static_cast<std::size_t>(first), parameter->gradient.count});
  }
  return tensors;
}

Tensor part(const Tensor& tensor, const ArenaRange& range) {
  return {static_cast<float*>(tensor.data) + range.first, range.count};
}

}  // namespace

Homes::Homes(const UpdateContext& context, Placement placement)
    : collective_(context.collective), placement_(placement) {}

bool Homes::updates() const noexcept {
  return placement_ != Placement::first || collective_.world().rank == 0;
}

void Homes::settle(const ParameterSet& set) {
  if (settled_) return;
  settled_ = true;
  const bool whole = placement_ == Placement::first || set.parameters.empty();
  ranges_ = whole ? std::vector<std::vector<ArenaRange>>{{{0, set.weights.count}}}
                  : place(placement_, tensors_of(set), collective_.world().size);
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
}

}  // namespace penstock
