// SPDX-License-Identifier: Apache-2.0
// Finds and opens libpenstock_cuda.so at run time, so that the program also runs on machines
// without CUDA. A library stays open until the program ends.
#pragma once

#include <filesystem>
#include <span>

#include "trainer/backends/gpu/driver.h"

namespace penstock::gpu {

/// Opens the library once. Searches beside the program, in ../lib, in the folder above, and in the
/// system's library path. Needs no GPU until a device is opened. Throws Unavailable if the library
/// is missing, cannot be loaded, or is of another revision; the text says what to do. Thread-safe.
DriverLibrary& driver_library();

/// The library's file beside `program`, in ../lib or in the folder above; empty if there is none.
std::filesystem::path find_driver_library(const std::filesystem::path& program);

/// The folder in which NVIDIA's kernel module lists the GPUs. A machine without it has none.
inline constexpr const char* kGpus = "/proc/driver/nvidia/gpus";

/// Opens the first of the files that exists. The system searches for a bare name. If there is no
/// file, the error says whether a GPU is missing as well, which it looks up in `gpus`.
DriverLibrary& open_driver_library(std::span<const std::filesystem::path> files,
                                   const std::filesystem::path& gpus = kGpus);

}  // namespace penstock::gpu
