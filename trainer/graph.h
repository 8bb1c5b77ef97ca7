// SPDX-License-Identifier: Apache-2.0
// A model as a graph of operators over images. It knows shapes, parameters and the arithmetic, but
// no weights; backends compile it. Each node is added after its inputs. The last node is the
// logits.
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
/// Normalises each channel, then scales and shifts it. In train and forward_only it uses the mean
/// and the biased variance over N, H and W of the batch; in evaluate it uses the running
/// statistics.
/// running = (1 - momentum) * running + momentum * batch, with the unbiased variance.
struct BatchNorm {
  float epsilon = 1e-5F, momentum = 0.1F;
};
/// Ignores padding.
struct MaxPool {
  Window window{};
};
struct AvgPool {
  Window window{};
  bool count_padding = true;  ///< false: the divisor is the number of elements inside the image
};
/// Takes the whole image, in the order C, H, W.
struct Linear {
  std::int32_t features = 0;
};
/// Local response normalisation across channels:
/// y = x / (k + alpha / size * sum of x^2 over `size` neighbouring channels)^beta.
struct Lrn {
  std::int32_t size = 5;
  float alpha = 1e-4F, beta = 0.75F, k = 1;
};
/// In training only: zeroes a share `rate` of the elements and divides the others by 1 - rate.
struct Dropout {
  float rate = 0.5F;
};
/// Adds channels of zeros before and after the channels of the input.
struct PadChannels {
  std::int32_t before = 0, after = 0;
};
struct Relu {};
struct GlobalAvgPool {};
struct Add {};
struct Concat {};  ///< along channels

/// A closed set on purpose: every backend must handle a new operator.
using Op = std::variant<Conv2d, BatchNorm, Relu, MaxPool, AvgPool, GlobalAvgPool, Add, Concat,
                        PadChannels, Linear, Lrn, Dropout>;

using NodeId = std::int32_t;

struct Node {
  std::string name;
  Op op;
  std::vector<NodeId> inputs;
  ImageShape shape;             ///< of the output, for one image
  std::int64_t parameters = 0;  ///< trainable ones
  double forward_macs = 0;  ///< multiply-accumulates of one image in convolutions and linear layers
};

/// The role of a tensor of weights in its node.
enum class Role : std::uint8_t { weight, bias, scale, shift, running_mean, running_variance };
std::string_view to_string(Role role);

/// One tensor of weights: its name, shape and node.
struct ParameterSpec {
  std::string name;  ///< node name + "." + role
  NodeId node = 0;
  Role role = Role::weight;
  /// Convolution: [O, I / groups, H, W]; linear layer: [O, C, H, W]; else [C].
  std::vector<std::int64_t> shape;

  std::int64_t count() const noexcept;
  /// The number of inputs of one output: the product of all dimensions but the first.
  std::int64_t fan_in() const noexcept { return shape.empty() ? 1 : count() / shape.front(); }
  /// Weight decay applies to weights and biases, not to batch norm.
  bool decays() const noexcept { return role == Role::weight || role == Role::bias; }
};

class Graph {
 public:
  static constexpr NodeId kInput = -1;

  explicit Graph(ImageShape input) : input_(input) {}
  ImageShape input_shape() const noexcept { return input_; }

  /// Infers and checks the output shape. Throws ConfigError with the node's name if the inputs do
  /// not fit.
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
