// SPDX-License-Identifier: Apache-2.0
// Tests features that only the cpu backend has: Winograd convolutions, its team of threads, and a
// memory that can be too small.
#include <gtest/gtest.h>

#include "dataflow/error.h"
#include "dataflow/host_device.h"
#include "tests/support/executable_fixture.h"
#include "tests/support/small_graphs.h"
#include "tests/support/thrown_by.h"
#include "tests/support/tolerance.h"
#include "trainer/backends/cpu/executable.h"
#include "trainer/backends/cpu/instruction_sets.h"

namespace penstock {
namespace {

/// Two 3x3 convolutions, the second of a shape for which oneDNN chooses Winograd's algorithm.
Graph winograd_graph() {
  Graph graph({32, 32, 3});
  const Window same{3, 3, 1, 1, 1, 1, 1};
  const NodeId first = graph.add("first", Conv2d{64, same}, {Graph::kInput});
  const NodeId second = graph.add("second", Conv2d{64, same}, {first});
  const NodeId pool = graph.add("pool", GlobalAvgPool{}, {second});
  graph.add("logits", Linear{10}, {pool});
  return graph;
}

void expect_near_plain_loops(const BackendEntry& entry, const Graph& graph, Precision precision) {
  const std::int32_t images = 32;
  const PlainBatch batch = random_batch(graph.input_shape(), images, 10, 3);
  const PlainStep expected = run_plain(graph, plain_initial_weights(graph, 1), batch, {});
  const std::vector<double> scales = scales_of(expected.gradients);
  const Tolerance tolerance = tolerance_for(graph, images, precision);
  SteadyClock clock;
  HostDevice device(clock);
  CompiledGraph compiled(entry, graph, spec_for(graph, images, precision));
  const StepResult result = compiled.run(Phase::train, batch);
  EXPECT_NEAR(result.loss, expected.loss, tolerance.forward);
  const PlainTensors gradients = compiled.gradients();
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const double error = distance(gradients[i], expected.gradients[i]) / scales[i];
    EXPECT_LE(error, tolerance.gradient) << graph.parameters()[i].name;
  }
}

TEST(CpuBackend, WinogradsConvolutionsAreAsExactAsDirectOnes) {
  expect_near_plain_loops(find_entry(backend_table(), "cpu"), winograd_graph(), Precision::f32);
}

TEST(CpuBackend, ConvolutionsOnTilesAreAsExactAsTheirPrecision) {
  cpu::limit_instruction_sets(cpu::kEveryInstructionSet);  // before oneDNN is first asked
  if (!cpu::uses_amx()) GTEST_SKIP() << "this CPU has no AMX tiles for bf16";
  // With channels last, all of its convolutions but the first have 16 channels or more on each
  // side.
  Graph graph({32, 32, 3});
  const NodeId first = graph.add("first", Conv2d{64, {3, 3, 1, 1, 1, 1, 1}}, {Graph::kInput});
  const NodeId half = graph.add("half", Conv2d{32, {1, 1, 2}, 1, true}, {first});
  const NodeId third = graph.add("third", Conv2d{64, {3, 3, 2, 1, 1, 1, 1}}, {half});
  const NodeId pool = graph.add("pool", GlobalAvgPool{}, {third});
  graph.add("logits", Linear{10}, {pool});
  expect_near_plain_loops(*backends_in_other_layouts().at(0).entry, graph, Precision::bf16);
}

class TightMemory : public ::testing::Test {
 protected:
  std::string refusal(std::int32_t images, std::int32_t ranks, std::size_t budget) {
    const Graph graph = winograd_graph();
    return thrown_by<ConfigError>([&] {
      cpu::CpuExecutable(graph,
                         {.batch = {.images = images, .image = graph.input_shape(), .classes = 10},
                          .local_ranks = ranks},
                         device_, {.memory_budget = budget});
    });
  }
  SteadyClock clock_;
  HostDevice device_{clock_};
};

TEST_F(TightMemory, ABatchThatDoesNotFitIsRefusedWithOneThatDoes) {
  constexpr std::size_t kBudget = std::size_t{64} << 20;
  for (const std::int32_t ranks : {1, 2}) {
    for (const std::int32_t images : {150, 5000}) {  // near the limit, and far above it
      const std::string text = refusal(images, ranks, kBudget);
      const std::string key = "a batch of ";
      ASSERT_NE(text.find(key), std::string::npos) << text;
      const std::int32_t fitting = std::stoi(text.substr(text.find(key) + key.size()));
      EXPECT_GT(fitting, 4);
      EXPECT_EQ(refusal(fitting, ranks, kBudget), "nothing was thrown");
      EXPECT_NE(refusal(2 * fitting + 8, ranks, kBudget), "nothing was thrown");
    }
  }
}

TEST_F(TightMemory, WhereNothingFitsASmallerModelIsAdvised) {
  EXPECT_TRUE(says(refusal(4, 1, 1 << 16), "use a smaller model"));
}

}  // namespace
}  // namespace penstock
