// SPDX-License-Identifier: Apache-2.0
// Plain stochastic gradient descent: w -= lr * g.
#include "trainer/effective_gradient.h"
#include "trainer/optimizer.h"

namespace penstock {
namespace {

void update(const Hyper& hyper, const UpdateRange& range) {
  for (std::size_t i = 0; i < range.weight.size(); ++i) {
    range.weight[i] -= hyper.learning_rate * effective_gradient(hyper, range, i);
  }
}

}  // namespace

extern constinit const OptimizerEntry sgd_optimizer{
    .name = "sgd",
    .summary = "w -= lr * g",
    .device_rule = DeviceRule::sgd,
    .make = [](const Options&) -> OptimizerEntry::Rule { return update; },
};

}  // namespace penstock
