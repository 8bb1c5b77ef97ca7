// SPDX-License-Identifier: Apache-2.0
// Tests which forms are chosen at given costs, and how a step changes.
#include "trainer/backends/gpu/fusion.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <limits>
#include <map>
#include <numeric>
#include <string>

#include "tests/support/gpu/host_planner.h"
#include "tests/trainer/backends/gpu/step_on_paper.h"

namespace penstock::gpu {
namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();

/// The kind of a convolution's graph. Tests invent a cost for each.
enum class Form {
  plain,
  statistics,
  normalised,
  block_end,
  filter,
  normalised_filter,
  data,
  masked,
  other
};

Form form_of(const DnnGraph& graph) {
  const auto has = [&]<class Op>(Op) {
    return std::ranges::any_of(graph.operations,
                               [](const auto& op) { return std::holds_alternative<Op>(op); });
  };
  const bool alone = graph.operations.size() == 1;
  if (has(DnnConvolutionBackwardFilter{})) return alone ? Form::filter : Form::normalised_filter;
  if (has(DnnConvolutionBackwardData{})) return alone ? Form::data : Form::masked;
  if (!has(DnnConvolution{})) return Form::other;
  if (alone) return Form::plain;
  if (!has(DnnPointwise{})) return Form::statistics;
  return adds_tensors(graph) ? Form::block_end : Form::normalised;
}

/// Costs by form. A kernel costs `kernel`, however many bytes it moves.
FusionCosts costs_of(std::map<Form, double> costs, double kernel) {
  return {.graph =
              [costs = std::move(costs)](const DnnGraph& graph) {
                const auto found = costs.find(form_of(graph));
                return found == costs.end() ? 1 : found->second;
              },
          .kernel = [kernel](double) { return kernel; }};
}

struct Ids {
  NodeId first, second;  ///< convolutions: after an input, and after the place in question
};

/// Adds convolution, batch norm, ReLU, convolution; with `end`, also an addition of a shortcut
/// before the ReLU.
Ids add_pair(Graph& graph, bool end, std::int32_t readers = 1) {
  const NodeId input = graph.add("input", Conv2d{8, {3, 3, 1, 1, 1, 1, 1}}, {Graph::kInput});
  const NodeId first = graph.add("first", Conv2d{8, {}}, {input});
  NodeId node = graph.add("bn", BatchNorm{}, {first});
  if (end) node = graph.add("sum", Add{}, {node, input});
  node = graph.add("relu", Relu{}, {node});
  const NodeId second = graph.add("second", Conv2d{8, {}}, {node});
  NodeId last = graph.add("bn2", BatchNorm{}, {second});
  for (std::int32_t reader = 1; reader < readers; ++reader) {
    last = graph.add("sum" + std::to_string(reader), Add{}, {last, node});
  }
  graph.add("logits", Linear{3}, {last});
  return {first, second};
}

/// The fusion that is chosen for the second convolution.
NodeFusion choice(bool end, const FusionCosts& costs, std::int32_t readers = 1) {
  Graph graph({4, 4, 3});
  const Ids ids = add_pair(graph, end, readers);
  return plan_fusion(graph, 2, costs).of(ids.second);
}

TEST(Fusion, StatisticsAreTakenWhereTheKernelThatSumsCostsMore) {
  Graph graph({4, 4, 3});
  const NodeId first = add_pair(graph, false).first;
  const auto chosen = [&](double statistics) {
    const FusionCosts costs = costs_of({{Form::plain, 5}, {Form::statistics, statistics}}, 2);
    return plan_fusion(graph, 2, costs).of(first);
  };
  EXPECT_EQ(chosen(6.9), NodeFusion{.statistics = true});
  EXPECT_EQ(chosen(7.1), NodeFusion{});
  EXPECT_EQ(chosen(kNone), NodeFusion{});
}

TEST(Fusion, EdgeIsDecidedByTheSumOfItsChain) {
  // Unfused: 5 for the convolution and sums of 1, 1 to normalise, 3 + 3 backward, 2 for sums: 15.
  std::map<Form, double> costs{
      {Form::plain, 5},      {Form::statistics, kNone},      {Form::filter, 3},  {Form::data, 3},
      {Form::normalised, 6}, {Form::normalised_filter, 3.8}, {Form::masked, 4.9}};
  EXPECT_EQ(choice(false, costs_of(costs, 1)),
            (NodeFusion{.statistics = true, .normalises = true, .masks_gradient = true}));
  costs[Form::normalised_filter] = 4.2;  // 15.1; and 14.9 with only the gradient's mask
  EXPECT_EQ(choice(false, costs_of(costs, 1)), NodeFusion{.masks_gradient = true});
  costs[Form::masked] = 5.1;
  EXPECT_EQ(choice(false, costs_of(costs, 1)), NodeFusion{});
}

TEST(Fusion, EdgeWithoutOneOfItsEnginesIsNotFused) {
  for (const Form missing : {Form::normalised, Form::normalised_filter, Form::masked}) {
    EXPECT_FALSE(choice(false, costs_of({{missing, kNone}}, 9)).normalises);
  }
}

TEST(Fusion, EdgeWithASecondReaderIsWritten) {
  const NodeFusion fusion = choice(false, costs_of({}, 9), 2);
  EXPECT_EQ(fusion, (NodeFusion{.statistics = true, .masks_gradient = true}));
}

TEST(Fusion, BlockEndForwardAndBackwardAreChosenApart) {
  const auto chosen = [](double forward, double backward) {
    return choice(true, costs_of({{Form::block_end, forward}, {Form::masked, backward}}, 2));
  };
  // Unfused, forward costs 1 + 2 and backward 1 + 4, plus 2 if there is no mask.
  EXPECT_EQ(chosen(2, 2),
            (NodeFusion{.statistics = true, .ends_block = true, .masks_gradient = true}));
  EXPECT_EQ(chosen(4, 2), (NodeFusion{.statistics = true, .masks_gradient = true}));
  EXPECT_EQ(chosen(0.5, 8), (NodeFusion{.statistics = true, .ends_block = true}));
  EXPECT_EQ(chosen(1.5, 8), NodeFusion{.statistics = true});
}

TEST(Fusion, OddChannelsAreLeftAlone) {
  Graph graph({4, 4, 3});
  const NodeId input = graph.add("input", Conv2d{12, {}}, {Graph::kInput});
  const NodeId conv = graph.add("conv", Conv2d{8, {}}, {input});
  graph.add("bn", BatchNorm{}, {conv});
  const FusionPlan plan = plan_fusion(graph, 2, fuse_all([](const DnnGraph&) { return true; }));
  EXPECT_EQ(plan.of(conv), NodeFusion{});
  EXPECT_EQ(plan.of(Graph::kInput), NodeFusion{});
}

/// ResNet-50's stem over blocks of pixels, if its graphs cost `blocks` and those of the plain order
/// `plain`.
std::optional<NodeId> stem_at(double plain, double blocks, const Graph& graph) {
  const FusionCosts costs{
      .graph = [=](const DnnGraph& of) { return of.tensor(0).shape[1] == 16 ? blocks : plain; },
      .kernel = [](double) { return 0; }};
  return plan_stem(graph, 2, DType::f16, costs);
}

TEST(Fusion, StemReadsBlocksOfPixelsUnlessThatCostsMore) {
  const Graph graph = graph_of_model("resnet50");
  EXPECT_EQ(stem_at(2, 1, graph), NodeId{0});
  EXPECT_EQ(stem_at(1, 1, graph), NodeId{0});
  EXPECT_EQ(stem_at(1, 2, graph), std::nullopt);
  EXPECT_EQ(stem_at(kNone, 2, graph), NodeId{0});
  EXPECT_EQ(stem_at(kNone, kNone, graph), std::nullopt);
}

TEST(Fusion, StemOtherFirstConvolutionsStayPlain) {
  const auto chosen = [](const ImageShape& image, const Conv2d& convolution) {
    Graph graph(image);
    graph.add("stem", convolution, {Graph::kInput});
    return stem_at(2, 1, graph).has_value();
  };
  EXPECT_TRUE(chosen({8, 6, 3}, {8, {7, 7, 2, 3, 3, 3, 3}}));
  EXPECT_FALSE(chosen({7, 6, 3}, {8, {7, 7, 2, 3, 3, 3, 3}}));
  EXPECT_FALSE(chosen({8, 5, 3}, {8, {7, 7, 2, 3, 3, 3, 3}}));
  EXPECT_FALSE(chosen({8, 6, 5}, {8, {7, 7, 2, 3, 3, 3, 3}}));
  EXPECT_FALSE(chosen({8, 6, 3}, {8, {7, 7, 1, 3, 3, 3, 3}}));
  EXPECT_FALSE(chosen({8, 6, 3}, {8, {7, 7, 2, 2, 2, 3, 3}}));
  EXPECT_FALSE(chosen({8, 6, 3}, {8, {3, 3, 2, 1, 1, 1, 1}}));
  EXPECT_FALSE(chosen({8, 6, 3}, {9, {7, 7, 2, 3, 3, 3, 3}, 3}));
}

struct Counts {
  int statistics = 0, normalises = 0, ends_block = 0, masks_gradient = 0;
  bool operator==(const Counts&) const = default;
};
Counts counts_of(const Graph& graph, const FusionPlan& plan) {
  Counts counts;
  for (std::size_t node = 0; node < graph.nodes().size(); ++node) {
    const NodeFusion fusion = plan.of(static_cast<NodeId>(node));
    counts.statistics += fusion.statistics;
    counts.normalises += fusion.normalises;
    counts.ends_block += fusion.ends_block;
    counts.masks_gradient += fusion.masks_gradient;
  }
  return counts;
}

/// 16 blocks of three convolutions, 4 of them with a projection. A pool follows the last one.
TEST(Fusion, ResNet50FusesEveryBatchNormButTheStems) {
  for (const std::string_view name : {"resnet50", "resnet50_v1.5"}) {
    const Graph graph = graph_of_model(name);
    const StepOnPaper step(graph, 256, fuse_all([](const DnnGraph&) { return true; }));
    EXPECT_EQ(counts_of(graph, step.fusion), (Counts{52, 33, 15, 47})) << name;
    const std::map<std::string, int> kernels = step.kernels();
    EXPECT_EQ(kernels.at("ReorderStem"), 2) << name;
    EXPECT_EQ(kernels.at("BatchNormSums"), 1) << name;
    EXPECT_EQ(kernels.at("BatchNormFinish"), 53) << name;
    // One at the last block's end, and one for the bias of the logits.
    EXPECT_EQ(kernels.at("ScaleShift"), 2) << name;
    EXPECT_EQ(kernels.at("BatchNormBackwardSums"), 2) << name;
    EXPECT_EQ(kernels.at("BatchNormBackwardFinish"), 2) << name;
    EXPECT_EQ(kernels.at("BatchNormBackwardApply"), 49) << name;  // two norms at once at 4 ends
    EXPECT_FALSE(kernels.contains("ReluBackward")) << name;
  }
}

/// In version 1 the first convolutions of three stages have a stride.
TEST(Fusion, ResNet50OnHopperLacksOnlyTheStridedEndsOfVersion1) {
  const FusionCosts costs = fuse_all(hopper_has_engine);
  const Graph v1 = graph_of_model("resnet50"), v15 = graph_of_model("resnet50_v1.5");
  EXPECT_EQ(counts_of(v15, StepOnPaper(v15, 256, costs).fusion), (Counts{52, 33, 15, 47}));
  EXPECT_EQ(counts_of(v1, StepOnPaper(v1, 256, costs).fusion), (Counts{52, 33, 12, 44}));
}

/// A bucket of gradients is exchanged when the last of them is complete.
TEST(Fusion, EachGradientIsCompletedByOneOperation) {
  for (const std::string_view name : {"resnet50", "resnet50_v1.5", "densenet40_k12"}) {
    for (const bool fuses : {false, true}) {
      const StepOnPaper step(graph_of_model(name), 2,
                             fuse_all([&](const DnnGraph&) { return fuses; }));
      std::vector<std::size_t> completed = step.completed(), all(step.parameter_count());
      std::ranges::sort(completed);
      std::iota(all.begin(), all.end(), 0);
      EXPECT_EQ(completed, all) << name << (fuses ? ", fused" : "");
    }
  }
}

/// In 10^6 bytes per image. A convolution that skips pixels counts as reading them.
struct Megabytes {
  double moved, planned;
};
template <typename Fusion>
Megabytes megabytes_of(const Fusion& fusion) {
  constexpr std::int32_t kImages = 256;
  StepOnPaper step(graph_of_model("resnet50_v1.5"), kImages, fusion);
  const double moved = step.bytes_moved();
  return {moved / kImages / 1e6, static_cast<double>(step.planned_bytes()) / kImages / 1e6};
}

TEST(Fusion, ResNet50MovesAFifthLessAndKeepsAFifthLess) {
  const Megabytes unfused = megabytes_of(FusionPlan());
  const Megabytes fused = megabytes_of(fuse_all(hopper_has_engine));
  std::printf("MB an image: moved %.1f unfused, %.1f fused; planned %.1f and %.1f\n", unfused.moved,
              fused.moved, unfused.planned, fused.planned);
  EXPECT_NEAR(unfused.moved, 342, 1);
  EXPECT_NEAR(fused.moved, 267.5, 1);
  EXPECT_NEAR(unfused.planned, 42.2, 0.5);
  EXPECT_NEAR(fused.planned, 34.5, 0.5);
}

}  // namespace
}  // namespace penstock::gpu
