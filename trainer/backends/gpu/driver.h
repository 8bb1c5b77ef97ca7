// SPDX-License-Identifier: Apache-2.0
// The interface between the gpu backend and a vendor: memory, streams, events, recorded graphs,
// Penstock's own kernels, the DNN library's graphs, and communicators. libpenstock_cuda.so
// implements it with CUDA and cuDNN and is opened at run time. Tests implement it with host memory
// and plain loops. Code that uses it needs no header of a vendor.
//
// Errors: every call that fails throws DeviceError with the vendor's call, its error text and the
// device. After some errors, such as an illegal memory access in a kernel, every later call fails
// as well; see expect_alive() in device.h. Thread-safety: a Driver may be used from any thread, a
// stream by one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dataflow/batch.h"
#include "dataflow/clock.h"
#include "dataflow/device.h"
#include "dataflow/error.h"
#include "dataflow/mark.h"
#include "trainer/activity.h"
#include "trainer/backends/gpu/dnn_graph.h"
#include "trainer/backends/gpu/kernel_calls.h"

namespace penstock::gpu {

using StreamHandle = struct StreamTag*;
using EventHandle = struct EventTag*;
using GraphHandle = struct GraphTag*;  ///< a recorded sequence, ready to launch

/// The GPU is lost: this process can do nothing more on it.
class DeviceLost : public DeviceError {
 public:
  using DeviceError::DeviceError;
};

/// Properties of one GPU.
struct DeviceFacts {
  std::string name;
  std::int32_t capability = 0;  ///< 10 * major + minor: 90 for an H200
  std::int32_t multiprocessors = 0;
  std::size_t memory_bytes = 0;
  std::string pci_bus{};  ///< "0000:3b:00.0": the name by which other tools of the vendor know it
  std::string driver_version, runtime_version, dnn_version;
  /// The DNN library's description of the device. With it the library can plan without the device.
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

/// The rules for which engines may compute a graph, and how one of them is chosen.
struct PlanRules {
  bool allow_tf32 = false;         ///< f32 products may be rounded to tf32
  bool deterministic = false;      ///< only engines that give the same bits in each run
  bool reduced_precision = false;  ///< also engines that sum in less than f32
  std::size_t workspace_limit = std::size_t{256} << 20;
  bool autotune = true;  ///< time candidates instead of taking the first
  bool record = true;    ///< runs of candidates may be recorded while they are timed
};

/// An executable form of a DnnGraph.
class DnnPlan {
 public:
  virtual ~DnnPlan() = default;
  virtual std::size_t workspace_bytes() const noexcept = 0;
};

/// A choice that the library has finalised, with its properties.
struct Candidate {
  EngineChoice choice;
  std::size_t workspace_bytes = 0;
  bool deterministic = true;       ///< the same bits in each run
  bool tensor_cores = false;       ///< for f32 this means the precision of tf32
  bool reduced_precision = false;  ///< sums in less than f32
  bool compiled_at_run_time = false;
  /// Workspace of the engine that the heuristics name first, if the limit excludes it; else 0.
  std::size_t excluded_bytes = 0;
  /// The finalised plan; null: Driver::build makes it. It must be destroyed before the driver.
  std::shared_ptr<const DnnPlan> plan{};
};

/// Finds the engines that the DNN library has for a device. Needs only the device's description.
class Planner {
 public:
  virtual ~Planner() = default;
  /// At most `most` candidates that keep the rules, in the order of the library's heuristics.
  /// Empty: no engine keeps them. Returns engines that are compiled at run time only if there is no
  /// other.
  virtual std::vector<Candidate> candidates(const DnnGraph& graph, const PlanRules& rules,
                                            std::size_t most) = 0;
};

/// One GPU.
class Driver {
 public:
  virtual ~Driver() = default;
  virtual const DeviceFacts& facts() const noexcept = 0;
  virtual std::size_t free_bytes() const = 0;
  /// Lets this GPU's kernels access the device memory of GPU `ordinal` from now on. False: this GPU
  /// cannot access it. Not while recording.
  virtual bool reach(std::int32_t ordinal) = 0;

  /// `kind` is pinned or device. The memory is aligned to 256 bytes at least.
  virtual std::byte* allocate(std::size_t bytes, MemoryKind kind) = 0;
  virtual void free(std::byte* data, MemoryKind kind) noexcept = 0;
  /// Pins whole pages of host memory that other code allocated; the memory may be read-only. From
  /// now on, copies from it run like copies from pinned memory, on every GPU. False: pinning is not
  /// possible. Not while recording.
  virtual bool pin(std::span<const std::byte> memory) = 0;
  /// Unpins the same span. All copies from it must be done.
  virtual void unpin(std::span<const std::byte> memory) noexcept = 0;

