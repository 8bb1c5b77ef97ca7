// SPDX-License-Identifier: Apache-2.0
// Builders for most nets: chains of layers, and parallel branches of chains.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "trainer/graph.h"

namespace penstock {

/// same: with stride 1 the image keeps its size, otherwise it shrinks to size / stride, rounded up.
/// The padding is symmetric. TensorFlow's own padding gives the same shapes and the same work, but
/// shifts the windows of even images by one pixel if the stride is 2.
enum class Padding : std::uint8_t { same, valid };

/// The elements under a window. Both counts are odd for Padding::same.
struct Kernel {
  constexpr Kernel(std::int32_t side) : height(side), width(side) {}  // NOLINT: conv(64, 3)
  constexpr Kernel(std::int32_t h, std::int32_t w) : height(h), width(w) {}
  std::int32_t height, width;
};

Window make_window(Kernel kernel, std::int32_t stride, Padding padding);

/// Adds layers to a graph, each on top of the previous one. Layers are called "NAME.conv1",
/// "NAME.conv2", "NAME.pool1" and so on, without the dot if the chain has an empty name.
class Chain {
 public:
  /// With `normalise`, a batch norm follows each convolution; without it, convolutions have a bias.
  /// The graph outlives the chain.
  Chain(Graph& graph, std::string_view name, NodeId input,
        const std::optional<BatchNorm>& normalise = std::nullopt);

  /// A convolution and a ReLU.
  Chain& conv(std::int32_t channels, Kernel kernel, std::int32_t stride = 1,
              Padding padding = Padding::same);
  Chain& max_pool(Kernel kernel, std::int32_t stride, Padding padding = Padding::valid);
  /// Averages over the elements inside the image.
  Chain& avg_pool(Kernel kernel, std::int32_t stride, Padding padding = Padding::valid);
  Chain& global_avg_pool();
  Chain& lrn(const Lrn& op);
  /// A linear layer over the whole image, and a ReLU.
  Chain& affine(std::int32_t features);
  Chain& dropout(float rate);
  /// The last linear layer.
  void logits(std::int32_t classes);

  NodeId end() const noexcept { return end_; }

 private:
  struct Counts {
    std::int32_t conv = 0, pool = 0, lrn = 0, affine = 0, dropout = 0;
  };
  std::string name_of(std::string_view layer, std::int32_t& count) const;
  void add(std::string name, const Op& op);

  Graph& graph_;
  std::string prefix_;
  NodeId end_;
  std::optional<BatchNorm> normalise_;
  Counts counts_;
};

/// Parallel chains called "NAME.SUFFIX", whose channels are concatenated.
class Branches {
 public:
  /// The same arguments as for a chain.
  Branches(Graph& graph, std::string name, NodeId input,
           const std::optional<BatchNorm>& normalise = std::nullopt)
      : graph_(graph), name_(std::move(name)), input_(input), normalise_(normalise) {}

  Chain branch(std::string_view suffix) const { return branch(suffix, input_); }
  /// A branch that starts from another branch.
  Chain branch(std::string_view suffix, NodeId input) const {
    return {graph_, name_ + "." + std::string(suffix), input, normalise_};
  }
  /// Adds the node "NAME": the channels of all branches, in this order.
  NodeId join(std::initializer_list<Chain> branches) const;

 private:
  Graph& graph_;
  std::string name_;
  NodeId input_;
  std::optional<BatchNorm> normalise_;
};

}  // namespace penstock
