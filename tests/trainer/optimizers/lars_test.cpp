// SPDX-License-Identifier: Apache-2.0
// Tests layer-wise scaling against its definition in double precision: a weight longer than one
// thread's part, a bias and a scale.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "dataflow/host_device.h"
#include "trainer/optimizer.h"
#include "trainer/optimizers/trust_ratio.h"

namespace penstock {
namespace {

constexpr int kSteps = 4;
constexpr double kScale = 0.25;

struct Shape {
  Role role;
  std::size_t count;
};
constexpr Shape kShapes[] = {
    {Role::weight, 70'001}, {Role::weight, 3}, {Role::bias, 5}, {Role::scale, 4}};

/// The constants, as the options set them.
struct Definition {
  double eta = 0.001, epsilon = 0, momentum = 0.9;
  bool skip = true;
};

class Tensors {
 public:
  Tensors() {
    std::size_t count = 0;
    for (const Shape& shape : kShapes) count += shape.count;
    weights_.resize(count);
    gradients_.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      weights_[i] = static_cast<float>(0.5 * std::cos(0.7 * static_cast<double>(i)));
    }
    set_.weights = {weights_.data(), count};
    set_.gradients = {gradients_.data(), count};
    std::size_t first = 0;
    for (const Shape& shape : kShapes) {
      set_.parameters.push_back({{"p", 0, shape.role, {static_cast<std::int64_t>(shape.count)}},
                                 {weights_.data() + first, shape.count},
                                 {gradients_.data() + first, shape.count}});
      first += shape.count;
    }
  }
  void fill(int step) {
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      gradients_[i] = static_cast<float>(4 * std::sin(1.3 * step + 0.9 * static_cast<double>(i)));
    }
  }
  const ParameterSet& set() const { return set_; }
  const std::vector<float>& weights() const { return weights_; }
  const std::vector<float>& gradients() const { return gradients_; }

 private:
  std::vector<float> weights_, gradients_;
  ParameterSet set_;
};

double norm(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

/// One step of one tensor by the definition. Returns the sum of squares of decaying weights.
double step_by_hand(const Definition& definition, const Hyper& hyper, Role role,
                    std::span<const float> raw, std::span<double> weight,
                    std::span<double> velocity) {
  std::vector<double> gradient;
  for (const float g : raw) {
    const double clip = hyper.gradient_clip > 0 ? double{hyper.gradient_clip} : INFINITY;
    gradient.push_back(std::clamp(kScale * double{g}, -clip, clip));
  }
  const bool taken = role == Role::weight || !definition.skip;
  const bool decays = taken && (role == Role::weight || role == Role::bias);
  const double decay = decays ? double{hyper.weight_decay} : 0;
  const double w = norm({weight.begin(), weight.end()}), g = norm(gradient);
  double ratio = 1;
  if (taken && w > 0 && g > 0) ratio = definition.eta * w / (g + decay * w + definition.epsilon);
  for (std::size_t i = 0; i < weight.size(); ++i) {
    velocity[i] = definition.momentum * velocity[i] +
                  double{hyper.learning_rate} * ratio * (gradient[i] + decay * weight[i]);
    weight[i] -= velocity[i];
  }
  return decays ? w * w : 0;
}

/// Runs four threads, as a device of several cores does.
void four_at_once(std::size_t count, const std::function<void(std::size_t)>& body) {
  std::vector<std::jthread> threads;
  for (std::size_t first = 0; first < 4; ++first) {
    threads.emplace_back([&, first] {
      for (std::size_t i = first; i < count; i += 4) body(i);
    });
  }
}

void expect_equal(const std::string& text, const Definition& definition, float clip) {
  SCOPED_TRACE(text + ", clip " + std::to_string(clip));
  const ComponentText parts = parse_component(text);
  const OptimizerEntry& entry = find_entry(optimizer_table(), parts.name);
  const Options options(entry.name, entry.options, parts);
  SteadyClock clock;
  HostDevice device(clock);
  const std::unique_ptr<Stream> stream = device.make_stream();
  const std::unique_ptr<Optimizer> optimizer = make_host_optimizer({entry, options}, four_at_once);
  EXPECT_TRUE(optimizer->layer_wise());
  Tensors tensors;
  std::vector<double> weights(tensors.weights().begin(), tensors.weights().end());
  std::vector<double> velocities(weights.size());
  for (int step = 0; step < kSteps; ++step) {
    const Hyper hyper{.learning_rate = 8.F / static_cast<float>(step + 1),
                      .weight_decay = 0.1F,
                      .gradient_clip = clip,
                      .step = step};
    tensors.fill(step);
    StepResult result;
    optimizer->set(hyper, *stream);
    optimizer->apply(tensors.set(), static_cast<float>(kScale), *stream, result);
    double squares = 0;
    std::size_t first = 0;
    for (const Shape& shape : kShapes) {
      const auto part = [&](auto& all) { return std::span(all).subspan(first, shape.count); };
      squares += step_by_hand(definition, hyper, shape.role, part(tensors.gradients()),
                              part(weights), part(velocities));
      first += shape.count;
    }
    EXPECT_NEAR(result.l2_loss, 0.05 * squares, 1e-5 * squares);
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double expected = weights[i];
    ASSERT_NEAR(tensors.weights()[i], expected, 2e-6 * (1 + std::abs(expected))) << i;
  }
}

TEST(Lars, ScalesEachTensorByItsNorms) {
  for (const float clip : {0.F, 0.75F}) {
    expect_equal("lars", {}, clip);
    expect_equal("lars:eta=0.02,epsilon=0.5,momentum=0.5",
                 {.eta = 0.02, .epsilon = 0.5, .momentum = 0.5}, clip);
    expect_equal("lars:skip=false", {.skip = false}, clip);
  }
}

TEST(Lars, TensorsWithoutANormTakePlainSteps) {
  EXPECT_EQ(trust_ratio(0.001, 0, 0.1, 0, 5), 1);
  EXPECT_EQ(trust_ratio(0.001, 0, 0.1, 5, 0), 1);
  EXPECT_FLOAT_EQ(trust_ratio(0.5, 1, 0.25, 4, 2), 0.5);
}

}  // namespace
}  // namespace penstock
