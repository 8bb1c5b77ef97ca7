// SPDX-License-Identifier: Apache-2.0
#include "tests/support/gpu/host_launch.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <typeinfo>
#include <variant>
#include <vector>

#include "dataflow/error.h"
#include "tests/support/gpu/accesses.h"
#include "tests/support/gpu/host_block.h"
#include "trainer/backends/gpu/kernels/arena.h"
#include "trainer/backends/gpu/kernels/batch_norm.h"
#include "trainer/backends/gpu/kernels/channels.h"
#include "trainer/backends/gpu/kernels/elementwise.h"
#include "trainer/backends/gpu/kernels/lrn.h"
#include "trainer/backends/gpu/kernels/pools.h"
#include "trainer/backends/gpu/kernels/step.h"
#include "trainer/backends/gpu/kernels/update.h"

namespace penstock::gpu {
namespace {

struct alignas(16) SharedMemory {
  std::array<std::byte, HostBlock::kSharedBytes> bytes;
};

/// Calls launch(Selected<Body>, Geometry, call) with the kernel for the call's types.
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

/// `random` shuffles blocks and threads; null: they run in order.
void run(const KernelCall& call, Random* random) {
  const auto memory = std::make_unique<SharedMemory>();
  select_kernel(call, [&]<class Body>(Selected<Body>, const Geometry& geometry, const auto& one) {
    PENSTOCK_ASSERT(geometry.threads >= 1 && geometry.threads <= Body::kThreads);
    const std::int32_t blocks = geometry.row_blocks * geometry.column_blocks;
    const auto run_block = [&](std::int32_t index) {
      HostBlock block(geometry, index % geometry.row_blocks, index / geometry.row_blocks,
                      memory->bytes, random);
      Body::run(block, one);
    };
    if (random == nullptr) {
      for (std::int32_t index = 0; index < blocks; ++index) run_block(index);
    } else {
      for (const std::int32_t index : shuffled(blocks, *random)) run_block(index);
    }
  });
}

using Bytes = std::vector<std::byte>;

std::vector<Bytes> contents_of(const std::vector<MemoryRange>& ranges) {
  std::vector<Bytes> contents;
  for (const MemoryRange& range : ranges) {
    contents.emplace_back(range.begin, range.begin + range.bytes);
  }
  return contents;
}

}  // namespace

void run_on_host(const KernelCall& call) { run(call, nullptr); }

void launch_on_host(const KernelCall& call, std::uint64_t seed) {
  const std::vector<MemoryRange> written = accesses_of(call).writes;
  const std::vector<Bytes> before = contents_of(written);
  run(call, nullptr);
  const std::vector<Bytes> in_order = contents_of(written);
  for (std::size_t i = 0; i < written.size(); ++i) {
    std::ranges::copy(before[i], const_cast<std::byte*>(written[i].begin));
  }
  Random random(seed);
  run(call, &random);
  if (contents_of(written) == in_order) return;
  throw std::logic_error(name_of(call) +
                         " has other results when blocks and threads run in an order shuffled by "
                         "seed " +
                         std::to_string(seed) + ": let a barrier separate what they share");
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
