// SPDX-License-Identifier: Apache-2.0
// Files of graphs, read back.
#include "bench/run/trace/graph_file.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

Graph resnet50() { return build_graph(find_entry(model_table(), "resnet50"), {224, 224, 3}, 1000); }

TEST(GraphFile, InJsonHasEveryNodeWithItsEdgesParametersAndWork) {
  const Graph graph = resnet50();
  const auto json = nlohmann::json::parse(graph_text(graph, "resnet50", ".json"));
  EXPECT_EQ(json["model"], "resnet50");
  EXPECT_EQ(json["input"], (std::vector<int>{224, 224, 3}));
  ASSERT_EQ(json["nodes"].size(), graph.nodes().size());
  std::set<std::string> known{"input"};
  double macs = 0;
  std::int64_t parameters = 0;
  for (const auto& node : json["nodes"]) {
    for (const auto& input : node["inputs"]) EXPECT_TRUE(known.contains(input)) << node;
    EXPECT_TRUE(known.insert(node["name"]).second) << "a name twice: " << node;
    macs += node["forward_macs"].get<double>();
    parameters += node["parameters"].get<std::int64_t>();
  }
  EXPECT_EQ(parameters, json["parameter_count"]);
  EXPECT_EQ(parameters, 25'557'032) << "of ResNet-50";
  EXPECT_DOUBLE_EQ(macs, json["forward_macs_per_image"].get<double>());
  EXPECT_EQ(json["nodes"][0]["op"], "conv2d");
  EXPECT_EQ(json["nodes"][0]["shape"], (std::vector<int>{112, 112, 64}));
  EXPECT_EQ(json["parameters"].size(), graph.parameters().size());
}

TEST(GraphFile, ForGraphvizHasALineForEachNodeAndEdge) {
  const Graph graph = resnet50();
  std::size_t edges = 0, expected = 0, nodes = 0;
  for (const Node& node : graph.nodes()) expected += node.inputs.size();
  std::istringstream text(graph_text(graph, "resnet50", ".dot"));
  std::string line, last;
  std::getline(text, line);
  EXPECT_EQ(line, "digraph \"resnet50\" {");
  for (; std::getline(text, line); last = line) {
    edges += says(line, "\" -> \"") ? 1 : 0;
    nodes += says(line, " [label=\"") ? 1 : 0;
  }
  EXPECT_EQ(edges, expected);
  EXPECT_EQ(nodes, graph.nodes().size() + 1) << "and the input";
  EXPECT_EQ(last, "}");
}

TEST(GraphFile, AsATableHasTotals) {
  const std::string text = graph_text(resnet50(), "resnet50", ".txt");
  EXPECT_TRUE(says(text, "25557032 parameters"));
  EXPECT_TRUE(says(text, "global_avg_pool"));
}

TEST(GraphFile, OfAnotherSuffixIsRefused) {
  EXPECT_TRUE(says(thrown_by<ConfigError>([] { return graph_text(resnet50(), "x", ".pb"); }),
                   "expected .dot"));
}

}  // namespace
}  // namespace penstock
