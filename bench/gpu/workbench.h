// SPDX-License-Identifier: Apache-2.0
// A driver with one stream, on which a check does one thing after the other, and what it computes
// on: operands that exist as bytes of the host and as memory of the device.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/gpu/check_report.h"
#include "dataflow/batch.h"
#include "dataflow/random.h"
#include "trainer/backends/gpu/driver.h"

namespace penstock::gpu {

using Bytes = std::vector<std::byte>;

/// The machine's GPUs, or a GPU played on the host. Throws Unavailable where there is none.
std::shared_ptr<DriverLibrary> library_for(const CheckSettings& settings);

/// One thread.
class Workbench {
 public:
  explicit Workbench(Driver& driver);
  Workbench(const Workbench&) = delete;
  Workbench& operator=(const Workbench&) = delete;
  ~Workbench();

  Driver& driver() const noexcept { return driver_; }
  StreamHandle stream() const noexcept { return stream_; }
  /// Until all that was enqueued is done.
  void wait();
  /// The time between two marks on the stream around what `work` enqueues. Waits for it.
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

/// Device or pinned memory that frees itself.
class Block {
 public:
  Block(Workbench& bench, std::size_t bytes, MemoryKind kind = MemoryKind::device);
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block();

  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return bytes_; }
  /// Both wait.
  void upload(std::span<const std::byte> bytes) const;
  Bytes download() const;

 private:
  Workbench& bench_;
  const std::size_t bytes_;
  const MemoryKind kind_;
  std::byte* const data_;
};

/// What elements are, and so how far two of them may lie apart.
enum class Content : std::uint8_t { f32, f16, bf16, bits, result };

Content content_of(DType type);
std::string_view name_of_type(DType type);

/// Uniform in [low, high), rounded to the type: f32, f16 or bf16.
Bytes random_elements(DType type, std::size_t count, Random& random, double low, double high);
/// Not numbers in any of those types.
Bytes poison(std::size_t bytes);
/// Elements as numbers: those of the three types, or bytes.
std::vector<double> values_of(std::span<const std::byte> bytes, Content content);

/// ||found - expected|| / ||expected||; infinite where one of them is not a number and the other is
/// another bit pattern. Of `bits`: the share of bytes that differ. Of `result`: a StepResult's.
double distance_of(std::span<const std::byte> found, std::span<const std::byte> expected,
                   Content content);

}  // namespace penstock::gpu
