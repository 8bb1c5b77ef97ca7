// SPDX-License-Identifier: Apache-2.0
#include "tests/support/plain_net.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>

#include "dataflow/error.h"
#include "dataflow/images/normalisation.h"
#include "tests/support/plain_operators.h"
#include "trainer/initialise.h"

namespace penstock {
namespace {

using plain::Images;

Images normalised(const PlainBatch& batch, const ImageShape& shape) {
  Images images(batch.valid, shape);
  for (std::int32_t n = 0; n < batch.valid; ++n) {
    for (std::int32_t c = 0; c < shape.channels; ++c) {
      const ChannelStatistics statistics = channel_statistics(c, shape.channels);
      double* const to = images.channel(n, c);
      const std::size_t first = static_cast<std::size_t>(n) * shape.elements();
      for (std::size_t k = 0; k < images.plane(); ++k) {
        const std::size_t pixel =
            first + k * static_cast<std::size_t>(shape.channels) + static_cast<std::size_t>(c);
        to[k] = (batch.pixels[pixel] - double{statistics.mean}) / statistics.deviation;
      }
    }
  }
  return images;
}

/// One step of one graph. Forward computes every node's output; backward sums up their gradients.
class Step {
 public:
  Step(const Graph& graph, const PlainWeights& weights, const PlainBatch& batch,
       const PlainRun& run)
      : graph_(graph), batch_(batch), run_(run), weights_(weights.parameters) {
    result_.buffers = weights.buffers;
    for (const ParameterSpec& spec : graph.parameters()) {
      index_of_.emplace(spec.name, index_of_.size());
    }
    for (const ParameterSpec& spec : graph.buffers()) {
      buffer_of_.emplace(spec.name, buffer_of_.size());
    }
    if (!run.rounding) return;
    for (const ParameterSpec& spec : graph.parameters()) {
      if (spec.role == Role::weight) round(weights_[index_of_[spec.name]]);
    }
  }

  PlainStep compute() {
    input_ = normalised(batch_, graph_.input_shape());
    round(input_.values);
    for (const Node& node : graph_.nodes()) forward(node);
    result_.logits = outputs_.back().values;
    if (run_.phase == Phase::forward_only) return std::move(result_);
    const std::vector<double> dlogits = softmax_cross_entropy();
    if (run_.phase == Phase::train) backward(dlogits);
    return std::move(result_);
  }

 private:
  const Images& output(NodeId id) const {
    return id == Graph::kInput ? input_ : outputs_[static_cast<std::size_t>(id)];
  }
  void round(std::vector<double>& values) const {
    if (!run_.rounding) return;
    for (double& value : values) value = run_.rounding(value);
  }
  /// Empty if the node has no such parameter.
  plain::Values weight(const Node& node, Role role) const {
    const auto found = index_of_.find(node.name + "." + std::string(to_string(role)));
    return found == index_of_.end() ? plain::Values{} : plain::Values(weights_[found->second]);
  }
  plain::Gradient gradient(const Node& node, Role role) {
    const auto found = index_of_.find(node.name + "." + std::string(to_string(role)));
    return found == index_of_.end() ? plain::Gradient{}
                                    : plain::Gradient(result_.gradients[found->second]);
  }
  std::vector<double>& running(const Node& node, Role role) {
    return result_.buffers[buffer_of_.at(node.name + "." + std::string(to_string(role)))];
  }
  DropoutMask mask(const Node& node, const Dropout& op) const {
    const auto id = static_cast<std::int32_t>(&node - graph_.nodes().data());
    return DropoutMask(run_.seed, run_.step, id, op.rate);
  }

  void forward(const Node& node) {
    Images y(batch_.valid, node.shape);
    std::visit([&](const auto& op) { forward(node, op, y); }, node.op);
    round(y.values);
    outputs_.push_back(std::move(y));
  }
  template <typename Op>
  void forward(const Node& node, const Op& op, Images& y) {
    plain::forward(op, output(node.inputs[0]), y);
  }
  void forward(const Node& node, const Conv2d& op, Images& y) {
    plain::forward(op, output(node.inputs[0]), weight(node, Role::weight), weight(node, Role::bias),
                   y);
  }
  void forward(const Node& node, const Linear& op, Images& y) {
    plain::forward(op, output(node.inputs[0]), weight(node, Role::weight), weight(node, Role::bias),
                   y);
  }
  void forward(const Node& node, const BatchNorm& op, Images& y) {
    const Images& x = output(node.inputs[0]);
    std::vector<plain::Moments> moments;
    std::vector<double>&mean = running(node, Role::running_mean),
    &variance = running(node, Role::running_variance);
    if (run_.phase == Phase::evaluate) {
      for (std::size_t c = 0; c < mean.size(); ++c) moments.push_back({mean[c], variance[c]});
    } else {
      moments = plain::moments_of(x);
    }
    if (run_.phase == Phase::train) plain::update_running(op, x, moments, mean, variance);
    plain::forward(op, x, moments, weight(node, Role::scale), weight(node, Role::shift), y);
  }
  void forward(const Node& node, const Dropout& op, Images& y) {
    const Images& x = output(node.inputs[0]);
    if (run_.phase == Phase::train) {
      plain::forward(op, mask(node, op), x, y);
    } else {
      y.values = x.values;
    }
  }
  void forward(const Node& node, const Add&, Images& y) {
    for (const NodeId input : node.inputs) plain::add_channels(output(input), 0, y, 0);
  }
  void forward(const Node& node, const Concat&, Images& y) {
    std::int32_t first = 0;
    for (const NodeId input : node.inputs) {
      plain::add_channels(output(input), 0, y, first);
      first += output(input).shape.channels;
    }
  }
  void forward(const Node& node, const PadChannels& op, Images& y) {
    plain::add_channels(output(node.inputs[0]), 0, y, op.before);
  }

