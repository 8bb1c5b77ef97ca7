// SPDX-License-Identifier: Apache-2.0
// Everything that the gpu backend asks of a vendor, in one narrow interface: memory, streams,
// events, recorded graphs, our own kernels and the DNN library's graphs. libpenstock_cuda.so
// implements it with CUDA and cuDNN and is opened at run time; tests implement it with the host's
// memory and plain loops. No vendor's header is needed to use it.
//
// Errors: every call that fails throws DeviceError with the vendor's call, its text and the device.
// After some errors, such as a kernel's illegal access, every later call fails as well; see
// expect_alive() in device.h.
// Thread-safety: a Driver may be used from any thread, a stream by one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dataflow/clock.h"
#include "dataflow/device.h"
#include "dataflow/error.h"
#include "dataflow/mark.h"
#include "trainer/activity.h"
#include "trainer/backends/gpu/communicator.h"
#include "trainer/backends/gpu/dnn_graph.h"
#include "trainer/backends/gpu/kernel_calls.h"

namespace penstock::gpu {

using EventHandle = struct EventTag*;
using GraphHandle = struct GraphTag*;  ///< a recorded sequence, ready to be launched

/// This process can do nothing more on the GPU.
class DeviceLost : public DeviceError {
 public:
  using DeviceError::DeviceError;
};

/// What one GPU is.
struct DeviceFacts {
  std::string name;
  std::int32_t capability = 0;  ///< 10 * major + minor: 90 for an H200
  std::int32_t multiprocessors = 0;
  std::size_t memory_bytes = 0;
  std::string pci_bus{};  ///< "0000:3b:00.0", by which other tools of the vendor know it
  std::string driver_version, runtime_version, dnn_version;
  /// The DNN library's description of the device, from which it also plans where there is none.
  std::string dnn_properties;
};

/// One way to compute a DnnGraph: an engine of the library and the settings of its knobs.
struct EngineChoice {
  std::int64_t engine = -1;
  struct Knob {
    std::int64_t type = 0, value = 0;
    bool operator==(const Knob&) const = default;
  };
  std::vector<Knob> knobs;
  bool operator==(const EngineChoice&) const = default;
};

/// Which engines may compute a graph, and how one of them is chosen.
struct PlanRules {
  bool allow_tf32 = false;         ///< f32 products may be rounded to tf32
  bool deterministic = true;       ///< only engines that give the same bits in each run
  bool reduced_precision = false;  ///< engines, too, that sum in less than f32
  std::size_t workspace_limit = std::size_t{256} << 20;
  bool autotune = true;  ///< time candidates instead of taking the first
};

/// An executable form of a DnnGraph.
class DnnPlan {
 public:
  virtual ~DnnPlan() = default;
  virtual std::size_t workspace_bytes() const noexcept = 0;
};

/// A choice that the library has finalised, and what it says about it.
struct Candidate {
  EngineChoice choice;
  std::size_t workspace_bytes = 0;
  bool deterministic = true;       ///< the same bits in each run
  bool tensor_cores = false;       ///< in f32 that means tf32's precision
  bool reduced_precision = false;  ///< sums in less than f32
  bool compiled_at_run_time = false;
  /// What was finalised; null: Driver::build makes it. Ends before the driver.
  std::shared_ptr<const DnnPlan> plan{};
};

/// Knows which engines the DNN library has for a device. Needs no device, only its description.
class Planner {
 public:
  virtual ~Planner() = default;
  /// At most `most` of those that keep the rules, as the library's heuristics order them; empty:
  /// none does. Engines that are compiled at run time only if there is no other.
  virtual std::vector<Candidate> candidates(const DnnGraph& graph, const PlanRules& rules,
                                            std::size_t most) = 0;
  virtual std::string dnn_version() const = 0;
};

/// One GPU.
class Driver {
 public:
  virtual ~Driver() = default;
  virtual const DeviceFacts& facts() const noexcept = 0;
  virtual std::size_t free_bytes() const = 0;
  /// From here on, this GPU's kernels may touch the device memory of GPU `ordinal`; false: it
  /// cannot reach that. Not while recording.
  virtual bool reach(std::int32_t ordinal) = 0;

