// SPDX-License-Identifier: Apache-2.0
// A bench of a host driver's objects, which the host driver's tests share.
#pragma once

#include <cstddef>
#include <cstring>
#include <vector>

#include "tests/support/gpu/host_driver.h"

namespace penstock::gpu {

constexpr std::size_t kCount = 16, kBytes = kCount * sizeof(float);

/// A driver with two streams, two events, two pinned blocks and two device blocks.
struct Bench {
  explicit Bench(const HostMachineOptions& options = {}) : driver(options) {
    for (StreamHandle& stream : streams) stream = driver.make_stream();
    for (EventHandle& event : events) event = driver.make_event();
    for (std::byte*& block : pinned) {
      block = driver.allocate(kBytes, MemoryKind::pinned);
      std::memset(block, 0, kBytes);
    }
    for (std::byte*& block : device) block = driver.allocate(kBytes, MemoryKind::device);
  }
  ~Bench() {
    for (std::byte* const block : pinned) driver.free(block, MemoryKind::pinned);
    for (std::byte* const block : device) driver.free(block, MemoryKind::device);
    for (const EventHandle event : events) driver.destroy(event);
    for (const StreamHandle stream : streams) driver.destroy(stream);
  }

  /// Writes to a pinned block as the host. The order of the access may be right or wrong.
  void write(std::size_t block, float value) {
    driver.host_writes({pinned[block], kBytes});
    for (std::size_t i = 0; i < kCount; ++i) reinterpret_cast<float*>(pinned[block])[i] = value;
  }
  float read(std::size_t block) {
    driver.host_reads({pinned[block], kBytes});
    return *reinterpret_cast<const float*>(pinned[block]);
  }
  void upload(std::size_t stream = 0) {
    driver.copy(streams[stream], device[0], pinned[0], kBytes);
  }
  void download(std::size_t stream = 0) {
    driver.copy(streams[stream], pinned[1], device[0], kBytes);
  }
  void record(std::size_t stream = 0, std::size_t event = 0) {
    driver.record(streams[stream], events[event]);
  }
  void wait(std::size_t stream, std::size_t event = 0) {
    driver.wait(streams[stream], events[event]);
  }
  bool reach(std::size_t event = 0, Time deadline = Time::max()) {
    return driver.wait_until(events[event], deadline);
  }
  /// Enqueues x = x + x for device[block] through a plan.
  void enqueue_doubling(std::size_t block, std::size_t stream = 0) {
    DnnGraph graph;
    const auto x = graph.add({{1, kCount, 1, 1}, DType::f32, false});
    graph.operations = {DnnPointwise{PointwiseMode::add, x, x, x}};
    const Candidate best = driver.planner().candidates(graph, {}, 1).at(0);
    const auto plan = driver.build(graph, best.choice);
    if (workspace == nullptr) {
      workspace = driver.allocate(plan->workspace_bytes(), MemoryKind::device);
    }
    driver.execute(streams[stream], *plan, std::vector{device[block]}, workspace);
  }

  HostDriver driver;
  StreamHandle streams[2] = {};
  EventHandle events[2] = {};
  std::byte *pinned[2] = {}, *device[2] = {}, *workspace = nullptr;
};

inline HostMachineOptions shuffled(std::uint64_t seed) {
  return {.timing = Timing::shuffled, .seed = seed};
}
constexpr Timing kTimings[] = {Timing::at_once, Timing::late, Timing::shuffled};

}  // namespace penstock::gpu
