// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/workbench.h"

#include <algorithm>
#include <chrono>

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
  if (settings.driver != "gpu") {
    throw ConfigError("--driver is {}; expected gpu or host", settings.driver);
  }
  // The program owns the library, so the pointer has no deleter.
  return {std::shared_ptr<void>{}, &driver_library()};
}

Workbench::Workbench(Driver& driver)
    : driver_(driver),
      stream_(driver.make_stream()),
      begin_(driver.make_event()),
      end_(driver.make_event()) {}

Workbench::~Workbench() {
  driver_.destroy(begin_);
  driver_.destroy(end_);
  driver_.destroy(stream_);
}

void Workbench::wait() {
  driver_.record(stream_, end_);
  driver_.wait_until(end_, Time::max());
}

double Workbench::finish_timing() {
  wait();
  driver_.wait_until(begin_, Time::max());
  return std::chrono::duration<double>(driver_.elapsed(begin_, end_)).count();
}

Block::Block(Workbench& bench, std::size_t bytes, MemoryKind kind)
    : bench_(bench),
      bytes_(bytes),
      kind_(kind),
      data_(bench.driver().allocate(std::max<std::size_t>(bytes, 1), kind)) {}

Block::~Block() { bench_.driver().free(data_, kind_); }

void Block::upload(std::span<const std::byte> bytes) const {
  PENSTOCK_ASSERT(bytes.size() <= bytes_);
  if (bytes.empty()) return;
  bench_.driver().copy(bench_.stream(), data_, bytes.data(), bytes.size());
  bench_.wait();
}

Bytes Block::download() const {
  Bytes bytes(bytes_);
  if (bytes.empty()) return bytes;
  bench_.driver().copy(bench_.stream(), bytes.data(), data_, bytes_);
  bench_.wait();
  return bytes;
}

}  // namespace penstock::gpu
