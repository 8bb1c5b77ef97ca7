// SPDX-License-Identifier: Apache-2.0
#include "dataflow/ring_monitor.h"

#include <gtest/gtest.h>

#include <numeric>

namespace penstock {
namespace {

using namespace std::chrono_literals;

TEST(LevelHistory, OfNothingIsEmpty) {
  LevelHistory history;
  history.add(3, 0ns);
  EXPECT_TRUE(history.means(10).empty());
}

TEST(LevelHistory, KeepsEveryLevelWhereItWasTaken) {
  LevelHistory history;
  for (const std::int64_t level : {0, 3, 1, 2}) history.add(level, 10ms);
  EXPECT_EQ(history.means(4), (std::vector<double>{0, 3, 1, 2}));
  EXPECT_EQ(history.means(2), (std::vector<double>{1.5, 1.5}));
}

TEST(LevelHistory, DoublesItsBinsAndLosesNothingOfTheWhole) {
  LevelHistory history;
  // 1000 s fill bins that began at 0.1 ms.
  for (int second = 0; second < 1000; ++second) history.add(second < 500 ? 1 : 4, 1s);
  const std::vector<double> means = history.means(200);
  ASSERT_EQ(means.size(), 200U);
  EXPECT_NEAR(std::accumulate(means.begin(), means.end(), 0.0) / 200, 2.5, 1e-9);
  for (std::size_t part = 0; part < 98; ++part) EXPECT_NEAR(means[part], 1, 1e-9) << part;
  for (std::size_t part = 102; part < 200; ++part) EXPECT_NEAR(means[part], 4, 1e-9) << part;
}

TEST(LevelHistory, PartsAreOfEqualLengthWhereverBinsEnd) {
  LevelHistory history;
  history.add(2, 333'333'333ns);  // the last bin is not full
  for (const std::size_t parts : {1U, 7U, 200U}) {
    for (const double mean : history.means(parts)) EXPECT_NEAR(mean, 2, 1e-9) << parts;
  }
}

TEST(LevelHistory, ForgetsOnceCleared) {
  LevelHistory history;
  history.add(5, 10s);
  history.clear();
  history.add(1, 1ms);
  EXPECT_EQ(history.means(2), (std::vector<double>{1, 1}));
}

}  // namespace
}  // namespace penstock
