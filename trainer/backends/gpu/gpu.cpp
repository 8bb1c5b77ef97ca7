// SPDX-License-Identifier: Apache-2.0
// GPUs of the machine as devices that train: cuDNN's convolutions and kernels of our own on a
// static plan of memory, recorded once and launched as one graph a step.
#include "trainer/backends/gpu/backend.h"
#include "trainer/backends/gpu/library.h"
#include "trainer/backends/gpu/nvml.h"

namespace penstock {

extern constinit const BackendEntry gpu_backend{
    .name = "gpu",
    .summary = "trains on GPUs with cuDNN, in fp16, bf16, tf32 or fp32",
    .options = gpu::kOptions,
    .make = [](const Options& options, Clock&) -> std::unique_ptr<Backend> {
      // The library stays open until the program ends: nobody has to own it.
      const std::shared_ptr<gpu::DriverLibrary> library(&gpu::driver_library(), [](auto*) {});
      return std::make_unique<gpu::GpuBackend>(library, options, gpu::nvml_functions());
    },
};

}  // namespace penstock
