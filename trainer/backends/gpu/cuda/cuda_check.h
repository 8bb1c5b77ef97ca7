// SPDX-License-Identifier: Apache-2.0
// Turns CUDA's error codes into exceptions, in this one place, and formats CUDA's version numbers.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace penstock::gpu {

/// If `status` is not success, throws DeviceError with the device, the call, the code's name and
/// text, and what to do.
void check_cuda(cudaError_t status, std::string_view call, std::int32_t ordinal);

/// The CUDA version of the installed driver, such as "13.0"; "none" if no driver is installed.
std::string cuda_driver_text();
/// The version of the CUDA runtime that this library uses.
std::string cuda_runtime_text();

}  // namespace penstock::gpu
