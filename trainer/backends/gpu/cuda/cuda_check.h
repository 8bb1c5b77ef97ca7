// SPDX-License-Identifier: Apache-2.0
// The one place where CUDA's error codes become exceptions, and texts of its versions.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace penstock::gpu {

/// Throws DeviceError with the device, the call, the code's name and text, and what to do, when
/// `status` is not success.
void check_cuda(cudaError_t status, std::string_view call, std::int32_t ordinal);

/// What the machine has, such as "13.0"; "none" where no driver is installed.
std::string cuda_driver_text();
/// What this library runs on.
std::string cuda_runtime_text();

}  // namespace penstock::gpu
