// SPDX-License-Identifier: Apache-2.0
// Tests that several replicas together equal one replica of the global batch: on every backend that
// has weights, through its own exchange, for models that do not mix images (no batch norm), and
// under every update that keeps ranks identical.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/support/entry_names.h"
#include "tests/support/executable_fixture.h"
#include "tests/support/rank_threads.h"
#include "tests/support/small_graphs.h"
#include "tests/support/tolerance.h"
#include "trainer/collective.h"
#include "trainer/model.h"
#include "trainer/update_strategy.h"
#include "trainer/updates/arena_copy.h"

namespace penstock {
namespace {

constexpr std::size_t kSteps = 3;
constexpr std::int32_t kImages = 2;  // images per rank
constexpr float kRate = 0.03125F, kDecay = 0.01F;

SmallGraph with_pools_and_lrn() {
  Graph graph({9, 7, 3});
  NodeId node = graph.add("conv1", Conv2d{17, {3, 3, 1, 1, 1, 1, 1}, 1, true}, {Graph::kInput});
  node = graph.add("relu1", Relu{}, {node});
  node = graph.add("lrn", Lrn{5, 0.25F, 0.75F, 1}, {node});
  node = graph.add("max", MaxPool{{3, 3, 2, 1, 1, 1, 1}}, {node});
  node = graph.add("conv2", Conv2d{8, {3, 3, 1, 0, 0, 0, 0}, 1, true}, {node});
  node = graph.add("mean", AvgPool{{2, 2, 1, 0, 0, 1, 0}, false}, {node});
  node = graph.add("hidden", Linear{16}, {node});
  node = graph.add("relu2", Relu{}, {node});
  graph.add("logits", Linear{7}, {node});
  return {"pools_and_lrn", kImages, std::move(graph)};
}

SmallGraph trivial() {
  const ModelEntry& model = find_entry(model_table(), "trivial");
  Graph graph(model.image);
  model.build(graph, 10);
  return {"trivial", kImages, std::move(graph)};
}

PlainBatch images_of_rank(const PlainBatch& global, const ImageShape& shape, std::int32_t rank) {
  const std::ptrdiff_t first = std::ptrdiff_t{rank} * kImages;
  const auto pixels = static_cast<std::ptrdiff_t>(shape.elements());
  return {
      {global.pixels.begin() + first * pixels, global.pixels.begin() + (first + kImages) * pixels},
      {global.labels.begin() + first, global.labels.begin() + first + kImages},
      kImages};
}

/// A compiled graph with momentum.
struct Trainee {
  CompiledGraph compiled;
  std::unique_ptr<Optimizer> optimizer;

  Trainee(std::shared_ptr<Backend> backend, std::int32_t rank, const SmallGraph& small,
          const ExecutableSpec& spec)
      : compiled(std::move(backend), rank, small.graph, spec) {
    const OptimizerEntry& momentum = find_entry(optimizer_table(), "momentum");
    const Options options(momentum.name, momentum.options, {});
    optimizer = compiled.backend().make_optimizer({momentum, options}, spec, compiled.device());
    optimizer->prepare(compiled.executable().parameters());
  }
};

class Replicas : public ::testing::TestWithParam<BackendSubject> {
 protected:
  std::shared_ptr<Backend> make_backend() {
    const BackendEntry& entry = *GetParam().entry;
    return entry.make(Options(entry.name, entry.options, {}), clock_);
  }

  static std::vector<PlainBatch> global_batches(const SmallGraph& small, std::int32_t ranks) {
    std::vector<PlainBatch> batches;
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      batches.push_back(
          random_batch(small.graph.input_shape(), ranks * kImages, small.classes(), step + 1));
    }
    return batches;
  }

