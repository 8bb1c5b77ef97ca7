// SPDX-License-Identifier: Apache-2.0
// Tests that training with the overlapping exchange is bit-identical to training without it. Runs
// real steps of every backend that computes on the host; their backward pass continues while
// earlier gradients are summed.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <vector>

#include "tests/support/entry_names.h"
#include "tests/support/executable_fixture.h"
#include "tests/support/rank_threads.h"
#include "tests/support/small_graphs.h"
#include "trainer/exchange.h"
#include "trainer/update_strategy.h"

namespace penstock {
namespace {

constexpr int kSteps = 3;
constexpr std::int32_t kImages = 2;

/// Batch norms that are added to a branch, so that later operations of the backward pass could read
/// their gradients.
SmallGraph residual() {
  Graph graph({8, 8, 3});
  NodeId node = graph.add("conv1", Conv2d{16, {3, 3, 1, 1, 1, 1, 1}}, {Graph::kInput});
  node = graph.add("bn1", BatchNorm{}, {node});
  const NodeId branch = graph.add("relu1", Relu{}, {node});
  node = graph.add("conv2", Conv2d{16, {3, 3, 1, 1, 1, 1, 1}, 1, true}, {branch});
  node = graph.add("bn2", BatchNorm{}, {node});
  node = graph.add("sum", Add{}, {node, branch});
  node = graph.add("relu2", Relu{}, {node});
  node = graph.add("conv3", Conv2d{17, {1, 1, 2, 0, 0, 0, 0}}, {node});
  node = graph.add("bn3", BatchNorm{}, {node});
  node = graph.add("hidden", Linear{24}, {node});
  node = graph.add("relu3", Relu{}, {node});
  graph.add("logits", Linear{7}, {node});
  return {"residual", kImages, std::move(graph)};
}

std::vector<BackendSubject> backends_on_the_host() {
  std::vector<BackendSubject> subjects = backends_with_weights();
  std::erase_if(subjects, [](const auto& subject) { return !subject.entry->computes_on_host; });
  return subjects;
}

/// Ranks of one backend, compiled once and trained repeatedly.
class Overlap : public ::testing::TestWithParam<BackendSubject> {
 protected:
  void compile(std::int32_t ranks) {
    const BackendEntry& entry = *GetParam().entry;
    const std::shared_ptr<Backend> backend =
        entry.make(Options(entry.name, entry.options, {}), clock_);
    spec_ = spec_for(small_.graph, kImages);
    spec_.local_ranks = ranks;
    graphs_.clear();
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      graphs_.push_back(std::make_unique<CompiledGraph>(backend, rank, small_.graph, spec_));
    }
  }

  /// Each rank's weights after some steps. Without limits, there is one exchange after the backward
  /// pass.
  std::vector<PlainTensors> train(const BucketLimits* limits) {
    std::vector<Device*> devices;
    for (const auto& graph : graphs_) devices.push_back(&graph->device());
    const auto group = graphs_.front()->backend().make_group(devices, {}, clock_, {});
    std::vector<PlainTensors> weights(graphs_.size());
    run_ranks(static_cast<std::int32_t>(graphs_.size()), [&](std::int32_t rank) {
      CompiledGraph& graph = *graphs_[static_cast<std::size_t>(rank)];
      graph.set_weights(uneven_weights(small_.graph, 1 + static_cast<std::uint64_t>(rank)));
      train(*group->join(rank), graph, limits);
      weights[static_cast<std::size_t>(rank)] = graph.weights();
    });
    return weights;
  }

 private:
  void train(Collective& collective, CompiledGraph& graph, const BucketLimits* limits) {
    const auto [rank, ranks] = collective.world();
    const UpdateEntry& replicated = find_entry(update_table(), "replicated");
    const Options no_options(replicated.name, replicated.options, {});
    const OptimizerEntry& momentum = find_entry(optimizer_table(), "momentum");
    const Options momentum_options(momentum.name, momentum.options, {});
    const auto optimizer =
        graph.backend().make_optimizer({momentum, momentum_options}, spec_, graph.device());
    const ParameterSet& set = graph.executable().parameters();
    optimizer->prepare(set);
    std::unique_ptr<GradientExchange> exchange;
    if (limits != nullptr) {
      exchange = std::make_unique<ThreadExchange>(collective, set, graph.device(), clock_, *limits);
    }
    const auto update = replicated.make({.collective = collective,
                                         .optimizer = *optimizer,
                                         .local_ranks = ranks,
                                         .options = no_options,
                                         .exchange = exchange.get()});
    update->start(graph.executable(), graph.stream());
    for (int step = 0; step < kSteps; ++step) {
      const std::uint64_t seed = static_cast<std::uint64_t>(step * ranks + rank + 1);
      optimizer->set({.learning_rate = 0.03125F, .weight_decay = 0.01F, .step = step},
                     graph.stream());
      graph.run(Phase::train,
                random_batch(small_.graph.input_shape(), kImages, small_.classes(), seed), 0,
                update->gradient_ready(graph.stream()));
      update->finish_step(graph.executable(), graph.stream(), graph.result());
      graph.wait();
    }
    if (exchange) {
      EXPECT_EQ(exchange->times().steps, kSteps);
    }
  }

  SteadyClock clock_;
  const SmallGraph small_ = residual();
  ExecutableSpec spec_;
  std::vector<std::unique_ptr<CompiledGraph>> graphs_;
};

TEST_P(Overlap, WeightsAreBitIdenticalToARunWithoutIt) {
  for (const std::int32_t ranks : {2, 3, 4}) {
    compile(ranks);
    const std::vector<PlainTensors> expected = train(nullptr);
    for (const PlainTensors& rank : expected) EXPECT_EQ(rank, expected.front());
    for (const BucketLimits limits :
         {BucketLimits{}, BucketLimits{.first_bytes = 1, .bytes = 1},
          BucketLimits{.first_bytes = 256, .bytes = 4096}, BucketLimits{.bytes = 0}}) {
      EXPECT_EQ(train(&limits), expected) << ranks << " ranks, buckets of " << limits.first_bytes
                                          << " and " << limits.bytes << " bytes";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Overlap, ::testing::ValuesIn(backends_on_the_host()),
                         [](const auto& test) { return test_name(test.param.name); });

}  // namespace
}  // namespace penstock
