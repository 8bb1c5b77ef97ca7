// SPDX-License-Identifier: Apache-2.0
// Tests replicas that exchange by each algorithm and in each wire format against one replica with
// the mean gradient, in double.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/entry_names.h"
#include "tests/support/update_ranks.h"
#include "trainer/collectives/link_collective.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

constexpr std::int32_t kSteps = 8;
constexpr double kRate = 0.125;

/// The weights of a single replica of the global batch, and the sum of the lengths of its steps.
/// The length counts the size of every rank's gradient.
struct Reference {
  double weight, lengths;
};
Reference reference(std::int32_t ranks, std::size_t element) {
  Reference result{quadratic_start(0, element), 0};
  for (std::int32_t step = 0; step < kSteps; ++step) {
    double mean = 0, size = 0;
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      const double gradient = quadratic_gradient(result.weight, rank, step, element);
      mean += gradient / ranks;
      size += std::abs(gradient) / ranks;
    }
    result.weight -= kRate * mean;
    result.lengths += kRate * size;
  }
  return result;
}

class ReplicasBySpec
    : public testing::TestWithParam<std::tuple<const collectives::AllReduceEntry*, WireFormat>> {};

TEST_P(ReplicasBySpec, AreOneReplicaOfTheGlobalBatch) {
  const auto& [algorithm, wire] = GetParam();
  SteadyClock clock;
  HostDevice device(clock);
  const UpdateEntry& update = find_entry(update_table(), "replicated");
  const OptimizerEntry& sgd = find_entry(optimizer_table(), "sgd");
  const Options options(update.name, update.options, {}), rule(sgd.name, sgd.options, {});
  for (const std::int32_t ranks : {2, 3, 4}) {
    const std::vector<Device*> devices(static_cast<std::size_t>(ranks), &device);
    collectives::LinkGroup group(
        devices, clock, 1min, {},
        {.plan = {{.algorithm = algorithm}}, .local_ranks = 2, .wire = wire});
    std::vector<std::unique_ptr<Quadratic>> models;
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      models.push_back(std::make_unique<Quadratic>(rank));
    }
    run_ranks(ranks, [&](std::int32_t rank) {
      Quadratic& model = *models[static_cast<std::size_t>(rank)];
      const std::unique_ptr<Collective> collective = group.join(rank);
      const std::unique_ptr<Optimizer> optimizer = make_host_optimizer({sgd, rule}, serial_for);
      const std::unique_ptr<Stream> stream = device.make_stream();
      const std::unique_ptr<UpdateStrategy> strategy =
          update.make({.collective = *collective, .optimizer = *optimizer, .options = options});
      optimizer->prepare(model.parameters());
      strategy->start(model, *stream);
      for (std::int32_t step = 0; step < kSteps; ++step) {
        StepResult result;
        optimizer->set({.learning_rate = static_cast<float>(kRate), .step = step}, *stream);
        model.run(Phase::train, {}, *stream, {}, result);
        strategy->finish_step(model, *stream, result);
      }
    });
    // Each step's gradients have the rounding errors of the wire and of f32. The quadratic reduces
    // earlier errors.
    const double off = std::pow(1 + unit_roundoff(wire), ranks + 1) - 1 + 0x1p-20;
    for (std::size_t i = 0; i < kQuadraticElements; ++i) {
      const Reference single = reference(ranks, i);
      EXPECT_NEAR(models[0]->weights()[i], single.weight, off * (single.lengths + 1))
          << ranks << " ranks, element " << i;
    }
    for (const std::unique_ptr<Quadratic>& other : models) {
      EXPECT_EQ(std::memcmp(other->weights().data(), models[0]->weights().data(),
                            kQuadraticElements * sizeof(float)),
                0)
          << ranks << " ranks";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Algorithms, ReplicasBySpec,
    testing::Combine(testing::ValuesIn(collectives::all_reduce_table().entries),
                     testing::Values(WireFormat::f32, WireFormat::f16, WireFormat::bf16)),
    [](const testing::TestParamInfo<ReplicasBySpec::ParamType>& parameter) {
      std::string name = test_name(std::get<0>(parameter.param)->name);
      return name.append("_").append(to_string(std::get<1>(parameter.param)));
    });

}  // namespace
}  // namespace penstock
