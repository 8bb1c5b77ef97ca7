// SPDX-License-Identifier: Apache-2.0
// Streams, events and recorded graphs whose work runs on the CPU, at a moment that a test chooses:
// as early or as late as CUDA's rules allow, or in a random order that they allow. Work runs on the
// thread that happens to wait or enqueue. Time is virtual: each operation takes what its bytes
// cost.
//
// A wait refers to the record that was made last when the wait was enqueued; a never recorded event
// is reached. What a thread enqueues between begin_capture and end_capture is kept instead of run.
// Records and waits in a recording are external nodes: each launch records the event again, or
// waits for its last record before the launch. Use that would fail or hang on a GPU throws
// std::logic_error.
//
// An operation that throws makes every later call throw the same. Thread-safety: none, guard it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dataflow/random.h"
#include "tests/support/gpu/happens_before.h"
#include "tests/support/gpu/host_memory.h"
#include "trainer/backends/gpu/driver.h"

namespace penstock::gpu {

/// at_once: while it is enqueued. late: when the host waits for it, and nothing that it need not
/// wait for. shuffled: a few operations of any stream while one is enqueued or waited for.
enum class Timing : std::uint8_t { at_once, late, shuffled };

struct HostOperation {
  std::string name{};
  bool pageable = false;  ///< may touch memory that is no driver's; cannot be recorded
  std::function<Accesses()> accesses{};
  std::function<void()> run{};
  std::function<Nanoseconds()> cost{};  ///< empty: what its bytes cost
};

class HostStreams {
 public:
  /// What an operation takes, of the bytes that it reads and writes.
  using Cost = std::function<Nanoseconds(std::size_t bytes)>;

  /// `enqueueing`: what the host takes for one operation.
  HostStreams(Timing timing, std::uint64_t seed, Cost cost, Nanoseconds enqueueing,
              HostMemory& memory, HappensBefore& order);
  HostStreams(const HostStreams&) = delete;
  HostStreams& operator=(const HostStreams&) = delete;
  ~HostStreams();

  StreamHandle make_stream();
  /// What was enqueued on it runs first.
  void destroy(StreamHandle stream) noexcept;
  void enqueue(StreamHandle stream, HostOperation operation);
  /// Whether all that was enqueued on it has run.
  bool is_idle(StreamHandle stream) const;

  EventHandle make_event();
  void destroy(EventHandle event) noexcept;
  void record(StreamHandle stream, EventHandle event);
  void wait(StreamHandle stream, EventHandle event);
  /// Runs what the event waits for. A deadline at or before Time{} runs one operation at most.
  bool wait_until(EventHandle event, Time deadline);
  Nanoseconds elapsed(EventHandle from, EventHandle to);

  void begin_capture(StreamHandle stream);
  GraphHandle end_capture(StreamHandle stream);
  /// Forgets what this thread recorded.
  void abandon_capture(StreamHandle stream) noexcept;
  void launch(StreamHandle stream, GraphHandle graph);
  void destroy(GraphHandle graph) noexcept;

  /// Throws where this thread records: `what` cannot be part of that.
  void forbid_in_capture(const char* what);
  /// The first failure is what later calls throw.
  void fail(std::exception_ptr failure) noexcept;
  void rethrow_failure() const;
  /// Runs all that was enqueued.
  void run_all() noexcept;

 private:
  struct Recording;
  struct Record;
  struct Item;
  struct Stream;
  struct Event;
  struct Graph;
  using Operation = std::shared_ptr<const HostOperation>;

  static Stream& of(StreamHandle stream);
  static const std::shared_ptr<Event>& of(EventHandle event);
  Recording* recording_of(const Stream& stream);
  Recording* open_recording() const;
  void push(Stream& stream, Operation operation);
  void push_record(Stream& stream, Event& event);
  void push_wait(Stream& stream, const Event& event);
  void close(Recording& recording) noexcept;
  Stream& add_stream();
  void remove(Stream& stream) noexcept;

  void after_enqueue();
  /// Runs one operation that brings the stream's first one nearer.
  void advance(Stream& stream);
  void advance_towards(const Record& record);
  void advance_any();
  void run_head(Stream& stream);
  void run(Stream& stream, const Item& item);

  Timing timing_;
  Random random_;
  Cost cost_;
  const Nanoseconds enqueueing_;
  HostMemory& memory_;
  HappensBefore& order_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<std::shared_ptr<Recording>> recordings_;  ///< that are open
  Nanoseconds host_now_{0};
  std::exception_ptr failure_;
};

}  // namespace penstock::gpu
