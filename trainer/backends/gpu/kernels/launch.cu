// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/kernels/launch.h"

#include <variant>

#include "trainer/backends/gpu/kernels/device_launch.cuh"

namespace penstock::gpu {

int launch(const KernelCall& call, void* stream) noexcept {
  return std::visit(
      [&](const auto& one) {
        return static_cast<int>(launch_on_device(one, static_cast<cudaStream_t>(stream)));
      },
      call);
}

}  // namespace penstock::gpu
