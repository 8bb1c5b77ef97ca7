// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/layouts.h"

#include <algorithm>
#include <variant>
#include <vector>

#include "dataflow/error.h"
#include "trainer/backends/gpu/kernel_calls.h"

namespace penstock::gpu {
namespace {

/// Alignment of parameters in their arenas, in elements: 256 bytes of f32 or 128 bytes of a 16-bit
/// type. This suits vector loads and the DNN library.
constexpr std::size_t kAlignment = 64;

ParameterLayout layout_of(const Graph& graph, const ParameterSpec& spec, DType type) {
  ParameterLayout layout{{.spec = spec, .count = static_cast<std::size_t>(spec.count())}};
  if (spec.role != Role::weight) return layout;
  layout.channels = layout.padded_channels = spec.shape[1];
  if (reads_padded_image(graph, spec.node)) {
    layout.padded_channels =
        padded_image_channels(static_cast<std::int32_t>(layout.channels), type);
  }
  layout.count = layout.count / static_cast<std::size_t>(layout.channels) *
                 static_cast<std::size_t>(layout.padded_channels);
  return layout;
}

/// Calls body(plain index, own index) for each element of a weight that is not padding.
template <typename Body>
void for_each_weight(const ParameterLayout& layout, const Body& body) {
  const std::vector<std::int64_t>& shape = layout.spec.shape;
  const std::int64_t pixels = shape[2] * shape[3];
  std::size_t plain = 0;
  for (std::int64_t o = 0; o < shape[0]; ++o) {
    for (std::int64_t c = 0; c < shape[1]; ++c) {
      for (std::int64_t pixel = 0; pixel < pixels; ++pixel) {
        body(plain++, static_cast<std::size_t>((o * pixels + pixel) * layout.padded_channels + c));
      }
    }
  }
}

}  // namespace

std::int32_t padded_image_channels(std::int32_t channels, DType type) {
  const std::int32_t multiple = type == DType::f16 ? 4 : 8;
  return (channels + multiple - 1) / multiple * multiple;
}

bool reads_padded_image(const Graph& graph, NodeId node) {
  const Node& reader = graph.nodes()[static_cast<std::size_t>(node)];
  if (reader.inputs.front() != Graph::kInput) return false;
  const auto* const convolution = std::get_if<Conv2d>(&reader.op);
  return std::holds_alternative<Linear>(reader.op) ||
         (convolution != nullptr && convolution->groups == 1);
}

bool can_read_blocks(const Graph& graph, NodeId node) {
  const Node& reader = graph.nodes()[static_cast<std::size_t>(node)];
  const auto* const op = std::get_if<Conv2d>(&reader.op);
  if (op == nullptr || !reads_padded_image(graph, node)) return false;
  const ImageShape image = graph.input_shape();
  const Window& window = op->window;
  return window.kernel_h == kStemKernel && window.kernel_w == kStemKernel && window.stride == 2 &&
         window.top == 3 && window.left == 3 && window.bottom == 3 && window.right == 3 &&
         image.channels <= kBlockChannels && image.height % 2 == 0 && image.width % 2 == 0;
}

ConvolutionShape over_blocks(const ConvolutionShape& shape) {
  ConvolutionShape blocks = shape;
  blocks.channels = 4 * kBlockChannels;
  blocks.height /= 2;
  blocks.width /= 2;
  blocks.window = {kBlockKernel, kBlockKernel, 1, 2, 2, 1, 1};
  return blocks;
}

void ParameterLayout::to_own(std::span<const float> plain, std::span<float> own) const {
  PENSTOCK_ASSERT(own.size() == count);
  if (channels == 0) {
    std::copy(plain.begin(), plain.end(), own.begin());
    return;
  }
  std::fill(own.begin(), own.end(), 0.F);
  for_each_weight(*this, [&](std::size_t from, std::size_t to) { own[to] = plain[from]; });
}

void ParameterLayout::to_plain(std::span<const float> own, std::span<float> plain) const {
  PENSTOCK_ASSERT(own.size() == count);
  if (channels == 0) {
    std::copy(own.begin(), own.end(), plain.begin());
    return;
  }
  for_each_weight(*this, [&](std::size_t to, std::size_t from) { plain[to] = own[from]; });
}

Layouts make_layouts(const Graph& graph, DType type) {
  Layouts layouts(graph, [&](const ParameterSpec& spec) { return layout_of(graph, spec, type); });
  layouts.place(kAlignment);
  return layouts;
}

ConvolutionShape convolution_shape(const Graph& graph, NodeId node, std::int32_t images,
                                   DType dtype) {
  const Node& of = graph.nodes()[static_cast<std::size_t>(node)];
  const ImageShape in = graph.shape(of.inputs.front());
  ConvolutionShape shape{.images = images,
                         .channels = reads_padded_image(graph, node)
                                         ? padded_image_channels(in.channels, dtype)
                                         : in.channels,
                         .height = in.height,
                         .width = in.width,
                         .filters = of.shape.channels,
                         .dtype = dtype};
  if (const auto* const convolution = std::get_if<Conv2d>(&of.op)) {
    shape.groups = convolution->groups;
    shape.window = convolution->window;
  } else {
    PENSTOCK_ASSERT(std::holds_alternative<Linear>(of.op));
    shape.window = {.kernel_h = in.height, .kernel_w = in.width};
  }
  return shape;
}

}  // namespace penstock::gpu
