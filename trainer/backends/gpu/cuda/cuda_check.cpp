// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/cuda/cuda_check.h"

#include <fmt/format.h>

#include "dataflow/error.h"

namespace penstock::gpu {
namespace {

/// CUDA counts 1000 * major + 10 * minor.
std::string version_text(int version) {
  if (version == 0) return "none";
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace

void check_cuda(cudaError_t status, std::string_view call, std::int32_t ordinal) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // an error that has been reported is not reported again by a later call
  throw DeviceError(fmt::format("CUDA device {}: {} failed with {}: {}", ordinal, call,
                                cudaGetErrorName(status), cudaGetErrorString(status)));
}

std::string cuda_driver_text() {
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess) version = 0;
  return version_text(version);
}

std::string cuda_runtime_text() {
  int version = 0;
  if (cudaRuntimeGetVersion(&version) != cudaSuccess) version = CUDART_VERSION;
  return version_text(version);
}

}  // namespace penstock::gpu
