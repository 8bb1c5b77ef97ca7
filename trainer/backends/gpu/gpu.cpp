// SPDX-License-Identifier: Apache-2.0
// Registers the gpu backend: cuDNN's convolutions and Penstock's own kernels on a static memory
// plan. A step is recorded once and then launched as one graph.
#include "trainer/backends/gpu/backend.h"
#include "trainer/backends/gpu/library.h"
#include "trainer/backends/gpu/nvml.h"

namespace penstock {

extern constinit const BackendEntry gpu_backend{
    .name = "gpu",
    .summary = "trains on GPUs with cuDNN, in fp16, bf16, tf32 or fp32",
    .options = gpu::kOptions,
    .exchanges_gradients = true,
    .make = [](const Options& options, Clock&) -> std::unique_ptr<Backend> {
      // The library stays open until the program ends, so this pointer needs no deleter.
      const std::shared_ptr<gpu::DriverLibrary> library(&gpu::driver_library(), [](auto*) {});
      return std::make_unique<gpu::GpuBackend>(library, options, gpu::nvml_functions());
    },
};

}  // namespace penstock
