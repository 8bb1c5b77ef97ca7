// SPDX-License-Identifier: Apache-2.0
// Adam (Kingma and Ba, "Adam: a method for stochastic optimization", 2015) in TensorFlow's form,
// with the epsilon of the paper's section 2:
//   m = beta1 * m + (1 - beta1) * g,  v = beta2 * v + (1 - beta2) * g^2,
//   w -= lr * sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(v) + epsilon),
// with t = 1 in the first step.
#include <cmath>
#include <utility>

#include "dataflow/error.h"
#include "trainer/effective_gradient.h"
#include "trainer/optimizer.h"

namespace penstock {
namespace {

constexpr OptionSpec kOptions[] = {
    {"beta1", "0.9", "share of the mean gradient that is kept"},
    {"beta2", "0.999", "share of the mean square that is kept"},
    {"epsilon", "1e-8", "term added to the root of the mean square"},
};

struct Rule {
  double beta1, beta2, epsilon;

  void operator()(const Hyper& hyper, const UpdateRange& range) const {
    const auto t = static_cast<double>(hyper.step + 1);
    const auto rate = static_cast<float>(hyper.learning_rate * std::sqrt(1 - std::pow(beta2, t)) /
                                         (1 - std::pow(beta1, t)));
    const auto keep1 = static_cast<float>(beta1), keep2 = static_cast<float>(beta2);
    const auto take1 = static_cast<float>(1 - beta1), take2 = static_cast<float>(1 - beta2);
    const auto small = static_cast<float>(epsilon);
    float* const mean = range.state[0].data();
    float* const square = range.state[1].data();
    for (std::size_t i = 0; i < range.weight.size(); ++i) {
      const float gradient = effective_gradient(hyper, range, i);
      mean[i] = keep1 * mean[i] + take1 * gradient;
      square[i] = keep2 * square[i] + take2 * gradient * gradient;
      range.weight[i] -= rate * mean[i] / (std::sqrt(square[i]) + small);
    }
  }
};

OptimizerEntry::Rule make(const Options& options) {
  const Rule rule{options.real("beta1"), options.real("beta2"), options.real("epsilon")};
  for (const auto& [name, value] : {std::pair("beta1", rule.beta1), {"beta2", rule.beta2}}) {
    if (!(value >= 0 && value < 1)) {
      throw ConfigError("adam:{} is {}; expected a share in [0, 1)", name, options.text(name));
    }
  }
  if (!(rule.epsilon > 0)) {
    throw ConfigError("adam:epsilon is {}; expected a number above 0", options.text("epsilon"));
  }
  return rule;
}

}  // namespace

extern constinit const OptimizerEntry adam_optimizer{
    .name = "adam",
    .summary = "m, v: bias-corrected means of g and g^2; w -= lr m / (sqrt(v) + epsilon)",
    .options = kOptions,
    .slots = 2,
    .device_rule = DeviceRule::adam,
    .make = make,
};

}  // namespace penstock
