// SPDX-License-Identifier: Apache-2.0
#include "tests/support/gpu/gpu_on_host.h"

#include "tests/support/gpu/host_driver.h"
#include "trainer/backends/gpu/backend.h"

namespace penstock {

extern constinit const BackendEntry gpu_on_host_backend{
    .name = "gpu",
    .summary = "the gpu backend without a GPU",
    .options = gpu::kOptions,
    .make = [](const Options& options, Clock&) -> std::unique_ptr<Backend> {
      return std::make_unique<gpu::GpuBackend>(std::make_shared<gpu::HostDriverLibrary>(), options);
    },
};

}  // namespace penstock
