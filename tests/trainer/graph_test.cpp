// SPDX-License-Identifier: Apache-2.0
#include "trainer/graph.h"

#include <gtest/gtest.h>

#include "dataflow/error.h"
#include "trainer/model.h"

namespace penstock {
namespace {

Graph build(std::string_view name, std::int32_t classes = 1000) {
  const ModelEntry& model = find_entry(model_table(), name);
  Graph graph(model.image);
  model.build(graph, classes);
  return graph;
}

TEST(Graph, ResNet50HasThePublishedParametersAndWork) {
  const Graph graph = build("resnet50");
  EXPECT_EQ(graph.parameter_count(), 25'557'032);
  EXPECT_NEAR(graph.forward_macs_per_image() / 1e9, 3.858, 0.0005);
  EXPECT_EQ(graph.shape(static_cast<NodeId>(graph.nodes().size()) - 1), (ImageShape{1, 1, 1000}));
}

TEST(Graph, NullComputesNothing) {
  const Graph graph = build("null");
  EXPECT_TRUE(graph.nodes().empty());
  EXPECT_EQ(graph.parameter_count(), 0);
}

TEST(Graph, TrivialHasThreeAffineLayers) {
  const std::int64_t pixels = 227 * 227 * 3;
  EXPECT_EQ(build("trivial", 10).parameter_count(), pixels + 1 + 4096 + 4096 + 4096 * 10 + 10);
}

TEST(Graph, EveryModelEndsInOneNumberPerClass) {
  for (const ModelEntry* model : model_table().entries) {
    const Graph graph = build(model->name, 7);
    if (graph.nodes().empty()) continue;
    EXPECT_EQ(graph.nodes().back().shape, (ImageShape{1, 1, 7})) << model->name;
    EXPECT_GT(model->batch, 0) << model->name;
  }
}

TEST(Graph, WindowsFollowTheUsualFormula) {
  Graph graph({11, 9, 4});
  const NodeId conv = graph.add("c", Conv2d{6, {3, 2, 2, 1, 0, 0, 1}, 2, true}, {Graph::kInput});
  EXPECT_EQ(graph.shape(conv), (ImageShape{(11 + 1 - 3) / 2 + 1, (9 + 1 - 2) / 2 + 1, 6}));
  EXPECT_EQ(graph.nodes()[0].parameters, 3 * 2 * 2 * 6 + 6);
}

TEST(Graph, NodesThatDoNotFitAreRefusedByName) {
  Graph graph({2, 2, 3});
  EXPECT_THROW(graph.add("big", Conv2d{8, {3, 3, 1}}, {Graph::kInput}), ConfigError);
  EXPECT_THROW(graph.add("groups", Conv2d{8, {1, 1, 1}, 2}, {Graph::kInput}), ConfigError);
  const NodeId other = graph.add("other", Conv2d{4, {}}, {Graph::kInput});
  try {
    graph.add("sum", Add{}, {Graph::kInput, other});
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("'sum'"), std::string::npos);
  }
}

}  // namespace
}  // namespace penstock
