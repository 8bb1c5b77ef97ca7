// SPDX-License-Identifier: Apache-2.0
// The Device made of malloc and memcpy. Host rings, tests, the CPU backend and the emulated
// accelerator use its memory.
//
// Its streams are timelines: each stores the time at which all work enqueued so far is done.
// `Timeline::occupy` lets a backend say that the device is busy for a given time from when the
// stream is free. No thread sleeps until it waits for an event. A step that is launched while the
// previous one runs therefore begins exactly when that one ends, as on an accelerator, even if the
// host's threads wake late.
//
// A copy moves its bytes at once, on the calling thread, after that thread has waited for what the
// copy depends on. With a copy rate, a copy ends no earlier than on an engine of that bandwidth,
// counted from when the stream was free, not from when the thread woke. Work that depends on the
// copy waits until then, and so does a writer to its source. Copies from pageable memory may have a
// rate of their own.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "dataflow/clock.h"
#include "dataflow/device.h"

namespace penstock {

/// Stream::native() of a HostDevice points to one of these.
class Timeline {
 public:
  explicit Timeline(const Clock& clock) : clock_(clock) {}
  /// The stream is busy for `duration`, from when its earlier work is done, or from now if that is
  /// later.
  void occupy(Nanoseconds duration);
  /// Work enqueued from now on begins no earlier than `moment`.
  void hold_until(Time moment);
  /// The time at which all work enqueued so far is done.
  Time free_at() const;

 private:
  const Clock& clock_;
  Time free_at_{};
};

/// The memory that is pinned or a device's. Any thread may call it.
class PinnedMemory {
 public:
  /// `block` counts until the pin is destroyed.
  std::unique_ptr<MemoryPin> add(std::span<const std::byte> block);
  bool has(const std::byte* address) const;

 private:
  class Pin;
  mutable std::mutex mutex_;
  std::map<const std::byte*, const std::byte*> ends_;  // by the beginning of each block
};

struct HostDeviceOptions {
  bool copies = true;           ///< false: copies move no bytes and cost no CPU time
  double copy_bytes_per_s = 0;  ///< of each stream's copy engine; 0: as fast as the bytes move
  /// The same for copies from host memory that `pinned` lacks.
  double pageable_bytes_per_s = 0;
  /// Shared by devices that copy from each other's memory, and outlives it. Null: copies from all
  /// memory are alike.
  PinnedMemory* pinned = nullptr;
  Nanoseconds spin{};  ///< for waits for an event: see Clock::sleep_exactly_until
  /// Called after a host thread has waited for an event, with how late it woke and how long it
  /// spun. May be empty. Any thread may call it.
  std::function<void(Nanoseconds late, Nanoseconds spun)> waited{};
};

class HostDevice : public Device {
 public:
  /// `clock` must outlive the device and everything that it made.
  explicit HostDevice(Clock& clock, HostDeviceOptions options = {});
  Buffer allocate(std::size_t bytes, MemoryKind) override;
  bool takes_any_memory() const noexcept override { return options_.pinned == nullptr; }
  std::unique_ptr<MemoryPin> pin(std::span<const std::byte> memory) override;
  std::unique_ptr<Stream> make_stream() override;
  std::unique_ptr<Event> make_event() override;

 private:
  Clock& clock_;
  HostDeviceOptions options_;
};

}  // namespace penstock
