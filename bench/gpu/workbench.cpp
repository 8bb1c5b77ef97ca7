// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/workbench.h"

#include <algorithm>

#include "dataflow/error.h"
#include "tests/support/gpu/host_driver.h"
#include "trainer/backends/gpu/library.h"

namespace penstock::gpu {
namespace {

constexpr std::size_t kHostMemory = std::size_t{16} << 30;

}  // namespace

std::shared_ptr<DriverLibrary> library_for(const CheckSettings& settings) {
  if (settings.driver == "host") {
    return std::make_shared<HostDriverLibrary>(HostMachineOptions{.memory_bytes = kHostMemory});
  }
  // The program owns the library, so the pointer has no deleter.
  return {std::shared_ptr<void>{}, &driver_library()};
}

std::unique_ptr<Driver> open_driver(const CheckSettings& settings) {
  return library_for(settings)->open(0);
}

Block::Block(Workbench& bench, std::size_t bytes, MemoryKind kind)
    : bench_(bench),
      memory_(bench.driver().allocate(std::max<std::size_t>(bytes, 1), kind), bytes,
              [&driver = bench.driver(), kind](std::byte* data) { driver.free(data, kind); }) {}

void Block::upload(std::span<const std::byte> bytes) const {
  PENSTOCK_ASSERT(bytes.size() <= size());
  if (bytes.empty()) return;
  bench_.driver().copy(bench_.stream(), data(), bytes.data(), bytes.size());
  bench_.wait();
}

Bytes Block::download() const {
  Bytes bytes(size());
  if (bytes.empty()) return bytes;
  bench_.driver().copy(bench_.stream(), bytes.data(), data(), size());
  bench_.wait();
  return bytes;
}

}  // namespace penstock::gpu
