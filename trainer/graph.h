// SPDX-License-Identifier: Apache-2.0
// A model as a graph of operators over images: shapes, parameters and arithmetic, but no numbers.
// Backends compile it. Nodes are added in an order in which they can be computed; the last one is
// the logits.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
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
/// Normalises each channel by the mean and the biased variance over N, H and W of the batch (train,
/// forward only) or by the running ones (evaluate), then scales and shifts.
/// running = (1 - momentum) * running + momentum * batch, with the unbiased variance.
struct BatchNorm {
  float epsilon = 1e-5F, momentum = 0.1F;
};
/// Padding never wins.
struct MaxPool {
  Window window{};
};
struct AvgPool {
  Window window{};
  bool count_padding = true;  ///< false: the divisor is the number of elements inside the image
};
/// Of the whole image, in the order C, H, W.
struct Linear {
  std::int32_t features = 0;
};
/// Local response normalisation across channels:
/// y = x / (k + alpha / size * sum of x^2 over `size` neighbouring channels)^beta.
struct Lrn {
  std::int32_t size = 5;
  float alpha = 1e-4F, beta = 0.75F, k = 1;
};
/// Training only: zeroes a share `rate` of the elements and divides the others by 1 - rate.
struct Dropout {
  float rate = 0.5F;
};
/// Channels of zeros before and after those of the input.
struct PadChannels {
  std::int32_t before = 0, after = 0;
};
struct Relu {};
struct GlobalAvgPool {};
struct Add {};
struct Concat {};  ///< along channels

/// Closed on purpose: a new operator has to be faced by every backend.
using Op = std::variant<Conv2d, BatchNorm, Relu, MaxPool, AvgPool, GlobalAvgPool, Add, Concat,
                        PadChannels, Linear, Lrn, Dropout>;

using NodeId = std::int32_t;

struct Node {
  std::string name;
  Op op;
  std::vector<NodeId> inputs;
  ImageShape shape;             ///< of the output, for one image
  std::int64_t parameters = 0;  ///< trainable ones
  double forward_macs = 0;  ///< multiply-accumulates of one image: convolutions and linear layers
};

/// What a tensor of weights is to its node.
enum class Role : std::uint8_t { weight, bias, scale, shift, running_mean, running_variance };
std::string_view to_string(Role role);

/// One tensor of weights: name, shape and place.
struct ParameterSpec {
  std::string name;  ///< node name + "." + role
  NodeId node = 0;
  Role role = Role::weight;
  /// [O, I / groups, H, W] of a convolution, [O, C, H, W] of a linear layer, else [C].
  std::vector<std::int64_t> shape;

  std::int64_t count() const noexcept;
  /// Inputs of one output: the product of all but the first dimension.
  std::int64_t fan_in() const noexcept { return shape.empty() ? 1 : count() / shape.front(); }
  /// Weight decay applies to weights and biases, not to batch norm.
  bool decays() const noexcept { return role == Role::weight || role == Role::bias; }
};

class Graph {
 public:
  static constexpr NodeId kInput = -1;

  explicit Graph(ImageShape input) : input_(input) {}
  ImageShape input_shape() const noexcept { return input_; }

  /// Infers and checks the output shape. Throws ConfigError naming the node when the inputs do not
  /// fit.
  NodeId add(std::string name, const Op& op, std::span<const NodeId> inputs);
  NodeId add(std::string name, const Op& op, std::initializer_list<NodeId> inputs) {
    return add(std::move(name), op, std::span(inputs.begin(), inputs.size()));
  }

  std::span<const Node> nodes() const noexcept { return nodes_; }
  ImageShape shape(NodeId node) const;
  std::int64_t parameter_count() const noexcept;
  double forward_macs_per_image() const noexcept;

  /// Trainable tensors in the order of nodes; within a node weight before bias, scale before shift.
  std::vector<ParameterSpec> parameters() const;
  /// Running statistics of batch norms, in the order of nodes; mean before variance.
  std::vector<ParameterSpec> buffers() const;

 private:
  ImageShape input_;
  std::vector<Node> nodes_;
};

}  // namespace penstock
