// SPDX-License-Identifier: Apache-2.0
// What every backend that has weights has to keep: the numbers of the plain executor, for every
// operator, phase and precision, and the promises of trainer/backend.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "dataflow/error.h"
#include "tests/support/entry_names.h"
#include "tests/support/executable_fixture.h"
#include "tests/support/small_graphs.h"
#include "tests/support/tolerance.h"

namespace penstock {
namespace {

constexpr std::uint64_t kWeightSeed = 3, kBatchSeed = 4;

class BackendContract : public ::testing::TestWithParam<BackendSubject> {
 protected:
  const BackendEntry& entry() const { return *GetParam().entry; }
  /// With uneven weights.
  std::unique_ptr<CompiledGraph> compile(const SmallGraph& small, Precision precision) const {
    auto compiled = std::make_unique<CompiledGraph>(entry(), small.graph,
                                                    spec_for(small.graph, small.images, precision));
    compiled->set_weights(uneven_weights(small.graph, kWeightSeed));
    return compiled;
  }
  /// Calls body(small graph, compiled, precision) for all graphs in all precisions that the backend
  /// has them in: fp32 at least.
  template <typename Body>
  void for_each_graph(const Body& body) const {
    for (const Precision precision :
         {Precision::f32, Precision::tf32, Precision::f16, Precision::bf16}) {
      for (const SmallGraph& small : small_graphs()) {
        SCOPED_TRACE(small.name + " in " + std::string(to_string(precision)));
        std::unique_ptr<CompiledGraph> compiled;
        try {
          compiled = compile(small, precision);
        } catch (const Unavailable& error) {
          EXPECT_NE(precision, Precision::f32) << error.what();
          continue;
        }
        body(small, *compiled, precision);
      }
    }
  }
};

SmallGraph graph_named(std::string_view name) {
  for (SmallGraph& small : small_graphs()) {
    if (small.name == name) return std::move(small);
  }
  ADD_FAILURE() << "no small graph " << name;
  return small_graphs().front();
}

PlainBatch batch_for(const SmallGraph& small, std::uint64_t seed = kBatchSeed) {
  return random_batch(small.graph.input_shape(), small.images, small.classes(), seed);
}

/// Images that count for top k when logits may be off by `slack` either way: fewest and most.
std::pair<int, int> bounds_of_top(int k, const PlainStep& step, const PlainBatch& batch,
                                  double slack) {
  std::pair<int, int> bounds;
  const std::size_t classes = step.logits.size() / static_cast<std::size_t>(batch.valid);
  for (std::int32_t n = 0; n < batch.valid; ++n) {
    const auto* const row = step.logits.data() + static_cast<std::size_t>(n) * classes;
    const double own = row[batch.labels[static_cast<std::size_t>(n)]];
    const auto above = [&](double level) {
      return std::count_if(row, row + classes, [&](double logit) { return logit > level; });
    };
    // With a slack, equal logits may count as greater, but the label's own may not.
    bounds.first += above(own - slack) - (slack > 0 ? 1 : 0) < k ? 1 : 0;
    bounds.second += above(own + slack) < k ? 1 : 0;
  }
  return bounds;
}

/// Errors of logits, and so of losses, are relative to the largest logit, or to 1.
double slack_of(const PlainStep& step, double tolerance) {
  double largest = 1;
  for (const double logit : step.logits) largest = std::max(largest, std::abs(logit));
  return tolerance * largest;
}

void expect_same_result(const StepResult& result, const PlainStep& expected,
                        const PlainBatch& batch, double tolerance) {
  const double slack = slack_of(expected, tolerance);
  EXPECT_NEAR(result.loss, expected.loss, slack);
  EXPECT_EQ(result.images, batch.valid);
  EXPECT_TRUE(result.finite);
  const auto [fewest, most] = bounds_of_top(1, expected, batch, 2 * slack);
  EXPECT_LE(fewest, result.top1);
  EXPECT_GE(most, result.top1);
  const auto [fewest5, most5] = bounds_of_top(5, expected, batch, 2 * slack);
  EXPECT_LE(fewest5, result.top5);
  EXPECT_GE(most5, result.top5);
}

void expect_near(const PlainTensors& tensors, const PlainTensors& expected,
                 const std::vector<ParameterSpec>& specs, double tolerance) {
  ASSERT_EQ(tensors.size(), expected.size());
  const std::vector<double> scales = scales_of(expected);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_LE(distance(tensors[i], expected[i]), tolerance * scales[i] + 1e-30) << specs[i].name;
  }
}

TEST_P(BackendContract, TrainingMatchesPlainLoops) {
  for_each_graph([](const SmallGraph& small, CompiledGraph& compiled, Precision precision) {
    const PlainBatch batch = batch_for(small);
    const Tolerance tolerance = tolerance_for(small.graph, small.images, precision);
    compiled.executable().set_step(9);
    const StepResult result = compiled.run(Phase::train, batch);
    const PlainStep expected =
        run_plain(small.graph, uneven_weights(small.graph, kWeightSeed), batch, {.step = 9});
    expect_same_result(result, expected, batch, tolerance.forward);
    expect_near(compiled.gradients(), expected.gradients, small.graph.parameters(),
                tolerance.gradient);
    expect_near(compiled.buffers(), expected.buffers, small.graph.buffers(), tolerance.forward);
  });
}

TEST_P(BackendContract, EvaluationMatchesPlainLoopsAndChangesNothing) {
  for_each_graph([](const SmallGraph& small, CompiledGraph& compiled, Precision precision) {
    const PlainBatch batch = batch_for(small);
    const PlainTensors weights = compiled.weights(), buffers = compiled.buffers();
    const StepResult result = compiled.run(Phase::evaluate, batch);
    const PlainStep expected = run_plain(small.graph, uneven_weights(small.graph, kWeightSeed),
                                         batch, {.phase = Phase::evaluate});
    expect_same_result(result, expected, batch,
                       tolerance_for(small.graph, small.images, precision).forward);
    EXPECT_EQ(compiled.weights(), weights);
    EXPECT_EQ(compiled.buffers(), buffers);
  });
}

/// The loss of one image under every label is its logits, less a constant.
TEST_P(BackendContract, LogitsOfOneImageMatchPlainLoops) {
  for_each_graph([](const SmallGraph& small, CompiledGraph& compiled, Precision precision) {
    PlainBatch batch = batch_for(small);
    batch.valid = 1;
    const double tolerance = tolerance_for(small.graph, small.images, precision).forward;
    for (std::int32_t label = 0; label < small.classes(); ++label) {
      batch.labels[0] = label;
      const PlainStep expected = run_plain(small.graph, uneven_weights(small.graph, kWeightSeed),
                                           batch, {.phase = Phase::evaluate});
      const StepResult result = compiled.run(Phase::evaluate, batch);
      EXPECT_NEAR(result.loss, expected.loss, slack_of(expected, tolerance)) << "label " << label;
    }
  });
}

TEST_P(BackendContract, ForwardOnlyChangesNothing) {
  for_each_graph([](const SmallGraph& small, CompiledGraph& compiled, Precision) {
    const PlainTensors weights = compiled.weights(), buffers = compiled.buffers();
    const StepResult result = compiled.run(Phase::forward_only, batch_for(small));
    EXPECT_EQ(result.images, small.images);
    EXPECT_TRUE(result.finite);
    EXPECT_EQ(compiled.weights(), weights);
    EXPECT_EQ(compiled.buffers(), buffers);
  });
}

TEST_P(BackendContract, TellsOfProgressUntilItIsCompiledAndNotLater) {
  const SmallGraph small = small_graphs().front();
  ExecutableSpec spec = spec_for(small.graph, small.images);
  bool compiled = false;
  spec.progress = [&](std::size_t done, std::size_t total) {
    EXPECT_FALSE(compiled);
    EXPECT_LE(done, total);
  };
  CompiledGraph graph(*GetParam().entry, small.graph, spec);
  compiled = true;
  for (const Phase phase : {Phase::train, Phase::evaluate, Phase::forward_only}) {
    graph.run(phase, batch_for(small));
  }
}

TEST_P(BackendContract, ImagesBeyondTheValidOnesDoNotCount) {
  for_each_graph([](const SmallGraph& small, CompiledGraph& compiled, Precision precision) {
    const PlainBatch full = batch_for(small);
    for (std::int32_t valid = 1; valid < small.images; ++valid) {
      PlainBatch batch = full;
      batch.valid = valid;
      std::fill(batch.labels.begin() + valid, batch.labels.end(), 1'000'000);
      const PlainStep expected = run_plain(small.graph, uneven_weights(small.graph, kWeightSeed),
                                           batch, {.phase = Phase::evaluate});
      const StepResult result = compiled.run(Phase::evaluate, batch);
      expect_same_result(result, expected, batch,
                         tolerance_for(small.graph, small.images, precision).forward);
    }
  });
}

TEST_P(BackendContract, TheGraphsParametersLieInDisjointRangesOfTheArenas) {
  for_each_graph([](const SmallGraph& small, CompiledGraph& compiled, Precision) {
    const ParameterSet& set = compiled.executable().parameters();
    ASSERT_EQ(set.parameters.size(), small.graph.parameters().size());
    ASSERT_EQ(set.weights.count, set.gradients.count);
    const auto place = [](const Tensor& part, const Tensor& arena) {
      return static_cast<const float*>(part.data) - static_cast<const float*>(arena.data);
    };
    std::ptrdiff_t end = 0;
    for (const Parameter& parameter : set.parameters) {
      const std::ptrdiff_t begin = place(parameter.weight, set.weights);
      EXPECT_GE(begin, end) << parameter.spec.name;
      EXPECT_EQ(begin, place(parameter.gradient, set.gradients)) << parameter.spec.name;
      EXPECT_EQ(parameter.weight.count, parameter.gradient.count) << parameter.spec.name;
      EXPECT_GE(parameter.weight.count, static_cast<std::size_t>(parameter.spec.count()));
      end = begin + static_cast<std::ptrdiff_t>(parameter.weight.count);
    }
    EXPECT_LE(end, static_cast<std::ptrdiff_t>(set.weights.count));
    const std::vector<ParameterSpec> buffers = small.graph.buffers();
    ASSERT_EQ(set.buffers.size(), buffers.size());
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      EXPECT_EQ(set.buffers[i].spec.name, buffers[i].name);
      EXPECT_EQ(set.buffers[i].weight.count, static_cast<std::size_t>(buffers[i].count()));
    }
  });
}

