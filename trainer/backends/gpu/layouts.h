// SPDX-License-Identifier: Apache-2.0
// The order of each parameter's elements in the arenas, and the shapes of convolutions. Weights are
// [O, H, W, I], the order that convolutions over N, H, W, C read; everything else keeps its plain
// order.
#pragma once

#include <cstdint>
#include <span>

#include "dataflow/batch.h"
#include "trainer/backends/compiler/parameter_arena.h"
#include "trainer/backends/gpu/dnn_patterns.h"
#include "trainer/graph.h"

namespace penstock::gpu {

/// Images are RGB. They are computed with extra channels of zeros: up to 4 channels in f16, because
/// cuDNN 9 has kernels for such first layers, and up to 8 in other types, which cuDNN would
/// otherwise pad in its workspace.
std::int32_t padded_image_channels(std::int32_t channels, DType type);

struct ParameterLayout : compiler::ArenaRange {    ///< `count` includes padding
  std::int64_t channels = 0, padded_channels = 0;  ///< of a weight's inputs; else 0

  /// `own` has `count` elements. Padding elements become 0.
  void to_own(std::span<const float> plain, std::span<float> own) const;
  void to_plain(std::span<const float> own, std::span<float> plain) const;
};
using Layouts = compiler::ArenaLayouts<ParameterLayout>;
Layouts make_layouts(const Graph& graph, DType type);

/// True if the node reads the image and is computed with padded channels.
bool reads_padded_image(const Graph& graph, NodeId node);

/// True for a convolution of the image that can be computed over blocks of 2x2 pixels: 7x7 with
/// stride 2 and padding 3, at most kBlockChannels channels, even sides.
bool can_read_blocks(const Graph& graph, NodeId node);
/// Its shape over the blocks, each a pixel of 4 * kBlockChannels channels: 4x4 without stride. Row
/// r of the 7x7 kernel for output y reads the row 2 * y + r - 3 of the image. That is row (r + 1) %
/// 2 of block y - 2 + (r + 1) / 2, so two blocks of padding come before the image and one after it.
ConvolutionShape over_blocks(const ConvolutionShape& shape);

/// The shape of a Conv2d or Linear as it is computed, with padded image channels.
ConvolutionShape convolution_shape(const Graph& graph, NodeId node, std::int32_t images,
                                   DType dtype);

}  // namespace penstock::gpu
