// SPDX-License-Identifier: Apache-2.0
// The functions of NVML that report a GPU's condition. CUDA toolkits may lack NVML's header, and
// machines without a driver lack the library. The prototypes are therefore written here from NVML's
// documentation and found in libnvidia-ml.so.1 at run time.
#pragma once

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

/// All functions return 0 for success.
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

}  // namespace penstock::gpu
