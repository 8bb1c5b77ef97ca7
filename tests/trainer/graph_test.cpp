// SPDX-License-Identifier: Apache-2.0
#include "trainer/graph.h"

#include <gtest/gtest.h>

#include "dataflow/error.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

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
  EXPECT_TRUE(says(thrown_by<ConfigError>([&] {
                     graph.add("sum", Add{}, {Graph::kInput, other});
                   }),
                   "'sum'"));
}

}  // namespace
}  // namespace penstock
