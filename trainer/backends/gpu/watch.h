// SPDX-License-Identifier: Apache-2.0
// How GPUs are doing while others measure: clocks, power, temperature and what holds the clocks
// back, looked at once a second from a thread of low priority.
//
// Thread-safety: all members may be called from any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "dataflow/clock.h"
#include "trainer/backend.h"
#include "trainer/backends/gpu/nvml.h"

namespace penstock::gpu {

/// What holds clocks back, by NVML's bits, in words; nothing for an idle GPU or one at full speed.
std::vector<std::string> clock_limits(std::uint64_t reasons);

/// What was seen of GPUs, and what follows from it.
class GpuWatch {
 public:
  /// `nvml` outlives the watch.
  explicit GpuWatch(const NvmlFunctions& nvml) : nvml_(nvml) {}

  /// From here on, the GPU on that bus too. One that NVML does not know is left out.
  void add(std::int32_t gpu, const std::string& pci_bus);
  /// Looks at each GPU. What one does not tell is left out.
  void sample(Time now);
  /// Over the samples from `from` to `to`; empty without any.
  Condition condition(Time from, Time to) const;

 private:
  struct Gpu {
    std::int32_t number = 0;
    NvmlDevice device = nullptr;
  };
  struct Sample {
    Time time{};
    std::int32_t gpu = 0;
    double sm_mhz = -1, memory_mhz = -1, watts = -1, celsius = -1,
           busy_percent = -1;  // -1: unknown
    std::uint64_t reasons = 0;
  };
  Sample look_at(const Gpu& gpu, Time now) const;
  std::vector<Sample> between(Time from, Time to) const;
  // Of at least one sample.
  static std::map<std::string, double> figures(const std::vector<Sample>& samples);
  static std::vector<std::string> warnings(const std::vector<Sample>& samples);

  const NvmlFunctions& nvml_;
  mutable std::mutex mutex_;
  // Under mutex_.
  std::vector<Gpu> gpus_;
  std::vector<Sample> samples_;
};

/// Samples a watch every `period` for as long as it lives.
class Sampler {
 public:
  /// `watch` outlives it.
  Sampler(GpuWatch& watch, Nanoseconds period);

 private:
  void run(std::stop_token stop);

  GpuWatch& watch_;
  const Nanoseconds period_;
  std::mutex mutex_;
  std::condition_variable_any stopped_;
  std::jthread thread_;  // last: it ends first
};

}  // namespace penstock::gpu
