// SPDX-License-Identifier: Apache-2.0
// Tests every model as a schedule for a GPU: its operations, and the memory that it needs. Needs no
// GPU and, except for the last test, no CUDA.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "dataflow/error.h"
#include "tests/support/entry_names.h"
#include "tests/support/gpu/dnn_interpreter.h"
#include "tests/support/text_files.h"
#include "trainer/backends/gpu/builder.h"
#include "trainer/backends/gpu/executable.h"
#include "trainer/backends/gpu/library.h"
#include "trainer/model.h"

namespace penstock::gpu {
namespace {

class NoWorkspace final : public DnnPlan {
 public:
  std::size_t workspace_bytes() const noexcept override { return 0; }
};

struct Built {
  Graph graph;
  Layouts layouts;
  Schedule schedule;
};

std::unique_ptr<Built> build(const ModelEntry& model, std::int32_t images, Precision precision,
                             Phase phase) {
  Graph graph = build_graph(model, model.image, model.classes);
  Layouts layouts = make_layouts(graph, dtype_of(precision));
  auto built = std::make_unique<Built>(std::move(graph), std::move(layouts));
  const ExecutableSpec spec{
      .batch = {.images = images, .image = model.image, .classes = model.classes},
      .precision = precision};
  Builder(built->graph, spec, phase, built->layouts, {}, built->schedule).build();
  return built;
}

std::size_t plan(Schedule& schedule) {
  const auto none = std::make_shared<NoWorkspace>();
  schedule.for_each_dnn_call([&](Schedule::DnnCall& call) { call.plan = none; });
  schedule.plan();
  return schedule.planned_bytes();
}

class ModelsOnGpu : public testing::TestWithParam<const ModelEntry*> {};

TEST_P(ModelsOnGpu, BuildSoundSchedulesInEveryPhase) {
  for (const Phase phase : {Phase::train, Phase::evaluate, Phase::forward_only}) {
    const auto built = build(*GetParam(), 2, Precision::f16, phase);
    std::size_t calls = 0, layers = 0;
    built->schedule.for_each_dnn_call([&](Schedule::DnnCall& call) {
      EXPECT_NO_THROW(check(call.graph)) << to_text(call.graph);
      ++calls;
    });
    for (const Node& node : built->graph.nodes()) layers += node.forward_macs > 0 ? 1 : 0;
    // Forward, and backward to weights and to inputs. Images need no gradient.
    EXPECT_GE(calls, phase == Phase::train ? 2 * layers : layers);
    EXPECT_LE(calls, phase == Phase::train ? 3 * layers : layers);
  }
}

/// Greedy plans need little more memory than the minimum.
TEST_P(ModelsOnGpu, TakeLittleMoreMemoryThanIsAliveAtOnce) {
  const auto built = build(*GetParam(), 8, Precision::f16, Phase::train);
  plan(built->schedule);
  const auto least = static_cast<double>(built->schedule.least_bytes());
  EXPECT_LE(least, static_cast<double>(built->schedule.planned_bytes()));
  EXPECT_LE(static_cast<double>(built->schedule.planned_bytes()), 1.15 * least + 4096);
}

INSTANTIATE_TEST_SUITE_P(All, ModelsOnGpu, testing::ValuesIn(model_table().entries),
                         [](const auto& test) { return test_name(test.param->name); });

/// The backward pass reads these again: the outputs of convolutions, of batch norms with their
/// ReLU, and one bit of mask for each. An independent count over the net gives 43.5 MB per image.
TEST(ResNet50OnGpu, KeepsWhatBackwardReads) {
  const ModelEntry& model = find_entry(model_table(), "resnet50_v1.5");
  constexpr std::int32_t kImages = 64;
  const auto built = build(model, kImages, Precision::f16, Phase::train);
  const double per_image = static_cast<double>(plan(built->schedule)) / kImages / 1e6;
  EXPECT_GT(per_image, 40);
  EXPECT_LT(per_image, 50);
}

TEST(ResNet50OnGpu, ItsWorkspaceLimitGrowsWithTheBatchUpToAPartOfTheMemory) {
  const ModelEntry& model = find_entry(model_table(), "resnet50_v1.5");
  const Graph graph = build_graph(model, model.image, model.classes);
  const auto mib = [&](std::int32_t images, DType type, std::size_t memory_gib) {
    return automatic_workspace(graph, images, type, memory_gib << 30) >> 20;
  };
  EXPECT_EQ(mib(1, DType::f16, 80), 256U);
  EXPECT_EQ(mib(400, DType::f16, 80), 976U);
  EXPECT_EQ(mib(400, DType::f32, 80), 1952U);
  EXPECT_EQ(mib(400, DType::f16, 8), 512U);
  EXPECT_EQ(mib(400, DType::f16, 2), 256U);
}

/// The distinct graphs of all models.
std::map<std::string, DnnGraph> graphs_of_all_models(std::int32_t images, Precision precision) {
  std::map<std::string, DnnGraph> graphs;
  for (const ModelEntry* model : model_table().entries) {
    build(*model, images, precision, Phase::train)
        ->schedule.for_each_dnn_call(
            [&](Schedule::DnnCall& call) { graphs.try_emplace(to_text(call.graph), call.graph); });
  }
  return graphs;
}

/// Precision f16 with all batches, the other precisions with a small and a large one.
TEST(EveryModelOnH200, HasEnginesWithinTheWorkspace) {
  std::unique_ptr<Planner> planner;
  try {
    planner = driver_library().make_planner(read_text(PENSTOCK_H200));
  } catch (const Unavailable& error) {
    GTEST_SKIP() << error.what();
  }
  const auto check_all = [&](std::int32_t images, Precision precision) {
    for (const auto& [text, graph] : graphs_of_all_models(images, precision)) {
      const PlanRules rules{.allow_tf32 = precision == Precision::tf32};
      EXPECT_FALSE(planner->candidates(graph, rules, 1).empty()) << text;
    }
  };
  for (const std::int32_t images : {1, 32, 64, 128, 256, 400, 512, 1024}) {
    check_all(images, Precision::f16);
  }
  for (const Precision precision : {Precision::bf16, Precision::tf32, Precision::f32}) {
    for (const std::int32_t images : {1, 256}) check_all(images, precision);
  }
}

}  // namespace
}  // namespace penstock::gpu
