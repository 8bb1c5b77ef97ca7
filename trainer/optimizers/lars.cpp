// SPDX-License-Identifier: Apache-2.0
// Layer-wise adaptive rate scaling (You, Gitman and Ginsburg, "Large batch training of
// convolutional networks", arXiv 1708.03888, 2017) in the form of MLPerf's reference for ResNet-50,
// TensorFlow's contrib LARSOptimizer: for each tensor, with its norms |.| and weight decay d,
//   r = eta * |w| / (|g| + d * |w| + epsilon),  v = m * v + lr * r * (g + d * w),  w -= v,
// where r is 1 if |w| or |g| is 0. The rate is inside the velocity, as in the paper, so a change of
// the rate does not change the stored velocity. Biases and the parameters of batch norm take plain
// steps: r = 1 and d = 0. Gradients are clipped before all this, without the decay.
#include "dataflow/error.h"
#include "trainer/effective_gradient.h"
#include "trainer/optimizer.h"
#include "trainer/optimizers/trust_ratio.h"

namespace penstock {
namespace {

constexpr OptionSpec kOptions[] = {
    {"eta", "0.001",
     "trust coefficient: step size as a share of the tensor's norm, at learning rate 1"},
    {"epsilon", "0", "term added to the norms in the denominator"},
    {"momentum", "0.9", "momentum: share of the velocity that is kept"},
    {"skip", "true", "do not scale or decay biases and batch norms"},
};

struct Rule {
  double eta, epsilon;
  float momentum;

  void operator()(const Hyper& hyper, const UpdateRange& range) const {
    const float rate = hyper.learning_rate * trust_ratio(eta, epsilon, double{hyper.weight_decay},
                                                         range.weight_norm, range.gradient_norm);
    Hyper undecayed = hyper;
    undecayed.weight_decay = 0;
    float* const velocity = range.state[0].data();
    for (std::size_t i = 0; i < range.weight.size(); ++i) {
      const float gradient =
          effective_gradient(undecayed, range, i) + hyper.weight_decay * range.weight[i];
      velocity[i] = momentum * velocity[i] + rate * gradient;
      range.weight[i] -= velocity[i];
    }
  }
};

OptimizerEntry::Rule make(const Options& options) {
  const Rule rule{options.real("eta"), options.real("epsilon"),
                  static_cast<float>(options.real("momentum"))};
  if (!(rule.eta > 0)) {
    throw ConfigError("lars:eta is {}; expected a number above 0", options.text("eta"));
  }
  if (!(rule.epsilon >= 0)) {
    throw ConfigError("lars:epsilon is {}; expected a number of at least 0",
                      options.text("epsilon"));
  }
  if (!(rule.momentum >= 0 && rule.momentum < 1)) {
    throw ConfigError("lars:momentum is {}; expected a share in [0, 1)", options.text("momentum"));
  }
  return rule;
}

}  // namespace

extern constinit const OptimizerEntry lars_optimizer{
    .name = "lars",
    .summary = "v = m v + lr r (g + d w); w -= v; with r = eta |w| / (|g| + d |w|) for each tensor",
    .options = kOptions,
    .slots = 1,
    .device_rule = DeviceRule::lars,
    .make = make,
    .tensors = [](const Options& options) -> TensorRules {
      return {.layer_wise = true, .weights_alone = options.flag("skip")};
    },
};

}  // namespace penstock
