// SPDX-License-Identifier: Apache-2.0
// The offset of each parameter in the arenas, and the order of its elements. Weights are [O, H, W,
// I], the order that convolutions over N, H, W, C read; everything else keeps its plain order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dataflow/batch.h"
#include "trainer/graph.h"

namespace penstock::gpu {

/// Images are RGB. They are computed with extra channels of zeros: up to 4 channels in f16, because
/// cuDNN 9 has kernels for such first layers, and up to 8 in other types, which cuDNN would
/// otherwise pad in its workspace.
std::int32_t padded_image_channels(std::int32_t channels, DType type);

struct ParameterLayout {
  ParameterSpec spec;
  std::size_t offset = 0;                          ///< elements into the arenas
  std::size_t count = 0;                           ///< elements, padding included
  std::int64_t channels = 0, padded_channels = 0;  ///< of a weight's inputs; else 0

  /// `own` has `count` elements. Padding elements become 0.
  void to_own(std::span<const float> plain, std::span<float> own) const;
  void to_plain(std::span<const float> own, std::span<float> plain) const;
  /// [O, I, H, W] of a weight, padding included: the DNN library's order of dimensions.
  std::vector<std::int64_t> own_shape() const;
};

/// Parameters in the order in which the backward pass completes them: the reverse order of nodes.
struct Layouts {
  std::vector<ParameterLayout> parameters, buffers;
  std::size_t parameter_elements = 0, buffer_elements = 0;

  std::size_t index_of(NodeId node, Role role) const;
  const ParameterLayout& of(const ParameterSpec& spec) const;
};
Layouts make_layouts(const Graph& graph, DType type);

/// True if the node reads the image and is computed with padded channels.
bool reads_padded_image(const Graph& graph, NodeId node);

}  // namespace penstock::gpu
