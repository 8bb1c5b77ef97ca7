// SPDX-License-Identifier: Apache-2.0
// Watches the condition of GPUs during a measurement: clocks, power, temperature and the reasons
// for throttled clocks. A Sampler samples them once a second.
//
// Thread-safety: all members may be called from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "dataflow/clock.h"
#include "trainer/backend.h"
#include "trainer/backends/gpu/nvml.h"

namespace penstock::gpu {

/// Texts for the reasons that hold the clocks back, from NVML's bits. Empty for an idle GPU and for
/// one at full speed.
std::vector<std::string> clock_limits(std::uint64_t reasons);

/// Samples of GPUs, and the figures and warnings that follow from them.
class GpuWatch {
 public:
  /// `nvml` outlives the watch.
  explicit GpuWatch(const NvmlFunctions& nvml) : nvml_(nvml) {}

  /// Watches the GPU on that bus from now on, too. Ignores a GPU that NVML does not know.
  void add(std::int32_t gpu, const std::string& pci_bus);
  /// Samples each GPU. Leaves out values that a GPU does not report.
  void sample(Time now);
  /// The condition over the samples from `from` to `to`; empty if there are none.
  Condition condition(Time from, Time to) const;

 private:
  struct Gpu {
    std::int32_t number = 0;
    NvmlDevice device = nullptr;
  };
  struct Sample {
    Time time{};
    std::int32_t gpu = 0;
    double sm_mhz = -1, memory_mhz = -1, watts = -1, celsius = -1, busy_percent = -1,
           memory_mib = -1;  // -1: unknown
    std::uint64_t reasons = 0;
  };
  Sample read_gpu(const Gpu& gpu, Time now) const;
  std::vector<Sample> between(Time from, Time to) const;
  // `samples` has at least one element.
  static std::map<std::string, double> figures(const std::vector<Sample>& samples);
  static std::vector<std::string> warnings(const std::vector<Sample>& samples);

  const NvmlFunctions& nvml_;
  mutable std::mutex mutex_;
  // Under mutex_.
  std::vector<Gpu> gpus_;
  std::vector<Sample> samples_;
};

}  // namespace penstock::gpu