  /// The weights after training alone on the given batches.
  PlainTensors alone(const SmallGraph& small, const std::vector<PlainBatch>& batches) {
    const auto images = static_cast<std::int32_t>(batches.front().labels.size());
    Trainee trainee(make_backend(), 0, small, spec_for(small.graph, images));
    CompiledGraph& compiled = trainee.compiled;
    compiled.set_weights(uneven_weights(small.graph, 1));
    for (std::size_t step = 0; step < batches.size(); ++step) {
      compiled.run(Phase::train, batches[step]);
      trainee.optimizer->set(
          {.learning_rate = kRate, .weight_decay = kDecay, .step = static_cast<std::int64_t>(step)},
          compiled.stream());
      trainee.optimizer->apply(compiled.executable().parameters(), 1, compiled.stream(),
                               compiled.result());
      compiled.wait();
    }
    return compiled.weights();
  }

  /// The weights of each rank after training together.
  std::vector<PlainTensors> together(const SmallGraph& small, const UpdateEntry& update,
                                     GradientReduction reduction, std::int32_t ranks) {
    const std::shared_ptr<Backend> backend = make_backend();
    std::vector<std::unique_ptr<Trainee>> trainees;
    std::vector<Device*> devices;
    ExecutableSpec spec = spec_for(small.graph, kImages);
    spec.local_ranks = ranks;
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      trainees.push_back(std::make_unique<Trainee>(backend, rank, small, spec));
      devices.push_back(&trainees.back()->compiled.device());
      trainees.back()->compiled.set_weights(uneven_weights(small.graph, 1 + rank));
    }
    const std::unique_ptr<CollectiveGroup> group = backend->make_group(devices, {}, clock_, {});
    std::vector<PlainTensors> weights(trainees.size());
    run_ranks(ranks, [&](std::int32_t rank) {
      Trainee& trainee = *trainees[static_cast<std::size_t>(rank)];
      train(small, update, reduction, *group->join(rank), trainee);
      weights[static_cast<std::size_t>(rank)] = trainee.compiled.weights();
    });
    return weights;
  }

 private:
  SteadyClock clock_;

  static void train(const SmallGraph& small, const UpdateEntry& update, GradientReduction reduction,
                    Collective& collective, Trainee& trainee) {
    const auto [rank, ranks] = collective.world();
    CompiledGraph& compiled = trainee.compiled;
    const Options options(update.name, update.options, {});
    const auto strategy = update.make({.collective = collective,
                                       .optimizer = *trainee.optimizer,
                                       .reduction = reduction,
                                       .local_ranks = ranks,
                                       .options = options});
    // A sum over ranks is that multiple of the global batch's mean. The rate is therefore divided
    // by the multiple; the decay, which is not summed, is multiplied by it.
    const float times = reduction == GradientReduction::sum ? static_cast<float>(ranks) : 1.F;
    strategy->start(compiled.executable(), compiled.stream());
    const std::vector<PlainBatch> batches = global_batches(small, ranks);
    for (std::size_t step = 0; step < batches.size(); ++step) {
      trainee.optimizer->set({.learning_rate = kRate / times,
                              .weight_decay = kDecay * times,
                              .step = static_cast<std::int64_t>(step)},
                             compiled.stream());
      compiled.run(Phase::train, images_of_rank(batches[step], small.graph.input_shape(), rank));
      strategy->finish_step(compiled.executable(), compiled.stream(), compiled.result());
      compiled.wait();
    }
  }
};

TEST_P(Replicas, TogetherAreOneReplicaOfTheGlobalBatch) {
  for (const SmallGraph& small : {with_pools_and_lrn(), trivial()}) {
    const PlainTensors first = uneven_weights(small.graph, 1).parameters;
    const std::vector<ParameterSpec> specs = small.graph.parameters();
    for (const std::int32_t ranks : {2, 3}) {
      const PlainTensors expected = alone(small, global_batches(small, ranks));
      const double tolerance =
          kSteps * tolerance_for(small.graph, ranks * kImages, Precision::f32).forward;
      for (const UpdateEntry* update : update_table().entries) {
        if (update->agreement != Agreement::identical) continue;
        for (const GradientReduction reduction :
             {GradientReduction::sum, GradientReduction::mean, GradientReduction::mean_sum}) {
          SCOPED_TRACE(small.name + ", " + std::to_string(ranks) + " ranks, " +
                       std::string(update->name));
          const auto weights = together(small, *update, reduction, ranks);
          for (std::size_t rank = 1; rank < weights.size(); ++rank) {
            EXPECT_EQ(weights[rank], weights[0]) << "rank " << rank;
          }
          for (std::size_t i = 0; i < specs.size(); ++i) {
            // A weight is rounded again in each step, and has moved by this distance.
            const double moved = distance(expected[i], first[i]);
            EXPECT_GT(moved, 0) << specs[i].name;
            EXPECT_LE(distance(weights[0][i], expected[i]),
                      tolerance * moved + kSteps * 0x1p-24 * norm(expected[i]))
                << specs[i].name;
          }
        }
      }
    }
  }
}

