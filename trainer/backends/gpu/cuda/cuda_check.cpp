// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/cuda/cuda_check.h"

#include <fmt/format.h>

#include "dataflow/error.h"

namespace penstock::gpu {
namespace {

/// CUDA's version numbers are 1000 * major + 10 * minor.
std::string version_text(int version) {
  if (version == 0) return "none";
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

/// Advice for errors that Penstock does not cause.
const char* advice_for(cudaError_t status) {
  switch (status) {
    case cudaErrorMemoryAllocation:
      return "; use a smaller batch, or end other processes that use the GPU";
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
      return "; a kernel failed, and nothing more can run on this GPU: run the command again under "
             "compute-sanitizer, and report its output";
    case cudaErrorDevicesUnavailable:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorHardwareStackError:
    case cudaErrorContained:
    case cudaErrorUnknown:
      return "; the GPU was lost or is faulty: look for its Xid in dmesg, and reset it with "
             "nvidia-smi -r before the next run";
    default:
      return "";
  }
}

}  // namespace

void check_cuda(cudaError_t status, std::string_view call, std::int32_t ordinal) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // clears the error, so that a later call does not report it again
  throw DeviceError("CUDA device {}: {} failed with {}: {}{}", ordinal, call,
                    cudaGetErrorName(status), cudaGetErrorString(status), advice_for(status));
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