TEST_P(BackendContract, EveryLayoutReadsBackWhatWasWrittenAndPadsWithZeros) {
  for_each_graph([](const SmallGraph& small, CompiledGraph& compiled, Precision) {
    const ParameterSet& set = compiled.executable().parameters();
    float next = 1;
    for (const Parameter& parameter : set.parameters) {
      std::vector<float> plain(static_cast<std::size_t>(parameter.spec.count()));
      std::iota(plain.begin(), plain.end(), next);
      next += static_cast<float>(plain.size());
      for (const Tensor& tensor : {parameter.weight, parameter.gradient}) {
        compiled.executable().write(parameter.spec, tensor, plain);
        std::vector<float> back(plain.size());
        compiled.executable().read(parameter.spec, tensor, back);
        EXPECT_EQ(back, plain) << parameter.spec.name;
      }
    }
    for (const Tensor& arena : {set.weights, set.gradients}) {
      const std::vector<float> values = compiled.copy_of(arena);
      const auto zeros = std::count(values.begin(), values.end(), 0.F);
      EXPECT_EQ(static_cast<std::int64_t>(values.size()) - zeros, small.graph.parameter_count());
    }
  });
}

TEST_P(BackendContract, GradientsAreZeroBetweenParameters) {
  for_each_graph([](const SmallGraph& small, CompiledGraph& compiled, Precision) {
    compiled.run(Phase::train, batch_for(small));
    double squares = 0, in_arena = 0;
    for (const std::vector<double>& gradient : compiled.gradients()) {
      squares += std::pow(norm(gradient), 2);
    }
    for (const float value : compiled.copy_of(compiled.executable().parameters().gradients)) {
      in_arena += std::pow(double{value}, 2);
    }
    EXPECT_NEAR(in_arena, squares, 1e-12 * squares);
  });
}

