// SPDX-License-Identifier: Apache-2.0
// A model as a graph of operators over images: shapes, parameter count and arithmetic, but no
// numbers. Backends compile it. Nodes are added in an order in which they can be computed.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "dataflow/batch.h"

namespace penstock {

/// A sliding window and its zero padding, in elements.
struct Window {
  std::int32_t kernel_h = 1, kernel_w = 1, stride = 1;
  std::int32_t top = 0, left = 0, bottom = 0, right = 0;
};

struct Conv2d {
  std::int32_t channels = 0;
  Window window{};
  std::int32_t groups = 1;
  bool bias = false;
};
struct BatchNorm {
  float epsilon = 1e-5F, momentum = 0.1F;
};
struct MaxPool {
  Window window{};
};
struct Linear {
  std::int32_t features = 0;
};
struct Relu {};
struct GlobalAvgPool {};
struct Add {};

/// Closed on purpose: a new operator has to be faced by every backend.
using Op = std::variant<Conv2d, BatchNorm, Relu, MaxPool, GlobalAvgPool, Add, Linear>;

using NodeId = std::int32_t;

struct Node {
  std::string name;
  Op op;
  std::vector<NodeId> inputs;
  ImageShape shape;             ///< of the output, for one image
  std::int64_t parameters = 0;  ///< trainable ones
  double forward_macs = 0;  ///< multiply-accumulates of one image: convolutions and linear layers
};

class Graph {
 public:
  static constexpr NodeId kInput = -1;

  explicit Graph(ImageShape input) : input_(input) {}
  ImageShape input_shape() const noexcept { return input_; }

  /// Infers and checks the output shape. Throws ConfigError naming the node when the inputs do not
  /// fit.
  NodeId add(std::string name, const Op& op, std::initializer_list<NodeId> inputs);

  std::span<const Node> nodes() const noexcept { return nodes_; }
  ImageShape shape(NodeId node) const;
  std::int64_t parameter_count() const noexcept;
  double forward_macs_per_image() const noexcept;

 private:
  ImageShape input_;
  std::vector<Node> nodes_;
};

}  // namespace penstock
