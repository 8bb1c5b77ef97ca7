// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/kernels/launch.h"

#include <variant>

#include "trainer/backends/gpu/kernels/device_launch.cuh"

namespace penstock::gpu {

int launch(const KernelCall& call, void* stream) noexcept {
  std::visit([&](const auto& one) { launch_on_device(one, static_cast<cudaStream_t>(stream)); },
             call);
  return static_cast<int>(cudaGetLastError());
}

}  // namespace penstock::gpu
