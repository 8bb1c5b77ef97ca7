// SPDX-License-Identifier: Apache-2.0
// RMSProp with momentum (Tieleman and Hinton, "Lecture 6.5", 2012, in TensorFlow's form):
//   s = decay * s + (1 - decay) * g^2,  v = m * v + lr * g / sqrt(s + epsilon),  w -= v.
// In TensorFlow s starts at 1. Here the stored state starts at 0, and step t adds what remains of
// that 1, decay^t.
#include <cmath>
#include <utility>

#include "dataflow/error.h"
#include "trainer/effective_gradient.h"
#include "trainer/optimizer.h"

namespace penstock {
namespace {

constexpr OptionSpec kOptions[] = {
    {"decay", "0.9", "share of the mean square that is kept"},
    {"momentum", "0.9", "momentum: share of the velocity that is kept"},
    {"epsilon", "1.0", "term added to the mean square"},
};

struct Rule {
  float decay, momentum, epsilon;

  void operator()(const Hyper& hyper, const UpdateRange& range) const {
    const auto start = static_cast<float>(std::pow(double{decay}, hyper.step + 1));
    float* const square = range.state[0].data();
    float* const velocity = range.state[1].data();
    for (std::size_t i = 0; i < range.weight.size(); ++i) {
      const float gradient = effective_gradient(hyper, range, i);
      square[i] = decay * square[i] + (1 - decay) * gradient * gradient;
      velocity[i] = momentum * velocity[i] +
                    hyper.learning_rate * gradient / std::sqrt(square[i] + start + epsilon);
      range.weight[i] -= velocity[i];
    }
  }
};

OptimizerEntry::Rule make(const Options& options) {
  const Rule rule{static_cast<float>(options.real("decay")),
                  static_cast<float>(options.real("momentum")),
                  static_cast<float>(options.real("epsilon"))};
  for (const auto& [name, value] : {std::pair("decay", rule.decay), {"momentum", rule.momentum}}) {
    if (!(value >= 0 && value < 1)) {
      throw ConfigError("rmsprop:{} is {}; expected a share in [0, 1)", name, options.text(name));
    }
  }
  if (!(rule.epsilon >= 0)) {
    throw ConfigError("rmsprop:epsilon is {}; expected a number of at least 0",
                      options.text("epsilon"));
  }
  return rule;
}

}  // namespace

extern constinit const OptimizerEntry rmsprop_optimizer{
    .name = "rmsprop",
    .summary = "s = d s + (1 - d) g^2; v = m v + lr g / sqrt(s + epsilon); w -= v",
    .options = kOptions,
    .slots = 2,
    .device_rule = DeviceRule::rmsprop,
    .make = make,
};

}  // namespace penstock
