// SPDX-License-Identifier: Apache-2.0
#include "tests/support/gpu/gpu_on_host.h"

#include <array>

#include "tests/support/gpu/host_driver.h"
#include "tests/support/gpu/host_planner.h"
#include "trainer/backends/gpu/backend.h"

namespace penstock {
namespace {

std::unique_ptr<Backend> make(const gpu::HostMachineOptions& machine, const Options& options) {
  return std::make_unique<gpu::GpuBackend>(std::make_shared<gpu::HostDriverLibrary>(machine),
                                           options);
}

constexpr auto kFusedOptions = [] {
  std::array options = std::to_array(gpu::kOptions);
  for (OptionSpec& option : options) {
    if (option.name == "fused" || option.name == "stem_blocks") option.fallback = "on";
  }
  return options;
}();

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
    .options = kFusedOptions,
    .make = [](const Options& options, Clock&) { return make({}, options); },
};

extern constinit const BackendEntry gpu_on_host_hopper_backend{
    .name = "gpu",
    .summary = "the gpu backend without a GPU, fused as cuDNN can",
    .options = kFusedOptions,
    .make = [](const Options& options,
               Clock&) { return make({.has_engine = gpu::hopper_has_engine}, options); },
};

}  // namespace penstock