  virtual StreamHandle make_stream() = 0;
  virtual void destroy(StreamHandle stream) noexcept = 0;
  /// `to` and `from` may be pinned, device or host memory. Pageable host memory is allowed only
  /// outside of recordings, and may block.
  virtual void copy(StreamHandle stream, std::byte* to, const std::byte* from,
                    std::size_t bytes) = 0;
  virtual void launch(StreamHandle stream, const KernelCall& call) = 0;
  /// `tensors` is indexed like the tensors of the plan's graph; null for virtual ones.
  virtual void execute(StreamHandle stream, const DnnPlan& plan,
                       std::span<std::byte* const> tensors, std::byte* workspace) = 0;

  virtual EventHandle make_event() = 0;
  virtual void destroy(EventHandle event) noexcept = 0;
  virtual void record(StreamHandle stream, EventHandle event) = 0;
  virtual void wait(StreamHandle stream, EventHandle event) = 0;
  /// Blocks the thread until the event is reached or the deadline passes. False: not reached in
  /// time. An event that was never recorded counts as reached.
  virtual bool wait_until(EventHandle event, Time deadline) = 0;
  /// The time between two reached events.
  virtual Nanoseconds elapsed(EventHandle from, EventHandle to) = 0;

  /// Records the work that is enqueued on the stream until end_capture, without running it. In
  /// between: no allocation, no wait on the host, no other stream.
  virtual void begin_capture(StreamHandle stream) = 0;
  virtual GraphHandle end_capture(StreamHandle stream) = 0;
  /// Ends the capture without a result, after an error.
  virtual void abandon_capture(StreamHandle stream) noexcept = 0;
  virtual void launch(StreamHandle stream, GraphHandle graph) = 0;
  virtual void destroy(GraphHandle graph) noexcept = 0;

  /// Use the planner on the calling thread, before this thread turns to another GPU.
  virtual Planner& planner() = 0;
  virtual std::unique_ptr<DnnPlan> build(const DnnGraph& graph, const EngineChoice& choice) = 0;
};

/// The identity of a group of ranks. One rank makes it and hands it to all others.
struct CommunicatorId {
  std::array<std::byte, 128> bytes{};
};

/// A rank and the number of ranks, over all processes.
struct CommunicatorPlace {
  std::int32_t rank = 0, size = 1;
};

/// One rank's end of the vendor's library that connects GPUs (NCCL), in one process or several.
///
/// No call blocks. An operation is in progress until ready() returns true, and no other operation
/// may begin before that. Errors are DeviceError with the library's call and its error text.
/// Thread-safety: one thread at a time.
class Communicator {
 public:
  /// Aborts the operation in progress.
  virtual ~Communicator() = default;

  /// Replaces the elements in device memory by their sum over all ranks, in place. All ranks get
  /// the same bits; the library chooses the order of the additions. Elements are of `type`: f32,
  /// f16 or bf16. The other calls move f32.
  virtual void all_reduce(void* data, DType type, std::size_t count, StreamHandle stream) = 0;
  /// Replaces the root's elements by their sum over all ranks.
  virtual void reduce(float* data, std::size_t count, std::int32_t root, StreamHandle stream) = 0;
  /// Replaces the elements of all ranks by the root's.
  virtual void broadcast(float* data, std::size_t count, std::int32_t root,
                         StreamHandle stream) = 0;

  /// True if the operation that was begun (at first: the connection) is enqueued. Throws an error
  /// that the library has found since, on this rank or another; after that only abort() may be
  /// called.
  virtual bool ready() = 0;
  /// Ends the operation in progress, also on the device. No other call is allowed afterwards.
  virtual void abort() noexcept = 0;
};

/// All GPUs of the machine.
class DriverLibrary {
 public:
  virtual ~DriverLibrary() = default;
  virtual std::int32_t device_count() = 0;
  virtual std::unique_ptr<Driver> open(std::int32_t ordinal) = 0;
  /// Plans for a device that need not be present; `properties` is as in
  /// DeviceFacts::dnn_properties.
  virtual std::unique_ptr<Planner> make_planner(const std::string& properties) = 0;

  /// The marks of the vendor's profiler; null if no profiler watches the process.
  virtual const MarkFunctions* marks() noexcept { return nullptr; }
  /// Records the activity of the devices until finish_activity. One thread at a time. Returns the
  /// reason if it cannot record, else an empty string.
  virtual std::string start_activity(ActivityDetail) { return "this library records none"; }
  /// Ends recording. The devices must be idle. Empty if nothing was started.
  virtual std::vector<ActivityRecord> finish_activity() { return {}; }

  /// Throws Unavailable if there is no library that connects GPUs.
  virtual CommunicatorId make_communicator_id() = 0;
  /// Begins to connect GPU `ordinal` with the other GPUs of `id`, one GPU per rank. Each rank calls
  /// it on a thread of its own.
  virtual std::unique_ptr<Communicator> make_communicator(const CommunicatorId& id,
                                                          const CommunicatorPlace& place,
                                                          std::int32_t ordinal) = 0;
};

}  // namespace penstock::gpu
