// SPDX-License-Identifier: Apache-2.0
// An optimizer in one file: moves each weight by the learning rate against the sign of its gradient
// (Bernstein et al., "signSGD", 2018).
//   penstock_custom run --device cpu --model tiny_cnn --optimizer sign-sgd
#include "trainer/effective_gradient.h"
#include "trainer/optimizer.h"

namespace penstock {
namespace {

void update(const Hyper& hyper, const UpdateRange& range) {
  for (std::size_t i = 0; i < range.weight.size(); ++i) {
    const float gradient = effective_gradient(hyper, range, i);
    const float sign = static_cast<float>(gradient > 0) - static_cast<float>(gradient < 0);
    range.weight[i] -= hyper.learning_rate * sign;
  }
}

}  // namespace

extern constinit const OptimizerEntry sign_sgd_optimizer{
    .name = "sign-sgd",
    .summary = "w -= lr sign(g)",
    .make = [](const Options&) -> OptimizerEntry::Rule { return update; },
};

}  // namespace penstock
