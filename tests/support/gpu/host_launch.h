// SPDX-License-Identifier: Apache-2.0
// The gpu backend's kernels, run on the host: the same bodies, grids and blocks as on the device.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/backends/gpu/kernel_calls.h"
#include "trainer/backends/gpu/kernels/geometry.h"

namespace penstock::gpu {

/// Runs the call on the calling thread and returns when it is done. Its pointers are to the host's
/// memory.
void run_on_host(const KernelCall& call);

/// Runs the call twice from the same memory: with blocks and threads in order, and shuffled. Throws
/// std::logic_error if the results differ in a bit, since the device runs them in any order.
void launch_on_host(const KernelCall& call, std::uint64_t seed = 1);

/// What the launcher for the device does for the call.
struct HostLaunch {
  std::string kernel;  ///< its name in C++, demangled
  Geometry geometry;
};
/// Throws std::logic_error if there is no kernel for the call's types.
HostLaunch host_launch_of(const KernelCall& call);

/// A C++ symbol's name in plain text.
std::string demangled(const char* name);

}  // namespace penstock::gpu
