// SPDX-License-Identifier: Apache-2.0
// What a run is made of before its parts exist: the resolved configuration, the components by their
// entries, and the model. It makes feeders and executables for the parts and for evaluations.
//
// Allocates the slots of a host ring in the pages that --huge-pages names, and reports their place.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <utility>
#include <vector>

#include "bench/config/run_config.h"
#include "bench/run/runner.h"
#include "bench/run/trace/trace.h"
#include "dataflow/batch_ring.h"
#include "dataflow/clock.h"
#include "dataflow/device.h"
#include "dataflow/machine/memory_limit.h"
#include "dataflow/mark.h"
#include "dataflow/probe.h"
#include "feeders/feeder.h"
#include "trainer/backend.h"
#include "trainer/cluster/processes.h"
#include "trainer/graph.h"

namespace penstock {

/// The clock of the devices. After end(), which any thread may call, long exact sleeps end at once.
/// Call it for devices that only keep time: a stopped run then does not wait for a slow step.
class DeviceClock final : public Clock {
 public:
  explicit DeviceClock(Clock& clock) : clock_(clock) {}
  void end() noexcept { ended_.request_stop(); }

  Time now() const override { return clock_.now(); }
  void sleep_until(Time deadline, std::stop_token stop) override {
    clock_.sleep_until(deadline, std::move(stop));
  }
  Nanoseconds sleep_exactly_until(Time deadline, Nanoseconds spin) override;
  void wake(Gate& gate) override { clock_.wake(gate); }

 protected:
  bool wait_for_condition(std::unique_lock<std::mutex>& lock, Gate& gate, std::stop_token stop,
                          Condition ready) override {
    return clock_.wait(lock, gate, std::move(stop), ready);
  }

 private:
  Clock& clock_;
  std::stop_source ended_;
};

class RunSetup {
 public:
  /// `clock`, the entries of `components` and `trace`, if not null, must outlive the setup. `stop`
  /// ends compilations with an Error. Throws ConfigError, Unavailable.
  RunSetup(const RunConfig& typed, Clock& clock, const Runner::Components& components,
           std::stop_token stop, Trace* trace);

  cluster::Processes* processes() const noexcept { return components.processes; }
  /// True: this process has the run's first rank, which evaluates, saves and decides.
  bool is_first() const noexcept {
    return components.processes == nullptr || components.processes->launch().rank == 0;
  }
  /// True if the ranks of this process exchange only with each other.
  bool exchanges_inside() const noexcept {
    return components.processes == nullptr || components.servers != nullptr;
  }
  bool feeds_device_slots() const noexcept {
    return components.feeder->slots == MemoryKind::device;
  }
  /// True if each device has its own feeder and host ring, as each process of a
  /// data-parallel training has a loader.
  bool feeds_each_device() const;
  /// Feeders of this process that fill host slots.
  std::int32_t host_feeders() const {
    if (feeds_device_slots()) return 0;
    return feeds_each_device() ? config.num_gpus : 1;
  }
  std::int32_t global_rank(std::int32_t rank) const noexcept;
  std::int32_t neighbours() const noexcept;
  /// True if the update works in host memory, and the device has memory of its own.
  bool weights_on_host() const;
  /// Ranks that wait for each other in a step: this many consecutive ones; 0: all of them.
  std::size_t ranks_together() const;
  Order order() const;
  Marks marks(Work work, std::int32_t rank = 0) const;

  /// The data of a rank's feeder, or of the host feeder, after `first_step` steps.
  DataPlan data_plan(std::int32_t rank, std::int64_t first_step) const;
  /// Makes a feeder of the run's kind and options, for a ring of `slots` slots in the memory of
  /// `device` or of the host.
  std::unique_ptr<Feeder> make_feeder(const BatchSpec& batches, DataPlan data, Device& device,
                                      std::int32_t slots, Probe& counters);
  ExecutableSpec executable_spec(const BatchSpec& batches, std::int32_t rank) const;
  /// Compiles the model for `batches` on the rank's device. The weights are uninitialised. Shows
  /// its progress if `reports`.
  std::unique_ptr<Executable> compile(const BatchSpec& batches, std::int32_t rank, Device& device,
                                      bool reports = true);

  const Runner::Components components;
  RunConfig config;  ///< resolved
  Clock& clock;
  DeviceClock device_clock;
  Trace* const trace;  ///< for the first steps of the window; null: no trace
  Probe probe;
  std::unique_ptr<Backend> backend;
  BatchSpec spec;
  Graph graph;
  const std::stop_token stop;
  const Options feeder_options;
};

/// Sets the ranks of a plan: those of a process's device, or those of processes whose devices share
/// a feeder.
void place_feeder(DataPlan& data, const RunConfig& config, const cluster::Processes* processes,
                  bool each_device, std::int32_t device);

/// Host memory for all processes of this machine. Memory of exchanges and libraries is unknown
/// here, but small in comparison. `devices_are_host`: slots of the devices' rings are host memory.
std::vector<MemoryNeed> memory_needs(const RunSetup& setup, bool devices_are_host);

/// A device whose pinned memory is what the configuration asks for: in the pages of --huge-pages,
/// and pageable without --pinned-memory. If explicit huge pages are not available, or the device's
/// driver must allocate the memory itself, it uses the device's memory. A note says which flag has
/// no effect.
class SlotMemory final : public Device {
 public:
  /// All arguments must outlive this object.
  SlotMemory(Device& device, const RunConfig& config, Probe& probe);
  Buffer allocate(std::size_t bytes, MemoryKind kind) override;
  std::unique_ptr<MemoryPin> pin(std::span<const std::byte> memory) override {
    return config_.pinned_memory ? device_.pin(memory) : Device::pin(memory);
  }
  bool takes_any_memory() const noexcept override { return device_.takes_any_memory(); }
  std::unique_ptr<Stream> make_stream() override { return device_.make_stream(); }
  std::unique_ptr<Event> make_event() override { return device_.make_event(); }

 private:
  void say_once(const char* sentence);

  Device& device_;
  const RunConfig& config_;
  Probe& probe_;
  bool said_ = false;
};

/// Adds a note and the facts slots_mib, slots_huge_page_percent, and slot_0_node and so on if the
/// kernel reports them.
void add_slot_map(RunResult& result, const BatchRing& ring);

}  // namespace penstock
