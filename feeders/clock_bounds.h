// SPDX-License-Identifier: Apache-2.0
// How far the clock of another process is ahead of ours, by what cannot be otherwise: a message
// arrives after it was sent. Each message in one direction bounds the difference on one side; a
// round trip, on both. With NTP's four times the bound is half of what the round trip took; the
// tightest bounds of all messages hold.
//
// Thread-safety: one thread at a time.
#pragma once

#include <cstdint>
#include <optional>

namespace penstock {

/// This machine's CLOCK_REALTIME, in ns since 1970.
std::int64_t wall_clock_ns() noexcept;

class ClockBounds {
 public:
  /// What happened at `theirs` by their clock was before our `ours`, or after it. In ns since 1970;
  /// what is no such time, as 0 is, says nothing. Bounds that contradict the earlier ones take
  /// their place: a clock was set.
  void before(std::int64_t theirs, std::int64_t ours) noexcept;
  void after(std::int64_t theirs, std::int64_t ours) noexcept;

  struct Estimate {
    double offset_ns = 0;  ///< theirs less ours
    double bound_ns = 0;   ///< of its error, on either side
  };
  /// Empty: it is not bounded on both sides yet.
  std::optional<Estimate> estimate() const noexcept;

 private:
  std::optional<std::int64_t> least_, most_;  // of theirs less ours
};

}  // namespace penstock
