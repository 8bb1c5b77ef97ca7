// SPDX-License-Identifier: Apache-2.0
// Tests the data behind fusion costs, which the book keeps: plans that may not exist, and the rate
// of copies.
#include <gtest/gtest.h>

#include "dataflow/error.h"
#include "tests/support/gpu/host_driver.h"
#include "tests/support/temp_folder.h"
#include "trainer/backends/gpu/dnn_patterns.h"
#include "trainer/backends/gpu/plan_book.h"

namespace penstock::gpu {
namespace {

constexpr ConvolutionShape kShape{
    .images = 2, .channels = 8, .height = 4, .width = 4, .filters = 8};

TEST(FusionCosts, CopyRate_IsKeptWithThePlans) {
  const TempFolder folder;
  HostDriver driver;
  PlanBook book(driver.facts(), folder.path());
  EXPECT_FALSE(book.copy_rate());
  book.set_copy_rate(4.25e6);
  book.save();
  EXPECT_EQ(PlanBook(driver.facts(), folder.path()).copy_rate(), 4.25e6);
}

TEST(FusionCosts, BookWithoutACopyRate_KeepsItsPlans) {
  const TempFolder folder;
  HostDriver driver;
  PlanBook book(driver.facts(), folder.path());
  EXPECT_TRUE(find_plan(conv_forward(kShape).graph, {}, driver, book));
  book.save();
  const PlanBook again(driver.facts(), folder.path());
  EXPECT_EQ(again.size(), 1U);
  EXPECT_FALSE(again.copy_rate());
}

TEST(FusionCosts, GraphWithoutAnEngine_HasNoPlan) {
  HostDriver driver({.has_engine = [](const DnnGraph&) { return false; }});
  PlanBook book(driver.facts(), {});
  const DnnGraph graph = conv_statistics(kShape).graph;
  EXPECT_FALSE(find_plan(graph, {}, driver, book));
  EXPECT_THROW(make_plan(graph, {}, driver, book), Unavailable);
  EXPECT_EQ(book.size(), 0U);
}

}  // namespace
}  // namespace penstock::gpu
