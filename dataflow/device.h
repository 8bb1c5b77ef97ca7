// SPDX-License-Identifier: Apache-2.0
// Memory and ordering of one device, without any vendor's header. A stream runs work in order; an
// event marks a point in it. Events and streams only work with those of the same backend.
//
// Thread-safety: a Device may be used from any thread. A Stream belongs to one thread at a time.
// One thread records an Event; other threads may wait for it after a ring has handed it to them.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "dataflow/clock.h"

namespace penstock {

enum class MemoryKind : std::uint8_t { host, pinned, device };

/// A point in a stream. An event that was never recorded counts as reached.
class Event {
 public:
  virtual ~Event() = default;
  /// Blocks the calling thread until the event or the deadline. False: not reached in time, or the
  /// run is stopped, and the device only keeps time.
  virtual bool wait_until(Time deadline) const = 0;
  /// The device's time between two reached events.
  virtual Nanoseconds since(const Event& earlier) const = 0;
};

class Stream;

/// A recorded sequence of work that can be launched again and again without being rebuilt.
class Program {
 public:
  virtual ~Program() = default;
  virtual void launch(Stream&) = 0;
};

class Stream {
 public:
  virtual ~Stream() = default;
  virtual void record(Event&) = 0;
  virtual void wait_for(const Event&) = 0;
  /// Both ranges have equal sizes. Neither may change until an event recorded after this call is
  /// reached.
  virtual void copy(std::span<std::byte> to, std::span<const std::byte> from) = 0;
  /// Host streams keep the closure. Device streams record the work that it enqueues.
  virtual std::unique_ptr<Program> capture(const std::function<void()>& enqueue) = 0;
  /// The backend's native handle, for code of the same backend.
  virtual void* native() noexcept = 0;
};

/// Waits for all enqueued work, if the device still can. Use it after an error, before memory that
/// the device may be using is handed on. `event` belongs to the caller.
inline void settle(Stream& stream, Event& event) noexcept {
  try {
    stream.record(event);
    event.wait_until(Time::max());
  } catch (...) {
    return;  // a device that cannot even wait does no more work
  }
}

/// The Program of streams that cannot record work: each launch enqueues the work again.
class Closure final : public Program {
 public:
  explicit Closure(std::function<void()> enqueue) : enqueue_(std::move(enqueue)) {}
  void launch(Stream&) override { enqueue_(); }

 private:
  const std::function<void()> enqueue_;
};

/// A block of memory that frees itself. Move-only.
class Buffer {
 public:
  using Release = std::function<void(std::byte*)>;
  Buffer() = default;
  Buffer(std::byte* data, std::size_t bytes, Release release)
      : data_(data, std::move(release)), bytes_(bytes) {}
  std::span<std::byte> bytes() const noexcept { return {data_.get(), data_ ? bytes_ : 0}; }

 private:
  std::unique_ptr<std::byte, Release> data_;
  std::size_t bytes_ = 0;
};

/// Prepares host memory that a device did not allocate, so that the device can copy from it fast.
/// Destroy it after the last copy is done, and before the memory is freed.
class MemoryPin {
 public:
  virtual ~MemoryPin() = default;
};

class Device {
 public:
  virtual ~Device() = default;
  /// The memory is aligned to 4096 bytes, and its pages have been touched. Throws DeviceError if
  /// there is not enough memory.
  virtual Buffer allocate(std::size_t bytes, MemoryKind) = 0;
  /// True if the device can copy from any host memory as well as from pinned memory, whichever
  /// code allocated it.
  virtual bool takes_any_memory() const noexcept { return false; }
  /// Makes host memory that this device did not allocate as good to copy from as pinned memory, for
  /// all devices of this kind. The memory may be read-only. Null if that is impossible.
  virtual std::unique_ptr<MemoryPin> pin(std::span<const std::byte> /*memory*/) {
    return takes_any_memory() ? std::make_unique<MemoryPin>() : nullptr;
  }
  virtual std::unique_ptr<Stream> make_stream() = 0;
  virtual std::unique_ptr<Event> make_event() = 0;
};

}  // namespace penstock
