// SPDX-License-Identifier: Apache-2.0
#include "tests/support/gpu/gpu_on_host.h"

#include "tests/support/gpu/host_driver.h"
#include "tests/support/gpu/host_planner.h"
#include "trainer/backends/gpu/backend.h"

namespace penstock {
namespace {

std::unique_ptr<Backend> make(const gpu::HostMachineOptions& machine, const Options& options) {
  return std::make_unique<gpu::GpuBackend>(std::make_shared<gpu::HostDriverLibrary>(machine),
                                           options);
}

std::unique_ptr<Backend> make_fused(const gpu::HostMachineOptions& machine) {
  return make(machine, Options("gpu", gpu::kOptions, {"gpu", {{"fused", "on"}}}));
}

}  // namespace

extern constinit const BackendEntry gpu_on_host_backend{
    .name = "gpu",
    .summary = "the gpu backend without a GPU",
    .options = gpu::kOptions,
    .make = [](const Options& options, Clock&) { return make({}, options); },
};

extern constinit const BackendEntry gpu_on_host_fused_backend{
    .name = "gpu",
    .summary = "the gpu backend without a GPU, all fused",
    .make = [](const Options&, Clock&) { return make_fused({}); },
};

extern constinit const BackendEntry gpu_on_host_hopper_backend{
    .name = "gpu",
    .summary = "the gpu backend without a GPU, fused as cuDNN can",
    .make = [](const Options&,
               Clock&) { return make_fused({.has_engine = gpu::hopper_has_engine}); },
};

}  // namespace penstock