  /// Computes loss and accuracies. Returns the gradient of the logits.
  std::vector<double> softmax_cross_entropy() {
    const Images& logits = outputs_.back();
    const std::size_t classes = logits.shape.elements();
    std::vector<double> gradient(logits.values.size());
    for (std::int32_t n = 0; n < batch_.valid; ++n) {
      const std::span<const double> row(logits.channel(n, 0), classes);
      const auto label = static_cast<std::size_t>(batch_.labels[static_cast<std::size_t>(n)]);
      PENSTOCK_ASSERT(label < classes);
      const double largest = *std::max_element(row.begin(), row.end());
      double sum = 0;
      for (const double logit : row) sum += std::exp(logit - largest);
      result_.loss += (std::log(sum) + largest - row[label]) / batch_.valid;
      const auto greater =
          std::count_if(row.begin(), row.end(), [&](double logit) { return logit > row[label]; });
      result_.top1 += greater < 1 ? 1 : 0;
      result_.top5 += greater < 5 ? 1 : 0;
      for (std::size_t c = 0; c < classes; ++c) {
        const double share = std::exp(row[c] - largest) / sum;
        gradient[static_cast<std::size_t>(n) * classes + c] =
            (share - (c == label ? 1 : 0)) / batch_.valid;
      }
    }
    return gradient;
  }

  void backward(const std::vector<double>& dlogits) {
    for (const std::vector<double>& tensor : weights_)
      result_.gradients.emplace_back(tensor.size());
    for (const Node& node : graph_.nodes()) gradients_.emplace_back(batch_.valid, node.shape);
    gradients_.back().values = dlogits;
    for (std::size_t index = graph_.nodes().size(); index-- > 0;) {
      const Node& node = graph_.nodes()[index];
      Images& dy = gradients_[index];
      round(dy.values);
      std::visit([&](const auto& op) { backward(node, op, dy); }, node.op);
    }
  }
  /// Null for the images, whose gradient is not needed.
  Images* below(const Node& node, std::size_t input = 0) {
    const NodeId id = node.inputs[input];
    return id == Graph::kInput ? nullptr : &gradients_[static_cast<std::size_t>(id)];
  }
  template <typename Op>
  void backward(const Node& node, const Op& op, const Images& dy) {
    plain::backward(op, output(node.inputs[0]), dy, below(node));
  }
  void backward(const Node& node, const Conv2d& op, const Images& dy) {
    plain::backward(op, output(node.inputs[0]), weight(node, Role::weight), dy, below(node),
                    gradient(node, Role::weight), gradient(node, Role::bias));
  }
  void backward(const Node& node, const Linear& op, const Images& dy) {
    plain::backward(op, output(node.inputs[0]), weight(node, Role::weight), dy, below(node),
                    gradient(node, Role::weight), gradient(node, Role::bias));
  }
  void backward(const Node& node, const BatchNorm& op, const Images& dy) {
    const Images& x = output(node.inputs[0]);
    plain::backward(op, x, plain::moments_of(x), weight(node, Role::scale), dy, below(node),
                    gradient(node, Role::scale), gradient(node, Role::shift));
  }
  void backward(const Node& node, const Dropout& op, const Images& dy) {
    plain::backward(op, mask(node, op), dy, below(node));
  }
  void backward(const Node& node, const Add&, const Images& dy) {
    for (std::size_t input = 0; input < node.inputs.size(); ++input) {
      if (Images* const dx = below(node, input)) plain::add_channels(dy, 0, *dx, 0);
    }
  }
  void backward(const Node& node, const Concat&, const Images& dy) {
    std::int32_t first = 0;
    for (std::size_t input = 0; input < node.inputs.size(); ++input) {
      if (Images* const dx = below(node, input)) plain::add_channels(dy, first, *dx, 0);
      first += output(node.inputs[input]).shape.channels;
    }
  }
  void backward(const Node& node, const PadChannels& op, const Images& dy) {
    if (Images* const dx = below(node)) plain::add_channels(dy, op.before, *dx, 0);
  }

  const Graph& graph_;
  const PlainBatch& batch_;
  const PlainRun& run_;
  PlainTensors weights_;
  std::map<std::string, std::size_t, std::less<>> index_of_, buffer_of_;
  Images input_;
  std::vector<Images> outputs_, gradients_;  // by node
  PlainStep result_;
};

}  // namespace

PlainWeights plain_initial_weights(const Graph& graph, std::uint64_t seed) {
  PlainWeights weights;
  const auto fill = [&](const ParameterSpec& spec) {
    std::vector<float> values(static_cast<std::size_t>(spec.count()));
    initial_values(spec, keeps_variance(graph, spec.node), seed, values);
    return std::vector<double>(values.begin(), values.end());
  };
  for (const ParameterSpec& spec : graph.parameters()) weights.parameters.push_back(fill(spec));
  for (const ParameterSpec& spec : graph.buffers()) weights.buffers.push_back(fill(spec));
  return weights;
}

PlainStep run_plain(const Graph& graph, const PlainWeights& weights, const PlainBatch& batch,
                    const PlainRun& run) {
  PENSTOCK_ASSERT(batch.valid > 0 && !graph.nodes().empty());
  return Step(graph, weights, batch, run).compute();
}

}  // namespace penstock
