// SPDX-License-Identifier: Apache-2.0
// What updates do with arenas: give them to all ranks, and keep a second one with the size of an
// executable's, for a model to average with, or for gradients or weights of a later step.
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

/// Gives every rank the weights and running statistics of rank 0.
inline void share_weights(Collective& collective, const ParameterSet& set, Stream& stream) {
  collective.broadcast(set.weights, 0, stream);
  collective.broadcast(set.running, 0, stream);
}

/// Enqueues to = from.
inline void copy(const Tensor& to, const Tensor& from, Stream& stream) {
  PENSTOCK_ASSERT(to.count == from.count);
  if (to.count == 0) return;
  const std::size_t bytes = to.count * sizeof(float);
  stream.copy({static_cast<std::byte*>(to.data), bytes},
              {static_cast<const std::byte*>(from.data), bytes});
}

/// The part of `tensor` at the position that `moved` has in `arena`, which is equally long.
inline Tensor moved_to(const Tensor& tensor, const Tensor& moved, const Tensor& arena) {
  const std::ptrdiff_t offset =
      static_cast<const float*>(moved.data) - static_cast<const float*>(arena.data);
  return {static_cast<float*>(tensor.data) + offset, moved.count};
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
