// SPDX-License-Identifier: Apache-2.0
// Tests fused steps against plain loops, with mixed forms where engines are missing, and with
// weights to which batch norms are sensitive. The contract suite of all backends runs on fused
// steps, too.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "dataflow/error.h"
#include "tests/support/executable_fixture.h"
#include "tests/support/gpu/host_driver.h"
#include "tests/support/small_graphs.h"
#include "tests/support/tolerance.h"
#include "trainer/backends/gpu/backend.h"

namespace penstock {
namespace {

using gpu::DnnGraph;

template <typename Op>
bool has(const DnnGraph& graph) {
  return std::ranges::any_of(graph.operations,
                             [](const auto& op) { return std::holds_alternative<Op>(op); });
}
bool is_fused(const DnnGraph& graph) { return graph.operations.size() > 1; }

bool all(const DnnGraph&) { return true; }
bool no_masks(const DnnGraph& graph) { return !has<gpu::DnnBatchNormBackwardWeights>(graph); }
bool no_fused_filters(const DnnGraph& graph) {
  return !is_fused(graph) || !has<gpu::DnnConvolutionBackwardFilter>(graph);
}
bool no_fused_inputs(const DnnGraph& graph) {
  return !has<gpu::DnnConvolution>(graph) || !has<gpu::DnnPointwise>(graph);
}
bool no_statistics(const DnnGraph& graph) {
  return has<gpu::DnnPointwise>(graph) || !has<gpu::DnnGenerateStatistics>(graph);
}

std::unique_ptr<Backend> open_gpu(const std::string& fused, gpu::HasEngine has_engine = {}) {
  const gpu::HostMachineOptions machine{.has_engine = std::move(has_engine)};
  return std::make_unique<gpu::GpuBackend>(
      std::make_shared<gpu::HostDriverLibrary>(machine),
      Options("gpu", gpu::kOptions, {"gpu", {{"fused", fused}}}));
}

/// With this seed few ReLUs are near a tie. In a deep graph such ReLUs cause larger errors than all
/// roundings together.
constexpr std::uint64_t kSeed = 6;

/// The engines that exist.
struct Case {
  std::string name;
  bool (*has_engine)(const DnnGraph&);
};
const Case kCases[] = {{"all", all},
                       {"no_masks", no_masks},
                       {"no_fused_filters", no_fused_filters},
                       {"no_fused_inputs", no_fused_inputs},
                       {"no_statistics", no_statistics}};

class FusedTraining : public testing::TestWithParam<Case> {
 protected:
  /// Calls body(small graph) for graphs in which something can be fused.
  template <typename Body>
  static void for_each_graph(const Body& body) {
    for (const SmallGraph& small : small_graphs()) {
      if (!small.name.starts_with("bottlenecks") && !small.name.starts_with("preactivated") &&
          small.name != "residual_16") {
        continue;
      }
      SCOPED_TRACE(small.name);
      body(small);
    }
  }

  /// `of_gradients`: Tolerance::forward if no ReLU is near a tie.
  static void expect_plain_numbers(const SmallGraph& small, const PlainWeights& weights,
                                   double Tolerance::*of_gradients) {
    CompiledGraph compiled(open_gpu("on", GetParam().has_engine), 0, small.graph,
                           spec_for(small.graph, small.images, Precision::f16));
    compiled.set_weights(weights);
    const PlainBatch batch =
        random_batch(small.graph.input_shape(), small.images, small.classes(), kSeed + 1);
    const StepResult result = compiled.run(Phase::train, batch);
    const PlainStep expected = run_plain(small.graph, weights, batch, {});
    const Tolerance tolerance = tolerance_for(small.graph, small.images, Precision::f16);
    EXPECT_NEAR(result.loss, expected.loss, tolerance.forward * std::max(1., expected.loss));
    expect_near(compiled.gradients(), expected.gradients, small.graph.parameters(),
                tolerance.*of_gradients);
    expect_near(compiled.buffers(), expected.buffers, small.graph.buffers(), tolerance.forward);
  }

 private:
  static void expect_near(const PlainTensors& tensors, const PlainTensors& expected,
                          const std::vector<ParameterSpec>& specs, double tolerance) {
    const std::vector<double> scales = scales_of(expected);
    for (std::size_t i = 0; i < specs.size(); ++i) {
      EXPECT_LE(distance(tensors[i], expected[i]), tolerance * scales[i] + 1e-30) << specs[i].name;
    }
  }
};

TEST_P(FusedTraining, MatchesPlainLoops) {
  for_each_graph([](const SmallGraph& small) {
    expect_plain_numbers(small, uneven_weights(small.graph, kSeed), &Tolerance::gradient);
  });
}

/// Uses shifts of kOffset standard deviations before the convolutions. All ReLUs then pass, and the
/// inputs of the next batch norms have means far from 0, so that squares in f32 leave fewer bits
/// for the variance.
TEST_P(FusedTraining, MatchesPlainLoopsForInputsFarFromZero) {
  constexpr double kOffset = 6;
  for_each_graph([](const SmallGraph& small) {
    PlainWeights weights = uneven_weights(small.graph, kSeed);
    const std::vector<ParameterSpec> specs = small.graph.parameters();
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (specs[i].role != Role::shift) continue;
      for (double& shift : weights.parameters[i]) shift += kOffset;
    }
    expect_plain_numbers(small, weights, &Tolerance::forward);
  });
}

/// As in new residual blocks: the last batch norms give 0, so the shortcut decides the ReLU.
TEST_P(FusedTraining, MatchesPlainLoopsForScalesOfZero) {
  for_each_graph([](const SmallGraph& small) {
    PlainWeights weights = uneven_weights(small.graph, kSeed);
    const std::vector<ParameterSpec> specs = small.graph.parameters();
    for (std::size_t i = 0; i < specs.size(); ++i) {
      const bool is_last =
          specs[i].name.find("_c_bn.") != std::string::npos || specs[i].name.starts_with("bn2.");
      if (!is_last || (specs[i].role != Role::scale && specs[i].role != Role::shift)) continue;
      std::ranges::fill(weights.parameters[i], 0);
    }
    expect_plain_numbers(small, weights, &Tolerance::gradient);
  });
}

/// The backend's fact about a step of residual_16, which has three convolutions and a max pool that
/// can be fused.
double fused_operators(const std::string& fused, Precision precision) {
  const std::vector<SmallGraph> graphs = small_graphs();
  const auto small = std::ranges::find(graphs, "residual_16", &SmallGraph::name);
  const CompiledGraph compiled(open_gpu(fused), 0, small->graph,
                               spec_for(small->graph, small->images, precision));
  return compiled.backend().facts().at("fused_operators");
}

TEST(FusedOption, OnFusesStepsOfF16Alone) {
  EXPECT_EQ(fused_operators("on", Precision::f16), 4);
  EXPECT_EQ(fused_operators("on", Precision::bf16), 0);
  EXPECT_EQ(fused_operators("on", Precision::f32), 0);
  EXPECT_EQ(fused_operators("off", Precision::f16), 0);
}

TEST(FusedOption, RefusesOtherWords) { EXPECT_THROW(open_gpu("maybe"), ConfigError); }

INSTANTIATE_TEST_SUITE_P(Engines, FusedTraining, testing::ValuesIn(kCases),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace penstock
