// SPDX-License-Identifier: Apache-2.0
// Estimates how far the clock of another process is ahead of ours. A message arrives after it was
// sent, so each message bounds the difference on one side, and a round trip bounds it on both. With
// NTP's four times the bound is half of the round-trip time. The tightest bounds of all messages
// count.
//
// Thread-safety: one thread at a time.
#pragma once

#include <cstdint>
#include <optional>

namespace penstock::remote {

class ClockBounds {
 public:
  /// An event at `theirs` by the other clock happened before, or after, `ours` by our clock. In ns
  /// since 1970; values that are no such time, such as 0, are ignored. Bounds that contradict
  /// earlier ones replace them: a clock was set.
  void before(std::int64_t theirs, std::int64_t ours) noexcept;
  void after(std::int64_t theirs, std::int64_t ours) noexcept;

  struct Estimate {
    double offset_ns = 0;  ///< their clock minus ours
    double bound_ns = 0;   ///< of the error, to either side
  };
  /// Empty: the difference is not bounded on both sides yet.
  std::optional<Estimate> estimate() const noexcept;

 private:
  std::optional<std::int64_t> least_, most_;  // of their clock minus ours
};

}  // namespace penstock::remote
