// SPDX-License-Identifier: Apache-2.0
// Tests libpenstock_cuda.so itself, in everything that needs no GPU.
#include <gtest/gtest.h>

#include "dataflow/error.h"
#include "tests/support/text_files.h"
#include "tests/support/thrown_by.h"
#include "trainer/backends/gpu/dnn_patterns.h"
#include "trainer/backends/gpu/driver.h"
#include "trainer/backends/gpu/library.h"

namespace penstock::gpu {
namespace {

TEST(CudaLibrary, OpensOnceAndStays) { EXPECT_EQ(&driver_library(), &driver_library()); }

TEST(CudaLibrary, ItsDeviceErrorsAreCaughtByTheProgram) {
  const std::string reason =
      thrown_by<DeviceError>([] { driver_library().make_planner("no description"); });
  EXPECT_TRUE(says(reason, "device from its description"));
  EXPECT_TRUE(says(reason, "CUDNN_STATUS_"));
}

TEST(CudaLibrary, WithoutAGpuSaysWhatTheMachineHasAndNeeds) {
  try {
    GTEST_SKIP() << "this machine has GPUs: " << driver_library().device_count();
  } catch (const Unavailable& error) {
    EXPECT_TRUE(says(error.what(), "no GPU that CUDA 13"));
    EXPECT_TRUE(says(error.what(), "install NVIDIA's driver"));
    EXPECT_THROW(driver_library().open(0), Unavailable);
  }
}

TEST(CudaLibrary, HasNoMarksWithoutAProfiler) { EXPECT_EQ(driver_library().marks(), nullptr); }

TEST(CudaLibrary, WithoutAGpuSaysWhyItRecordsNoActivity) {
  try {
    GTEST_SKIP() << "this machine has GPUs: " << driver_library().device_count();
  } catch (const Unavailable&) {
    for (const ActivityDetail detail : {ActivityDetail::operations, ActivityDetail::programs}) {
      EXPECT_TRUE(says(driver_library().start_activity(detail), "cupti"));
      EXPECT_TRUE(driver_library().finish_activity().empty());
    }
  }
}

TEST(CudaLibrary, NcclIsOpenedWhenItIsAskedFor) {
  const CommunicatorId first = driver_library().make_communicator_id();
  const CommunicatorId second = driver_library().make_communicator_id();
  EXPECT_NE(first.bytes, second.bytes);
}

TEST(CudaLibrary, WithoutAGpuNothingConnectsAndTheErrorNamesTheDevice) {
  try {
    driver_library().device_count();
    GTEST_SKIP() << "this machine has GPUs";
  } catch (const Unavailable&) {
  }
  const CommunicatorId id = driver_library().make_communicator_id();
  EXPECT_TRUE(says(thrown_by<DeviceError>(
                       [&] { driver_library().make_communicator(id, {.rank = 1, .size = 2}, 1); }),
                   "CUDA device 1"));
}

TEST(CudaLibrary, RefusesAGraphThatBreaksTheRulesOfCudnn) {
  const auto planner = driver_library().make_planner(read_text(PENSTOCK_H200));
  DnnPattern forward = conv_forward({.images = 8, .channels = 64, .height = 14, .width = 14});
  forward.graph.tensors[static_cast<std::size_t>(forward.y)].shape[2] = 5;
  EXPECT_THROW(planner->candidates(forward.graph, {.allow_tf32 = true}, 1), DeviceError);
}

}  // namespace
}  // namespace penstock::gpu
