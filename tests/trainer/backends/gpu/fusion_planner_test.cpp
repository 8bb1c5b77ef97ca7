// SPDX-License-Identifier: Apache-2.0
// Tests whether cuDNN has engines on an H200 for all graphs of ResNet-50's fused steps. It asks
// cuDNN itself, without a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dataflow/error.h"
#include "tests/support/text_files.h"
#include "tests/trainer/backends/gpu/step_on_paper.h"
#include "trainer/backends/gpu/library.h"

namespace penstock::gpu {
namespace {

class FusionForH200 : public testing::TestWithParam<std::int32_t> {
 protected:
  void SetUp() override {
    try {
      planner_ = driver_library().make_planner(read_text(PENSTOCK_H200));
    } catch (const Unavailable& error) {
      GTEST_SKIP() << error.what();
    }
  }

  /// The workspace of the first engine. Asks once per graph.
  std::optional<std::size_t> workspace_for(const DnnGraph& graph) {
    const auto [known, is_new] = workspaces_.try_emplace(to_text(graph));
    if (is_new) {
      const std::vector<Candidate> first =
          planner_->candidates(graph, {.reduced_precision = true}, 1);
      if (!first.empty()) known->second = first.front().workspace_bytes;
    }
    return known->second;
  }
  FusionCosts costs() {
    return fuse_all([this](const DnnGraph& graph) { return workspace_for(graph).has_value(); });
  }

  std::unique_ptr<Planner> planner_;
  std::map<std::string, std::optional<std::size_t>> workspaces_;
};

TEST_P(FusionForH200, EveryGraphOfAStepHasAnEngineAndOnlyVersion1HasUnfusedEnds) {
  for (const std::string_view name : {"resnet50", "resnet50_v1.5"}) {
    const StepOnPaper step(graph_of_model(name), GetParam(), costs());
    std::size_t largest = 0;
    for (const auto& [text, graph] : step.graphs()) {
      const std::optional<std::size_t> workspace = workspace_for(graph);
      EXPECT_TRUE(workspace) << name << " needs " << text;
      largest = std::max(largest, workspace.value_or(0));
    }
    const int unfused_ends = name == "resnet50" ? 4 : 1;
    EXPECT_EQ(step.kernels().at("BatchNormSums"), 1) << name;
    EXPECT_EQ(step.kernels().at("BatchNormBackwardSums"), 1 + unfused_ends) << name;
    RecordProperty(std::string(name) + "_largest_workspace_mib", static_cast<int>(largest >> 20));
  }
}

INSTANTIATE_TEST_SUITE_P(Batches, FusionForH200,
                         testing::Values(1, 32, 64, 128, 256, 400, 512, 1024),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace penstock::gpu
