// SPDX-License-Identifier: Apache-2.0
// The few functions of NVML that say how a GPU is doing. Toolkits lack its header and machines
// without a driver the library, so both are ours: prototypes after its documentation, found in
// libnvidia-ml.so.1 at run time. All return 0 for success.
#pragma once

namespace penstock::gpu {

using NvmlDevice = struct NvmlDeviceTag*;

/// Of the last sampling period of the driver, in percent.
struct NvmlUtilisation {
  unsigned gpu = 0, memory = 0;  ///< of the time, in which a kernel ran; in which memory was used
};

struct NvmlFunctions {
  static constexpr int kSmClock = 1, kMemoryClock = 2, kGpuSensor = 0;

  int (*init)() = nullptr;
  int (*device)(const char* pci_bus, NvmlDevice* device) = nullptr;
  int (*clock)(NvmlDevice device, int which, unsigned* mhz) = nullptr;
  int (*power)(NvmlDevice device, unsigned* milliwatts) = nullptr;
  int (*temperature)(NvmlDevice device, int sensor, unsigned* celsius) = nullptr;
  int (*utilisation)(NvmlDevice device, NvmlUtilisation* percent) = nullptr;
  int (*clock_reasons)(NvmlDevice device, unsigned long long* bits) = nullptr;
};

/// Initialised, and open until the program ends; null where there is no such library. Thread-safe.
const NvmlFunctions* nvml_functions();

}  // namespace penstock::gpu
