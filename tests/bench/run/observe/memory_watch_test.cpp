// SPDX-License-Identifier: Apache-2.0
#include "bench/run/observe/memory_watch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "tests/bench/run/simulated_run.h"

namespace penstock {
namespace {

constexpr std::size_t kMib = 1 << 20;

const MemoryUse* use_of(const std::vector<MemoryUse>& uses, const std::string& name) {
  const auto use = std::ranges::find(uses, name, &MemoryUse::name);
  return use == uses.end() ? nullptr : &*use;
}

TEST(MemoryWatch, KeepsThePeakAndTheLevelsOfTheWindow) {
  std::atomic<std::size_t> used = 900 * kMib;
  MemoryWatch watch({{"ring", [&]() -> std::optional<std::size_t> { return used.load(); }}});
  used = 64 * kMib;
  watch.begin();  // 900 MiB were in use before the window only
  used = 128 * kMib;
  watch.end();
  used = 500 * kMib;
  const std::vector<MemoryUse> uses = watch.uses(10);
  ASSERT_EQ(uses.size(), 1U);
  EXPECT_EQ(uses[0].peak_mib, 128);
  ASSERT_EQ(uses[0].mib.size(), 10U);
  for (const double mib : uses[0].mib) {
    EXPECT_GE(mib, 64 - 1e-6);
    EXPECT_LE(mib, 128 + 1e-6);
  }
}

TEST(MemoryWatch, ForgetsAWindowThatIsMeasuredAgainAndLeavesOutWhatIsUnknown) {
  std::atomic<std::size_t> used = 64 * kMib;
  MemoryWatch watch({{"ring", [&]() -> std::optional<std::size_t> { return used.load(); }},
                     {"device", []() -> std::optional<std::size_t> { return std::nullopt; }}});
  watch.begin();
  watch.end();
  watch.forget();
  used = 32 * kMib;
  watch.begin();
  watch.end();
  const std::vector<MemoryUse> uses = watch.uses(4);
  ASSERT_EQ(uses.size(), 1U);
  EXPECT_EQ(uses[0].peak_mib, 32);
}

TEST(MemoryWatch, KnowsThisProcessAndTheMachine) {
  MemoryWatch watch(host_memory_levels());
  watch.begin();
  watch.end();
  const std::vector<MemoryUse> uses = watch.uses(1);
  const MemoryUse *const process = use_of(uses, "process"), *const machine =
                                                                use_of(uses, "machine");
  ASSERT_NE(process, nullptr);
  ASSERT_NE(machine, nullptr);
  EXPECT_NE(use_of(uses, "page cache"), nullptr);
  EXPECT_GT(process->peak_mib, 1);
  EXPECT_GT(machine->peak_mib, 1);
}

class MemoryOfRuns : public SimulatedRun {};

TEST_F(MemoryOfRuns, DevicesHaveWhatTheRunAllocatedThere) {
  config_.num_gpus = 2;
  config_.num_batches = 20;
  config_.batch_size = 64;
  config_.device_slots = 3;
  const RunResult result = run();
  ASSERT_EQ(result.exit_code, 0) << result.reason;
  ASSERT_NE(use_of(result.memory, "process"), nullptr);
  for (const char* const name : {"device 0", "device 1"}) {
    const MemoryUse* const device = use_of(result.memory, name);
    ASSERT_NE(device, nullptr) << name;
    const ImageShape image = kTinyModel.image;
    const double batch = 64.0 * (static_cast<double>(image.elements()) + sizeof(std::int32_t));
    EXPECT_NEAR(device->peak_mib, 3 * batch / kMib, 1e-9) << "three slots; it holds no weights";
  }
}

TEST_F(MemoryOfRuns, ARunWithoutInstrumentsHasNone) {
  config_.num_batches = 5;
  config_.instrument = false;
  EXPECT_TRUE(run().memory.empty());
}

}  // namespace
}  // namespace penstock
