// SPDX-License-Identifier: Apache-2.0
#include "tests/support/gpu/host_launch.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <typeinfo>
#include <variant>

#include "dataflow/error.h"
#include "tests/support/gpu/host_block.h"
#include "trainer/backends/gpu/kernels/bodies.h"

namespace penstock::gpu {
namespace {

struct alignas(16) SharedMemory {
  std::array<std::byte, HostBlock::kSharedBytes> bytes;
};

/// launch(Selected<Body>, Geometry, call) for the kernel of the call's types.
template <class Launch>
void select_kernel(const KernelCall& call, const Launch& launch) {
  bool selected = false;
  std::visit(
      [&](const auto& one) {
        select(one, [&](auto body, const Geometry& geometry, const auto& chosen) {
          selected = true;
          launch(body, geometry, chosen);
        });
      },
      call);
  PENSTOCK_ASSERT(selected);
}

}  // namespace

void launch_on_host(const KernelCall& call) {
  const auto memory = std::make_unique<SharedMemory>();
  select_kernel(call, [&]<class Body>(Selected<Body>, const Geometry& geometry, const auto& one) {
    PENSTOCK_ASSERT(geometry.threads >= 1 && geometry.threads <= Body::kThreads);
    for (std::int32_t column = 0; column < geometry.column_blocks; ++column) {
      for (std::int32_t row = 0; row < geometry.row_blocks; ++row) {
        HostBlock block(geometry, row, column, memory->bytes);
        Body::run(block, one);
      }
    }
  });
}

HostLaunch host_launch_of(const KernelCall& call) {
  HostLaunch launch;
  select_kernel(call, [&]<class Body, class Call>(Selected<Body>, const Geometry& geometry,
                                                  const Call&) {
    const std::string body = demangled(typeid(Body).name()), one = demangled(typeid(Call).name());
    launch = {"void penstock::gpu::kernel<" + body + ", " + one + ">(" + one + ")", geometry};
  });
  return launch;
}

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free);
  return status == 0 ? text.get() : name;
}

}  // namespace penstock::gpu
