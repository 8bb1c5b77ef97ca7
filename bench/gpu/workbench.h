// SPDX-License-Identifier: Apache-2.0
// A driver with one stream that runs a check's work in order, and operands in the device's memory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "bench/gpu/check_report.h"
#include "dataflow/device.h"
#include "tests/support/gpu/elements.h"
#include "trainer/backends/gpu/driver.h"

namespace penstock::gpu {

/// The machine's GPUs, or a GPU emulated on the host. Throws Unavailable if there is none.
std::shared_ptr<DriverLibrary> library_for(const CheckSettings& settings);

/// Thread-safety: one thread.
class Workbench {
 public:
  explicit Workbench(Driver& driver);
  Workbench(const Workbench&) = delete;
  Workbench& operator=(const Workbench&) = delete;
  ~Workbench();

  Driver& driver() const noexcept { return driver_; }
  StreamHandle stream() const noexcept { return stream_; }
  /// Blocks until all enqueued work is done.
  void wait();
  /// The time between two events on the stream, before and after the work that `work` enqueues.
  /// Blocks until it is done.
  template <typename Work>
  double seconds_of(const Work& work) {
    driver_.record(stream_, begin_);
    work();
    return finish_timing();
  }

 private:
  double finish_timing();

  Driver& driver_;
  const StreamHandle stream_;
  const EventHandle begin_, end_;
};

/// Device or pinned memory with RAII.
class Block {
 public:
  Block(Workbench& bench, std::size_t bytes, MemoryKind kind = MemoryKind::device);
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block();

  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return bytes_; }
  /// upload and download block.
  void upload(std::span<const std::byte> bytes) const;
  Bytes download() const;

 private:
  Workbench& bench_;
  const std::size_t bytes_;
  const MemoryKind kind_;
  std::byte* const data_;
};

}  // namespace penstock::gpu
