// SPDX-License-Identifier: Apache-2.0
#include "tests/support/gpu/host_launch.h"

#include <memory>
#include <variant>

#include "dataflow/error.h"
#include "tests/support/gpu/host_block.h"
#include "trainer/backends/gpu/kernels/bodies.h"

namespace penstock::gpu {
namespace {

struct alignas(16) SharedMemory {
  std::array<std::byte, HostBlock::kSharedBytes> bytes;
};

}  // namespace

void launch_on_host(const KernelCall& call) {
  const auto memory = std::make_unique<SharedMemory>();
  bool launched = false;  // there is a kernel for the call's types
  std::visit(
      [&](const auto& one) {
        select(one, [&]<class Body>(Selected<Body>, const Geometry& geometry, const auto& chosen) {
          launched = true;
          PENSTOCK_ASSERT(geometry.threads >= 1 && geometry.threads <= Body::kThreads);
          for (std::int32_t column = 0; column < geometry.column_blocks; ++column) {
            for (std::int32_t row = 0; row < geometry.row_blocks; ++row) {
              HostBlock block(geometry, row, column, memory->bytes);
              Body::run(block, chosen);
            }
          }
        });
      },
      call);
  PENSTOCK_ASSERT(launched);
}

}  // namespace penstock::gpu
