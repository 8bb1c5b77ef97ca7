// SPDX-License-Identifier: Apache-2.0
// From our graph to cuDNN's: tensors lie as N, H, W, C (weights as K, R, S, C), are aligned to
// 16 bytes and known by their index in DnnGraph::tensors + 1; everything is computed in f32.
#pragma once

#include <cudnn.h>

#include <vector>

#include "trainer/backends/gpu/cuda/dnn_descriptors.h"
#include "trainer/backends/gpu/dnn_graph.h"

namespace penstock::gpu {

/// What cuDNN calls tensor `id` in a variant pack.
constexpr std::int64_t unique_id(DnnTensorId id) noexcept { return id + 1; }

/// cuDNN's operation graph, finalised, with all that it refers to.
class OperationGraph {
 public:
  /// `handle`: of the device that computes it; null: none, whoever asks names a device's
  /// description. Throws DeviceError for a graph that cuDNN's rules do not allow.
  OperationGraph(const DnnGraph& graph, cudnnHandle_t handle);

  const Descriptor& get() const noexcept { return graph_; }
  /// The tensors that have memory.
  const std::vector<DnnTensorId>& in_memory() const noexcept { return in_memory_; }

 private:
  std::vector<DnnTensorId> in_memory_;
  std::vector<Descriptor> tensors_;
  std::vector<Descriptor> settings_;  ///< of convolutions and pointwise operations
  std::vector<Descriptor> operations_;
  Descriptor graph_;
};

}  // namespace penstock::gpu