TEST_P(Replicas, IndependentOnesAreSeparateRunsBitForBit) {
  const UpdateEntry& independent = find_entry(update_table(), "independent");
  constexpr std::int32_t kRanks = 3;
  for (const SmallGraph& small : {with_pools_and_lrn(), trivial()}) {
    const auto weights = together(small, independent, GradientReduction::sum, 1);
    const auto many = together(small, independent, GradientReduction::mean, kRanks);
    EXPECT_EQ(weights[0], alone(small, global_batches(small, 1)));
    for (std::int32_t rank = 0; rank < kRanks; ++rank) {
      std::vector<PlainBatch> batches = global_batches(small, kRanks);
      for (PlainBatch& batch : batches) {
        batch = images_of_rank(batch, small.graph.input_shape(), rank);
      }
      EXPECT_EQ(many[static_cast<std::size_t>(rank)], alone(small, batches)) << "rank " << rank;
    }
  }
}

/// Scales and shifts of batch norm do not decay, but are averaged like all other parameters.
TEST_P(Replicas, AveragesAndUpdatesTakeArenasBesideTheirOwn) {
  Graph graph({8, 8, 3});
  NodeId node = graph.add("conv", Conv2d{16, {3, 3, 1, 1, 1, 1, 1}, 1, false}, {Graph::kInput});
  node = graph.add("norm", BatchNorm{}, {node});
  graph.add("logits", Linear{7}, {node});
  const SmallGraph small{"norm", kImages, std::move(graph)};
  Trainee trainee(make_backend(), 0, small, spec_for(small.graph, kImages));
  CompiledGraph& compiled = trainee.compiled;
  compiled.run(Phase::train, random_batch(small.graph.input_shape(), kImages, 7, 1));
  const ParameterSet& set = compiled.executable().parameters();
  const Buffer beside =
      compiled.device().allocate(set.weights.count * sizeof(float), MemoryKind::device);
  const Tensor other{beside.bytes().data(), set.weights.count};
  compiled.set_weights(uneven_weights(small.graph, 1));
  const PlainTensors first = compiled.weights();
  updates::copy(other, set.weights, compiled.stream());
  compiled.wait();
  compiled.set_weights(uneven_weights(small.graph, 2));
  PlainTensors expected = compiled.weights();

  const auto expect = [&](const char* what) {
    const PlainTensors weights = compiled.weights();
    for (std::size_t i = 0; i < weights.size(); ++i) {
      EXPECT_LE(distance(weights[i], expected[i]), 1e-6 * norm(expected[i])) << what << " " << i;
    }
  };
  const auto change = [&](double keep, double add) {
    for (std::size_t i = 0; i < expected.size(); ++i) {
      for (std::size_t k = 0; k < expected[i].size(); ++k) {
        expected[i][k] = keep * expected[i][k] + add * first[i][k];
      }
    }
  };
  trainee.optimizer->average(set, other, 0.5F, 0.25F, compiled.stream());
  compiled.wait();
  change(0.75, 0.125);
  expect("average");

  trainee.optimizer->set({.learning_rate = 0.125F}, compiled.stream());
  trainee.optimizer->apply(updates::in_arenas(set, set.weights, other), 1, compiled.stream(),
                           compiled.result());
  compiled.wait();
  change(1, -0.125 * 1.9);  // Nesterov's first step: 1 + momentum
  expect("update");
}

INSTANTIATE_TEST_SUITE_P(All, Replicas, ::testing::ValuesIn(backends_with_weights()),
                         [](const auto& test) { return test_name(test.param.name); });

}  // namespace
}  // namespace penstock
