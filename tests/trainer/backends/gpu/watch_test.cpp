// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/watch.h"

#include <gtest/gtest.h>

#include <atomic>

#include "dataflow/machine/sampler.h"

namespace penstock::gpu {
namespace {

using namespace std::chrono_literals;

constexpr unsigned kFails = ~0U;

/// The next readings of the fake NVML's only GPU.
struct Readings {
  unsigned sm_mhz = 1980, memory_mhz = 3201, milliwatts = 650'500, celsius = 61, busy = 97;
  unsigned long long reasons = 0;
};
Readings readings;
std::atomic<int> looks = 0;

int give(unsigned value, unsigned* to) {
  *to = value;
  return value == kFails ? 1 : 0;
}

constexpr NvmlFunctions kFake{
    .init = [] { return 0; },
    .device =
        [](const char* bus, NvmlDevice* device) {
          *device = nullptr;
          return std::string(bus) == "0000:3b:00.0" ? 0 : 6;
        },
    .clock =
        [](NvmlDevice, int which, unsigned* mhz) {
          return give(which == NvmlFunctions::kSmClock ? readings.sm_mhz : readings.memory_mhz,
                      mhz);
        },
    .power = [](NvmlDevice, unsigned* value) { return give(readings.milliwatts, value); },
    .temperature = [](NvmlDevice, int, unsigned* value) { return give(readings.celsius, value); },
    .utilisation = [](NvmlDevice,
                      NvmlUtilisation* percent) { return give(readings.busy, &percent->gpu); },
    .clock_reasons =
        [](NvmlDevice, unsigned long long* bits) {
          *bits = readings.reasons;
          ++looks;
          looks.notify_all();
          return 0;
        },
    .memory =
        [](NvmlDevice, NvmlMemory* bytes) {
          *bytes = {.total = 80ULL << 30, .free = 78ULL << 30, .used = 2ULL << 30};
          return 0;
        },
};

class WatchTest : public ::testing::Test {
 protected:
  WatchTest() {
    readings = {};
    watch_.add(4, "0000:3b:00.0");
  }
  void sample_at(std::chrono::seconds second) { watch_.sample(Time(second)); }

  GpuWatch watch_{kFake};
};

TEST(ClockLimits, AreNamedBitByBit) {
  EXPECT_TRUE(clock_limits(0).empty());
  EXPECT_TRUE(clock_limits(0x1).empty()) << "an idle GPU is not throttled";
  EXPECT_EQ(clock_limits(0x4), (std::vector<std::string>{"the power limit"}));
  EXPECT_EQ(clock_limits(0x1 | 0x20 | 0x40),
            (std::vector<std::string>{"the temperature, by the driver",
                                      "the temperature, by the hardware"}));
  EXPECT_EQ(clock_limits(0x1ff).size(), 8U);
  EXPECT_TRUE(clock_limits(std::uint64_t{1} << 40).empty()) << "not known yet";
}

TEST_F(WatchTest, SaysTheLeastTheMiddleAndTheMost) {
  for (int second = 1; second <= 5; ++second) {
    readings.sm_mhz = 2000 - 10 * static_cast<unsigned>(second);
    readings.milliwatts = 600'000 + 1'000 * static_cast<unsigned>(second);
    sample_at(std::chrono::seconds(second));
  }
  const Condition condition = watch_.condition(Time(2s), Time(4s));
  EXPECT_EQ(condition.facts, (std::map<std::string, double>{{"sm_clock_mhz_min", 1960},
                                                            {"sm_clock_mhz_median", 1970},
                                                            {"memory_clock_mhz_min", 3201},
                                                            {"memory_clock_mhz_median", 3201},
                                                            {"power_w_max", 604},
                                                            {"temperature_c_max", 61},
                                                            {"gpu_busy_percent_median", 97},
                                                            {"gpu4_memory_mib_max", 2048},
                                                            {"throttled_percent", 0}}));
  EXPECT_TRUE(condition.notes.empty());
}

TEST_F(WatchTest, WarnsOfClocksThatWereThrottledInTheWindow) {
  readings.reasons = 0x40;  // before the window
  sample_at(1s);
  readings.reasons = 0;
  sample_at(2s);
  readings.reasons = 0x4;
  sample_at(3s);
  readings.reasons = 0x4 | 0x20;
  sample_at(4s);
  readings.reasons = 0x1;
  sample_at(5s);
  const Condition condition = watch_.condition(Time(2s), Time(5s));
  EXPECT_EQ(condition.facts.at("throttled_percent"), 50);
  ASSERT_EQ(condition.notes.size(), 1U);
  EXPECT_EQ(condition.notes.front(),
            "the clocks of GPU 4 were throttled in 2 of 4 samples during the window, by the "
            "power limit and the temperature, by the driver");
}

TEST_F(WatchTest, LeavesOutWhatAGpuDoesNotTell) {
  readings.milliwatts = readings.busy = kFails;
  sample_at(1s);
  const Condition condition = watch_.condition(Time(0s), Time(2s));
  EXPECT_FALSE(condition.facts.contains("power_w_max"));
  EXPECT_FALSE(condition.facts.contains("gpu_busy_percent_median"));
  EXPECT_TRUE(condition.facts.contains("sm_clock_mhz_min"));
}

TEST_F(WatchTest, SaysNothingOfAWindowWithoutALook) {
  sample_at(1s);
  const Condition condition = watch_.condition(Time(2s), Time(3s));
  EXPECT_TRUE(condition.facts.empty());
  EXPECT_TRUE(condition.notes.empty());
}

TEST(Watch, LeavesOutGpusThatNvmlDoesNotKnow) {
  readings = {};
  GpuWatch watch(kFake);
  watch.add(0, "0000:00:00.0");
  watch.sample(Time(1s));
  EXPECT_TRUE(watch.condition(Time(0s), Time(2s)).facts.empty());
}

TEST_F(WatchTest, IsSampledUntilTheSamplerEnds) {
  const Time begin = std::chrono::steady_clock::now();
  {
    looks = 0;
    const Sampler sampler([this](Time now) { watch_.sample(now); }, 1us);
    for (int seen = 0; seen < 3; seen = looks) looks.wait(seen);
  }
  EXPECT_EQ(watch_.condition(begin, Time::max()).facts.at("sm_clock_mhz_min"), 1980);
}

}  // namespace
}  // namespace penstock::gpu
