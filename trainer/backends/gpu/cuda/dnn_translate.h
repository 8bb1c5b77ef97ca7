// SPDX-License-Identifier: Apache-2.0
// Translates a DnnGraph to cuDNN's operation graph. Tensors are laid out as N, H, W, C (weights as
// K, R, S, C) and aligned to 16 bytes. Their identifier is their index in DnnGraph::tensors + 1.
// Everything is computed in f32.
#pragma once

#include <cudnn.h>

#include <vector>

#include "trainer/backends/gpu/cuda/dnn_descriptors.h"
#include "trainer/backends/gpu/dnn_graph.h"

namespace penstock::gpu {

/// cuDNN's identifier of tensor `id` in a variant pack.
constexpr std::int64_t unique_id(DnnTensorId id) noexcept { return id + 1; }

/// A finalised cuDNN operation graph with all objects that it refers to.
class OperationGraph {
 public:
  /// `handle` belongs to the device that computes the graph. Null: no device; each later call then
  /// names a device's description. Throws DeviceError for a graph that cuDNN does not allow.
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
