// SPDX-License-Identifier: Apache-2.0
// The gpu backend's Driver without a GPU. It uses the host's memory, the kernels' own bodies
// through a host launcher, and plain loops for the DNN library's graphs. The test chooses when work
// runs (host_streams.h). Every access is checked against the blocks of memory, and against
// unordered accesses (happens_before.h). Device memory begins as NaN, workspaces are overwritten,
// and each call can be made to fail.
//
// It is stricter than a GPU, on which a mistake may go unnoticed: elapsed() needs events that the
// host waited for, pageable copies run as late as others, and free() does not wait.
//
// Thread-safety: as for Driver. One mutex guards all drivers of a machine, also while work runs.
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

#include "tests/support/gpu/host_planner.h"
#include "tests/support/gpu/host_streams.h"
#include "trainer/backends/gpu/driver.h"

namespace penstock::gpu {

/// Connects GPUs, as a vendor's library connects real ones: the state that the communicators of one
/// id share. A call is enqueued on its rank's stream. It completes there when the streams of all
/// ranks have reached it. Sums are added in the order of ranks.
class HostConnection;

/// `size` is the number of ranks.
std::shared_ptr<HostConnection> make_host_connection(std::int32_t size);
/// `driver` is the rank's driver and must outlive the exchanges of all ranks.
std::unique_ptr<Communicator> make_host_communicator(std::shared_ptr<HostConnection> connection,
                                                     std::int32_t rank, Driver& driver);

struct HostMachineOptions {
  Timing timing = Timing::late;
  std::uint64_t seed = 1;  ///< for Timing::shuffled
  std::int32_t devices = 1;
  std::size_t memory_bytes = std::size_t{1} << 30U;  ///< of each device
  HasEngine has_engine{};
  bool reach_each_other = true;  ///< devices can access each other's memory
  bool connects = false;         ///< communicators connect the devices, with all as ranks
  bool pins_foreign_memory = true;
  /// The time of an operation by its bytes; 1 GB/s by default.
  HostStreams::Cost cost = [](std::size_t bytes) { return Nanoseconds(bytes + 1); };
  std::int64_t engines = 1;         ///< number of the DNN library's engines for each graph
  std::size_t first_workspace = 0;  ///< bytes that engine 0 needs in addition to the others
  /// The time of one run of a plan, by its engine. Engine 0 comes first, then 2 and higher; engine
  /// 1 computes in tf32. Empty: uses `cost`.
  std::function<Nanoseconds(std::int64_t engine)> engine_cost{};
  Nanoseconds enqueueing{0};  ///< time that the host takes to enqueue one operation or recording
};

/// The state shared by drivers that may use each other's events and memory.
class HostMachine;

class HostDriver final : public Driver {
 public:
  explicit HostDriver(const HostMachineOptions& options = {});
  HostDriver(std::shared_ptr<HostMachine> machine, std::int32_t ordinal);
  /// Runs all work that is still enqueued.
  ~HostDriver() override;

  const DeviceFacts& facts() const noexcept override { return facts_; }
  std::size_t free_bytes() const override;
  bool reach(std::int32_t ordinal) override;
  std::byte* allocate(std::size_t bytes, MemoryKind kind) override;
  /// Runs all enqueued work. Counts as a write of the host: no later work may use the block.
  void free(std::byte* data, MemoryKind kind) noexcept override;
  bool pin(std::span<const std::byte> memory) override;
  /// Counts as a write of the host, like free().
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
  /// If the deadline is at or before Time{}, runs one operation at most and does not wait.
  bool wait_until(EventHandle event, Time deadline) override;
  Nanoseconds elapsed(EventHandle from, EventHandle to) override;

  void begin_capture(StreamHandle stream) override;
  GraphHandle end_capture(StreamHandle stream) override;
  void abandon_capture(StreamHandle stream) noexcept override;
  void launch(StreamHandle stream, GraphHandle graph) override;
  void destroy(GraphHandle graph) noexcept override;

  Planner& planner() override { return *planner_; }
  std::unique_ptr<DnnPlan> build(const DnnGraph& graph, const EngineChoice& choice) override;

  /// The number of candidates that each call asked the planner for.
  const std::vector<std::size_t>& asked_for() const noexcept { return planner_->asked_for(); }
  /// Bytes copied from or to memory that no driver knows.
  std::size_t pageable_bytes() const noexcept { return pageable_bytes_; }
  /// Makes the nth call from now (the first is 1) throw DeviceError. `call` is the function's name;
  /// launches of recordings are "launch_graph".
  void fail_at(std::string_view call, std::int32_t nth);
  /// Call this before the host accesses memory that streams access, too. It notes the ranges and
  /// does not access them.
  void host_reads(std::span<const std::byte> range);
  void host_writes(std::span<const std::byte> range);
  /// Runs all enqueued work on all drivers of the machine, then returns HappensBefore::races().
  /// Throws the exceptions of that work.
  std::vector<std::string> races();

 private:
  std::unique_lock<std::mutex> enter(std::string_view call);
  void note_host(const char* what, const Accesses& accesses);

  std::shared_ptr<HostMachine> machine_;
  const std::int32_t ordinal_;
  DeviceFacts facts_;
  std::unique_ptr<HostPlanner> planner_;
  std::size_t used_ = 0;  ///< bytes of device memory
  std::size_t pageable_bytes_ = 0;
  std::map<std::string, std::int32_t, std::less<>> failures_;
};

class HostDriverLibrary : public DriverLibrary {
 public:
  explicit HostDriverLibrary(const HostMachineOptions& options = {});
  std::int32_t device_count() override { return devices_; }
  std::unique_ptr<Driver> open(std::int32_t ordinal) override { return open_host(ordinal); }
  /// Called with each driver that is opened. May be empty.
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
  std::shared_ptr<HostMachine> machine_;
  std::mutex connecting_;
  std::weak_ptr<HostConnection> connection_;  ///< shared by the communicators; under the mutex
  std::map<std::int32_t, Driver*> opened_;    ///< by device; under the mutex
};

}  // namespace penstock::gpu
