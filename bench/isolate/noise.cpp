// SPDX-License-Identifier: Apache-2.0
#include "bench/isolate/noise.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "dataflow/machine/kernel_file.h"
#include "dataflow/machine/processes.h"

namespace penstock::isolate {
namespace {

namespace fs = std::filesystem;

// Beyond these limits, noise can explain differences of about one per cent. Pressure is recorded
// but is no sign by itself, because feeding and computing threads also compete with each other.
constexpr double kHighSteal = 1;
constexpr double kHighForeign = 3;
constexpr double kHighIoPressure = 20;

void read_frequencies(const fs::path& root, NoiseReading& reading) {
  constexpr double kKhzPerMhz = 1e3;
  std::error_code missing;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(root / "sys/devices/system/cpu", missing)) {
    if (const auto khz = KernelFile(entry.path() / "cpufreq/scaling_cur_freq").number()) {
      const double mhz = static_cast<double>(*khz) / kKhzPerMhz;
      reading.mhz_low = std::min(reading.mhz_low.value_or(mhz), mhz);
      reading.mhz_high = std::max(reading.mhz_high.value_or(mhz), mhz);
    }
  }
}

template <typename T>
std::optional<double> growth(const std::optional<T>& before, const std::optional<T>& after) {
  if (!before || !after || *after < *before) return std::nullopt;
  return static_cast<double>(*after - *before);
}

}  // namespace

NoiseReading read_noise(Time now, double own_cpu_s, const fs::path& root) {
  NoiseReading reading;
  reading.time = now;
  reading.own_cpu_s = own_cpu_s;
  reading.ticks = read_cpu_ticks(root);
  reading.cpu_pressure_us = KernelFile(root / "proc/pressure/cpu").pressure_us();
  reading.io_pressure_us = KernelFile(root / "proc/pressure/io").pressure_us();
  reading.throttles = KernelFile(root / "sys/fs/cgroup/cpu.stat").value("nr_throttled");
  if (const auto hot = read_heat_throttles(root)) {
    reading.throttles = reading.throttles.value_or(0) + *hot;
  }
  read_frequencies(root, reading);
  return reading;
}

double own_cpu_seconds() {
  const pid_t caller = std::getenv("PENSTOCK_LIVE") != nullptr ? getppid() : 0;
  std::uint64_t ticks = 0;
  for (const pid_t pid : {getpid(), caller}) {
    const ProcessStat stat("/proc/" + std::to_string(pid));
    for (std::size_t i = 0; stat && i < 4; ++i) ticks += stat.number(ProcessStat::kUserTicks + i);
  }
  return static_cast<double>(ticks) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

BlockNoise noise_between(const NoiseReading& before, const NoiseReading& after, std::size_t block) {
  BlockNoise noise;
  noise.block = block;
  if (after.ticks.total > before.ticks.total) {
    const auto all = static_cast<double>(after.ticks.total - before.ticks.total);
    const double own_percent = 100 * (after.own_cpu_s - before.own_cpu_s) *
                               static_cast<double>(sysconf(_SC_CLK_TCK)) / all;
    noise.steal_percent = steal_percent(before.ticks, after.ticks);
    noise.foreign_cpu_percent =
        std::max(0.0, busy_percent(before.ticks, after.ticks) - own_percent);
  }
  const double us = std::chrono::duration<double, std::micro>(after.time - before.time).count();
  const auto percent = [&](const std::optional<double>& waited) -> std::optional<double> {
    if (!waited || !(us > 0)) return std::nullopt;
    return std::min(100.0, 100 * *waited / us);
  };
  noise.cpu_pressure_percent = percent(growth(before.cpu_pressure_us, after.cpu_pressure_us));
  noise.io_pressure_percent = percent(growth(before.io_pressure_us, after.io_pressure_us));
  noise.throttled = growth(before.throttles, after.throttles).value_or(0) > 0;
  noise.mhz_low = after.mhz_low;
  noise.mhz_high = after.mhz_high;
  return noise;
}

bool BlockNoise::noisy() const noexcept {
  return steal_percent > kHighSteal || foreign_cpu_percent > kHighForeign ||
         io_pressure_percent.value_or(0) > kHighIoPressure || throttled;
}

}  // namespace penstock::isolate
