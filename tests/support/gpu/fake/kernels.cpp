// SPDX-License-Identifier: Apache-2.0
// Lets libpenstock_cuda.so register its kernels with libcudart.so.13 and launch them. Device code
// is ignored: the name of a registered kernel leads to the body of the same name that the host
// compiler has made (../host_launch.h).
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <map>
#include <mutex>
#include <string>
#include <typeinfo>
#include <variant>

#include "tests/support/gpu/accesses.h"
#include "tests/support/gpu/fake/machine.h"
#include "tests/support/gpu/host_launch.h"
#include "trainer/backends/gpu/kernel_calls.h"

using penstock::gpu::accesses_of;
using penstock::gpu::demangled;
using penstock::gpu::Geometry;
using penstock::gpu::host_launch_of;
using penstock::gpu::HostLaunch;
using penstock::gpu::KernelCall;
using penstock::gpu::name_of;
using penstock::gpu::run_on_host;
namespace fake = penstock::gpu::fake;
using fake::During;
using fake::Machine;
using fake::machine;

/// The handle of a kernel, which also stands for its host function.
struct CUkern_st {
  std::string name;  ///< as a C++ name
  KernelCall (*call)(const void* argument) = nullptr;
};

namespace {

template <typename Call>
KernelCall copy_of(const void* argument) {
  return *static_cast<const Call*>(argument);
}

/// Returns the function that copies the only argument of a kernel. The kernel's name ends with that
/// argument's type. Null: Penstock has no such kernel.
template <std::size_t Index = 0>
KernelCall (*call_of(const std::string& name))(const void*) {
  if constexpr (Index == std::variant_size_v<KernelCall>) {
    return nullptr;
  } else {
    using Call = std::variant_alternative_t<Index, KernelCall>;
    return name.ends_with(fmt::format("({})", demangled(typeid(Call).name())))
               ? &copy_of<Call>
               : call_of<Index + 1>(name);
  }
}

struct Registry {
  std::mutex mutex;
  std::map<const void*, CUkern_st> kernels;  ///< by host function
};
Registry& registry() {
  static auto* const all = new Registry;  // libraries unregister at exit
  return *all;
}

struct Configuration {
  dim3 grid, block;
  std::size_t shared = 0;
  cudaStream_t stream = nullptr;
};
Configuration& configuration() {
  thread_local Configuration pushed;
  return pushed;
}

bool same(const dim3& grid, const dim3& block, const Geometry& geometry) {
  const auto equal = [](unsigned have, std::int32_t want) {
    return have == static_cast<unsigned>(want);
  };
  return equal(grid.x, geometry.row_blocks) && equal(grid.y, geometry.column_blocks) &&
         grid.z == 1 && equal(block.x, geometry.threads) && block.y == 1 && block.z == 1;
}

}  // namespace

extern "C" {

void** __cudaRegisterFatBinary(void* binary) { return static_cast<void**>(binary); }
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}

void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*,
                            dim3*, dim3*, int*) {
  const std::string plain = demangled(name);
  const std::lock_guard lock(registry().mutex);
  registry().kernels[host] = {plain, call_of(plain)};
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().kernels.find(host);
  if (found == registry().kernels.end()) return cudaErrorInvalidDeviceFunction;
  *kernel = &found->second;
  return cudaSuccess;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared,
                                     CUstream_st* stream) {
  configuration() = {grid, block, shared, stream};
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared, void* stream) {
  const Configuration& pushed = configuration();
  *grid = pushed.grid;
  *block = pushed.block;
  *shared = pushed.shared;
  *static_cast<cudaStream_t*>(stream) = pushed.stream;
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               std::size_t shared, cudaStream_t stream) {
  return machine().call("cudaLaunchKernel", During::any, [&] {
    if (kernel->call == nullptr) return cudaErrorInvalidDeviceFunction;
    const KernelCall call = kernel->call(arguments[0]);
    const HostLaunch expected = host_launch_of(call);
    if (kernel->name != expected.kernel) {
      fake::say(fmt::format("{} is launched for a call of {}", kernel->name, expected.kernel));
      return cudaErrorInvalidDeviceFunction;
    }
    if (shared != 0 || !same(grid, block, expected.geometry)) {
      return cudaErrorInvalidConfiguration;
    }
    return machine().enqueue(stream, {.name = name_of(call),
                                      .accesses = [call] { return accesses_of(call); },
                                      .run = [call] { run_on_host(call); }});
  });
}

}  // extern "C"
