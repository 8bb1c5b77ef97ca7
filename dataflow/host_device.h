// SPDX-License-Identifier: Apache-2.0
// The Device made of malloc and memcpy: host rings, tests, the CPU backend, and the memory of the
// emulated accelerator.
//
// Its streams are timelines: each remembers the moment at which everything enqueued so far is done.
// `Timeline::occupy` lets a backend say that the device is busy for a stated time from the moment
// the stream is free; nothing sleeps until somebody waits for an event. A step that is launched
// while the previous one still runs thus begins exactly when that ends, as on an accelerator,
// however late the host's threads wake.
//
// Copies move their bytes at once, on the calling thread, which first waits for what they wait for.
// With a copy rate they are done no earlier than an engine of that bandwidth would be, counted from
// the moment the stream was free, not from when the thread woke: what waits for the copy waits
// until then, and so does whoever wants to write to its source.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "dataflow/clock.h"
#include "dataflow/device.h"

namespace penstock {

/// What Stream::native() of a HostDevice points to.
class Timeline {
 public:
  explicit Timeline(const Clock& clock) : clock_(clock) {}
  /// The stream is busy for `duration`, beginning when its earlier work is done, or now.
  void occupy(Nanoseconds duration);
  /// Work enqueued from here on begins no earlier than `moment`.
  void hold_until(Time moment);
  /// When all work enqueued so far is done.
  Time free_at() const;

 private:
  const Clock& clock_;
  Time free_at_{};
};

struct HostDeviceOptions {
  bool copies = true;  ///< false: copies into and out of it move nothing and cost the CPU nothing
  double copy_bytes_per_s = 0;  ///< of each stream's copy engine; 0: as fast as the bytes move
  Nanoseconds spin{};           ///< of a wait for an event: see Clock::sleep_exactly_until
  /// Called after a host thread waited for an event, with how late it woke and how long it spun.
  /// May be empty; called from any thread.
  std::function<void(Nanoseconds late, Nanoseconds spun)> waited{};
};

class HostDevice final : public Device {
 public:
  /// `clock` outlives the device and all that it made.
  explicit HostDevice(Clock& clock, HostDeviceOptions options = {});
  Buffer allocate(std::size_t bytes, MemoryKind) override;
  bool takes_any_memory() const noexcept override { return true; }
  std::unique_ptr<Stream> make_stream() override;
  std::unique_ptr<Event> make_event() override;

 private:
  Clock& clock_;
  HostDeviceOptions options_;
};

}  // namespace penstock
