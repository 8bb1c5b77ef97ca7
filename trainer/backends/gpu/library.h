// SPDX-License-Identifier: Apache-2.0
// Finds and opens libpenstock_cuda.so, so that the program itself runs where CUDA is not. A library
// stays open until the program ends.
#pragma once

#include <filesystem>
#include <span>

#include "trainer/backends/gpu/driver.h"

namespace penstock::gpu {

/// Beside the program, in ../lib or the folder above, or where the system looks. Opened once; it
/// needs no GPU until a device is asked for. Throws Unavailable: no such library, one that cannot
/// be loaded, or one of another revision; the text says what to do. Thread-safe.
DriverLibrary& driver_library();

/// The library's file beside `program`, in ../lib or in the folder above; empty if there is none.
std::filesystem::path find_driver_library(const std::filesystem::path& program);

/// The first of the files that is there. A bare name is searched for by the system.
DriverLibrary& open_driver_library(std::span<const std::filesystem::path> files);

}  // namespace penstock::gpu
