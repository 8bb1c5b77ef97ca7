// SPDX-License-Identifier: Apache-2.0
// Memory and ordering of one device, without any vendor's header. A stream carries work in order;
// an event marks a point in it. Events and streams only meet those of the same backend.
//
// Thread-safety: a Device may be used from any thread. A Stream belongs to one thread at a time. An
// Event is recorded by one thread; others may wait for it once they learnt of it through a ring.
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

/// A point in a stream. Never recorded counts as reached.
class Event {
 public:
  virtual ~Event() = default;
  /// Blocks the calling thread until the event or the deadline; false: not reached in time.
  virtual bool wait_until(Time deadline) const = 0;
  /// Time on the device between two reached events.
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
  /// Equal sizes; neither range may change until an event recorded after this is reached.
  virtual void copy(std::span<std::byte> to, std::span<const std::byte> from) = 0;
  /// Host streams keep the closure; device streams record what it enqueues.
  virtual std::unique_ptr<Program> capture(const std::function<void()>& enqueue) = 0;
  /// The backend's own handle, for code of the same backend.
  virtual void* native() noexcept = 0;
};

/// Waits for all that was enqueued, as far as the device still can: after an error, before memory
/// that it may be using is handed on. `event` is the caller's own.
inline void settle(Stream& stream, Event& event) noexcept {
  try {
    stream.record(event);
    event.wait_until(Time::max());
  } catch (...) {
    return;  // a device that cannot even wait does nothing any more
  }
}

/// A block of memory that knows how to free itself. Move-only.
class Buffer {
 public:
  using Release = std::function<void(std::byte*)>;
  Buffer() = default;
  Buffer(std::byte* data, std::size_t bytes, Release release)
      : data_(data), bytes_(bytes), release_(std::move(release)) {}
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        release_(std::move(other.release_)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(release_, other.release_);
    return *this;
  }
  ~Buffer() {
    if (data_ != nullptr) release_(data_);
  }
  std::span<std::byte> bytes() const noexcept { return {data_, bytes_}; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  Release release_;
};

/// Keeps memory of somebody else's as a device needs it for copies. Ends after the last of them is
/// done, and before the memory does.
class MemoryPin {
 public:
  virtual ~MemoryPin() = default;
};

class Device {
 public:
  virtual ~Device() = default;
  /// Aligned to 4096 bytes; its pages have been touched. Throws DeviceError when there is no room.
  virtual Buffer allocate(std::size_t bytes, MemoryKind) = 0;
  /// May host and pinned memory that it copies from be any memory of the host, whoever allocated
  /// it?
  virtual bool takes_any_memory() const noexcept { return false; }
  /// Makes memory of the host that somebody else allocated, and that may be readable alone, as good
  /// to copy from as pinned memory, for all devices of this kind. Null: that cannot be.
  virtual std::unique_ptr<MemoryPin> pin(std::span<const std::byte> /*memory*/) {
    return takes_any_memory() ? std::make_unique<MemoryPin>() : nullptr;
  }
  virtual std::unique_ptr<Stream> make_stream() = 0;
  virtual std::unique_ptr<Event> make_event() = 0;
};

}  // namespace penstock
