// SPDX-License-Identifier: Apache-2.0
// Noise of a block, from files in the kernel's format.
#include "bench/isolate/noise.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "tests/support/temp_folder.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

class NoiseTest : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_.path() / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  isolate::NoiseReading read(Nanoseconds after, double own_cpu_s) const {
    return isolate::read_noise(Time{} + after, own_cpu_s, root_.path());
  }

  TempFolder root_;
};

TEST_F(NoiseTest, WhatIsNotThereIsAbsentAndQuiet) {
  const isolate::BlockNoise noise = isolate::noise_between(read(0s, 0), read(10s, 1), 3);
  EXPECT_EQ(noise.block, 3U);
  EXPECT_EQ(noise.steal_percent, 0);
  EXPECT_FALSE(noise.cpu_pressure_percent);
  EXPECT_FALSE(noise.io_pressure_percent);
  EXPECT_FALSE(noise.mhz_low);
  EXPECT_FALSE(noise.throttled);
  EXPECT_FALSE(noise.noisy());
}

TEST_F(NoiseTest, StealAndOtherProcessesAreSharesOfAllProcessorTime) {
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  write("proc/stat", "cpu 0 0 0 0 0 0 0 0 0 0\n");
  const isolate::NoiseReading before = read(0s, 5);
  write("proc/stat", "cpu 500 0 100 300 50 0 0 50 0 0\n");
  const isolate::BlockNoise noise = isolate::noise_between(before, read(10s, 5 + 400 / ticks), 0);
  EXPECT_DOUBLE_EQ(noise.steal_percent, 5);
  EXPECT_NEAR(noise.foreign_cpu_percent, 20, 1e-9) << "600 busy ticks, 400 of them ours";
  EXPECT_TRUE(noise.noisy());
}

TEST_F(NoiseTest, OwnWorkIsNotForeign) {
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  write("proc/stat", "cpu 0 0 0 0 0 0 0 0 0 0\n");
  const isolate::NoiseReading before = read(0s, 0);
  write("proc/stat", "cpu 600 0 0 400 0 0 0 0 0 0\n");
  const isolate::BlockNoise noise = isolate::noise_between(before, read(10s, 601 / ticks), 0);
  EXPECT_EQ(noise.foreign_cpu_percent, 0);
  EXPECT_FALSE(noise.noisy());
}

TEST_F(NoiseTest, PressureIsTheShareOfTimeThatSomethingWaited) {
  write("proc/pressure/cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1000000\n");
  write("proc/pressure/io", "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull total=0\n");
  const isolate::NoiseReading before = read(0s, 0);
  write("proc/pressure/cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=3500000\n");
  write("proc/pressure/io", "some avg10=0.00 avg60=0.00 avg300=0.00 total=5000000\nfull total=0\n");
  const isolate::BlockNoise noise = isolate::noise_between(before, read(10s, 0), 0);
  ASSERT_TRUE(noise.cpu_pressure_percent);
  EXPECT_DOUBLE_EQ(*noise.cpu_pressure_percent, 25);
  ASSERT_TRUE(noise.io_pressure_percent);
  EXPECT_DOUBLE_EQ(*noise.io_pressure_percent, 50);
  EXPECT_TRUE(noise.noisy()) << "the disk was waited for";
}

TEST_F(NoiseTest, ThrottlingOfTheCgroupAndFrequenciesAreSeen) {
  write("sys/fs/cgroup/cpu.stat", "usage_usec 12\nnr_periods 4\nnr_throttled 1\n");
  write("sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "2400000\n");
  write("sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq", "3600000\n");
  const isolate::NoiseReading before = read(0s, 0);
  write("sys/fs/cgroup/cpu.stat", "usage_usec 12\nnr_periods 9\nnr_throttled 2\n");
  const isolate::BlockNoise noise = isolate::noise_between(before, read(1s, 0), 0);
  EXPECT_TRUE(noise.throttled);
  EXPECT_EQ(noise.mhz_low, 2400);
  EXPECT_EQ(noise.mhz_high, 3600);
}

TEST_F(NoiseTest, DamagedFilesAreAbsent) {
  write("proc/stat", "cpu 1 2 many\n");
  write("proc/pressure/cpu", "nothing\n");
  write("sys/fs/cgroup/cpu.stat", "");
  const isolate::NoiseReading reading = read(0s, 0);
  EXPECT_EQ(reading.ticks.total, 0U);
  EXPECT_FALSE(reading.cpu_pressure_us);
  EXPECT_FALSE(reading.throttles);
}

}  // namespace
}  // namespace penstock
