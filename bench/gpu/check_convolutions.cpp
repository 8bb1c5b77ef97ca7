// SPDX-License-Identifier: Apache-2.0
// The verbs convolutions and patterns: the graphs to check, and the tolerances of their results.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/gpu/check_report.h"
#include "bench/gpu/dnn_check.h"
#include "trainer/backends/gpu/dnn_patterns.h"
#include "trainer/backends/gpu/layouts.h"
#include "trainer/model.h"

namespace penstock::gpu {
namespace {

/// A small number, because the host computes each check in double.
constexpr std::int64_t kImages = 2;
constexpr std::array<std::string_view, 2> kResNets{"resnet50_v1.5", "resnet50"};
constexpr std::array<std::string_view, 2> kOthers{"alexnet", "googlenet"};

/// Relative errors in the L2 norm: the result is rounded once to the type, and f32 adds the error
/// of the sum. With tf32 the rounding of two operands adds to that.
struct Kind {
  std::string_view name;
  DType dtype;
  bool tf32;
  double tolerance;
};
constexpr std::array<Kind, 4> kKinds{{{"fp16", DType::f16, false, 2e-3},
                                      {"bf16", DType::bf16, false, 1e-2},
                                      {"tf32", DType::f32, true, 1e-3},
                                      {"fp32", DType::f32, false, 1e-5}}};

struct Layer {
  ConvolutionShape shape;
  bool reads_image = false;
};

/// Each layer once, in the order of the models, without the layers in `known`.
std::vector<Layer> layers_of(std::span<const std::string_view> models, DType dtype,
                             const std::vector<Layer>& known = {}) {
  std::vector<Layer> all;
  for (const std::string_view name : models) {
    const ModelEntry& model = find_entry(model_table(), name);
    const Graph graph = build_graph(model, model.image, model.classes);
    for (std::size_t id = 0; id < graph.nodes().size(); ++id) {
      const auto node = static_cast<NodeId>(id);
      if (graph.nodes()[id].forward_macs == 0) continue;
      const ConvolutionShape shape = convolution_shape(graph, node, kImages, dtype);
      const auto same = [graph = conv_forward(shape).graph](const Layer& other) {
        return conv_forward(other.shape).graph == graph;
      };
      if (std::ranges::none_of(all, same) && std::ranges::none_of(known, same)) {
        all.push_back({shape, reads_padded_image(graph, node)});
        if (can_read_blocks(graph, node)) all.push_back({over_blocks(shape), true});
      }
    }
  }
  return all;
}

std::string text_of(const ConvolutionShape& shape) {
  const Window& window = shape.window;
  return fmt::format("{}x{}x{}_{}x{}s{}_{}", shape.height, shape.width, shape.channels,
                     window.kernel_h, window.kernel_w, window.stride, shape.filters);
}

/// Layers with unusual channels, sides that differ, paddings that differ, and groups.
std::vector<Layer> awkward_layers() {
  const auto layer = [](std::int64_t channels, std::int64_t height, std::int64_t width,
                        std::int64_t filters, const Window& window, std::int64_t groups = 1) {
    return Layer{{.images = 3,
                  .channels = channels,
                  .height = height,
                  .width = width,
                  .filters = filters,
                  .groups = groups,
                  .window = window}};
  };
  return {layer(5, 7, 9, 17, {3, 3, 1, 1, 1, 1, 1}), layer(20, 11, 8, 3, {5, 2, 3, 2, 1, 1, 0}),
          layer(64, 9, 7, 64, {1, 7, 1, 0, 3, 0, 3}), layer(32, 8, 6, 40, {3, 3, 2, 0, 0, 1, 1}),
          layer(32, 10, 10, 32, {3, 3, 1, 1, 1, 1, 1}, 32)};
}

void add_convolutions(std::vector<DnnCheck>& checks, const Layer& layer, const Kind& kind,
                      bool may_lack_engine) {
  ConvolutionShape shape = layer.shape;
  shape.dtype = kind.dtype;
  const auto add = [&](std::string_view direction, DnnGraph graph) {
    checks.push_back({fmt::format("{} {} {}", kind.name, text_of(shape), direction),
                      std::move(graph), kind.tf32, kind.tolerance, may_lack_engine});
  };
  add("forward", conv_forward(shape).graph);
  add("wgrad", conv_backward_filter(shape).graph);
  if (layer.reads_image) return;
  add("dgrad", conv_backward_data(shape, 0).graph);
  add("dgrad_added", conv_backward_data(shape, 1).graph);
}

/// If a ReLU's input is within a rounding error of 0, the gradient may pass on one side and not on
/// the other. A share p of such elements gives an error of sqrt(p); in f16, p is a few thousandths.
constexpr double kForwardTolerance = 3e-3, kBackwardTolerance = 6e-2;

void add_patterns(std::vector<DnnCheck>& checks, const ConvolutionShape& shape) {
  const auto add = [&](std::string_view pattern, DnnGraph graph, double tolerance) {
    checks.push_back({fmt::format("fp16 {} {}", text_of(shape), pattern), std::move(graph), false,
                      tolerance, true});
  };
  add("conv_statistics", conv_statistics(shape).graph, kForwardTolerance);
  add("normalised_conv_statistics", normalised_conv_statistics(shape).graph, kForwardTolerance);
  for (const bool dual : {false, true}) {
    add(dual ? "dual_residual_conv_statistics" : "residual_conv_statistics",
        residual_normalised_conv_statistics(shape, dual).graph, kForwardTolerance);
  }
  add("normalised_wgrad", normalised_conv_backward_filter(shape).graph, kForwardTolerance);
  constexpr std::array<std::string_view, 3> kShortcuts{"", "_shortcut", "_dual"};
  for (const bool added : {false, true}) {
    for (const Shortcut shortcut : {Shortcut::none, Shortcut::tensor, Shortcut::batch_norm}) {
      add(fmt::format("dgrad_norm{}{}", kShortcuts[static_cast<std::size_t>(shortcut)],
                      added ? "_added" : ""),
          conv_backward_data_batch_norm(shape, added, shortcut).graph, kBackwardTolerance);
    }
  }
}

void run(const std::vector<DnnCheck>& checks, const CheckSettings& settings, CheckReport& report) {
  const std::unique_ptr<Driver> driver = open_driver(settings);
  Workbench bench(*driver);
  check_graphs(checks, settings, bench, report);
}

}  // namespace

void check_convolutions(const CheckSettings& settings, CheckReport& report) {
  std::vector<DnnCheck> checks;
  for (const bool of_other_models : {false, true}) {
    for (const Kind& kind : kKinds) {
      const std::vector<Layer> resnets = layers_of(kResNets, kind.dtype);
      const std::vector<Layer> layers =
          of_other_models ? layers_of(kOthers, kind.dtype, resnets) : resnets;
      for (const Layer& layer : layers) add_convolutions(checks, layer, kind, of_other_models);
      if (of_other_models) continue;
      for (const Layer& layer : awkward_layers()) add_convolutions(checks, layer, kind, true);
    }
  }
  run(checks, settings, report);
}

void check_patterns(const CheckSettings& settings, CheckReport& report) {
  std::vector<DnnCheck> checks;
  for (const Layer& layer : layers_of(kResNets, DType::f16)) {
    // Only layers between batch norms: neither the image's layer nor a linear one.
    if (!layer.reads_image && layer.shape.height > 1) add_patterns(checks, layer.shape);
  }
  run(checks, settings, report);
}

}  // namespace penstock::gpu
