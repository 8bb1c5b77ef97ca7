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

namespace penstock::gpu {

using NvmlDevice = struct NvmlDeviceTag*;

/// Percentages over the driver's last sampling period.
struct NvmlUtilisation {
  unsigned gpu = 0, memory = 0;  ///< time in which a kernel ran; time in which memory was used
};

/// In bytes. `used` is what all programs use.
struct NvmlMemory {
  unsigned long long total = 0, free = 0, used = 0;
};

/// The NVML functions that report a GPU's condition. CUDA toolkits may lack NVML's header, and
/// machines without a driver lack the library. The prototypes are therefore written here from
/// NVML's documentation and found in libnvidia-ml.so.1 at run time. All functions return 0 for
/// success.
struct NvmlFunctions {
  static constexpr int kSmClock = 1, kMemoryClock = 2, kGpuSensor = 0;

  int (*init)() = nullptr;
  int (*device)(const char* pci_bus, NvmlDevice* device) = nullptr;
  int (*clock)(NvmlDevice device, int which, unsigned* mhz) = nullptr;
  int (*power)(NvmlDevice device, unsigned* milliwatts) = nullptr;
  int (*temperature)(NvmlDevice device, int sensor, unsigned* celsius) = nullptr;
  int (*utilisation)(NvmlDevice device, NvmlUtilisation* percent) = nullptr;
  int (*clock_reasons)(NvmlDevice device, unsigned long long* bits) = nullptr;
  int (*memory)(NvmlDevice device, NvmlMemory* bytes) = nullptr;  ///< may be null
};

/// Initialised; the library stays open until the program ends. Null if there is no such library.
/// Thread-safe.
const NvmlFunctions* nvml_functions();

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
  Sample look_at(const Gpu& gpu, Time now) const;
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
