// SPDX-License-Identifier: Apache-2.0
// A driver with one stream that runs a check's work in order, and operands in the device's memory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "bench/gpu/check_report.h"
#include "dataflow/device.h"
#include "tests/support/gpu/elements.h"
#include "trainer/backends/gpu/device.h"
#include "trainer/backends/gpu/driver.h"

namespace penstock::gpu {

/// The machine's GPUs, or a GPU emulated on the host. Throws Unavailable if this build has none.
std::shared_ptr<DriverLibrary> library_for(const CheckSettings& settings);
/// The first of them. Throws Unavailable if there is none.
std::unique_ptr<Driver> open_driver(const CheckSettings& settings);

/// Thread-safety: one thread.
class Workbench {
 public:
  explicit Workbench(Driver& driver)
      : driver_(driver), stream_(driver), begin_(driver), end_(driver) {}

  Driver& driver() const noexcept { return driver_; }
  StreamHandle stream() const noexcept { return stream_.handle(); }
  /// Blocks until all enqueued work is done.
  void wait() {
    stream_.record(end_);
    end_.wait_until(Time::max());
  }
  /// The time between two events on the stream, before and after the work that `work` enqueues.
  /// Blocks until it is done.
  template <typename Work>
  double seconds_of(const Work& work) {
    stream_.record(begin_);
    work();
    wait();
    return to_seconds(end_.since(begin_));
  }

 private:
  Driver& driver_;
  GpuStream stream_;
  GpuEvent begin_, end_;
};

/// Device or pinned memory with RAII.
class Block {
 public:
  Block(Workbench& bench, std::size_t bytes, MemoryKind kind = MemoryKind::device);

  std::byte* data() const noexcept { return memory_.bytes().data(); }
  std::size_t size() const noexcept { return memory_.bytes().size(); }
  /// upload and download block.
  void upload(std::span<const std::byte> bytes) const;
  Bytes download() const;

 private:
  Workbench& bench_;
  const Buffer memory_;
};

}  // namespace penstock::gpu