TEST_P(BackendContract, GradientsAreReadyOnceEachInTheOrderOfTheArena) {
  for_each_graph([](const SmallGraph& small, CompiledGraph& compiled, Precision) {
    std::vector<std::size_t> order(small.graph.parameters().size()), ready;
    std::iota(order.begin(), order.end(), std::size_t{0});
    const GradientReady note = [&](std::size_t parameter) { ready.push_back(parameter); };
    compiled.run(Phase::train, batch_for(small), 0, note);
    EXPECT_EQ(ready, order);
    ready.clear();
    compiled.run(Phase::evaluate, batch_for(small), 0, note);
    compiled.run(Phase::forward_only, batch_for(small), 0, note);
    EXPECT_TRUE(ready.empty());
  });
}

TEST_P(BackendContract, OneThreadRepeatsEveryBitInEverySlot) {
  for_each_graph([](const SmallGraph& small, CompiledGraph& compiled, Precision) {
    const PlainBatch batch = batch_for(small), other = batch_for(small, kBatchSeed + 1);
    compiled.executable().set_step(0);
    const StepResult first = compiled.run(Phase::train, batch, 0);
    const PlainTensors gradients = compiled.gradients();
    compiled.run(Phase::train, other, 1);
    compiled.executable().set_step(0);
    const StepResult second = compiled.run(Phase::train, batch, 1);
    EXPECT_EQ(compiled.gradients(), gradients);
    EXPECT_EQ(second.loss, first.loss);
    EXPECT_EQ(second.top1, first.top1);
  });
}

