// SPDX-License-Identifier: Apache-2.0
// Tests every rule against a loop of its definition in double precision, over several steps.
#include "trainer/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "dataflow/error.h"
#include "dataflow/host_device.h"

namespace penstock {
namespace {

constexpr std::size_t kCount = 5;
constexpr int kSteps = 6;
constexpr Hyper kHyper{.learning_rate = 0.05F, .weight_decay = 0.1F, .gradient_clip = 0.75F};
constexpr double kScale = 0.25;

/// Two parameters of kCount elements: one that decays, one that does not.
class TwoParameters {
 public:
  TwoParameters() : weights_(2 * kCount), gradients_(2 * kCount) {
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      weights_[i] = 0.5F - 0.3F * static_cast<float>(i % kCount);
    }
    set_.weights = {weights_.data(), weights_.size()};
    set_.gradients = {gradients_.data(), gradients_.size()};
    for (const Role role : {Role::weight, Role::scale}) {
      const std::size_t first = role == Role::weight ? 0 : kCount;
      set_.parameters.push_back({{"w", 0, role, {kCount}},
                                 {weights_.data() + first, kCount},
                                 {gradients_.data() + first, kCount}});
    }
  }
  /// Gradients that the clip cuts on both sides, and some that it leaves unchanged.
  static double gradient(int step, std::size_t element) {
    return 6 * std::sin(1.7 * step + 0.9 * static_cast<double>(element));
  }
  void fill(int step) {
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      gradients_[i] = static_cast<float>(gradient(step, i));
    }
  }
  const ParameterSet& set() const { return set_; }
  float weight(std::size_t i) const { return weights_[i]; }

 private:
  std::vector<float> weights_, gradients_;
  ParameterSet set_;
};

/// The gradient that a rule receives, by the definition.
double effective(double gradient, double weight, bool decays) {
  const double decay = decays ? double{kHyper.weight_decay} : 0;
  return std::clamp(kScale * gradient + decay * weight, -double{kHyper.gradient_clip},
                    double{kHyper.gradient_clip});
}

/// An element's weight after kSteps, given w -= rule(step, gradient, state).
template <typename Rule>
double by_hand(std::size_t element, Rule rule) {
  double weight = double{TwoParameters().weight(element)};
  double state[2] = {};
  for (int step = 0; step < kSteps; ++step) {
    const double g = effective(TwoParameters::gradient(step, element), weight, element < kCount);
    weight -= rule(step, g, state);
  }
  return weight;
}

/// An optimizer on a host device.
struct Bench {
  explicit Bench(const std::string& text)
      : parts(parse_component(text)),
        entry(find_entry(optimizer_table(), parts.name)),
        options(entry.name, entry.options, parts) {}
  std::unique_ptr<Optimizer> make(DType type = DType::f32) const {
    return make_host_optimizer({entry, options, type}, serial_for);
  }

  const ComponentText parts;
  const OptimizerEntry& entry;
  const Options options;
  SteadyClock clock;
  HostDevice device{clock};
  const std::unique_ptr<Stream> stream = device.make_stream();
};

template <typename Rule>
void expect_equal(const std::string& text, Rule rule) {
  const Bench bench(text);
  const std::unique_ptr<Optimizer> optimizer = bench.make();
  TwoParameters parameters;
  StepResult result;
  for (int step = 0; step < kSteps; ++step) {
    Hyper hyper = kHyper;
    hyper.step = step;
    parameters.fill(step);
    optimizer->set(hyper, *bench.stream);
    optimizer->apply(parameters.set(), static_cast<float>(kScale), *bench.stream, result);
  }
  for (std::size_t i = 0; i < 2 * kCount; ++i) {
    EXPECT_NEAR(parameters.weight(i), by_hand(i, rule), 2e-6) << text << ", element " << i;
  }
}

constexpr double kRate = double{kHyper.learning_rate};

TEST(Optimizers, SgdSubtractsTheScaledGradient) {
  expect_equal("sgd", [](int, double g, double*) { return kRate * g; });
}

TEST(Optimizers, MomentumKeepsAVelocity) {
  expect_equal("momentum:nesterov=false", [](int, double g, double* state) {
    state[0] = 0.9 * state[0] + g;
    return kRate * state[0];
  });
  expect_equal("momentum:momentum=0.8", [](int, double g, double* state) {
    state[0] = 0.8 * state[0] + g;
    return kRate * (g + 0.8 * state[0]);
  });
}

