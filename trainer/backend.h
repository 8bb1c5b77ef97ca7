// SPDX-License-Identifier: Apache-2.0
// A backend turns a graph into steps on its kind of device.
//
// To add one: a file in backends/ that ends in `extern constinit const BackendEntry
// NAME_backend{...}`, and one line `penstock_component(backend NAME)` there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "dataflow/batch.h"
#include "dataflow/device.h"
#include "dataflow/entry.h"
#include "dataflow/options.h"
#include "trainer/graph.h"

namespace penstock {

/// Device memory; elements lie in the backend's own order.
struct Tensor {
  void* data = nullptr;
  std::size_t count = 0;
  DType dtype = DType::f32;
};

/// What a step leaves behind; written by the stream into pinned memory.
struct StepResult {
  float loss = 0;
  std::int32_t images = 0;
};

/// A graph compiled for one device. Used by one thread.
class Executable {
 public:
  virtual ~Executable() = default;
  /// All gradients, in one flat arena; empty on a device that computes none.
  virtual Tensor gradients() noexcept = 0;
  /// Enqueues forward and backward of one batch and returns at once. `batch` and `result` outlive
  /// the work: programs recorded from this call run again with what they then hold.
  virtual void run(const Batch& batch, Stream& stream, StepResult& result) = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::int32_t device_count() const = 0;
  /// Ordinal in [0, device_count). Throws DeviceError.
  virtual std::unique_ptr<Device> open(std::int32_t ordinal) = 0;
  virtual std::unique_ptr<Executable> compile(const Graph&, const BatchSpec&, Device&) = 0;
  /// What a result should say about the device: figures with their unit in the name.
  virtual std::map<std::string, double> facts() const { return {}; }
};

struct BackendEntry {
  std::string_view name{}, summary{};
  std::span<const OptionSpec> options{};
  /// Throws Unavailable where the machine lacks such a device.
  std::unique_ptr<Backend> (*make)(const Options&, Clock&) = nullptr;
};

/// Every backend of this program; generated from the component lists.
const Table<BackendEntry>& backend_table();

}  // namespace penstock
