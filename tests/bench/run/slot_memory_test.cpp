// SPDX-License-Identifier: Apache-2.0
// Memory pages of a run's slots, and their report in the result.
#include "bench/run/run_setup.h"

#include <gtest/gtest.h>

#include <string>

#include "dataflow/host_device.h"
#include "tests/bench/run/simulated_run.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

class SlotMemoryRun : public SimulatedRun {
 protected:
  RunResult run_with(const std::string& pages) {
    config_.device = "emulated:img_per_s=12800,copy=none";
    config_.fake_location = "host";
    config_.num_batches = 110;
    config_.huge_pages = pages;
    return run();
  }
};

TEST_F(SlotMemoryRun, SmallPagesAreSmall) {
  const RunResult result = run_with("off");
  EXPECT_EQ(result.status, Status::ok) << result.reason;
  EXPECT_EQ(result.facts.at("slots_huge_page_percent"), 0);
  EXPECT_GT(result.facts.at("slots_mib"), 0);
  EXPECT_TRUE(mentions(result.notes, "slots: 3 of "));
  EXPECT_TRUE(mentions(result.notes, "(--huge-pages off)"));
}

TEST_F(SlotMemoryRun, ExplicitPagesAreHugeOrTheResultSaysWhyNot) {
  const RunResult result = run_with("explicit");
  EXPECT_EQ(result.status, Status::ok) << result.reason;
  if (!mentions(result.notes, "vm.nr_hugepages")) {
    EXPECT_EQ(result.facts.at("slots_huge_page_percent"), 100);
  }
}

TEST_F(SlotMemoryRun, UnrequestedPagesAreNotReported) {
  EXPECT_FALSE(run_with("transparent").facts.contains("slots_mib"));
}

/// A device whose driver must allocate the memory.
class DriversDevice final : public HostDevice {
 public:
  using HostDevice::HostDevice;
  Buffer allocate(std::size_t bytes, MemoryKind kind) override {
    ++allocations;
    return HostDevice::allocate(bytes, kind);
  }
  bool takes_any_memory() const noexcept override { return false; }
  int allocations = 0;
};

TEST(SlotMemory, ADriversMemoryStaysItsOwnAndOneNoteSaysSo) {
  VirtualClock clock;
  DriversDevice device(clock);
  Probe probe;
  RunConfig config;
  config.huge_pages = "explicit";
  SlotMemory memory(device, config, probe);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(memory.allocate(4096, MemoryKind::pinned).bytes().size(), 4096U);
  }
  EXPECT_EQ(device.allocations, 2);
  ASSERT_EQ(probe.notes().size(), 1U);
  EXPECT_TRUE(says(probe.notes()[0], "--huge-pages has no effect"));
}

}  // namespace
}  // namespace penstock