  /// `kind` is pinned or device; aligned to 256 bytes at least.
  virtual std::byte* allocate(std::size_t bytes, MemoryKind kind) = 0;
  virtual void free(std::byte* data, MemoryKind kind) noexcept = 0;
  /// Whole pages of the host's memory that somebody else allocated, and that may be readable alone:
  /// copies from it are from here on as those from pinned memory, on every GPU. False: that cannot
  /// be. Not while recording.
  virtual bool pin(std::span<const std::byte> memory) = 0;
  /// The same span, once all copies from it are done.
  virtual void unpin(std::span<const std::byte> memory) noexcept = 0;

  virtual StreamHandle make_stream() = 0;
  virtual void destroy(StreamHandle stream) noexcept = 0;
  /// Either may be pinned, device or host memory; pageable host memory is allowed outside of
  /// recordings only, and may block.
  virtual void copy(StreamHandle stream, std::byte* to, const std::byte* from,
                    std::size_t bytes) = 0;
  virtual void launch(StreamHandle stream, const KernelCall& call) = 0;
  /// `tensors` by index in the plan's graph; null for virtual ones.
  virtual void execute(StreamHandle stream, const DnnPlan& plan,
                       std::span<std::byte* const> tensors, std::byte* workspace) = 0;

  virtual EventHandle make_event() = 0;
  virtual void destroy(EventHandle event) noexcept = 0;
  virtual void record(StreamHandle stream, EventHandle event) = 0;
  virtual void wait(StreamHandle stream, EventHandle event) = 0;
  /// Blocks the thread; false: not reached in time. Never recorded counts as reached.
  virtual bool wait_until(EventHandle event, Time deadline) = 0;
  /// Of two reached events.
  virtual Nanoseconds elapsed(EventHandle from, EventHandle to) = 0;

  /// What is enqueued on the stream until end_capture is recorded, not run. In between: no
  /// allocation, no wait of the host, no other stream.
  virtual void begin_capture(StreamHandle stream) = 0;
  virtual GraphHandle end_capture(StreamHandle stream) = 0;
  /// Ends it without a result, after an error.
  virtual void abandon_capture(StreamHandle stream) noexcept = 0;
  virtual void launch(StreamHandle stream, GraphHandle graph) = 0;
  virtual void destroy(GraphHandle graph) noexcept = 0;

  /// For calls from the same thread, before it turns to another GPU.
  virtual Planner& planner() = 0;
  virtual std::unique_ptr<DnnPlan> build(const DnnGraph& graph, const EngineChoice& choice) = 0;
};

/// Every GPU of the machine.
class DriverLibrary {
 public:
  virtual ~DriverLibrary() = default;
  virtual std::int32_t device_count() = 0;
  virtual std::unique_ptr<Driver> open(std::int32_t ordinal) = 0;
  /// For a device that need not be there; `properties` as in DeviceFacts::dnn_properties.
  virtual std::unique_ptr<Planner> make_planner(const std::string& properties) = 0;

  /// Of the vendor's profiler; null where none watches the process.
  virtual const MarkFunctions* marks() noexcept { return nullptr; }
  /// Records what the devices do until finish_activity; not for two threads at once. Returns why it
  /// does not, or nothing.
  virtual std::string start_activity(ActivityDetail) { return "this library records none"; }
  /// With the devices idle; empty where nothing was started.
  virtual std::vector<ActivityRecord> finish_activity() { return {}; }

  /// Throws Unavailable where there is no library that connects GPUs.
  virtual CommunicatorId make_communicator_id() = 0;
  /// Begins to connect GPU `ordinal` with the others of that id, one GPU a rank. Called by each
  /// rank on a thread of its own.
  virtual std::unique_ptr<Communicator> make_communicator(const CommunicatorId& id,
                                                          const CommunicatorPlace& place,
                                                          std::int32_t ordinal) = 0;
};

}  // namespace penstock::gpu
