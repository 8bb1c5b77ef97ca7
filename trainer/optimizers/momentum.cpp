// SPDX-License-Identifier: Apache-2.0
// Gradient descent with momentum: v = m * v + g, then w -= lr * v.
// With Nesterov's correction: w -= lr * (g + m * v) (Sutskever et al., "On the importance of
// initialization and momentum in deep learning", 2013, in the form of TensorFlow and PyTorch).
#include "dataflow/error.h"
#include "trainer/effective_gradient.h"
#include "trainer/optimizer.h"

namespace penstock {
namespace {

constexpr OptionSpec kOptions[] = {
    {"momentum", "0.9", "momentum: share of the velocity that is kept"},
    {"nesterov", "true", "Nesterov momentum, as in tf_cnn_benchmarks"},
};

template <bool Nesterov>
void update(float momentum, const Hyper& hyper, const UpdateRange& range) {
  float* const velocity = range.state[0].data();
  for (std::size_t i = 0; i < range.weight.size(); ++i) {
    const float gradient = effective_gradient(hyper, range, i);
    velocity[i] = momentum * velocity[i] + gradient;
    range.weight[i] -=
        hyper.learning_rate * (Nesterov ? gradient + momentum * velocity[i] : velocity[i]);
  }
}

OptimizerEntry::Rule make(const Options& options) {
  const auto momentum = static_cast<float>(options.real("momentum"));
  if (!(momentum >= 0 && momentum < 1)) {
    throw ConfigError("momentum:momentum is {}; expected a share in [0, 1)",
                      options.text("momentum"));
  }
  const auto rule = options.flag("nesterov") ? &update<true> : &update<false>;
  return [rule, momentum](const Hyper& hyper, const UpdateRange& range) {
    rule(momentum, hyper, range);
  };
}

}  // namespace

extern constinit const OptimizerEntry momentum_optimizer{
    .name = "momentum",
    .summary = "v = m v + g; w -= lr (g + m v), without nesterov w -= lr v",
    .options = kOptions,
    .slots = 1,
    .device_rule = DeviceRule::momentum,
    .make = make,
};

}  // namespace penstock
