// SPDX-License-Identifier: Apache-2.0
// Streams, events and recorded graphs whose work runs on the CPU. A test chooses when: as early or
// as late as CUDA's rules allow, or in a random order that they allow. The thread that waits or
// enqueues runs the work. Time is virtual: each operation takes a time that depends on its bytes.
//
// A wait refers to the last record at the time when the wait was enqueued; an event that was never
// recorded counts as reached. Work that a thread enqueues between begin_capture and end_capture is
// stored and does not run. Records and waits in a recording are external nodes: each launch records
// the event again, or waits for its last record before the launch. Use that would fail or hang on a
// GPU throws std::logic_error.
//
// If an operation throws, every later call throws the same exception. Thread-safety: none; guard
// it.
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

/// at_once: work runs when it is enqueued. late: work runs when the host waits for it, and only
/// what it must wait for. shuffled: a few operations of any stream run at each enqueue or wait.
enum class Timing : std::uint8_t { at_once, late, shuffled };

struct HostOperation {
  std::string name{};
  bool pageable = false;  ///< may access memory of no driver; cannot be recorded
  std::function<Accesses()> accesses{};
  std::function<void()> run{};
  std::function<Nanoseconds()> cost{};  ///< empty: its bytes determine it
};

class HostStreams {
 public:
  /// The time of an operation, by the number of bytes that it reads and writes.
  using Cost = std::function<Nanoseconds(std::size_t bytes)>;

  /// `enqueueing`: the host's time for one operation, or for the launch of one recording.
  HostStreams(Timing timing, std::uint64_t seed, Cost cost, Nanoseconds enqueueing,
              HostMemory& memory, HappensBefore& order);
  HostStreams(const HostStreams&) = delete;
  HostStreams& operator=(const HostStreams&) = delete;
  ~HostStreams();

  StreamHandle make_stream();
  /// Runs the stream's enqueued work first.
  void destroy(StreamHandle stream) noexcept;
  void enqueue(StreamHandle stream, HostOperation operation);
  /// True if all work enqueued on the stream has run.
  bool is_idle(StreamHandle stream) const;

  EventHandle make_event();
  void destroy(EventHandle event) noexcept;
  void record(StreamHandle stream, EventHandle event);
  void wait(StreamHandle stream, EventHandle event);
  /// Runs the work that the event waits for. If the deadline is at or before Time{}, runs one
  /// operation at most.
  bool wait_until(EventHandle event, Time deadline);
  Nanoseconds elapsed(EventHandle from, EventHandle to);

  void begin_capture(StreamHandle stream);
  GraphHandle end_capture(StreamHandle stream);
  /// Discards the recording of this thread.
  void abandon_capture(StreamHandle stream) noexcept;
  void launch(StreamHandle stream, GraphHandle graph);
  void destroy(GraphHandle graph) noexcept;

  /// Throws if this thread records, because `what` cannot be part of a recording.
  void forbid_in_capture(const char* what);
  /// Later calls throw the first failure.
  void fail(std::exception_ptr failure) noexcept;
  void rethrow_failure() const;
  /// Runs all enqueued work.
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

  void after_enqueue();
  /// Runs one operation towards the stream's first one.
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
  std::vector<std::shared_ptr<Recording>> recordings_;  ///< the open ones
  Nanoseconds host_now_{0};
  std::exception_ptr failure_;
};

}  // namespace penstock::gpu
