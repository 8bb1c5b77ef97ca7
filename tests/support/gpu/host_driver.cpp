// SPDX-License-Identifier: Apache-2.0
#include "tests/support/gpu/host_driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>

#include "dataflow/error.h"
#include "tests/support/gpu/host_launch.h"

namespace penstock::gpu {

class HostMachine {
 public:
  explicit HostMachine(const HostMachineOptions& given)
      : options(given),
        streams(given.timing, given.seed, given.cost, given.enqueueing, memory, order) {}

  const HostMachineOptions options;
  std::mutex mutex;  ///< guards the members below and the drivers' own members
  HappensBefore order;
  HostMemory memory{order};
  HostStreams streams;
};

namespace {

constexpr std::array kCalls = {"allocate",     "pin",           "make_stream", "copy",
                               "launch",       "execute",       "make_event",  "record",
                               "wait",         "wait_until",    "elapsed",     "build",
                               "launch_graph", "begin_capture", "end_capture"};

void check_operands(const DnnGraph& graph, std::span<std::byte* const> tensors) {
  PENSTOCK_ASSERT(tensors.size() == graph.tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto address = reinterpret_cast<std::uintptr_t>(tensors[i]);
    if (graph.tensors[i].is_virtual ? address == 0 : address != 0 && address % 16 == 0) continue;
    throw std::logic_error(
        fmt::format("cannot execute \"{}\": tensor {} is at {}; virtual ones are null, the others "
                    "aligned to 16 bytes",
                    to_text(graph), i, static_cast<const void*>(tensors[i])));
  }
}

}  // namespace

HostDriver::HostDriver(const HostMachineOptions& options)
    : HostDriver(std::make_shared<HostMachine>(options), 0) {}

HostDriver::HostDriver(std::shared_ptr<HostMachine> machine, std::int32_t ordinal)
    : machine_(std::move(machine)),
      ordinal_(ordinal),
      planner_(std::make_unique<HostPlanner>(machine_->options.has_engine,
                                             machine_->options.engines,
                                             machine_->options.first_workspace)) {
  facts_ = {.name = fmt::format("host {}", ordinal),
            .capability = 90,
            .multiprocessors = 132,
            .memory_bytes = machine_->options.memory_bytes,
            .pci_bus = fmt::format("0000:{:02x}:00.0", ordinal),
            .driver_version = "host",
            .runtime_version = "host",
            .dnn_version = "host",
            .dnn_properties = "host"};
}

HostDriver::~HostDriver() {
  const std::lock_guard lock(machine_->mutex);
  machine_->streams.run_all();
}

/// Locks the machine. Call this first in each call that may fail.
std::unique_lock<std::mutex> HostDriver::enter(std::string_view call) {
  std::unique_lock lock(machine_->mutex);
  machine_->streams.rethrow_failure();
  const auto planned = failures_.find(call);
  if (planned == failures_.end() || --planned->second > 0) return lock;
  failures_.erase(planned);
  throw DeviceError(fmt::format("{} failed on {}, as the test wants it to", call, facts_.name));
}

std::size_t HostDriver::free_bytes() const {
  const std::lock_guard lock(machine_->mutex);
  return facts_.memory_bytes - used_;
}

bool HostDriver::reach(std::int32_t ordinal) {
  const std::lock_guard lock(machine_->mutex);
  machine_->streams.forbid_in_capture("access to another device");
  return ordinal == ordinal_ || machine_->options.reach_each_other;
}

std::byte* HostDriver::allocate(std::size_t bytes, MemoryKind kind) {
  const auto lock = enter("allocate");
  machine_->streams.forbid_in_capture("an allocation");
  if (kind == MemoryKind::device) {
    if (rounded_up(bytes) > facts_.memory_bytes - used_) {
      throw DeviceError(fmt::format("cannot allocate {} bytes on {}: {} of {} are free; use less",
                                    bytes, facts_.name, facts_.memory_bytes - used_,
                                    facts_.memory_bytes));
    }
    used_ += rounded_up(bytes);
  }
  return machine_->memory.allocate(bytes, kind);
}

void HostDriver::free(std::byte* data, MemoryKind kind) noexcept {
  if (data == nullptr) return;
  const std::lock_guard lock(machine_->mutex);
  machine_->streams.run_all();
  try {
    machine_->streams.forbid_in_capture("freeing memory");
  } catch (...) {
    machine_->streams.fail(std::current_exception());
  }
  const HostMemory::Block* const block = machine_->memory.find(data);
  if (block == nullptr || block->kind != kind) {
    machine_->streams.fail(std::make_exception_ptr(
        std::logic_error("cannot free what is no block of the given kind; free each block once")));
    return;
  }
  if (kind == MemoryKind::device) used_ -= rounded_up(block->bytes);
  note_host("free", {.writes = {{data, block->bytes}}});
  machine_->memory.free(data);
}

bool HostDriver::pin(std::span<const std::byte> memory) {
  const auto lock = enter("pin");
  machine_->streams.forbid_in_capture("pinning memory");
  if (!machine_->options.pins_foreign_memory) return false;
  machine_->memory.add_foreign(memory);
  return true;
}

void HostDriver::unpin(std::span<const std::byte> memory) noexcept {
  const std::lock_guard lock(machine_->mutex);
  machine_->streams.run_all();
  note_host("unpin", {.writes = {{memory.data(), memory.size()}}});
  machine_->memory.forget_foreign(memory.data());
}

StreamHandle HostDriver::make_stream() {
  const auto lock = enter("make_stream");
  return machine_->streams.make_stream();
}
void HostDriver::destroy(StreamHandle stream) noexcept {
  const std::lock_guard lock(machine_->mutex);
  machine_->streams.destroy(stream);
}

void HostDriver::copy(StreamHandle stream, std::byte* to, const std::byte* from,
                      std::size_t bytes) {
  const auto lock = enter("copy");
  const HostMemory& memory = machine_->memory;
  const bool pageable = memory.find(to) == nullptr || memory.find(from) == nullptr;
  if (pageable) pageable_bytes_ += bytes;
  machine_->streams.enqueue(stream, {.name = "copy",
                                     .pageable = pageable,
                                     .accesses =
                                         [=] {
                                           return Accesses{{{from, bytes}}, {{to, bytes}}};
                                         },
                                     .run = [=] { std::memcpy(to, from, bytes); }});
}

void HostDriver::launch(StreamHandle stream, const KernelCall& call) {
  const auto lock = enter("launch");
  machine_->streams.enqueue(stream, {.name = name_of(call),
                                     .accesses = [call] { return accesses_of(call); },
                                     .run = [call] { run_on_host(call); }});
}

void HostDriver::execute(StreamHandle stream, const DnnPlan& plan,
                         std::span<std::byte* const> tensors, std::byte* workspace) {
  const auto lock = enter("execute");
  const auto& host_plan = static_cast<const HostPlan&>(plan);
  check_operands(*host_plan.graph, tensors);
  HostOperation operation = host_plan.operation({tensors.begin(), tensors.end()}, workspace);
  if (machine_->options.engine_cost) {
    operation.cost = [of = machine_->options.engine_cost, engine = host_plan.engine] {
      return of(engine);
    };
  }
  machine_->streams.enqueue(stream, std::move(operation));
}

EventHandle HostDriver::make_event() {
  const auto lock = enter("make_event");
  return machine_->streams.make_event();
}
void HostDriver::destroy(EventHandle event) noexcept {
  const std::lock_guard lock(machine_->mutex);
  machine_->streams.destroy(event);
}
void HostDriver::record(StreamHandle stream, EventHandle event) {
  const auto lock = enter("record");
  machine_->streams.record(stream, event);
}
void HostDriver::wait(StreamHandle stream, EventHandle event) {
  const auto lock = enter("wait");
  machine_->streams.wait(stream, event);
}
bool HostDriver::wait_until(EventHandle event, Time deadline) {
  const auto lock = enter("wait_until");
  return machine_->streams.wait_until(event, deadline);
}
Nanoseconds HostDriver::elapsed(EventHandle from, EventHandle to) {
  const auto lock = enter("elapsed");
  return machine_->streams.elapsed(from, to);
}

void HostDriver::begin_capture(StreamHandle stream) {
  const auto lock = enter("begin_capture");
  machine_->streams.begin_capture(stream);
}
GraphHandle HostDriver::end_capture(StreamHandle stream) {
  const auto lock = enter("end_capture");
  return machine_->streams.end_capture(stream);
}
void HostDriver::abandon_capture(StreamHandle stream) noexcept {
  const std::lock_guard lock(machine_->mutex);
  machine_->streams.abandon_capture(stream);
}
void HostDriver::launch(StreamHandle stream, GraphHandle graph) {
  const auto lock = enter("launch_graph");
  machine_->streams.launch(stream, graph);
}
void HostDriver::destroy(GraphHandle graph) noexcept {
  const std::lock_guard lock(machine_->mutex);
  machine_->streams.destroy(graph);
}

std::unique_ptr<DnnPlan> HostDriver::build(const DnnGraph& graph, const EngineChoice& choice) {
  const auto lock = enter("build");
  return std::make_unique<HostPlan>(graph, choice, machine_->options.engines,
                                    machine_->options.first_workspace);
}

void HostDriver::fail_at(std::string_view call, std::int32_t nth) {
  PENSTOCK_ASSERT(std::find(kCalls.begin(), kCalls.end(), call) != kCalls.end() && nth > 0);
  const std::lock_guard lock(machine_->mutex);
  failures_[std::string(call)] = nth;
}

void HostDriver::note_host(const char* what, const Accesses& accesses) {
  machine_->order.access(machine_->order.host_moment(), what, accesses);
}
void HostDriver::host_reads(std::span<const std::byte> range) {
  const std::lock_guard lock(machine_->mutex);
  note_host("read", {.reads = {{range.data(), range.size()}}});
}
void HostDriver::host_writes(std::span<const std::byte> range) {
  const std::lock_guard lock(machine_->mutex);
  note_host("write", {.writes = {{range.data(), range.size()}}});
}

std::vector<std::string> HostDriver::races() {
  const std::lock_guard lock(machine_->mutex);
  machine_->streams.run_all();
  machine_->streams.rethrow_failure();
  return machine_->order.races();
}

HostDriverLibrary::HostDriverLibrary(const HostMachineOptions& options)
    : devices_(options.devices), machine_(std::make_shared<HostMachine>(options)) {}

std::unique_ptr<HostDriver> HostDriverLibrary::open_host(std::int32_t ordinal) {
  if (ordinal < 0 || ordinal >= devices_) {
    throw DeviceError(fmt::format("cannot open device {}: this host plays {}; open one in [0, {})",
                                  ordinal, devices_, devices_));
  }
  auto driver = std::make_unique<HostDriver>(machine_, ordinal);
  {
    const std::lock_guard lock(connecting_);  // ranks open their devices concurrently
    opened_[ordinal] = driver.get();
  }
  if (on_open) on_open(*driver);
  return driver;
}

std::unique_ptr<Planner> HostDriverLibrary::make_planner(const std::string&) {
  return std::make_unique<HostPlanner>(machine_->options.has_engine);
}

CommunicatorId HostDriverLibrary::make_communicator_id() {
  if (machine_->options.connects) return {};
  throw Unavailable("the host has no library that connects GPUs");
}

std::unique_ptr<Communicator> HostDriverLibrary::make_communicator(const CommunicatorId&,
                                                                   const CommunicatorPlace& place,
                                                                   std::int32_t ordinal) {
  if (!machine_->options.connects) {
    throw Unavailable("the host has no library that connects GPUs");
  }
  const std::lock_guard lock(connecting_);
  std::shared_ptr<HostConnection> connection = connection_.lock();
  if (connection == nullptr) connection_ = connection = make_host_connection(place.size);
  return make_host_communicator(std::move(connection), place.rank, *opened_.at(ordinal));
}

}  // namespace penstock::gpu
