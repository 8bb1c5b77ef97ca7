// SPDX-License-Identifier: Apache-2.0
// A driver with one stream that runs a check's work in order, and operands as bytes of the host and
// as memory of the device.
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

/// The kind of elements, which decides how two of them are compared.
enum class Content : std::uint8_t { f32, f16, bf16, bits, result };

Content content_of(DType type);
std::string_view name_of_type(DType type);

/// Random elements, uniform in [low, high), rounded to the type: f32, f16 or bf16.
Bytes random_elements(DType type, std::size_t count, Random& random, double low, double high);
/// Bytes that are NaN in each of the types.
Bytes poison(std::size_t bytes);
/// Elements as numbers: f32, f16 or bf16, or single bytes.
std::vector<double> values_of(std::span<const std::byte> bytes, Content content);

/// ||found - expected|| / ||expected||; infinite if one element is NaN and the other is another bit
/// pattern. For `bits`: the share of bytes that differ. For `result`: the distance of two
/// StepResults.
double distance_of(std::span<const std::byte> found, std::span<const std::byte> expected,
                   Content content);

}  // namespace penstock::gpu
