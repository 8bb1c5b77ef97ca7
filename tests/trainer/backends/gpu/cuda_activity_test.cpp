// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/cuda/activity.h"

#include <gtest/gtest.h>

namespace penstock::gpu {
namespace {

using namespace std::chrono_literals;

constexpr Nanoseconds kToSteady = -1000ns;

template <typename Record>
Record record_of(CUpti_ActivityKind kind) {
  Record record{};
  record.kind = kind;
  record.deviceId = 2;
  record.streamId = 13;
  record.start = 5000;
  record.end = 5750;
  return record;
}

template <typename Record>
bool convert(const Record& record, ActivityRecord& ours) {
  return to_activity(reinterpret_cast<const CUpti_Activity&>(record), kToSteady, ours);
}

void expect_place(const ActivityRecord& ours) {
  EXPECT_EQ(ours.device, 2);
  EXPECT_EQ(ours.stream, 13U);
  EXPECT_EQ(ours.begin, Time(4000ns));
  EXPECT_EQ(ours.end, Time(4750ns));
}

TEST(ActivityRecords, KernelsHaveReadableNames) {
  auto kernel = record_of<CUpti_ActivityKernel10>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  kernel.name = "_ZN8penstock3gpu9normaliseEPf";
  ActivityRecord ours;
  ASSERT_TRUE(convert(kernel, ours));
  EXPECT_EQ(ours.kind, ActivityKind::kernel);
  EXPECT_EQ(ours.name, "penstock::gpu::normalise(float*)");
  expect_place(ours);
  kernel.name = "sm90_xmma_fprop";
  ASSERT_TRUE(convert(kernel, ours));
  EXPECT_EQ(ours.name, "sm90_xmma_fprop");
  kernel.name = nullptr;
  ASSERT_TRUE(convert(kernel, ours));
  EXPECT_EQ(ours.name, "kernel");
}

TEST(ActivityRecords, CopiesAndSetsHaveTheirBytes) {
  auto copy = record_of<CUpti_ActivityMemcpy6>(CUPTI_ACTIVITY_KIND_MEMCPY);
  copy.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
  copy.bytes = 9'633'792;
  ActivityRecord ours;
  ASSERT_TRUE(convert(copy, ours));
  EXPECT_EQ(ours.kind, ActivityKind::copy);
  EXPECT_EQ(ours.name, "copy to the device");
  EXPECT_EQ(ours.bytes, 9'633'792U);
  expect_place(ours);
  auto set = record_of<CUpti_ActivityMemset4>(CUPTI_ACTIVITY_KIND_MEMSET);
  set.bytes = 4096;
  ASSERT_TRUE(convert(set, ours));
  EXPECT_EQ(ours.kind, ActivityKind::set);
  EXPECT_EQ(ours.bytes, 4096U);
  expect_place(ours);
}

TEST(ActivityRecords, GraphsHaveTheirNumber) {
  auto graph = record_of<CUpti_ActivityGraphTrace2>(CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
  graph.graphId = 4;
  ActivityRecord ours;
  ASSERT_TRUE(convert(graph, ours));
  EXPECT_EQ(ours.kind, ActivityKind::graph);
  EXPECT_EQ(ours.name, "graph 4");
  expect_place(ours);
}

TEST(ActivityRecords, WithoutTimesOrOfOtherKindsAreLeftOut) {
  auto unfinished = record_of<CUpti_ActivityKernel10>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  unfinished.end = 0;
  ActivityRecord ours;
  EXPECT_FALSE(convert(unfinished, ours));
  CUpti_Activity other{};
  other.kind = CUPTI_ACTIVITY_KIND_OVERHEAD;
  EXPECT_FALSE(to_activity(other, kToSteady, ours));
}

}  // namespace
}  // namespace penstock::gpu