TEST(Optimizers, RmspropStartsFromAMeanSquareOfOne) {
  const auto rule = [](double decay, double momentum, double epsilon) {
    return [=](int step, double g, double* state) {
      if (step == 0) state[0] = 1;
      state[0] = decay * state[0] + (1 - decay) * g * g;
      state[1] = momentum * state[1] + kRate * g / std::sqrt(state[0] + epsilon);
      return state[1];
    };
  };
  expect_equal("rmsprop", rule(0.9, 0.9, 1.0));
  expect_equal("rmsprop:decay=0.5,momentum=0,epsilon=1e-4", rule(0.5, 0, 1e-4));
}

TEST(Optimizers, AdamCorrectsItsMeansForTheirStart) {
  const auto rule = [](double beta1, double beta2, double epsilon) {
    return [=](int step, double g, double* state) {
      const double t = step + 1;
      state[0] = beta1 * state[0] + (1 - beta1) * g;
      state[1] = beta2 * state[1] + (1 - beta2) * g * g;
      const double rate = kRate * std::sqrt(1 - std::pow(beta2, t)) / (1 - std::pow(beta1, t));
      return rate * state[0] / (std::sqrt(state[1]) + epsilon);
    };
  };
  expect_equal("adam", rule(0.9, 0.999, 1e-8));
  expect_equal("adam:beta1=0.5,beta2=0.9,epsilon=0.1", rule(0.5, 0.9, 0.1));
}

TEST(Optimizers, TheDecaysShareOfTheLossIsThatOfTheWeightsBeforeTheUpdate) {
  const Bench bench("sgd");
  const std::unique_ptr<Optimizer> optimizer = bench.make();
  TwoParameters parameters;
  double squares = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    squares += double{parameters.weight(i)} * double{parameters.weight(i)};
  }
  StepResult result;
  optimizer->set(kHyper, *bench.stream);
  optimizer->apply(parameters.set(), 1, *bench.stream, result);
  EXPECT_NEAR(result.l2_loss, 0.05 * squares, 1e-6);
}

/// Compares with the rule in double. Each step rounds the weight to the nearest number of the
/// format.
TEST(Optimizers, LeaveWhatAShortFormatHoldsOfWeightsButNotOfBatchNorms) {
  const Bench bench("sgd");
  for (const auto& [type, digits] : {std::pair{DType::f16, 11}, {DType::bf16, 8}}) {
    const auto nearest = [digits = digits](double value) {
      const double unit = std::ldexp(1.0, std::ilogb(value) + 1 - digits);
      return unit * std::nearbyint(value / unit);
    };
    const std::unique_ptr<Optimizer> optimizer = bench.make(type);
    TwoParameters parameters;
    optimizer->prepare(parameters.set());
    std::vector<double> expected;
    for (std::size_t i = 0; i < 2 * kCount; ++i) {
      expected.push_back(double{TwoParameters().weight(i)});
      if (i < kCount) expected[i] = nearest(expected[i]);
      EXPECT_EQ(double{parameters.weight(i)}, expected[i]);
    }
    optimizer->set(kHyper, *bench.stream);
    for (int step = 0; step < kSteps; ++step) {
      StepResult result;
      parameters.fill(step);
      optimizer->apply(parameters.set(), static_cast<float>(kScale), *bench.stream, result);
      for (std::size_t i = 0; i < 2 * kCount; ++i) {
        const double before = expected[i];
        expected[i] -=
            kHyper.learning_rate * effective(TwoParameters::gradient(step, i), before, i < kCount);
        if (i < kCount) expected[i] = nearest(expected[i]);
        const double slack = i < kCount ? 0 : 1e-6;
        ASSERT_NEAR(parameters.weight(i), expected[i], slack) << "step " << step << ", " << i;
        if (i >= kCount) expected[i] = double{parameters.weight(i)};
      }
    }
    const std::vector<float> others(2 * kCount, 0.3001F);
    Tensor other{const_cast<float*>(others.data()), others.size()};
    optimizer->average(parameters.set(), other, 1, 0.5F, *bench.stream);
    for (std::size_t i = 0; i < kCount; ++i) {
      EXPECT_EQ(double{parameters.weight(i)}, nearest(double{parameters.weight(i)}))
          << "averages are rounded as well";
    }
  }
}

TEST(Optimizers, RefuseOptionsOutOfRange) {
  for (const char* text : {"momentum:momentum=1", "rmsprop:decay=1", "rmsprop:momentum=-0.1",
                           "rmsprop:epsilon=-1", "adam:beta1=1", "adam:beta2=2", "adam:epsilon=0",
                           "lars:eta=0", "lars:epsilon=-1", "lars:momentum=1"}) {
    const Bench bench(text);
    EXPECT_THROW(bench.entry.make(bench.options), ConfigError) << text;
  }
}

}  // namespace
}  // namespace penstock
