// SPDX-License-Identifier: Apache-2.0
// The smallest model, with which tf_cnn_benchmarks tests its update modes: images of one pixel x,
// loss x A B, A = 1 and B = 2 at first, plain gradient descent.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "dataflow/host_device.h"
#include "trainer/update_strategy.h"

namespace penstock {

/// Its derivatives are those of the mean over the batch.
class ProductModel final : public Executable {
 public:
  static constexpr float kA = 1, kB = 2;

  ProductModel(float a, float b) : weights_{b, a} {
    set_.weights = {weights_.data(), weights_.size()};
    set_.gradients = {gradients_.data(), gradients_.size()};
    const auto add = [&](const char* name, std::size_t index) {
      set_.parameters.push_back(
          {{name, 0, Role::weight, {1}}, {&weights_[index], 1}, {&gradients_[index], 1}});
    };
    add("b", 0);
    add("a", 1);
  }
  const ParameterSet& parameters() const noexcept override { return set_; }
  void run(Phase, const Batch& batch, Stream&, const GradientReady&, StepResult& result) override {
    float x = 0;
    for (const std::byte pixel : batch.pixels) x += static_cast<float>(pixel);
    x /= static_cast<float>(batch.valid);
    const auto [b, a] = weights_;
    gradients_ = {x * a, x * b};
    result = {.loss = x * a * b, .images = batch.valid};
  }
  void read(const ParameterSpec&, const Tensor&, std::span<float>) override {}
  void write(const ParameterSpec&, const Tensor&, std::span<const float>) override {}
  void set_step(std::int64_t) override {}

 private:
  std::array<float, 2> weights_, gradients_{};
  ParameterSet set_;
};

using ProductLosses = std::vector<double>;

/// The losses of steps with x = 1 on all ranks, whose gradients count `multiplier` times.
inline ProductLosses product_losses(double multiplier, double rate, int steps) {
  double a = ProductModel::kA, b = ProductModel::kB;
  ProductLosses losses;
  for (int step = 0; step < steps; ++step) {
    losses.push_back(a * b);
    const double da = multiplier * b, db = multiplier * a;
    a -= rate * da;
    b -= rate * db;
  }
  return losses;
}

/// The losses of one rank that trains with an update. All ranks of the group must call this at
/// once.
inline ProductLosses train_product(CollectiveGroup& group, Device& device, std::int32_t rank,
                                   std::int32_t local_ranks, std::string_view update,
                                   GradientReduction reduction, float rate, int steps) {
  const ComponentText text = parse_component(update);
  const UpdateEntry& entry = find_entry(update_table(), text.name);
  const Options options(entry.name, entry.options, text), none("sgd", {}, {});
  const std::unique_ptr<Collective> collective = group.join(rank);
  const auto optimizer =
      make_host_optimizer({find_entry(optimizer_table(), "sgd"), none}, serial_for);
  const auto strategy = entry.make({.collective = *collective,
                                    .optimizer = *optimizer,
                                    .reduction = reduction,
                                    .local_ranks = local_ranks,
                                    .options = options,
                                    .device = &device});
  const std::unique_ptr<Stream> stream = device.make_stream();
  // Ranks begin with different weights; rank 0's weights must replace the others'.
  ProductModel model(ProductModel::kA + 10 * static_cast<float>(rank), ProductModel::kB);
  std::array pixel{std::byte{1}};
  const Batch batch{.pixels = pixel, .labels = {}, .valid = 1};
  optimizer->set({.learning_rate = rate}, *stream);
  optimizer->prepare(model.parameters());
  strategy->start(model, *stream);
  ProductLosses losses;
  for (int step = 0; step < steps; ++step) {
    StepResult result;
    model.run(Phase::train, batch, *stream, {}, result);
    losses.push_back(result.loss);
    strategy->finish_step(model, *stream, result);
  }
  return losses;
}

}  // namespace penstock
