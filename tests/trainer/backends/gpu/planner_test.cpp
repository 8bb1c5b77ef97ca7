// SPDX-License-Identifier: Apache-2.0
// Tests whether cuDNN has engines for an H200 and an H100 under the rules of a run. It asks cuDNN
// itself, which plans from the description of a device and needs no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "dataflow/error.h"
#include "tests/support/text_files.h"
#include "tests/trainer/backends/gpu/step_on_paper.h"
#include "trainer/backends/gpu/dnn_patterns.h"
#include "trainer/backends/gpu/driver.h"
#include "trainer/backends/gpu/executable.h"
#include "trainer/backends/gpu/layouts.h"
#include "trainer/backends/gpu/library.h"
#include "trainer/graph.h"

namespace penstock::gpu {
namespace {

constexpr std::array<std::int64_t, 8> kBatches{1, 32, 64, 128, 256, 400, 512, 1024};

/// The distinct convolutions and linear layers of the models; `fused`: only those between batch
/// norms.
std::vector<ConvolutionShape> convolutions_of(std::span<const std::string_view> models, bool fused,
                                              DType dtype = DType::f16) {
  std::vector<ConvolutionShape> shapes;
  for (const std::string_view name : models) {
    const Graph graph = graph_of_model(name);
    for (std::size_t index = 0; index < graph.nodes().size(); ++index) {
      const auto node = static_cast<NodeId>(index);
      if (graph.nodes()[index].forward_macs == 0) continue;
      const ConvolutionShape shape = convolution_shape(graph, node, 1, dtype);
      if (fused && (reads_padded_image(graph, node) || shape.height == 1)) continue;
      const auto same = [graph_of_it = conv_forward(shape).graph](const ConvolutionShape& other) {
        return conv_forward(other).graph == graph_of_it;
      };
      if (std::ranges::none_of(shapes, same)) shapes.push_back(shape);
    }
  }
  return shapes;
}

constexpr std::array<std::string_view, 2> kResNets{"resnet50", "resnet50_v1.5"};

/// Only this layer has so few channels.
bool reads_image(const ConvolutionShape& shape) { return shape.channels <= 8; }

struct Card {
  const char* name;
  std::size_t memory_bytes;
  nlohmann::json differences;  ///< from the H200's description
};
const Card kH200{"H200", 150'754'820'096, nlohmann::json::object()};
const Card kH100{"H100",
                 85'029'158'912,
                 {{"deviceName", "NVIDIA H100 80GB HBM3"},
                  {"l2CacheSize", 50 << 20},
                  {"memClockRateKHz", 2'619'000},
                  {"memoryBusWidth", 5120},
                  {"totalGlobalMem", 85'029'158'912}}};

class HopperPlans : public testing::Test {
 protected:
  /// Skips the test without the CUDA library.
  void plan_for(const Card& card) {
    memory_bytes_ = card.memory_bytes;
    nlohmann::json description = nlohmann::json::parse(read_text(PENSTOCK_H200));
    description.update(card.differences);
    try {
      planner_ = driver_library().make_planner(description.dump());
    } catch (const Unavailable& error) {
      GTEST_SKIP() << error.what();
    }
  }

  /// The rules of a run that sets no option.
  PlanRules rules_for(const DnnGraph& graph, bool allow_tf32) const {
    static const Graph model = graph_of_model(kResNets[0]);
    const DnnTensor& x = graph.tensors.front();
    const auto images = static_cast<std::int32_t>(x.shape[0]);
    return {.allow_tf32 = allow_tf32,
            .workspace_limit = automatic_workspace(model, images, x.dtype, memory_bytes_)};
  }
  /// The first engine; empty if there is none.
  std::optional<Candidate> engine_for(const DnnGraph& graph, bool allow_tf32 = false) {
    const std::vector<Candidate> found =
        planner_->candidates(graph, rules_for(graph, allow_tf32), 1);
    return found.empty() ? std::nullopt : std::optional(found.front());
  }
  void expect_engine(const DnnGraph& graph, bool allow_tf32 = false) {
    const std::optional<Candidate> engine = engine_for(graph, allow_tf32);
    EXPECT_TRUE(engine) << "none for " << to_text(graph);
    EXPECT_FALSE(engine && engine->compiled_at_run_time) << to_text(graph);
    EXPECT_EQ(engine ? engine->excluded_bytes : 0, 0U) << "the limit excludes " << to_text(graph);
  }

  void expect_all_convolutions(DType dtype, bool allow_tf32 = false) {
    for (ConvolutionShape shape : convolutions_of(kResNets, false, dtype)) {
      for (const std::int64_t batch : kBatches) {
        shape.images = batch;
        expect_engine(conv_forward(shape).graph, allow_tf32);
        expect_engine(conv_backward_filter(shape).graph, allow_tf32);
        if (reads_image(shape)) continue;
        expect_engine(conv_backward_data(shape, 0).graph, allow_tf32);
        expect_engine(conv_backward_data(shape, 1).graph, allow_tf32);
      }
    }
  }

  std::unique_ptr<Planner> planner_;
  std::size_t memory_bytes_ = 0;
};

class PlannerForHopper : public HopperPlans, public testing::WithParamInterface<Card> {
 protected:
  void SetUp() override { plan_for(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Cards, PlannerForHopper, testing::Values(kH200, kH100),
                         [](const auto& of) { return std::string(of.param.name); });

TEST_P(PlannerForHopper, HasEnginesForEveryConvolutionInF16) {
  expect_all_convolutions(DType::f16);
}

TEST_P(PlannerForHopper, HasEnginesForEveryConvolutionInBf16) {
  expect_all_convolutions(DType::bf16);
}

TEST_P(PlannerForHopper, HasEnginesForEveryConvolutionInF32) {
  expect_all_convolutions(DType::f32);
}

TEST_P(PlannerForHopper, HasEnginesForEveryConvolutionInTf32) {
  expect_all_convolutions(DType::f32, true);
}

/// Under the rules of a run, without workspace in f16. In the plain order, the weight gradient
/// needs 196 MiB at batch 256.
TEST_P(PlannerForHopper, HasEnginesForTheStemOverBlocksWithinTheRules) {
  const Graph graph = graph_of_model("resnet50_v1.5");
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    for (const std::int64_t batch : kBatches) {
      const ConvolutionShape shape =
          over_blocks(convolution_shape(graph, 0, static_cast<std::int32_t>(batch), dtype));
      for (const DnnGraph& of : {conv_forward(shape).graph, conv_backward_filter(shape).graph}) {
        for (const bool tf32 : {false, true}) {
          const std::vector<Candidate> found =
              planner_->candidates(of, {.allow_tf32 = tf32}, dtype == DType::f16 ? 100 : 1);
          EXPECT_TRUE(std::ranges::any_of(found, [&](const Candidate& candidate) {
            return !candidate.compiled_at_run_time &&
                   (dtype != DType::f16 || candidate.workspace_bytes == 0);
          })) << to_text(of);
        }
      }
    }
  }
}

TEST_P(PlannerForHopper, HasFusedForwardEnginesInF16) {
  for (ConvolutionShape shape : convolutions_of(kResNets, true)) {
    for (const std::int64_t batch : kBatches) {
      shape.images = batch;
      expect_engine(conv_statistics(shape).graph);
      expect_engine(normalised_conv_statistics(shape).graph);
      // After a block's end: only 1x1 without stride.
      if (shape.window.kernel_h > 1 || shape.window.stride > 1) continue;
      for (const bool dual : {false, true}) {
        expect_engine(residual_normalised_conv_statistics(shape, dual).graph);
      }
    }
  }
}

TEST_P(PlannerForHopper, HasFusedBackwardEnginesInF16) {
  for (ConvolutionShape shape : convolutions_of(kResNets, true)) {
    for (const std::int64_t batch : kBatches) {
      shape.images = batch;
      expect_engine(normalised_conv_backward_filter(shape).graph);
      expect_engine(conv_backward_data_batch_norm(shape, false, Shortcut::none).graph);
      if (shape.window.stride > 1) continue;
      for (const bool add : {false, true}) {
        for (const Shortcut shortcut : {Shortcut::none, Shortcut::tensor, Shortcut::batch_norm}) {
          expect_engine(conv_backward_data_batch_norm(shape, add, shortcut).graph);
        }
      }
    }
  }
}

constexpr ConvolutionShape kMiddle{.images = 32,
                                   .channels = 128,
                                   .height = 28,
                                   .width = 28,
                                   .filters = 128,
                                   .window = {3, 3, 1, 1, 1, 1, 1}};

TEST_P(PlannerForHopper, HasNoFusedEnginesWithStrideBehindABlocksEnd) {
  ConvolutionShape shape = kMiddle;
  shape.window = {1, 1, 2, 0, 0, 0, 0};
  for (const DnnGraph& graph :
       {residual_normalised_conv_statistics(shape, false).graph,
        conv_backward_data_batch_norm(shape, true, Shortcut::tensor).graph}) {
    const std::optional<Candidate> engine = engine_for(graph);
    EXPECT_TRUE(!engine || engine->compiled_at_run_time) << to_text(graph);
  }
}

TEST_P(PlannerForHopper, KeepsF32AwayFromTensorCoresUnlessTf32IsAllowed) {
  ConvolutionShape shape = kMiddle;
  shape.dtype = DType::f32;
  const auto on_tensor_cores = [](const Candidate& candidate) { return candidate.tensor_cores; };
  for (const DnnGraph& graph : {conv_forward(shape).graph, conv_backward_data(shape, 0).graph,
                                conv_backward_filter(shape).graph}) {
    EXPECT_TRUE(std::ranges::none_of(planner_->candidates(graph, {}, 100), on_tensor_cores));
    EXPECT_TRUE(std::ranges::any_of(planner_->candidates(graph, {.allow_tf32 = true}, 100),
                                    on_tensor_cores));
  }
}

TEST_P(PlannerForHopper, GivesNoMoreCandidatesThanAskedForAndEachOnce) {
  const DnnGraph graph = conv_forward(kMiddle).graph;
  const std::vector<Candidate> all = planner_->candidates(graph, {}, 100);
  const std::vector<Candidate> some = planner_->candidates(graph, {}, 8);
  ASSERT_GT(all.size(), 8U);
  ASSERT_EQ(some.size(), 8U);
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_TRUE(i >= some.size() || some[i].choice == all[i].choice) << i;
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(all[i].choice, all[j].choice);
  }
}

TEST_P(PlannerForHopper, HasEnginesForDepthwiseConvolutions) {
  ConvolutionShape shape = kMiddle;
  shape.groups = shape.channels;
  EXPECT_TRUE(engine_for(conv_forward(shape).graph));
}

/// Engines of the stem's weight gradient copy the images to eight channels.
TEST_P(PlannerForHopper, ReportsTheFirstEngineThatALimitExcludes) {
  const ConvolutionShape stem{.images = 512,
                              .channels = 4,
                              .height = 224,
                              .width = 224,
                              .filters = 64,
                              .window = {7, 7, 2, 3, 3, 3, 3}};
  const DnnGraph graph = conv_backward_filter(stem).graph;
  const std::vector<Candidate> within = planner_->candidates(graph, {}, 100);
  ASSERT_FALSE(within.empty());
  for (const Candidate& candidate : within) {
    EXPECT_GT(candidate.excluded_bytes, PlanRules{}.workspace_limit) << candidate.choice.engine;
  }
  const std::optional<Candidate> first = engine_for(graph);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->excluded_bytes, 0U);
  EXPECT_EQ(first->workspace_bytes, within.front().excluded_bytes);
}

/// The graphs of fused steps of ResNet-50.
class FusionForHopper : public HopperPlans,
                        public testing::WithParamInterface<std::tuple<Card, std::int64_t>> {
 protected:
  void SetUp() override { plan_for(std::get<Card>(GetParam())); }
  /// The workspace of the first engine. Asks once per graph.
  std::optional<std::size_t> workspace_for(const DnnGraph& graph) {
    const auto [known, is_new] = workspaces_.try_emplace(to_text(graph));
    if (is_new) {
      if (const auto engine = engine_for(graph)) known->second = engine->workspace_bytes;
    }
    return known->second;
  }
  FusionCosts costs() {
    return fuse_all([this](const DnnGraph& graph) { return workspace_for(graph).has_value(); });
  }

  std::map<std::string, std::optional<std::size_t>> workspaces_;
};

TEST_P(FusionForHopper, EveryGraphOfAStepHasAnEngineAndOnlyVersion1HasUnfusedEnds) {
  for (const std::string_view name : kResNets) {
    const auto images = static_cast<std::int32_t>(std::get<std::int64_t>(GetParam()));
    const StepOnPaper step(graph_of_model(name), images, costs());
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

INSTANTIATE_TEST_SUITE_P(CardsAndBatches, FusionForHopper,
                         testing::Combine(testing::Values(kH200, kH100),
                                          testing::ValuesIn(kBatches)),
                         [](const auto& of) {
                           return std::string(std::get<Card>(of.param).name) + "_" +
                                  std::to_string(std::get<std::int64_t>(of.param));
                         });

}  // namespace
}  // namespace penstock::gpu
