// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "dataflow/entry.h"

namespace penstock::gpu {
namespace {

struct Limit {
  std::uint64_t bit;
  const char* words;
};
/// The bit of an idle GPU (1) is not in the list: an idle GPU is not throttled.
constexpr Limit kLimits[] = {
    {0x002, "clocks that were set for applications"},
    {0x004, "the power limit"},
    {0x008, "the hardware's slowdown, for heat or power"},
    {0x010, "the slowest GPU of a synchronised group"},
    {0x020, "the temperature, by the driver"},
    {0x040, "the temperature, by the hardware"},
    {0x080, "an external power brake"},
    {0x100, "the clocks of a display"},
};

double least(std::vector<double> values) { return *std::min_element(values.begin(), values.end()); }
double most(std::vector<double> values) { return *std::max_element(values.begin(), values.end()); }
/// The upper of two middle values, so that the result is a value of the input.
double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

std::vector<std::string> clock_limits(std::uint64_t reasons) {
  std::vector<std::string> words;
  for (const Limit& limit : kLimits) {
    if ((reasons & limit.bit) != 0) words.emplace_back(limit.words);
  }
  return words;
}

// ---- samples ----------------------------------------------------------------

void GpuWatch::add(std::int32_t gpu, const std::string& pci_bus) {
  NvmlDevice device = nullptr;
  if (nvml_.device(pci_bus.c_str(), &device) != 0) return;
  const std::lock_guard lock(mutex_);
  gpus_.push_back({gpu, device});
}

GpuWatch::Sample GpuWatch::read_gpu(const Gpu& gpu, Time now) const {
  Sample sample{.time = now, .gpu = gpu.number};
  unsigned value = 0;
  const auto clock = [&](int which, double& mhz) {
    if (nvml_.clock(gpu.device, which, &value) == 0) mhz = value;
  };
  clock(NvmlFunctions::kSmClock, sample.sm_mhz);
  clock(NvmlFunctions::kMemoryClock, sample.memory_mhz);
  if (nvml_.power(gpu.device, &value) == 0) sample.watts = value / 1e3;
  if (nvml_.temperature(gpu.device, NvmlFunctions::kGpuSensor, &value) == 0) sample.celsius = value;
  NvmlUtilisation utilisation;
  if (nvml_.utilisation(gpu.device, &utilisation) == 0) sample.busy_percent = utilisation.gpu;
  NvmlMemory bytes;
  if (nvml_.memory != nullptr && nvml_.memory(gpu.device, &bytes) == 0) {
    sample.memory_mib = static_cast<double>(bytes.used) / (1 << 20);
  }
  unsigned long long reasons = 0;
  if (nvml_.clock_reasons(gpu.device, &reasons) == 0) sample.reasons = reasons;
  return sample;
}

void GpuWatch::sample(Time now) {
  std::vector<Gpu> gpus;
  {
    const std::lock_guard lock(mutex_);
    gpus = gpus_;
  }
  for (const Gpu& gpu : gpus) {
    const Sample sample = read_gpu(gpu, now);  // slow: not under the mutex
    const std::lock_guard lock(mutex_);
    samples_.push_back(sample);
  }
}

// ---- what follows from them -------------------------------------------------

std::vector<GpuWatch::Sample> GpuWatch::between(Time from, Time to) const {
  std::vector<Sample> chosen;
  const std::lock_guard lock(mutex_);
  std::copy_if(samples_.begin(), samples_.end(), std::back_inserter(chosen),
               [&](const Sample& sample) { return sample.time >= from && sample.time <= to; });
  return chosen;
}

std::map<std::string, double> GpuWatch::figures(const std::vector<Sample>& samples) {
  struct Figure {
    const char* name;
    double Sample::*of;
    double (*from)(std::vector<double>);
  };
  constexpr Figure kFigures[] = {{"sm_clock_mhz_min", &Sample::sm_mhz, least},
                                 {"sm_clock_mhz_median", &Sample::sm_mhz, median},
                                 {"memory_clock_mhz_min", &Sample::memory_mhz, least},
                                 {"memory_clock_mhz_median", &Sample::memory_mhz, median},
                                 {"power_w_max", &Sample::watts, most},
                                 {"temperature_c_max", &Sample::celsius, most},
                                 {"gpu_busy_percent_median", &Sample::busy_percent, median}};
  std::map<std::string, double> figures;
  for (const Figure& figure : kFigures) {
    std::vector<double> values;
    for (const Sample& sample : samples) {
      if (sample.*figure.of >= 0) values.push_back(sample.*figure.of);
    }
    if (!values.empty()) figures[figure.name] = figure.from(std::move(values));
  }
  for (const Sample& sample : samples) {
    if (sample.memory_mib < 0) continue;
    double& most = figures[fmt::format("gpu{}_memory_mib_max", sample.gpu)];
    most = std::max(most, sample.memory_mib);
  }
  const auto held = std::count_if(samples.begin(), samples.end(), [](const Sample& sample) {
    return !clock_limits(sample.reasons).empty();
  });
  figures["throttled_percent"] =
      100 * static_cast<double>(held) / static_cast<double>(samples.size());
  return figures;
}

std::vector<std::string> GpuWatch::warnings(const std::vector<Sample>& samples) {
  struct Held {
    int looks = 0, held = 0;
    std::uint64_t reasons = 0;
  };
  std::map<std::int32_t, Held> gpus;
  for (const Sample& sample : samples) {
    Held& gpu = gpus[sample.gpu];
    ++gpu.looks;
    gpu.held += clock_limits(sample.reasons).empty() ? 0 : 1;
    gpu.reasons |= sample.reasons;
  }
  std::vector<std::string> warnings;
  for (const auto& [number, gpu] : gpus) {
    if (gpu.held == 0) continue;
    warnings.push_back(fmt::format(
        "the clocks of GPU {} were throttled in {} of {} samples during the window, by {}", number,
        gpu.held, gpu.looks, join(clock_limits(gpu.reasons), " and ")));
  }
  return warnings;
}

Condition GpuWatch::condition(Time from, Time to) const {
  const std::vector<Sample> samples = between(from, to);
  if (samples.empty()) return {};
  return {figures(samples), warnings(samples)};
}

}  // namespace penstock::gpu
