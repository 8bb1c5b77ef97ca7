// SPDX-License-Identifier: Apache-2.0
#include "bench/isolate/noise.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>
#include <string>

#include "bench/isolate/isolation.h"

namespace penstock::isolate {
namespace {

namespace fs = std::filesystem;

// Beyond these limits, noise can explain differences of about one per cent. Pressure is recorded
// but is no sign by itself, because feeding and computing threads also compete with each other.
constexpr double kHighSteal = 1;
constexpr double kHighForeign = 3;
constexpr double kHighIoPressure = 20;

/// Fields: cpu user nice system idle iowait irq softirq steal; all in ticks.
void read_ticks(const fs::path& root, NoiseReading& reading) {
  std::ifstream file(root / "proc/stat");
  std::string label;
  std::array<std::uint64_t, 8> ticks{};
  if (!(file >> label)) return;
  for (std::uint64_t& value : ticks) {
    if (!(file >> value)) return;
  }
  for (const std::uint64_t value : ticks) reading.all_ticks += value;
  reading.steal_ticks = ticks[7];
  reading.busy_ticks = reading.all_ticks - ticks[3] - ticks[4] - ticks[7];
}

/// Parses "some avg10=0.00 avg60=0.00 avg300=0.00 total=123"; returns the total in microseconds.
std::optional<std::uint64_t> pressure_us(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  const std::size_t at = line.find("total=");
  if (!line.starts_with("some") || at == std::string::npos) return std::nullopt;
  std::uint64_t total = 0;
  std::istringstream text(line.substr(at + 6));
  if (!(text >> total)) return std::nullopt;
  return total;
}

/// Returns the number after `key` in a file of "key number" lines.
std::optional<std::uint64_t> value_of(const fs::path& path, const std::string& key) {
  std::ifstream file(path);
  std::string name;
  for (std::uint64_t value = 0; file >> name >> value;) {
    if (name == key) return value;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> number_in(const fs::path& path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  if (!(file >> value)) return std::nullopt;
  return value;
}

void read_processors(const fs::path& root, NoiseReading& reading) {
  constexpr double kKhzPerMhz = 1e3;
  std::error_code missing;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(root / "sys/devices/system/cpu", missing)) {
    if (const auto khz = number_in(entry.path() / "cpufreq/scaling_cur_freq")) {
      const double mhz = static_cast<double>(*khz) / kKhzPerMhz;
      reading.mhz_low = std::min(reading.mhz_low.value_or(mhz), mhz);
      reading.mhz_high = std::max(reading.mhz_high.value_or(mhz), mhz);
    }
    if (const auto hot = number_in(entry.path() / "thermal_throttle/core_throttle_count")) {
      reading.throttles = reading.throttles.value_or(0) + *hot;
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
  read_ticks(root, reading);
  reading.cpu_pressure_us = pressure_us(root / "proc/pressure/cpu");
  reading.io_pressure_us = pressure_us(root / "proc/pressure/io");
  reading.throttles = value_of(root / "sys/fs/cgroup/cpu.stat", "nr_throttled");
  read_processors(root, reading);
  return reading;
}

double own_cpu_seconds() {
  double seconds = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    getrusage(who, &usage);
    for (const timeval& time : {usage.ru_utime, usage.ru_stime}) {
      seconds += static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    }
  }
  return seconds;
}

BlockNoise noise_between(const NoiseReading& before, const NoiseReading& after, std::size_t block) {
  BlockNoise noise;
  noise.block = block;
  if (after.all_ticks > before.all_ticks) {
    const auto all = static_cast<double>(after.all_ticks - before.all_ticks);
    const double steal =
        static_cast<double>(after.steal_ticks) - static_cast<double>(before.steal_ticks);
    const double busy =
        static_cast<double>(after.busy_ticks) - static_cast<double>(before.busy_ticks);
    const double own =
        (after.own_cpu_s - before.own_cpu_s) * static_cast<double>(sysconf(_SC_CLK_TCK));
    noise.steal_percent = 100 * std::max(0.0, steal) / all;
    noise.foreign_cpu_percent = 100 * std::max(0.0, busy - own) / all;
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

std::vector<BlockNoise> noise_of_blocks(const Measurement& measurement) {
  std::vector<BlockNoise> noise = measurement.noise;
  std::erase_if(noise,
                [&](const BlockNoise& each) { return each.block >= measurement.measured_blocks; });
  return noise;
}

bool BlockNoise::noisy() const noexcept {
  return steal_percent > kHighSteal || foreign_cpu_percent > kHighForeign ||
         io_pressure_percent.value_or(0) > kHighIoPressure || throttled;
}

}  // namespace penstock::isolate
