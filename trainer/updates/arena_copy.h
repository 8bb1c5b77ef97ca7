// SPDX-License-Identifier: Apache-2.0
// What updates share: a collective and an optimizer, the weights of rank 0 on all ranks, and a
// second arena with the size of an executable's, for a model to average with, or for gradients or
// weights of a later step.
#pragma once

#include <cstddef>

#include "dataflow/error.h"
#include "trainer/update_strategy.h"

namespace penstock::updates {

class ArenaCopy {
 public:
  /// Uses the strategy's device, which outlives the copy.
  explicit ArenaCopy(const UpdateContext& context) : device_(context.device) {
    PENSTOCK_ASSERT(device_ != nullptr);
  }
  /// Returns a tensor as long as `tensor`, allocated at the first call and uninitialised.
  Tensor beside(const Tensor& tensor) {
    PENSTOCK_ASSERT(tensor.dtype == DType::f32);
    if (buffer_.bytes().empty() && tensor.count > 0) {
      buffer_ = device_->allocate(tensor.count * sizeof(float), MemoryKind::device);
    }
    return {buffer_.bytes().data(), tensor.count};
  }

 private:
  Device* const device_;
  Buffer buffer_;
};

/// An update that gives every rank the weights and running statistics of rank 0 at its start.
class RankUpdate : public UpdateStrategy {
 public:
  explicit RankUpdate(const UpdateContext& context)
      : collective_(context.collective), optimizer_(context.optimizer) {}

  void start(Executable& executable, Stream& stream) override {
    collective_.broadcast(executable.parameters().weights, 0, stream);
    collective_.broadcast(executable.parameters().running, 0, stream);
  }

 protected:
  Collective& collective_;
  Optimizer& optimizer_;
};

/// Enqueues to = from.
inline void copy(const Tensor& to, const Tensor& from, Stream& stream) {
  PENSTOCK_ASSERT(to.count == from.count);
  if (to.count > 0) stream.copy(bytes_of(to), bytes_of(from));
}

/// The part of `tensor` at the position that `moved` has in `arena`, which is equally long.
inline Tensor moved_to(const Tensor& tensor, const Tensor& moved, const Tensor& arena) {
  return {static_cast<float*>(tensor.data) + offset_in(arena, moved), moved.count};
}

/// The same parameters, with weights and gradients in other arenas.
inline ParameterSet in_arenas(const ParameterSet& set, const Tensor& weights,
                              const Tensor& gradients) {
  ParameterSet result = set;
  result.weights = weights;
  result.gradients = gradients;
  for (Parameter& parameter : result.parameters) {
    parameter.weight = moved_to(weights, parameter.weight, set.weights);
    parameter.gradient = moved_to(gradients, parameter.gradient, set.gradients);
  }
  return result;
}

}  // namespace penstock::updates
