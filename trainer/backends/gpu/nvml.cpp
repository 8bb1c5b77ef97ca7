// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/nvml.h"

#include <dlfcn.h>

#include <type_traits>

namespace penstock::gpu {
namespace {

/// True if all functions exist and NVML is initialised.
bool load(NvmlFunctions& nvml) {
  void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return false;
  const auto find = [library](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    return function != nullptr;
  };
  // Drivers before 535 export the clock reasons only under their older name.
  find(nvml.memory, "nvmlDeviceGetMemoryInfo");
  return find(nvml.init, "nvmlInit_v2") && find(nvml.device, "nvmlDeviceGetHandleByPciBusId_v2") &&
         find(nvml.clock, "nvmlDeviceGetClockInfo") &&
         find(nvml.power, "nvmlDeviceGetPowerUsage") &&
         find(nvml.temperature, "nvmlDeviceGetTemperature") &&
         find(nvml.utilisation, "nvmlDeviceGetUtilizationRates") &&
         (find(nvml.clock_reasons, "nvmlDeviceGetCurrentClocksEventReasons") ||
          find(nvml.clock_reasons, "nvmlDeviceGetCurrentClocksThrottleReasons")) &&
         nvml.init() == 0;
}

}  // namespace

const NvmlFunctions* nvml_functions() {
  static NvmlFunctions functions;
  static const bool loaded = load(functions);
  return loaded ? &functions : nullptr;
}

}  // namespace penstock::gpu