TEST_P(BackendContract, SetStepRepeatsDropout) {
  const SmallGraph small = graph_named("dropout");
  const std::unique_ptr<CompiledGraph> compiled = compile(small, Precision::f32);
  const PlainBatch batch = batch_for(small);
  const auto train = [&] {
    compiled->run(Phase::train, batch);
    return compiled->gradients();
  };
  compiled->executable().set_step(3);
  const PlainTensors third = train(), fourth = train();
  EXPECT_NE(third, fourth);
  compiled->run(Phase::evaluate, batch);  // does not count as a step
  compiled->executable().set_step(3);
  EXPECT_EQ(train(), third);
  compiled->run(Phase::evaluate, batch);
  EXPECT_EQ(train(), fourth);
}

TEST_P(BackendContract, DropoutDependsOnTheSeed) {
  const SmallGraph small = graph_named("dropout");
  const PlainBatch batch = batch_for(small);
  ExecutableSpec spec = spec_for(small.graph, small.images);
  spec.seed = 77;
  CompiledGraph compiled(entry(), small.graph, spec);
  compiled.run(Phase::train, batch);
  const PlainStep expected =
      run_plain(small.graph, plain_initial_weights(small.graph, 1), batch, {.seed = 77});
  expect_near(compiled.gradients(), expected.gradients, small.graph.parameters(),
              tolerance_for(small.graph, small.images, Precision::f32).gradient);
}

TEST_P(BackendContract, RunningStatisticsGrowOverSteps) {
  const SmallGraph small = graph_named("residual_16");
  const std::unique_ptr<CompiledGraph> compiled = compile(small, Precision::f32);
  PlainWeights weights = uneven_weights(small.graph, kWeightSeed);
  for (std::uint64_t step = 0; step < 3; ++step) {
    const PlainBatch batch = batch_for(small, step);
    compiled->run(Phase::train, batch);
    weights.buffers = run_plain(small.graph, weights, batch, {}).buffers;
  }
  expect_near(compiled->buffers(), weights.buffers, small.graph.buffers(),
              tolerance_for(small.graph, small.images, Precision::f32).forward);
}

TEST_P(BackendContract, LabelsOutOfRangeAreRefusedAndLeaveTheExecutableUsable) {
  const SmallGraph small = graph_named("conv_stride_2");
  const std::unique_ptr<CompiledGraph> compiled = compile(small, Precision::f32);
  const PlainBatch good = batch_for(small);
  const StepResult before = compiled->run(Phase::train, good);
  for (const std::int32_t label : {-1, small.classes(), 1'000'000, -1'000'000}) {
    PlainBatch bad = good;
    bad.labels.back() = label;
    for (const Phase phase : {Phase::train, Phase::evaluate}) {
      try {
        EXPECT_FALSE(compiled->run(phase, bad).finite) << label;
      } catch (const DataError&) {
        continue;
      }
    }
  }
  EXPECT_EQ(compiled->run(Phase::train, good).loss, before.loss);
}

TEST_P(BackendContract, MoreThreadsComputeTheSame) {
  for (const char* name : {"residual_16", "conv_groups", "lrn", "dropout", "concat"}) {
    SCOPED_TRACE(name);
    const SmallGraph small = graph_named(name);
    ExecutableSpec spec = spec_for(small.graph, small.images);
    spec.threads = 2;
    CompiledGraph compiled(entry(), small.graph, spec);
    const PlainBatch batch = batch_for(small);
    compiled.run(Phase::train, batch);
    const PlainStep expected =
        run_plain(small.graph, plain_initial_weights(small.graph, 1), batch, {});
    expect_near(compiled.gradients(), expected.gradients, small.graph.parameters(),
                tolerance_for(small.graph, small.images, Precision::f32).gradient);
  }
}

/// Says, in the list of tests, which backends were not looked at, and why.
class BackendWithoutWeights : public ::testing::TestWithParam<BackendSubject> {};
TEST_P(BackendWithoutWeights, HasNoNumbersToCompare) { GTEST_SKIP() << GetParam().reason; }

std::string name_of(const ::testing::TestParamInfo<BackendSubject>& test) {
  return test_name(test.param.name);
}
INSTANTIATE_TEST_SUITE_P(All, BackendContract, ::testing::ValuesIn(backends_with_weights()),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Fused, BackendContract, ::testing::ValuesIn(backends_that_fuse()),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Layouts, BackendContract, ::testing::ValuesIn(backends_in_other_layouts()),
                         name_of);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(BackendWithoutWeights);
INSTANTIATE_TEST_SUITE_P(All, BackendWithoutWeights,
                         ::testing::ValuesIn(backends_without_weights()), name_of);

}  // namespace
}  // namespace penstock
