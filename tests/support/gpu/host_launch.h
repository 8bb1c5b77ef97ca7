// SPDX-License-Identifier: Apache-2.0
// Runs the gpu backend's kernels on the host, with the same bodies, grids and blocks as on the
// device.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/backends/gpu/kernel_calls.h"
#include "trainer/backends/gpu/kernels/geometry.h"

namespace penstock::gpu {

/// Runs the call on the calling thread and blocks until it is done. Its pointers are to host
/// memory.
void run_on_host(const KernelCall& call);

/// Runs the call twice from the same memory: with blocks and threads in order, and shuffled. Throws
/// std::logic_error if the results differ in a bit, because the device may run them in any order.
void launch_on_host(const KernelCall& call, std::uint64_t seed = 1);

/// The launch that the device's launcher makes for the call.
struct HostLaunch {
  std::string kernel;  ///< its name in C++, demangled
  Geometry geometry;
};
/// Throws std::logic_error if there is no kernel for the call's types.
HostLaunch host_launch_of(const KernelCall& call);

/// Demangles a C++ symbol's name.
std::string demangled(const char* name);

}  // namespace penstock::gpu
