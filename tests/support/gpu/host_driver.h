// SPDX-License-Identifier: Apache-2.0
// The gpu backend's Driver without a GPU: the host's memory, our kernels' own bodies through a
// shim, and plain loops for the DNN library's graphs. What runs when is the test's choice
// (host_streams.h), every access is checked against the blocks of memory and against those that
// nothing orders it with (happens_before.h), device memory begins as NaN, workspaces are scribbled
// over, and each call can be made to fail.
//
// It is stricter than a GPU where luck could hide a mistake there: elapsed() asks for events that
// somebody waited for, pageable copies run as late as others, and free() is no wait.
//
// Thread-safety: as Driver says; one mutex guards all drivers of a machine, also while work runs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/gpu/host_communicator.h"
#include "tests/support/gpu/host_planner.h"
#include "tests/support/gpu/host_streams.h"
#include "trainer/backends/gpu/driver.h"

namespace penstock::gpu {

struct HostMachineOptions {
  Timing timing = Timing::late;
  std::uint64_t seed = 1;  ///< of Timing::shuffled
  std::int32_t devices = 1;
  std::size_t memory_bytes = std::size_t{1} << 30U;  ///< of each device
  HasEngine has_engine{};
  bool reach_each_other = true;  ///< devices: each other's memory
  bool connects = false;         ///< devices, by communicators, of which all ranks are connected
  bool pins_foreign_memory = true;
  /// 1 GB/s by default.
  HostStreams::Cost cost = [](std::size_t bytes) { return Nanoseconds(bytes + 1); };
  std::int64_t engines = 1;  ///< of the DNN library, for each graph
  /// Of one run of a plan, by its engine: 0, then 2 and on; 1 is tf32's. Empty: as `cost` says.
  std::function<Nanoseconds(std::int64_t engine)> engine_cost{};
  Nanoseconds enqueueing{0};  ///< what the host takes to enqueue one operation
};

/// What drivers that may use each other's events and memory share.
class HostMachine;

class HostDriver final : public Driver {
 public:
  explicit HostDriver(const HostMachineOptions& options = {});
  HostDriver(std::shared_ptr<HostMachine> machine, std::int32_t ordinal);
  /// Runs what is still enqueued.
  ~HostDriver() override;

  const DeviceFacts& facts() const noexcept override { return facts_; }
  std::size_t free_bytes() const override;
  bool reach(std::int32_t ordinal) override;
  std::byte* allocate(std::size_t bytes, MemoryKind kind) override;
  /// Counts as a write of the host: nothing may still use the block. Runs all that is enqueued.
  void free(std::byte* data, MemoryKind kind) noexcept override;
  bool pin(std::span<const std::byte> memory) override;
  /// Counts as a write of the host, as free does.
  void unpin(std::span<const std::byte> memory) noexcept override;

  StreamHandle make_stream() override;
  void destroy(StreamHandle stream) noexcept override;
  void copy(StreamHandle stream, std::byte* to, const std::byte* from, std::size_t bytes) override;
  void launch(StreamHandle stream, const KernelCall& call) override;
  void execute(StreamHandle stream, const DnnPlan& plan, std::span<std::byte* const> tensors,
               std::byte* workspace) override;

  EventHandle make_event() override;
  void destroy(EventHandle event) noexcept override;
  void record(StreamHandle stream, EventHandle event) override;
  void wait(StreamHandle stream, EventHandle event) override;
  /// A deadline at or before Time{} asks only, and runs one operation at most.
  bool wait_until(EventHandle event, Time deadline) override;
  Nanoseconds elapsed(EventHandle from, EventHandle to) override;

  void begin_capture(StreamHandle stream) override;
  GraphHandle end_capture(StreamHandle stream) override;
  void abandon_capture(StreamHandle stream) noexcept override;
  void launch(StreamHandle stream, GraphHandle graph) override;
  void destroy(GraphHandle graph) noexcept override;

  Planner& planner() override { return *planner_; }
  std::unique_ptr<DnnPlan> build(const DnnGraph& graph, const EngineChoice& choice) override;

  /// How many candidates the planner was asked for, by call.
  const std::vector<std::size_t>& asked_for() const noexcept { return planner_->asked_for(); }
  /// The nth call from now (the first is 1) throws DeviceError instead. `call` is the function's
  /// name; launches of recordings are "launch_graph".
  void fail_at(std::string_view call, std::int32_t nth);
  /// The host is about to touch memory that streams touch, too. The ranges are noted, not touched.
  void host_reads(std::span<const std::byte> range);
  void host_writes(std::span<const std::byte> range);
  /// Runs all that is enqueued, on all drivers of the machine; then HappensBefore::races(). Throws
  /// what work threw.
  std::vector<std::string> races();

 private:
  void enter(std::string_view call);
  void note_host(const char* what, const Accesses& accesses);

  std::shared_ptr<HostMachine> machine_;
  const std::int32_t ordinal_;
  DeviceFacts facts_;
  std::unique_ptr<HostPlanner> planner_;
  std::size_t used_ = 0;  ///< bytes of device memory
  std::map<std::string, std::int32_t, std::less<>> failures_;
};

class HostDriverLibrary : public DriverLibrary {
 public:
  explicit HostDriverLibrary(const HostMachineOptions& options = {});
  std::int32_t device_count() override { return devices_; }
  std::unique_ptr<Driver> open(std::int32_t ordinal) override { return open_host(ordinal); }
  /// Told of each driver that is opened. May be empty.
  std::function<void(HostDriver&)> on_open{};
  std::unique_ptr<HostDriver> open_host(std::int32_t ordinal);
  std::unique_ptr<Planner> make_planner(const std::string& properties) override;
  /// Both throw Unavailable unless the machine connects its devices.
  CommunicatorId make_communicator_id() override;
  std::unique_ptr<Communicator> make_communicator(const CommunicatorId& id,
                                                  const CommunicatorPlace& place,
                                                  std::int32_t ordinal) override;

 private:
  std::int32_t devices_;
  HasEngine has_engine_;
  std::shared_ptr<HostMachine> machine_;
  std::mutex connecting_;
  std::weak_ptr<HostConnection> connection_;  ///< under the mutex; of the communicators
  std::map<std::int32_t, Driver*> opened_;    ///< under the mutex; by device
};

}  // namespace penstock::gpu
